//! One trait, two transports: in-process and worker; loader and probe.
//!
//! [`Link`] is an open engine. [`open_in_process`] calls the runtime on the caller's thread; [`open_worker`] puts it into
//! a process of its own, where its crash, hang or hunger is an [`EngineError`] and not the server's end. Nothing above
//! this crate knows that an ABI exists.

mod control;
pub mod cost;
pub mod error;
mod in_process;
pub mod link;
pub mod loader;
mod open;
mod wire;
mod worker;

pub use control::Control;
pub use error::EngineError;
pub use in_process::open_in_process;
pub use link::{EngineStats, Link, OpenSpec, Opened};
pub use wire::PROTOCOL;
pub use worker::{WorkerExe, WorkerLimits, WorkerProber, open_worker, open_worker_with, worker_main};

/// The `SFR_LOG_…` level up to which this process's log takes lines, as far as that is fixed; 0 = none.
fn log_level() -> i32 {
    use tracing::level_filters::LevelFilter;
    const LEVELS: [(LevelFilter, i32); 5] = [
        (LevelFilter::TRACE, sf_abi::SFR_LOG_TRACE),
        (LevelFilter::DEBUG, sf_abi::SFR_LOG_DEBUG),
        (LevelFilter::INFO, sf_abi::SFR_LOG_INFO),
        (LevelFilter::WARN, sf_abi::SFR_LOG_WARN),
        (LevelFilter::ERROR, sf_abi::SFR_LOG_ERROR),
    ];
    let current = LevelFilter::current();
    LEVELS.iter().find(|(filter, _)| *filter == current).map_or(0, |(_, level)| *level)
}
