//! The lanes of a model on one set of pages: what `Model` asks of a cache, for engines that lay out their own.

use crate::fault::{Code, Fault};
use crate::lanes::Lane;
use crate::pages::{Element, LanePages, Pages};
use crate::plan::{Feed, Plan};

/// Lanes by slot, and the pages they share.
#[derive(Debug)]
pub struct PagedLanes<T: Element> {
    pages: Pages<T>,
    lanes: Vec<LanePages<T>>,
}

/// A lane's length behind a run.
fn grown(feed: &Feed) -> u32 {
    feed.pos0() + feed.len() as u32
}

impl<T: Element> PagedLanes<T> {
    /// Pages of `rows` positions and `elements` numbers, room for `cells` positions in up to `lanes` lanes.
    pub fn new(elements: usize, rows: u32, cells: u64, lanes: u32) -> PagedLanes<T> {
        PagedLanes {
            pages: Pages::new(elements, rows, cells, lanes),
            lanes: (0..lanes).map(|_| LanePages::default()).collect(),
        }
    }

    /// A lane's pages.
    pub fn lane(&self, lane: Lane) -> &LanePages<T> {
        &self.lanes[lane.slot()]
    }

    /// Bytes of all pages in memory.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Positions of all lanes, shared ones counted for each.
    pub fn positions(&self) -> u64 {
        self.lanes.iter().map(|lane| u64::from(lane.len())).sum()
    }

    /// Keeps a lane's first `len` positions; 0 empties it.
    pub fn truncate(&mut self, lane: Lane, len: u32) {
        self.lanes[lane.slot()].cut(&mut self.pages, len);
    }

    /// Makes `child` hold the first `upto` positions of `parent`.
    pub fn fork(&mut self, parent: Lane, upto: u32, child: Lane) {
        self.lanes[child.slot()] = self.lanes[parent.slot()].fork(&self.pages, upto);
    }

    /// Makes room for every run of a plan, or leaves every lane as it was.
    ///
    /// # Errors
    /// `Capacity`: there are not as many pages.
    pub fn reserve(&mut self, plan: &Plan<'_>) -> Result<(), Fault> {
        let lane = |feed: &Feed| &self.lanes[feed.lane().slot()];
        let missing = plan.feeds().iter().map(|feed| lane(feed).missing(&self.pages, grown(feed)));
        let (needed, left) = (missing.sum::<usize>(), self.pages.left());
        if needed > left {
            let tokens = plan.tokens_total();
            return Err(full(format!(
                "no room for {tokens} tokens: {needed} pages of keys and values are needed, {left} are left"
            )));
        }
        for feed in plan.feeds() {
            self.lanes[feed.lane().slot()].reserve(&mut self.pages, grown(feed));
        }
        Ok(())
    }

    /// Counts the positions of a plan's runs: the step was computed.
    pub fn advance(&mut self, plan: &Plan<'_>) {
        plan.feeds().iter().for_each(|feed| self.lanes[feed.lane().slot()].set_len(grown(feed)));
    }

    /// Gives back what was reserved for a plan that was not computed.
    pub fn give_up(&mut self, plan: &Plan<'_>) {
        plan.feeds().iter().for_each(|feed| self.truncate(feed.lane(), feed.pos0()));
    }

    /// Fills an empty lane with `len` positions of `bytes` bytes each: `put` writes them to its pages.
    ///
    /// # Errors
    /// `Capacity`: there are not as many pages; `Format`: `state` has another length.
    pub fn import(
        &mut self,
        lane: Lane,
        len: u32,
        (state, bytes): (&[u8], u64),
        put: impl FnOnce(&mut LanePages<T>),
    ) -> Result<(), Fault> {
        let (pages, lane) = (&mut self.pages, &mut self.lanes[lane.slot()]);
        if lane.missing(pages, len) > pages.left() {
            return Err(full(format!("no room for {len} saved positions: {} pages are left", pages.left())));
        }
        if state.len() as u64 != u64::from(len) * bytes {
            return Err(Fault::new(Code::Format, format!("{} bytes are not {len} positions", state.len())));
        }
        lane.reserve(pages, len);
        put(lane);
        lane.set_len(len);
        Ok(())
    }
}

fn full(words: String) -> Fault {
    Fault::new(Code::Capacity, words).field("kv.cells")
}
