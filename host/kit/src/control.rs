//! The page of words through which a running step is asked to end early.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sf_abi::SfrControl;

/// `sfr_control` with atomic words; lives as long as anyone holds it. The runtime polls it, we bump it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ControlPage {
    struct_size: AtomicU32,
    yield_seq: AtomicU32,
    abort_seq: AtomicU32,
    reserved0: AtomicU32,
    reserved: [AtomicU64; 6],
}

const _: () = assert!(size_of::<ControlPage>() == size_of::<SfrControl>());

impl ControlPage {
    /// A page on which nothing was raised yet.
    pub fn new() -> ControlPage {
        let page = ControlPage::default();
        page.struct_size.store(size_of::<SfrControl>() as u32, Ordering::Release);
        page
    }

    /// The yield word as it is now: a tick that was begun with another value ends at its next step boundary.
    pub fn yield_seq(&self) -> u32 {
        self.yield_seq.load(Ordering::Acquire)
    }

    /// Asks the running tick to end at its next step boundary, and the step in it at its next chunk; what was consumed
    /// counts.
    pub fn raise_yield(&self) {
        self.yield_seq.fetch_add(1, Ordering::Release);
    }

    /// Asks the running step to give up; its lanes stay as before it.
    pub fn raise_abort(&self) {
        self.abort_seq.fetch_add(1, Ordering::Release);
    }

    /// The address a plan carries.
    pub(crate) fn as_abi(&self) -> *const SfrControl {
        std::ptr::from_ref(self).cast()
    }
}
