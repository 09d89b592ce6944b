//! What a scenario plays on: servers started the same way on both sides, rounds in alternating order, a time allowance.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;

use super::ServeOptions;
use crate::client::{self, Ask, Drawing};
use crate::error::BenchError;
use crate::server::Server;
use crate::{peer, prompts};

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Requests computed at the same time.
    pub(crate) lanes: usize,
    /// Positions of one request.
    pub(crate) window: usize,
    /// Ours without its worker process.
    pub(crate) in_process: bool,
    /// The peer may keep prompts of ended requests in host memory.
    pub(crate) peer_cache: bool,
    /// More arguments of ours.
    pub(crate) more: Vec<String>,
}

impl Setup {
    /// So many lanes of so many positions, through the worker.
    pub(crate) fn new(lanes: usize, window: usize) -> Setup {
        Setup { lanes, window, in_process: false, peer_cache: false, more: Vec::new() }
    }
}

/// How often something is measured, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Rounds at most.
    pub(crate) rounds: usize,
    /// Seconds after which no further round begins; at least one round runs.
    pub(crate) seconds: f64,
}

/// What the scenarios share.
pub(crate) struct Stage {
    pub(crate) options: ServeOptions,
    /// Logs and made models lie here; removed at the end.
    pub(crate) work: PathBuf,
    pub(crate) bar: ProgressBar,
    /// What befell a peer; ends in the notes of the scenario.
    troubles: RefCell<Vec<String>>,
    superfluid: PathBuf,
    peer: Option<PathBuf>,
}

impl Stage {
    /// Finds the programs; builds the peer when it is missing and wanted.
    pub(crate) fn set(options: ServeOptions) -> Result<Stage, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::io("find our own folder"))?;
        let folder = options.bin_dir.clone().unwrap_or_else(|| own.with_file_name(""));
        let superfluid = folder.join("superfluid");
        if !superfluid.is_file() {
            let how = "not built: run cargo build --release -p superfluid -p superfluid-workerd".to_owned();
            return Err(BenchError::Command { command: superfluid.display().to_string(), how });
        }
        let peer = match options.no_peer {
            true => None,
            false => Some(peer::server_binary(options.peer.as_deref())?),
        };
        let work = std::env::temp_dir().join(format!("superfluid-bench-{}", std::process::id()));
        std::fs::create_dir_all(&work).map_err(BenchError::io(format!("create {}", work.display())))?;
        Ok(Stage {
            options,
            work,
            bar: ProgressBar::new_spinner(),
            troubles: RefCell::default(),
            superfluid,
            peer,
        })
    }

    /// Starts ours on the model.
    pub(crate) fn ours(&self, setup: &Setup) -> Result<Server, BenchError> {
        self.ours_on(self.options.bundle.as_ref().unwrap_or(&self.options.model), setup)
    }

    /// Starts ours on another model.
    pub(crate) fn ours_on(&self, model: &Path, setup: &Setup) -> Result<Server, BenchError> {
        let name = if setup.in_process { "superfluid in-process" } else { "superfluid" };
        let args = |port: u16| {
            let mut args = vec!["serve".to_owned(), model.display().to_string()];
            args.push(format!("--port={port}"));
            args.push(format!("--max-context={}", setup.window));
            args.push(format!("--max-batch={}", setup.lanes));
            args.push(format!("--threads={}", self.options.threads));
            if setup.in_process {
                args.push("--no-worker-process".to_owned());
            }
            args.extend(setup.more.iter().cloned());
            args
        };
        Server::start(name, &self.superfluid, args, "/ready", &self.work)
    }

    /// Starts the peer in its best setting; `None` when it is not wanted.
    pub(crate) fn peer(&self, setup: &Setup) -> Result<Option<Server>, BenchError> {
        let Some(program) = &self.peer else { return Ok(None) };
        let args = |port: u16| {
            let pairs = [
                ("-m", self.options.model.display().to_string()),
                ("--port", port.to_string()),
                ("-t", self.options.threads.to_string()),
                ("-np", setup.lanes.to_string()),
                ("-c", (setup.window * setup.lanes).to_string()),
            ];
            let mut args: Vec<String> =
                pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
            // Partly filled split KV slots cost it about 30 %.
            args.extend(["-kvu", "--metrics", "--no-webui"].map(str::to_owned));
            if !setup.peer_cache {
                args.extend(["--cache-ram", "0"].map(str::to_owned));
            }
            args
        };
        Server::start("llama-server", program, args, "/health", &self.work).map(Some)
    }

    /// Both on the same setup.
    pub(crate) fn both(&self, setup: &Setup) -> Result<Vec<Server>, BenchError> {
        Ok([Some(self.ours(setup)?), self.peer(setup)?].into_iter().flatten().collect())
    }

    /// llama.cpp's own batched bench, beside the peer.
    pub(crate) fn batched_bench(&self) -> Option<PathBuf> {
        self.peer.as_ref().map(|peer| peer.with_file_name(peer::BATCHED))
    }

    /// A full-size figure, or the small one of a smoke run.
    pub(crate) fn size(&self, full: usize, quick: usize) -> usize {
        if self.options.quick { quick } else { full }
    }

    /// A pace of at most so many rounds and seconds.
    pub(crate) fn pace(&self, rounds_max: usize, seconds: f64) -> Pace {
        match (self.options.quick, self.options.all_rounds) {
            (true, _) => Pace { rounds: 1, seconds },
            (false, true) => Pace { rounds: self.options.rounds, seconds: f64::INFINITY },
            (false, false) => Pace { rounds: self.options.rounds.min(rounds_max), seconds },
        }
    }

    /// One short answer from every server, so that none meets its first request in a measured round.
    pub(crate) fn warm(&self, servers: &[Server]) -> Result<(), BenchError> {
        for server in servers {
            self.bar.set_message(format!("warming {} up", server.name));
            let ask = |seed| Ask::completion(&prompts::story(seed), 16, Drawing::Greedy);
            client::all_complete(server, &[ask(90_001), ask(90_002)])?;
        }
        Ok(())
    }

    /// Measures every side once a round, in the order A B, B A, A B, ..., so that none always runs on the warmer machine.
    /// Results by side, then by round. The first side is ours and its failure ends the scenario; another that fails is
    /// left out, without its results, and noted.
    pub(crate) fn interleave<T>(
        &self,
        sides: usize,
        pace: Pace,
        mut measure: impl FnMut(usize, usize) -> Result<T, BenchError>,
    ) -> Result<Vec<Vec<T>>, BenchError> {
        let mut results: Vec<Vec<T>> = (0..sides).map(|_| Vec::new()).collect();
        let mut out = vec![false; sides];
        let begun = Instant::now();
        for round in 0..pace.rounds {
            let spent = begun.elapsed().as_secs_f64();
            // A round takes about as long as those before it.
            if round > 0 && spent + spent / round as f64 > pace.seconds {
                break;
            }
            self.bar.set_message(format!("round {} of {}", round + 1, pace.rounds));
            for side in order(round, sides) {
                if out[side] {
                    continue;
                }
                match measure(round, side) {
                    Ok(result) => results[side].push(result),
                    Err(error) if side > 0 => {
                        self.troubles.borrow_mut().push(format!("left out: {error}"));
                        results[side].clear();
                        out[side] = true;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(results)
    }

    /// Takes the remarks about peers that were left out.
    pub(crate) fn take_troubles(&self) -> Vec<String> {
        self.troubles.take()
    }

    /// Whether the model was trained to chat, by its name: servers give base models a template of their own, and not the
    /// same one.
    pub(crate) fn chats(&self) -> bool {
        is_chat_model(&self.options.model)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's folder for such things.
        drop(std::fs::remove_dir_all(&self.work));
    }
}

fn is_chat_model(model: &Path) -> bool {
    let name = model.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    name.split(['-', '_', '.']).any(|part| matches!(part, "instruct" | "it" | "chat"))
}

/// Forwards in even rounds, backwards in odd ones.
pub(crate) fn order(round: usize, sides: usize) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..sides).collect() } else { (0..sides).rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_models_are_told_by_name() {
        let check = |name: &str, expect| assert_eq!(is_chat_model(Path::new(name)), expect, "{name}");
        check("m/SmolLM2-135M-Instruct.Q4_1.gguf", true);
        check("gemma-3-1b-it-Q4_K_M.gguf", true);
        check("gemma-3-270m-Q4_K_M.gguf", false);
    }

    #[test]
    fn the_order_alternates() {
        assert_eq!([order(0, 2), order(1, 2), order(2, 2)].concat(), [0, 1, 1, 0, 0, 1]);
        assert_eq!([order(0, 3), order(1, 3)].concat(), [0, 1, 2, 2, 1, 0]);
    }
}
