//! Engine errors as they travel from the worker, in frames and in step answers.

use serde::{Deserialize, Serialize};

use super::WireError;
use super::bytes::{Reader, Writer};
use crate::error::EngineError;

/// Bytes of each text that travel.
const TEXT_MAX: usize = 4096;

const LOAD: u32 = 1;
const REFUSED: u32 = 2;
const CONTRACT: u32 = 3;
const OTHER: u32 = 4;

/// Names of calls that an error may carry: [`EngineError`] holds them as `'static`.
const CALLS: [&str; 23] = [
    "query",
    "init",
    "probe",
    "get_interface",
    "open",
    "close",
    "describe",
    "lane_create",
    "lane_free",
    "lane_truncate",
    "step_begin",
    "step_end",
    "step",
    "stats",
    "embed",
    "fork",
    "export_size",
    "export_state",
    "import_state",
    "inspect",
    "estimate",
    "tokenizer",
    "shutdown",
];

/// An [`EngineError`] without its `'static` parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireFault {
    kind: u32,
    call: String,
    code: i32,
    scope: u32,
    message: String,
    field: String,
}

impl WireFault {
    /// Most bytes that [`WireFault::put`] writes.
    pub(crate) const BYTES_MAX: usize = 12 + 3 * (4 + TEXT_MAX);

    pub(crate) fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.kind);
        w.u32(self.code.cast_unsigned());
        w.u32(self.scope);
        for text in [&self.call, &self.message, &self.field] {
            w.text(text, TEXT_MAX);
        }
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (kind, code, scope) = (r.u32()?, r.i32()?, r.u32()?);
        let mut text = || r.text().map(str::to_owned);
        Ok(WireFault { kind, code, scope, call: text()?, message: text()?, field: text()? })
    }
}

impl From<&EngineError> for WireFault {
    fn from(error: &EngineError) -> Self {
        let fault = |kind, call: &str, message: &str, field: &str| WireFault {
            kind,
            call: call.to_owned(),
            code: 0,
            scope: 0,
            message: message.to_owned(),
            field: field.to_owned(),
        };
        match error {
            EngineError::Load { library, reason } => fault(LOAD, "", reason, library),
            EngineError::Refused { call, code, scope, message, field } => {
                WireFault { code: *code, scope: *scope, ..fault(REFUSED, call, message, field) }
            }
            EngineError::Contract { call, reason } => fault(CONTRACT, call, reason, ""),
            EngineError::Died { .. } | EngineError::Hung { .. } | EngineError::System { .. } => {
                fault(OTHER, "", &error.to_string(), "")
            }
        }
    }
}

impl From<WireFault> for EngineError {
    fn from(fault: WireFault) -> Self {
        let call = CALLS.iter().find(|call| **call == fault.call).copied().unwrap_or("call");
        match fault.kind {
            LOAD => EngineError::Load { library: fault.field, reason: fault.message },
            REFUSED => EngineError::Refused {
                call,
                code: fault.code,
                scope: fault.scope,
                message: fault.message,
                field: fault.field,
            },
            CONTRACT => EngineError::Contract { call, reason: fault.message },
            _ => EngineError::System { what: "serve in the worker", reason: fault.message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_a_worker_reports_arrive_unchanged() {
        let check = |error: EngineError| {
            let (mut bytes, sent) = (Vec::new(), WireFault::from(&error));
            sent.put(&mut Writer::new(&mut bytes));
            let mut r = Reader::new(&bytes);
            let got = WireFault::take(&mut r).unwrap();
            r.end().unwrap();
            assert_eq!(EngineError::from(got), error);
        };
        check(EngineError::Load { library: "/x.so".into(), reason: "no".into() });
        check(EngineError::Contract { call: "step_end", reason: "rows overlap".into() });
        check(EngineError::Refused {
            call: "open",
            code: -4,
            scope: 1,
            message: "cannot".into(),
            field: "ctx.max".into(),
        });
    }
}
