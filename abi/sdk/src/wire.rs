//! The layout rules L1-L6 of the header: the only place where caller-owned memory becomes Rust values and back.
#![expect(unsafe_code, reason = "reads and writes structs across the C boundary")]

use core::ffi::c_void;
use core::mem::{MaybeUninit, align_of, offset_of, size_of};
use core::ptr;

use sf_abi::*;

use crate::fault::{Code, Fault};

/// No struct of any minor will ever be this large; a size beyond it is garbage and must not be followed.
const STRUCT_BYTES_MAX: usize = 1 << 16;
/// Longest string a caller may pass, in bytes.
pub(crate) const TEXT_BYTES_MAX: u64 = 1 << 30;
/// Most records in one array.
pub(crate) const RECORDS_MAX: u32 = 1 << 20;

/// A struct of the header that is passed by pointer.
///
/// # Safety
/// `repr(C)`, alignment 8, no implicit padding, starts with a `u32` size, and all zero bytes are a valid value.
pub(crate) unsafe trait Sized8: Copy {}
/// A record of an array, without a size of its own.
///
/// # Safety
/// `repr(C)`, no implicit padding, and all zero bytes are a valid value.
pub(crate) unsafe trait Record: Copy {}

macro_rules! sized {
    ($($t:ty),*) => {$(
        // SAFETY: a mirror struct of the header: rules L1 to L3, and its pointers and functions may be null.
        unsafe impl Sized8 for $t {}
        const _: () = assert!(align_of::<$t>() <= 8 && size_of::<$t>() % 8 == 0);
        const _: () = assert!(offset_of!($t, struct_size) == 0);
    )*};
}
sized!(
    SfrError,
    SfrHost,
    SfrOpen,
    SfrPlan,
    SfrResult,
    SfrStats,
    SfrEstimate,
    SfrProbe,
    SfrQuery,
    SfrControl,
    SfrEmbed
);

macro_rules! records {
    ($($t:ty),*) => {$(
        // SAFETY: a mirror record of the header: rules L1 and L2, and its pointers may be null.
        unsafe impl Record for $t {}
    )*};
}
records!(SfrStr, SfrOpt, SfrFeed, SfrLaneOut, SfrRow);

/// Reads a struct by rule L4: the writer's size, a zeroed local, and a tail that must be zero.
///
/// # Safety
/// `from` is NULL or points to as many readable bytes as its first `u32` says.
pub(crate) unsafe fn read<T: Sized8>(from: *const T, what: &str) -> Result<T, Fault> {
    if from.is_null() {
        return Err(Fault::new(Code::Arg, format!("{what} is missing")).field(what));
    }
    if !from.addr().is_multiple_of(8) {
        return Err(Fault::layout(what, "not aligned to 8"));
    }
    // SAFETY: aligned and not null, and the caller promises at least the size word.
    let written = unsafe { from.cast::<u32>().read() } as usize;
    let mine = size_of::<T>();
    if written < mine || written > STRUCT_BYTES_MAX {
        return Err(Fault::layout(what, format_args!("struct_size is {written}, this ABI needs {mine}")));
    }
    // SAFETY: the caller promises `written` readable bytes and `mine <= written`.
    let value = unsafe { from.read() };
    // SAFETY: as above; the range ends at `written`.
    let tail = unsafe { core::slice::from_raw_parts(from.cast::<u8>().wrapping_add(mine), written - mine) };
    if tail.iter().any(|&byte| byte != 0) {
        return Err(Fault::newer(what, "bytes beyond this ABI are set"));
    }
    Ok(value)
}

/// Writes an output struct by rule L4: at most the caller's `struct_size` bytes, and never that field.
///
/// # Safety
/// `to` points to as many writable bytes as its first `u32` says, used by nobody else.
pub(crate) unsafe fn write<T: Sized8>(to: *mut T, value: &T) {
    if !to.addr().is_multiple_of(8) {
        return;
    }
    // SAFETY: aligned, and the caller promises at least the size word.
    let room = unsafe { to.cast::<u32>().read() } as usize;
    let bytes = room.min(size_of::<T>()).saturating_sub(4);
    let source = ptr::from_ref(value).cast::<u8>();
    // SAFETY: both structs are larger than the size word that is skipped.
    let source = unsafe { source.add(4) };
    // SAFETY: as above.
    let target = unsafe { to.cast::<u8>().add(4) };
    // SAFETY: `bytes` stays inside both structs, which are two different objects.
    unsafe { ptr::copy_nonoverlapping(source, target, bytes) };
}

/// Checks the size of an output struct before any work is done for it.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn check_out<T: Sized8>(to: *const T, what: &str) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::new(Code::Arg, format!("{what} is missing")).field(what));
    }
    if !to.addr().is_multiple_of(8) {
        return Err(Fault::layout(what, "not aligned to 8"));
    }
    // SAFETY: aligned and not null, and the caller promises at least the size word.
    let room = unsafe { to.cast::<u32>().read() } as usize;
    if room < size_of::<T>() || room > STRUCT_BYTES_MAX {
        return Err(Fault::layout(
            what,
            format_args!("struct_size is {room}, this ABI needs {}", size_of::<T>()),
        ));
    }
    Ok(())
}

/// Borrows a string.
///
/// # Safety
/// `text.p` points to `text.n` readable bytes that live and stay the same for `'a`.
pub(crate) unsafe fn text<'a>(text: SfrStr, what: &str) -> Result<&'a str, Fault> {
    if text.n == 0 {
        return Ok("");
    }
    if text.p.is_null() || text.n > TEXT_BYTES_MAX {
        return Err(Fault::layout(what, format_args!("a string of {} bytes at {:p}", text.n, text.p)));
    }
    let len = usize::try_from(text.n).expect("64-bit machines only (L6)");
    // SAFETY: not null, and the caller promises the bytes.
    let bytes = unsafe { core::slice::from_raw_parts(text.p.cast::<u8>(), len) };
    core::str::from_utf8(bytes).map_err(|_| Fault::new(Code::Arg, format!("{what} is not UTF-8")).field(what))
}

/// Where the records of an array lie: bounds, alignment and stride are already checked.
pub(crate) struct Span {
    base: *const u8,
    pub(crate) count: usize,
    stride: usize,
}

impl Span {
    /// An array inside an arena; `at` is an offset.
    pub(crate) fn in_arena<T>(
        arena: *const c_void,
        arena_len: u64,
        array: SfrArray,
        what: &str,
    ) -> Result<Span, Fault> {
        if array.count == 0 {
            return Ok(Span { base: ptr::null(), count: 0, stride: 0 });
        }
        let bytes = check_stride::<T>(array, what)?;
        if array.at.checked_add(bytes).is_none_or(|end| end > arena_len) {
            return Err(Fault::layout(
                what,
                format_args!("offset {} and {bytes} bytes, the arena has {arena_len}", array.at),
            ));
        }
        if arena.is_null() || !arena.addr().is_multiple_of(8) || !array.at.is_multiple_of(8) {
            return Err(Fault::layout(what, "the arena or the offset is not aligned to 8"));
        }
        let offset = usize::try_from(array.at).expect("64-bit machines only (L6)");
        let base = arena.cast::<u8>().wrapping_add(offset);
        Ok(Span { base, count: array.count as usize, stride: array.stride as usize })
    }

    /// An array at an address.
    pub(crate) fn at_address<T>(array: SfrArray, what: &str) -> Result<Span, Fault> {
        if array.count == 0 {
            return Ok(Span { base: ptr::null(), count: 0, stride: 0 });
        }
        check_stride::<T>(array, what)?;
        let address = usize::try_from(array.at).expect("64-bit machines only (L6)");
        if address == 0 || !address.is_multiple_of(8) {
            return Err(Fault::layout(what, "missing or not aligned to 8"));
        }
        let base = ptr::with_exposed_provenance::<u8>(address);
        Ok(Span { base, count: array.count as usize, stride: array.stride as usize })
    }

    /// Address of record `i < count`.
    pub(crate) fn address(&self, i: usize) -> *const u8 {
        self.base.wrapping_add(i * self.stride)
    }

    /// Copies record `i` and checks the bytes between my size and the writer's stride.
    ///
    /// # Safety
    /// The array the span was made from is readable, and `i < count`.
    pub(crate) unsafe fn get<T: Record>(&self, i: usize, what: &str) -> Result<T, Fault> {
        let at = self.address(i);
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: `check_stride` made sure that a record is at least this large.
        unsafe { ptr::copy_nonoverlapping(at, value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        for byte in size_of::<T>()..self.stride {
            // SAFETY: still inside the record, whose size is the stride.
            if unsafe { at.wrapping_add(byte).read() } != 0 {
                return Err(Fault::newer(what, format_args!("record {i}: bytes beyond this ABI are set")));
            }
        }
        // SAFETY: `Record` promises that any bytes a caller of the header writes are a value.
        Ok(unsafe { value.assume_init() })
    }

    /// Copies packed `u32` words (a stride of 4) to the end of `to`.
    ///
    /// # Safety
    /// The array the span was made from is readable.
    pub(crate) unsafe fn append_words(&self, to: &mut Vec<u32>) {
        to.reserve(self.count);
        // SAFETY: `reserve` made the room that the pointer below starts at.
        let end = unsafe { to.as_mut_ptr().add(to.len()) };
        if self.count > 0 {
            // SAFETY: `count` words are readable at the base; the room is ours.
            unsafe { ptr::copy_nonoverlapping(self.base, end.cast::<u8>(), self.count * 4) };
        }
        // SAFETY: those words were just written.
        unsafe { to.set_len(to.len() + self.count) };
    }
}

fn check_stride<T>(array: SfrArray, what: &str) -> Result<u64, Fault> {
    let (stride, mine) = (array.stride as usize, size_of::<T>());
    if stride < mine || !stride.is_multiple_of(4) || stride > STRUCT_BYTES_MAX {
        return Err(Fault::layout(what, format_args!("a stride of {stride}, this ABI needs {mine}")));
    }
    if array.count > RECORDS_MAX {
        return Err(Fault::layout(what, format_args!("{} records, at most {RECORDS_MAX}", array.count)));
    }
    Ok(u64::from(array.count) * u64::from(array.stride))
}

/// Borrows bytes of the caller.
///
/// # Safety
/// `p` points to `len` readable bytes that live and stay the same for `'a`.
pub(crate) unsafe fn bytes<'a>(p: *const c_void, len: u64, what: &str) -> Result<&'a [u8], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    let count = usize::try_from(len).ok().filter(|&count| isize::try_from(count).is_ok());
    let Some(count) = count.filter(|_| !p.is_null()) else {
        return Err(Fault::layout(what, format_args!("{len} bytes at {p:p}")));
    };
    // SAFETY: not null and no longer than an object can be, and the caller promises the bytes.
    Ok(unsafe { core::slice::from_raw_parts(p.cast::<u8>(), count) })
}

/// The two-call protocol for what is written in place: `needed` is always set; the room is lent only when it is enough.
///
/// # Safety
/// `to` is NULL or points to an `sfr_buf` whose `p` has `cap` writable bytes that nobody else uses for `'a`.
pub(crate) unsafe fn room<'a>(to: *mut SfrBuf, needed: u64) -> Result<&'a mut [u8], Fault> {
    // SAFETY: the caller's promise.
    let Some(buf) = (unsafe { to.as_mut() }) else {
        return Err(Fault::new(Code::Arg, "there is no buffer for the answer"));
    };
    buf.needed = needed;
    let count = usize::try_from(needed).ok().filter(|&count| isize::try_from(count).is_ok());
    match count {
        Some(0) => Ok(&mut []),
        Some(count) if buf.cap >= needed && !buf.p.is_null() => {
            // SAFETY: `cap` bytes at `p`, written by the host or the system before and ours for the call.
            Ok(unsafe { core::slice::from_raw_parts_mut(buf.p.cast::<u8>(), count) })
        }
        _ => {
            let words = format!("{needed} bytes needed, the buffer has {}", buf.cap);
            Err(Fault::new(Code::SmallBuffer, words))
        }
    }
}

/// The two-call protocol: `needed` is always set; the bytes are written only when all of them fit.
///
/// # Safety
/// As for [`room`].
pub(crate) unsafe fn fill(to: *mut SfrBuf, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { room(to, bytes.len() as u64) }?.copy_from_slice(bytes);
    Ok(())
}

/// Stores through an output pointer; a missing one is an error.
///
/// # Safety
/// `to` is NULL or points to a writable `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::new(Code::Arg, format!("there is no place for {what}")).field(what));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}
