//! A small Rust runtime, driven through the raw table as a host would: what a good host gets, and what a bad one cannot do.
#![expect(unsafe_code, reason = "the tests are a host")]
#![expect(clippy::unwrap_used, reason = "the host's helpers fail the test that uses them")]

mod embed;
mod host;
mod kv;

use std::ptr::{from_ref, null, null_mut};
use std::sync::{Mutex, mpsc};

use host::*;

use sf_abi_sdk::handshake::{self, Handshake};
use sf_abi_sdk::sf_abi::*;
use sf_abi_sdk::{
    Code, EmbedPlan, EmbeddingFacts, Fault, Host, Lane, Level, Model, ModelDescription, Normalize,
    OpenRequest, Plan, Pooling, Runtime, Shape, StepWriter, Tokenizer,
};

const VOCAB: u32 = 16;
/// A token that makes an export panic.
const UNSAVED: u32 = 12;
/// A token that makes the engine panic.
const PANICS: u32 = 13;
/// A token that makes the engine wait for [`GATE`].
const WAITS: u32 = 14;
/// A token that the engine refuses for its lane.
const REFUSED: u32 = 15;

static GATE: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);
/// The same for a call that makes vectors.
static EMBED_GATE: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);

/// Predicts the sum of a lane's tokens.
struct Sums;

struct Adder {
    lanes: Vec<Vec<u32>>,
    scale: f32,
    exports: bool,
    embeds: bool,
    has_lanes: bool,
}

struct Digits;

impl Runtime for Sums {
    type Model = Adder;
    type Tokenizer = Digits;
    const TOKENIZER: bool = true;

    fn init(host: Host) -> Result<Self, Fault> {
        host.log(Level::Info, "sums", "ready");
        Ok(Sums)
    }

    fn open(&self, request: &mut OpenRequest<'_>) -> Result<Adder, Fault> {
        if !request.paths()[0].ends_with("model") {
            return Err(Fault::new(Code::NotFound, format!("no {}", request.paths()[0].display())));
        }
        let options = request.options();
        let scale = options.number("x.sums.scale", 0.0..=8.0)?.unwrap_or(1.0) as f32;
        if options.int("lanes.max", 1..=64)?.is_some() {
            options.approximately("lanes.max");
        }
        let exports = options.flag("x.sums.exports")?.unwrap_or(true);
        let embeds = options.flag("x.sums.embeds")?.unwrap_or(true);
        let has_lanes = options.flag("x.sums.lanes")?.unwrap_or(true);
        Ok(Adder { lanes: vec![Vec::new(); 3], scale, exports, embeds, has_lanes })
    }

    fn tokenizer(&self, _: &OpenRequest<'_>) -> Result<Digits, Fault> {
        Ok(Digits)
    }
}

impl Model for Adder {
    const FORK: bool = true;

    fn shape(&self) -> Shape {
        Shape { vocab: VOCAB, lanes_max: 3, lane_tokens_max: 8 }
    }

    fn describe(&self) -> ModelDescription {
        let embedding =
            EmbeddingFacts { dims: 2, pooling: "mean".to_owned(), normalized: false, tokens_max: 4 };
        ModelDescription { embedding: self.embeds.then_some(embedding), ..ModelDescription::default() }
    }

    /// A text's sum and its number of tokens.
    fn embed(&mut self, plan: &EmbedPlan<'_>, out: &mut [f32]) -> Result<(), Fault> {
        assert!(!plan.tokens().contains(&PANICS), "token {PANICS} is bad luck");
        if plan.tokens().contains(&WAITS) {
            let (began, go) = EMBED_GATE.lock().unwrap().take().unwrap();
            began.send(()).unwrap();
            go.recv().unwrap();
        }
        if plan.control().aborted() {
            return Err(Fault::new(Code::Cancelled, "given up"));
        }
        let factor = if plan.normalize() == Normalize::Yes { 0.5 } else { 1.0 };
        let mut rest = plan.tokens();
        for (&length, to) in plan.lengths().iter().zip(out.chunks_exact_mut(2)) {
            let (text, behind) = rest.split_at(length as usize);
            rest = behind;
            let first = plan.pooling() == Pooling::First;
            let sum = if first { text[0] } else { text.iter().sum() };
            to.copy_from_slice(&[sum as f32 * factor, length as f32 * factor]);
        }
        Ok(())
    }

    fn has_lanes(&self) -> bool {
        self.has_lanes
    }

    fn lane_free(&mut self, lane: Lane) {
        self.lanes[lane.slot()].clear();
    }

    fn lane_truncate(&mut self, lane: Lane, _: u32, want: u32) -> Result<u32, Fault> {
        self.lanes[lane.slot()].truncate(want as usize);
        Ok(want)
    }

    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        self.lanes[child.slot()] = self.lanes[parent.slot()][..upto as usize].to_vec();
        Ok(())
    }

    fn exports(&self) -> bool {
        self.exports
    }

    fn identity(&self) -> String {
        format!("scale {}", self.scale)
    }

    fn export_size(&mut self, _: Lane, upto: u32) -> Result<u64, Fault> {
        Ok(u64::from(upto) * 4)
    }

    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        let tokens = &self.lanes[lane.slot()][..upto as usize];
        assert!(!tokens.contains(&UNSAVED), "token {UNSAVED} cannot be saved");
        out.copy_from_slice(&tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
        Ok(())
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        let tokens = state.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        self.lanes[lane.slot()] = tokens.collect();
        assert_eq!(self.lanes[lane.slot()].len(), len as usize);
        Ok(())
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        for feed in plan.feeds() {
            let run = plan.tokens(feed);
            assert!(!run.contains(&PANICS), "token {PANICS} is bad luck");
            if run.contains(&WAITS) {
                let (began, go) = GATE.lock().unwrap().take().unwrap();
                began.send(()).unwrap();
                go.recv().unwrap();
            }
            if run.contains(&REFUSED) {
                out.fault(feed, &Fault::new(Code::Arg, "refused").native(7));
                continue;
            }
            let lane = &mut self.lanes[feed.lane().slot()];
            for row in feed.rows() {
                let sum: u32 = lane.iter().chain(&run[..=row.in_run]).sum();
                out.row(row.number)[(sum % VOCAB) as usize] = self.scale;
            }
            lane.extend(run);
        }
        Ok(())
    }
}

impl Tokenizer for Digits {
    fn vocab(&self) -> u32 {
        10
    }
    fn encode(&self, text: &str, special: bool, _: bool) -> Result<Vec<u32>, Fault> {
        let digits = text.chars().map(|c| c.to_digit(10));
        digits
            .map(|d| d.ok_or_else(|| Fault::new(Code::Arg, "not a digit")))
            .chain(special.then_some(Ok(9)))
            .collect()
    }
    fn token_bytes(&self, token: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        out.extend(token.to_string().bytes());
        Ok(())
    }
    fn facts(&self) -> String {
        r#"{"vocab":10}"#.to_owned()
    }
}

sf_abi_sdk::export_runtime!(
    Sums,
    descriptor = r#"{"descriptor_version":1,"id":"sums","version":"0.1.0","abi":[0,2]}"#
);

#[test]
fn only_the_same_abi_gets_a_runtime() {
    assert!(!query(0, SFR_ABI_MINOR).is_null());
    for (major, minor) in [(1, 0), (0, 0), (0, 1), (0, 3), (7, 2)] {
        assert!(query(major, minor).is_null(), "{major}.{minor}");
    }
    // SAFETY: NULL is allowed.
    assert!(unsafe { superfluid_export::superfluid_runtime_v1(null()) }.is_null());
}

#[test]
fn init_hands_over_the_hosts_log() {
    runtime();
    assert!(LOG.lock().unwrap().contains(&"sums: ready".to_owned()));
}

#[test]
fn the_layout_handshake_passes_between_two_of_the_same_build() {
    // SAFETY: our own static table.
    assert_eq!(unsafe { handshake::check(runtime()) }.unwrap(), Handshake::Same);
}

#[test]
fn a_ragged_step_predicts_each_lane_alone() {
    let model = open();
    let (a, b) = (model.lane(), model.lane());
    let (outs, rows) = model.step(&Arena::new(&[(a, 0, &[1, 2]), (b, 0, &[5])])).ok().unwrap();
    assert_eq!(outs, [(0, 2, 2), (0, 1, 1)]);
    assert_eq!(rows, [3, 5]);
    let (outs, rows) = model.step(&Arena::new(&[(b, 1, &[1]), (a, 2, &[4])])).ok().unwrap();
    assert_eq!(outs, [(0, 2, 2 - 1), (0, 3, 1)]);
    assert_eq!(rows, [6, 7]);
}

#[test]
fn a_fault_of_one_lane_leaves_its_neighbour_alone() {
    let model = open();
    let (bad, good) = (model.lane(), model.lane());
    let cases: [(u64, u32, &[u32], i32); 5] = [
        (12_345, 0, &[1], SFR_E_NOT_FOUND),
        (bad, 3, &[1], SFR_E_STATE),
        (bad, 0, &[VOCAB], SFR_E_ARG),
        (bad, 0, &[1; 9], SFR_E_CAPACITY),
        (bad, 0, &[REFUSED], SFR_E_ARG),
    ];
    for (i, (lane, pos0, run, status)) in cases.into_iter().enumerate() {
        let plan = Arena::new(&[(lane, pos0, run), (good, i as u32, &[1])]);
        let (outs, rows) = model.step(&plan).ok().unwrap();
        assert_eq!(outs, [(status, 0, 0), (0, i as u32 + 1, 1)], "case {i}");
        assert_eq!(rows, [i + 1], "case {i}");
    }
}

#[test]
fn a_plan_that_breaks_the_layout_rules_changes_nothing() {
    let model = open();
    let lane = model.lane();
    let plan = || Arena::new(&[(lane, 0, &[1, 2, 3])]);
    let cases: Vec<(&str, Arena, i32)> = vec![
        ("empty run", plan().with(|f| f.token_len = 0), SFR_E_ABI),
        ("run beyond the tokens", plan().with(|f| f.token_len = 4), SFR_E_ABI),
        ("run overflows", plan().with(|f| f.token_off = u32::MAX), SFR_E_ABI),
        ("rows beyond the run", plan().with(|f| f.row_len = 2), SFR_E_ABI),
        ("rows overflow", plan().with(|f| f.row_off = u32::MAX), SFR_E_ABI),
        ("a sampler", plan().with(|f| f.sampler = 0), SFR_E_UNSUPPORTED),
        ("a flag", plan().with(|f| f.flags = 2), SFR_E_UNSUPPORTED),
        ("a reserved word", plan().with(|f| f.reserved0 = 1), SFR_E_UNSUPPORTED),
        ("the same lane twice", Arena::new(&[(lane, 0, &[1]), (lane, 1, &[1])]), SFR_E_ARG),
        ("a plan flag", plan().plan_with(|p| p.flags = 1), SFR_E_UNSUPPORTED),
        ("trees", plan().plan_with(|p| p.trees.count = 1), SFR_E_UNSUPPORTED),
        ("a short stride", plan().plan_with(|p| p.feeds.stride = 52), SFR_E_ABI),
        ("an odd stride", plan().plan_with(|p| p.feeds.stride = 57), SFR_E_ABI),
        ("wide tokens", plan().plan_with(|p| p.tokens.stride = 8), SFR_E_ABI),
        ("feeds outside", plan().plan_with(|p| p.feeds.at = p.arena_len), SFR_E_ABI),
        ("an offset that wraps", plan().plan_with(|p| p.feeds.at = u64::MAX - 7), SFR_E_ABI),
        ("too many records", plan().plan_with(|p| p.feeds.count = u32::MAX), SFR_E_ABI),
        ("an unaligned offset", plan().plan_with(|p| p.tokens.at -= 4), SFR_E_ABI),
        ("no arena", plan().plan_with(|p| p.arena = null()), SFR_E_ABI),
        (
            "an unaligned arena",
            plan().plan_with(|p| (p.arena, p.arena_len) = (p.arena.wrapping_byte_add(4), p.arena_len - 4)),
            SFR_E_ABI,
        ),
        ("a short struct", plan().plan_with(|p| p.struct_size -= 8), SFR_E_ABI),
    ];
    for (what, arena, code) in cases {
        let refusal = model.step(&arena).err().unwrap_or_else(|| panic!("{what} was accepted"));
        assert_eq!(refusal.code, code, "{what}: {}", refusal.message);
        assert!(!refusal.message.is_empty() && !refusal.field.is_empty(), "{what}");
    }
    let (outs, _) = model.step(&plan()).ok().unwrap();
    assert_eq!(outs, [(0, 3, 3)], "the lane is still empty before this step");
}

#[repr(C)]
struct LongerPlan {
    plan: SfrPlan,
    tail: u64,
}

#[test]
fn a_longer_struct_is_read_when_its_tail_is_zero_and_refused_when_not() {
    let model = open();
    let lane = model.lane();
    let arena = Arena::new(&[(lane, 0, &[1])]);
    for (tail, expect) in [(1, Some(SFR_E_UNSUPPORTED)), (0, None)] {
        let mut longer = LongerPlan { plan: arena.plan(), tail };
        longer.plan.struct_size = size_of::<LongerPlan>() as u32;
        // SAFETY: the plan is the first member; only its size differs.
        let plan = unsafe { &*from_ref(&longer).cast::<SfrPlan>() };
        let mut ticket = 0;
        // SAFETY: a live model; the pointer covers the longer struct.
        let status = unsafe {
            engine().step_begin.unwrap()(model.0, from_ref(&longer).cast(), &mut ticket, null_mut())
        };
        assert_eq!(status, expect.unwrap_or(SFR_OK), "{}", plan.struct_size);
    }
}

#[test]
fn a_small_arena_keeps_the_step_in_flight() {
    let model = open();
    let lane = model.lane();
    let arena = Arena::new(&[(lane, 0, &[1])]);
    let ticket = model.begin(&arena.plan()).ok().unwrap();
    assert_eq!(model.begin(&arena.plan()).err().unwrap().code, SFR_E_STATE);
    assert_eq!(model.end(ticket, &mut [0; 2]).err().unwrap().code, SFR_E_SMALL_BUFFER);
    assert_eq!(model.end(ticket + 1, &mut [0; 64]).err().unwrap().code, SFR_E_STATE);
    let result = model.end(ticket, &mut [0; 64]).ok().unwrap();
    assert_eq!((result.seq, result.vocab, result.logits_rows), (1, VOCAB, 1));
    assert_eq!(model.end(ticket, &mut [0; 64]).err().unwrap().code, SFR_E_STATE);
}

#[test]
fn truncate_and_fork_follow_the_lanes_length() {
    let model = open();
    let lane = model.lane();
    model.step(&Arena::new(&[(lane, 0, &[1, 2, 3])])).ok().unwrap();
    // SAFETY: a live model and an id by the header.
    let kv = unsafe { engine().get_interface.unwrap()(model.0, SF_KV_1.as_ptr()) }.cast::<SfrKvVt>();
    // SAFETY: the model forks, so the table is there.
    let fork = unsafe { kv.as_ref() }.unwrap().fork.unwrap();
    let (mut child, mut got) = (0, 0);
    // SAFETY: a live model.
    let past = call(|err| unsafe { fork(model.0, lane, 4, &mut child, err) }).err().unwrap();
    assert_eq!((past.code, past.field.as_str()), (SFR_E_ARG, "upto"));
    // SAFETY: a live model.
    call(|err| unsafe { fork(model.0, lane, 2, &mut child, err) }).ok().unwrap();
    // SAFETY: a live model.
    call(|err| unsafe { engine().lane_truncate.unwrap()(model.0, lane, 1, &mut got, err) }).ok().unwrap();
    assert_eq!(got, 1);
    let (_, rows) = model.step(&Arena::new(&[(lane, 1, &[7]), (child, 2, &[7])])).ok().unwrap();
    assert_eq!(rows, [8, 10], "the two are independent");
    model.lane();
    let mut fourth = 0;
    // SAFETY: a live model.
    let full = call(|err| unsafe { engine().lane_create.unwrap()(model.0, &mut fourth, err) }).err().unwrap();
    assert_eq!((full.code, full.field.as_str()), (SFR_E_CAPACITY, "lanes.max"));
    // SAFETY: a live model.
    call(|err| unsafe { engine().lane_free.unwrap()(model.0, child, err) }).ok().unwrap();
    // SAFETY: a live model.
    let twice = call(|err| unsafe { engine().lane_free.unwrap()(model.0, child, err) }).err().unwrap();
    assert_eq!(twice.code, SFR_E_NOT_FOUND);
    let (outs, _) = model.step(&Arena::new(&[(model.lane(), 0, &[1])])).ok().unwrap();
    assert_eq!(outs, [(0, 1, 1)], "a reused slot starts empty");
}

#[test]
fn a_panic_becomes_an_error_and_the_model_is_lost() {
    let model = open();
    let lane = model.lane();
    let refusal = model.step(&Arena::new(&[(lane, 0, &[PANICS])])).err().unwrap();
    assert_eq!((refusal.code, refusal.scope), (SFR_E_INTERNAL, SFR_SCOPE_MODEL));
    assert!(refusal.message.contains("token 13 is bad luck"), "{}", refusal.message);
    let after = model.step(&Arena::new(&[(lane, 0, &[1])])).err().unwrap();
    assert_eq!((after.code, after.scope), (SFR_E_STATE, SFR_SCOPE_MODEL));
    assert!(after.message.contains("bad luck"), "{}", after.message);
}

#[test]
fn stats_answer_while_a_step_runs_and_a_second_model_call_is_refused() {
    let model = open();
    let lane = model.lane();
    let (began, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    *GATE.lock().unwrap() = Some((began, may_go));
    std::thread::scope(|scope| {
        let model = &model;
        let step = scope.spawn(move || model.step(&Arena::new(&[(lane, 0, &[WAITS])])).is_ok());
        has_begun.recv().unwrap();
        let mut stats = SfrStats { struct_size: size_of::<SfrStats>() as u32, ..SfrStats::default() };
        // SAFETY: [any].
        assert_eq!(unsafe { engine().stats.unwrap()(model.0, &mut stats) }, SFR_OK);
        assert_eq!((stats.lanes_live, stats.steps), (1, 0));
        let mut other = 0;
        // SAFETY: a breach of the contract that must be refused.
        let busy =
            call(|err| unsafe { engine().lane_create.unwrap()(model.0, &mut other, err) }).err().unwrap();
        assert_eq!(busy.code, SFR_E_BUSY);
        go.send(()).unwrap();
        assert!(step.join().unwrap());
    });
}

#[test]
fn an_option_is_honoured_or_refused_by_name() {
    let check = |mut opt: SfrOpt, expect: Result<u32, &str>| {
        let opened = open_with("/model", std::slice::from_mut(&mut opt));
        match expect {
            Ok(honoured) => assert_eq!((opened.is_ok(), opt.honoured), (true, honoured)),
            Err(words) => {
                let refusal = opened.err().unwrap();
                assert_eq!(refusal.code, SFR_E_OPTION, "{}", refusal.message);
                assert!(refusal.message.contains(words), "{}", refusal.message);
                assert!(refusal.message.contains(&refusal.field) && !refusal.field.is_empty());
            }
        }
    };
    check(option("x.sums.scale", SFR_T_F64, 0, 2.0, true), Ok(SFR_HONOURED_EXACTLY));
    check(option("x.sums.scale", SFR_T_F64, 0, 9.0, false), Err("it takes 0 to 8"));
    check(option("x.sums.scale", SFR_T_F64, 0, f64::NAN, false), Err("no value"));
    check(option("x.sums.scale", SFR_T_I64, 2, 0.0, false), Err("takes a number"));
    check(option("lanes.max", SFR_T_I64, 2, 0.0, false), Ok(SFR_HONOURED_APPROXIMATELY));
    check(option("lanes.max", SFR_T_I64, 2, 0.0, true), Err("exactly"));
    check(option("x.sums.other", SFR_T_BOOL, 1, 0.0, false), Ok(SFR_HONOURED_IGNORED));
    check(option("x.sums.other", SFR_T_BOOL, 1, 0.0, true), Err("not an option"));
    check(option("x.sums.other", SFR_T_BOOL, 2, 0.0, false), Err("no value"));
    let mut twice = [option("lanes.max", SFR_T_I64, 2, 0.0, false); 2];
    assert_eq!(open_with("/model", &mut twice).err().unwrap().field, "lanes.max");
}

#[test]
fn a_path_must_be_absolute_and_exist() {
    for (path, code) in [("model", SFR_E_ARG), ("/mo\0del", SFR_E_ARG), ("/other", SFR_E_NOT_FOUND)] {
        assert_eq!(open_with(path, &mut []).err().unwrap().code, code, "{path:?}");
    }
}

#[test]
fn an_error_is_cut_at_a_character_and_at_the_callers_size() {
    let long = format!("/{}", "ü".repeat(300));
    let refusal = open_with(&long, &mut []).err().unwrap();
    assert!(refusal.message.len() <= SFR_ERROR_MESSAGE_MAX && refusal.message.ends_with('ü'));

    let mut record = blank_error();
    record.struct_size = 8;
    // SAFETY: NULL instead of a model is refused; the record is ours.
    unsafe { engine().lane_free.unwrap()(null_mut(), 1, &mut record) };
    assert_eq!((record.code, record.scope, record.message_len), (SFR_E_ARG, 0, 0));
    assert_eq!(record.struct_size, 8);
}

#[test]
fn a_buffer_that_is_too_small_gets_only_the_size() {
    let model = open();
    let mut buf = SfrBuf { p: null_mut(), cap: 0, needed: 0 };
    let describe = engine().describe.unwrap();
    // SAFETY: [any].
    let small = call(|err| unsafe { describe(model.0, &mut buf, err) }).err().unwrap();
    assert_eq!(small.code, SFR_E_SMALL_BUFFER);
    let mut bytes = vec![0u8; buf.needed as usize];
    buf = SfrBuf { p: bytes.as_mut_ptr().cast(), cap: buf.needed, needed: 0 };
    // SAFETY: [any]; the buffer is ours.
    call(|err| unsafe { describe(model.0, &mut buf, err) }).ok().unwrap();
    assert!(bytes.starts_with(b"{\"effective\":"), "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn the_tokenizer_refuses_what_it_does_not_know() {
    let tokenizer = interface::<SfrTokenizerVt>(SF_TOKENIZER_1).unwrap();
    let encode = |input: SfrStr, flags: u32| {
        let mut tokens = [0u32; 8];
        let mut buf = SfrBuf { p: tokens.as_mut_ptr().cast(), cap: size_of_val(&tokens) as u64, needed: 0 };
        let mut digits = Digits;
        let handle = (&raw mut digits).cast::<SfrTokenizer>();
        // SAFETY: the handle of this runtime is its tokenizer.
        call(|err| unsafe { tokenizer.encode.unwrap()(handle, input, flags, &mut buf, err) })
            .map(|()| tokens[..buf.needed as usize / 4].to_vec())
            .map_err(|refusal| refusal.code)
    };
    assert_eq!(encode(text("12"), 0), Ok(vec![1, 2]));
    assert_eq!(encode(text("12"), SFR_ENCODE_SPECIAL), Ok(vec![1, 2, 9]));
    assert_eq!(encode(text("12"), 4), Err(SFR_E_UNSUPPORTED));
    assert_eq!(encode(text("x"), 0), Err(SFR_E_ARG));
    let bad = [0xFFu8];
    assert_eq!(encode(SfrStr { p: bad.as_ptr().cast(), n: 1 }, 0), Err(SFR_E_ARG));
    assert_eq!(encode(SfrStr { p: null(), n: 1 }, 0), Err(SFR_E_ABI));
}

#[test]
fn unknown_interfaces_are_absent() {
    for id in [c"sf.inspect/1", c"sf.engine/2", c"sf.kv/1", c""] {
        assert!(interface::<SfrInspectVt>(id).is_none(), "{id:?}");
    }
}
