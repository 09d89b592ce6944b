//! A source as the packer sees it: its architecture, its tensors by the names of a model directory, its texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sf_artifact::{Artifact, ArtifactFormat, Gguf, Safetensors, SafetensorsError};
use sf_base::{Arch, Kind, SLOTS};

use super::arch::{self, Family};
use super::encoder;
use super::facts::Facts;
use super::wanted::{Use, Wanted, wanted};
use crate::blocks::elements;
use crate::error::ConvertError;
use crate::metadata::Metadata;
use crate::plan::{Entry, Plan};
use crate::write::read_at;
use crate::{Options, PACKED, config, directory, gguf, names, pretty, tokenizer, usable};

const CONFIG: &str = "config.json";
/// Frequencies that GGUF keeps as divisors.
const ROPE: &str = "rope_freqs.weight";
/// Endings of tensors that are computed here, or serve training.
const IGNORED: [&str; 5] =
    ["rotary_emb.inv_freq", "position_ids", "pooler.dense.weight", "pooler.dense.bias", "token_type_ids"];
/// Beginnings of an encoder's heads of training.
const IGNORED_HEADS: [&str; 2] = ["cls.", "lm_head."];

pub(super) struct Model {
    pub(super) arch: Arch,
    pub(super) wanted: Vec<Wanted>,
    pub(super) entries: Vec<Entry>,
    /// With weights.
    pub(super) files: Vec<PathBuf>,
    /// Texts, sorted by what they are.
    pub(super) slots: Vec<(String, Vec<u8>)>,
}

pub(super) fn model(artifact: &Artifact) -> Result<Model, ConvertError> {
    let mut model = match (artifact.format, artifact.gguf()) {
        (ArtifactFormat::Gguf { .. }, Some(gguf)) => of_gguf(artifact, gguf)?,
        (ArtifactFormat::SafetensorsDir, _) => of_directory(artifact)?,
        _ => {
            return Err(ConvertError::Format {
                path: artifact.path.clone(),
                found: PACKED.to_owned(),
                hint: "pass the .gguf file, or the directory, that it was packed from",
            });
        }
    };
    model.slots.sort();
    Ok(model)
}

fn checked(arch: Arch) -> Result<Arch, ConvertError> {
    arch.check().map_err(|error| ConvertError::NoBundle { error })?;
    Ok(arch)
}

fn of_gguf(artifact: &Artifact, first: &Gguf) -> Result<Model, ConvertError> {
    let metadata = Metadata::new(first);
    let kind = names::Kind::of(&metadata)?;
    let options = Options::default();
    let (mut entries, mut divisors) = (Vec::new(), None);
    for (file, path) in artifact.files.iter().enumerate() {
        let other = match file {
            0 => None,
            _ => Some(Gguf::open(path).map_err(|error| ConvertError::Source { path: path.clone(), error })?),
        };
        let gguf = other.as_ref().unwrap_or(first);
        for tensor in gguf.tensors() {
            let at = gguf.data_offset() + tensor.offset;
            if tensor.name == ROPE {
                let bytes = read_at(path, at, tensor.bytes)?;
                let mut values = Vec::new();
                elements(tensor.kind, &bytes, &mut values);
                divisors = Some(values);
                continue;
            }
            let mut entry = gguf::entry(tensor, gguf.data_offset(), &kind, &options)?;
            entry.origin.file = file;
            // Norms are stored whole, as in GGUF.
            entry.offset = 0.0;
            entries.push(entry);
        }
    }
    let plan = Plan::new(entries, &options)?;
    let config = config::config(&metadata, &kind, &plan)?;
    let family = Family::named(kind.model_type)
        .ok_or_else(|| ConvertError::key("general.architecture", format!("is {}", kind.model_type)))?;
    let arch = checked(arch::arch(Facts::new(&config), family, divisors.as_deref())?)?;
    let mut slots = vec![(CONFIG.to_owned(), pretty(&config.into()).into_bytes())];
    let texts = tokenizer::files(&metadata)?;
    slots.extend(texts.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())));
    let wanted = wanted(&arch, "");
    Ok(Model { arch, wanted, entries: plan.entries, files: artifact.files.clone(), slots })
}

fn of_directory(artifact: &Artifact) -> Result<Model, ConvertError> {
    let path = &artifact.path;
    let map = directory::facts(&path.join(CONFIG))?;
    let facts = Facts::new(&map);
    if let Some(key) = directory::packed(&map)? {
        let why = "says that the model is quantized already; pack the model that it was made of";
        return Err(facts.fault(key, why));
    }
    if !path.join("tokenizer.json").is_file() {
        return Err(ConvertError::unusable(format!("there is no tokenizer.json in {}", path.display())));
    }
    usable(artifact)?;
    let model_type = facts.text("model_type").unwrap_or_default();
    let mut offset = 0.0;
    let arch = match (Family::named(model_type), encoder::Family::named(model_type)) {
        (Some(family), _) => {
            offset = family.norm_offset();
            arch::arch(facts, family, None)?
        }
        (None, Some(family)) => encoder::arch(facts, family, &|name| beside(path, name))?,
        (None, None) => {
            let known = Family::names().into_iter().chain(encoder::FAMILIES.iter().map(|row| row.model_type));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(facts.fault("model_type", format!("is {model_type:?}; packed are {known}")));
        }
    };
    let arch = checked(arch)?;
    let (wanted, entries) = entries(artifact, &arch, offset)?;
    let mut slots = Vec::new();
    for id in SLOTS {
        let file = path.join(id);
        if file.is_file() {
            slots.push((id.to_owned(), fs::read(&file).map_err(ConvertError::io(&file))?));
        }
    }
    Ok(Model { arch, wanted, entries, files: artifact.files.clone(), slots })
}

/// The JSON of a file of the directory; `None` where there is none of this name.
fn beside(path: &Path, name: &str) -> Result<Option<Value>, ConvertError> {
    let file = path.join(name);
    if !file.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(ConvertError::io(&file))?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| ConvertError::key(name, format!("is no JSON: {error}")))
}

/// What is wanted, and the source's tensors of it.
fn entries(
    artifact: &Artifact,
    arch: &Arch,
    norm_offset: f32,
) -> Result<(Vec<Wanted>, Vec<Entry>), ConvertError> {
    let mut tensors = Vec::new();
    for (file, path) in artifact.files.iter().enumerate() {
        let header = Safetensors::open(path).map_err(|error| match error {
            SafetensorsError::Io(error) => ConvertError::io(path)(error),
            other => ConvertError::Safetensors { path: path.clone(), why: other.to_string() },
        })?;
        tensors.extend(header.tensors.into_iter().map(|tensor| (file, tensor)));
    }
    let family = encoder::Family::named(&arch.family);
    let encoder = arch.kind == Kind::Encoder;
    let prefix = family.map_or("", |family| family.prefix);
    let prefixed = tensors.iter().any(|(_, tensor)| tensor.name.starts_with(prefix));
    let wanted = wanted(arch, if prefixed { prefix } else { "" });
    let names = wanted.iter().flat_map(|wanted| wanted.from.iter().map(|(name, _)| name.as_str()));
    let names: BTreeSet<&str> = names.collect();
    let norms: BTreeSet<&str> = wanted
        .iter()
        .filter(|wanted| wanted.purpose == Use::Vector && wanted.name.ends_with("_norm"))
        .flat_map(|wanted| wanted.from.iter().map(|(name, _)| name.as_str()))
        .collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (file, mut tensor) in tensors {
        // Old files have other names for the two parts of a norm.
        for (old, new) in [("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")] {
            if let Some(stem) = tensor.name.strip_suffix(old) {
                tensor.name = format!("{stem}{new}");
            }
        }
        let name = tensor.name.clone();
        if !names.contains(name.as_str()) {
            let head = arch.tied && name == "lm_head.weight"
                || encoder && IGNORED_HEADS.iter().any(|head| name.starts_with(head));
            if head || IGNORED.iter().any(|end| name.ends_with(end)) {
                continue;
            }
            return Err(ConvertError::tensor(&name, "is no part of such a model here"));
        }
        let mut entry = directory::entry(&tensor, file, false, &Options::default())?;
        entry.offset = if norms.contains(name.as_str()) { -norm_offset } else { 0.0 };
        found.push(entry);
        if !seen.insert(name.clone()) {
            return Err(ConvertError::tensor(&name, "is there twice"));
        }
    }
    Ok((wanted, found))
}

/// How many weights there are.
pub(super) fn parameters(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.rows * entry.cols).sum()
}

/// The type that most of the elements have, as people write it.
pub(super) fn main_type(entries: &[Entry]) -> String {
    let mut counts = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.origin.kind.name).or_insert(0) += entry.rows * entry.cols;
    }
    let most = counts.into_iter().max_by_key(|&(_, count)| count);
    most.map(|(name, _)| name.to_owned()).unwrap_or_default()
}
