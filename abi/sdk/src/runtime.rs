//! The traits a runtime's author implements. Their methods get checked values and return [`Fault`]s.

use std::time::Duration;

use sf_abi::descriptor::{ModelDescription, ProbeAnswer};

use crate::embed::EmbedPlan;
use crate::fault::{Code, Fault};
use crate::host::Host;
use crate::lanes::Lane;
use crate::open::OpenRequest;
use crate::plan::{Plan, StepWriter};

/// A library: one value per process, made by `init`.
pub trait Runtime: Sized + Send + Sync + 'static {
    /// An open model.
    type Model: Model;
    /// A tokenizer without weights; [`NoTokenizer`] when there is none.
    type Tokenizer: Tokenizer;
    /// Whether `sf.inspect/1` is offered.
    const INSPECT: bool = false;
    /// Whether `sf.tokenizer/1` is offered.
    const TOKENIZER: bool = false;

    /// Keeps the host's services. No device, no threads.
    ///
    /// # Errors
    /// What keeps the runtime from working at all.
    fn init(host: Host) -> Result<Self, Fault>;

    /// Joins the threads of the runtime itself; models are closed before.
    fn shutdown(&self) {}

    /// What the runtime can use here. Depth 0 touches no driver library, 1 lists devices, 2 makes a context.
    ///
    /// # Errors
    /// Only a probe that could not be made; "cannot run here" is an answer.
    fn probe(&self, depth: u32, budget: Duration) -> Result<ProbeAnswer, Fault> {
        let _ = (depth, budget);
        Ok(ProbeAnswer { available: true, reason: None, devices: Vec::new() })
    }

    /// Opens a model. Every option that is read from the request counts as honoured.
    ///
    /// # Errors
    /// `Format` for a foreign or damaged file, `Option` for a value that cannot be honoured, ...
    fn open(&self, request: &mut OpenRequest<'_>) -> Result<Self::Model, Fault>;

    /// Facts from the header alone, as JSON. May run at the same time as anything else.
    ///
    /// # Errors
    /// As `open`, without weights.
    fn inspect(&self, request: &OpenRequest<'_>) -> Result<String, Fault> {
        let _ = request;
        Err(Fault::new(Code::Unsupported, "this runtime does not inspect"))
    }

    /// Memory the model would take, from the header alone. May run at the same time as anything else.
    ///
    /// # Errors
    /// As `open`, without weights.
    fn estimate(&self, request: &OpenRequest<'_>) -> Result<Estimate, Fault> {
        let _ = request;
        Err(Fault::new(Code::Unsupported, "this runtime does not estimate"))
    }

    /// Opens the tokenizer without weights. May run at the same time as anything else.
    ///
    /// # Errors
    /// As `open`, without weights.
    fn tokenizer(&self, request: &OpenRequest<'_>) -> Result<Self::Tokenizer, Fault> {
        let _ = request;
        Err(Fault::new(Code::Unsupported, "this runtime has no tokenizer"))
    }
}

/// What about a model never changes after it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Logits in a row = tokens in the vocabulary.
    pub vocab: u32,
    /// Lanes that may live at once, at most 65536.
    pub lanes_max: u32,
    /// Positions one lane may hold.
    pub lane_tokens_max: u32,
}

/// Memory and KV of an open model, in bytes and cells; 0 = none or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Weights.
    pub bytes_weights: u64,
    /// Of those, file-backed pages that the system may drop.
    pub bytes_mapped: u64,
    /// Reserved for KV.
    pub bytes_kv: u64,
    /// Scratch buffers.
    pub bytes_compute: u64,
    /// Free bytes of the device.
    pub device_free: u64,
    /// Positions all lanes together may hold.
    pub kv_cells_total: u64,
    /// Positions held now.
    pub kv_cells_used: u64,
}

/// What a model would take, from its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// 0 none, 1 from the header, 2 measured.
    pub confidence: u32,
    /// Weights, bytes.
    pub bytes_weights: u64,
    /// One position of one lane at the options given, bytes.
    pub bytes_kv_per_token: u64,
    /// What a lane costs however short it is, bytes.
    pub bytes_fixed_per_lane: u64,
    /// Scratch buffers, bytes.
    pub bytes_compute: u64,
    /// Positions the model was trained for, 0 = unknown.
    pub ctx_trained: u32,
    /// 0 = no limit of its own.
    pub lanes_max: u32,
}

/// An open model. The SDK serialises its methods; the thread may change between two calls.
///
/// The `[any]` calls of the header never reach it: `describe` is asked once after `open`, and `stats` after each
/// method below, so that both can be answered while a step runs.
pub trait Model: Send + 'static {
    /// Whether `sf.kv/1` is offered with `fork`.
    const FORK: bool = false;

    /// Sizes; asked once.
    fn shape(&self) -> Shape;

    /// Effective options and facts; asked once.
    fn describe(&self) -> ModelDescription;

    /// Must not touch the device.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Whether it can have lanes; one that only makes vectors has none, and `sf.kv/1` neither. Asked once.
    fn has_lanes(&self) -> bool {
        true
    }

    /// A new, empty lane in a free slot.
    ///
    /// # Errors
    /// The lane then does not exist.
    fn lane_create(&mut self, lane: Lane) -> Result<(), Fault> {
        let _ = lane;
        Ok(())
    }

    /// The lane's slot becomes free; whatever it held must be forgotten.
    fn lane_free(&mut self, lane: Lane) {
        let _ = lane;
    }

    /// Cuts a lane of `len` positions to at most `want < len` and tells how many are left; 0 is always legal.
    ///
    /// # Errors
    /// The lane is then unchanged.
    fn lane_truncate(&mut self, lane: Lane, len: u32, want: u32) -> Result<u32, Fault>;

    /// Makes `child` (an empty lane in a free slot) hold the first `upto` positions of `parent`.
    ///
    /// # Errors
    /// The child then does not exist and the parent is unchanged.
    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        let _ = (parent, upto, child);
        Err(Fault::new(Code::Unsupported, "this model does not fork lanes"))
    }

    /// Whether lanes can be saved and restored: `sf.kv/1` then offers `export_size`, `export_state` and
    /// `import_state`. Asked once.
    fn exports(&self) -> bool {
        false
    }

    /// Names all that a saved state depends on beside the runtime's own descriptor: the model's files, the precision
    /// and layout of the cache, the instruction set. A state is only given back to a model with the same words. Asked
    /// once, of a model that exports.
    fn identity(&self) -> String {
        String::new()
    }

    /// Bytes that [`Model::export`] writes for the first `upto` positions (1 or more) of a lane.
    ///
    /// # Errors
    /// `Unsupported` for a part that this lane cannot give.
    fn export_size(&mut self, lane: Lane, upto: u32) -> Result<u64, Fault> {
        let _ = (lane, upto);
        Err(Fault::new(Code::Unsupported, "this model does not export lanes"))
    }

    /// Writes the first `upto` positions of a lane into all of `out`, whose length [`Model::export_size`] just gave and
    /// whose bytes are arbitrary. The SDK adds identity and checksum.
    ///
    /// # Errors
    /// The lane is unchanged.
    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        let _ = (lane, upto, out);
        Err(Fault::new(Code::Unsupported, "this model does not export lanes"))
    }

    /// Makes `lane` (an empty lane in a free slot) hold the `len` positions of a state that [`Model::export`] of a model
    /// with the same identity wrote.
    ///
    /// # Errors
    /// The lane then does not exist; whatever it held must be forgotten.
    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        let _ = (lane, len, state);
        Err(Fault::new(Code::Unsupported, "this model does not import lanes"))
    }

    /// Writes a vector per text into `out`, one after the other, `dims` floats each. Offered as `sf.embed/1` when
    /// [`Model::describe`] tells of an embedding; texts then have tokens of the vocabulary, and no more than it says.
    ///
    /// # Errors
    /// `Cancelled` when the plan's control says so; `out` is then of no use.
    fn embed(&mut self, plan: &EmbedPlan<'_>, out: &mut [f32]) -> Result<(), Fault> {
        let _ = (plan, out);
        Err(Fault::new(Code::Unsupported, "this model makes no vectors"))
    }

    /// Runs one ragged batch. Feeds are of live lanes at the right position, with tokens of the vocabulary.
    ///
    /// # Errors
    /// No lane has changed then. A fault of one lane goes to [`StepWriter::fault`] instead.
    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault>;
}

/// A vocabulary, immutable and shared between threads.
pub trait Tokenizer: Send + Sync + 'static {
    /// Tokens in the vocabulary.
    fn vocab(&self) -> u32;

    /// Text to tokens. `special`: control tokens written in the text become control tokens. `add_bos`: BOS and EOS
    /// as the model's metadata asks.
    ///
    /// # Errors
    /// A text the vocabulary cannot hold.
    fn encode(&self, text: &str, special: bool, add_bos: bool) -> Result<Vec<u32>, Fault>;

    /// Appends the raw bytes of a token below `vocab`.
    ///
    /// # Errors
    /// A token without bytes is no error; it appends none.
    fn token_bytes(&self, token: u32, out: &mut Vec<u8>) -> Result<(), Fault>;

    /// JSON as in the header.
    fn facts(&self) -> String;
}

/// The tokenizer of a runtime that has none.
#[derive(Debug)]
pub enum NoTokenizer {}

impl Tokenizer for NoTokenizer {
    fn vocab(&self) -> u32 {
        match *self {}
    }
    fn encode(&self, _: &str, _: bool, _: bool) -> Result<Vec<u32>, Fault> {
        match *self {}
    }
    fn token_bytes(&self, _: u32, _: &mut Vec<u8>) -> Result<(), Fault> {
        match *self {}
    }
    fn facts(&self) -> String {
        match *self {}
    }
}
