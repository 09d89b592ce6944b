//! A runtime that lies about vectors: neither what it says it wrote nor what stands there is believed.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "builds a table of our own around those of the no-op runtime")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use sf_abi::*;
use sf_core::{EmbedBatch, Token};
use sf_kit::{KitError, Model, OpenRequest, Runtime, host, noop};

const DIMS: usize = 2;

struct Tables {
    runtime: SfrRuntime,
    engine: SfrEngineVt,
    embed: SfrEmbedVt,
}
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

/// The no-op runtime whose model makes vectors.
fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let (abi_major, abi_minor) = (SFR_ABI_MAJOR, SFR_ABI_MINOR);
        let struct_size = size_of::<SfrQuery>() as u32;
        let query = SfrQuery { struct_size, abi_major, abi_minor, abi_minor_min: abi_minor };
        // SAFETY: the query is live.
        let at = unsafe { noop::entry(&query) };
        // SAFETY: the no-op runtime answers our version with a static table.
        let mut runtime = unsafe { at.read() };
        // SAFETY: the id is NUL-terminated.
        let engine = unsafe { (runtime.get_interface.unwrap())(SF_ENGINE_1.as_ptr()) };
        // SAFETY: "sf.engine/1" names an sfr_engine_vt.
        let mut engine = unsafe { engine.cast::<SfrEngineVt>().read() };
        runtime.get_interface = Some(lookup);
        engine.get_interface = Some(model_lookup);
        engine.describe = Some(describe);
        let embed =
            SfrEmbedVt { struct_size: size_of::<SfrEmbedVt>() as u32, reserved0: 0, embed: Some(embed) };
        Tables { runtime, engine, embed }
    })
}

thread_local! {
    /// Whether the table is offered, whether the description tells of it, how many bytes embed claims to have written
    /// beyond what was asked, its status, and the last element it writes.
    static LIE: Cell<(bool, bool, i64, SfrStatus, f32)> = const { Cell::new((true, true, 0, SFR_OK, 0.5)) };
}

unsafe extern "C" fn lookup(_id: *const c_char) -> *const c_void {
    std::ptr::from_ref(&tables().engine).cast()
}

unsafe extern "C" fn model_lookup(_model: *mut SfrModel, id: *const c_char) -> *const c_void {
    // SAFETY: ids are NUL-terminated.
    match LIE.get().0 && unsafe { CStr::from_ptr(id) } == SF_EMBED_1 {
        true => std::ptr::from_ref(&tables().embed).cast(),
        false => std::ptr::null(),
    }
}

unsafe extern "C" fn describe(_: *mut SfrModel, buf: *mut SfrBuf, _: *mut SfrError) -> SfrStatus {
    let facts = r#","embedding":{"dims":2,"pooling":"mean","normalized":true,"tokens_max":8}"#;
    let facts = if LIE.get().1 { facts } else { "" };
    let text = format!(r#"{{"effective":{{}},"model":{{"vocab":16}},"capabilities":{{}}{facts}}}"#);
    // SAFETY: the caller's record.
    let buf = unsafe { &mut *buf };
    buf.needed = text.len() as u64;
    if buf.cap < buf.needed {
        return SFR_E_SMALL_BUFFER;
    }
    // SAFETY: `cap` bytes are writable and the answer is not longer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.p.cast(), text.len()) };
    SFR_OK
}

/// The sum and the number of each text's tokens, read as the header says.
unsafe extern "C" fn embed(
    _: *mut SfrModel,
    req: *const SfrEmbed,
    out: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    let (.., more, status, last) = LIE.get();
    // SAFETY: the caller's record.
    let req = unsafe { &*req };
    // SAFETY: the caller's record.
    let out = unsafe { &mut *out };
    assert_eq!(
        (req.struct_size as usize, req.tokens.at % 8, req.lengths.at % 8),
        (size_of::<SfrEmbed>(), 0, 0)
    );
    let words = |array: SfrArray| {
        assert_eq!(array.stride, 4);
        let at = std::ptr::with_exposed_provenance::<u32>(array.at as usize);
        // SAFETY: the array has that many words.
        unsafe { std::slice::from_raw_parts(at, array.count as usize) }
    };
    let (mut tokens, lengths) = (words(req.tokens), words(req.lengths));
    let mut vectors = Vec::new();
    for &length in lengths {
        let (text, rest) = tokens.split_at(length as usize);
        tokens = rest;
        vectors.extend([text.iter().sum::<u32>() as f32, length as f32]);
    }
    *vectors.last_mut().unwrap() += last - 0.5;
    let needed = (vectors.len() * 4) as u64;
    assert!(out.cap >= needed, "room for {needed} bytes");
    // SAFETY: `cap` bytes are writable.
    unsafe { std::ptr::copy_nonoverlapping(vectors.as_ptr(), out.p.cast(), vectors.len()) };
    out.needed = needed.wrapping_add_signed(more);
    status
}

unsafe extern "C" fn entry(_query: *const SfrQuery) -> *const SfrRuntime {
    &tables().runtime
}

fn open() -> Result<Model, KitError> {
    // SAFETY: static tables around those of the no-op runtime.
    let runtime = unsafe { Runtime::bind(entry, host::host()) }.unwrap();
    runtime.open(&OpenRequest { models: vec!["/none".into()], ..OpenRequest::default() })
}

fn ask(texts: &[&[u32]]) -> Result<Vec<f32>, KitError> {
    let (mut batch, mut out) = (EmbedBatch::default(), vec![9.0; 99]);
    for text in texts {
        batch.push(&text.iter().map(|token| Token(*token)).collect::<Vec<_>>());
    }
    let dims = open()?.embed(&batch, &mut out)?;
    assert_eq!(dims, DIMS);
    Ok(out)
}

#[test]
fn texts_of_any_length_arrive_and_their_vectors_come_back() {
    LIE.set((true, true, 0, SFR_OK, 0.5));
    assert_eq!(open().unwrap().interfaces(), ["sf.embed/1"]);
    assert_eq!(ask(&[&[1, 2, 3], &[5], &[4, 4]]).unwrap(), [6.0, 3.0, 5.0, 1.0, 8.0, 2.0]);
    assert_eq!(ask(&[&[7]]).unwrap(), [7.0, 1.0]);
}

#[test]
fn a_lie_about_vectors_is_an_error_in_words() {
    let check = |lie: (bool, bool, i64, SfrStatus, f32), words: &str, spares: bool| {
        LIE.set(lie);
        let error = ask(&[&[1, 2], &[3]]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.spares_the_model(), spares, "{error}");
    };
    check((true, true, 4, SFR_OK, 0.5), "it wrote 20 bytes for 2 vectors of 2", false);
    check((true, true, -16, SFR_OK, 0.5), "it wrote 0 bytes for 2 vectors of 2", false);
    check((true, true, 0, SFR_E_CANCELLED, 0.5), "embed refused", true);
    check((true, true, 0, SFR_OK, f32::NAN), "element 1 of the vector of text 1 is NaN", true);
    check((true, true, 0, SFR_OK, f32::INFINITY), "element 1 of the vector of text 1 is inf", true);
    check((true, false, 0, SFR_OK, 0.5), "sf.embed/1 and \"embedding\"", false);
    check((false, true, 0, SFR_OK, 0.5), "sf.embed/1 and \"embedding\"", false);
    check((false, false, 0, SFR_OK, 0.5), "this model makes no vectors", true);
}
