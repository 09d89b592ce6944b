//! The memory that the server shares with one worker: the control page, a request area and an answer area.
//!
//! The other side may be broken, so nothing is parsed in place: bytes are copied out first. The memory is sealed against
//! shrinking, so that a worker cannot make the server fault by truncating it.
#![expect(unsafe_code, reason = "maps shared memory and hands out atomics and copies of it")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use sf_core::limits;
use sf_kit::ControlPage;

use super::bell::Bell;
use crate::error::EngineError;
use crate::wire::WireError;

/// Largest request: a plan in which each of `MAX_BATCH_MAX` lanes closes, opens with a full bias table and feeds takes
/// about 2.2 MiB, and each may bring a grammar. Pages that nobody writes are never there.
const REQUEST_BYTES_MAX: usize = (8 << 20) + limits::MAX_BATCH_MAX as usize * limits::GRAMMAR_BYTES_MAX;
/// Room for the answers to one request. The largest one, each of `MAX_BATCH_MAX` lanes with full log-probabilities or each
/// of its operations with a fault, takes a tenth; the rest is for the further steps of a tick.
const ANSWER_BYTES_MAX: usize = 4 << 20;

// The control page begins the mapping.
const REQUEST_BELL_AT: usize = 128;
const ANSWER_BELL_AT: usize = 256;
const REQUEST_AT: usize = 4096;
const ANSWER_AT: usize = REQUEST_AT + HEAD + REQUEST_BYTES_MAX;
const TOTAL: usize = ANSWER_AT + HEAD + ANSWER_BYTES_MAX;
/// Before each record: its length, `u32`.
const HEAD: usize = 4;

/// A mapping of the shared memory. Pages are backed only once they are touched.
#[derive(Debug)]
pub(crate) struct Shm {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread; its words are only touched as atomics and its areas only
// copied, under the protocol of their bells.
unsafe impl Send for Shm {}
// SAFETY: as above.
unsafe impl Sync for Shm {}

/// One direction: a bell and the records it announces, one ring each. Records stand one behind the other; with each request
/// both areas begin anew.
pub(crate) struct Area<'a> {
    pub(crate) bell: &'a Bell,
    data: NonNull<u8>,
    /// Bytes at `data`.
    size: usize,
}

impl Shm {
    /// Makes the memory; the descriptor goes to the worker.
    pub(crate) fn create() -> Result<(Shm, OwnedFd), EngineError> {
        let system = |what| move |error| EngineError::system(what, error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("superfluid-step", flags).map_err(system("make shared memory"))?;
        rustix::fs::ftruncate(&fd, TOTAL as u64).map_err(system("size shared memory"))?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(system("seal shared memory"))?;
        let shm = Shm::map(&fd)?;
        // SAFETY: the page lies within the mapping, is aligned, and nobody else has the memory yet.
        unsafe { shm.base.cast::<ControlPage>().write(ControlPage::new()) };
        Ok((shm, fd))
    }

    /// Maps memory that the server made.
    pub(crate) fn open(fd: impl AsFd) -> Result<Shm, EngineError> {
        let stat =
            rustix::fs::fstat(&fd).map_err(|error| EngineError::system("look at shared memory", error))?;
        if stat.st_size != TOTAL as i64 {
            let reason = format!("it has {} bytes, this version shares {TOTAL}", stat.st_size);
            return Err(EngineError::System { what: "map shared memory", reason });
        }
        Shm::map(fd)
    }

    fn map(fd: impl AsFd) -> Result<Shm, EngineError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), TOTAL, prot, MapFlags::SHARED, fd, 0) };
        let base = base.map_err(|error| EngineError::system("map shared memory", error))?;
        let base = NonNull::new(base.cast()).expect("mmap without MAP_FIXED never answers page zero");
        Ok(Shm { base })
    }

    /// The page that the runtime polls.
    pub(crate) fn control(&self) -> &ControlPage {
        // SAFETY: it begins the mapping, is aligned, made of atomics only and mapped for as long as self lives.
        unsafe { self.base.cast::<ControlPage>().as_ref() }
    }

    pub(crate) fn request(&self) -> Area<'_> {
        self.area(REQUEST_BELL_AT, REQUEST_AT, REQUEST_BYTES_MAX)
    }

    pub(crate) fn answer(&self) -> Area<'_> {
        self.area(ANSWER_BELL_AT, ANSWER_AT, ANSWER_BYTES_MAX)
    }

    fn area(&self, bell_at: usize, at: usize, max: usize) -> Area<'_> {
        // SAFETY: both offsets lie within the mapping.
        let bell = unsafe { self.base.add(bell_at) }.cast::<Bell>();
        // SAFETY: as above.
        let data = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped for as long as self lives, and made of atomics only.
        Area { bell: unsafe { bell.as_ref() }, data, size: HEAD + max }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // SAFETY: maps exactly what `map` got; no reference outlives self.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), TOTAL) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

impl Area<'_> {
    /// Bytes of the largest record that could stand at `at`.
    pub(crate) fn room(&self, at: usize) -> usize {
        self.size.saturating_sub(at).saturating_sub(HEAD)
    }

    /// Stores a record at `at` and returns where the next one goes. The other side reads it after the bell rings.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<usize, WireError> {
        if bytes.len() > self.room(at) || self.size.saturating_sub(at) < HEAD {
            return Err(WireError::Size { bytes: bytes.len(), max: self.room(at) });
        }
        self.put(at, &(bytes.len() as u32).to_le_bytes());
        self.put(at + HEAD, bytes);
        Ok(at + HEAD + bytes.len())
    }

    /// Copies the record at `at` out and returns where the next one stands. Its length comes from the other side and is
    /// checked.
    pub(crate) fn read(&self, at: usize, into: &mut Vec<u8>) -> Result<usize, WireError> {
        let mut head = [0; HEAD];
        if self.size.saturating_sub(at) < HEAD {
            return Err(WireError::Short { need: at + HEAD, have: self.size });
        }
        self.get(at, &mut head);
        let len = u32::from_le_bytes(head) as usize;
        if len > self.room(at) {
            return Err(WireError::Size { bytes: len, max: self.room(at) });
        }
        into.resize(len, 0);
        self.get(at + HEAD, into);
        Ok(at + HEAD + len)
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.size, "callers have looked at the room");
        // SAFETY: `at` lies within the area, as just asserted.
        let to = unsafe { self.data.add(at) };
        // SAFETY: within the area; the protocol gives it to us until we ring, and nobody holds a reference into it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    fn get(&self, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= self.size, "callers have looked at the room");
        // SAFETY: `at` lies within the area, as just asserted.
        let from = unsafe { self.data.add(at) };
        // SAFETY: within the area and within `into`; the protocol gives the record to us once its bell rang. A worker
        // that breaks the protocol changes bytes of the copy, which is checked before use.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_see_one_memory_and_refuse_what_does_not_fit() {
        let (server, fd) = Shm::create().unwrap();
        let worker = Shm::open(&fd).unwrap();
        server.request().write(0, b"plan").unwrap();
        let mut got = vec![9; 64];
        worker.request().read(0, &mut got).unwrap();
        assert_eq!(got, b"plan");

        let big = vec![0; REQUEST_BYTES_MAX + 1];
        let expect = WireError::Size { bytes: REQUEST_BYTES_MAX + 1, max: REQUEST_BYTES_MAX };
        assert_eq!(server.request().write(0, &big), Err(expect));
        worker.answer().put(0, &u32::MAX.to_le_bytes());
        let expect = WireError::Size { bytes: u32::MAX as usize, max: ANSWER_BYTES_MAX };
        assert_eq!(server.answer().read(0, &mut got), Err(expect));
    }

    #[test]
    fn records_follow_each_other_to_the_end_of_the_area() {
        let (server, fd) = Shm::create().unwrap();
        let worker = Shm::open(&fd).unwrap();
        let (mut written, mut sizes) = (0, Vec::new());
        for len in [0, 1, 1 << 20, 5, 1 << 21].into_iter().cycle() {
            let fits = len <= worker.answer().room(written);
            match worker.answer().write(written, &vec![len as u8 ^ 7; len]) {
                Ok(next) => written = next,
                Err(error) => {
                    assert_eq!(
                        (error, fits),
                        (WireError::Size { bytes: len, max: server.answer().room(written) }, false)
                    );
                    break;
                }
            }
            sizes.push(len);
        }
        let (mut read, mut got) = (0, Vec::new());
        for len in &sizes {
            read = server.answer().read(read, &mut got).unwrap();
            assert_eq!((got.len(), got.iter().all(|byte| *byte == *len as u8 ^ 7)), (*len, true));
        }
        assert_eq!((read, sizes.len()), (written, 7));
        assert!(server.answer().read(ANSWER_BYTES_MAX + HEAD - 1, &mut got).is_err());
        assert!(worker.answer().write(ANSWER_BYTES_MAX + HEAD - 1, b"").is_err());
    }

    #[test]
    fn a_worker_cannot_shrink_the_memory() {
        let (_server, fd) = Shm::create().unwrap();
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let fd = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        let error = Shm::open(&fd).err().unwrap().to_string();
        assert!(error.contains("it has 0 bytes"), "{error}");
    }
}
