//! The monotonic clock that lane threads and submissions share, read as [`Moment`]s.

use std::time::Instant;

use sf_core::Moment;

/// Counts from the service's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts it.
    pub(crate) fn start() -> Self {
        Clock(Instant::now())
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(self) -> Moment {
        Moment::default() + self.0.elapsed()
    }
}
