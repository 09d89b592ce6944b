//! Keys and values of lanes in pages of some positions, for engines that lay out their own memory: a fork shares whole
//! pages, and what a lane writes to is its own.
#![expect(unsafe_code, reason = "pages are written by kernels and read by several lanes")]

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

/// Free pages that are kept for the next lane.
const KEPT_MAX: usize = 64;

/// What pages are made of: a number whose zero is all zero bits.
pub trait Element: Copy + Send + Sync + private::Sealed + 'static {}
impl Element for f32 {}
impl Element for u16 {}
impl Element for u8 {}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
    impl Sealed for u8 {}
}

/// One page.
struct Page<T: Element>(NonNull<[T]>);

// SAFETY: plain memory; who writes to it holds the only reference (see `LanePages::reserve`).
unsafe impl<T: Element> Send for Page<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Page<T> {}

impl<T: Element> Page<T> {
    fn new(elements: usize) -> Page<T> {
        let zeroed = Box::<[T]>::new_zeroed_slice(elements);
        // SAFETY: all zero bits are a number of each element type.
        let memory = Box::leak(unsafe { zeroed.assume_init() });
        Page(NonNull::from(memory))
    }

    fn at(&self) -> *mut T {
        self.0.as_ptr().cast()
    }
}

impl<T: Element> Drop for Page<T> {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: Element> fmt::Debug for Page<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.0.len())
    }
}

/// All pages of a model.
#[derive(Debug)]
pub struct Pages<T: Element> {
    free: Vec<Arc<Page<T>>>,
    elements: usize,
    rows: u32,
    used: usize,
    max: usize,
}

impl<T: Element> Pages<T> {
    /// Pages of `rows` positions and `elements` numbers; room for `cells` positions however they are shared: each lane may
    /// leave one page unfilled, and copy one that it shares.
    pub fn new(elements: usize, rows: u32, cells: u64, lanes: u32) -> Pages<T> {
        let whole = usize::try_from(cells.div_ceil(u64::from(rows))).unwrap_or(usize::MAX >> 1);
        Pages { free: Vec::new(), elements, rows, used: 0, max: whole + 2 * lanes as usize }
    }

    /// Pages that can still be taken.
    pub fn left(&self) -> usize {
        self.max - self.used
    }

    /// Bytes of all pages in memory.
    pub fn bytes(&self) -> u64 {
        ((self.used + self.free.len()) * self.elements * size_of::<T>()) as u64
    }

    fn take(&mut self) -> Arc<Page<T>> {
        self.used += 1;
        self.free.pop().unwrap_or_else(|| Arc::new(Page::new(self.elements)))
    }

    fn give_back(&mut self, page: Arc<Page<T>>) {
        if Arc::strong_count(&page) == 1 {
            self.used -= 1;
            if self.free.len() < KEPT_MAX {
                self.free.push(page);
            }
        }
    }
}

/// The pages of one lane.
#[derive(Debug)]
pub struct LanePages<T: Element> {
    pages: Vec<Arc<Page<T>>>,
    len: u32,
}

impl<T: Element> Default for LanePages<T> {
    fn default() -> LanePages<T> {
        LanePages { pages: Vec::new(), len: 0 }
    }
}

impl<T: Element> LanePages<T> {
    /// Positions held.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Says how many positions are held now; they have their pages.
    pub fn set_len(&mut self, len: u32) {
        self.len = len;
    }

    /// The page that the next position is written to, when it is shared with another lane.
    fn shared_tail(&self, pages: &Pages<T>) -> Option<usize> {
        let tail = (self.len / pages.rows) as usize;
        self.pages.get(tail).filter(|page| Arc::strong_count(page) > 1).map(|_| tail)
    }

    /// Pages that [`LanePages::reserve`] would take.
    pub fn missing(&self, pages: &Pages<T>, len: u32) -> usize {
        let whole = len.div_ceil(pages.rows) as usize;
        let copied = len > self.len && self.shared_tail(pages).is_some();
        whole.saturating_sub(self.pages.len()) + usize::from(copied)
    }

    /// Makes positions up to `len` writable; the caller made sure that enough pages are left.
    pub fn reserve(&mut self, pages: &mut Pages<T>, len: u32) {
        if len > self.len
            && let Some(tail) = self.shared_tail(pages)
        {
            let copy = pages.take();
            // SAFETY: two different pages of the same length; the new one is ours alone, and nobody writes to a shared one.
            unsafe { copy.at().copy_from_nonoverlapping(self.pages[tail].at(), pages.elements) };
            let shared = core::mem::replace(&mut self.pages[tail], copy);
            pages.give_back(shared);
        }
        while self.pages.len() < len.div_ceil(pages.rows) as usize {
            self.pages.push(pages.take());
        }
    }

    /// Keeps the first `len` positions.
    pub fn cut(&mut self, pages: &mut Pages<T>, len: u32) {
        for page in self.pages.drain(self.pages.len().min(len.div_ceil(pages.rows) as usize)..) {
            pages.give_back(page);
        }
        self.len = self.len.min(len);
    }

    /// The first `upto` positions, shared.
    pub fn fork(&self, pages: &Pages<T>, upto: u32) -> LanePages<T> {
        LanePages { pages: self.pages[..upto.div_ceil(pages.rows) as usize].to_vec(), len: upto }
    }

    /// Where the pages are. Kernels write there to positions that were reserved, and read those that are held.
    pub fn addresses(&self) -> Vec<*mut T> {
        self.pages.iter().map(|page| page.at()).collect()
    }

    /// The numbers of one page.
    pub fn page(&self, number: usize) -> &[T] {
        // SAFETY: kernels write only during a step, and this borrows what a step changes.
        unsafe { self.pages[number].0.as_ref() }
    }

    /// The same, to be written: for a lane whose pages are its own, as `reserve` leaves them.
    ///
    /// # Panics
    /// If another lane holds it as well.
    pub fn page_mut(&mut self, number: usize) -> &mut [T] {
        let page = &self.pages[number];
        assert_eq!(Arc::strong_count(page), 1, "a shared page is never written to");
        // SAFETY: only this lane holds it.
        unsafe { &mut *page.0.as_ptr() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_shares_pages_until_it_writes() {
        let mut pages = Pages::<u16>::new(8, 4, 16, 2);
        let mut lane = LanePages::default();
        lane.reserve(&mut pages, 6);
        lane.page_mut(1)[0] = 7;
        lane.set_len(6);
        assert_eq!((pages.left(), lane.missing(&pages, 8), lane.missing(&pages, 9)), (6, 0, 1));
        let mut child = lane.fork(&pages, 6);
        assert_eq!((pages.left(), child.missing(&pages, 7)), (6, 1));
        child.reserve(&mut pages, 7);
        child.page_mut(1)[0] = 9;
        assert_eq!((lane.page(1)[0], child.page(1)[0], pages.left()), (7, 9, 5));
        assert_eq!(lane.page(0).as_ptr(), child.page(0).as_ptr());
        child.cut(&mut pages, 0);
        assert_eq!((pages.left(), child.len()), (6, 0));
        lane.cut(&mut pages, 0);
        assert_eq!(pages.left(), 8);
    }

    #[test]
    fn what_a_page_held_before_stays_with_its_lane() {
        let mut pages = Pages::<f32>::new(2, 1, 2, 1);
        let mut lane = LanePages::default();
        lane.reserve(&mut pages, 2);
        lane.set_len(2);
        let bytes = pages.bytes();
        lane.cut(&mut pages, 1);
        assert_eq!((lane.len(), pages.bytes()), (1, bytes));
    }
}
