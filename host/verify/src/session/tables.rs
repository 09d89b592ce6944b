//! The parts of a model that stand beside its steps: what may be called at any time, and its saved lanes.
#![expect(unsafe_code, reason = "calls the model's tables")]

use core::ffi::c_void;

use sf_abi::{SFR_OK, SfrEngineVt, SfrKvVt, SfrModel, SfrStats, SfrStatus};

use crate::journal::{Broken, ensure};
use crate::memory::Guarded;
use crate::raw::{Refusal, call, code_name, fetch, size_u32, worked};

/// The [any] calls of a model.
#[derive(Clone, Copy)]
pub(crate) struct Peek {
    pub(super) engine: SfrEngineVt,
    pub(super) model: *mut SfrModel,
}

// SAFETY: the header tags describe and stats [any].
unsafe impl Sync for Peek {}

impl Peek {
    pub(crate) fn describe(self) -> Result<String, Broken> {
        let describe = self.engine.describe.expect("checked when the table was read");
        // SAFETY: the model is open; the buffer and the record are live.
        fetch("describe", |json, err| unsafe { describe(self.model, json, err) })
    }

    /// The counters.
    pub(crate) fn stats(self) -> Result<SfrStats, Broken> {
        let (status, told) = self.stats_into(size_u32::<SfrStats>());
        ensure!(status == SFR_OK, "stats returned {}", code_name(status));
        ensure!(
            told.struct_size == size_u32::<SfrStats>(),
            "stats changed struct_size to {}",
            told.struct_size
        );
        Ok(told)
    }

    /// `stats` into a struct that says it is of `struct_size` bytes.
    pub(crate) fn stats_into(self, struct_size: u32) -> (SfrStatus, SfrStats) {
        let stats = self.engine.stats.expect("checked when the table was read");
        let out = Guarded::holding(&SfrStats { struct_size, ..SfrStats::default() }, &[]);
        // SAFETY: the model is open and the output holds at least the bytes it declares.
        let status = unsafe { stats(self.model, out.as_ptr().cast()) };
        (status, out.record())
    }
}

/// `sf.kv/1` of a model.
#[derive(Clone, Copy)]
pub(crate) struct Kv {
    pub(super) vt: SfrKvVt,
    pub(super) model: *mut SfrModel,
}

impl Kv {
    pub(crate) fn has_fork(&self) -> bool {
        self.vt.fork.is_some()
    }

    pub(crate) fn has_export(&self) -> bool {
        self.vt.export_size.is_some() && self.vt.export_state.is_some() && self.vt.import_state.is_some()
    }

    /// A child lane, which the session must adopt.
    pub(crate) fn fork(&self, parent: u64, upto: u32) -> Result<u64, Refusal> {
        let fork = self.vt.fork.expect("asked after has_fork");
        let mut child = u64::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { fork(self.model, parent, upto, &raw mut child, err) })?;
        Ok(child)
    }

    pub(crate) fn export(&self, lane: u64, upto: u32, most: usize) -> Result<Vec<u8>, Broken> {
        let (size, export) =
            (self.vt.export_size.expect("asked after has_export"), self.vt.export_state.expect("likewise"));
        let mut bytes = 0u64;
        // SAFETY: the model is open; the output and the record are live.
        let sized = call(|err| unsafe { size(self.model, lane, upto, &raw mut bytes, err) });
        worked(sized, "export_size")?;
        let mut f = |out, err| {
            // SAFETY: the model is open; the buffer and the record are live.
            unsafe { export(self.model, lane, upto, out, err) }
        };
        let state = crate::raw::fetch_bytes("export_state", most, &mut f)?;
        ensure!(bytes >= state.len() as u64, "export_size said {bytes}, export_state wrote {}", state.len());
        Ok(state)
    }

    /// A lane, which the session must adopt.
    pub(crate) fn import(&self, state: &[u8]) -> Result<u64, Refusal> {
        let import = self.vt.import_state.expect("asked after has_export");
        let held = Guarded::copy_of(state);
        let mut lane = u64::MAX;
        let bytes = held.as_ptr().cast::<c_void>();
        // SAFETY: the model is open; the bytes, the output and the record are live.
        call(|err| unsafe { import(self.model, bytes, held.len() as u64, &raw mut lane, err) })?;
        Ok(lane)
    }
}
