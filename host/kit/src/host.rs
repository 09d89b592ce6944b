//! The services that a runtime gets from us: log lines, a clock, nothing else yet.
#![expect(unsafe_code, reason = "reads the strings that a runtime lends to its log calls")]

use std::ffi::{c_char, c_void};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use sf_abi::{SFR_ABI_MINOR, SFR_LOG_ERROR, SFR_LOG_TRACE, SFR_LOG_WARN, SfrHost, SfrStr};
use sf_core::limits;

use crate::calls::borrow;

/// Takes one line of a runtime: level (`SFR_LOG_…`), target, message. It is called from the runtime's threads and
/// must not block. Text is cut at [`limits::RUNTIME_LOG_BYTES_MAX`] bytes.
pub type LogSink = Box<dyn Fn(i32, &str, &str) + Send + Sync>;

static SINK: OnceLock<LogSink> = OnceLock::new();
static LEVEL: AtomicI32 = AtomicI32::new(SFR_LOG_WARN);
static START: OnceLock<Instant> = OnceLock::new();

const NAME: &str = "superfluid";
const VERSION: &str = env!("CARGO_PKG_VERSION");

struct StaticHost(SfrHost);
// SAFETY: its pointers are NULL or point to static text, and its functions may be called from any thread.
unsafe impl Sync for StaticHost {}

static HOST: StaticHost = StaticHost(SfrHost {
    struct_size: size_of::<SfrHost>() as u32,
    abi_minor: SFR_ABI_MINOR,
    ctx: std::ptr::null_mut(),
    host_name: SfrStr { p: NAME.as_ptr().cast(), n: NAME.len() as u64 },
    host_version: SfrStr { p: VERSION.as_ptr().cast(), n: VERSION.len() as u64 },
    log: Some(log),
    log_enabled: Some(log_enabled),
    now_ns: Some(now_ns),
    get_interface: Some(get_interface),
});

/// The host that every runtime of this process is bound with.
pub fn host() -> &'static SfrHost {
    &HOST.0
}

/// Sends log lines to `sink` instead of stderr, for the rest of the process. `false`: a sink is set already and stays.
pub fn set_log(sink: LogSink) -> bool {
    SINK.set(sink).is_ok()
}

/// Passes levels up to `level` (`SFR_LOG_…`); [`SFR_LOG_WARN`] at first.
pub fn set_log_level(level: i32) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Nanoseconds of the monotonic clock that runtimes see; deadlines of a plan are in it.
pub fn clock_ns() -> u64 {
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

unsafe extern "C" fn log(_ctx: *mut c_void, level: i32, target: SfrStr, message: SfrStr) {
    let level = level.clamp(SFR_LOG_ERROR, SFR_LOG_TRACE);
    if level > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the header: an sfr_str is borrowed for the call.
    let target = unsafe { borrow(target, 64) };
    // SAFETY: the header: an sfr_str is borrowed for the call.
    let message = unsafe { borrow(message, limits::RUNTIME_LOG_BYTES_MAX) };
    // A sink that panics loses its line; nothing may unwind into the runtime.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        emit(level, &String::from_utf8_lossy(target), &String::from_utf8_lossy(message));
    }));
}

fn emit(level: i32, target: &str, message: &str) {
    match SINK.get() {
        Some(sink) => sink(level, target, message),
        None => {
            const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
            let word = usize::try_from(level - 1).ok().and_then(|at| LEVELS.get(at)).unwrap_or(&"trace");
            // A closed stderr is no reason to fail a step.
            let _ = writeln!(std::io::stderr(), "{word} {target}: {}", message.trim_end());
        }
    }
}

unsafe extern "C" fn log_enabled(_ctx: *mut c_void, level: i32, _target: SfrStr) -> i32 {
    i32::from(level <= LEVEL.load(Ordering::Relaxed))
}

unsafe extern "C" fn now_ns(_ctx: *mut c_void) -> u64 {
    clock_ns()
}

unsafe extern "C" fn get_interface(_ctx: *mut c_void, _id: *const c_char) -> *const c_void {
    std::ptr::null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::lend;
    use sf_abi::{SFR_LOG_DEBUG, SFR_LOG_INFO};
    use std::sync::Mutex;

    #[test]
    fn lines_reach_the_sink_cut_cleaned_and_filtered() {
        static LINES: Mutex<Vec<(i32, String, String)>> = Mutex::new(Vec::new());
        assert!(set_log(Box::new(|level, target, message| {
            LINES.lock().unwrap().push((level, target.to_owned(), message.to_owned()));
            assert_ne!(message, "boom", "the sink fails on purpose");
        })));
        assert!(!set_log(Box::new(|_, _, _| {})), "the first sink stays");
        set_log_level(SFR_LOG_INFO);
        let host = host();
        let send = |level, message: SfrStr| {
            let log = host.log.unwrap();
            // SAFETY: the text lives through the call.
            unsafe { log(host.ctx, level, lend("noop"), message) };
        };
        send(SFR_LOG_INFO, lend("loaded"));
        send(SFR_LOG_DEBUG, lend("not wanted"));
        send(-7, lend("boom"));
        send(SFR_LOG_ERROR, SfrStr { p: std::ptr::null(), n: 99 });
        let long = "x".repeat(limits::RUNTIME_LOG_BYTES_MAX + 1);
        send(SFR_LOG_ERROR, lend(&long));
        let lines = LINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let seen: Vec<(i32, usize)> =
            lines.iter().map(|(level, _, message)| (*level, message.len())).collect();
        assert_eq!(seen, [(3, 6), (1, 4), (1, 0), (1, limits::RUNTIME_LOG_BYTES_MAX)]);
        assert_eq!(lines[0].1, "noop");
    }

    #[test]
    fn the_clock_never_goes_back_and_unknown_services_are_absent() {
        let first = clock_ns();
        assert!(clock_ns() >= first);
        let ask = host().get_interface.unwrap();
        // SAFETY: the id is NUL-terminated.
        assert!(unsafe { ask(host().ctx, c"sfh.mem/1".as_ptr()) }.is_null());
    }
}
