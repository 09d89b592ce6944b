//! How a run is driven, and who looks at it while it goes on.

use std::time::Duration;

use crate::record::Record;

/// How a run is driven.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// A request that has not ended after so long is failed.
    pub timeout: Option<Duration>,
    /// The run ends then: nothing starts any more, and what still runs is cut.
    pub until: Option<Duration>,
    /// Which requests share connections.
    pub connections: Connections,
    /// Requests under way at most; further ones start late, which their records show as lag.
    pub running_max: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { timeout: None, until: None, connections: Connections::Auto, running_max: 8192 }
    }
}

/// Which requests share connections, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// Plain ones do. Streamed ones get a fresh connection each: some servers close it after a stream although they
    /// announce to keep it.
    #[default]
    Auto,
    /// None do.
    Fresh,
    /// All do, as far as the server lets them.
    Kept,
}

/// What a run looks like while it goes on.
#[derive(Debug)]
pub struct Live<'a> {
    /// Since its start.
    pub elapsed: Duration,
    /// Requests under way.
    pub running: usize,
    /// Requests that have ended, in order.
    pub records: &'a [Record],
    /// Events with text so far, all requests together.
    pub events: u64,
}

/// Looks at a run ten times a second.
pub trait Watch {
    /// Returns whether the run goes on; `false` cuts what is under way.
    fn look(&mut self, live: &Live<'_>) -> bool;
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Watch for Quiet {
    fn look(&mut self, _: &Live<'_>) -> bool {
        true
    }
}
