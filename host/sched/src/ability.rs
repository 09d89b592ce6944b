//! Which ways of taking over a prefix an engine offers, less those it was seen to fail at.

use crate::types::EngineFacts;

/// Operations that failed in a row after which their kind is not tried again on this engine.
const FAULTS_MAX: u32 = 4;

/// What the engine says it can do, less what it was seen to fail at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ability {
    fork: bool,
    truncate: bool,
    /// Failures in a row, by [`Way`].
    failures: [u32; 4],
}

/// Ways to take over a prefix from a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// All positions of another lane.
    WholeFork,
    /// Its beginning.
    PartFork,
    /// The lane itself as it is.
    Adopt,
    /// The lane itself, cut.
    Cut,
}

impl Ability {
    pub(crate) fn new(facts: &EngineFacts) -> Ability {
        Ability { fork: facts.fork, truncate: facts.truncate, failures: [0; 4] }
    }

    pub(crate) fn can(&self, way: Way) -> bool {
        let told = match way {
            Way::WholeFork | Way::PartFork => self.fork,
            // Nothing is asked of the engine but to go on.
            Way::Adopt => true,
            Way::Cut => self.truncate,
        };
        told && self.failures[way as usize] < FAULTS_MAX
    }

    pub(crate) fn note(&mut self, way: Way, worked: bool) {
        let failures = &mut self.failures[way as usize];
        *failures = if worked { 0 } else { *failures + 1 };
    }

    /// Whether an idle lane can be of use to anybody.
    pub(crate) fn keeps(&self) -> bool {
        [Way::WholeFork, Way::PartFork, Way::Adopt, Way::Cut].into_iter().any(|way| self.can(way))
    }
}
