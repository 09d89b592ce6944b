//! The worker's side: one runtime, served from the thread that opened it until the server goes away.
//!
//! The main thread makes every call into the runtime. A second thread waits for the end of the socket, which is the
//! server's death, and ends the process at once, whatever the runtime is doing.
#![expect(unsafe_code, reason = "takes over inherited descriptors and ends the process without destructors")]

use std::ffi::{OsStr, OsString, c_int};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use sf_core::{EmbedBatch, StepOut, StepPlan};
use sf_kit::Executor;

use super::bell::{self, Waiter, Wake, Wanted};
use super::child;
use super::shm::Shm;
use super::words::Level;
use crate::error::EngineError;
use crate::link::{EngineStats, OpenSpec};
use crate::wire::frame::{self, FromWorker, ToWorker};
use crate::wire::message::{self, Request};
use crate::{loader, open};

/// The server is gone, or said goodbye.
const EXIT_DONE: i32 = 0;
/// The arguments make no sense.
const EXIT_USAGE: i32 = 2;
/// What was asked for was refused in words: on the socket, or as the last line of standard error.
pub(super) const EXIT_REFUSED: i32 = 4;
/// A panic: our bug.
const EXIT_PANIC: i32 = 101;

const USAGE: &str = "usage: superfluid-workerd --serve --control-fd N --shm-fd M
       superfluid-workerd --probe LIBRARY --depth D --budget-ms B";

/// Runs the worker with the program's arguments, its name left out. Returns only for arguments that make no sense, with
/// the exit code for them; else the process ends in here, without running static destructors of a runtime.
pub fn worker_main(args: &[OsString]) -> i32 {
    let args: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let run: Box<dyn FnOnce() -> Result<(), EngineError> + '_> = match args.as_slice() {
        [serve, control, c, shm, s]
            if *serve == "--serve" && *control == "--control-fd" && *shm == "--shm-fd" =>
        {
            let (Some(control), Some(shm)) = (number(c), number(s)) else { return usage() };
            Box::new(move || serve_fds(control, shm))
        }
        [probe, library, depth, d, budget, b]
            if *probe == "--probe" && *depth == "--depth" && *budget == "--budget-ms" =>
        {
            let (Some(depth), Some(ms)) = (number(d), number(b)) else { return usage() };
            let library = Path::new(library);
            Box::new(move || probe_once(library, depth, Duration::from_millis(ms)))
        }
        _ => return usage(),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => exit(EXIT_DONE),
        Ok(Err(error)) => {
            say(Level::Error, "superfluid-workerd", &error.to_string());
            exit(EXIT_REFUSED)
        }
        Err(_) => exit(EXIT_PANIC),
    }
}

fn number<T: std::str::FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

fn usage() -> i32 {
    let _ = writeln!(std::io::stderr(), "{USAGE}");
    EXIT_USAGE
}

/// One line to the server's log.
fn say(level: Level, target: &str, message: &str) {
    for line in message.lines() {
        // One write per line, so that lines of several threads do not mix; a closed pipe is nobody's fault.
        let _ = std::io::stderr().write_all(format!("{}{target}: {line}\n", level.mark()).as_bytes());
    }
}

/// Ends the process now: no `atexit` handlers, no static destructors, which is where GPU drivers like to crash.
fn exit(code: i32) -> ! {
    unsafe extern "C" {
        safe fn _exit(status: c_int) -> !;
    }
    _exit(code)
}

/// Takes a descriptor that the parent put at `fd`: it becomes close-on-exec, and a standard stream becomes harmless
/// (nothing to read, output to the log) before a runtime can touch it.
fn take_fd(fd: RawFd) -> Result<OwnedFd, EngineError> {
    let system = |what| move |error: rustix::io::Errno| EngineError::system(what, error);
    if fd < 0 {
        return Err(EngineError::System { what: "take a descriptor", reason: format!("{fd} is none") });
    }
    // SAFETY: the parent put an open descriptor here; one that is not open makes the call below fail.
    let at = unsafe { BorrowedFd::borrow_raw(fd) };
    let mine = rustix::io::fcntl_dupfd_cloexec(at, 3).map_err(system("take a descriptor"))?;
    match fd {
        0 => {
            let null =
                File::open("/dev/null").map_err(|error| EngineError::system("open /dev/null", error))?;
            rustix::stdio::dup2_stdin(&null).map_err(system("replace standard input"))?;
        }
        1 => {
            let stderr = rustix::stdio::stderr();
            rustix::stdio::dup2_stdout(stderr).map_err(system("replace standard output"))?;
        }
        // SAFETY: the parent gave it to us and nothing of ours owns it.
        _ => drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }),
    }
    Ok(mine)
}

fn log_to_stderr(level: i32) {
    sf_kit::host::set_log_level(level);
    sf_kit::host::set_log(Box::new(|level, target, message| {
        let level = match level {
            sf_abi::SFR_LOG_ERROR => Level::Error,
            sf_abi::SFR_LOG_WARN => Level::Warn,
            sf_abi::SFR_LOG_INFO => Level::Info,
            sf_abi::SFR_LOG_DEBUG => Level::Debug,
            _ => Level::Trace,
        };
        say(level, target, message);
    }));
}

// ---------------------------------------------------------------- serve

fn serve_fds(control: RawFd, shm: RawFd) -> Result<(), EngineError> {
    let socket = UnixStream::from(take_fd(control)?);
    let shm = Shm::open(take_fd(shm)?)?;
    // Should memory run out, this process and not the server is the one to go.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let Some(ToWorker::Open(spec)) = receive(&socket)? else { return Ok(()) };
    log_to_stderr(spec.log_level);
    watch(&socket)?;
    // The runtime may look at the control page for as long as the process lives.
    let shm: &'static Shm = Box::leak(Box::new(shm));
    match open_engine(&socket, &spec.into(), shm) {
        Ok(executor) => Server::new(executor, shm).serve(),
        // The server has the words then; the process has done its work.
        Err(error) => send(&socket, &FromWorker::Failed((&error).into())),
    }
}

fn receive(mut socket: &UnixStream) -> Result<Option<ToWorker>, EngineError> {
    frame::receive(&mut socket).map_err(|error| EngineError::system("read from the server", error))
}

fn send(mut socket: &UnixStream, frame: &FromWorker) -> Result<(), EngineError> {
    frame::send(&mut socket, frame).map_err(|error| EngineError::system("write to the server", error))
}

/// Ends the process when the server's end of the socket is gone.
fn watch(socket: &UnixStream) -> Result<(), EngineError> {
    let mut socket = socket.try_clone().map_err(|error| EngineError::system("watch the server", error))?;
    child::spawn_thread("sf-watch", move || {
        // After the open request nothing more comes here: any end of this read is the end.
        let _ = socket.read(&mut [0]);
        exit(EXIT_DONE);
    })?;
    Ok(())
}

fn open_engine(socket: &UnixStream, spec: &OpenSpec, shm: &'static Shm) -> Result<Executor, EngineError> {
    let runtime = loader::load(&spec.library, None)?;
    send(socket, &FromWorker::Hello { pid: std::process::id() })?;
    let mut model = open::open_model(&runtime, spec)?;
    model.set_control(shm.control());
    let opened = FromWorker::Opened {
        description: model.describe_json()?,
        interfaces: model.interfaces(),
        fork: model.can_fork(),
        stash: model.can_export(),
    };
    let executor = open::executor(model, spec);
    send(socket, &opened)?;
    Ok(executor)
}

/// Answers requests until the goodbye.
struct Server<'a> {
    executor: Executor,
    shm: &'a Shm,
    waiter: Waiter,
    /// Number of the answer given last.
    answer: u32,
    /// Where the next answer to the request goes.
    answer_at: usize,
    bytes: Vec<u8>,
    plan: StepPlan,
    out: StepOut,
    batch: EmbedBatch,
    vectors: Vec<f32>,
}

impl<'a> Server<'a> {
    fn new(executor: Executor, shm: &'a Shm) -> Self {
        Server {
            executor,
            shm,
            waiter: Waiter::new(),
            answer: 0,
            answer_at: 0,
            bytes: Vec::new(),
            plan: StepPlan::default(),
            out: StepOut::default(),
            batch: EmbedBatch::default(),
            vectors: Vec::new(),
        }
    }

    fn serve(mut self) -> Result<(), EngineError> {
        let mut taken = 0;
        loop {
            let wanted = Wanted { after: taken, most: 1, deadline: None };
            match self.waiter.wait(self.shm.request().bell, wanted) {
                Wake::Rung => taken = bell::next(taken),
                other => {
                    let reason = format!("the server's bell: {other:?} after {taken:#x}");
                    return Err(EngineError::System { what: "serve", reason });
                }
            }
            match self.take()? {
                Request::Step { word } => self.tick(word)?,
                Request::Embed => {
                    let answer =
                        self.executor.embed(&self.batch, &mut self.vectors).map_err(EngineError::from);
                    message::put_embed_answer(&mut self.bytes, answer.as_ref().map(|_| &*self.vectors));
                    self.ring()?;
                }
                Request::Stats => {
                    let answer: Result<EngineStats, EngineError> = open::stats(&self.executor);
                    message::put_stats_answer(&mut self.bytes, answer.as_ref());
                    self.ring()?;
                }
                // Dropping the executor closes the model.
                Request::Bye => return Ok(()),
            }
        }
    }

    /// The request that was rung for; its plan, if it has one, is in `plan`.
    fn take(&mut self) -> Result<Request, EngineError> {
        let wire = |error| EngineError::system("read a request", error);
        self.answer_at = 0;
        self.shm.request().read(0, &mut self.bytes).map_err(wire)?;
        message::take_request(&self.bytes, &mut self.plan, &mut self.batch).map_err(wire)
    }

    /// Runs the plan and answers with one record per step. An error is the last record.
    fn tick(&mut self, word: u32) -> Result<(), EngineError> {
        let mut step = match self.executor.begin(&self.plan, word) {
            Ok(()) => self.executor.next(&mut self.out),
            Err(error) => Err(error),
        };
        loop {
            let answer = step.map_err(EngineError::from);
            let mut is_last = answer.is_err() || self.out.last;
            message::put_step_answer(&mut self.bytes, answer.as_ref().map(|()| &self.out));
            if !is_last && !self.has_room() {
                self.executor.cut();
                self.out.last = true;
                is_last = true;
                message::put_step_answer(&mut self.bytes, Ok(&self.out));
            }
            self.ring()?;
            if is_last {
                return Ok(());
            }
            step = self.executor.next(&mut self.out);
        }
    }

    /// Whether the largest answer to a further step would fit behind the one in `bytes`.
    fn has_room(&self) -> bool {
        let left = self.shm.answer().room(self.answer_at).saturating_sub(self.bytes.len());
        // Fewer lanes go on than were fed; 64 bytes cover the heads.
        left >= message::step_answer_bytes_max(self.plan.feeds.len()) + 64
    }

    /// Gives the answer in `bytes` to the server.
    fn ring(&mut self) -> Result<(), EngineError> {
        let area = self.shm.answer();
        let written = area.write(self.answer_at, &self.bytes).or_else(|error| {
            let error = EngineError::Contract { call: "step", reason: error.to_string() };
            message::put_step_answer(&mut self.bytes, Err(&error));
            area.write(self.answer_at, &self.bytes)
        });
        self.answer_at = written.map_err(|error| EngineError::system("write an answer", error))?;
        self.answer = bell::next(self.answer);
        area.bell.ring(self.answer);
        Ok(())
    }
}

// ---------------------------------------------------------------- probe

/// Prints the probe's answer on what was standard output when we began; the runtime's own prints go to standard error.
fn probe_once(library: &Path, depth: u32, budget: Duration) -> Result<(), EngineError> {
    let mut answer = File::from(take_fd(1)?);
    // A crash is one of the answers here and leaves no core file.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    log_to_stderr(sf_abi::SFR_LOG_WARN);
    let runtime = loader::load(library, None)?;
    let json = runtime.probe(depth, budget)?;
    answer.write_all(json.as_bytes()).map_err(|error| EngineError::system("write the answer", error))
}

#[cfg(test)]
mod tests {
    use sf_core::{Feed, LaneId, LaneOp, LaneSpec, SamplerSpec, Token};
    use sf_counting::allocations;
    use sf_kit::{OpenRequest, Rooms, Runtime, noop};

    use super::*;

    /// Gives the server a plan and returns the last of its answers, and how many there were.
    fn ask(server: &mut Server<'_>, plan: &StepPlan, bytes: &mut Vec<u8>) -> (StepOut, u32) {
        message::put_step(bytes, plan, 0);
        server.shm.request().write(0, bytes).unwrap();
        let before = allocations();
        assert_eq!(server.take().unwrap(), Request::Step { word: 0 });
        server.tick(0).unwrap();
        let made = allocations() - before;
        assert!(made == 0 || plan.seq < 8, "{made} allocations in plan {}", plan.seq);
        let (mut at, mut count, mut out) = (0, 0, StepOut::default());
        while !out.last {
            at = server.shm.answer().read(at, bytes).unwrap();
            message::take_step_answer(bytes, &mut out, &mut Rooms::default()).unwrap().unwrap();
            count += 1;
        }
        assert_eq!((at, server.answer), (server.answer_at, server.answer));
        (out, count)
    }

    #[test]
    fn the_worker_allocates_nothing_per_token() {
        // SAFETY: the no-op runtime keeps the header's rules.
        let runtime = unsafe { Runtime::bind(noop::entry, sf_kit::host::host()) }.unwrap();
        let model =
            runtime.open(&OpenRequest { models: vec!["/none".into()], ..OpenRequest::default() }).unwrap();
        let (shm, _memory) = Shm::create().unwrap();
        let mut server = Server::new(Executor::new(model), &shm);
        let (mut plan, mut bytes) = (StepPlan::default(), Vec::new());
        for lane in 0..3 {
            let sampler =
                SamplerSpec { temperature: 0.8, logprobs: Some(2 * lane), ..SamplerSpec::default() };
            let spec = LaneSpec { sampler, ..LaneSpec::default() };
            plan.ops.push(LaneOp::Open { lane: LaneId(lane), spec });
            let tokens = lane..lane + 1;
            plan.feeds.push(Feed { lane: LaneId(lane), tokens, pos0: 0, sample: true, more: 0 });
            plan.tokens.push(Token(lane));
        }
        for seq in 0..16 {
            let depth = if seq % 2 == 0 { 1 } else { 32 };
            (plan.seq, plan.steps_max) = (seq, depth);
            plan.feeds.iter_mut().for_each(|feed| feed.more = depth - 1);
            let (out, count) = ask(&mut server, &plan, &mut bytes);
            assert_eq!((out.seq, count), (seq, depth));
            plan.ops.clear();
            for (feed, told) in plan.feeds.iter_mut().zip(&out.lanes) {
                let Ok(Some(sampled)) = &told.result else { panic!("{told:?}") };
                plan.tokens[feed.tokens.start as usize] = sampled.token;
                feed.pos0 += depth;
            }
        }
        assert!(allocations() > 0, "the allocator counts");
    }
}
