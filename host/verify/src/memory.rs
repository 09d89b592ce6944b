//! Memory that is handed to a runtime: plain records as bytes, and buffers whose next byte is a fault.
//!
//! A runtime that reads or writes one record too many dies here, in its own process, instead of getting away with it.
#![expect(unsafe_code, reason = "maps guard pages and views plain records as bytes")]

use core::ffi::c_void;
use core::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use sf_abi::{
    SfrEmbed, SfrError, SfrEstimate, SfrFeed, SfrLaneOut, SfrOpen, SfrOpt, SfrPlan, SfrProbe, SfrQuery,
    SfrResult, SfrRow, SfrStats, SfrStr,
};

/// A record of the header.
///
/// # Safety
/// No padding (rule L2), and every bit pattern is a value.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($record:ty),+) => { $(
        // SAFETY: rule L2 leaves no padding; integers, floats and raw or nullable pointers take any bits.
        unsafe impl Plain for $record {}
    )+ };
}

plain!(
    u32, u64, SfrStr, SfrQuery, SfrProbe, SfrOpen, SfrOpt, SfrPlan, SfrFeed, SfrResult, SfrLaneOut, SfrRow
);
plain!(SfrEmbed, SfrError, SfrStats, SfrEstimate);

/// The record's bytes.
pub(crate) fn bytes_of<T: Plain>(record: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so all of its bytes are initialised.
    unsafe { core::slice::from_raw_parts(ptr::from_ref(record).cast(), size_of::<T>()) }
}

/// The record at the start of `bytes`, wherever that is aligned. `None` when they are too few.
pub(crate) fn record_at<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the length was checked and `Plain` takes any bits.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// Bytes aligned to 8 that end (rounded up to 8) where an inaccessible page begins.
pub(crate) struct Guarded {
    base: *mut c_void,
    mapped: usize,
    data: *mut u8,
    len: usize,
}

impl Guarded {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When the system has no memory left: nothing can be verified then.
    pub(crate) fn zeroed(len: usize) -> Guarded {
        let page = rustix::param::page_size();
        let rounded = len.next_multiple_of(8);
        let body = rounded.next_multiple_of(page).max(page);
        let mapped = body + page;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address of the system's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, prot, MapFlags::PRIVATE) }
            .expect("the system grants a small anonymous mapping");
        let guard = base.cast::<u8>().wrapping_add(body);
        // SAFETY: the last page of the mapping made above.
        unsafe { mprotect(guard.cast(), page, MprotectFlags::empty()) }
            .expect("a mapped page can be protected");
        Guarded { base, mapped, data: guard.wrapping_sub(rounded), len }
    }

    /// A copy of the bytes.
    pub(crate) fn copy_of(bytes: &[u8]) -> Guarded {
        let mut guarded = Guarded::zeroed(bytes.len());
        guarded.bytes_mut().copy_from_slice(bytes);
        guarded
    }

    /// A copy of the record followed by `tail`.
    pub(crate) fn holding<T: Plain>(record: &T, tail: &[u8]) -> Guarded {
        Guarded::copy_of(&[bytes_of(record), tail].concat())
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.data
    }

    pub(crate) fn address(&self) -> u64 {
        self.data.addr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes before the guard page are mapped and initialised; no runtime call is under way.
        unsafe { core::slice::from_raw_parts(self.data, self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.data, self.len) }
    }

    /// The record at the start.
    pub(crate) fn record<T: Plain>(&self) -> T {
        record_at(self.bytes()).expect("the buffer was made to hold this record")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and nothing borrows it any more.
        let unmapped = unsafe { munmap(self.base, self.mapped) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_trip_through_bytes() {
        let feed = SfrFeed { lane: 7, token_len: 3, tree: 9, ..SfrFeed::default() };
        let guarded = Guarded::holding(&feed, &[1, 2, 3]);
        assert_eq!(guarded.len(), size_of::<SfrFeed>() + 3);
        assert_eq!(guarded.address() % 8, 0);
        let back: SfrFeed = guarded.record();
        assert_eq!((back.lane, back.token_len, back.tree), (7, 3, 9));
        assert_eq!(&guarded.bytes()[size_of::<SfrFeed>()..], &[1, 2, 3]);
        assert!(record_at::<SfrFeed>(&guarded.bytes()[5..]).is_none());
    }

    #[test]
    fn an_empty_buffer_still_has_an_aligned_address() {
        let guarded = Guarded::zeroed(0);
        assert_eq!(guarded.address() % 8, 0);
        assert!(guarded.bytes().is_empty());
    }
}
