//! Starts a server under test, waits until it answers, and ends it again.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client;
use crate::error::BenchError;

const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// A running server; killed when dropped.
pub(crate) struct Server {
    /// Name in tables.
    pub(crate) name: &'static str,
    /// Its port on loopback.
    pub(crate) port: u16,
    /// From spawning to the first ready answer.
    pub(crate) ready_after: Duration,
    child: Child,
}

impl Server {
    /// Starts `command` with a free port and waits until GET `ready_path` answers 200.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        args: impl FnOnce(u16) -> Vec<String>,
        ready_path: &str,
    ) -> Result<Self, BenchError> {
        let port = free_port()?;
        let begun = Instant::now();
        let child = Command::new(program)
            .args(args(port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::io(format!("start {}", program.display())))?;
        let mut server = Server { name, port, ready_after: Duration::ZERO, child };
        while client::get_status(port, ready_path) != Some(200) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(BenchError::Server { server: name.to_owned(), what: format!("ended: {status}") });
            }
            if begun.elapsed() > START_MAX {
                return Err(BenchError::Server {
                    server: name.to_owned(),
                    what: "is not ready after 60 s".to_owned(),
                });
            }
            std::thread::sleep(POLL);
        }
        server.ready_after = begun.elapsed();
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> Result<u16, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(BenchError::io("find a free port"))?;
    Ok(listener.local_addr().map_err(BenchError::io("find a free port"))?.port())
}
