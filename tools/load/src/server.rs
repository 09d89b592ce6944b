//! A server that is started for one run and ended with it.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::ask::is_ready;
use crate::bench::wait_until;
use crate::error::LoadError;
use crate::target::Target;

/// Time to load the model.
const START_MAX: Duration = Duration::from_secs(600);
/// Time to stop in peace.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A running server; ended when dropped.
pub struct OwnServer {
    child: Child,
}

impl OwnServer {
    /// Starts `command`, which is to listen where `target` points, and waits until it says that it is ready. Its stderr
    /// is ours: that is where it says why it does not start.
    ///
    /// # Errors
    /// It cannot be started, ends early, or `stop` was set first.
    pub fn start(mut command: Command, target: &Target, stop: &AtomicBool) -> Result<Self, LoadError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C is for us alone: the server must live until its last answer is counted.
            .process_group(0)
            .spawn()
            .map_err(LoadError::io(format!("start {program}")))?;
        let mut server = OwnServer { child };
        let mut ended = None;
        let ready = wait_until(START_MAX, stop, || {
            ended = server.child.try_wait().ok().flatten();
            ended.is_some() || is_ready(target)
        });
        match (ended, ready) {
            (Some(status), _) => {
                Err(LoadError::Server { what: format!("the server ended before it was ready: {status}") })
            }
            (None, false) => Err(LoadError::Server { what: "the server did not become ready".to_owned() }),
            (None, true) => Ok(server),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let child = &mut self.child;
        let never = AtomicBool::new(false);
        if !wait_until(STOP_MAX, &never, || matches!(child.try_wait(), Ok(Some(_)) | Err(_))) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A port on which nobody listens now.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16, LoadError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(LoadError::io("find a free port"))?;
    Ok(listener.local_addr().map_err(LoadError::io("find a free port"))?.port())
}
