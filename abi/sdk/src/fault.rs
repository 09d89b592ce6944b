//! What went wrong in a runtime, and how it is written into the caller's `sfr_error`.
#![expect(unsafe_code, reason = "fills a record whose memory the caller owns")]

use core::ffi::c_char;
use core::fmt;

use sf_abi::*;

/// A status code of the header, without the success value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the header documents each code")]
pub enum Code {
    Abi = SFR_E_ABI,
    Arg = SFR_E_ARG,
    Unsupported = SFR_E_UNSUPPORTED,
    Option = SFR_E_OPTION,
    NotFound = SFR_E_NOT_FOUND,
    Format = SFR_E_FORMAT,
    NomemHost = SFR_E_NOMEM_HOST,
    NomemDevice = SFR_E_NOMEM_DEVICE,
    Capacity = SFR_E_CAPACITY,
    Busy = SFR_E_BUSY,
    Cancelled = SFR_E_CANCELLED,
    Deadline = SFR_E_DEADLINE,
    Identity = SFR_E_IDENTITY,
    Checksum = SFR_E_CHECKSUM,
    SmallBuffer = SFR_E_SMALL_BUFFER,
    State = SFR_E_STATE,
    DeviceLost = SFR_E_DEVICE_LOST,
    Fatal = SFR_E_FATAL,
    Internal = SFR_E_INTERNAL,
}

/// What an error costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// This call only.
    Call = SFR_SCOPE_CALL,
    /// One lane.
    Lane = SFR_SCOPE_LANE,
    /// The model must be opened again.
    Model = SFR_SCOPE_MODEL,
    /// Every model of this runtime.
    Runtime = SFR_SCOPE_RUNTIME,
    /// The process must be replaced.
    Process = SFR_SCOPE_PROCESS,
}

/// An error of a runtime: what happened, to what, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    code: Code,
    scope: Scope,
    native: i32,
    message: String,
    field: String,
}

impl Fault {
    /// A fault of this call only. `message` is a lowercase phrase without a final dot.
    pub fn new(code: Code, message: impl Into<String>) -> Fault {
        Fault { code, scope: Scope::Call, native: 0, message: message.into(), field: String::new() }
    }

    /// Names the option, struct field or file it is about.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Fault {
        self.field = field.into();
        self
    }

    /// Widens what the error costs.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Fault {
        self.scope = scope;
        self
    }

    /// Adds the engine's own number.
    #[must_use]
    pub fn native(mut self, native: i32) -> Fault {
        self.native = native;
        self
    }

    /// The status code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The engine's own number, 0 = none.
    pub fn native_code(&self) -> i32 {
        self.native
    }

    /// What the error costs.
    pub fn cost(&self) -> Scope {
        self.scope
    }

    /// The words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A broken layout rule; `what` names the struct or field.
    pub(crate) fn layout(what: &str, why: impl fmt::Display) -> Fault {
        Fault::new(Code::Abi, format!("{what}: {why}")).field(what)
    }

    /// A bit or a byte that this minor does not know.
    pub(crate) fn newer(what: &str, why: impl fmt::Display) -> Fault {
        Fault::new(Code::Unsupported, format!("{what}: {why}")).field(what)
    }

    /// A panic that a slot caught.
    pub(crate) fn panicked(payload: &(dyn core::any::Any + Send)) -> Fault {
        let words = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Fault::new(Code::Internal, format!("the runtime panicked: {words}")).scope(Scope::Model)
    }

    /// Writes the record as far as the caller's struct reaches and gives back the status.
    ///
    /// # Safety
    /// `err` is NULL or points to an `sfr_error` of `struct_size` bytes that only the caller uses.
    pub(crate) unsafe fn store(&self, err: *mut SfrError) -> SfrStatus {
        let status = self.code as i32;
        let mut record = SfrError {
            struct_size: 0,
            code: status,
            native_code: self.native,
            scope: self.scope as u32,
            message_len: 0,
            field_len: 0,
            message: [0; SFR_ERROR_MESSAGE_MAX],
            field: [0; SFR_ERROR_FIELD_MAX],
        };
        record.message_len = put_text(&mut record.message, &self.message);
        record.field_len = put_text(&mut record.field, &self.field);
        if !err.is_null() {
            // SAFETY: the caller's promise above is exactly what `write` asks for.
            unsafe { crate::wire::write(err, &record) };
        }
        status
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Fault {}

/// Copies as much of `text` as fits, cut at a character border; returns the bytes copied.
fn put_text(to: &mut [c_char], text: &str) -> u32 {
    let end = text.floor_char_boundary(to.len());
    for (slot, byte) in to.iter_mut().zip(&text.as_bytes()[..end]) {
        *slot = *byte as c_char;
    }
    u32::try_from(end).expect("a message field is a few hundred bytes")
}
