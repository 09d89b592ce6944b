//! The host's services as a runtime sees them: log and clock.
#![expect(unsafe_code, reason = "calls the host's function pointers")]

use core::sync::atomic::{AtomicPtr, Ordering};

use sf_abi::*;

use crate::fault::Fault;

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs, reason = "the usual five")]
pub enum Level {
    Error = SFR_LOG_ERROR,
    Warn = SFR_LOG_WARN,
    Info = SFR_LOG_INFO,
    Debug = SFR_LOG_DEBUG,
    Trace = SFR_LOG_TRACE,
}

/// The services the host gave to `init`. Copies are free; it may be used from any thread.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    cell: &'static HostCell,
}

/// Where a runtime keeps the host's table, in the static that [`crate::export_runtime!`] makes.
#[derive(Debug)]
pub(crate) struct HostCell(AtomicPtr<SfrHost>);

impl HostCell {
    /// No host yet.
    pub(crate) const fn new() -> HostCell {
        HostCell(AtomicPtr::new(core::ptr::null_mut()))
    }

    pub(crate) fn set(&'static self, table: SfrHost) -> Host {
        // The table must outlive every thread that logs, so it is never freed; `init` is called once per process.
        self.0.store(Box::leak(Box::new(table)), Ordering::Release);
        Host { cell: self }
    }

    fn get(&self) -> Option<&'static SfrHost> {
        let table = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a leaked box that `set` published.
        unsafe { table.as_ref() }
    }
}

/// Reads the host's table.
///
/// # Safety
/// As for [`crate::wire::read`].
pub(crate) unsafe fn read_host(host: *const SfrHost) -> Result<SfrHost, Fault> {
    // SAFETY: the caller's promise.
    unsafe { crate::wire::read(host, "host") }
}

impl Host {
    /// Sends one line to the host's log.
    pub fn log(&self, level: Level, target: &str, message: &str) {
        let Some(host) = self.cell.get() else { return };
        if let Some(log) = host.log {
            // SAFETY: [any] by the header; both strings live for the call.
            unsafe { log(host.ctx, level as i32, str_of(target), str_of(message)) };
        }
    }

    /// Whether the host wants lines of this level, so that none is formatted for nothing.
    pub fn log_enabled(&self, level: Level, target: &str) -> bool {
        let Some(host) = self.cell.get() else { return false };
        match host.log_enabled {
            // SAFETY: [any] by the header; the string lives for the call.
            Some(enabled) => unsafe { enabled(host.ctx, level as i32, str_of(target)) != 0 },
            None => host.log.is_some(),
        }
    }

    /// The host's monotonic clock in nanoseconds, the one that deadlines are in.
    pub fn now_ns(&self) -> u64 {
        match self.cell.get().and_then(|host| Some((host.ctx, host.now_ns?))) {
            // SAFETY: [any] by the header.
            Some((ctx, now)) => unsafe { now(ctx) },
            None => 0,
        }
    }
}

fn str_of(text: &str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}
