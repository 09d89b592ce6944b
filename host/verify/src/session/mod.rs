//! An open model under test: its lanes and steps, with every answer held against the header.
#![expect(unsafe_code, reason = "calls the engine's table and reads logits")]

mod step;
mod tables;

use core::ffi::{CStr, c_void};

use sf_abi::descriptor::{Capability, Descriptor, ModelDescription};
use sf_abi::{
    SF_EMBED_1, SF_KV_1, SFR_E_UNSUPPORTED, SfrEmbedVt, SfrEngineVt, SfrError, SfrKvVt, SfrModel, SfrStats,
    SfrStatus,
};

pub(crate) use step::Step;
pub(crate) use tables::{Kv, Peek};

use crate::compare::Closeness;
use crate::journal::{Broken, broken, ensure};
use crate::options::{OpenCall, close};
use crate::raw::{Bound, Refusal, call, copy_table, refused, worked};
use crate::vectors::Vectors;

/// An open model.
pub(crate) struct Session {
    engine: SfrEngineVt,
    model: *mut SfrModel,
    kv: Option<SfrKvVt>,
    steps: u64,
    lanes: Vec<u64>,
    ever: Vec<u64>,
    pub(crate) description: ModelDescription,
    pub(crate) descriptor: Descriptor,
    pub(crate) closeness: Closeness,
}

// SAFETY: a model's calls are serialised per model and the OS thread may change; the checks move a session to another
// thread only when the descriptor does not claim thread affinity.
unsafe impl Send for Session {}

impl Session {
    /// Opens the model and reads what it says about itself.
    pub(crate) fn open(bound: &Bound, request: &OpenCall) -> Result<Session, Broken> {
        let descriptor: Descriptor = serde_json::from_str(bound.descriptor()?)
            .map_err(|error| broken!("the descriptor does not parse: {error}"))?;
        let engine = bound.engine()?;
        let model = worked(request.run(&engine).0, "open")?;
        ensure!(!model.is_null(), "open returned OK and a NULL model");
        let mut session = Session {
            engine,
            model,
            kv: None,
            steps: 0,
            lanes: Vec::new(),
            ever: Vec::new(),
            description: ModelDescription::default(),
            descriptor,
            closeness: Closeness::Near,
        };
        session.description = serde_json::from_str(&session.describe()?)
            .map_err(|error| broken!("describe() does not parse: {error}"))?;
        ensure!(session.vocab() > 0, "describe().model.vocab is 0 or missing");
        if session.capability("determinism", "batch_invariant").is_some_and(is_yes) {
            session.closeness = Closeness::Exact;
        }
        let at: *const SfrKvVt = session.interface(SF_KV_1).cast();
        if !at.is_null() {
            session.kv = Some(copy_table(at, |vt| vt.struct_size)?.0);
        }
        Ok(session)
    }

    /// Logits in a row.
    pub(crate) fn vocab(&self) -> u32 {
        self.description.model.vocab
    }

    /// The effective value of a whole-number option.
    pub(crate) fn effective(&self, key: &str) -> Option<u32> {
        self.description.effective.get(key)?.as_u64().and_then(|value| u32::try_from(value).ok())
    }

    /// What the model, else the runtime, says about a capability.
    pub(crate) fn capability(&self, section: &str, name: &str) -> Option<&Capability> {
        let of_model = self.description.capabilities.get(section).and_then(|section| section.get(name));
        of_model.or_else(|| self.descriptor.capabilities.get(section)?.get(name))
    }

    pub(crate) fn describe(&self) -> Result<String, Broken> {
        self.peek().describe()
    }

    pub(crate) fn stats(&self) -> Result<SfrStats, Broken> {
        self.peek().stats()
    }

    /// The calls that may be made from any thread at any time.
    pub(crate) fn peek(&self) -> Peek {
        Peek { engine: self.engine, model: self.model }
    }

    pub(crate) fn interface(&self, id: &CStr) -> *const c_void {
        let get = self.engine.get_interface.expect("checked when the table was read");
        // SAFETY: the model is open and the id NUL-terminated.
        unsafe { get(self.model, id.as_ptr()) }
    }

    pub(crate) fn kv(&self) -> Option<Kv> {
        self.kv.map(|vt| Kv { vt, model: self.model })
    }

    /// The vectors of a model that offers them, of `dims` elements.
    pub(crate) fn vectors(&self, dims: usize) -> Result<Vectors, Broken> {
        let at: *const SfrEmbedVt = self.interface(SF_EMBED_1).cast();
        let (vt, _) = copy_table(at, |vt| vt.struct_size)?;
        // SAFETY: the table is this model's, and whoever asks keeps the session and asks from one thread.
        Ok(unsafe { Vectors::new(vt, self.model, dims) })
    }

    /// Why there are no lanes, where a model makes vectors only: it then must refuse each with E_UNSUPPORTED.
    pub(crate) fn no_lanes(&mut self) -> Result<Option<String>, Broken> {
        let Some(Capability::No(reason)) = self.capability("workload", "completion").cloned() else {
            return Ok(None);
        };
        if self.description.embedding.is_none() {
            return Ok(None);
        }
        refused(self.create(), &[SFR_E_UNSUPPORTED], "a lane of a model that makes no text")?;
        Ok(Some(reason))
    }

    /// Lanes created and not yet freed by [`Session::free`].
    pub(crate) fn live(&self) -> u32 {
        u32::try_from(self.lanes.len()).expect("few lanes")
    }

    /// A new lane.
    pub(crate) fn create(&mut self) -> Result<u64, Refusal> {
        let create = self.engine.lane_create.expect("checked when the table was read");
        let mut lane = u64::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { create(self.model, &raw mut lane, err) })?;
        self.lanes.push(lane);
        Ok(lane)
    }

    /// A new lane where one must be free, with an id never seen before.
    pub(crate) fn lane(&mut self) -> Result<u64, Broken> {
        let lane = worked(self.create(), &format!("lane_create with {} lanes live", self.lanes.len()))?;
        self.adopt(lane)
    }

    /// Records a lane that was made by other means.
    pub(crate) fn adopt(&mut self, lane: u64) -> Result<u64, Broken> {
        if !self.lanes.contains(&lane) {
            self.lanes.push(lane);
        }
        ensure!(!self.ever.contains(&lane), "lane id {lane} was given before; ids are never reused");
        self.ever.push(lane);
        Ok(lane)
    }

    pub(crate) fn free(&mut self, lane: u64) -> Result<(), Refusal> {
        self.lanes.retain(|live| *live != lane);
        call(|err| self.free_raw(lane, err))
    }

    /// `lane_free` with any record.
    pub(crate) fn free_raw(&self, lane: u64, err: *mut SfrError) -> SfrStatus {
        let free = self.engine.lane_free.expect("checked when the table was read");
        // SAFETY: the model is open; the record is live or NULL.
        unsafe { free(self.model, lane, err) }
    }

    /// Frees all live lanes, so that one check's lanes never hinder the next.
    pub(crate) fn sweep(&mut self) -> Result<(), Broken> {
        for lane in core::mem::take(&mut self.lanes) {
            worked(self.free(lane), &format!("lane_free of lane {lane}"))?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, lane: u64, want: u32) -> Result<u32, Refusal> {
        let truncate = self.engine.lane_truncate.expect("checked when the table was read");
        let mut got = u32::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { truncate(self.model, lane, want, &raw mut got, err) })?;
        Ok(got)
    }

    /// Closes the model.
    pub(crate) fn close(self) {
        drop(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        close(&self.engine, self.model);
    }
}

/// True only for a plain "can".
pub(crate) fn is_yes(capability: &Capability) -> bool {
    matches!(capability, Capability::Yes(_))
}
