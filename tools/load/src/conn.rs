//! One connection and the request that is under way on it.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;

use crate::error::Failure;
use crate::meter::{Marks, Meter};
use crate::shot::Shot;
use crate::wire::{EventScanner, ResponseReader};

/// A request under way.
pub(crate) struct Job {
    pub(crate) shot: Shot,
    pub(crate) meter: Meter,
    /// It was sent before, on a kept connection that turned out to be closed.
    pub(crate) again: bool,
    /// Tells it from earlier and later ones.
    pub(crate) serial: u64,
}

/// A connection to the server.
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    /// `None` = idle, kept for the next request.
    pub(crate) job: Option<Job>,
    reader: ResponseReader,
    scanner: EventScanner,
    /// The request, and how much of it is sent.
    out: Vec<u8>,
    sent: usize,
    /// A response was read from it before.
    used: bool,
}

/// What a read left behind.
#[derive(Debug, PartialEq)]
pub(crate) enum After {
    /// The answer goes on.
    Waiting,
    /// The answer is complete; the connection can or cannot carry another request.
    Complete { keep: bool },
    /// The client has seen enough.
    Leaves,
    /// It will never be complete.
    Broken(Failure),
    /// A kept connection was closed before it carried this request: not the server's fault.
    Stale,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Conn {
            stream,
            job: None,
            reader: ResponseReader::default(),
            scanner: EventScanner::default(),
            out: Vec::new(),
            sent: 0,
            used: false,
        }
    }

    /// Takes a request on; [`Conn::write`] sends it.
    pub(crate) fn begin(&mut self, job: Job, request: impl FnOnce(&mut Vec<u8>)) {
        self.reader.clear();
        self.scanner.clear();
        self.out.clear();
        self.sent = 0;
        request(&mut self.out);
        self.job = Some(job);
    }

    /// Sends as much as the connection takes.
    pub(crate) fn write(&mut self) -> After {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Not connected yet looks like the latter on some systems.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(error) => return self.broken(&error),
            }
        }
        After::Waiting
    }

    /// Reads what is there. `hung_up` says that the end of the connection is among it. Adds the events with text to
    /// `events`.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        hung_up: bool,
        marks: &Marks,
        events: &mut u64,
    ) -> After {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return self.closed(marks, events),
                Ok(length) => {
                    match self.take(&buffer[..length], marks, events) {
                        After::Waiting => {}
                        after => return after,
                    }
                    // Readiness is told once: only a short read with nothing behind it may end the loop.
                    if length < buffer.len() && !hung_up {
                        return After::Waiting;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return After::Waiting;
                }
                Err(error) => return self.broken(&error),
            }
        }
    }

    fn take(&mut self, bytes: &[u8], marks: &Marks, events: &mut u64) -> After {
        let Some(job) = &mut self.job else {
            return After::Broken(Failure::Protocol("bytes that nobody asked for"));
        };
        let now = Instant::now();
        let mut rest = bytes;
        while !rest.is_empty() && !self.reader.is_done() {
            let stream = self.reader.head().is_some_and(|head| head.event_stream);
            let (meter, scanner) = (&mut job.meter, &mut self.scanner);
            let mut fault = Ok(());
            let taken = self.reader.feed(rest, &mut |part| {
                if !stream {
                    meter.body(part);
                } else if fault.is_ok() {
                    fault =
                        scanner.feed(part, &mut |data| *events += u64::from(meter.event(data, now, marks)));
                }
            });
            match taken.and_then(|taken| fault.map(|()| taken)) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) => return After::Broken(Failure::Protocol(error.0)),
            }
        }
        if self.reader.is_done() {
            self.scanner.finish(&mut |data| *events += u64::from(job.meter.event(data, now, marks)));
            let keep = rest.is_empty() && self.reader.head().is_some_and(|head| head.keep_alive);
            return After::Complete { keep };
        }
        if job.meter.leaves() { After::Leaves } else { After::Waiting }
    }

    /// The server has closed the connection.
    fn closed(&mut self, marks: &Marks, events: &mut u64) -> After {
        let complete = self.reader.closed().is_ok();
        if let Some(job) = self.job.as_mut().filter(|_| complete) {
            let now = Instant::now();
            self.scanner.finish(&mut |data| *events += u64::from(job.meter.event(data, now, marks)));
        }
        let done = self.job.as_ref().is_some_and(|job| job.meter.is_done());
        if complete || done {
            After::Complete { keep: false }
        } else if self.is_stale() {
            After::Stale
        } else {
            After::Broken(Failure::Closed)
        }
    }

    fn broken(&mut self, error: &io::Error) -> After {
        let done = self.job.as_ref().is_some_and(|job| job.meter.is_done());
        if done {
            After::Complete { keep: false }
        } else if self.is_stale() {
            After::Stale
        } else if self.reader.is_untouched() {
            After::Broken(Failure::Connect(error.kind()))
        } else {
            After::Broken(Failure::Closed)
        }
    }

    /// Whether the connection was kept from an earlier request and has said nothing since.
    fn is_stale(&self) -> bool {
        self.used && self.reader.is_untouched() && self.job.as_ref().is_some_and(|job| !job.again)
    }

    /// What the head of the response says, if it has come.
    pub(crate) fn head(&self) -> Option<crate::wire::Head> {
        self.reader.head()
    }

    /// Takes the request off.
    pub(crate) fn end(&mut self) -> Option<Job> {
        self.used = true;
        self.job.take()
    }
}
