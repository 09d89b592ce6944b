//! Lies outside of steps, options that are not in effect, optional interfaces, and a library's set-up and end.

use super::*;

#[test]
fn lies_outside_of_steps_are_named_too() {
    let runtime = bind(twisted::entry).unwrap();
    OPEN.set(1);
    let text = runtime.open(&request()).unwrap_err().to_string();
    OPEN.set(SFR_OK);
    assert!(text.contains("in open: it returned 0 and no model"), "{text}");

    let described = |bytes: &'static [u8], expect: &str| {
        DESCRIPTION.set(Some(bytes));
        let text = runtime.open(&request()).unwrap_err().to_string();
        DESCRIPTION.set(None);
        assert!(text.contains(expect), "{text}");
    };
    described(b"{", "in describe: its answer is not a description");
    described(b"[1]", "in describe: its answer is not a description");
    described(b"\xff", "in describe: its answer is not UTF-8");
    static LONG: [u8; (1 << 20) + 1] = [b' '; (1 << 20) + 1];
    described(&LONG, "its answer takes 1048577 bytes, the limit is 1048576");

    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    CREATE.set(Some(44));
    let text = executor.run(&plan(), &mut out).unwrap_err().to_string();
    CREATE.set(None);
    assert!(text.contains("in lane_create: it gave out lane 44 a second time"), "{text}");
}

#[test]
fn what_a_cut_leaves_is_compared_with_what_was_asked() {
    let cut = |left: u32| {
        let mut executor = twisted_executor();
        let mut out = StepOut::default();
        executor.run(&plan(), &mut out).unwrap();
        let cut = LaneOp::Truncate { lane: LaneId(1), len: 1 };
        let ops = StepPlan { seq: 2, ops: vec![cut], ..StepPlan::default() };
        TRUNCATE.set(Some(left));
        let answer = executor.run(&ops, &mut out);
        TRUNCATE.set(None);
        answer.map(|()| out.lanes)
    };
    assert_eq!(cut(1), Ok(vec![]));
    let fault = cut(0).unwrap().remove(0).result.unwrap_err();
    assert_eq!(
        (fault.code, fault.message.as_str()),
        (SFR_E_UNSUPPORTED, "the runtime could keep 0 of 1 positions")
    );
    assert!(cut(2).unwrap_err().to_string().contains("2 positions are left of 1 wanted"));
}

#[test]
fn an_option_that_is_honoured_but_not_in_effect_is_refused() {
    let must =
        sf_core::EngineOption { key: "ctx.max".into(), value: sf_core::OptionValue::Int(4096), must: true };
    let asked = OpenRequest { options: vec![must], ..request() };
    let check = |bytes: &'static [u8], expect: &str| {
        DESCRIPTION.set(Some(bytes));
        let answer = bind(twisted::entry).unwrap().open(&asked);
        DESCRIPTION.set(None);
        let text = answer.unwrap_err().to_string();
        assert!(text.contains(expect), "{text}");
    };
    check(
        br#"{"effective":{"ctx.max":2048}}"#,
        "option ctx.max = 4096: the model runs with 2048 (code -4, ctx.max)",
    );
    check(br#"{"effective":{}}"#, "option ctx.max = 4096: the model does not say what it runs with");
}

// ------------------------------------------------------------------ tokenizer, inspect, shutdown

pub(crate) const TOKENIZER: SfrTokenizerVt = SfrTokenizerVt {
    struct_size: size_of::<SfrTokenizerVt>() as u32,
    reserved0: 0,
    open: Some(tokenizer_open),
    close: Some(tokenizer_close),
    encode: Some(tokenizer_encode),
    token_bytes: Some(tokenizer_bytes),
    facts: None,
};

pub(crate) const INSPECT: SfrInspectVt = SfrInspectVt {
    struct_size: size_of::<SfrInspectVt>() as u32,
    reserved0: 0,
    inspect: Some(inspect),
    estimate: Some(estimate),
};

unsafe extern "C" fn tokenizer_open(
    _: *const SfrOpen,
    out: *mut *mut SfrTokenizer,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's pointer; the handle is never read.
    unsafe { *out = std::ptr::dangling_mut::<u64>().cast() };
    SFR_OK
}

unsafe extern "C" fn tokenizer_close(_: *mut SfrTokenizer) {}

/// One token per byte; a text of "odd" gets one byte too many.
unsafe extern "C" fn tokenizer_encode(
    _: *mut SfrTokenizer,
    text: SfrStr,
    flags: u32,
    out: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's text.
    let text = unsafe { std::slice::from_raw_parts(text.p.cast::<u8>(), text.n as usize) };
    let mut bytes: Vec<u8> =
        text.iter().flat_map(|byte| (u32::from(*byte) + (flags << 8)).to_le_bytes()).collect();
    if text == b"odd" {
        bytes.push(0);
    }
    // SAFETY: the caller's record.
    let out = unsafe { &mut *out };
    out.needed = bytes.len() as u64;
    if out.cap < out.needed {
        return SFR_E_SMALL_BUFFER;
    }
    // SAFETY: `cap` bytes are writable and the answer is not longer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.p.cast(), bytes.len()) };
    SFR_OK
}

/// Every token is "ab"; token 7 has ends that fall.
unsafe extern "C" fn tokenizer_bytes(
    _: *mut SfrTokenizer,
    first: u32,
    count: u32,
    ends: *mut u32,
    bytes: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's record.
    let out = unsafe { &mut *bytes };
    out.needed = u64::from(count) * 2;
    if out.cap < out.needed {
        return SFR_E_SMALL_BUFFER;
    }
    for nth in 0..count as usize {
        // SAFETY: the caller has room for `count` ends.
        let end = unsafe { ends.add(nth) };
        let value = if first == 7 { 9 - nth as u32 } else { 2 * nth as u32 + 2 };
        // SAFETY: as above.
        unsafe { *end = value };
    }
    // SAFETY: `needed` bytes are writable.
    unsafe { std::slice::from_raw_parts_mut(out.p.cast::<u8>(), out.needed as usize) }
        .copy_from_slice(&b"ab".repeat(count as usize));
    SFR_OK
}

unsafe extern "C" fn inspect(_: *const SfrOpen, json: *mut SfrBuf, _: *mut SfrError) -> SfrStatus {
    // SAFETY: the caller's record with room to spare.
    let json = unsafe { &mut *json };
    json.needed = 2;
    // SAFETY: the caller gave room for more than two bytes.
    unsafe { std::ptr::copy_nonoverlapping(b"{}".as_ptr(), json.p.cast(), 2) };
    SFR_OK
}

unsafe extern "C" fn estimate(_: *const SfrOpen, out: *mut SfrEstimate, _: *mut SfrError) -> SfrStatus {
    // SAFETY: the caller's record.
    unsafe { (*out).bytes_weights = 42 };
    SFR_OK
}

#[test]
fn the_optional_interfaces_of_a_library_are_called_and_checked() {
    let runtime = bind(wordy::entry).unwrap();
    assert_eq!(runtime.interfaces(), ["sf.inspect/1", "sf.tokenizer/1"]);
    assert_eq!(runtime.inspect(&request()).unwrap().as_deref(), Some("{}"));
    assert_eq!(runtime.estimate(&request()).unwrap().unwrap().bytes_weights, 42);
    let tokenizer = runtime.tokenizer(&request()).unwrap().unwrap();
    let flags = EncodeFlags { special: true, add_bos: true };
    assert_eq!(tokenizer.encode("a", flags).unwrap(), [Token(0x361)]);
    assert_eq!(tokenizer.encode("ab", EncodeFlags::default()).unwrap(), [Token(0x61), Token(0x62)]);
    let odd = tokenizer.encode("odd", EncodeFlags::default()).unwrap_err().to_string();
    assert!(odd.contains("13 bytes are no whole tokens"), "{odd}");
    let found = tokenizer.token_bytes(Token(0), 20).unwrap();
    assert_eq!((found.get(0), found.get(19), found.get(20)), (&b"ab"[..], &b"ab"[..], &b""[..]));
    let fallen = tokenizer.token_bytes(Token(7), 2).unwrap_err().to_string();
    assert!(fallen.contains("its ends fall"), "{fallen}");
    assert!(tokenizer.facts().unwrap_err().to_string().contains("facts is NULL"));
    assert!(!runtime.shutdown(), "a tokenizer is open");
}

static INITS: AtomicU32 = AtomicU32::new(0);
static SHUTDOWNS: AtomicU32 = AtomicU32::new(0);

pub(crate) unsafe extern "C" fn count_init(_: *const SfrHost, _: *mut SfrError) -> SfrStatus {
    INITS.fetch_add(1, Ordering::SeqCst);
    SFR_OK
}

pub(crate) unsafe extern "C" fn count_shutdown() {
    SHUTDOWNS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_library_is_set_up_once_and_shut_down_once_and_never_under_a_model() {
    let first = bind(mortal::entry).unwrap();
    let second = bind(mortal::entry).unwrap();
    let model = second.open(&request()).unwrap();
    assert!(!first.shutdown());
    drop(model);
    assert!(first.shutdown() && second.shutdown());
    assert_eq!((INITS.load(Ordering::SeqCst), SHUTDOWNS.load(Ordering::SeqCst)), (1, 1));
    let refused =
        |error: KitError| assert!(error.to_string().contains("was shut down in this process"), "{error}");
    refused(second.open(&request()).unwrap_err());
    refused(bind(mortal::entry).unwrap_err());
}
