//! Decides the next step of one engine: a pure state machine over queued requests and running lanes.
//!
//! No clock, lock, I/O, async or randomness: [`Scheduler::plan`] fills a plan, [`Scheduler::apply`] turns what came
//! back into outcomes, and a recorded input replays to the same output. Text, channels and HTTP do not exist here.

mod lane;
mod scheduler;

pub use scheduler::{Admission, Outcome, QueueFull, Scheduler, SchedulerSettings, Stop};
