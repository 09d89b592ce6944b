//! The transport to a worker process: one process per engine, step records in shared memory.
//!
//! How the two sides meet: the worker's standard input is one end of a socket pair, its standard output the shared
//! memory, its standard error a pipe into the log. The worker moves the first two away before it loads anything. So no
//! descriptor is ever inheritable in the server, and no child that another thread starts meanwhile can hold one open.

mod bell;
mod child;
mod parent;
mod probe;
mod serve;
mod shm;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use sf_core::limits;

pub use parent::{open_worker, open_worker_with};
pub use probe::WorkerProber;
pub use serve::worker_main;
pub(crate) use shm::Shm;

use crate::error::EngineError;

/// File name of the worker's executable.
const EXE: &str = "superfluid-workerd";

/// Where the worker's executable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerExe(pub PathBuf);

impl WorkerExe {
    /// `superfluid-workerd` in the folder of the running program.
    ///
    /// # Errors
    /// [`EngineError::System`] when that folder is unknown or holds no such file.
    pub fn beside_current_exe() -> Result<Self, EngineError> {
        const WHAT: &str = "find superfluid-workerd";
        let exe = std::env::current_exe().map_err(|error| EngineError::system(WHAT, error))?;
        let path = exe.with_file_name(EXE);
        if path.is_file() {
            return Ok(WorkerExe(path));
        }
        Err(EngineError::System { what: WHAT, reason: format!("there is no {}", path.display()) })
    }
}

/// How long a worker may take for each thing asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Starting and loading the library.
    pub hello: Duration,
    /// Opening the model.
    pub open: Duration,
    /// One step, or one answer about numbers.
    pub step: Duration,
    /// Closing the model before the process is killed.
    pub close: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        WorkerLimits {
            hello: limits::WORKER_HELLO_MAX,
            open: limits::WORKER_OPEN_MAX,
            step: limits::STEP_MAX,
            close: Duration::from_secs(2),
        }
    }
}
