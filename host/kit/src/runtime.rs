//! A bound library: negotiation, probe, header facts, and opening a model.
#![expect(unsafe_code, reason = "calls the functions of sfr_runtime, sfr_engine_vt and sfr_inspect_vt")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sf_abi::{
    SF_ENGINE_1, SF_INSPECT_1, SF_TOKENIZER_1, SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_E_BUSY, SFR_E_STATE, SfrBuf,
    SfrEngineVt, SfrEntryFn, SfrError, SfrEstimate, SfrHost, SfrInspectVt, SfrProbe, SfrQuery, SfrRuntime,
    SfrStatus, SfrTokenizerVt,
};
use sf_core::limits;

use crate::calls::{self, borrow, call, main_calls, need, table};
use crate::error::KitError;
use crate::model::Model;
use crate::open::{OpenArgs, OpenRequest};
use crate::tokenizer::RuntimeTokenizer;

/// Libraries that one process may bind.
const BOUND_MAX: usize = 64;
/// First room for a JSON answer, bytes; most fit.
const JSON_BYTES_FIRST: usize = 16 << 10;

/// Every library bound in this process: `init` may run once only.
static BOUND: Mutex<Vec<(usize, Runtime)>> = Mutex::new(Vec::new());

type Probe = unsafe extern "C" fn(req: *const SfrProbe, json: *mut SfrBuf, err: *mut SfrError) -> SfrStatus;
type GetInterface = unsafe extern "C" fn(id: *const c_char) -> *const c_void;

/// A bound library: versions agreed, `init` done, `sf.engine/1` present. Clones are the same library.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Bound>);

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Bound {
    descriptor: String,
    get_interface: GetInterface,
    shutdown: unsafe extern "C" fn(),
    probe: Probe,
    pub(crate) engine: SfrEngineVt,
    inspect: Option<SfrInspectVt>,
    tokenizer: Option<SfrTokenizerVt>,
    /// Models and tokenizers that are open.
    pub(crate) live: AtomicUsize,
    down: AtomicBool,
}

impl Runtime {
    /// Negotiates the version, calls `init` and looks up `sf.engine/1`. A library that is bound already is returned as
    /// it is, with the host it was bound with.
    ///
    /// # Errors
    /// [`KitError::Version`] when the versions do not overlap, [`KitError::Contract`] for a broken table,
    /// [`KitError::Refused`] when `init` refuses or the library was shut down in this process.
    ///
    /// # Safety
    /// `entry` is the entry point of a library that keeps the header's rules on memory: what it returns stays readable,
    /// and it writes only where the header lets it.
    pub unsafe fn bind(entry: SfrEntryFn, host: &'static SfrHost) -> Result<Runtime, KitError> {
        let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let key = entry as usize;
        if let Some((_, runtime)) = bound.iter().find(|(at, _)| *at == key) {
            runtime.alive("init")?;
            return Ok(runtime.clone());
        }
        if bound.len() >= BOUND_MAX {
            let message = format!("{BOUND_MAX} libraries are bound in this process, the limit");
            return Err(KitError::refused("init", SFR_E_BUSY, "", message));
        }
        // SAFETY: the caller vouches for `entry`.
        let found = unsafe { query(entry) }?;
        let init = need("init", found.init)?;
        let parts = (need("shutdown", found.shutdown)?, need("probe", found.probe)?);
        let get_interface = need("get_interface", found.get_interface)?;
        let descriptor = descriptor(&found)?;
        {
            let _main = main_calls();
            // SAFETY: `init` is [main], serialised by the lock; `host` is static.
            call("init", |err| unsafe { init(host, err) })?;
        }
        // SAFETY: `init` succeeded, so get_interface may be asked for the mandatory table.
        let engine = unsafe { interface::<SfrEngineVt>(get_interface, "sf.engine/1", SF_ENGINE_1) }?;
        let Some(engine) = engine else {
            return Err(KitError::contract("get_interface", "it offers no sf.engine/1"));
        };
        complete(&engine)?;
        // SAFETY: as above, for an optional table.
        let inspect = unsafe { interface(get_interface, "sf.inspect/1", SF_INSPECT_1) }?;
        // SAFETY: as above, for an optional table.
        let tokenizer = unsafe { interface(get_interface, "sf.tokenizer/1", SF_TOKENIZER_1) }?;
        let (shutdown, probe) = parts;
        let runtime = Runtime(Arc::new(Bound {
            descriptor,
            get_interface,
            shutdown,
            probe,
            engine,
            inspect,
            tokenizer,
            live: AtomicUsize::new(0),
            down: AtomicBool::new(false),
        }));
        bound.push((key, runtime.clone()));
        Ok(runtime)
    }

    /// The descriptor's exact bytes, as the library holds them.
    pub fn descriptor_json(&self) -> &str {
        &self.0.descriptor
    }

    /// Optional interfaces of the library that this host knows and it offers.
    pub fn interfaces(&self) -> Vec<String> {
        let offered =
            [("sf.inspect/1", self.0.inspect.is_some()), ("sf.tokenizer/1", self.0.tokenizer.is_some())];
        offered.iter().filter(|(_, there)| *there).map(|(id, _)| (*id).to_owned()).collect()
    }

    /// The address of an interface's table, NULL when the library does not offer it; for tools that test a runtime.
    pub fn raw_interface(&self, id: &CStr) -> *const c_void {
        // SAFETY: get_interface is [any] after `init`; `id` is NUL-terminated.
        unsafe { (self.0.get_interface)(id.as_ptr()) }
    }

    /// The engine's table; for tools that test a runtime.
    pub fn engine_table(&self) -> &SfrEngineVt {
        &self.0.engine
    }

    /// Asks whether the runtime can run here. Only for a process that is thrown away afterwards.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn probe(&self, depth: u32, budget: Duration) -> Result<String, KitError> {
        self.alive("probe")?;
        let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
        let request = SfrProbe { struct_size: size_of::<SfrProbe>() as u32, depth, budget_ns };
        // A probe is called once, so the first room is all the room there may be.
        calls::json("probe", limits::RUNTIME_JSON_BYTES_MAX, |buf, err| {
            // SAFETY: request, buf and err are live for the call; [probe]: the caller throws the process away.
            unsafe { (self.0.probe)(&request, buf, err) }
        })
    }

    /// Opens a model and checks that every must option was honoured exactly and is in effect.
    ///
    /// # Errors
    /// The runtime's refusal, ours with code `SFR_E_OPTION` and the key as field, or [`KitError::Contract`].
    pub fn open(&self, request: &OpenRequest) -> Result<Model, KitError> {
        let mut args = OpenArgs::new("open", request)?;
        let open = need("open", self.0.engine.open)?;
        let handle = {
            let _main = main_calls();
            self.alive("open")?;
            let mut out = std::ptr::null_mut();
            args.with(|req| {
                // SAFETY: [main], serialised by the lock; the request and what it points to live through the call.
                call("open", |err| unsafe { open(req, &mut out, err) })
            })?;
            let handle =
                NonNull::new(out).ok_or_else(|| KitError::contract("open", "it returned 0 and no model"))?;
            self.0.live.fetch_add(1, Ordering::AcqRel);
            handle
        };
        // SAFETY: `open` made the handle just now and nobody else has it; `live` was counted.
        let mut model = unsafe { Model::adopt(handle, Arc::clone(&self.0)) };
        model.learn()?;
        model.set_honoured(args.honoured()?);
        args.compare(model.description())?;
        Ok(model)
    }

    /// Facts from the header of the model's files as JSON; `None` without `sf.inspect/1`.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn inspect(&self, request: &OpenRequest) -> Result<Option<String>, KitError> {
        self.alive("inspect")?;
        let Some(inspect) = self.0.inspect.and_then(|vt| vt.inspect) else { return Ok(None) };
        let mut args = OpenArgs::new("inspect", request)?;
        args.with(|req| {
            calls::json("inspect", JSON_BYTES_FIRST, |buf, err| {
                // SAFETY: [any]; the request, buf and err live through the call.
                unsafe { inspect(req, buf, err) }
            })
        })
        .map(Some)
    }

    /// Memory that a model would take; `None` without `sf.inspect/1`.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn estimate(&self, request: &OpenRequest) -> Result<Option<SfrEstimate>, KitError> {
        self.alive("estimate")?;
        let Some(estimate) = self.0.inspect.and_then(|vt| vt.estimate) else { return Ok(None) };
        let mut args = OpenArgs::new("estimate", request)?;
        let size = size_of::<SfrEstimate>() as u32;
        let mut out = SfrEstimate { struct_size: size, ..SfrEstimate::default() };
        args.with(|req| {
            // SAFETY: [any]; the request, out and err live through the call.
            call("estimate", |err| unsafe { estimate(req, &mut out, err) })
        })?;
        if out.struct_size != size {
            return Err(KitError::contract("estimate", "it changed struct_size"));
        }
        Ok(Some(out))
    }

    /// Opens the model's tokenizer without its weights; `None` without `sf.tokenizer/1`.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn tokenizer(&self, request: &OpenRequest) -> Result<Option<RuntimeTokenizer>, KitError> {
        let Some(vt) = self.0.tokenizer else { return Ok(None) };
        let mut args = OpenArgs::new("tokenizer.open", request)?;
        let open = need("open", vt.open)?;
        // The lock keeps `shutdown` out until the tokenizer is counted.
        let _main = main_calls();
        self.alive("tokenizer.open")?;
        let mut out = std::ptr::null_mut();
        args.with(|req| {
            // SAFETY: [any]; the request and what it points to live through the call.
            call("tokenizer.open", |err| unsafe { open(req, &mut out, err) })
        })?;
        let handle = NonNull::new(out)
            .ok_or_else(|| KitError::contract("tokenizer.open", "it returned 0 and no tokenizer"))?;
        self.0.live.fetch_add(1, Ordering::AcqRel);
        // SAFETY: `open` made the handle just now and nobody else has it; `live` was counted.
        Ok(Some(unsafe { RuntimeTokenizer::adopt(handle, vt, Arc::clone(&self.0)) }))
    }

    /// Joins the runtime's threads; nothing can be opened afterwards. `false`: models or tokenizers are still open and
    /// nothing was done.
    pub fn shutdown(&self) -> bool {
        let _main = main_calls();
        if self.0.live.load(Ordering::Acquire) > 0 {
            return false;
        }
        if !self.0.down.swap(true, Ordering::AcqRel) {
            // SAFETY: [main], serialised by the lock; `init` succeeded and nothing is open.
            unsafe { (self.0.shutdown)() };
        }
        true
    }

    fn alive(&self, name: &'static str) -> Result<(), KitError> {
        if self.0.down.load(Ordering::Acquire) {
            return Err(KitError::refused(
                name,
                SFR_E_STATE,
                "",
                "the runtime was shut down in this process",
            ));
        }
        Ok(())
    }
}

/// Asks the entry point for our version and reads the table it answers with.
///
/// # Safety
/// As [`Runtime::bind`].
unsafe fn query(entry: SfrEntryFn) -> Result<SfrRuntime, KitError> {
    let query = SfrQuery {
        struct_size: size_of::<SfrQuery>() as u32,
        abi_major: SFR_ABI_MAJOR,
        abi_minor: SFR_ABI_MINOR,
        abi_minor_min: SFR_ABI_MINOR,
    };
    // SAFETY: the caller vouches for `entry`; the query lives through the call.
    let at = unsafe { entry(&query) };
    if at.is_null() {
        return Err(KitError::Version { reason: "it answered NULL to our version".to_owned() });
    }
    // SAFETY: the caller vouches that what `entry` returned is an sfr_runtime.
    let found = unsafe { table::<SfrRuntime>("query", at.cast()) }?;
    // While the major is 0 both numbers must agree exactly.
    if (found.abi_major, found.abi_minor) != (SFR_ABI_MAJOR, SFR_ABI_MINOR) {
        let reason = format!("it speaks {}.{}", found.abi_major, found.abi_minor);
        return Err(KitError::Version { reason });
    }
    if found.abi_minor_min_host > SFR_ABI_MINOR {
        let reason = format!("it needs a host of at least 0.{}", found.abi_minor_min_host);
        return Err(KitError::Version { reason });
    }
    Ok(found)
}

fn descriptor(found: &SfrRuntime) -> Result<String, KitError> {
    let text = found.descriptor_json;
    let max = limits::RUNTIME_JSON_BYTES_MAX;
    if text.n > max as u64 {
        return Err(KitError::contract(
            "query",
            format!("its descriptor has {} bytes, the limit is {max}", text.n),
        ));
    }
    // SAFETY: the header says the descriptor is static.
    let bytes = unsafe { borrow(text, max) };
    if bytes.is_empty() {
        return Err(KitError::contract("query", "its descriptor is empty"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| KitError::contract("query", format!("its descriptor is not UTF-8: {e}")))?;
    Ok(text.to_owned())
}

/// Looks up a table of the runtime; `None` when it is not offered.
///
/// # Safety
/// `get_interface` is the runtime's own, after `init`; `T` is the mirror of the table that `id` names.
unsafe fn interface<T: Copy>(
    get_interface: GetInterface,
    name: &'static str,
    id: &CStr,
) -> Result<Option<T>, KitError> {
    // SAFETY: [any]; `id` is NUL-terminated.
    let at = unsafe { get_interface(id.as_ptr()) };
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches that `T` is what `id` names.
    unsafe { table(name, at) }.map(Some)
}

/// Refuses an engine table with a mandatory member missing.
fn complete(engine: &SfrEngineVt) -> Result<(), KitError> {
    need("open", engine.open)?;
    need("close", engine.close)?;
    need("describe", engine.describe)?;
    need("lane_create", engine.lane_create)?;
    need("lane_free", engine.lane_free)?;
    need("lane_truncate", engine.lane_truncate)?;
    need("step_begin", engine.step_begin)?;
    need("step_end", engine.step_end)?;
    need("stats", engine.stats)?;
    need("get_interface", engine.get_interface)?;
    Ok(())
}
