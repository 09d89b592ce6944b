//! Starts a server under test, waits until it answers, reads its metrics, and ends it again.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::BenchError;
use crate::{http, sysinfo};

const START_MAX: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(2);
/// Lines of a server's log that a failure quotes.
const LOG_LINES: usize = 6;

/// A running server; killed when dropped.
pub(crate) struct Server {
    /// Name in tables.
    pub(crate) name: &'static str,
    /// Its port on loopback.
    pub(crate) port: u16,
    /// From spawning to the first ready answer.
    pub(crate) ready_after: Duration,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `program` with a free port and waits until GET `ready_path` answers 200. Its stderr goes into `logs`.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        args: impl FnOnce(u16) -> Vec<String>,
        ready_path: &str,
        logs: &Path,
    ) -> Result<Self, BenchError> {
        let port = free_port()?;
        let log = logs.join(format!("{name}-{port}.log"));
        let stderr = File::create(&log).map_err(BenchError::io(format!("create {}", log.display())))?;
        let begun = Instant::now();
        let child = Command::new(program)
            .args(args(port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(BenchError::io(format!("start {}", program.display())))?;
        let mut server = Server { name, port, ready_after: Duration::ZERO, child, log };
        while server.get(ready_path).is_none_or(|(status, _)| status != 200) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(server.failed(format!("ended: {status}")));
            }
            if begun.elapsed() > START_MAX {
                return Err(server.failed(format!("is not ready after {} s", START_MAX.as_secs())));
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

    /// Process ids of its workers.
    pub(crate) fn workers(&self) -> Vec<u32> {
        sysinfo::children(self.pid())
    }

    /// Status and body of a plain GET; `None` when nobody listens.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        let response = http::send(self.port, "GET", path, &[], &[]).ok()?;
        let status = response.status;
        Some((status, response.text().ok()?))
    }

    /// Body of a plain POST that must be answered with 200.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, BenchError> {
        let answer = http::send(self.port, "POST", path, &[], body.to_string().as_bytes());
        let response = answer.map_err(|error| self.failed(format!("POST {path}: {error}")))?;
        let status = response.status;
        let text = response.text().map_err(|error| self.failed(format!("POST {path}: {error}")))?;
        match serde_json::from_str(&text) {
            Ok(body) if status == 200 => Ok(body),
            _ => Err(self.failed(format!("POST {path}: {status} {text}"))),
        }
    }

    /// Sum over its labels of the first of these metrics that it has.
    pub(crate) fn metric(&self, names: &[&str]) -> Result<f64, BenchError> {
        let text = self.get("/metrics").map(|(_, text)| text).unwrap_or_default();
        names
            .iter()
            .find_map(|name| metric_in(&text, name))
            .ok_or_else(|| self.failed(format!("/metrics has none of {}", names.join(", "))))
    }

    /// A failure of this server, with the end of its log.
    pub(crate) fn failed(&self, what: String) -> BenchError {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let mut last: Vec<&str> = log.lines().rev().filter(|line| !line.is_empty()).take(LOG_LINES).collect();
        last.reverse();
        let log = if last.is_empty() {
            String::new()
        } else {
            format!("\n    its log ends: {}", last.join("\n                  "))
        };
        BenchError::Server { server: self.name.to_owned(), what: what + &log }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sum over labels; `None` when the name does not occur.
fn metric_in(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| -> Option<f64> {
        let rest = line.strip_prefix(name)?;
        (rest.starts_with('{') || rest.starts_with(' ')).then(|| rest.rsplit(' ').next()?.parse().ok())?
    };
    text.lines().filter_map(value).reduce(|a, b| a + b)
}

fn free_port() -> Result<u16, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(BenchError::io("find a free port"))?;
    Ok(listener.local_addr().map_err(BenchError::io("find a free port"))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_over_longer_names() {
        let text = "# TYPE a counter\na{m=\"x y\"} 2\na{m=\"z\"} 3.5\nab 7\nc 1\n";
        let check = |name, expect| assert_eq!(metric_in(text, name), expect, "{name}");
        check("a", Some(5.5));
        check("ab", Some(7.0));
        check("c", Some(1.0));
        check("d", None);
    }
}
