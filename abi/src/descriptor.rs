//! What a runtime says about itself before anything of it runs: the descriptor, the manifest around it, and the
//! JSON answers of `probe` and `describe`.
//!
//! A descriptor is canonical JSON: keys in the order below, no spaces outside strings. The same bytes stand in the
//! library's read-only data, in its descriptor section and in `runtime.json`; a difference is a refusal, so nothing
//! here re-serialises a descriptor in order to compare it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A runtime's static self-description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Version of this schema: 1.
    pub descriptor_version: u32,
    /// `[a-z0-9][a-z0-9._-]*`, e.g. `llamacpp`, `acme.flash`.
    pub id: String,
    /// Other names that `--runtime` accepts.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The runtime's own version.
    pub version: String,
    /// One line for tables.
    #[serde(default)]
    pub about: String,
    /// ABI `[major, minor]` it was built against.
    pub abi: [u32; 2],
    /// What the machine must have.
    #[serde(default)]
    pub requires: Requires,
    /// Where the runtime may be loaded.
    #[serde(default)]
    pub isolation: Isolation,
    /// The runtime must be called from one OS thread only.
    #[serde(default)]
    pub thread_affinity: bool,
    /// Environment variables to set before the library is loaded, e.g. `{"GGML_NO_BACKTRACE": "1"}`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Groups of which only one member may live in a process, e.g. `openmp:gnu`.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// What it reads.
    #[serde(default)]
    pub formats: Vec<Format>,
    /// Interface ids it offers.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// What it can do: section → name → capability.
    #[serde(default)]
    pub capabilities: BTreeMap<String, BTreeMap<String, Capability>>,
    /// Its own options, set by `--<id>-<key>`.
    #[serde(default)]
    pub options: Vec<OptionSpec>,
    /// Names (of libraries) it links dynamically beyond libc, libm, libgcc_s, libpthread, libdl and the loader.
    #[serde(default)]
    pub links: Vec<String>,
}

/// Hardware and system requirements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requires {
    /// CPU features by their `/proc/cpuinfo` names, e.g. `avx2`.
    #[serde(default)]
    pub cpu: Vec<String>,
    /// `linux`, `macos`; empty = any.
    #[serde(default)]
    pub os: Vec<String>,
}

/// Where a runtime may be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In-process or behind the worker.
    #[default]
    Any,
    /// Only behind the worker.
    Worker,
}

/// A model format that a runtime reads. Empty lists mean "no limit that is known before the file is opened".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format {
    /// `gguf`, `safetensors`, `base`, or a name of its own.
    pub format: String,
    /// Format versions.
    #[serde(default)]
    pub versions: Vec<u32>,
    /// Architectures by the format's own names, e.g. `llama`, `gemma3`.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Quantizations by the format's own names, e.g. `Q4_K`.
    #[serde(default)]
    pub quantizations: Vec<String>,
    /// For formats the host does not know: first bytes of the file.
    #[serde(default)]
    pub magic: Option<String>,
    /// For formats the host does not know: file name ending without the dot.
    #[serde(default)]
    pub extension: Option<String>,
}

/// `true`, a reason why not, or a condition. Absent from its map = unknown, which refuses a flag that changes meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Capability {
    /// `true`. `false` is not accepted: a "cannot" carries its reason.
    Yes(True),
    /// Cannot, and why.
    No(String),
    /// Can when the condition holds.
    When {
        /// The condition, in words.
        when: String,
        /// What is true otherwise.
        r#else: String,
    },
}

/// The JSON literal `true` and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "bool", into = "bool")]
pub struct True;

impl TryFrom<bool> for True {
    type Error = &'static str;
    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value {
            Ok(True)
        } else {
            Err("a capability is true, a reason or a condition; false gives no reason")
        }
    }
}

impl From<True> for bool {
    fn from(_: True) -> bool {
        true
    }
}

/// One option of a runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptionSpec {
    /// Key as in `--<id>-<key>`: `[a-z0-9-]+`. On the wire it is `x.<id>.<key>`.
    pub key: String,
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: OptionKind,
    /// Value when not given; `null` = the runtime decides.
    #[serde(default)]
    pub default: Value,
    /// Smallest value, for `int` and `float`.
    #[serde(default)]
    pub min: Option<f64>,
    /// Largest value, for `int` and `float`.
    #[serde(default)]
    pub max: Option<f64>,
    /// Accepted values, for `str`.
    #[serde(default)]
    pub values: Vec<String>,
    /// One line of help.
    #[serde(default)]
    pub help: String,
}

/// Type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionKind {
    /// `on`/`off`, `true`/`false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// A 64-bit float.
    Float,
    /// Text.
    Str,
}

/// `runtime.json`: the descriptor plus what cannot stand inside the library.
///
/// Read the descriptor's exact bytes with [`serde_json::value::RawValue`] when comparing; this type is for the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest<D = Descriptor> {
    /// Version of the manifest schema: 1.
    pub manifest_version: u32,
    /// One per platform.
    pub libraries: Vec<LibraryEntry>,
    /// The descriptor.
    pub descriptor: D,
}

/// One platform's library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryEntry {
    /// As in `std::env::consts::OS`.
    pub os: String,
    /// As in `std::env::consts::ARCH`.
    pub arch: String,
    /// Path relative to the manifest; may not leave its folder.
    pub path: String,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// What `probe` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// Usable on this machine.
    pub available: bool,
    /// Why not, when it is not.
    #[serde(default)]
    pub reason: Option<String>,
    /// Devices it can use.
    #[serde(default)]
    pub devices: Vec<Device>,
}

/// A device that a runtime can compute on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Stable id, e.g. `cpu:0`.
    pub id: String,
    /// Name for people.
    #[serde(default)]
    pub name: String,
    /// `cpu`, `cuda`, `metal`, ...
    #[serde(default)]
    pub backend: String,
    /// Bytes, 0 = unknown.
    #[serde(default)]
    pub memory_total: u64,
}

/// What `describe` answers about an open model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Effective value of every option the runtime knows, by wire key.
    #[serde(default)]
    pub effective: BTreeMap<String, Value>,
    /// Facts about the model.
    #[serde(default)]
    pub model: ModelFacts,
    /// Overrides of the static capabilities for this model.
    #[serde(default)]
    pub capabilities: BTreeMap<String, BTreeMap<String, Capability>>,
    /// What its vectors are, of a model that offers `sf.embed/1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingFacts>,
}

/// The vectors that a model makes of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingFacts {
    /// Elements of a vector.
    pub dims: u32,
    /// How the tokens' vectors become one unless a request says otherwise: `mean`, `first`, `last`.
    pub pooling: String,
    /// Whether vectors have a length of one unless a request says otherwise.
    pub normalized: bool,
    /// Tokens of the longest text.
    pub tokens_max: u32,
}

/// Facts about an open model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Architecture by its format's own name.
    #[serde(default)]
    pub architecture: String,
    /// Tokens in the vocabulary = logits in a row.
    #[serde(default)]
    pub vocab: u32,
    /// Positions the model was trained for, 0 = unknown.
    #[serde(default)]
    pub ctx_trained: u32,
    /// Parameters, 0 = unknown.
    #[serde(default)]
    pub parameters: u64,
    /// Quantization in words.
    #[serde(default)]
    pub quantization: String,
}
