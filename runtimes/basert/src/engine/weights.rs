//! Weights in memory, as kernels take them: matrices where the bundle has them, vectors padded.
#![expect(unsafe_code, reason = "a file is mapped, and memory for it is taken from the system")]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use sf_base::{Bundle, Layout};

use crate::error::ModelError;
use crate::kernels::matmul::Part;
use crate::params::Placement;

/// Size of a huge page, to which memory for weights is aligned.
const HUGE: usize = 2 << 20;
/// Most bytes that a thread reads at a time.
const READ_BYTES: usize = 8 << 20;

/// The data section of a bundle.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Where the section begins.
    at: NonNull<u8>,
    len: usize,
    /// What was taken from the system.
    base: *mut core::ffi::c_void,
    taken: usize,
    pub(crate) mapped: bool,
}

// SAFETY: read-only after it was made.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the section, or reads it into memory of huge pages.
    pub(crate) fn of(
        file: &File,
        bundle: &Bundle,
        placement: Placement,
        threads: usize,
    ) -> Result<Memory, ModelError> {
        let len = usize::try_from(bundle.file_bytes - bundle.data_offset).unwrap_or(usize::MAX);
        let copied = match placement {
            Placement::Copy => true,
            Placement::Map => false,
            // A quarter of the memory is what others will miss the least.
            Placement::Auto => {
                sf_abi_sdk::machine::memory_total().is_none_or(|total| len as u64 <= total / 4)
            }
        };
        if copied {
            Memory::read(file, bundle.data_offset, len, threads)
        } else {
            Memory::map(file, bundle.data_offset, len)
        }
    }

    /// Memory that begins at a huge page, inside of a reservation that is larger by one.
    fn reserve(len: usize) -> Result<(*mut core::ffi::c_void, usize, NonNull<u8>), ModelError> {
        let taken = len.checked_add(HUGE).ok_or_else(|| ModelError::memory(len, rustix::io::Errno::NOMEM))?;
        // SAFETY: a new anonymous mapping at no fixed address.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                taken,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| ModelError::memory(len, errno))?;
        let skipped = base.addr().next_multiple_of(HUGE) - base.addr();
        let at = NonNull::new(base.cast::<u8>().wrapping_add(skipped)).expect("inside of a mapping");
        Ok((base, taken, at))
    }

    fn read(file: &File, offset: u64, len: usize, threads: usize) -> Result<Memory, ModelError> {
        let (base, taken, at) = Memory::reserve(len)?;
        let memory = Memory { at, len, base, taken, mapped: false };
        #[cfg(target_os = "linux")]
        // SAFETY: advice about our own mapping. Where there are no huge pages small ones do.
        let _ = unsafe { rustix::mm::madvise(at.as_ptr().cast(), len, Advice::LinuxHugepage) };
        // SAFETY: our own memory, which nobody reads yet; all zero bytes are bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), len) };
        // A bundle without weights is refused when they are looked for.
        let share = len.div_ceil(threads.max(1)).next_multiple_of(HUGE).max(HUGE);
        std::thread::scope(|scope| {
            let readers: Vec<_> = bytes
                .chunks_mut(share)
                .enumerate()
                .map(|(number, part)| {
                    scope.spawn(move || {
                        let start = offset + (number * share) as u64;
                        let mut pieces = part.chunks_mut(READ_BYTES).enumerate();
                        pieces.try_for_each(|(piece, to)| {
                            file.read_exact_at(to, start + (piece * READ_BYTES) as u64)
                        })
                    })
                })
                .collect();
            readers.into_iter().try_for_each(|reader| {
                reader.join().map_err(|_| std::io::Error::other("a reading thread panicked"))?
            })
        })
        .map_err(ModelError::Read)?;
        // SAFETY: our own pages; weights are not written to again.
        unsafe { rustix::mm::mprotect(at.as_ptr().cast(), len, rustix::mm::MprotectFlags::READ) }
            .map_err(|errno| ModelError::memory(len, errno))?;
        Ok(memory)
    }

    fn map(file: &File, offset: u64, len: usize) -> Result<Memory, ModelError> {
        let (base, taken, at) = Memory::reserve(len)?;
        let memory = Memory { at, len, base, taken, mapped: true };
        // SAFETY: replaces a part of our own reservation.
        unsafe {
            rustix::mm::mmap(
                at.as_ptr().cast(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::FIXED,
                file.as_fd(),
                offset,
            )
        }
        .map_err(|errno| ModelError::memory(len, errno))?;
        #[cfg(target_os = "linux")]
        for advice in [Advice::LinuxHugepage, Advice::WillNeed] {
            // SAFETY: advice about our own mapping; a kernel may decline.
            let _ = unsafe { rustix::mm::madvise(at.as_ptr().cast(), len, advice) };
        }
        Ok(memory)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    fn slice(&self, start: u64, bytes: u64) -> &[u8] {
        let start = usize::try_from(start).expect("inside of the section");
        let bytes = usize::try_from(bytes).expect("inside of the section");
        assert!(
            start <= self.len && bytes <= self.len - start,
            "tensors were checked to be inside of the file"
        );
        // SAFETY: inside of the mapping, which lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr().wrapping_add(start), bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: taken by `reserve`; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base, self.taken) };
    }
}

/// A matrix: parts of one layout each, which follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) parts: Vec<Part>,
}

// SAFETY: addresses of weights, which nobody writes to; the network that holds them holds the memory as well.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// Rows with padding.
    pub(crate) fn padded(&self) -> usize {
        self.parts.iter().map(|part| part.groups * 16).sum()
    }

    /// Whether some part takes quantized activations.
    pub(crate) fn takes_codes(&self) -> bool {
        self.parts.iter().any(|part| part.layout.is_coded())
    }

    /// Whether some part takes floats.
    pub(crate) fn takes_floats(&self) -> bool {
        self.parts.iter().any(|part| !part.layout.is_coded())
    }

    /// One row's elements.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let group = row / 16;
        let Some(part) = self.parts.iter().rev().find(|part| part.first_group <= group) else { return };
        let (group, row) = (group - part.first_group, row % 16);
        // SAFETY: the part's group, which was checked to be inside of the file.
        let bytes = unsafe {
            core::slice::from_raw_parts(part.at.wrapping_add(group * part.group_bytes), part.group_bytes)
        };
        for (column, value) in out.iter_mut().take(part.cols).enumerate() {
            *value = part.layout.element(bytes, row, column);
        }
    }
}

/// Finds tensors by name and checks their shapes.
#[derive(Debug)]
pub(crate) struct Finder<'a> {
    pub(crate) bundle: &'a Bundle,
    pub(crate) memory: &'a Memory,
}

impl Finder<'_> {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.bundle.header.tensors.iter().any(|tensor| tensor.name == name)
    }

    /// A matrix of exactly these rows and columns.
    pub(crate) fn matrix(&self, name: &str, rows: u32, cols: u32) -> Result<Matrix, ModelError> {
        let mut parts = Vec::new();
        let mut next = 0_u32;
        for tensor in self.bundle.header.tensors.iter().filter(|tensor| tensor.name == name) {
            if tensor.row != next
                || !next.is_multiple_of(16)
                || tensor.cols != cols
                || tensor.layout == Layout::F32
            {
                let why = format!(
                    "rows {}.. of {} columns as {}: expected rows from {next} on, of {cols}, in groups of sixteen",
                    tensor.row,
                    tensor.cols,
                    tensor.layout.name()
                );
                return Err(ModelError::tensor(name, why));
            }
            let bytes = self.memory.slice(tensor.offset - self.bundle.data_offset, tensor.bytes);
            let groups = tensor.rows.div_ceil(16) as usize;
            parts.push(Part {
                layout: tensor.layout,
                at: bytes.as_ptr(),
                group_bytes: bytes.len() / groups.max(1),
                groups,
                first_group: (next / 16) as usize,
                cols: cols as usize,
            });
            next = next.saturating_add(tensor.rows);
        }
        if next != rows || parts.is_empty() {
            return Err(ModelError::tensor(name, format!("{next} rows, the architecture needs {rows}")));
        }
        Ok(Matrix { parts })
    }

    /// Plain floats of exactly this many rows and columns, each row padded with zeros to a multiple of 32.
    pub(crate) fn rows(&self, name: &str, rows: u32, cols: u32) -> Result<Vec<f32>, ModelError> {
        let tensor = self.bundle.header.tensors.iter().find(|tensor| tensor.name == name);
        let tensor = tensor.ok_or_else(|| ModelError::tensor(name, "it is missing".to_owned()))?;
        if tensor.layout != Layout::F32 || (tensor.rows, tensor.cols) != (rows, cols) {
            let why = format!(
                "{} x {} as {}, the architecture needs {rows} x {cols} as f32",
                tensor.rows,
                tensor.cols,
                tensor.layout.name()
            );
            return Err(ModelError::tensor(name, why));
        }
        let bytes = self.memory.slice(tensor.offset - self.bundle.data_offset, tensor.bytes);
        let padded = (cols as usize).next_multiple_of(32);
        let mut out = vec![0.0; rows as usize * padded];
        for (to, from) in out.chunks_exact_mut(padded).zip(bytes.chunks_exact(cols as usize * 4)) {
            for (value, bytes) in to.iter_mut().zip(from.chunks_exact(4)) {
                *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
            }
        }
        Ok(out)
    }

    /// A padded vector.
    pub(crate) fn vector(&self, name: &str, len: u32) -> Result<Vec<f32>, ModelError> {
        self.rows(name, 1, len)
    }
}
