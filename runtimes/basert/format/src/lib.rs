//! The `.base` bundle: one file that holds a model as our engine's kernels read it.
//!
//! The format is written down in `runtimes/basert/FORMAT.md`; this crate owns its header, the checks that every number in it
//! passes before it is believed, and the layouts of weights. The engine, the packer and the host's reader share it. It must
//! not compute anything with weights, nor know where a model came from.

mod arch;
mod bundle;
mod canonical;
mod error;
mod fuzz;
mod half;
mod header;
mod layout;
mod shape;
mod verify;

pub use arch::{Activation, Arch, Kind, Layer, Norm, Norms, Pooling, PoolingKind, Rope};
pub use bundle::{Bundle, PROLOGUE_BYTES, align, prologue};
pub use canonical::canonical;
pub use error::BaseError;
#[doc(hidden)]
pub use fuzz::fuzz;
pub use half::{from_f16, to_f16};
pub use header::{DATA_ALIGN, Header, ITEM_ALIGN, SLOTS, Slot, Source, Sum, Tensor};
pub use layout::{GROUP, Layout};
