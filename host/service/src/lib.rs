//! Joins the stages: models with their codecs, one lane thread per engine, and the streams between them and clients.
//!
//! It decides who owns what and who waits for whom; it does not know JSON, flags or the ABI.

mod lane_thread;
mod meter;
mod model;
mod resolve;
mod service;
mod stream;

pub use model::{ModelSpec, Opener, SamplingDefaults};
pub use service::Service;
