//! The conformance kit behind `superfluid runtimes verify`: which rules of the ABI a runtime keeps, shown by calls.
//!
//! [`verify`] stays outside: it reads files, starts one process per [`Group`] and judges what comes back, however the
//! process ends. [`group_main`] is what such a process runs; it loads the library, so it may crash or hang, and the
//! parent then names the check that was running. Nothing here trusts a runtime, and nothing here is on a request's path.

mod child;
mod compare;
mod groups;
mod image;
mod journal;
mod memory;
mod options;
mod parent;
mod plan;
mod process;
mod raw;
mod report;
mod scratch;
mod session;
mod target;
mod vectors;

pub use child::group_main;
pub use parent::{VerifyOptions, verify};
pub use report::{CheckReport, Group, GroupReport, Overall, REPORT_VERSION, Report, Verdict};
