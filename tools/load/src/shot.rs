//! What is sent and when: one request, a fixed plan of requests, and the trait that generators implement.

use std::sync::Arc;
use std::time::Duration;

use crate::record::Record;

/// One request.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Its number, chosen by the source; records carry it.
    pub id: usize,
    /// Path below the target's prefix, e.g. `/v1/completions`.
    pub path: &'static str,
    /// JSON body, sent as it is.
    pub body: Arc<[u8]>,
    /// Whole header lines of this request alone, each with its line end; usually empty.
    pub headers: Arc<str>,
    /// Rows of a report are made by it; empty = none.
    pub class: Arc<str>,
    /// The answer is an event stream, as the body asks.
    pub streamed: bool,
    /// Keep the generated text. Costs a JSON parse per event.
    pub keep_text: bool,
    /// Tokens of the answer that are expected at most, so that room can be made before they come; 0 = unknown.
    pub tokens_hint: u32,
    /// Go away in the middle: the connection is closed, and the request counts as cut.
    pub leave: Option<Leave>,
}

/// When a client goes away before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// So long after the start of the request.
    After(Duration),
    /// After so many events with text.
    AfterEvents(u32),
}

impl Shot {
    /// A streamed request with this JSON body.
    pub fn streamed(id: usize, path: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Shot {
            id,
            path,
            body: body.into(),
            headers: "".into(),
            class: "".into(),
            streamed: true,
            keep_text: false,
            tokens_hint: 0,
            leave: None,
        }
    }

    /// A request that is answered in one piece.
    pub fn plain(id: usize, path: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Shot { streamed: false, ..Shot::streamed(id, path, body) }
    }

    /// Groups it under `class` and asks the server for that QoS class.
    #[must_use]
    pub fn with_class(mut self, class: &str) -> Self {
        self.headers = format!("{}X-Superfluid-QoS: {class}\r\n", self.headers).into();
        self.class = class.into();
        self
    }
}

/// When a request of a [`Plan`] starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// So long after the start of the run.
    At(Duration),
    /// When the request of that index has ended, whether well or not, and the pause has passed.
    After {
        /// Index in the plan.
        shot: usize,
        /// Time in between.
        pause: Duration,
    },
}

/// A fixed list of requests. Shots are numbered by their index.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    shots: Vec<(Start, Shot)>,
    /// Indices of those that start by the clock, in order of time; filled when the run begins.
    timed: Option<std::vec::IntoIter<usize>>,
}

impl Plan {
    /// Nothing yet.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds a request and returns its index, which becomes its id.
    pub fn push(&mut self, start: Start, mut shot: Shot) -> usize {
        let index = self.shots.len();
        shot.id = index;
        self.shots.push((start, shot));
        self.timed = None;
        index
    }

    /// All requests at once.
    pub fn burst(shots: impl IntoIterator<Item = Shot>) -> Self {
        let mut plan = Plan::new();
        for shot in shots {
            plan.push(Start::At(Duration::ZERO), shot);
        }
        plan
    }

    /// Each list is sent by one client, one request after the other.
    pub fn chains(clients: impl IntoIterator<Item = Vec<Shot>>) -> Self {
        let mut plan = Plan::new();
        for shots in clients {
            let mut start = Start::At(Duration::ZERO);
            for shot in shots {
                start = Start::After { shot: plan.push(start, shot), pause: Duration::ZERO };
            }
        }
        plan
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.shots.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.shots.is_empty()
    }
}

/// A request with its time.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Since the start of the run.
    pub at: Duration,
    /// The request.
    pub shot: Shot,
}

/// Decides which request is sent when, while a run goes on.
pub trait Source {
    /// The next request that starts by the clock, in order of time; asked again when that one has been taken. `None`
    /// = no more of them.
    fn timed(&mut self) -> Option<Timed>;

    /// Adds what starts because this request has ended at `now` (since the start of the run).
    fn ended(&mut self, record: &Record, now: Duration, next: &mut Vec<Timed>);
}

impl Source for Plan {
    fn timed(&mut self) -> Option<Timed> {
        let shots = &self.shots;
        let at = |index: &usize| match shots[*index].0 {
            Start::At(at) => Some(at),
            Start::After { .. } => None,
        };
        let order = self.timed.get_or_insert_with(|| {
            let mut order: Vec<usize> = (0..shots.len()).filter(|index| at(index).is_some()).collect();
            order.sort_by_key(at);
            order.into_iter()
        });
        let index = order.next()?;
        Some(Timed { at: at(&index)?, shot: shots[index].1.clone() })
    }

    fn ended(&mut self, record: &Record, now: Duration, next: &mut Vec<Timed>) {
        // A successor was added after what it follows.
        for (start, shot) in self.shots.iter().skip(record.shot + 1) {
            if let Start::After { shot: before, pause } = *start
                && before == record.shot
            {
                next.push(Timed { at: now + pause, shot: shot.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_gives_shots_by_time_and_followers_after_their_leaders() {
        let shot = || Shot::streamed(9, "/v1/completions", *b"{}");
        let mut plan = Plan::new();
        let late = plan.push(Start::At(Duration::from_secs(2)), shot());
        let early = plan.push(Start::At(Duration::from_secs(1)), shot());
        let follower = plan.push(Start::After { shot: late, pause: Duration::from_secs(3) }, shot());
        assert_eq!(plan.len(), 3);
        let order: Vec<usize> = std::iter::from_fn(|| plan.timed()).map(|timed| timed.shot.id).collect();
        assert_eq!(order, [early, late]);
        let mut next = Vec::new();
        plan.ended(&Record { shot: early, ..Record::default() }, Duration::from_secs(4), &mut next);
        assert!(next.is_empty());
        plan.ended(&Record { shot: late, ..Record::default() }, Duration::from_secs(4), &mut next);
        let next: Vec<_> = next.iter().map(|timed| (timed.at.as_secs(), timed.shot.id)).collect();
        assert_eq!(next, [(7, follower)]);
    }
}
