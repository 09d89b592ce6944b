//! The scenarios of `bench serve`, one file each.

mod arrive;
mod chat;
mod exhaust;
mod hostcpu;
mod kill;
mod noop;
mod prefix;
mod process;
mod share;
mod structured;
mod throughput;
mod toys;
mod transports;
mod vanish;

use crate::serve::Scenario;

pub(crate) use kill::kill_worker;

/// In the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    process::SCENARIO,
    throughput::SCENARIO,
    share::SCENARIO,
    arrive::SCENARIO,
    prefix::SCENARIO,
    chat::SCENARIO,
    transports::SCENARIO,
    structured::SCENARIO,
    hostcpu::SCENARIO,
    noop::SCENARIO,
    kill::SAMPLE,
    kill::REAL,
    vanish::SCENARIO,
    exhaust::SCENARIO,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_fits_into_28_minutes() {
        // Starts, warm-ups and the last round of each come on top of the allowances.
        let minutes: f64 = ALL.iter().map(|scenario| scenario.minutes).sum();
        assert!(minutes <= 27.0, "{minutes}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
