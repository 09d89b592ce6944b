//! Packs a model into a `.base` bundle, the file that our own engine maps.
//!
//! The source is read sixteen rows at a time and stored as the engine's kernels read it: codes of the source stay what they
//! are where a layout holds them, and everything else is quantized or stays plain, as the profile says. What was written is
//! read again and compared with the source before it takes its place.

mod arch;
mod check;
mod coding;
mod encoder;
mod facts;
mod fit;
mod model;
mod parallel;
mod place;
mod plan;
mod report;
mod rope;
mod rows;
mod wanted;
mod write;

use std::path::Path;

use sf_artifact::{Artifact, ArtifactFormat};
use sf_base::{Arch, Header, Source as Origin};

use crate::error::ConvertError;
use crate::place::check_room;
use crate::watch::{Progress, Watch};
use crate::write::Source;
use crate::{open, usable};

use model::{Model, main_type, model, parameters};
use place::FilePlace;
use plan::Plan;

pub use place::default_name;
pub use report::{PackReport, Share as PackShare};

/// How weights are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// As the source has them.
    #[default]
    Keep,
    /// Plain matrices get four bits, but for the embedding and the head, which get eight; what is quantized stays.
    Q4,
    /// Eight bits and less.
    Q8,
    /// Halves.
    F16,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 4] = [Profile::Keep, Profile::Q4, Profile::Q8, Profile::F16];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Keep => "keep",
            Profile::Q4 => "q4",
            Profile::Q8 => "q8",
            Profile::F16 => "f16",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// How to pack.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackOptions {
    /// How weights are stored.
    pub profile: Profile,
    /// Replace a bundle.
    pub force: bool,
}

/// Packs the model at `source` into the file `to`, and reads the result again.
///
/// # Errors
/// What in the source cannot be packed, by its key or tensor; what could not be read or written; a break of `progress`.
/// Whatever the error, `to` is as it was.
pub fn pack(
    source: &Path,
    to: &Path,
    options: &PackOptions,
    progress: Progress<'_>,
) -> Result<PackReport, ConvertError> {
    let artifact = open(source)?;
    let place = FilePlace::find(to, options.force)?;
    let Model { arch, wanted, entries, files, slots } = model(&artifact)?;
    let parameters = parameters(&entries);
    let origin = origin(&artifact, &main_type(&entries));
    let quantization = match options.profile {
        Profile::Keep => origin.quantization.clone(),
        other => other.name().to_owned(),
    };
    let plan = Plan::new(entries, &wanted, options.profile)?;
    let architecture = arch.family.clone();
    let header = Header {
        architecture: arch,
        name: artifact.name,
        profile: options.profile.name().to_owned(),
        quantization,
        source: origin,
        parameters,
        slots: Vec::new(),
        tensors: Vec::new(),
    };
    let laid = write::lay(header, &slots, &plan);
    check_room(place.to(), laid.file_bytes)?;
    let (bytes, source_bytes) = (laid.file_bytes, plan.source_bytes());
    // It is read twice.
    let mut watch = Watch::new(progress, 2 * source_bytes);
    let source = Source::open(&files)?;
    let (fresh, file) = place.begin()?;
    let of = (&source, &plan, slots.as_slice());
    let header = write::write((fresh, file), laid, of, &mut watch)?;
    let shares = check::check(fresh, &header, of, &mut watch)?;
    usable(&sf_artifact::open(fresh).map_err(ConvertError::unusable)?)?;
    let tensor_bytes = header.tensors.iter().map(|tensor| tensor.bytes).sum();
    let (path, profile) = (place.finish()?, options.profile.name());
    Ok(PackReport { path, architecture, profile, bytes, tensor_bytes, source_bytes, parameters, shares })
}

/// The layers of a model that is no bundle.
pub(crate) fn arch_of(artifact: &Artifact) -> Result<Arch, ConvertError> {
    model(artifact).map(|model| model.arch)
}

fn origin(artifact: &Artifact, main_type: &str) -> Origin {
    let quantization = match (artifact.format, artifact.quantization.as_str()) {
        (ArtifactFormat::SafetensorsDir, _) | (_, "unknown") => main_type,
        (_, known) => known,
    };
    Origin { format: artifact.format.name().to_owned(), quantization: quantization.to_owned() }
}
