//! Descriptors, manifests, discovery, trust, choice, refusals: which runtimes there are, and which one serves a model.
//!
//! Nothing of a runtime is executed here: descriptors are read from files, and what must run is asked of a
//! [`sf_core::ports::Prober`], in a process of its own. One bad runtime never hides the others: whatever is wrong with
//! it is a [`Reason`] on its [`Entry`].

mod cache;
mod choose;
mod descriptor;
mod discover;
mod entry;
mod examine;
mod grid;
mod machine;
mod options;
mod probe;
mod reason;
mod report;
mod require;
mod search;
mod section;
mod table;
mod trust;

pub use choose::{Choice, ChoiceError, ModelKind};
pub use discover::Catalog;
pub use entry::{Entry, Source, State};
pub use grid::{Row, Style, grid};
pub use machine::{Machine, elevated};
pub use options::{OptionError, OptionHelp, check_owners};
pub use reason::Reason;
pub use report::{CatalogReport, ModelReport, ReasonReport, RuntimeReport, VerdictReport};
pub use require::{Class, Need, Refusal, Requirement, Verdict};
pub use search::{Root, Search};
pub use table::{catalog_table, model_table};
