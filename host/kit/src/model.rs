//! An open model: lanes, steps, statistics; every answer checked before it is believed.
#![expect(unsafe_code, reason = "calls the functions of sfr_engine_vt and sfr_kv_vt")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sf_abi::descriptor::ModelDescription;
use sf_abi::{
    SF_EMBED_1, SF_KV_1, SFR_E_CAPACITY, SFR_E_SMALL_BUFFER, SFR_E_STATE, SFR_E_UNSUPPORTED, SfrBuf,
    SfrEmbedVt, SfrEngineVt, SfrKvVt, SfrModel, SfrResult, SfrStats,
};
use sf_core::limits;

use crate::calls::{self, call, main_calls, need, table};
use crate::control::ControlPage;
use crate::embed::EmbedRoom;
use crate::error::KitError;
use crate::open::Honoured;
use crate::runtime::Bound;
use crate::step::{StepBuffer, StepView};

/// First room for a description, bytes; most fit.
const JSON_BYTES_FIRST: usize = 16 << 10;
/// Times a step's result may ask for a larger arena.
const ARENA_TRIES_MAX: u32 = 3;

/// A lane by the runtime's own number; never reused by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RuntimeLane(pub u64);

/// A step that was begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Flight {
    ticket: u64,
    seq: u64,
}

/// An open model; closed when dropped. Its owner makes one call at a time.
#[derive(Debug)]
pub struct Model {
    handle: NonNull<SfrModel>,
    bound: Arc<Bound>,
    kv: Option<SfrKvVt>,
    embed: Option<SfrEmbedVt>,
    pub(crate) embed_room: EmbedRoom,
    description: ModelDescription,
    honoured: Vec<(String, Honoured)>,
    flight: Option<Flight>,
    seq: u64,
    control: Arc<ControlPage>,
    /// A page that stands in for `control`, where the words come from another process.
    page: Option<&'static ControlPage>,
}

// SAFETY: the header's [model] calls may come from any thread as long as they are serialised, which `&mut` and the
// lack of `Sync` see to. A runtime with "thread_affinity" must not be moved by its owner.
unsafe impl Send for Model {}

impl Model {
    /// Takes over a handle; nothing is asked of it yet.
    ///
    /// # Safety
    /// `handle` comes from `open` of `bound`, nobody else closes it, and `bound.live` was counted for it.
    pub(crate) unsafe fn adopt(handle: NonNull<SfrModel>, bound: Arc<Bound>) -> Model {
        Model {
            handle,
            bound,
            kv: None,
            embed: None,
            embed_room: EmbedRoom::default(),
            description: ModelDescription::default(),
            honoured: Vec::new(),
            flight: None,
            seq: 0,
            control: Arc::new(ControlPage::new()),
            page: None,
        }
    }

    /// Reads the optional tables and the description.
    pub(crate) fn learn(&mut self) -> Result<(), KitError> {
        let get_interface = need("get_interface", self.table().get_interface)?;
        // SAFETY: [any]; the model is open and the id NUL-terminated.
        let at = unsafe { get_interface(self.handle.as_ptr(), SF_KV_1.as_ptr()) };
        if !at.is_null() {
            // SAFETY: the header says that "sf.kv/1" names an sfr_kv_vt.
            self.kv = Some(unsafe { table::<SfrKvVt>("sf.kv/1", at) }?);
        }
        // SAFETY: as above.
        let at = unsafe { get_interface(self.handle.as_ptr(), SF_EMBED_1.as_ptr()) };
        if !at.is_null() {
            // SAFETY: the header says that "sf.embed/1" names an sfr_embed_vt.
            self.embed = Some(unsafe { table::<SfrEmbedVt>("sf.embed/1", at) }?);
        }
        let json = self.describe_json()?;
        self.description = serde_json::from_str(&json)
            .map_err(|e| KitError::contract("describe", format!("its answer is not a description: {e}")))?;
        let told = self.description.embedding.as_ref().map(|facts| facts.dims > 0 && facts.tokens_max > 0);
        if told != self.embed.map(|_| true) {
            let reason =
                "sf.embed/1 and \"embedding\" with its dims and tokens_max go together, one is missing";
            return Err(KitError::contract("describe", reason));
        }
        Ok(())
    }

    pub(crate) fn set_honoured(&mut self, honoured: Vec<(String, Honoured)>) {
        self.honoured = honoured;
    }

    /// The effective configuration and the model's facts, as read after the open.
    pub fn description(&self) -> &ModelDescription {
        &self.description
    }

    /// What became of each option of the open call, in its order.
    pub fn honoured(&self) -> &[(String, Honoured)] {
        &self.honoured
    }

    /// Lets steps look at a page outside this process's own memory instead of [`Model::control`]'s, e.g. one that is
    /// shared with the server.
    pub fn set_control(&mut self, page: &'static ControlPage) {
        self.page = Some(page);
    }

    /// This process's own page, which every step of this model carries unless another stands in.
    pub fn control(&self) -> &Arc<ControlPage> {
        &self.control
    }

    /// The page that decides: the one that stands in, else this process's own.
    pub fn page(&self) -> &ControlPage {
        self.page.unwrap_or(&self.control)
    }

    /// The handle, for tools that test a runtime through [`Model::table`].
    pub fn as_ptr(&self) -> *mut SfrModel {
        self.handle.as_ptr()
    }

    /// The engine's table.
    pub fn table(&self) -> &SfrEngineVt {
        &self.bound.engine
    }

    /// Optional interfaces of this model that this host knows.
    pub fn interfaces(&self) -> Vec<String> {
        let offered = [("sf.kv/1", self.kv.is_some()), ("sf.embed/1", self.embed.is_some())];
        offered.iter().filter(|(_, there)| *there).map(|(id, _)| (*id).to_owned()).collect()
    }

    pub(crate) fn embed_table(&self) -> Option<SfrEmbedVt> {
        self.embed
    }

    /// Whether lanes can be forked.
    pub fn can_fork(&self) -> bool {
        self.kv.is_some_and(|kv| kv.fork.is_some())
    }

    /// The model's description as the runtime words it.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn describe_json(&self) -> Result<String, KitError> {
        let describe = need("describe", self.table().describe)?;
        calls::json("describe", JSON_BYTES_FIRST, |buf, err| {
            // SAFETY: [any]; buf and err live through the call.
            unsafe { describe(self.handle.as_ptr(), buf, err) }
        })
    }

    /// Numbers of the running model.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn stats(&self) -> Result<SfrStats, KitError> {
        let stats = need("stats", self.table().stats)?;
        let size = size_of::<SfrStats>() as u32;
        let mut out = SfrStats { struct_size: size, ..SfrStats::default() };
        // SAFETY: [any]; `out` lives through the call.
        call("stats", |_| unsafe { stats(self.handle.as_ptr(), &mut out) })?;
        if out.struct_size != size {
            return Err(KitError::contract("stats", "it changed struct_size"));
        }
        Ok(out)
    }

    /// Makes an empty lane.
    ///
    /// # Errors
    /// `SFR_E_CAPACITY` when all are taken; else as the runtime says.
    pub fn lane_create(&mut self) -> Result<RuntimeLane, KitError> {
        let create = need("lane_create", self.table().lane_create)?;
        let mut lane = 0;
        // SAFETY: [model] through `&mut`; `lane` and err live through the call.
        call("lane_create", |err| unsafe { create(self.handle.as_ptr(), &mut lane, err) })?;
        Ok(RuntimeLane(lane))
    }

    /// Frees a lane.
    ///
    /// # Errors
    /// As the runtime says.
    pub fn lane_free(&mut self, lane: RuntimeLane) -> Result<(), KitError> {
        let free = need("lane_free", self.table().lane_free)?;
        // SAFETY: [model] through `&mut`; err lives through the call.
        call("lane_free", |err| unsafe { free(self.handle.as_ptr(), lane.0, err) })
    }

    /// Cuts a lane to at most `want` positions and returns how many are left.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`] when more than `want` are left.
    pub fn lane_truncate(&mut self, lane: RuntimeLane, want: u32) -> Result<u32, KitError> {
        let truncate = need("lane_truncate", self.table().lane_truncate)?;
        let mut got = 0;
        // SAFETY: [model] through `&mut`; `got` and err live through the call.
        call("lane_truncate", |err| unsafe { truncate(self.handle.as_ptr(), lane.0, want, &mut got, err) })?;
        if got > want {
            return Err(KitError::contract(
                "lane_truncate",
                format!("{got} positions are left of {want} wanted"),
            ));
        }
        Ok(got)
    }

    /// Makes a lane that holds the first `upto` positions of another.
    ///
    /// # Errors
    /// `SFR_E_UNSUPPORTED` when the model cannot fork; else as the runtime says.
    pub fn fork(&mut self, parent: RuntimeLane, upto: u32) -> Result<RuntimeLane, KitError> {
        let Some(fork) = self.kv.and_then(|kv| kv.fork) else {
            return Err(KitError::refused("fork", SFR_E_UNSUPPORTED, "", "this model cannot fork a lane"));
        };
        let mut child = 0;
        // SAFETY: [model] through `&mut`; `child` and err live through the call.
        call("fork", |err| unsafe { fork(self.handle.as_ptr(), parent.0, upto, &mut child, err) })?;
        Ok(RuntimeLane(child))
    }

    /// Whether a lane's state can be copied out and back in.
    pub fn can_export(&self) -> bool {
        self.kv.is_some_and(|kv| {
            kv.export_size.is_some() && kv.export_state.is_some() && kv.import_state.is_some()
        })
    }

    /// The runtime's envelope of a lane's first `upto` positions, of at most `limit` bytes.
    ///
    /// # Errors
    /// `SFR_E_UNSUPPORTED` when the model cannot, `SFR_E_CAPACITY` past the limit or without memory for it; else as the
    /// runtime says, or [`KitError::Contract`].
    pub fn export_state(&mut self, lane: RuntimeLane, upto: u32, limit: u64) -> Result<Vec<u8>, KitError> {
        let Some((size, export)) = self.kv.and_then(|kv| kv.export_size.zip(kv.export_state)) else {
            return Err(KitError::refused(
                "export_state",
                SFR_E_UNSUPPORTED,
                "",
                "this model cannot copy a lane",
            ));
        };
        let mut bytes = 0;
        // SAFETY: [model] through `&mut`; `bytes` and err live through the call.
        call("export_size", |err| unsafe { size(self.handle.as_ptr(), lane.0, upto, &mut bytes, err) })?;
        let mut state = Vec::new();
        let fits = usize::try_from(bytes).ok().filter(|_| bytes <= limit);
        let Some(room) = fits.filter(|room| state.try_reserve_exact(*room).is_ok()) else {
            let message = format!("a copy of {bytes} bytes, there is room for {limit} at most");
            return Err(KitError::refused("export_size", SFR_E_CAPACITY, "", message));
        };
        state.resize(room, 0_u8);
        let mut buf = SfrBuf { p: state.as_mut_ptr().cast(), cap: bytes, needed: 0 };
        // SAFETY: [model] through `&mut`; the buffer's memory, `buf` and err live through the call.
        call("export_state", |err| unsafe { export(self.handle.as_ptr(), lane.0, upto, &mut buf, err) })?;
        if buf.needed > bytes || buf.needed == 0 {
            let reason = format!("it wrote {} bytes, export_size said {bytes}", buf.needed);
            return Err(KitError::contract("export_state", reason));
        }
        state.truncate(buf.needed as usize);
        Ok(state)
    }

    /// Makes a lane from an envelope.
    ///
    /// # Errors
    /// `SFR_E_UNSUPPORTED` when the model cannot; else as the runtime says.
    pub fn import_state(&mut self, state: &[u8]) -> Result<RuntimeLane, KitError> {
        let Some(import) = self.kv.and_then(|kv| kv.import_state) else {
            return Err(KitError::refused(
                "import_state",
                SFR_E_UNSUPPORTED,
                "",
                "this model cannot take a copy",
            ));
        };
        let (at, len, mut lane) = (state.as_ptr().cast(), state.len() as u64, 0);
        // SAFETY: [model] through `&mut`; the envelope, `lane` and err live through the call.
        call("import_state", |err| unsafe { import(self.handle.as_ptr(), at, len, &mut lane, err) })?;
        Ok(RuntimeLane(lane))
    }

    /// Hands a batch to the runtime, with this model's control page. On an error no lane changed.
    ///
    /// # Errors
    /// `SFR_E_STATE` while a step is in flight; else as the runtime says.
    pub fn step_begin(&mut self, step: &mut StepBuffer) -> Result<(), KitError> {
        if self.flight.is_some() {
            return Err(KitError::refused("step_begin", SFR_E_STATE, "", "a step is in flight"));
        }
        let begin = need("step_begin", self.table().step_begin)?;
        self.seq += 1;
        let plan = step.seal(self.seq, self.page().as_abi());
        let mut ticket = 0;
        // SAFETY: [model] through `&mut`; the plan and its arena live through the call, the control page as long
        // as the model.
        call("step_begin", |err| unsafe { begin(self.handle.as_ptr(), &plan, &mut ticket, err) })?;
        self.flight = Some(Flight { ticket, seq: self.seq });
        Ok(())
    }

    /// Waits for the step and checks its answer. `step` is the buffer it was begun with.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`] naming the rule it broke. Either way the step is over.
    pub fn step_end<'m>(&'m mut self, step: &'m mut StepBuffer) -> Result<StepView<'m>, KitError> {
        let Some(flight) = self.flight.filter(|flight| flight.seq == step.seq()) else {
            return Err(KitError::refused("step_end", SFR_E_STATE, "", "this step was not begun"));
        };
        self.flight = None;
        let result = end(self.handle, self.table(), flight, step.answer_room())?;
        // SAFETY: `result` is the answer of step_end for this buffer, and the view borrows the model, so that the
        // logits stay valid for as long as it lives.
        unsafe { step.read(&result, self.description.model.vocab) }
    }

    /// [`Model::step_begin`] and [`Model::step_end`].
    ///
    /// # Errors
    /// As both.
    pub fn step<'m>(&'m mut self, step: &'m mut StepBuffer) -> Result<StepView<'m>, KitError> {
        self.step_begin(step)?;
        self.step_end(step)
    }
}

/// Calls step_end with a growing arena.
fn end(
    handle: NonNull<SfrModel>,
    engine: &SfrEngineVt,
    flight: Flight,
    arena: &mut Vec<u64>,
) -> Result<SfrResult, KitError> {
    let end = need("step_end", engine.step_end)?;
    for _ in 0..ARENA_TRIES_MAX {
        let room = arena.len() * 8;
        let mut result = blank_result(arena);
        // SAFETY: [model]: the caller holds the model exclusively; the result and its arena live through the call.
        let answer = call("step_end", |err| unsafe { end(handle.as_ptr(), flight.ticket, &mut result, err) });
        match answer {
            Ok(()) => return Ok(result),
            Err(error) if error.code() != SFR_E_SMALL_BUFFER => return Err(error),
            Err(_) => {
                let needed = usize::try_from(result.arena_used).unwrap_or(usize::MAX);
                if needed <= room || needed > limits::STEP_ARENA_BYTES_MAX {
                    let limit = limits::STEP_ARENA_BYTES_MAX;
                    let reason = format!(
                        "it asks for an arena of {needed} bytes, was given {room}, the limit is {limit}"
                    );
                    return Err(KitError::contract("step_end", reason));
                }
                arena.resize(needed.div_ceil(8), 0);
            }
        }
    }
    Err(KitError::contract("step_end", format!("its result still grew after {ARENA_TRIES_MAX} calls")))
}

fn blank_result(arena: &mut [u64]) -> SfrResult {
    SfrResult {
        struct_size: size_of::<SfrResult>() as u32,
        flags: 0,
        seq: 0,
        arena: arena.as_mut_ptr().cast(),
        arena_len: (arena.len() * 8) as u64,
        arena_used: 0,
        lanes: sf_abi::SfrArray::default(),
        rows: sf_abi::SfrArray::default(),
        logits: std::ptr::null(),
        logits_rows: 0,
        logits_stride: 0,
        logits_dtype: 0,
        vocab: 0,
        reserved0: 0,
        device_ns: 0,
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            // The step must be over before the model dies; what it brought is of no use any more.
            let _ = end(self.handle, &self.bound.engine, flight, &mut vec![0; 1024]);
        }
        let _main = main_calls();
        if let Some(close) = self.bound.engine.close {
            // SAFETY: [main], serialised by the lock; the handle is ours and dies here.
            unsafe { close(self.handle.as_ptr()) };
        }
        self.bound.live.fetch_sub(1, Ordering::AcqRel);
    }
}
