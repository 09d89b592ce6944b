//! Asks a runtime in a throw-away process whether it can run here.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sf_abi::descriptor::ProbeAnswer;
use sf_core::limits;
use sf_core::ports::{ProbeFailure, Prober};

use super::WorkerExe;
use super::child::{self, Child};
use super::serve::EXIT_REFUSED;
use super::words::Words;
use crate::error::EngineError;

/// How long the answer of a process that is gone may still be on its way through the pipe.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Spawns `superfluid-workerd --probe` for each question.
#[derive(Clone, Debug)]
pub struct WorkerProber {
    exe: WorkerExe,
    budget: Duration,
}

impl WorkerProber {
    /// With the budget of [`limits::PROBE_BUDGET`].
    pub fn new(exe: WorkerExe) -> Self {
        WorkerProber { exe, budget: limits::PROBE_BUDGET }
    }

    /// With a budget of the caller's: the process is killed when it is used up.
    #[must_use]
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    fn run(&self, library: &Path, env: &[(String, String)], depth: u32) -> Result<String, ProbeError> {
        let (depth, budget) = (depth.to_string(), self.budget.as_millis().to_string());
        let args = ["--probe".as_ref(), library.as_os_str(), "--depth".as_ref(), depth.as_ref()];
        let args: Vec<&OsStr> = args.into_iter().chain(["--budget-ms".as_ref(), budget.as_ref()]).collect();
        let mut command = child::command(&self.exe.0, &args, env);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Child::spawn(&mut command, || {})?;
        let words = Arc::new(Words::default());
        let (answer, arrived) = mpsc::sync_channel(1);
        if let (Some(stdout), Some(stderr)) = child.take_pipes() {
            let words = Arc::clone(&words);
            child::spawn_thread("sf-words", move || {
                words.read(std::fs::File::from(stderr), |line| tracing::debug!("probe: {line}"));
            })?;
            child::spawn_thread("sf-probe", move || {
                let mut bytes = Vec::new();
                let most = limits::RUNTIME_JSON_BYTES_MAX as u64 + 1;
                let read = std::fs::File::from(stdout).take(most).read_to_end(&mut bytes);
                // Nobody listens any more once the budget is used up.
                let _ = answer.send(read.map(|_| bytes));
            })?;
        }
        let Some(exit) = child.wait(self.budget) else {
            return Err(ProbeError::Late(self.budget));
        };
        match exit.code {
            Some(0) => match arrived.recv_timeout(DRAIN_MAX) {
                Ok(Ok(bytes)) => check(bytes),
                Ok(Err(error)) => Err(ProbeError::Garbage(error.to_string())),
                Err(_) => Err(ProbeError::Late(DRAIN_MAX)),
            },
            Some(EXIT_REFUSED) => Err(ProbeError::Refused(words.last())),
            _ => Err(ProbeError::Died { how: exit.how, last_words: words.last() }),
        }
    }
}

impl Prober for WorkerProber {
    fn probe(&self, library: &Path, env: &[(String, String)], depth: u32) -> Result<String, ProbeFailure> {
        self.run(library, env, depth).map_err(|error| ProbeFailure { reason: error.to_string() })
    }
}

/// Why there is no answer; its words become the catalog's reason.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("{}", .0.lines().last().unwrap_or("it refused without a word"))]
    Refused(String),
    #[error("{how}{}", if last_words.is_empty() { String::new() } else { format!("; its last words: {last_words}") })]
    Died { how: String, last_words: String },
    #[error("its answer is not a probe answer: {0}")]
    Garbage(String),
    #[error(transparent)]
    Ours(#[from] EngineError),
}

/// The answer as text, once it is known to be one.
fn check(bytes: Vec<u8>) -> Result<String, ProbeError> {
    if bytes.len() > limits::RUNTIME_JSON_BYTES_MAX {
        let reason = format!("it exceeds {} bytes", limits::RUNTIME_JSON_BYTES_MAX);
        return Err(ProbeError::Garbage(reason));
    }
    let text = String::from_utf8(bytes).map_err(|error| ProbeError::Garbage(error.to_string()))?;
    match serde_json::from_str::<ProbeAnswer>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(ProbeError::Garbage(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_probe_answer_passes() {
        let refuse = |bytes: &[u8], expect: &str| {
            let error = check(bytes.to_vec()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        assert_eq!(check(br#"{"available":true}"#.to_vec()).unwrap(), r#"{"available":true}"#);
        refuse(b"", "EOF");
        refuse(b"Loading driver...\n{\"available\":true}", "expected value");
        refuse(b"{\"available\":1}", "invalid type");
        refuse(b"\xFF", "utf-8");
        refuse(&vec![b' '; limits::RUNTIME_JSON_BYTES_MAX + 1], "exceeds 1048576 bytes");
    }
}
