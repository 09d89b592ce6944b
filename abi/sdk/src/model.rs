//! An open model behind its handle: serialised calls, lane bookkeeping, and snapshots for the `[any]` calls.
#![expect(unsafe_code, reason = "hands the caller's plan and result on to the step")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use sf_abi::descriptor::EmbeddingFacts;
use sf_abi::*;

use crate::embed::Texts;
use crate::envelope::{self, HEAD_BYTES, Identity};
use crate::fault::{Code, Fault, Scope};
use crate::lanes::{Lane, Lanes};
use crate::open::Control;
use crate::plan::{Plan, StepWriter};
use crate::runtime::{Model, Shape};
use crate::step::StepState;
use crate::wire;

/// What an `sfr_model*` points to.
pub(crate) struct Handle<M> {
    core: Mutex<Core<M>>,
    stats: Mutex<SfrStats>,
    description: String,
    exports: bool,
    embeds: bool,
    lanes: bool,
}

/// The part that only one `[model]` call at a time may touch.
pub(crate) struct Core<M> {
    model: M,
    shape: Shape,
    lanes: Lanes,
    step: StepState,
    identity: Identity,
    embedding: Option<EmbeddingFacts>,
    lanes_offered: bool,
    texts: Texts,
    vectors: Vec<f32>,
    steps: u64,
    tokens_fed: u64,
    /// Words of the panic that made the model unusable.
    dead: Option<String>,
}

impl<M: Model> Handle<M> {
    /// `descriptor` is the runtime's, a part of the identity of what the model saves.
    pub(crate) fn new(model: M, descriptor: &str) -> Result<Handle<M>, Fault> {
        let shape = model.shape();
        let described = model.describe();
        let description = serde_json::to_string(&described).map_err(|error| {
            Fault::new(Code::Internal, format!("the model's description is not JSON: {error}"))
        })?;
        let lanes_offered = model.has_lanes();
        let exports = lanes_offered && model.exports();
        let words = if exports { model.identity() } else { String::new() };
        let core = Core {
            model,
            shape,
            lanes: Lanes::new(shape.lanes_max),
            step: StepState::new(),
            identity: Identity::new(descriptor, &words),
            embedding: described.embedding,
            lanes_offered,
            texts: Texts::new(),
            vectors: Vec::new(),
            steps: 0,
            tokens_fed: 0,
            dead: None,
        };
        let stats = Mutex::new(core.snapshot());
        let (embeds, lanes) = (core.embedding.is_some(), core.lanes_offered);
        Ok(Handle { core: Mutex::new(core), stats, description, exports, embeds, lanes })
    }

    pub(crate) fn exports(&self) -> bool {
        self.exports
    }

    pub(crate) fn has_lanes(&self) -> bool {
        self.lanes
    }

    pub(crate) fn embeds(&self) -> bool {
        self.embeds
    }

    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    pub(crate) fn stats(&self) -> SfrStats {
        *lock(&self.stats)
    }

    /// Runs a `[model]` call. Two at once are the host's mistake and are refused, not undefined.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Core<M>) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Fault::new(Code::Busy, "another [model] call of this model is running"));
            }
        };
        if let Some(words) = &core.dead {
            return Err(Fault::new(Code::State, format!("the model is lost: {words}")).scope(Scope::Model));
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let result = f(&mut core);
            *lock(&self.stats) = core.snapshot();
            result
        }));
        match result {
            Ok(result) => result,
            Err(payload) => {
                let fault = Fault::panicked(&*payload);
                // A payload may panic when it is dropped, outside of any guard.
                core::mem::forget(payload);
                core.dead = Some(fault.message().to_owned());
                Err(fault)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A snapshot is a plain copy: a panic cannot leave half of it behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Model> Core<M> {
    fn snapshot(&self) -> SfrStats {
        let own = self.model.stats();
        SfrStats {
            struct_size: 0,
            lanes_live: self.lanes.live(),
            steps: self.steps,
            tokens_fed: self.tokens_fed,
            bytes_weights: own.bytes_weights,
            bytes_kv: own.bytes_kv,
            bytes_compute: own.bytes_compute,
            bytes_mapped: own.bytes_mapped,
            device_free: own.device_free,
            kv_cells_total: own.kv_cells_total,
            kv_cells_used: own.kv_cells_used,
        }
    }

    pub(crate) fn lane_create(&mut self) -> Result<u64, Fault> {
        self.step.idle()?;
        if !self.lanes_offered {
            return Err(Fault::new(Code::Unsupported, "an encoder makes no text, it has no lanes"));
        }
        let lane = self.lanes.take(0)?;
        self.keep(lane, |model| model.lane_create(lane))
    }

    pub(crate) fn fork(&mut self, parent: u64, upto: u32) -> Result<u64, Fault> {
        self.step.idle()?;
        let (parent, len) = self.lanes.find(parent)?;
        if upto > len {
            return Err(Fault::new(Code::Arg, format!("{upto} positions of a lane of {len}")).field("upto"));
        }
        let child = self.lanes.take(upto)?;
        self.keep(child, |model| model.fork(parent, upto, child))
    }

    fn keep(&mut self, lane: Lane, make: impl FnOnce(&mut M) -> Result<(), Fault>) -> Result<u64, Fault> {
        match make(&mut self.model) {
            Ok(()) => Ok(lane.id()),
            Err(fault) => {
                self.lanes.give_back(lane);
                Err(fault)
            }
        }
    }

    /// Bytes of the envelope of a lane's first `upto` positions.
    pub(crate) fn export_size(&mut self, lane: u64, upto: u32) -> Result<u64, Fault> {
        self.step.idle()?;
        let (lane, len) = self.lanes.find(lane)?;
        if upto == 0 || upto > len {
            return Err(Fault::new(Code::Arg, format!("{upto} positions of a lane of {len}")).field("upto"));
        }
        Ok(self.model.export_size(lane, upto)?.saturating_add(HEAD_BYTES as u64))
    }

    /// Fills an envelope of the size that [`Core::export_size`] just gave.
    pub(crate) fn export(&mut self, lane: u64, upto: u32, envelope: &mut [u8]) -> Result<(), Fault> {
        let (lane, _) = self.lanes.find(lane)?;
        self.model.export(lane, upto, &mut envelope[HEAD_BYTES..])?;
        envelope::seal(envelope, self.identity, upto);
        Ok(())
    }

    /// A new lane from an envelope.
    pub(crate) fn import(&mut self, envelope: &[u8]) -> Result<u64, Fault> {
        self.step.idle()?;
        let (len, state) = envelope::open(envelope, self.identity)?;
        let room = self.shape.lane_tokens_max;
        if len > room {
            let words = format!("a saved state of {len} positions, a lane holds {room}");
            return Err(Fault::new(Code::Capacity, words).field("ctx.max"));
        }
        let lane = self.lanes.take(len)?;
        self.keep(lane, |model| model.import(lane, len, state))
    }

    /// Vectors of texts, into the caller's buffer.
    ///
    /// # Safety
    /// `req` and `out` follow the header.
    pub(crate) unsafe fn embed(&mut self, req: *const SfrEmbed, out: *mut SfrBuf) -> Result<(), Fault> {
        self.step.idle()?;
        let Some(facts) = &self.embedding else {
            return Err(Fault::new(Code::Unsupported, "this model makes no vectors"));
        };
        // SAFETY: the caller's promise.
        let request = unsafe { wire::read(req, "embed") }?;
        // SAFETY: the header says that the page outlives the call.
        let control = unsafe { Control::new(request.control) }?;
        // SAFETY: `request` was just read and the caller promises its arrays.
        unsafe { self.texts.load(&request, self.shape.vocab, facts.tokens_max) }?;
        let floats = self.texts.count() * facts.dims as usize;
        // SAFETY: the buffer is the caller's, for this call.
        let room = unsafe { wire::room(out, floats as u64 * 4) }?;
        self.vectors.clear();
        self.vectors.resize(floats, 0.0);
        self.model.embed(&self.texts.plan(control), &mut self.vectors)?;
        for (to, value) in room.chunks_exact_mut(4).zip(&self.vectors) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }

    pub(crate) fn lane_free(&mut self, lane: u64) -> Result<(), Fault> {
        self.step.idle()?;
        let (lane, _) = self.lanes.find(lane)?;
        self.model.lane_free(lane);
        self.lanes.give_back(lane);
        Ok(())
    }

    pub(crate) fn lane_truncate(&mut self, lane: u64, want: u32) -> Result<u32, Fault> {
        self.step.idle()?;
        let (lane, len) = self.lanes.find(lane)?;
        if want >= len {
            return Ok(len);
        }
        let got = self.model.lane_truncate(lane, len, want)?.min(want);
        self.lanes.set_len(lane, got);
        Ok(got)
    }

    /// # Safety
    /// `plan` follows the header.
    pub(crate) unsafe fn step_begin(&mut self, plan: *const SfrPlan) -> Result<u64, Fault> {
        self.step.idle()?;
        // SAFETY: the caller's promise.
        let plan = unsafe { wire::read(plan, "plan") }?;
        // SAFETY: the header says that the page outlives the step.
        let control = unsafe { Control::new(plan.control) }?;
        // SAFETY: `plan` was just read and the caller promises its arena.
        unsafe { self.step.load(&plan, &mut self.lanes, self.shape) }?;
        let rows = self.step.rows_wanted;
        if !self.step.feeds.is_empty() {
            let view = Plan {
                feeds: &self.step.feeds,
                tokens: &self.step.tokens,
                rows,
                deadline_ns: plan.deadline_ns,
                control,
            };
            let mut writer = StepWriter {
                outs: &mut self.step.outs,
                rows: &mut self.step.rows,
                rows_wanted: rows,
                vocab: self.shape.vocab as usize,
            };
            self.model.step(&view, &mut writer)?;
        }
        self.tokens_fed += self.step.finish(&mut self.lanes)?;
        self.steps += 1;
        Ok(self.step.ticket())
    }

    /// # Safety
    /// `result` follows the header.
    pub(crate) unsafe fn step_end(&mut self, ticket: u64, result: *mut SfrResult) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.step.end(ticket, result, self.shape.vocab) }
    }
}
