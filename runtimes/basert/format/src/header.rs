//! What a bundle's header says: the model, its texts, and where each tensor is.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

use crate::arch::Arch;
use crate::layout::Layout;

/// Tensors and slots begin at multiples of so many bytes.
pub const ITEM_ALIGN: u64 = 64;
/// The first tensor begins at a multiple of so many bytes: huge pages of every machine we know map it.
pub const DATA_ALIGN: u64 = 2 << 20;

/// Slots that this version knows: files of a model directory, word for word.
pub const SLOTS: [&str; 8] = [
    "1_Pooling/config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// A bundle's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The model's layers.
    pub architecture: Arch,
    /// What its author calls it.
    pub name: Option<String>,
    /// How it was packed: `keep`, `q4`, `q8` or `f16`.
    pub profile: String,
    /// What weights are, for people: `Q4_1`, `q4`.
    pub quantization: String,
    /// What it was made from.
    pub source: Source,
    /// How many numbers its weights are.
    pub parameters: u64,
    /// Texts beside the weights.
    pub slots: Vec<Slot>,
    /// The weights.
    pub tensors: Vec<Tensor>,
}

/// What a bundle was made from, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `gguf` or `safetensors`.
    pub format: String,
    /// What its weights were.
    pub quantization: String,
}

/// Bytes beside the weights: one of [`SLOTS`], or an extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// What it is.
    pub id: String,
    /// Whether a reader that does not know it must refuse the bundle.
    pub required: bool,
    /// From the start of the file.
    pub offset: u64,
    /// Without padding.
    pub bytes: u64,
    /// xxh3-128 of the bytes, in 32 hexadecimal digits.
    pub checksum: String,
}

/// A matrix, some rows of one, or a vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Of the matrix.
    pub name: String,
    /// The first row of the matrix that is here; 0 in one that is whole.
    pub row: u32,
    /// How many are here; 1 in a vector.
    pub rows: u32,
    /// Columns, without padding.
    pub cols: u32,
    /// How they lie.
    #[serde(serialize_with = "layout_out", deserialize_with = "layout_in")]
    pub layout: Layout,
    /// From the start of the file.
    pub offset: u64,
    /// With the layout's padding.
    pub bytes: u64,
    /// xxh3-128 of the bytes, in 32 hexadecimal digits.
    pub checksum: String,
}

fn layout_out<S: Serializer>(layout: &Layout, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(layout.name())
}

fn layout_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
    let name = String::deserialize(deserializer)?;
    Layout::named(&name).ok_or_else(|| {
        let known: Vec<&str> = Layout::ALL.iter().map(|layout| layout.name()).collect();
        D::Error::custom(format!("layout {name:?} is not known, known are {}", known.join(", ")))
    })
}

/// A checksum in the making.
#[derive(Clone, Default)]
pub struct Sum(Xxh3);

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sum")
    }
}

impl Sum {
    /// Of no bytes yet.
    pub fn new() -> Sum {
        Sum::default()
    }

    /// More bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As the header spells it.
    pub fn words(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }
}
