//! Vectors of texts through the table: what a good request gets, and that a bad one is refused before any work is done.

use std::ptr::{from_ref, null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use sf_abi_sdk::sf_abi::*;

use crate::host::{Open, Refusal, call, engine, open, open_with, option};
use crate::{EMBED_GATE, PANICS, VOCAB, WAITS};

fn table(model: &Open) -> Option<&'static SfrEmbedVt> {
    // SAFETY: a live model and an id by the header.
    let table = unsafe { engine().get_interface.unwrap()(model.0, SF_EMBED_1.as_ptr()) };
    // SAFETY: NULL or the table that the id stands for.
    unsafe { table.cast::<SfrEmbedVt>().as_ref() }
}

/// A request's arrays, in memory that is aligned as the header asks.
struct Texts {
    tokens: Vec<u64>,
    lengths: Vec<u64>,
    request: SfrEmbed,
}

fn words(values: &[u32]) -> Vec<u64> {
    values
        .chunks(2)
        .map(|pair| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32)
        .collect()
}

impl Texts {
    fn new(texts: &[&[u32]]) -> Texts {
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
        let tokens = texts.concat();
        let (packed, packed_lengths) = (words(&tokens), words(&lengths));
        let array = |at: &[u64], count: usize| SfrArray {
            at: at.as_ptr().expose_provenance() as u64,
            count: count as u32,
            stride: 4,
        };
        let request = SfrEmbed {
            struct_size: size_of::<SfrEmbed>() as u32,
            flags: 0,
            tokens: array(&packed, tokens.len()),
            lengths: array(&packed_lengths, lengths.len()),
            pooling: SFR_POOLING_MODEL,
            normalize: SFR_NORMALIZE_MODEL,
            control: null(),
        };
        Texts { tokens: packed, lengths: packed_lengths, request }
    }

    fn with(mut self, edit: impl FnOnce(&mut SfrEmbed)) -> Texts {
        edit(&mut self.request);
        self
    }

    /// Asks with room for so many floats.
    fn ask(&self, model: &Open, floats: usize) -> (Result<Vec<f32>, Refusal>, u64) {
        assert!(!self.tokens.is_empty() || !self.lengths.is_empty() || self.request.tokens.count == 0);
        let mut out = vec![7.5_f32; floats];
        let mut buf = SfrBuf { p: out.as_mut_ptr().cast(), cap: floats as u64 * 4, needed: 0 };
        let embed = table(model).unwrap().embed.unwrap();
        // SAFETY: a live model; the request and the buffer are ours for the call.
        let result = call(|err| unsafe { embed(model.0, &self.request, &mut buf, err) });
        if result.is_err() {
            assert!(out.iter().all(|value| *value == 7.5), "a refused call wrote");
        }
        (result.map(|()| out), buf.needed)
    }
}

#[test]
fn each_text_gets_its_vector() {
    let model = open();
    let (vectors, needed) = Texts::new(&[&[1, 2, 3], &[5], &[4, 4]]).ask(&model, 6);
    assert_eq!((vectors.ok().unwrap(), needed), (vec![6.0, 3.0, 5.0, 1.0, 8.0, 2.0], 24));
    let first =
        Texts::new(&[&[3, 9]]).with(|r| (r.pooling, r.normalize) = (SFR_POOLING_FIRST, SFR_NORMALIZE_YES));
    assert_eq!(first.ask(&model, 2).0.ok().unwrap(), [1.5, 1.0]);
}

#[test]
fn a_small_buffer_costs_no_work_and_is_told_what_is_needed() {
    let model = open();
    let (refusal, needed) = Texts::new(&[&[PANICS], &[1]]).ask(&model, 3);
    assert_eq!((refusal.err().unwrap().code, needed), (SFR_E_SMALL_BUFFER, 16));
}

#[test]
fn a_request_that_breaks_a_rule_is_refused_by_its_field() {
    let model = open();
    let good = || Texts::new(&[&[1, 2], &[3]]);
    let cases: Vec<(&str, Texts, i32, &str)> = vec![
        ("no texts", Texts::new(&[]), SFR_E_ARG, "lengths"),
        ("an empty text", Texts::new(&[&[1], &[]]), SFR_E_ARG, "lengths"),
        ("a long text", Texts::new(&[&[1; 5]]), SFR_E_ARG, "lengths"),
        ("a foreign token", Texts::new(&[&[1], &[VOCAB]]), SFR_E_ARG, "tokens"),
        ("fewer tokens than lengths", good().with(|r| r.tokens.count = 2), SFR_E_ABI, "lengths"),
        ("more tokens than lengths", good().with(|r| r.lengths.count = 1), SFR_E_ABI, "lengths"),
        ("wide tokens", good().with(|r| r.tokens.stride = 8), SFR_E_ABI, "tokens"),
        ("a crooked address", good().with(|r| r.lengths.at += 4), SFR_E_ABI, "lengths"),
        ("no address", good().with(|r| r.tokens.at = 0), SFR_E_ABI, "tokens"),
        ("too many", good().with(|r| r.tokens.count = u32::MAX), SFR_E_ABI, "tokens"),
        ("a flag", good().with(|r| r.flags = 1), SFR_E_UNSUPPORTED, "flags"),
        ("a pooling of a later ABI", good().with(|r| r.pooling = 4), SFR_E_UNSUPPORTED, "pooling"),
        ("a later answer", good().with(|r| r.normalize = 3), SFR_E_UNSUPPORTED, "normalize"),
        ("a short struct", good().with(|r| r.struct_size -= 8), SFR_E_ABI, "embed"),
    ];
    for (what, texts, code, field) in cases {
        let refusal = texts.ask(&model, 8).0.err().unwrap_or_else(|| panic!("{what} was accepted"));
        assert_eq!((refusal.code, refusal.field.as_str()), (code, field), "{what}: {}", refusal.message);
    }
    let embed = table(&model).unwrap().embed.unwrap();
    // SAFETY: a missing request or buffer is refused.
    let none = call(|err| unsafe { embed(model.0, null(), null_mut(), err) });
    assert_eq!(none.err().unwrap().code, SFR_E_ARG);
    assert!(good().ask(&model, 4).0.is_ok(), "the model goes on");
}

#[test]
fn a_panic_is_an_error_that_costs_the_model() {
    let model = open();
    let refusal = Texts::new(&[&[PANICS]]).ask(&model, 2).0.err().unwrap();
    assert_eq!((refusal.code, refusal.scope), (SFR_E_INTERNAL, SFR_SCOPE_MODEL));
    let refusal = Texts::new(&[&[1]]).ask(&model, 2).0.err().unwrap();
    assert_eq!((refusal.code, refusal.scope), (SFR_E_STATE, SFR_SCOPE_MODEL));
}

#[test]
fn a_raised_abort_word_ends_the_call_and_another_one_is_refused_meanwhile() {
    let model = open();
    let mut page = SfrControl {
        struct_size: size_of::<SfrControl>() as u32,
        yield_seq: 0,
        abort_seq: 41,
        reserved0: 0,
        reserved: [0; 6],
    };
    // SAFETY: a word of a page that lives to the end of the test and that both sides access atomically.
    let word = unsafe { AtomicU32::from_ptr(&raw mut page.abort_seq) };
    let (began, has_begun) = channel();
    let (go, gone) = channel();
    *EMBED_GATE.lock().unwrap() = Some((began, gone));
    let address = from_ref(&page).expose_provenance();
    std::thread::scope(|scope| {
        let model = &model;
        let asking = scope.spawn(move || {
            let control = std::ptr::with_exposed_provenance(address);
            Texts::new(&[&[WAITS]]).with(|r| r.control = control).ask(model, 2).0.err().unwrap().code
        });
        has_begun.recv().unwrap();
        assert_eq!(Texts::new(&[&[1]]).ask(model, 2).0.err().unwrap().code, SFR_E_BUSY);
        word.fetch_add(1, Ordering::Release);
        go.send(()).unwrap();
        assert_eq!(asking.join().unwrap(), SFR_E_CANCELLED);
    });
}

#[test]
fn a_model_offers_vectors_lanes_or_both() {
    let with = |embeds: i64, lanes: i64| {
        let mut options = [
            option("x.sums.embeds", SFR_T_BOOL, embeds, 0.0, true),
            option("x.sums.lanes", SFR_T_BOOL, lanes, 0.0, true),
        ];
        open_with("/model", &mut options).ok().unwrap()
    };
    let kv = |model: &Open| {
        // SAFETY: a live model and an id by the header.
        !unsafe { engine().get_interface.unwrap()(model.0, SF_KV_1.as_ptr()) }.is_null()
    };
    let lane = |model: &Open| {
        let mut lane = 0;
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_create.unwrap()(model.0, &mut lane, err) })
    };
    let (both, text, encoder) = (with(1, 1), with(0, 1), with(1, 0));
    assert_eq!([&both, &text, &encoder].map(|model| table(model).is_some()), [true, false, true]);
    assert_eq!([&both, &text, &encoder].map(kv), [true, true, false]);
    assert!(lane(&both).is_ok() && lane(&text).is_ok());
    let refusal = lane(&encoder).err().unwrap();
    assert_eq!(refusal.code, SFR_E_UNSUPPORTED);
    assert!(refusal.message.contains("an encoder makes no text"), "{}", refusal.message);
}
