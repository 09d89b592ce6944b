//! A small Rust runtime, driven through the raw table as a host would: what a good host gets, and what a bad one cannot do.
#![expect(unsafe_code, reason = "the tests are a host")]
#![expect(clippy::unwrap_used, reason = "the host's helpers fail the test that uses them")]

use std::ffi::{CStr, c_void};
use std::ptr::{from_ref, null, null_mut};
use std::sync::{Mutex, mpsc};

use sf_abi_sdk::handshake::{self, Handshake};
use sf_abi_sdk::sf_abi::*;
use sf_abi_sdk::{
    Code, Fault, Host, Lane, Level, Model, ModelDescription, OpenRequest, Plan, Runtime, Shape, StepWriter,
    Tokenizer,
};

const VOCAB: u32 = 16;
/// A token that makes the engine panic.
const PANICS: u32 = 13;
/// A token that makes the engine wait for [`GATE`].
const WAITS: u32 = 14;
/// A token that the engine refuses for its lane.
const REFUSED: u32 = 15;

static GATE: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);

/// Predicts the sum of a lane's tokens.
struct Sums;

struct Adder {
    lanes: Vec<Vec<u32>>,
    scale: f32,
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
        Ok(Adder { lanes: vec![Vec::new(); 3], scale })
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
        ModelDescription::default()
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
    descriptor = r#"{"descriptor_version":1,"id":"sums","version":"0.1.0","abi":[0,1]}"#
);

// ---------------------------------------------------------------------------------------------- a host in miniature

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn log(_: *mut c_void, _: i32, target: SfrStr, message: SfrStr) {
    let words = [target, message].map(|text| {
        // SAFETY: the SDK passes strings that live for the call.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.p.cast(), text.n as usize) })
            .into_owned()
    });
    LOG.lock().unwrap().push(words.join(": "));
}

fn text(text: &str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}

fn query(major: u32, minor: u32) -> *const SfrRuntime {
    let query = SfrQuery { struct_size: 16, abi_major: major, abi_minor: minor, abi_minor_min: minor };
    // SAFETY: a query by the header.
    unsafe { superfluid_export::superfluid_runtime_v1(&query) }
}

fn runtime() -> &'static SfrRuntime {
    let host: &'static SfrHost = Box::leak(Box::new(SfrHost {
        struct_size: size_of::<SfrHost>() as u32,
        abi_minor: SFR_ABI_MINOR,
        ctx: null_mut(),
        host_name: text("test"),
        host_version: text("1"),
        log: Some(log),
        log_enabled: None,
        now_ns: None,
        get_interface: None,
    }));
    // SAFETY: the table is static.
    let runtime = unsafe { query(0, 1).as_ref() }.expect("ABI 0.1");
    // SAFETY: a host by the header.
    assert_eq!(unsafe { runtime.init.unwrap()(host, null_mut()) }, SFR_OK);
    runtime
}

fn interface<T>(id: &CStr) -> Option<&'static T> {
    // SAFETY: an id by the header.
    let table = unsafe { runtime().get_interface.unwrap()(id.as_ptr()) };
    // SAFETY: NULL or the table the id stands for.
    unsafe { table.cast::<T>().as_ref() }
}

struct Refusal {
    code: i32,
    scope: u32,
    message: String,
    field: String,
}

fn blank_error() -> SfrError {
    SfrError {
        struct_size: size_of::<SfrError>() as u32,
        code: 0,
        native_code: 0,
        scope: 0,
        message_len: 0,
        field_len: 0,
        message: [0; SFR_ERROR_MESSAGE_MAX],
        field: [0; SFR_ERROR_FIELD_MAX],
    }
}

/// Runs a call with an error record and takes the record apart.
fn call(f: impl FnOnce(*mut SfrError) -> SfrStatus) -> Result<(), Refusal> {
    let mut error = blank_error();
    let status = f(&mut error);
    if status == SFR_OK {
        return Ok(());
    }
    assert_eq!(status, error.code);
    let words = |bytes: &[std::ffi::c_char], len: u32| {
        String::from_utf8(bytes[..len as usize].iter().map(|&b| b as u8).collect()).expect("UTF-8")
    };
    Err(Refusal {
        code: status,
        scope: error.scope,
        message: words(&error.message, error.message_len),
        field: words(&error.field, error.field_len),
    })
}

struct Open(*mut SfrModel);
// SAFETY: the header lets the host move a model between threads.
unsafe impl Send for Open {}
// SAFETY: the [any] calls may run beside a [model] call; that is what the test does.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: made by `open`, closed once.
        unsafe { engine().close.unwrap()(self.0) };
    }
}

fn engine() -> &'static SfrEngineVt {
    interface(SF_ENGINE_1).unwrap()
}

fn option(key: &str, kind: u32, i: i64, f: f64, must: bool) -> SfrOpt {
    let flags = if must { SFR_OPT_MUST } else { 0 };
    SfrOpt { key: text(key), s: text(""), i, f, r#type: kind, flags, honoured: 0, reserved0: 0 }
}

fn open_with(path: &str, opts: &mut [SfrOpt]) -> Result<Open, Refusal> {
    let paths = [text(path)];
    let array = |at: *const c_void, count: usize, stride: usize| SfrArray {
        at: at.expose_provenance() as u64,
        count: count as u32,
        stride: stride as u32,
    };
    let request = SfrOpen {
        struct_size: size_of::<SfrOpen>() as u32,
        flags: 0,
        paths: array(paths.as_ptr().cast(), 1, size_of::<SfrStr>()),
        opts: array(opts.as_mut_ptr().cast_const().cast(), opts.len(), size_of::<SfrOpt>()),
        devices: SfrArray::default(),
        scratch_dir: text(""),
        cache_dir: text(""),
        progress: None,
        progress_ctx: null_mut(),
        control: null(),
    };
    let mut model = null_mut();
    // SAFETY: a request by the header.
    call(|err| unsafe { engine().open.unwrap()(&request, &mut model, err) }).map(|()| Open(model))
}

fn open() -> Open {
    open_with("/model", &mut []).ok().unwrap()
}

impl Open {
    fn lane(&self) -> u64 {
        let mut lane = 0;
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_create.unwrap()(self.0, &mut lane, err) }).ok().unwrap();
        lane
    }

    fn begin(&self, plan: &SfrPlan) -> Result<u64, Refusal> {
        let mut ticket = 0;
        // SAFETY: a live model and a plan whose arena is readable.
        call(|err| unsafe { engine().step_begin.unwrap()(self.0, plan, &mut ticket, err) }).map(|()| ticket)
    }

    fn end(&self, ticket: u64, arena: &mut [u64]) -> Result<SfrResult, Refusal> {
        // SAFETY: all zero bytes are a result.
        let mut result: SfrResult = unsafe { std::mem::zeroed() };
        result.struct_size = size_of::<SfrResult>() as u32;
        result.arena = arena.as_mut_ptr().cast();
        result.arena_len = size_of_val(arena) as u64;
        // SAFETY: a live model and a result by the header.
        call(|err| unsafe { engine().step_end.unwrap()(self.0, ticket, &mut result, err) }).map(|()| result)
    }

    /// One step: (status, pos, consumed) per lane and the predicted token per row.
    fn step(&self, arena: &Arena) -> Result<Stepped, Refusal> {
        let ticket = self.begin(&arena.plan())?;
        let mut out = vec![0u64; 256];
        let result = self.end(ticket, &mut out)?;
        let at = out.as_ptr().cast::<u8>();
        let outs = (0..result.lanes.count as usize).map(|i| {
            let place = at.wrapping_add(result.lanes.at as usize + i * result.lanes.stride as usize);
            // SAFETY: the result says that a record stands there.
            let out = unsafe { place.cast::<SfrLaneOut>().read() };
            (out.status, out.pos, out.consumed)
        });
        let rows = (0..result.rows.count as usize).map(|i| {
            let place = at.wrapping_add(result.rows.at as usize + i * result.rows.stride as usize);
            // SAFETY: as above.
            let row = unsafe { place.cast::<SfrRow>().read() };
            let offset = row.logits_row as usize * result.logits_stride as usize;
            let logits = result.logits.cast::<u8>().wrapping_add(offset).cast::<f32>();
            // SAFETY: the row stands there until the next step.
            let logits = unsafe { std::slice::from_raw_parts(logits, result.vocab as usize) };
            logits.iter().position(|&l| l > 0.0).expect("a sum")
        });
        Ok((outs.collect(), rows.collect()))
    }
}

/// Per lane (status, pos, consumed), and per row the predicted token.
type Stepped = (Vec<(i32, u32, u32)>, Vec<usize>);

/// A step's arena under construction: feeds first, tokens behind them.
#[derive(Clone)]
struct Arena {
    feeds: Vec<SfrFeed>,
    tokens: Vec<u32>,
    words: Vec<u64>,
    change: fn(&mut SfrPlan),
}

impl Arena {
    fn new(feeds: &[(u64, u32, &[u32])]) -> Arena {
        let mut arena = Arena { feeds: Vec::new(), tokens: Vec::new(), words: Vec::new(), change: |_| {} };
        for &(lane, pos0, run) in feeds {
            arena.feeds.push(SfrFeed {
                lane,
                token_off: arena.tokens.len() as u32,
                token_len: run.len() as u32,
                pos0,
                row_off: (run.len() as u32).saturating_sub(1),
                row_len: u32::from(!run.is_empty()),
                sampler: SFR_NONE,
                adapter: SFR_NONE,
                tree: SFR_NONE,
                ..SfrFeed::default()
            });
            arena.tokens.extend(run);
        }
        arena.lay_out();
        arena
    }

    fn with(mut self, change: impl FnOnce(&mut SfrFeed)) -> Arena {
        change(self.feeds.last_mut().unwrap());
        self.lay_out();
        self
    }

    fn plan_with(mut self, change: fn(&mut SfrPlan)) -> Arena {
        self.change = change;
        self
    }

    fn lay_out(&mut self) {
        let feed_bytes = size_of_val(self.feeds.as_slice());
        self.words = vec![0; (feed_bytes + self.tokens.len() * 4).div_ceil(8)];
        let at = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: the words were just made large enough.
        unsafe { std::ptr::copy_nonoverlapping(self.feeds.as_ptr().cast(), at, feed_bytes) };
        let behind = at.wrapping_add(feed_bytes);
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(self.tokens.as_ptr().cast(), behind, self.tokens.len() * 4);
        };
    }

    fn plan(&self) -> SfrPlan {
        let feed_bytes = size_of_val(self.feeds.as_slice()) as u64;
        let none = SfrArray::default();
        let mut plan = SfrPlan {
            struct_size: size_of::<SfrPlan>() as u32,
            flags: 0,
            seq: 1,
            deadline_ns: 0,
            arena: self.words.as_ptr().cast(),
            arena_len: self.words.len() as u64 * 8,
            feeds: SfrArray { at: 0, count: self.feeds.len() as u32, stride: size_of::<SfrFeed>() as u32 },
            tokens: SfrArray { at: feed_bytes, count: self.tokens.len() as u32, stride: 4 },
            samplers: none,
            adapters: none,
            media: none,
            trees: none,
            control: null(),
        };
        (self.change)(&mut plan);
        plan
    }
}

// ------------------------------------------------------------------------------------------------------------ tests

#[test]
fn only_the_same_abi_gets_a_runtime() {
    assert!(!query(0, 1).is_null());
    for (major, minor) in [(1, 0), (0, 0), (0, 2), (7, 1)] {
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
