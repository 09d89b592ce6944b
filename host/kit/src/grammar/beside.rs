//! Computes masks on a thread of its own, while the forward pass runs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use super::Guide;

/// A guide on its way, with the place it belongs to.
type Parcel = (usize, Box<Guide>);

/// Guides that are away for their masks. The thread is started for the first one.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    thread: Option<(Sender<Parcel>, Receiver<Parcel>)>,
    away: usize,
}

/// What masks cost, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MaskCost {
    /// Computing them.
    pub(crate) took_ns: u64,
    /// Waiting for them.
    pub(crate) waited_ns: u64,
}

impl Masks {
    /// Sends a guide away. One that nobody takes, because the system refuses a thread, is served here.
    pub(crate) fn send(&mut self, place: usize, guide: Box<Guide>) -> Option<Box<Guide>> {
        if self.thread.is_none() {
            self.thread = start();
        }
        let refused = match &self.thread {
            Some((to, _)) => to.send((place, guide)).err().map(|error| error.0.1),
            None => Some(guide),
        };
        match refused {
            None => {
                self.away += 1;
                None
            }
            Some(mut guide) => {
                guide.compute();
                Some(guide)
            }
        }
    }

    /// Waits for all guides and gives each back to its place.
    pub(crate) fn collect(&mut self, mut give: impl FnMut(usize, Box<Guide>)) -> MaskCost {
        let mut cost = MaskCost::default();
        let begun = Instant::now();
        while self.away > 0 {
            self.away -= 1;
            // A guide lost with its thread leaves its lane without a mask, which fails that lane's draw.
            let Some((place, mut guide)) = self.thread.as_ref().and_then(|(_, from)| from.recv().ok()) else {
                self.thread = None;
                self.away = 0;
                break;
            };
            cost.took_ns += u64::try_from(guide.take_time().as_nanos()).unwrap_or(u64::MAX);
            give(place, guide);
        }
        cost.waited_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        cost
    }
}

fn start() -> Option<(Sender<Parcel>, Receiver<Parcel>)> {
    let (to, inbox) = channel::<Parcel>();
    let (outbox, from) = channel();
    let work = move || {
        // Ends with the executor, which holds the other ends.
        for (place, mut guide) in inbox {
            guide.compute();
            if outbox.send((place, guide)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("sf-masks".to_owned()).spawn(work).ok()?;
    Some((to, from))
}
