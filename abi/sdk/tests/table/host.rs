//! A host in miniature: builds requests and plans by the header and takes answers apart.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use sf_abi_sdk::sf_abi::*;

use crate::superfluid_export;

pub(crate) static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn log(_: *mut c_void, _: i32, target: SfrStr, message: SfrStr) {
    let words = [target, message].map(|text| {
        // SAFETY: the SDK passes strings that live for the call.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.p.cast(), text.n as usize) })
            .into_owned()
    });
    LOG.lock().unwrap().push(words.join(": "));
}

pub(crate) fn text(text: &str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}

pub(crate) fn query(major: u32, minor: u32) -> *const SfrRuntime {
    let query = SfrQuery { struct_size: 16, abi_major: major, abi_minor: minor, abi_minor_min: minor };
    // SAFETY: a query by the header.
    unsafe { superfluid_export::superfluid_runtime_v1(&query) }
}

pub(crate) fn runtime() -> &'static SfrRuntime {
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
    let runtime = unsafe { query(0, SFR_ABI_MINOR).as_ref() }.expect("this ABI");
    // SAFETY: a host by the header.
    assert_eq!(unsafe { runtime.init.unwrap()(host, null_mut()) }, SFR_OK);
    runtime
}

pub(crate) fn interface<T>(id: &CStr) -> Option<&'static T> {
    // SAFETY: an id by the header.
    let table = unsafe { runtime().get_interface.unwrap()(id.as_ptr()) };
    // SAFETY: NULL or the table the id stands for.
    unsafe { table.cast::<T>().as_ref() }
}

pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) scope: u32,
    pub(crate) message: String,
    pub(crate) field: String,
}

pub(crate) fn blank_error() -> SfrError {
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
pub(crate) fn call(f: impl FnOnce(*mut SfrError) -> SfrStatus) -> Result<(), Refusal> {
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

pub(crate) struct Open(pub(crate) *mut SfrModel);
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

pub(crate) fn engine() -> &'static SfrEngineVt {
    interface(SF_ENGINE_1).unwrap()
}

pub(crate) fn option(key: &str, kind: u32, i: i64, f: f64, must: bool) -> SfrOpt {
    let flags = if must { SFR_OPT_MUST } else { 0 };
    SfrOpt { key: text(key), s: text(""), i, f, r#type: kind, flags, honoured: 0, reserved0: 0 }
}

pub(crate) fn open_with(path: &str, opts: &mut [SfrOpt]) -> Result<Open, Refusal> {
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

pub(crate) fn open() -> Open {
    open_with("/model", &mut []).ok().unwrap()
}

impl Open {
    pub(crate) fn lane(&self) -> u64 {
        let mut lane = 0;
        // SAFETY: a live model.
        call(|err| unsafe { engine().lane_create.unwrap()(self.0, &mut lane, err) }).ok().unwrap();
        lane
    }

    pub(crate) fn begin(&self, plan: &SfrPlan) -> Result<u64, Refusal> {
        let mut ticket = 0;
        // SAFETY: a live model and a plan whose arena is readable.
        call(|err| unsafe { engine().step_begin.unwrap()(self.0, plan, &mut ticket, err) }).map(|()| ticket)
    }

    pub(crate) fn end(&self, ticket: u64, arena: &mut [u64]) -> Result<SfrResult, Refusal> {
        // SAFETY: all zero bytes are a result.
        let mut result: SfrResult = unsafe { std::mem::zeroed() };
        result.struct_size = size_of::<SfrResult>() as u32;
        result.arena = arena.as_mut_ptr().cast();
        result.arena_len = size_of_val(arena) as u64;
        // SAFETY: a live model and a result by the header.
        call(|err| unsafe { engine().step_end.unwrap()(self.0, ticket, &mut result, err) }).map(|()| result)
    }

    /// One step: (status, pos, consumed) per lane and the predicted token per row.
    pub(crate) fn step(&self, arena: &Arena) -> Result<Stepped, Refusal> {
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
pub(crate) type Stepped = (Vec<(i32, u32, u32)>, Vec<usize>);

/// A step's arena under construction: feeds first, tokens behind them.
#[derive(Clone)]
pub(crate) struct Arena {
    feeds: Vec<SfrFeed>,
    tokens: Vec<u32>,
    words: Vec<u64>,
    change: fn(&mut SfrPlan),
}

impl Arena {
    pub(crate) fn new(feeds: &[(u64, u32, &[u32])]) -> Arena {
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

    pub(crate) fn with(mut self, change: impl FnOnce(&mut SfrFeed)) -> Arena {
        change(self.feeds.last_mut().unwrap());
        self.lay_out();
        self
    }

    pub(crate) fn plan_with(mut self, change: fn(&mut SfrPlan)) -> Arena {
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

    pub(crate) fn plan(&self) -> SfrPlan {
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
