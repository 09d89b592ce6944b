//! Calls through a library's tables with any input, good or bad, and what came back.
//!
//! No judgement beyond the shape of an error record; what an answer should be is the groups' business.
#![expect(unsafe_code, reason = "loads the library under test and calls its tables")]

use core::ffi::{CStr, c_char, c_void};
use core::{fmt, ptr};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sf_abi::{
    SF_ENGINE_1, SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_E_INTERNAL, SFR_E_SMALL_BUFFER, SFR_ERROR_FIELD_MAX,
    SFR_ERROR_MESSAGE_MAX, SFR_OK, SFR_SCOPE_PROCESS, SfrBuf, SfrEngineVt, SfrEntryFn, SfrError, SfrEstimate,
    SfrHost, SfrInspectVt, SfrModel, SfrProbe, SfrQuery, SfrRuntime, SfrStatus, SfrStr,
};
use sf_core::limits::RUNTIME_JSON_BYTES_MAX;

use crate::journal::{Broken, Found, broken, ensure};
use crate::memory::Guarded;

/// Keeps a library mapped for ever; the same bit on Linux and macOS would differ, and macOS needs none here.
#[cfg(target_os = "linux")]
const RTLD_NODELETE: core::ffi::c_int = 0x1000;
#[cfg(not(target_os = "linux"))]
const RTLD_NODELETE: core::ffi::c_int = 0x80;

/// Bytes around a short error record that must stay as they were.
const CANARY: u8 = 0x5C;

/// The one exported function.
#[derive(Clone, Copy)]
pub(crate) struct Entry(SfrEntryFn);

impl Entry {
    /// Loads the library, for ever, and finds its entry.
    pub(crate) fn load(path: &Path) -> Result<Entry, Broken> {
        // SAFETY: running the library's initialisers is what this throw-away process is for.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) }
            .map_err(|error| broken!("the library does not load: {error}"))?;
        let name = sf_abi::SFR_ENTRY_NAME;
        // SAFETY: the header gives this name this type.
        let found = unsafe { library.get::<SfrEntryFn>(name.as_bytes()) };
        let entry = *found.map_err(|error| broken!("no symbol {name}: {error}"))?;
        core::mem::forget(library);
        Ok(Entry(entry))
    }

    /// Asks with any bytes that begin with an [`SfrQuery`].
    pub(crate) fn ask(self, query: &Guarded) -> *const SfrRuntime {
        // SAFETY: the buffer holds at least the bytes its struct_size declares.
        unsafe { (self.0)(query.as_ptr().cast()) }
    }

    /// Asks as this host does.
    pub(crate) fn ask_plainly(self) -> *const SfrRuntime {
        self.ask(&Guarded::holding(&own_query(), &[]))
    }
}

/// The query of this host.
pub(crate) fn own_query() -> SfrQuery {
    SfrQuery {
        struct_size: size_u32::<SfrQuery>(),
        abi_major: SFR_ABI_MAJOR,
        abi_minor: SFR_ABI_MINOR,
        abi_minor_min: SFR_ABI_MINOR,
    }
}

/// `size_of` in the width of `struct_size`.
pub(crate) fn size_u32<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("records of the header are small")
}

/// A runtime whose table was read.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    table: SfrRuntime,
}

impl Bound {
    /// Copies the table and checks its size, versions and required pointers.
    pub(crate) fn read(table: *const SfrRuntime) -> Result<Bound, Broken> {
        let (table, size) = copy_table(table, |table| table.struct_size)?;
        ensure!(size >= size_u32::<SfrRuntime>(), "sfr_runtime.struct_size is {size}");
        let (major, minor) = (table.abi_major, table.abi_minor);
        ensure!(
            major == SFR_ABI_MAJOR && minor == SFR_ABI_MINOR,
            "the table says ABI {major}.{minor}, the host is {SFR_ABI_MAJOR}.{SFR_ABI_MINOR}"
        );
        let set = [
            ("init", table.init.is_some()),
            ("shutdown", table.shutdown.is_some()),
            ("probe", table.probe.is_some()),
            ("get_interface", table.get_interface.is_some()),
        ];
        for (name, set) in set {
            ensure!(set, "sfr_runtime.{name} is NULL");
        }
        Ok(Bound { table })
    }

    /// Loads, asks, reads and initialises.
    pub(crate) fn start(path: &Path) -> Result<Bound, Broken> {
        let bound = Bound::read(Entry::load(path)?.ask_plainly())?;
        bound.init().map_err(|refusal| broken!("init failed: {refusal}"))?;
        Ok(bound)
    }

    /// The descriptor's bytes.
    pub(crate) fn descriptor(&self) -> Result<&'static str, Broken> {
        let SfrStr { p, n } = self.table.descriptor_json;
        let len = usize::try_from(n).unwrap_or(usize::MAX);
        ensure!(!p.is_null() && len <= RUNTIME_JSON_BYTES_MAX, "descriptor_json is NULL or of {n} bytes");
        // SAFETY: the header makes this string static; the length is bounded.
        let bytes = unsafe { core::slice::from_raw_parts(p.cast::<u8>(), len) };
        core::str::from_utf8(bytes).map_err(|error| broken!("descriptor_json is not UTF-8: {error}"))
    }

    /// `init` with our host.
    pub(crate) fn init(&self) -> Result<(), Refusal> {
        let init = self.table.init.expect("checked when the table was read");
        // SAFETY: HOST is static and the record is live.
        call(|err| unsafe { init(&raw const HOST.0, err) })
    }

    /// `shutdown`.
    pub(crate) fn shutdown(&self) {
        let shutdown = self.table.shutdown.expect("checked when the table was read");
        // SAFETY: every model was closed before.
        unsafe { shutdown() }
    }

    /// `probe` at a depth, through the whole buffer protocol.
    pub(crate) fn probe(&self, req: &SfrProbe) -> Result<String, Broken> {
        let req = Guarded::holding(req, &[]);
        fetch("probe", |json, err| self.probe_raw(&req, json, err))
    }

    /// `probe` with any request, buffer and record; `err` may be NULL.
    pub(crate) fn probe_raw(&self, req: &Guarded, json: *mut SfrBuf, err: *mut SfrError) -> SfrStatus {
        let probe = self.table.probe.expect("checked when the table was read");
        // SAFETY: all three are live for the call, or NULL where the header allows it.
        unsafe { probe(req.as_ptr().cast(), json, err) }
    }

    /// The table of an interface, NULL when absent.
    pub(crate) fn interface(&self, id: &CStr) -> *const c_void {
        let get = self.table.get_interface.expect("checked when the table was read");
        // SAFETY: the id is a NUL-terminated string.
        unsafe { get(id.as_ptr()) }
    }

    /// The mandatory interface.
    pub(crate) fn engine(&self) -> Result<SfrEngineVt, Broken> {
        let at: *const SfrEngineVt = self.interface(SF_ENGINE_1).cast();
        ensure!(!at.is_null(), "get_interface(\"sf.engine/1\") is NULL");
        let (vt, size) = copy_table(at, |vt| vt.struct_size)?;
        ensure!(size >= size_u32::<SfrEngineVt>(), "sfr_engine_vt.struct_size is {size}");
        let set = [
            ("open", vt.open.is_some()),
            ("close", vt.close.is_some()),
            ("describe", vt.describe.is_some()),
            ("lane_create", vt.lane_create.is_some()),
            ("lane_free", vt.lane_free.is_some()),
            ("lane_truncate", vt.lane_truncate.is_some()),
            ("step_begin", vt.step_begin.is_some()),
            ("step_end", vt.step_end.is_some()),
            ("stats", vt.stats.is_some()),
            ("get_interface", vt.get_interface.is_some()),
        ];
        for (name, set) in set {
            ensure!(set, "sfr_engine_vt.{name} is NULL");
        }
        Ok(vt)
    }

    /// `sf.inspect/1`, when offered.
    pub(crate) fn inspect(&self) -> Result<Option<SfrInspectVt>, Broken> {
        let at: *const SfrInspectVt = self.interface(sf_abi::SF_INSPECT_1).cast();
        if at.is_null() {
            return Ok(None);
        }
        let (vt, size) = copy_table(at, |vt| vt.struct_size)?;
        ensure!(size >= size_u32::<SfrInspectVt>(), "sfr_inspect_vt.struct_size is {size}");
        ensure!(vt.inspect.is_some() && vt.estimate.is_some(), "a member of sf.inspect/1 is NULL");
        Ok(Some(vt))
    }
}

/// `inspect` of a laid request.
pub(crate) fn inspect(vt: &SfrInspectVt, req: &Guarded) -> Result<String, Broken> {
    let inspect = vt.inspect.expect("checked when the table was read");
    // SAFETY: the request, its arrays, the buffer and the record are live.
    fetch("inspect", |json, err| unsafe { inspect(req.as_ptr().cast(), json, err) })
}

/// `estimate` of a laid request.
pub(crate) fn estimate(vt: &SfrInspectVt, req: &Guarded) -> Result<SfrEstimate, Refusal> {
    let estimate = vt.estimate.expect("checked when the table was read");
    let size = size_u32::<SfrEstimate>();
    let out = Guarded::holding(&SfrEstimate { struct_size: size, ..SfrEstimate::default() }, &[]);
    // SAFETY: the request, its arrays, the output and the record are live.
    call(|err| unsafe { estimate(req.as_ptr().cast(), out.as_ptr().cast(), err) })?;
    Ok(out.record())
}

/// Type of the engine's `describe`.
type DescribeFn = unsafe extern "C" fn(*mut SfrModel, *mut SfrBuf, *mut SfrError) -> SfrStatus;

/// `describe` of an open model.
pub(crate) fn describe(
    describe: DescribeFn,
    model: *mut SfrModel,
    json: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the model is open; the buffer and the record are live.
    unsafe { describe(model, json, err) }
}

/// Copies a table of function pointers after looking at its size; a shorter one is reported with its size and zeroes
/// never read.
pub(crate) fn copy_table<T: Copy>(at: *const T, size: fn(&T) -> u32) -> Result<(T, u32), Broken> {
    ensure!(!at.is_null(), "the table is NULL");
    ensure!(at.addr().is_multiple_of(8), "the table is not aligned to 8");
    // SAFETY: every table begins with its struct_size.
    let said = unsafe { at.cast::<u32>().read() };
    ensure!(
        said as usize >= size_of::<T>(),
        "the table's struct_size is {said}, ABI 0.{SFR_ABI_MINOR} needs {}",
        size_of::<T>()
    );
    // SAFETY: aligned, and as large as a T by its own word.
    let table = unsafe { at.read() };
    let size = size(&table);
    Ok((table, size))
}

/// An error as its record tells it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: SfrStatus,
    pub(crate) scope: u32,
    pub(crate) message: String,
    pub(crate) field: String,
    flaw: Option<String>,
}

impl Refusal {
    fn read(status: SfrStatus, record: &SfrError) -> Refusal {
        let mut flaw = None;
        let mut note = |words: String| {
            flaw.get_or_insert(words);
        };
        let text = |chars: &[c_char], len: u32| -> Option<String> {
            let bytes: Vec<u8> = chars.get(..len as usize)?.iter().flat_map(|c| c.to_ne_bytes()).collect();
            String::from_utf8(bytes).ok()
        };
        let message = text(&record.message, record.message_len).unwrap_or_else(|| {
            note(format!("its message is no UTF-8 of at most {SFR_ERROR_MESSAGE_MAX} bytes"));
            String::new()
        });
        let field = text(&record.field, record.field_len).unwrap_or_else(|| {
            note(format!("its field is no UTF-8 of at most {SFR_ERROR_FIELD_MAX} bytes"));
            String::new()
        });
        if message.is_empty() {
            note("its message is empty".to_owned());
        }
        if record.struct_size != size_u32::<SfrError>() {
            note(format!("it changed struct_size to {}", record.struct_size));
        }
        if record.code != status {
            note(format!("its code is {} but the call returned {status}", record.code));
        }
        if !(SFR_E_INTERNAL..SFR_OK).contains(&status) {
            note(format!("{status} is no code of the header"));
        }
        if record.scope > SFR_SCOPE_PROCESS {
            note(format!("{} is no scope of the header", record.scope));
        }
        Refusal { code: status, scope: record.scope, message, field, flaw }
    }

    /// Itself when the record keeps the header's rules.
    pub(crate) fn sound(self) -> Result<Refusal, Broken> {
        match &self.flaw {
            Some(flaw) => Err(broken!("a bad error record ({flaw}): {self}")),
            None => Ok(self),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { code, scope, message, field, .. } = self;
        write!(f, "{} {message:?} field {field:?} scope {scope}", code_name(*code))
    }
}

/// The refusal that must have come, with one of the codes.
pub(crate) fn refused<T>(
    outcome: Result<T, Refusal>,
    codes: &[SfrStatus],
    what: &str,
) -> Result<Refusal, Broken> {
    match outcome {
        Ok(_) => Err(broken!("{what} was accepted; expected {}", code_names(codes))),
        Err(refusal) => {
            let refusal = refusal.sound()?;
            ensure!(codes.contains(&refusal.code), "{what}: expected {}, got {refusal}", code_names(codes));
            Ok(refusal)
        }
    }
}

/// The value, or a broken rule that says the call should have worked.
pub(crate) fn worked<T>(outcome: Result<T, Refusal>, what: &str) -> Result<T, Broken> {
    outcome.map_err(|refusal| broken!("{what} failed: {refusal}"))
}

/// The header's name of a code.
pub(crate) fn code_name(code: SfrStatus) -> String {
    const NAMES: [&str; 20] = [
        "OK",
        "E_ABI",
        "E_ARG",
        "E_UNSUPPORTED",
        "E_OPTION",
        "E_NOT_FOUND",
        "E_FORMAT",
        "E_NOMEM_HOST",
        "E_NOMEM_DEVICE",
        "E_CAPACITY",
        "E_BUSY",
        "E_CANCELLED",
        "E_DEADLINE",
        "E_IDENTITY",
        "E_CHECKSUM",
        "E_SMALL_BUFFER",
        "E_STATE",
        "E_DEVICE_LOST",
        "E_FATAL",
        "E_INTERNAL",
    ];
    let name = code.checked_neg().and_then(|at| usize::try_from(at).ok()).and_then(|at| NAMES.get(at));
    name.map_or_else(|| format!("status {code}"), |name| (*name).to_owned())
}

fn code_names(codes: &[SfrStatus]) -> String {
    codes.iter().map(|code| code_name(*code)).collect::<Vec<_>>().join(" or ")
}

/// A call with a fresh error record.
pub(crate) fn call(f: impl FnOnce(*mut SfrError) -> SfrStatus) -> Result<(), Refusal> {
    let mut record = blank_record(size_u32::<SfrError>());
    let status = f(&raw mut record);
    if status == SFR_OK { Ok(()) } else { Err(Refusal::read(status, &record)) }
}

fn blank_record(struct_size: u32) -> SfrError {
    SfrError {
        struct_size,
        code: 0,
        native_code: 0,
        scope: 0,
        message_len: 0,
        field_len: 0,
        message: [0; SFR_ERROR_MESSAGE_MAX],
        field: [0; SFR_ERROR_FIELD_MAX],
    }
}

/// A failing call with NULL and with a record that says it is too short: neither may change the outcome, and nothing
/// past the declared size may be written.
pub(crate) fn short_records(code: SfrStatus, f: impl Fn(*mut SfrError) -> SfrStatus) -> Found {
    let bare = f(ptr::null_mut());
    ensure!(bare == code, "with err = NULL it returns {} instead of {}", code_name(bare), code_name(code));
    for size in [0u32, 4, 24] {
        let mut record = Guarded::copy_of(&[CANARY; size_of::<SfrError>()]);
        record.bytes_mut()[..4].copy_from_slice(&size.to_le_bytes());
        let status = f(record.as_ptr().cast());
        ensure!(
            status < SFR_OK,
            "with an error record of {size} bytes the call returned {}",
            code_name(status)
        );
        let said = &record.bytes()[..4];
        ensure!(said == size.to_le_bytes(), "it changed the struct_size of an error record of {size} bytes");
        let past = &record.bytes()[size.max(4) as usize..];
        ensure!(past.iter().all(|byte| *byte == CANARY), "it wrote past an error record of {size} bytes");
    }
    Ok("err = NULL and short records are kept".to_owned())
}

/// Text through the whole `sfr_buf` protocol: size first, one byte too few, then enough.
pub(crate) fn fetch(
    what: &str,
    mut f: impl FnMut(*mut SfrBuf, *mut SfrError) -> SfrStatus,
) -> Result<String, Broken> {
    let bytes = fetch_bytes(what, RUNTIME_JSON_BYTES_MAX, &mut f)?;
    String::from_utf8(bytes).map_err(|error| broken!("{what} answers no UTF-8: {error}"))
}

/// As [`fetch`], for bytes, at most `most` of them.
pub(crate) fn fetch_bytes(
    what: &str,
    most: usize,
    f: &mut dyn FnMut(*mut SfrBuf, *mut SfrError) -> SfrStatus,
) -> Result<Vec<u8>, Broken> {
    let mut sized = SfrBuf { p: ptr::null_mut(), cap: 0, needed: u64::MAX };
    too_small(call(|err| f(&raw mut sized, err)), &format!("{what} with a buffer of 0 bytes"))?;
    let needed = usize::try_from(sized.needed).unwrap_or(usize::MAX);
    ensure!((1..=most).contains(&needed), "{what} needs {needed} bytes, at most {most} are possible");

    let tight = Guarded::copy_of(&vec![CANARY; needed - 1]);
    let mut short = SfrBuf { p: tight.as_ptr().cast(), cap: tight.len() as u64, needed: 0 };
    too_small(call(|err| f(&raw mut short, err)), &format!("{what} with a buffer one byte too small"))?;
    ensure!(
        tight.bytes().iter().all(|byte| *byte == CANARY),
        "{what} wrote into a buffer that was too small"
    );
    ensure!(short.needed == sized.needed, "{what} needs {} bytes, then {}", sized.needed, short.needed);

    let room = Guarded::zeroed(needed);
    let mut enough = SfrBuf { p: room.as_ptr().cast(), cap: sized.needed, needed: 0 };
    worked(call(|err| f(&raw mut enough, err)), &format!("{what} with the size it asked for"))?;
    ensure!(enough.needed == sized.needed, "{what} wrote {} bytes after asking for {needed}", enough.needed);
    Ok(room.bytes().to_vec())
}

/// Makes the C library write out what it still holds of standard output.
pub(crate) fn flush_c_streams() {
    let this = Library::this();
    // SAFETY: the C library gives this name this type.
    let found = unsafe { this.get::<unsafe extern "C" fn(*mut c_void) -> i32>(b"fflush") };
    if let Ok(fflush) = found {
        // SAFETY: NULL means all streams.
        unsafe { fflush(ptr::null_mut()) };
    }
}

/// The code alone is the answer here: `needed` says the rest, so the record may stay as it was.
fn too_small(outcome: Result<(), Refusal>, what: &str) -> Result<(), Broken> {
    match outcome {
        Ok(()) => Err(broken!("{what} was accepted; expected E_SMALL_BUFFER")),
        Err(refusal) if refusal.code == SFR_E_SMALL_BUFFER => Ok(()),
        Err(refusal) => Err(broken!("{what}: expected E_SMALL_BUFFER, got {refusal}")),
    }
}

struct HostTable(SfrHost);

// SAFETY: immutable, and its functions may be called from any thread.
unsafe impl Sync for HostTable {}

static HOST: HostTable = HostTable(SfrHost {
    struct_size: size_of::<SfrHost>() as u32,
    abi_minor: SFR_ABI_MINOR,
    ctx: ptr::null_mut(),
    host_name: text("superfluid verify"),
    host_version: text(env!("CARGO_PKG_VERSION")),
    log: Some(host_log),
    log_enabled: Some(host_log_enabled),
    now_ns: Some(host_now_ns),
    get_interface: Some(host_interface),
});

const fn text(text: &'static str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}

unsafe extern "C" fn host_log(_: *mut c_void, level: i32, target: SfrStr, message: SfrStr) {
    if level > sf_abi::SFR_LOG_WARN {
        return;
    }
    let (target, message) = (lossy(target), lossy(message));
    // A log line that cannot be written is no reason to fail the runtime.
    let _ = writeln!(std::io::stderr(), "{target}: {message}");
}

unsafe extern "C" fn host_log_enabled(_: *mut c_void, level: i32, _: SfrStr) -> i32 {
    i32::from(level <= sf_abi::SFR_LOG_WARN)
}

unsafe extern "C" fn host_now_ns(_: *mut c_void) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

unsafe extern "C" fn host_interface(_: *mut c_void, _: *const c_char) -> *const c_void {
    ptr::null()
}

fn lossy(text: SfrStr) -> String {
    if text.p.is_null() || text.n > SFR_ERROR_MESSAGE_MAX as u64 * 8 {
        return String::new();
    }
    // SAFETY: the runtime lends n bytes for the call.
    let bytes = unsafe { core::slice::from_raw_parts(text.p.cast::<u8>(), text.n as usize) };
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: i32, message: &str) -> SfrError {
        let mut record = blank_record(size_u32::<SfrError>());
        record.code = code;
        record.message_len = u32::try_from(message.len()).unwrap();
        for (to, from) in record.message.iter_mut().zip(message.bytes()) {
            *to = from.cast_signed();
        }
        record
    }

    #[test]
    fn a_bad_error_record_is_a_broken_rule_of_its_own() {
        let check = |status: i32, record: &SfrError, flaw: &str| match Refusal::read(status, record).sound() {
            Ok(_) => assert_eq!(flaw, "", "status {status} passed"),
            Err(broken) => assert!(broken.to_string().contains(flaw) && !flaw.is_empty(), "{broken}"),
        };
        check(-2, &record(-2, "bad"), "");
        check(-2, &record(-2, ""), "message is empty");
        check(-2, &record(-3, "bad"), "code is -3");
        check(5, &record(5, "bad"), "no code of the header");
        check(-40, &record(-40, "bad"), "no code of the header");
        check(-2, &SfrError { message_len: 401, ..record(-2, "bad") }, "message is no UTF-8");
        check(-2, &SfrError { field_len: 4000, ..record(-2, "bad") }, "field is no UTF-8");
        check(-2, &SfrError { scope: 9, ..record(-2, "bad") }, "scope");
        check(-2, &SfrError { struct_size: 8, ..record(-2, "bad") }, "struct_size");
    }

    #[test]
    fn the_buffer_protocol_is_checked_in_all_three_steps() {
        let answer = |text: &'static str, sloppy: bool| {
            move |buf: *mut SfrBuf, err: *mut SfrError| -> i32 {
                // SAFETY: `fetch` passes live pointers.
                let buf = unsafe { &mut *buf };
                // SAFETY: as above.
                let err = unsafe { &mut *err };
                buf.needed = text.len() as u64;
                let room = if sloppy { buf.cap + 1 } else { buf.cap };
                if room < buf.needed {
                    *err = record(SFR_E_SMALL_BUFFER, "more");
                    return SFR_E_SMALL_BUFFER;
                }
                let len = text.len().min(buf.cap as usize);
                // SAFETY: `len` bytes are within the buffer.
                unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buf.p.cast(), len) };
                SFR_OK
            }
        };
        assert_eq!(fetch("it", answer("{}", false)).unwrap(), "{}");
        let broken = fetch("it", answer("{}", true)).unwrap_err();
        assert!(broken.to_string().contains("one byte too small"), "{broken}");
    }

    #[test]
    fn codes_have_their_headers_names() {
        assert_eq!(code_name(0), "OK");
        assert_eq!(code_name(-15), "E_SMALL_BUFFER");
        assert_eq!(code_name(-19), "E_INTERNAL");
        assert_eq!(code_name(-20), "status -20");
        assert_eq!(code_name(i32::MIN), format!("status {}", i32::MIN));
    }
}
