//! Sends the requests of a source at their times and gathers what comes back: one thread, one event loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{ClockId, clock_gettime};

use crate::conn::{After, Conn, Job};
use crate::error::{Failure, LoadError};
use crate::meter::{Marks, Meter};
use crate::options::{Connections, Live, RunOptions, Watch};
use crate::record::{Outcome, Record, Run};
use crate::shot::{Leave, Shot, Source, Timed};
use crate::target::{Request, Target};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Readiness events taken at once.
const EVENTS_MAX: usize = 1024;
/// Between two looks of the watcher.
const TICK: Duration = Duration::from_millis(100);
/// The poll's clock counts in milliseconds: a start that is late by no more counts as being in time.
const COARSENESS: Duration = Duration::from_millis(2);

/// Sends what `source` asks for to `target` until nothing is left, and returns what was seen.
///
/// # Errors
/// Only when the machine cannot poll; what befalls a request is in its record.
pub fn run(
    target: &Target,
    source: &mut dyn Source,
    options: &RunOptions,
    watch: &mut dyn Watch,
) -> Result<Run, LoadError> {
    let cpu_before = thread_cpu();
    let mut engine = Engine {
        target,
        source,
        options: *options,
        poll: Poll::new().map_err(LoadError::io("watch connections"))?,
        conns: Vec::new(),
        free: Vec::new(),
        idle: Vec::new(),
        ahead: None,
        pending: BinaryHeap::new(),
        alarms: BinaryHeap::new(),
        records: Vec::new(),
        begun: Instant::now(),
        running: 0,
        serial: 0,
        events: 0,
        marks: Marks::new(),
        buffer: vec![0; READ_BYTES].into(),
        followers: Vec::new(),
    };
    let interrupted = engine.drive(watch)?;
    Ok(Run {
        wall: engine.begun.elapsed(),
        records: engine.records,
        client_cpu: thread_cpu().saturating_sub(cpu_before),
        interrupted,
    })
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A request that waits for its time. Ordered by time, then by arrival.
struct Pending {
    at: Duration,
    serial: u64,
    shot: Shot,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Pending {}
impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// When a request is looked at again if it has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alarm {
    at: Instant,
    slot: usize,
    serial: u64,
    leaves: bool,
}

struct Engine<'a> {
    target: &'a Target,
    source: &'a mut dyn Source,
    options: RunOptions,
    poll: Poll,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    idle: Vec<usize>,
    /// The source's next request by the clock.
    ahead: Option<Timed>,
    pending: BinaryHeap<Reverse<Pending>>,
    alarms: BinaryHeap<Reverse<Alarm>>,
    records: Vec<Record>,
    begun: Instant,
    running: usize,
    serial: u64,
    events: u64,
    marks: Marks,
    buffer: Box<[u8]>,
    followers: Vec<Timed>,
}

impl Engine<'_> {
    /// Runs to the end; returns whether somebody ended it early.
    fn drive(&mut self, watch: &mut dyn Watch) -> Result<bool, LoadError> {
        let mut ready = Events::with_capacity(EVENTS_MAX);
        let mut next_look = TICK;
        self.ahead = self.source.timed();
        loop {
            self.start_due();
            let now = self.begun.elapsed();
            if self.options.until.is_some_and(|until| now >= until) {
                self.cut_all();
                return Ok(false);
            }
            if self.running == 0 && self.next_start().is_none() {
                return Ok(false);
            }
            if now >= next_look {
                next_look = now + TICK;
                let Engine { running, records, events, .. } = &*self;
                let live = Live { elapsed: now, running: *running, records, events: *events };
                if !watch.look(&live) {
                    self.cut_all();
                    return Ok(true);
                }
            }
            let wait = self.wait(now, next_look);
            match self.poll.poll(&mut ready, Some(wait)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(LoadError::io("wait for the server")(error));
                }
                _ => {}
            }
            for event in &ready {
                let hung_up = event.is_read_closed() || event.is_error();
                self.ready(event.token().0, event.is_readable() || hung_up, hung_up);
            }
            self.ring_alarms();
        }
    }

    fn next_start(&self) -> Option<Duration> {
        let ahead = self.ahead.as_ref().map(|timed| timed.at);
        let pending = self.pending.peek().map(|Reverse(pending)| pending.at);
        ahead.into_iter().chain(pending).min()
    }

    /// How long nothing but the server can happen.
    fn wait(&self, now: Duration, next_look: Duration) -> Duration {
        let start = self.next_start().filter(|_| self.running < self.options.running_max);
        let alarm = self.alarms.peek().map(|Reverse(alarm)| alarm.at - self.begun);
        let until = [Some(next_look), start, alarm, self.options.until].into_iter().flatten().min();
        until.unwrap_or(next_look).saturating_sub(now)
    }

    fn start_due(&mut self) {
        while self.running < self.options.running_max {
            let now = self.begun.elapsed();
            if self.options.until.is_some_and(|until| now >= until) {
                return;
            }
            let Some(at) = self.next_start().filter(|at| *at <= now) else { return };
            let Some(shot) = self.take_start(at) else { return };
            let lag = now - at;
            let begun = self.begun + if lag <= COARSENESS { now } else { at };
            self.serial += 1;
            let meter = Meter::new(&shot, at, lag, begun);
            self.launch(Job { shot, meter, again: false, serial: self.serial });
        }
    }

    /// The request that is to start at `at`.
    fn take_start(&mut self, at: Duration) -> Option<Shot> {
        if self.ahead.as_ref().is_some_and(|timed| timed.at == at) {
            return std::mem::replace(&mut self.ahead, self.source.timed()).map(|timed| timed.shot);
        }
        self.pending.pop().map(|Reverse(pending)| pending.shot)
    }

    /// Puts a request on a connection. It counts as running from here.
    fn launch(&mut self, job: Job) {
        self.running += 1;
        let keeps = match self.options.connections {
            Connections::Auto => !job.shot.streamed,
            Connections::Fresh => false,
            Connections::Kept => true,
        };
        let kept = if keeps && !job.again { self.take_idle() } else { None };
        let slot = match kept.map_or_else(|| self.connect(), Ok) {
            Ok(slot) => slot,
            Err(kind) => {
                self.running -= 1;
                let failed = Outcome::Failed(Failure::Connect(kind));
                return self.ended(job.meter.abort(failed, None, Instant::now()));
            }
        };
        self.set_alarm(slot, &job);
        let target = self.target;
        let Some(conn) = &mut self.conns[slot] else { return };
        let Shot { path, headers, body, .. } = job.shot.clone();
        conn.begin(job, |out| {
            target.write_request(out, &Request { method: "POST", path, headers: &headers, body: &body });
        });
        let after = conn.write();
        self.settle(slot, after);
    }

    /// A kept connection that the server has not closed. Its end may have been told together with its last bytes, and
    /// readiness is told once: so it is asked again.
    fn take_idle(&mut self) -> Option<usize> {
        while let Some(slot) = self.idle.pop() {
            let conn = self.conns[slot].as_mut()?;
            if conn.read(&mut self.buffer, true, &self.marks, &mut self.events) == After::Waiting {
                return Some(slot);
            }
            self.drop_conn(slot);
        }
        None
    }

    fn connect(&mut self) -> Result<usize, std::io::ErrorKind> {
        let open = || {
            let mut stream = TcpStream::connect(self.target.address)?;
            let slot = self.free.last().copied().unwrap_or(self.conns.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(slot), both)?;
            // A request is written at once; nothing is gained by waiting for more.
            stream.set_nodelay(true)?;
            Ok((slot, stream))
        };
        let (slot, stream) = open().map_err(|error: std::io::Error| error.kind())?;
        if self.free.pop().is_none() {
            self.conns.push(None);
        }
        self.conns[slot] = Some(Conn::new(stream));
        Ok(slot)
    }

    fn set_alarm(&mut self, slot: usize, job: &Job) {
        let leave = match job.shot.leave {
            Some(Leave::After(after)) => Some((after, true)),
            _ => None,
        };
        let timeout = self.options.timeout.map(|timeout| (timeout, false));
        if let Some((after, leaves)) = leave.into_iter().chain(timeout).min() {
            let at = job.meter.begun() + after;
            self.alarms.push(Reverse(Alarm { at, slot, serial: job.serial, leaves }));
        }
    }

    fn ring_alarms(&mut self) {
        while let Some(Reverse(alarm)) = self.alarms.peek().copied() {
            if alarm.at > Instant::now() {
                return;
            }
            self.alarms.pop();
            let job = self.conns[alarm.slot].as_ref().and_then(|conn| conn.job.as_ref());
            if job.is_some_and(|job| job.serial == alarm.serial) {
                let after = if alarm.leaves { After::Leaves } else { After::Broken(Failure::Timeout) };
                self.settle(alarm.slot, after);
            }
        }
    }

    /// Something happened on a connection. Writes first: a connection that is just open has nothing to read.
    fn ready(&mut self, slot: usize, readable: bool, hung_up: bool) {
        let Some(conn) = self.conns.get_mut(slot).and_then(Option::as_mut) else { return };
        let mut after = conn.write();
        if after == After::Waiting && readable {
            after = conn.read(&mut self.buffer, hung_up, &self.marks, &mut self.events);
        }
        self.settle(slot, after);
    }

    /// Acts on what a read or write left behind.
    fn settle(&mut self, slot: usize, after: After) {
        if after == After::Waiting {
            return;
        }
        let Some(conn) = &mut self.conns[slot] else { return };
        let (head, job) = (conn.head(), conn.end());
        let keep = after == After::Complete { keep: true } && self.options.connections != Connections::Fresh;
        let Some(job) = job else {
            // An idle connection that the server closed.
            self.idle.retain(|idle| *idle != slot);
            return self.drop_conn(slot);
        };
        self.running -= 1;
        let now = Instant::now();
        let record = match after {
            After::Stale => {
                self.drop_conn(slot);
                return self.launch(Job { again: true, ..job });
            }
            After::Complete { .. } => job.meter.complete(head.unwrap_or_default(), now),
            After::Leaves | After::Waiting => job.meter.abort(Outcome::Cut, head, now),
            After::Broken(failure) => job.meter.abort(Outcome::Failed(failure), head, now),
        };
        if keep && (self.options.connections == Connections::Kept || !job.shot.streamed) {
            self.idle.push(slot);
        } else {
            self.drop_conn(slot);
        }
        self.ended(record);
    }

    fn drop_conn(&mut self, slot: usize) {
        if self.conns[slot].take().is_some() {
            self.free.push(slot);
        }
    }

    fn ended(&mut self, record: Record) {
        let mut followers = std::mem::take(&mut self.followers);
        self.source.ended(&record, self.begun.elapsed(), &mut followers);
        for Timed { at, shot } in followers.drain(..) {
            self.serial += 1;
            self.pending.push(Reverse(Pending { at, serial: self.serial, shot }));
        }
        self.followers = followers;
        self.records.push(record);
    }

    /// Cuts what is under way.
    fn cut_all(&mut self) {
        let now = Instant::now();
        for conn in self.conns.iter_mut().flatten() {
            let (head, job) = (conn.head(), conn.end());
            self.records.extend(job.map(|job| job.meter.abort(Outcome::Cut, head, now)));
        }
        self.running = 0;
        self.conns.clear();
    }
}
