//! Keys and values of the lanes, in pages of some positions of all layers. A fork shares whole pages; what a lane writes
//! to is its own.
#![expect(unsafe_code, reason = "pages are written by kernels and read by several lanes")]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::config::Config;

/// Positions of a page.
pub(super) const PAGE_ROWS: u32 = 32;
/// Free pages that are kept for the next lane.
const KEPT_MAX: usize = 64;

/// One page: for each layer, and in it for each position, keys and then values.
#[derive(Debug)]
struct Page(NonNull<[f32]>);

// SAFETY: plain memory; who writes to it holds the only reference (see `LanePages::reserve`).
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new(elements: usize) -> Page {
        let zeroed = Box::<[f32]>::new_zeroed_slice(elements);
        // SAFETY: all zero bits are a float.
        let memory = Box::leak(unsafe { zeroed.assume_init() });
        Page(NonNull::from(memory))
    }

    fn at(&self) -> *mut f32 {
        self.0.as_ptr().cast()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// All pages of a model.
#[derive(Debug)]
pub(super) struct Pages {
    free: Vec<Arc<Page>>,
    /// Elements of one position in one layer.
    pub(super) width: usize,
    pub(super) layers: usize,
    used: usize,
    max: usize,
}

impl Pages {
    /// Room for `cells` positions however they are shared: each lane may leave one page unfilled, and copy one that it shares.
    pub(super) fn new(config: &Config, cells: u64, lanes: u32) -> Pages {
        let whole = usize::try_from(cells.div_ceil(u64::from(PAGE_ROWS))).unwrap_or(usize::MAX >> 1);
        Pages {
            free: Vec::new(),
            width: config.kv_width() as usize,
            layers: config.layers as usize,
            used: 0,
            max: whole + 2 * lanes as usize,
        }
    }

    fn elements(&self) -> usize {
        self.width * self.layers * PAGE_ROWS as usize
    }

    /// Pages that can still be taken.
    pub(super) fn left(&self) -> usize {
        self.max - self.used
    }

    /// Bytes of all pages in memory.
    pub(super) fn bytes(&self) -> u64 {
        ((self.used + self.free.len()) * self.elements() * 4) as u64
    }

    fn take(&mut self) -> Arc<Page> {
        self.used += 1;
        let elements = self.elements();
        self.free.pop().unwrap_or_else(|| Arc::new(Page::new(elements)))
    }

    fn give_back(&mut self, page: Arc<Page>) {
        if Arc::strong_count(&page) == 1 {
            self.used -= 1;
            if self.free.len() < KEPT_MAX {
                self.free.push(page);
            }
        }
    }
}

/// The pages of one lane.
#[derive(Debug, Default)]
pub(super) struct LanePages {
    pages: Vec<Arc<Page>>,
    len: u32,
}

impl LanePages {
    /// Positions held.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn set_len(&mut self, len: u32) {
        self.len = len;
    }

    /// The page that the next position is written to, when it is shared with another lane.
    fn shared_tail(&self) -> Option<usize> {
        let tail = (self.len / PAGE_ROWS) as usize;
        self.pages.get(tail).filter(|page| Arc::strong_count(page) > 1).map(|_| tail)
    }

    /// Pages that [`LanePages::reserve`] would take.
    pub(super) fn missing(&self, len: u32) -> usize {
        let whole = len.div_ceil(PAGE_ROWS) as usize;
        whole.saturating_sub(self.pages.len()) + usize::from(len > self.len && self.shared_tail().is_some())
    }

    /// Makes positions up to `len` writable; the caller made sure that enough pages are left.
    pub(super) fn reserve(&mut self, pages: &mut Pages, len: u32) {
        if len > self.len
            && let Some(tail) = self.shared_tail()
        {
            let copy = pages.take();
            // SAFETY: two different pages of the same length; the new one is ours alone, and nobody writes to a shared one.
            unsafe { copy.at().copy_from_nonoverlapping(self.pages[tail].at(), pages.elements()) };
            let shared = std::mem::replace(&mut self.pages[tail], copy);
            pages.give_back(shared);
        }
        while self.pages.len() < len.div_ceil(PAGE_ROWS) as usize {
            self.pages.push(pages.take());
        }
    }

    /// Keeps the first `len` positions.
    pub(super) fn cut(&mut self, pages: &mut Pages, len: u32) {
        for page in self.pages.drain(self.pages.len().min(len.div_ceil(PAGE_ROWS) as usize)..) {
            pages.give_back(page);
        }
        self.len = self.len.min(len);
    }

    /// The first `upto` positions, shared.
    pub(super) fn fork(&self, upto: u32) -> LanePages {
        LanePages { pages: self.pages[..upto.div_ceil(PAGE_ROWS) as usize].to_vec(), len: upto }
    }

    /// Where the pages are.
    pub(super) fn addresses(&self) -> Vec<*mut f32> {
        self.pages.iter().map(|page| page.at()).collect()
    }

    /// The floats of one position in one layer.
    pub(super) fn position(&self, pages: &Pages, layer: usize, position: usize) -> &[f32] {
        let rows = PAGE_ROWS as usize;
        let at = (layer * rows + position % rows) * pages.width;
        let start = self.pages[position / rows].at().wrapping_add(at);
        // SAFETY: inside the page; kernels write only during a step, and this borrows what a step changes.
        unsafe { std::slice::from_raw_parts(start, pages.width) }
    }

    /// The same, to be written: for a lane whose pages are its own, as `reserve` leaves them.
    pub(super) fn position_mut(&mut self, pages: &Pages, layer: usize, position: usize) -> &mut [f32] {
        let rows = PAGE_ROWS as usize;
        let at = (layer * rows + position % rows) * pages.width;
        let page = &self.pages[position / rows];
        assert_eq!(Arc::strong_count(page), 1, "a shared page is never written to");
        let start = page.at().wrapping_add(at);
        // SAFETY: inside the page, which only this lane holds.
        unsafe { std::slice::from_raw_parts_mut(start, pages.width) }
    }
}
