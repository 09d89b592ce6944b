//! Why a model file was refused: one variant per rule, with the byte offset, the value and the limit.

use std::path::PathBuf;

/// A refusal. `Display` is one lowercase sentence with the stable code at its end; [`ArtifactError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The file or directory cannot be read.
    #[error("cannot read {}: {source} (model.unreadable)", path.display())]
    Unreadable {
        /// What was opened.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Neither a GGUF file, nor a `.base` bundle, nor a safetensors directory.
    #[error("{} is no model: {found} (model.format_unknown)", path.display())]
    FormatUnknown {
        /// What was opened.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// The first four bytes are not `GGUF`.
    #[error("the file starts with {value:02x?}, not with \"GGUF\" (model.magic)")]
    Magic {
        /// The first bytes.
        value: [u8; 4],
    },
    /// The header is written in big-endian order.
    #[error(
        "the header at byte 4 is big-endian (version {value:#010x}), only little-endian is read (model.big_endian)"
    )]
    BigEndian {
        /// The version field as read.
        value: u32,
    },
    /// A GGUF version that is not read.
    #[error("GGUF version {value} at byte 4, versions 2 and 3 are read (model.version)")]
    Version {
        /// The version field.
        value: u32,
    },
    /// The file is shorter than its own header says.
    #[error("file ends at byte {file_bytes}, {what} at byte {offset} needs {needs} (model.truncated)")]
    Truncated {
        /// What is cut off.
        what: String,
        /// Where it starts.
        offset: u64,
        /// First byte after it; saturates.
        needs: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// The header is larger than any known model's.
    #[error("the header needs {needs} bytes at byte {offset}, the limit is {limit} (model.header_size)")]
    HeaderSize {
        /// Where the item that crosses the limit starts.
        offset: u64,
        /// First byte after it; saturates.
        needs: u64,
        /// Most bytes of a header.
        limit: u64,
    },
    /// A count that cannot be true.
    #[error("{what} {value} at byte {offset}, at most {limit} are possible here (model.count)")]
    Count {
        /// Which count.
        what: &'static str,
        /// Where it stands.
        offset: u64,
        /// What it says.
        value: u64,
        /// The most that fit.
        limit: u64,
    },
    /// A length that breaks a rule of its own, however large the file.
    #[error("{what} of {value} bytes at byte {offset}, allowed are 1 to {limit} (model.length)")]
    Length {
        /// Length of what.
        what: &'static str,
        /// Where it stands.
        offset: u64,
        /// What it says.
        value: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// A type tag that does not exist.
    #[error("value type {value} of key {key:?} at byte {offset}, known are 0 to 12 (model.value_type)")]
    ValueType {
        /// The key.
        key: String,
        /// Where the tag stands.
        offset: u64,
        /// The tag.
        value: u32,
    },
    /// An array of arrays.
    #[error("key {key:?} at byte {offset} is an array of arrays, nesting is not read (model.nesting)")]
    Nesting {
        /// The key.
        key: String,
        /// Where the inner tag stands.
        offset: u64,
    },
    /// A bool that is neither 0 nor 1.
    #[error("bool {value} of key {key:?} at byte {offset}, allowed are 0 and 1 (model.bool)")]
    Bool {
        /// The key.
        key: String,
        /// Where it stands.
        offset: u64,
        /// Its byte.
        value: u8,
    },
    /// Text that is not UTF-8.
    #[error("{what} at byte {offset} is not UTF-8 from its byte {valid} on (model.utf8)")]
    Utf8 {
        /// Which text.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// Valid bytes before the fault.
        valid: usize,
    },
    /// A key that comes twice.
    #[error("key {key:?} at byte {offset} comes twice (model.duplicate_key)")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it comes again.
        offset: u64,
    },
    /// A tensor name that comes twice.
    #[error("tensor {name:?} at byte {offset} comes twice (model.duplicate_tensor)")]
    DuplicateTensor {
        /// The name.
        name: String,
        /// Where it comes again.
        offset: u64,
    },
    /// A key that must be there is not.
    #[error("key {key:?} is missing (model.missing_key)")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A key with a value of the wrong type.
    #[error("key {key:?} is {found}, expected {expected} (model.key_type)")]
    KeyType {
        /// The key.
        key: String,
        /// The type it must have.
        expected: &'static str,
        /// The type it has.
        found: &'static str,
    },
    /// `general.alignment` is no power of two, or absurd.
    #[error("alignment {value}, allowed are powers of two from 1 to {limit} (model.alignment)")]
    Alignment {
        /// What the file says, bytes.
        value: u64,
        /// The most that is allowed, bytes.
        limit: u64,
    },
    /// Too many dimensions, or more elements than can be counted.
    #[error("tensor {name:?} at byte {offset} has {what} {value}, the limit is {limit} (model.dimensions)")]
    Dimensions {
        /// The tensor.
        name: String,
        /// Where the fault stands.
        offset: u64,
        /// What is too many.
        what: &'static str,
        /// How many; saturates.
        value: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// A tensor type that nobody knows, or that was withdrawn from the format.
    #[error("tensor {name:?} at byte {offset} has the unknown type {value} (model.tensor_type)")]
    TensorType {
        /// The tensor.
        name: String,
        /// Where the type stands.
        offset: u64,
        /// The type.
        value: u32,
    },
    /// A row that is no whole number of quantization blocks.
    #[error(
        "tensor {name:?} at byte {offset} has rows of {value} elements, {kind} needs a multiple of {limit} (model.tensor_block)"
    )]
    TensorBlock {
        /// The tensor.
        name: String,
        /// Where its entry starts.
        offset: u64,
        /// Its type.
        kind: &'static str,
        /// Elements of a row.
        value: u64,
        /// Elements of a block.
        limit: u64,
    },
    /// Data that does not start at a multiple of the alignment.
    #[error(
        "tensor {name:?} at byte {offset} has its data at {value}, no multiple of {limit} (model.tensor_offset)"
    )]
    TensorOffset {
        /// The tensor.
        name: String,
        /// Where the offset stands.
        offset: u64,
        /// The offset, relative to the data section.
        value: u64,
        /// The alignment.
        limit: u64,
    },
    /// One file of several is not there.
    #[error("part {} of the model is missing (model.incomplete)", path.display())]
    PartMissing {
        /// The file that should be there.
        path: PathBuf,
    },
    /// A later file of several was opened instead of the first.
    #[error("{} is part {number} of a split model (model.not_first_part)", path.display())]
    NotFirstPart {
        /// What was opened.
        path: PathBuf,
        /// Its number, from 1.
        number: u64,
    },
    /// A `.base` bundle that breaks a rule of its format.
    #[error(transparent)]
    Bundle(sf_base::BaseError),
    /// A JSON file of a model directory is too large or does not parse.
    #[error("{}: {reason} (model.config)", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ArtifactError {
    /// The stable code, e.g. `model.truncated`.
    pub fn code(&self) -> &'static str {
        match self {
            ArtifactError::Unreadable { .. } => "model.unreadable",
            ArtifactError::FormatUnknown { .. } => "model.format_unknown",
            ArtifactError::Magic { .. } => "model.magic",
            ArtifactError::BigEndian { .. } => "model.big_endian",
            ArtifactError::Version { .. } => "model.version",
            ArtifactError::Truncated { .. } => "model.truncated",
            ArtifactError::HeaderSize { .. } => "model.header_size",
            ArtifactError::Count { .. } => "model.count",
            ArtifactError::Length { .. } => "model.length",
            ArtifactError::ValueType { .. } => "model.value_type",
            ArtifactError::Nesting { .. } => "model.nesting",
            ArtifactError::Bool { .. } => "model.bool",
            ArtifactError::Utf8 { .. } => "model.utf8",
            ArtifactError::DuplicateKey { .. } => "model.duplicate_key",
            ArtifactError::DuplicateTensor { .. } => "model.duplicate_tensor",
            ArtifactError::MissingKey { .. } => "model.missing_key",
            ArtifactError::KeyType { .. } => "model.key_type",
            ArtifactError::Alignment { .. } => "model.alignment",
            ArtifactError::Dimensions { .. } => "model.dimensions",
            ArtifactError::TensorType { .. } => "model.tensor_type",
            ArtifactError::TensorBlock { .. } => "model.tensor_block",
            ArtifactError::TensorOffset { .. } => "model.tensor_offset",
            ArtifactError::PartMissing { .. } => "model.incomplete",
            ArtifactError::NotFirstPart { .. } => "model.not_first_part",
            ArtifactError::Bundle(error) => error.code(),
            ArtifactError::Config { .. } => "model.config",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ArtifactError::Unreadable { .. } => "check the path and its permissions",
            ArtifactError::FormatUnknown { .. } => {
                "pass a .gguf file, a .base bundle, or a directory with config.json and *.safetensors"
            }
            ArtifactError::Magic { .. } => "this is no GGUF file; the download may be an error page",
            ArtifactError::BigEndian { .. } => "convert the model again on or for a little-endian machine",
            ArtifactError::Version { .. } => "convert the model again with a current converter",
            ArtifactError::Truncated { .. } => {
                "the download may be incomplete; fetch the file again and compare its SHA-256"
            }
            ArtifactError::PartMissing { .. } => "fetch all parts into the same directory",
            ArtifactError::NotFirstPart { .. } => "pass the file whose name has -00001-of-",
            ArtifactError::TensorType { .. } => {
                "the model was quantized by a newer or a much older tool; fetch another quantization"
            }
            ArtifactError::Bundle(error) => error.hint(),
            ArtifactError::Config { .. } => "fetch the model's directory again",
            _ => "the file is damaged or was written by a faulty converter; fetch or convert it again",
        }
    }
}
