//! Joins the stages: models with their codecs, one lane thread per engine, and the streams between them and clients.
//!
//! It decides who owns what and who waits for whom; it does not know JSON, flags or the ABI.

mod clock;
mod desk;
mod embed;
mod lanes;
mod mailbox;
mod meter;
mod model;
mod parts;
mod pressure;
mod resolve;
mod service;
mod stream;
mod sync;
mod tools;

pub use model::{Engine, ModelSpec, Opener, SamplingDefaults};
pub use service::Service;
