//! Safe face for a runtime's author: implement [`Runtime`] and [`Model`], call [`export_runtime!`], and the library
//! has the one export of `superfluid_runtime.h`.
//!
//! Everything the header asks of a callee is done here once: struct sizes and zero tails (L4), strides, alignment,
//! bounds, unknown flag bits, duplicate lanes, positions, option honesty, the two-call buffers, and panics, which
//! become `SFR_E_INTERNAL` with the scope of the model. A trait method sees only checked Rust values.
//!
//! It must not know any engine, and nothing here is needed to write a runtime in another language.
//!
//! ```
//! use sf_abi_sdk::{Fault, Lane, Model, ModelDescription, OpenRequest, Plan, Runtime, Shape, StepWriter};
//!
//! /// Prefers the token after the one it was fed.
//! struct Successor;
//! struct Counting;
//!
//! impl Runtime for Successor {
//!     type Model = Counting;
//!     type Tokenizer = sf_abi_sdk::NoTokenizer;
//!     fn init(_host: sf_abi_sdk::Host) -> Result<Self, Fault> {
//!         Ok(Successor)
//!     }
//!     fn open(&self, _request: &mut OpenRequest<'_>) -> Result<Counting, Fault> {
//!         Ok(Counting)
//!     }
//! }
//!
//! impl Model for Counting {
//!     fn shape(&self) -> Shape {
//!         Shape { vocab: 16, lanes_max: 4, lane_tokens_max: 128 }
//!     }
//!     fn describe(&self) -> ModelDescription {
//!         ModelDescription::default()
//!     }
//!     fn lane_truncate(&mut self, _lane: Lane, _len: u32, want: u32) -> Result<u32, Fault> {
//!         Ok(want)
//!     }
//!     fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
//!         for feed in plan.feeds() {
//!             let run = plan.tokens(feed);
//!             for row in feed.rows() {
//!                 let next = (run[row.in_run] + 1) % 16;
//!                 out.row(row.number)[next as usize] = 1.0;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! sf_abi_sdk::export_runtime!(
//!     Successor,
//!     descriptor = r#"{"descriptor_version":1,"id":"successor","version":"0.1.0","abi":[0,2],"interfaces":["sf.engine/1"]}"#
//! );
//! # fn main() {}
//! ```

mod either;
mod embed;
mod envelope;
pub mod export;
mod fault;
pub mod handshake;
mod host;
mod lanes;
pub mod machine;
mod model;
mod open;
mod paged;
mod pages;
mod plan;
mod runtime;
mod slots;
mod step;
mod wire;

pub use either::Either;
pub use embed::{EmbedPlan, Normalize, Pooled, Pooling};
pub use fault::{Code, Fault, Scope};
pub use host::{Host, Level};
pub use lanes::Lane;
pub use open::{Control, OpenRequest, Options};
pub use paged::PagedLanes;
pub use pages::{Element, LanePages, Pages};
pub use plan::{Feed, Plan, Row, StepWriter};
pub use runtime::{Estimate, Model, NoTokenizer, Runtime, Shape, Stats, Tokenizer};
pub use sf_abi;
pub use sf_abi::descriptor::{
    Capability, Device, EmbeddingFacts, ModelDescription, ModelFacts, ProbeAnswer, True,
};
