//! Decides the next tick of one engine: a pure state machine over queued requests and running lanes.
//!
//! No clock, lock, I/O, async or randomness: [`Scheduler::plan`] fills a plan, [`Scheduler::apply`] turns what came
//! back into outcomes, and a recorded input replays to the same output. Text, channels and HTTP do not exist here.

mod ability;
mod admit;
mod feed;
mod job;
mod kv;
mod lane;
mod pace;
mod party;
mod queue;
mod scheduler;
mod settle;
mod source;
mod stash;
mod tree;
mod types;

pub use scheduler::Scheduler;
pub use types::{
    Admission, EngineFacts, Failure, Levels, Outcome, QueueFull, SchedulerSettings, Stop, Totals,
};
