//! The few shapes every ABI call has: a status with an error record, a two-call buffer, a table of functions, a string.
#![expect(unsafe_code, reason = "reads records and strings that the other side of the ABI wrote")]

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sf_abi::{SFR_ABI_MINOR, SFR_E_SMALL_BUFFER, SFR_OK, SfrArray, SfrBuf, SfrError, SfrStatus, SfrStr};
use sf_core::limits;

use crate::error::{KitError, scope_of};

/// What an error record without words gets.
pub(crate) const NO_MESSAGE: &str = "the runtime gave no message";
/// Times a growing answer is asked for again.
const BUFFER_TRIES_MAX: u32 = 4;

static MAIN: Mutex<()> = Mutex::new(());

/// Serialises the header's `[main]` calls of this process.
pub(crate) fn main_calls() -> MutexGuard<'static, ()> {
    // The lock guards no data of ours, so a panic of another holder spoils nothing.
    MAIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes one call with a fresh error record and turns its status into a result.
pub(crate) fn call(name: &'static str, run: impl FnOnce(*mut SfrError) -> SfrStatus) -> Result<(), KitError> {
    let mut record = SfrError {
        struct_size: size_of::<SfrError>() as u32,
        code: 0,
        native_code: 0,
        scope: 0,
        message_len: 0,
        field_len: 0,
        message: [0; sf_abi::SFR_ERROR_MESSAGE_MAX],
        field: [0; sf_abi::SFR_ERROR_FIELD_MAX],
    };
    match run(&mut record) {
        SFR_OK => Ok(()),
        status if status > 0 => {
            Err(KitError::contract(name, format!("it returned {status}, a status is 0 or negative")))
        }
        status => Err(from_record(name, status, &record)),
    }
}

/// The record in our words. The returned status wins over the record's copy of it.
fn from_record(call: &'static str, code: SfrStatus, record: &SfrError) -> KitError {
    let mut message = words(&record.message, record.message_len);
    if message.is_empty() {
        message = NO_MESSAGE.to_owned();
    }
    let field = words(&record.field, record.field_len);
    KitError::Refused { call, code, scope: scope_of(code, record.scope), message, field }
}

/// At most `len` bytes of a fixed field; bad UTF-8 is replaced, control characters become spaces.
fn words(field: &[std::ffi::c_char], len: u32) -> String {
    let len = (len as usize).min(field.len());
    let bytes: Vec<u8> = field[..len].iter().flat_map(|c| c.to_ne_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// Asks for a variable-size answer, starting with `first` bytes of room and never more than `limit`.
pub(crate) fn buffer(
    name: &'static str,
    first: usize,
    limit: usize,
    mut run: impl FnMut(*mut SfrBuf, *mut SfrError) -> SfrStatus,
) -> Result<Vec<u8>, KitError> {
    let mut bytes = vec![0_u8; first.min(limit)];
    for _ in 0..BUFFER_TRIES_MAX {
        let mut buf = SfrBuf { p: bytes.as_mut_ptr().cast::<c_void>(), cap: bytes.len() as u64, needed: 0 };
        let answer = call(name, |err| run(&mut buf, err));
        let needed = usize::try_from(buf.needed).unwrap_or(usize::MAX);
        match answer {
            Ok(()) if needed <= bytes.len() => {
                bytes.truncate(needed);
                return Ok(bytes);
            }
            Ok(()) => {
                let reason = format!("it claims {needed} bytes written into a buffer of {}", bytes.len());
                return Err(KitError::contract(name, reason));
            }
            Err(error) if error.code() != SFR_E_SMALL_BUFFER => return Err(error),
            Err(_) if needed <= bytes.len() => {
                let reason = format!("it asks for {needed} bytes and was given {}", bytes.len());
                return Err(KitError::contract(name, reason));
            }
            Err(_) if needed > limit => {
                let reason = format!("its answer takes {needed} bytes, the limit is {limit}");
                return Err(KitError::contract(name, reason));
            }
            Err(_) => bytes.resize(needed, 0),
        }
    }
    Err(KitError::contract(name, format!("its answer still grew after {BUFFER_TRIES_MAX} calls")))
}

/// As [`buffer`], for a JSON answer.
pub(crate) fn json(
    name: &'static str,
    first: usize,
    run: impl FnMut(*mut SfrBuf, *mut SfrError) -> SfrStatus,
) -> Result<String, KitError> {
    let bytes = buffer(name, first, limits::RUNTIME_JSON_BYTES_MAX, run)?;
    String::from_utf8(bytes).map_err(|e| KitError::contract(name, format!("its answer is not UTF-8: {e}")))
}

/// Copies a struct or table that begins with `uint32_t struct_size` out of the runtime's memory.
///
/// While the major is 0 the smallest legal size is the whole of `T`; what lies past it is newer than we are.
///
/// # Safety
/// `at` is NULL or points to a struct of the header whose declared size is readable, as L3 of the header promises;
/// `T` is that struct's mirror.
pub(crate) unsafe fn table<T: Copy>(name: &'static str, at: *const c_void) -> Result<T, KitError> {
    if at.is_null() || !at.addr().is_multiple_of(8) {
        return Err(KitError::contract(name, format!("its table stands at {at:p}, not at a multiple of 8")));
    }
    // SAFETY: L3: the struct begins with its writer's size, a uint32_t; alignment was checked.
    let size = unsafe { at.cast::<u32>().read() } as usize;
    if size < size_of::<T>() {
        let reason = format!("its table has {size} bytes, ABI 0.{SFR_ABI_MINOR} needs {}", size_of::<T>());
        return Err(KitError::contract(name, reason));
    }
    // SAFETY: the writer declared at least size_of::<T>() readable bytes, and `at` is aligned to 8.
    Ok(unsafe { at.cast::<T>().read() })
}

/// A member that the header requires.
pub(crate) fn need<F: Copy>(name: &'static str, member: Option<F>) -> Result<F, KitError> {
    member.ok_or_else(|| KitError::contract(name, format!("{name} is NULL in its table")))
}

/// A borrowed view of our text.
pub(crate) fn lend(text: &str) -> SfrStr {
    SfrStr { p: text.as_ptr().cast(), n: text.len() as u64 }
}

/// At most `max` bytes of a string that the other side lent us for this call.
///
/// # Safety
/// `text` is an `sfr_str` of the header: `n` readable bytes at `p`, or `p` NULL.
pub(crate) unsafe fn borrow<'a>(text: SfrStr, max: usize) -> &'a [u8] {
    if text.p.is_null() || text.n == 0 {
        return &[];
    }
    let len = usize::try_from(text.n).unwrap_or(usize::MAX).min(max);
    // SAFETY: the header's sfr_str: `n` bytes are readable at `p`; `len` is not more.
    unsafe { std::slice::from_raw_parts(text.p.cast::<u8>(), len) }
}

/// An array of records in our memory, by address.
pub(crate) fn array<T>(records: &mut [T]) -> SfrArray {
    if records.is_empty() {
        return SfrArray::default();
    }
    let at = records.as_mut_ptr().expose_provenance() as u64;
    SfrArray { at, count: records.len() as u32, stride: size_of::<T>() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sf_abi::{SFR_E_INTERNAL, SFR_SCOPE_MODEL};

    fn record(message: &[u8], message_len: u32) -> KitError {
        call("open", |err| {
            // SAFETY: `call` passes a live record that nobody else holds.
            let err = unsafe { &mut *err };
            for (to, from) in err.message.iter_mut().zip(message) {
                *to = from.cast_signed();
            }
            err.message_len = message_len;
            err.scope = SFR_SCOPE_MODEL;
            SFR_E_INTERNAL
        })
        .unwrap_err()
    }

    #[test]
    fn an_error_always_has_words_whatever_the_record_holds() {
        let check = |bytes: &[u8], len, expect: &str| match record(bytes, len) {
            KitError::Refused { message, scope, .. } => {
                assert_eq!((message.as_str(), scope), (expect, SFR_SCOPE_MODEL));
            }
            other => panic!("{other}"),
        };
        check(b"the file is damaged", 19, "the file is damaged");
        check(b"", 0, NO_MESSAGE);
        check(b"two\nlines", 9, "two lines");
        check(b"\xff\xfe", 2, "\u{fffd}\u{fffd}");
        check(b"short", u32::MAX, "short");
    }

    #[test]
    fn a_positive_status_breaks_the_contract() {
        assert!(matches!(call("open", |_| 3), Err(KitError::Contract { call: "open", .. })));
    }

    /// A callee that needs `needed` bytes and answers `status` when the room suffices.
    fn ask(first: usize, needed: impl Fn(u32) -> u64, written: i32) -> Result<Vec<u8>, KitError> {
        let mut calls = 0;
        buffer("describe", first, 100, |buf, _| {
            calls += 1;
            // SAFETY: `buffer` passes a live record.
            let buf = unsafe { &mut *buf };
            buf.needed = needed(calls);
            if buf.cap < buf.needed { SFR_E_SMALL_BUFFER } else { written }
        })
    }

    #[test]
    fn a_buffer_grows_to_its_limit_and_no_lie_about_it_passes() {
        assert_eq!(ask(8, |_| 3, SFR_OK).unwrap().len(), 3);
        assert_eq!(ask(8, |_| 80, SFR_OK).unwrap().len(), 80);
        let broken = |answer| matches!(answer, Err(KitError::Contract { .. }));
        assert!(broken(ask(8, |_| 101, SFR_OK)), "past the limit");
        assert!(broken(ask(8, |calls| u64::from(calls) * 10, SFR_OK)), "grows for ever");
        assert!(broken(ask(8, |_| 3, SFR_E_SMALL_BUFFER)), "asks for less than it has");
        assert!(broken(buffer("describe", 8, 100, |buf, _| {
            // SAFETY: `buffer` passes a live record.
            unsafe { (*buf).needed = 9 };
            SFR_OK
        })));
    }

    #[test]
    fn a_table_that_is_absent_crooked_or_short_is_refused() {
        #[repr(align(8))]
        struct Aligned([u8; 40]);
        let mut bytes = Aligned([0; 40]);
        bytes.0[..4].copy_from_slice(&15_u32.to_le_bytes());
        let read = |at| {
            // SAFETY: NULL, misaligned, or 40 live bytes that begin with a size of at most 40.
            unsafe { table::<sf_abi::SfrQuery>("query", at) }.map(|query| query.abi_major)
        };
        assert!(read(std::ptr::null()).is_err());
        assert!(read(bytes.0[4..].as_ptr().cast()).is_err());
        assert!(read(bytes.0.as_ptr().cast()).is_err());
        bytes.0[..4].copy_from_slice(&16_u32.to_le_bytes());
        assert_eq!(read(bytes.0.as_ptr().cast()).unwrap(), 0);
    }
}
