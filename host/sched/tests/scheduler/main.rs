//! The scheduler's promises, held against a model engine in simulated time.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod basics;
mod classes;
mod losses;
mod prefill;
mod prefix;
mod pressure;
mod properties;
mod stash;
mod traces;

#[path = "../support/mod.rs"]
mod support;
