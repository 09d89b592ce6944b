//! A model engine, a driver in simulated time, and a simulator over recorded traces: what tests and examples share.
#![allow(dead_code, reason = "each test crate uses its part")]

pub(crate) mod ask;
pub(crate) mod cells;
pub(crate) mod chance;
pub(crate) mod checks;
pub(crate) mod draw;
pub(crate) mod drive;
pub(crate) mod engine;
pub(crate) mod report;
pub(crate) mod tick;
pub(crate) mod trace;
