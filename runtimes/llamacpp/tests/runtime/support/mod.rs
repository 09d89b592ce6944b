//! A host in miniature: drives the runtime through the raw table, and nothing else of it.
#![expect(unsafe_code, reason = "the tests are a host")]
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod direct;
pub(crate) mod prompts;

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Once;

use sf_abi::*;
use superfluid_llamacpp::superfluid_export::superfluid_runtime_v1;

/// What a refused call said.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) scope: u32,
    pub(crate) message: String,
    pub(crate) field: String,
}

/// A value of an option.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    Int(i64),
    Str(&'static str),
    Bool(bool),
}

/// The model's file, or a hint how to get it.
pub(crate) fn model_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("SUPERFLUID_MODELS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache/superfluid/models"),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
    path
}

pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(crate) const GEMMA: &str = "gemma-3-270m-Q4_K_M.gguf";

pub(crate) fn text(text: &str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}

/// The bound runtime.
pub(crate) fn runtime() -> &'static SfrRuntime {
    static INIT: Once = Once::new();
    let query =
        SfrQuery { struct_size: 16, abi_major: 0, abi_minor: SFR_ABI_MINOR, abi_minor_min: SFR_ABI_MINOR };
    // SAFETY: a query by the header.
    let runtime = unsafe { superfluid_runtime_v1(&query) };
    // SAFETY: NULL or a static table.
    let runtime = unsafe { runtime.as_ref() }.expect("the same ABI");
    INIT.call_once(|| init(runtime));
    runtime
}

/// Hands a silent host to a runtime.
pub(crate) fn init(runtime: &SfrRuntime) {
    let host: &'static SfrHost = Box::leak(Box::new(SfrHost {
        struct_size: size_of::<SfrHost>() as u32,
        abi_minor: SFR_ABI_MINOR,
        ctx: null_mut(),
        host_name: text("test"),
        host_version: text("1"),
        log: None,
        log_enabled: None,
        now_ns: None,
        get_interface: None,
    }));
    // SAFETY: a host by the header, static.
    let status = unsafe { runtime.init.expect("init")(host, null_mut()) };
    assert_eq!(status, SFR_OK);
}

/// llama.cpp itself with a model, on one thread. Its log goes where the runtime sends it.
pub(crate) fn direct(name: &str) -> direct::Direct {
    runtime();
    direct::Direct::open(&model_file(name), 1)
}

/// A table of the runtime by its id.
pub(crate) fn interface<T>(id: &CStr) -> &'static T {
    // SAFETY: an id by the header.
    let table = unsafe { runtime().get_interface.expect("get_interface")(id.as_ptr()) };
    // SAFETY: NULL or the table that the id stands for.
    unsafe { table.cast::<T>().as_ref() }.expect("the interface is offered")
}

pub(crate) fn engine() -> &'static SfrEngineVt {
    interface(SF_ENGINE_1)
}

/// Runs a call with an error record and takes the record apart.
pub(crate) fn call(f: impl FnOnce(*mut SfrError) -> SfrStatus) -> Result<(), Refusal> {
    let mut error = SfrError {
        struct_size: size_of::<SfrError>() as u32,
        code: 0,
        native_code: 0,
        scope: 0,
        message_len: 0,
        field_len: 0,
        message: [0; SFR_ERROR_MESSAGE_MAX],
        field: [0; SFR_ERROR_FIELD_MAX],
    };
    if f(&mut error) == SFR_OK {
        return Ok(());
    }
    let words = |bytes: &[std::ffi::c_char], len: u32| {
        String::from_utf8(bytes[..len as usize].iter().map(|&b| b as u8).collect()).expect("UTF-8")
    };
    Err(Refusal {
        code: error.code,
        scope: error.scope,
        message: words(&error.message, error.message_len),
        field: words(&error.field, error.field_len),
    })
}

/// Builds an `sfr_open` and passes it on.
pub(crate) fn with_request<T>(
    path: &Path,
    options: &[(&str, Value)],
    must: bool,
    f: impl FnOnce(*const SfrOpen) -> T,
) -> T {
    let paths = [text(path.to_str().expect("a UTF-8 path"))];
    let mut opts: Vec<SfrOpt> = options
        .iter()
        .map(|&(key, value)| {
            let (r#type, i, s) = match value {
                Value::Int(i) => (SFR_T_I64, i, ""),
                Value::Str(s) => (SFR_T_STR, 0, s),
                Value::Bool(b) => (SFR_T_BOOL, i64::from(b), ""),
            };
            let flags = if must { SFR_OPT_MUST } else { 0 };
            SfrOpt { key: text(key), s: text(s), i, f: 0.0, r#type, flags, honoured: 0, reserved0: 0 }
        })
        .collect();
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
    f(&request)
}

/// Reads a JSON answer by the two-call protocol.
pub(crate) fn json(
    f: impl Fn(*mut SfrBuf, *mut SfrError) -> SfrStatus,
) -> Result<serde_json::Value, Refusal> {
    let mut buf = SfrBuf { p: null_mut(), cap: 0, needed: 0 };
    let small = call(|err| f(&mut buf, err)).expect_err("an empty buffer is too small");
    if small.code != SFR_E_SMALL_BUFFER {
        return Err(small);
    }
    let mut bytes = vec![0u8; buf.needed as usize];
    buf = SfrBuf { p: bytes.as_mut_ptr().cast(), cap: buf.needed, needed: 0 };
    call(|err| f(&mut buf, err))?;
    Ok(serde_json::from_slice(&bytes).expect("JSON"))
}

/// An open model.
#[derive(Debug)]
pub(crate) struct Model(pub(crate) *mut SfrModel);

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: made by `open`, closed once.
        unsafe { engine().close.expect("close")(self.0) };
    }
}

/// One feed of a step: lane, position, tokens, and whether every position wants a row (else only the last).
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) lane: u64,
    pub(crate) pos0: u32,
    pub(crate) tokens: &'a [u32],
    pub(crate) all_rows: bool,
}

/// The last position of a run wants a row.
pub(crate) fn run(lane: u64, pos0: u32, tokens: &[u32]) -> Run<'_> {
    Run { lane, pos0, tokens, all_rows: false }
}

/// A step's outcome.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) outs: Vec<SfrLaneOut>,
    /// Logits by row, copied.
    pub(crate) rows: Vec<Vec<f32>>,
}

impl Stepped {
    /// The likeliest token of each row; the first of equals.
    pub(crate) fn greedy(&self) -> Vec<u32> {
        self.rows.iter().map(|row| argmax(row)).collect()
    }
}

pub(crate) fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &logit) in row.iter().enumerate() {
        if logit > row[best] {
            best = i;
        }
    }
    best as u32
}

/// Whether `token` is the likeliest of a row or in a near tie with it: a batch of another shape sums in another order.
pub(crate) fn near(row: &[f32], token: u32) -> bool {
    row[argmax(row) as usize] - row[token as usize] <= 1.0
}

impl Model {
    pub(crate) fn open(path: &Path, options: &[(&str, Value)]) -> Result<Model, Refusal> {
        let mut model = null_mut();
        with_request(path, options, true, |request| {
            // SAFETY: a request by the header.
            call(|err| unsafe { engine().open.expect("open")(request, &mut model, err) })
        })?;
        Ok(Model(model))
    }

    pub(crate) fn lane(&self) -> u64 {
        let mut lane = 0;
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_create.expect("slot")(self.0, &mut lane, err) }).expect("a lane");
        lane
    }

    pub(crate) fn free(&self, lane: u64) {
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_free.expect("slot")(self.0, lane, err) }).expect("a live lane");
    }

    pub(crate) fn truncate(&self, lane: u64, want: u32) -> u32 {
        let mut got = 0;
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_truncate.expect("slot")(self.0, lane, want, &mut got, err) })
            .expect("a live lane");
        got
    }

    fn kv(&self) -> &'static SfrKvVt {
        // SAFETY: an id by the header.
        let kv = unsafe { engine().get_interface.expect("slot")(self.0, SF_KV_1.as_ptr()) };
        // SAFETY: NULL or the table that the id stands for.
        unsafe { kv.cast::<SfrKvVt>().as_ref() }.expect("sf.kv/1")
    }

    pub(crate) fn fork(&self, parent: u64, upto: u32) -> Result<u64, Refusal> {
        let (fork, mut child) = (self.kv().fork.expect("fork"), 0);
        // SAFETY: a live model.
        call(|err| unsafe { fork(self.0, parent, upto, &mut child, err) }).map(|()| child)
    }

    /// The envelope of a lane's first `upto` positions.
    pub(crate) fn export(&self, lane: u64, upto: u32) -> Result<Vec<u8>, Refusal> {
        let (size, export) = (self.kv().export_size.expect("slot"), self.kv().export_state.expect("slot"));
        let mut needed = 0;
        // SAFETY: a live model.
        call(|err| unsafe { size(self.0, lane, upto, &mut needed, err) })?;
        let mut bytes = vec![0; needed as usize];
        let mut buf = SfrBuf { p: bytes.as_mut_ptr().cast(), cap: needed, needed: 0 };
        // SAFETY: a live model and our buffer.
        call(|err| unsafe { export(self.0, lane, upto, &mut buf, err) })?;
        assert_eq!(buf.needed, needed);
        Ok(bytes)
    }

    /// A new lane from an envelope.
    pub(crate) fn import(&self, bytes: &[u8]) -> Result<u64, Refusal> {
        let (import, mut lane) = (self.kv().import_state.expect("slot"), 0);
        let (at, len) = (bytes.as_ptr().cast(), bytes.len() as u64);
        // SAFETY: a live model and bytes that live for the call.
        call(|err| unsafe { import(self.0, at, len, &mut lane, err) }).map(|()| lane)
    }

    pub(crate) fn describe(&self) -> serde_json::Value {
        // SAFETY: a live model.
        json(|buf, err| unsafe { engine().describe.expect("slot")(self.0, buf, err) }).expect("a description")
    }

    pub(crate) fn stats(&self) -> SfrStats {
        let mut stats = SfrStats { struct_size: size_of::<SfrStats>() as u32, ..SfrStats::default() };
        // SAFETY: a live model.
        assert_eq!(unsafe { engine().stats.expect("slot")(self.0, &mut stats) }, SFR_OK);
        stats
    }

    pub(crate) fn step(&self, runs: &[Run<'_>]) -> Result<Stepped, Refusal> {
        self.step_with(runs, null())
    }

    pub(crate) fn step_with(&self, runs: &[Run<'_>], control: *const SfrControl) -> Result<Stepped, Refusal> {
        let mut arena = Vec::new();
        self.step_into(runs, control, &mut arena).map(|result| take_apart(&result))
    }

    /// A step whose rows nobody reads.
    pub(crate) fn step_unread(&self, runs: &[Run<'_>]) -> Result<(), Refusal> {
        self.step_into(runs, null(), &mut Vec::new()).map(|_| ())
    }

    /// One step; the result points into `out` and the runtime's memory.
    fn step_into(
        &self,
        runs: &[Run<'_>],
        control: *const SfrControl,
        out: &mut Vec<u64>,
    ) -> Result<SfrResult, Refusal> {
        let arena = arena(runs);
        let feeds = runs.len() * size_of::<SfrFeed>();
        let tokens: usize = runs.iter().map(|run| run.tokens.len()).sum();
        let none = SfrArray::default();
        let plan = SfrPlan {
            struct_size: size_of::<SfrPlan>() as u32,
            flags: 0,
            seq: 1,
            deadline_ns: 0,
            arena: arena.as_ptr().cast(),
            arena_len: arena.len() as u64 * 8,
            feeds: SfrArray { at: 0, count: runs.len() as u32, stride: size_of::<SfrFeed>() as u32 },
            tokens: SfrArray { at: feeds as u64, count: tokens as u32, stride: 4 },
            samplers: none,
            adapters: none,
            media: none,
            trees: none,
            control,
        };
        let mut ticket = 0;
        // SAFETY: a live model and a plan by the header.
        call(|err| unsafe { engine().step_begin.expect("slot")(self.0, &plan, &mut ticket, err) })?;
        out.resize(8 * (runs.len() + tokens) + 8, 0);
        // SAFETY: all zero bytes are a result.
        let mut result: SfrResult = unsafe { std::mem::zeroed() };
        result.struct_size = size_of::<SfrResult>() as u32;
        result.arena = out.as_mut_ptr().cast();
        result.arena_len = out.len() as u64 * 8;
        // SAFETY: a live model and a result by the header.
        call(|err| unsafe { engine().step_end.expect("slot")(self.0, ticket, &mut result, err) })?;
        Ok(result)
    }

    /// Feeds the prompt (the last position wants a row) and then `count - 1` greedy tokens; stops at `stop`.
    pub(crate) fn generate(
        &self,
        lane: u64,
        prompt: &[u32],
        count: usize,
        stop: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut pos = 0;
        let mut next = prompt.to_vec();
        while tokens.len() < count {
            let stepped = self.step(&[run(lane, pos, &next)]).expect("a good step");
            assert_eq!(stepped.outs[0].status, SFR_OK);
            pos += next.len() as u32;
            let token = stepped.greedy()[0];
            tokens.push(token);
            if stop(token) {
                break;
            }
            next = vec![token];
        }
        tokens
    }
}

fn arena(runs: &[Run<'_>]) -> Vec<u64> {
    let mut words: Vec<u32> = Vec::new();
    let mut token_off = 0;
    for run in runs {
        let len = run.tokens.len() as u32;
        let (row_off, row_len) = if run.all_rows { (0, len) } else { (len.saturating_sub(1), 1) };
        words.extend([
            run.lane as u32,
            (run.lane >> 32) as u32,
            token_off,
            len,
            run.pos0,
            0,
            row_off,
            row_len,
        ]);
        words.extend([SFR_NONE, SFR_NONE, 0, 0, SFR_NONE, 0]);
        token_off += len;
    }
    runs.iter().for_each(|run| words.extend(run.tokens));
    if words.len() % 2 == 1 {
        words.push(0);
    }
    words.chunks(2).map(|pair| u64::from(pair[0]) | (u64::from(pair[1]) << 32)).collect()
}

fn take_apart(result: &SfrResult) -> Stepped {
    let at = result.arena.cast_const().cast::<u8>();
    let record = |array: SfrArray, i: u32| at.wrapping_add(array.at as usize + (i * array.stride) as usize);
    let outs = (0..result.lanes.count)
        // SAFETY: the result says that a record stands there.
        .map(|i| unsafe { record(result.lanes, i).cast::<SfrLaneOut>().read() })
        .collect();
    let rows = (0..result.rows.count)
        .map(|i| {
            // SAFETY: as above.
            let row = unsafe { record(result.rows, i).cast::<SfrRow>().read() };
            let offset = row.logits_row as usize * result.logits_stride as usize;
            let logits = result.logits.cast::<u8>().wrapping_add(offset).cast::<f32>();
            // SAFETY: the row stands there until the next step.
            unsafe { std::slice::from_raw_parts(logits, result.vocab as usize) }.to_vec()
        })
        .collect();
    Stepped { outs, rows }
}
