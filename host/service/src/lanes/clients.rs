//! The requests of one lane thread whose streams wait for it: where their tokens go and when they are woken.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use sf_core::limits::{CLIENT_STALL_MAX, TURN_EVENTS_MAX, WAKE_SPACING};
use sf_core::{Fault, FaultKind, Moment, QosClass, RequestId, Sampled};

use crate::desk::Leaving;
use crate::mailbox::{Ending, Outbox};
use crate::meter::Meter;

/// When a request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// To the desk.
    pub(super) submitted: Moment,
    /// From the desk to the scheduler.
    pub(super) taken: Moment,
}

/// One request that is queued or runs.
struct Client {
    mailbox: Outbox,
    class: QosClass,
    times: Times,
    /// When it was last woken for tokens.
    woken: Option<Moment>,
    /// Tokens since then.
    fresh: u32,
    /// Since when its lane is held.
    held: Option<Moment>,
}

impl Client {
    /// Its stream is woken for the tokens that it got since it was woken last.
    fn note_delivery(&mut self, now: Moment, meter: &Meter) {
        if std::mem::take(&mut self.fresh) == 0 {
            return;
        }
        match self.woken.replace(now) {
            None => meter.first_token(now - self.times.submitted),
            Some(before) => meter.next_tokens(now - before),
        }
    }
}

/// Ids are numbers given out one after the other: spreading their low bits is hashing enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Clients {
    living: HashMap<RequestId, Client, BuildHasherDefault<IdHasher>>,
    /// Got tokens and were not woken for them yet.
    fresh: Vec<RequestId>,
    held: Vec<RequestId>,
    /// When streams were last woken.
    woken: Moment,
    /// Tokens since the start.
    pub(super) tokens: u64,
    /// Answers completed since the start.
    pub(super) finished: u64,
}

impl Clients {
    /// A request was queued.
    pub(super) fn insert(&mut self, request: RequestId, mailbox: Outbox, class: QosClass, times: Times) {
        let client = Client { mailbox, class, times, woken: None, fresh: 0, held: None };
        self.living.insert(request, client);
    }

    /// It got a lane, `waited` after the scheduler had taken it.
    pub(super) fn started(&mut self, request: RequestId, cached: u32, waited: Duration, meter: &Meter) {
        let Some(client) = self.living.get(&request) else { return };
        client.mailbox.started(cached);
        let Times { submitted, taken } = client.times;
        meter.queued(client.class, taken - submitted + waited);
    }

    /// It drew a token. True when its client is so far behind that the lane should be held.
    pub(super) fn token(&mut self, request: RequestId, sampled: Sampled) -> bool {
        let Some(client) = self.living.get_mut(&request) else { return false };
        let waiting = client.mailbox.push(sampled);
        self.tokens += 1;
        client.fresh += 1;
        if client.fresh == 1 {
            self.fresh.push(request);
        }
        waiting >= TURN_EVENTS_MAX && client.held.is_none()
    }

    /// A token of its prompt was scored; read with the first drawn one, or when there are too many. True as for
    /// [`Clients::token`].
    pub(super) fn scored(&mut self, request: RequestId, sampled: Sampled) -> bool {
        let Some(client) = self.living.get_mut(&request) else { return false };
        let waiting = client.mailbox.push(sampled);
        if waiting >= TURN_EVENTS_MAX {
            client.mailbox.wake();
        }
        waiting >= TURN_EVENTS_MAX && client.held.is_none()
    }

    /// Its lane is held until its client has caught up. False when it has already.
    pub(super) fn hold(&mut self, request: RequestId, now: Moment) -> bool {
        let Some(client) = self.living.get_mut(&request) else { return false };
        let held = client.mailbox.hold();
        if held {
            client.held = Some(now);
            self.held.push(request);
        }
        held
    }

    /// Its client has caught up. False for one that is not held (any more).
    pub(super) fn release(&mut self, request: RequestId) -> bool {
        self.held.retain(|held| *held != request);
        self.living.get_mut(&request).and_then(|client| client.held.take()).is_some()
    }

    /// Forgets a request whose stream is gone. False for one that has ended by itself.
    pub(super) fn left(&mut self, request: RequestId, why: Leaving, meter: &Meter) -> bool {
        let Some(client) = self.remove(request) else { return false };
        client.mailbox.leave();
        match why {
            Leaving::Complete => {
                self.finished += 1;
                meter.requests_finished.increment(1);
            }
            Leaving::Cancelled => meter.requests_cancelled.increment(1),
        }
        true
    }

    /// It is complete.
    pub(super) fn finish(&mut self, request: RequestId, ending: Ending, now: Moment, meter: &Meter) {
        let Some(mut client) = self.remove(request) else { return };
        client.note_delivery(now, meter);
        self.finished += 1;
        meter.requests_finished.increment(1);
        client.mailbox.end(ending);
    }

    /// It failed.
    pub(super) fn fail(&mut self, request: RequestId, fault: Fault, meter: &Meter) {
        let Some(client) = self.remove(request) else { return };
        meter.requests_failed.increment(1);
        client.mailbox.end(Ending::Failed(fault));
    }

    fn remove(&mut self, request: RequestId) -> Option<Client> {
        if let Some(client) = self.living.get(&request)
            && client.held.is_some()
        {
            self.held.retain(|held| *held != request);
        }
        self.living.remove(&request)
    }

    /// Wakes the streams that got tokens, unless that was done just now: `running` streams share the time that waking
    /// may take, and each then writes several tokens at once.
    pub(super) fn wake_paced(&mut self, now: Moment, running: usize, meter: &Meter) {
        if now - self.woken >= WAKE_SPACING * running as u32 {
            self.wake(now, meter);
        }
    }

    /// Wakes the streams that got tokens.
    pub(super) fn wake(&mut self, now: Moment, meter: &Meter) {
        if self.fresh.is_empty() {
            return;
        }
        self.woken = now;
        for request in self.fresh.drain(..) {
            // One that has ended was woken by that.
            let Some(client) = self.living.get_mut(&request) else { continue };
            client.mailbox.wake();
            client.note_delivery(now, meter);
        }
    }

    /// Gives up the next request whose client has not caught up for too long.
    pub(super) fn give_up_stalled(&mut self, now: Moment, meter: &Meter) -> Option<RequestId> {
        let stalled = |request: &&RequestId| {
            self.living[*request].held.is_some_and(|since| now - since >= CLIENT_STALL_MAX)
        };
        let request = self.held.iter().find(stalled).copied()?;
        let message = format!(
            "the answer was given up: its client was {TURN_EVENTS_MAX} tokens behind for {} s",
            CLIENT_STALL_MAX.as_secs()
        );
        self.fail(request, Fault::new(FaultKind::Unavailable, "stream_overflow", message), meter);
        Some(request)
    }

    /// When [`Clients::give_up_stalled`] has something to do.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        let since = self.held.iter().filter_map(|request| self.living[request].held).min()?;
        Some(since + CLIENT_STALL_MAX)
    }
}
