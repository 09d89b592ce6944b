//! The server's side of a worker: spawn, open, step, and the words for its end.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sf_abi::{SFR_E_CAPACITY, SFR_SCOPE_CALL};
use sf_core::{EmbedBatch, StepOut, StepPlan};
use sf_kit::Rooms;

use super::bell::{self, Waiter, Wake, Wanted};
use super::child::{self, Child};
use super::shm::Shm;
use super::words::{Level, Words};
use super::{WorkerExe, WorkerLimits};
use crate::control::Control;
use crate::error::EngineError;
use crate::link::{EngineStats, Link, OpenSpec, Opened};
use crate::open::parse_description;
use crate::wire::embed::pieces;
use crate::wire::frame::{self, FromWorker, ToWorker, WireOpen};
use crate::wire::message;

/// A process whose socket has ended is about to exit; this is how long it may take.
const EXIT_MAX: Duration = Duration::from_secs(2);

/// Opens a model in a worker of its own, with the limits of [`sf_core::limits`].
///
/// # Errors
/// Any [`EngineError`]: the worker could not be started, could not load the library, refused the model, died or hung.
pub fn open_worker(exe: &WorkerExe, spec: &OpenSpec) -> Result<Box<dyn Link>, EngineError> {
    open_worker_with(exe, spec, WorkerLimits::default())
}

/// As [`open_worker`], with limits of the caller's.
///
/// # Errors
/// As [`open_worker`].
pub fn open_worker_with(
    exe: &WorkerExe,
    spec: &OpenSpec,
    limits: WorkerLimits,
) -> Result<Box<dyn Link>, EngineError> {
    let mut link = WorkerLink::spawn(exe, spec, limits)?;
    link.open(spec)?;
    Ok(Box::new(link))
}

/// The tick that runs.
#[derive(Clone, Copy, Debug)]
struct Tick {
    /// Its plan's number.
    seq: u64,
    /// The step that is to be told next.
    step: u32,
    /// Steps that it has at most.
    steps_max: u32,
}

impl Tick {
    /// What is left of it after an answer; `None` = nothing. Refuses an answer that is not the one that is due.
    fn after(self, out: &StepOut) -> Result<Option<Tick>, String> {
        let Tick { seq, step, steps_max } = self;
        if (out.seq, out.step) != (seq, step) {
            return Err(format!(
                "step {} of plan {} came where step {step} of plan {seq} was due",
                out.step, out.seq
            ));
        }
        match (out.last, Tick { step: step + 1, ..self }) {
            (true, _) => Ok(None),
            (false, rest) if rest.step < steps_max => Ok(Some(rest)),
            (false, _) => Err(format!("plan {seq} goes on after its {steps_max} steps")),
        }
    }
}

/// A worker and our end of everything shared with it.
struct WorkerLink {
    // First: the process must be gone before the memory is.
    child: Child,
    socket: UnixStream,
    shm: Arc<Shm>,
    words: Arc<Words>,
    opened: Opened,
    limits: WorkerLimits,
    /// Number of the request sent last.
    request: u32,
    /// Number of the answer taken last.
    answer: u32,
    /// Where the next answer to the request stands.
    answer_at: usize,
    tick: Option<Tick>,
    waiter: Waiter,
    bytes: Vec<u8>,
    rooms: Rooms,
    /// What ended the link.
    end: Option<EngineError>,
}

impl WorkerLink {
    fn spawn(exe: &WorkerExe, spec: &OpenSpec, limits: WorkerLimits) -> Result<Self, EngineError> {
        crate::loader::check_env(&spec.env).map_err(|reason| {
            let library = spec.library.display().to_string();
            EngineError::Load { library, reason }
        })?;
        let (shm, memory) = Shm::create()?;
        let shm = Arc::new(shm);
        let (socket, theirs) =
            UnixStream::pair().map_err(|error| EngineError::system("make a socket pair", error))?;
        let args = ["--serve", "--control-fd", "0", "--shm-fd", "1"].map(OsStr::new);
        let mut command = child::command(&exe.0, &args, &spec.env);
        command.stdin(OwnedFd::from(theirs)).stdout(memory).stderr(Stdio::piped());
        let bell = Arc::clone(&shm);
        let child = Child::spawn(&mut command, move || bell.answer().bell.close())?;
        // The command holds the worker's ends; an end of ours would hide the worker's death from the socket.
        drop(command);
        let words = Arc::new(Words::default());
        if let (_, Some(pipe)) = child.take_pipes() {
            read_words(pipe, &words, &spec.library, child.id())?;
        }
        Ok(WorkerLink {
            child,
            socket,
            shm,
            words,
            opened: Opened::default(),
            limits,
            request: 0,
            answer: 0,
            answer_at: 0,
            tick: None,
            waiter: Waiter::new(),
            bytes: Vec::new(),
            rooms: Rooms::default(),
            end: None,
        })
    }

    fn open(&mut self, spec: &OpenSpec) -> Result<(), EngineError> {
        let sent = self
            .socket
            .set_write_timeout(Some(self.limits.hello))
            .and_then(|()| frame::send(&mut &self.socket, &ToWorker::Open(WireOpen::from(spec))));
        if let Err(error) = sent {
            return Err(self.socket_end("load", self.limits.hello, &error));
        }
        match self.frame("load", self.limits.hello)? {
            FromWorker::Hello { pid } if pid == self.child.id() => {}
            FromWorker::Failed(fault) => return Err(fault.into()),
            other => return Err(self.foreign("load", format!("it sent {other:?} instead of a hello"))),
        }
        match self.frame("open", self.limits.open)? {
            FromWorker::Opened { description, interfaces, fork, stash } => {
                let description = parse_description(&description)?;
                self.opened = Opened { description, interfaces, fork, stash };
                Ok(())
            }
            FromWorker::Failed(fault) => Err(fault.into()),
            FromWorker::Hello { .. } => Err(self.foreign("open", "it said hello twice".to_owned())),
        }
    }

    fn frame(&mut self, call: &'static str, limit: Duration) -> Result<FromWorker, EngineError> {
        let mut timed = Timed { socket: &self.socket, deadline: Instant::now() + limit };
        match frame::receive(&mut timed) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.died()),
            Err(error) => Err(self.socket_end(call, limit, &error)),
        }
    }

    /// The error for a socket that failed: late, ended, or spoken to in another protocol.
    fn socket_end(&mut self, call: &'static str, limit: Duration, error: &io::Error) -> EngineError {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => self.hung(call, limit),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                self.died()
            }
            _ => self.foreign(call, error.to_string()),
        }
    }

    fn hung(&mut self, call: &'static str, limit: Duration) -> EngineError {
        self.child.kill();
        self.ended(EngineError::Hung { call, limit_ms: limit.as_millis().try_into().unwrap_or(u64::MAX) })
    }

    fn foreign(&mut self, call: &'static str, reason: String) -> EngineError {
        self.child.kill();
        self.ended(EngineError::Contract { call, reason })
    }

    fn died(&mut self) -> EngineError {
        let how = match self.child.wait(EXIT_MAX) {
            Some(exit) => exit.how,
            None => {
                self.child.kill();
                "it closed its socket and went on running, so it was killed".to_owned()
            }
        };
        let last_words = self.words.last();
        self.ended(EngineError::Died { how, last_words })
    }

    fn ended(&mut self, error: EngineError) -> EngineError {
        self.tick = None;
        self.end.insert(error).clone()
    }

    /// Refuses once the link has ended, and while a tick is running.
    fn ready(&mut self, call: &'static str) -> Result<(), EngineError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        if self.child.is_gone() {
            return Err(self.died());
        }
        match self.tick {
            None => Ok(()),
            Some(_) => Err(EngineError::misuse(call, "a tick is running")),
        }
    }

    /// Sends the record in `bytes`.
    fn send(&mut self, call: &'static str) -> Result<(), EngineError> {
        let area = self.shm.request();
        area.write(0, &self.bytes).map_err(|error| EngineError::Refused {
            call,
            code: SFR_E_CAPACITY,
            scope: SFR_SCOPE_CALL,
            message: error.to_string(),
            field: String::new(),
        })?;
        self.request = bell::next(self.request);
        self.answer_at = 0;
        area.bell.ring(self.request);
        Ok(())
    }

    /// Waits for the next answer to the request sent last and copies it into `bytes`. At most `most` are to come.
    fn receive(&mut self, call: &'static str, most: u32) -> Result<(), EngineError> {
        let deadline = Some(Instant::now() + self.limits.step);
        let area = self.shm.answer();
        match self.waiter.wait(area.bell, Wanted { after: self.answer, most, deadline }) {
            Wake::Rung => {
                self.answer = bell::next(self.answer);
                match area.read(self.answer_at, &mut self.bytes) {
                    Ok(next) => self.answer_at = next,
                    Err(error) => return Err(self.foreign(call, error.to_string())),
                }
                Ok(())
            }
            Wake::Closed => Err(self.died()),
            Wake::Late => Err(self.hung(call, self.limits.step)),
            Wake::Foreign(seq) => {
                let reason =
                    format!("answer {seq:#x} came after {:#x}, at most {most} were due", self.answer);
                Err(self.foreign(call, reason))
            }
        }
    }

    fn answered<T>(
        &mut self,
        call: &'static str,
        answer: Result<Result<T, EngineError>, crate::wire::WireError>,
    ) -> Result<T, EngineError> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if error.is_fatal() => Err(self.ended(error)),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.foreign(call, error.to_string())),
        }
    }
}

impl Link for WorkerLink {
    fn opened(&self) -> &Opened {
        &self.opened
    }

    fn begin(&mut self, plan: &StepPlan) -> Result<(), EngineError> {
        self.ready("begin")?;
        message::put_step(&mut self.bytes, plan, self.shm.control().yield_seq());
        self.send("begin")?;
        self.tick = Some(Tick { seq: plan.seq, step: 0, steps_max: plan.steps_max.max(1) });
        Ok(())
    }

    fn next(&mut self, out: &mut StepOut) -> Result<(), EngineError> {
        let Some(tick) = self.tick.take() else {
            return Err(self
                .end
                .clone()
                .unwrap_or_else(|| EngineError::misuse("next", "no tick is running")));
        };
        self.receive("step", tick.steps_max - tick.step)?;
        let answer = message::take_step_answer(&self.bytes, out, &mut self.rooms);
        self.answered("step", answer)?;
        self.tick = tick.after(out).map_err(|reason| self.foreign("step", reason))?;
        Ok(())
    }

    fn embed(&mut self, batch: &EmbedBatch, out: &mut Vec<f32>) -> Result<(), EngineError> {
        self.ready("embed")?;
        out.clear();
        let dims = self.opened.description.embedding.as_ref().map_or(0, |facts| facts.dims as usize);
        let mut part = EmbedBatch::default();
        for (texts, tokens) in pieces(batch, dims, self.shm.answer().room(0)) {
            part.clear();
            part.lengths.extend_from_slice(&batch.lengths[texts.clone()]);
            part.tokens.extend_from_slice(&batch.tokens[tokens]);
            message::put_embed(&mut self.bytes, &part);
            self.send("embed")?;
            self.receive("embed", 1)?;
            let answer = message::take_embed_answer(&self.bytes, out);
            self.answered("embed", answer)?;
            if out.len() != texts.end * dims {
                let reason = format!("{} numbers came for {} vectors of {dims}", out.len(), texts.end);
                return Err(self.foreign("embed", reason));
            }
        }
        Ok(())
    }

    fn set_step_limit(&mut self, limit: Duration) {
        self.limits.step = limit;
    }

    fn stats(&mut self) -> Result<EngineStats, EngineError> {
        self.ready("stats")?;
        message::put_stats(&mut self.bytes);
        self.send("stats")?;
        self.receive("stats", 1)?;
        let answer = message::take_stats_answer(&self.bytes);
        self.answered("stats", answer)
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn control(&self) -> Option<Control> {
        Some(Control::shared(Arc::clone(&self.shm)))
    }
}

impl Drop for WorkerLink {
    /// Lets an idle worker close its model; whatever is left is killed with `child`.
    fn drop(&mut self) {
        if self.end.is_none() && self.tick.is_none() && !self.child.is_gone() {
            message::put_bye(&mut self.bytes);
            if self.send("close").is_ok() {
                let _ = self.child.wait(self.limits.close);
            }
        }
    }
}

/// Reads from the socket until a moment, not for a time per read.
struct Timed<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl io::Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        (&mut &*self.socket).read(into)
    }
}

/// Sends the worker's standard error into the log under its runtime's name.
fn read_words(pipe: OwnedFd, words: &Arc<Words>, library: &Path, pid: u32) -> Result<(), EngineError> {
    let words = Arc::clone(words);
    let runtime =
        library.file_stem().unwrap_or_default().to_string_lossy().trim_start_matches("lib").to_owned();
    child::spawn_thread("sf-words", move || {
        words.read(std::fs::File::from(pipe), |line| match Level::split(line) {
            (Some(Level::Error), text) => tracing::error!(%runtime, pid, "{text}"),
            (Some(Level::Warn), text) => tracing::warn!(%runtime, pid, "{text}"),
            (Some(Level::Info) | None, text) => tracing::info!(%runtime, pid, "{text}"),
            (Some(Level::Debug), text) => tracing::debug!(%runtime, pid, "{text}"),
            (Some(Level::Trace), text) => tracing::trace!(%runtime, pid, "{text}"),
        });
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_that_is_due_is_taken() {
        let tick = |step| Tick { seq: 7, step, steps_max: 3 };
        let check = |at: Tick, (seq, step, last): (u64, u32, bool), expect: Result<Option<u32>, &str>| {
            let answer = at.after(&StepOut { seq, step, last, ..StepOut::default() });
            let told = answer.as_ref().map(|rest| rest.map(|rest| rest.step)).map_err(String::as_str);
            assert_eq!(told, expect);
        };
        check(tick(0), (7, 0, false), Ok(Some(1)));
        check(tick(0), (7, 0, true), Ok(None));
        check(tick(1), (7, 1, false), Ok(Some(2)));
        check(tick(2), (7, 2, true), Ok(None));
        check(tick(2), (7, 2, false), Err("plan 7 goes on after its 3 steps"));
        check(tick(1), (7, 0, false), Err("step 0 of plan 7 came where step 1 of plan 7 was due"));
        check(tick(1), (6, 1, false), Err("step 1 of plan 6 came where step 1 of plan 7 was due"));
    }
}
