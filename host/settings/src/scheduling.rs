//! The scheduling flags: from matched rows to typed settings, and what they say about each other.

use std::time::Duration;

use sf_core::QosClass;
use sf_core::limits::{
    PIN_BUDGET_PCT, PREFILL_BUDGET, PREFIX_BLOB_BUDGET_MB, PRESSURE_HIGH_PCT, PRESSURE_LOW_PCT,
    STARVATION_TICKS, TICK_DECODE_STEPS, TICK_TARGET,
};

use crate::error::{Problem, UsageError};
use crate::parse::Matches;
use crate::settings::SchedulingSettings;

/// Smallest `--prefill-budget` apart from 0.
const PREFILL_BUDGET_MIN: u32 = 64;
/// What names a class.
const CLASSES: &str = "interactive (0), completion (1), agent (2) or background (3)";

/// Everything of the group that the scheduler reads.
pub(crate) fn scheduling(matches: &Matches, max_batch: u32) -> Result<SchedulingSettings, UsageError> {
    let (pressure_low_pct, pressure_high_pct) = pressure(matches)?;
    Ok(SchedulingSettings {
        tick_decode_budget: tick_decode_budget(matches, max_batch)?,
        tick_target: matches.int("tick-target-ms").map_or(TICK_TARGET, |ms| Duration::from_millis(ms.into())),
        prefill_budget: prefill_budget(matches)?,
        starvation_ticks: matches.int("starvation-ticks").unwrap_or(STARVATION_TICKS),
        class_lanes: class_lanes(matches, max_batch)?,
        pin_budget_pct: matches.int("pin-budget-pct").unwrap_or(PIN_BUDGET_PCT),
        pressure_high_pct,
        pressure_low_pct,
        os_pressure: matches.on("os-pressure"),
        prefix_blob_budget_mb: matches.int("prefix-blob-budget-mb").unwrap_or(PREFIX_BLOB_BUDGET_MB as u32),
    })
}

/// `--http-default-qos`.
pub(crate) fn default_class(matches: &Matches) -> Result<QosClass, UsageError> {
    let Some(text) = matches.text("http-default-qos") else { return Ok(QosClass::default()) };
    QosClass::parse(text).ok_or_else(|| refused(matches, "http-default-qos", text, CLASSES))
}

fn refused(matches: &Matches, name: &str, value: &str, accepts: &str) -> UsageError {
    Problem::BadValue { flag: matches.spelled(name), value: value.into(), accepts: accepts.into() }.into()
}

fn tick_decode_budget(matches: &Matches, max_batch: u32) -> Result<u32, UsageError> {
    match matches.int("tick-decode-budget") {
        None => Ok(max_batch * TICK_DECODE_STEPS),
        Some(budget) if budget >= max_batch => Ok(budget),
        Some(budget) => {
            let accepts = format!("a whole number from {max_batch} (--max-batch) on");
            Err(refused(matches, "tick-decode-budget", &budget.to_string(), &accepts))
        }
    }
}

fn prefill_budget(matches: &Matches) -> Result<Option<u32>, UsageError> {
    match matches.int("prefill-budget") {
        None | Some(0) => Ok(None),
        Some(budget) if budget >= PREFILL_BUDGET_MIN => Ok(Some(budget)),
        Some(budget) => {
            let accepts = format!("a whole number from {PREFILL_BUDGET_MIN} to {PREFILL_BUDGET}, or 0");
            Err(refused(matches, "prefill-budget", &budget.to_string(), &accepts))
        }
    }
}

fn class_lanes(matches: &Matches, max_batch: u32) -> Result<[u32; 4], UsageError> {
    let mut lanes = [None; 4];
    let Some(text) = matches.text("class-lanes") else { return Ok([max_batch; 4]) };
    for part in text.split(',') {
        let refused = |accepts: String| refused(matches, "class-lanes", text, &accepts);
        let (name, count) =
            part.split_once('=').ok_or_else(|| refused(format!("class=N,...; {part:?} has no =")))?;
        let class = QosClass::parse(name)
            .ok_or_else(|| refused(format!("{CLASSES} before each =; {:?} is none", name.trim())))?;
        let count = count.trim();
        let cap = count.parse().ok().filter(|cap| (1..=max_batch).contains(cap)).ok_or_else(|| {
            refused(format!("1 to {max_batch} (--max-batch) for each class; {class} has {count:?}"))
        })?;
        if lanes[class.index()].replace(cap).is_some() {
            return Err(refused(format!("each class once; {class} is named twice")));
        }
    }
    Ok(lanes.map(|cap| cap.unwrap_or(max_batch)))
}

/// Low and high watermark. One that is not given gives way to the other.
fn pressure(matches: &Matches) -> Result<(u32, u32), UsageError> {
    match (matches.int("pressure-low"), matches.int("pressure-high")) {
        (Some(low), Some(high)) if low > high => {
            let (first, second) = (matches.spelled("pressure-low"), matches.spelled("pressure-high"));
            let why = "dropping cannot end above the share at which it begins";
            let problem = Problem::Contradiction {
                first: format!("{first} {low}"),
                second: format!("{second} {high}"),
                why,
            };
            Err(problem.into())
        }
        (Some(low), Some(high)) => Ok((low, high)),
        (Some(low), None) => Ok((low, PRESSURE_HIGH_PCT.max(low))),
        (None, Some(high)) => Ok((PRESSURE_LOW_PCT.min(high), high)),
        (None, None) => Ok((PRESSURE_LOW_PCT, PRESSURE_HIGH_PCT)),
    }
}
