//! The load generator: plans requests, sends them over HTTP, and measures what a client sees.
//!
//! A [`Source`] says what is sent when: a fixed [`Plan`], or a [`Generator`] that follows a [`Traffic`] recipe. [`run`]
//! sends it from one thread and returns a [`Record`] per request; [`summarize`] makes figures of records, [`Report`] a
//! table and a JSON document of everything. Knows nothing of the server but the OpenAI dialect.

mod ask;
mod bench;
mod conn;
mod engine;
mod error;
mod meter;
mod mix;
mod options;
pub mod procs;
mod progress;
pub mod prompt;
mod record;
mod report;
mod rng;
mod server;
mod shot;
mod summary;
mod target;
mod traffic;
pub mod wire;

pub use ask::{ask, calibrate, first_model, is_ready};
pub use bench::{Bench, WarmUp, fresh_seed, raise_file_limit};
pub use engine::run;
pub use error::{Failure, LoadError};
pub use mix::{Classes, Lengths};
pub use options::{Connections, Live, Quiet, RunOptions, Watch};
pub use progress::Progress;
pub use record::{Outcome, Record, Run, Usage};
pub use report::{Asked, CpuReport, LoadReport, Report, SCHEMA};
pub use rng::Rng;
pub use server::{OwnServer, free_port};
pub use shot::{Leave, Plan, Shot, Source, Start, Timed};
pub use summary::{Percentiles, Requests, Summary, Tokens, Window, by_class, summarize};
pub use target::Target;
pub use traffic::{Arrivals, Calibration, Generator, Pacing, Route, Traffic};
