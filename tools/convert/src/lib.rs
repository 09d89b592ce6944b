//! Turns a GGUF file or a directory of safetensors into a directory that MLX reads ([`convert()`]), or into a `.base` bundle,
//! which our own engine maps ([`pack()`]); [`inspect()`] says what any of them is made of.
//!
//! Weights stay what they are where the result has a form for them: plain ones are copied, blocks are repacked. The rest
//! becomes plain floats, or is quantized when that is asked for. Nothing is written before everything is known
//! to be convertible, and nothing takes its place before it was read again.

mod affine;
mod base;
mod blocks;
mod check;
mod codes;
mod config;
mod directory;
mod error;
mod gguf;
mod inspect;
mod kinds;
mod metadata;
mod names;
mod place;
mod plan;
mod report;
mod safetensors;
mod tokenizer;
mod vocabulary;
mod watch;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use sf_artifact::{Artifact, ArtifactFormat};
use sf_codec::{Codec, CodecOptions};

pub use affine::{Affine, Packed};
pub use base::{PackOptions, PackReport, PackShare, Profile, default_name, pack};
pub use error::ConvertError;
pub use inspect::{Inspection, Packed as PackedFrom, TensorLine, inspect};
pub use kinds::Plain;
pub use report::{Report, Share};
pub use watch::Progress;

use place::Place;
use plan::Plan;
use watch::Watch;
use write::Source;

/// Bytes of a safetensors file at which a next one begins.
const FILE_BYTES_MAX: u64 = 5_000_000_000;

/// What is said of a bundle that is to become something else.
const PACKED: &str = "already packed: a .base bundle";

/// What to write besides what is copied or repacked exactly.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Quantize matrices that are plain, or have blocks that MLX has no form for.
    pub quantize: Option<Affine>,
    /// Type of whatever is not quantized; `None` = the source's, and f16 where blocks become plain.
    pub plain: Option<Plain>,
    /// Replace a directory that a conversion wrote.
    pub force: bool,
    /// Most bytes of a safetensors file, unless a tensor alone has more.
    pub file_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { quantize: None, plain: None, force: false, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// A conversion, decided and not begun.
struct Job {
    /// `model_type` of the result.
    architecture: String,
    plan: Plan,
    /// With weights.
    files: Vec<PathBuf>,
    /// Small files of the result, by name.
    texts: Vec<(String, String)>,
    /// Small files that are taken over.
    copies: Vec<PathBuf>,
}

/// Converts the model at `source` into the directory `to`, and reads the result again.
///
/// # Errors
/// What in the source cannot be converted, by its key or tensor; what could not be read or written; a break of `progress`.
/// Whatever the error, `to` is as it was.
pub fn convert(
    source: &Path,
    to: &Path,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, ConvertError> {
    let artifact = open(source)?;
    let place = Place::find(source, to, options.force)?;
    let job = job(&artifact, options)?;
    place.check_room(job.plan.bytes())?;
    let fresh = place.begin()?;
    for (name, text) in &job.texts {
        put(&fresh.join(name), text)?;
    }
    if job.plan.files.len() > 1 {
        put(&fresh.join(directory::INDEX), &pretty(&directory::index(&job.plan)))?;
    }
    for path in &job.copies {
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, fresh.join(name)).map_err(ConvertError::io(path))?;
    }
    let source_bytes = job.plan.source_bytes();
    // It is read twice.
    let mut watch = Watch::new(progress, 2 * source_bytes);
    let source = Source::open(&job.files)?;
    let bytes = write::write(&source, &job.plan, fresh, &mut watch)?;
    let shares = check::check(&source, &job.plan, fresh, &mut watch)?;
    usable(&sf_artifact::open(fresh).map_err(ConvertError::unusable)?)?;
    let directory = place.finish()?;
    let files = job.plan.files.len();
    Ok(Report { directory, architecture: job.architecture, files, bytes, source_bytes, shares })
}

fn open(source: &Path) -> Result<Artifact, ConvertError> {
    sf_artifact::open(source).map_err(|error| ConvertError::Source { path: source.to_owned(), error })
}

fn job(artifact: &Artifact, options: &Options) -> Result<Job, ConvertError> {
    let refused = |found: &str, hint| {
        Err(ConvertError::Format { path: artifact.path.clone(), found: found.to_owned(), hint })
    };
    match (artifact.format, artifact.gguf()) {
        (ArtifactFormat::Gguf { .. }, Some(_)) if artifact.files.len() > 1 => refused(
            "the first of several GGUF files, which are not converted",
            "merge them into one; llama.cpp's gguf-split --merge does",
        ),
        (ArtifactFormat::Gguf { .. }, Some(gguf)) => gguf::job(&artifact.path, gguf, options),
        (ArtifactFormat::SafetensorsDir, _) => directory::job(artifact, options),
        _ => refused(PACKED, "pass the .gguf file, or the directory, that it was packed from"),
    }
}

/// Whether a server could make text of and into the model's tokens.
fn usable(artifact: &Artifact) -> Result<(), ConvertError> {
    Codec::open(artifact, CodecOptions::default()).map(drop).map_err(ConvertError::unusable)
}

fn put(path: &Path, text: &str) -> Result<(), ConvertError> {
    fs::write(path, text).map_err(ConvertError::io(path))
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON can be written") + "\n"
}
