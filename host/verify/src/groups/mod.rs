//! The groups of checks, each a list of named rules.

mod embed;
mod mutate;
mod negotiation;
mod probe;
mod semantics;
mod state;
mod statics;
mod step_fuzz;
mod walker;

pub(crate) mod open;

use crate::child::Subject;
use crate::journal::Journal;
use crate::report::Group;

/// Runs the subject's group.
pub(crate) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    match subject.group {
        Group::Static => statics::run(subject, journal),
        Group::Negotiation => negotiation::run(subject, journal),
        Group::Probe => probe::run(subject, journal),
        Group::Options => open::run(subject, journal),
        Group::StepFuzz => step_fuzz::run(subject, journal),
        Group::Semantics => semantics::run(subject, journal),
        Group::Embed => embed::run(subject, journal),
    }
}
