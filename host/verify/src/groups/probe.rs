//! Group `probe`: depth 0 answers quickly, always the same, and touches no driver and no network.

use std::path::PathBuf;
use std::time::Instant;

use sf_abi::descriptor::ProbeAnswer;
use sf_abi::{SFR_E_ABI, SFR_E_SMALL_BUFFER, SFR_E_UNSUPPORTED, SfrBuf, SfrProbe};
use sf_core::limits::PROBE_BUDGET;

use crate::child::Subject;
use crate::groups::negotiation::started;
use crate::journal::{Found, Journal, broken, ensure, not_here};
use crate::memory::Guarded;
use crate::raw::{Bound, call, code_name, refused, size_u32};

/// What the probe should take at most, and what it must not exceed (a loaded machine is no fault of the runtime).
const WANTED_MS: u128 = 100;
const LIMIT_MS: u128 = 1000;
/// Parts of paths that only a driver has.
const DRIVER_MARKS: [&str; 9] = [
    "libcuda",
    "libnvidia",
    "libamdhip64",
    "libhsa-runtime",
    "libvulkan",
    "/dev/nvidia",
    "/dev/dri",
    "/dev/kfd",
    "libOpenCL",
];

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let before = open_files();
    let Some((bound, _)) = started(subject, journal) else { return };
    journal.check("no-home", || {
        // The parent starts groups without one; an in-process caller may not.
        ensure!(std::env::var_os("HOME").is_none(), "HOME is set; the group was not started as it should be");
        Ok("HOME is not set".to_owned())
    });
    let mut first = None;
    journal.check("time", || {
        let began = Instant::now();
        let mut needed = SfrBuf { p: std::ptr::null_mut(), cap: 0, needed: 0 };
        let req = Guarded::holding(&request(), &[]);
        let outcome = call(|err| bound.probe_raw(&req, &raw mut needed, err));
        let took = began.elapsed().as_millis();
        first = Some(outcome.map_or_else(|refusal| refusal.code, |()| 0));
        ensure!(took < LIMIT_MS, "depth 0 took {took} ms, the limit is {LIMIT_MS}");
        let slow = if took > WANTED_MS { " (slow: 100 ms is what depth 0 should take)" } else { "" };
        Ok(format!("{took} ms{slow}"))
    });
    journal.check("small-buffer", || {
        let status = first.unwrap_or_default();
        ensure!(status == SFR_E_SMALL_BUFFER, "with a buffer of 0 bytes it returned {}", code_name(status));
        Ok("told the size first".to_owned())
    });
    let mut answer = None;
    journal.check("answer", || {
        let text = bound.probe(&request())?;
        let parsed: ProbeAnswer =
            serde_json::from_str(&text).map_err(|error| broken!("{text:?} is no probe answer: {error}"))?;
        let words = match (&parsed.available, parsed.reason.as_deref()) {
            (true, _) => format!("available, {} devices", parsed.devices.len()),
            (false, Some(reason)) if !reason.trim().is_empty() => format!("not available: {reason}"),
            (false, _) => return Err(broken!("not available, and no reason is given")),
        };
        let named = parsed.devices.iter().all(|device| !device.id.is_empty());
        ensure!(named, "a device has no id");
        answer = Some(text);
        Ok(words)
    });
    journal.check("repeatable", || {
        let again = bound.probe(&request())?;
        ensure!(
            answer.as_ref().is_none_or(|first| *first == again),
            "two probes differ: {answer:?} and {again:?}"
        );
        Ok("two answers are the same bytes".to_owned())
    });
    journal.check("sizes", || sizes(&bound));
    journal.check("touches-nothing", || touches_nothing(&before));
}

fn request() -> SfrProbe {
    let budget_ns = u64::try_from(PROBE_BUDGET.as_nanos()).unwrap_or(u64::MAX);
    SfrProbe { struct_size: size_u32::<SfrProbe>(), depth: 0, budget_ns }
}

fn sizes(bound: &Bound) -> Found {
    let ask = |req: &SfrProbe, tail: &[u8]| {
        let mut buf = SfrBuf { p: std::ptr::null_mut(), cap: 0, needed: 0 };
        let req = Guarded::holding(req, tail);
        call(|err| bound.probe_raw(&req, &raw mut buf, err))
    };
    let own = request();
    refused(ask(&SfrProbe { struct_size: 8, ..own }, &[]), &[SFR_E_ABI], "a request of 8 bytes")?;
    let long = SfrProbe { struct_size: own.struct_size + 8, ..own };
    refused(ask(&long, &[1; 8]), &[SFR_E_UNSUPPORTED], "a longer request with a set tail")?;
    let taken = ask(&long, &[0; 8]).map_or_else(|refusal| refusal.code, |()| 0);
    ensure!(taken == SFR_E_SMALL_BUFFER, "a longer request with a zero tail: {}", code_name(taken));
    let req = Guarded::holding(&own, &[]);
    let mut buf = SfrBuf { p: std::ptr::null_mut(), cap: 0, needed: 0 };
    let bare = bound.probe_raw(&req, &raw mut buf, std::ptr::null_mut());
    ensure!(bare == SFR_E_SMALL_BUFFER, "with err = NULL it returned {}", code_name(bare));
    Ok("short refused, long taken, a set tail refused".to_owned())
}

/// What the process has open, sorted.
fn open_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    files.sort();
    files
}

fn touches_nothing(before: &[PathBuf]) -> Found {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { not_here!("no /proc on this system") };
    let mark = DRIVER_MARKS.iter().find(|mark| maps.contains(**mark));
    ensure!(mark.is_none(), "the probe at depth 0 loaded a driver: {mark:?} is mapped");
    for file in open_files().iter().filter(|file| !before.contains(file)) {
        let text = file.to_string_lossy();
        let device = DRIVER_MARKS.iter().any(|mark| text.contains(mark));
        ensure!(!device && !text.starts_with("socket:"), "the probe at depth 0 opened {text}");
    }
    Ok("no driver mapped, no device and no socket opened".to_owned())
}
