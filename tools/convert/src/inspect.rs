//! What a model says about itself: its architecture, its text, its tensors; and whether a bundle is what was written.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sf_artifact::{Artifact, ArtifactFormat, Gguf, Safetensors};
use sf_base::{Arch, Bundle, Kind};
use sf_codec::{Codec, CodecOptions};

use crate::base::arch_of;
use crate::error::ConvertError;
use crate::open;
use crate::watch::{Progress, Watch};

/// Name of the JSON form; a change of meaning changes the number.
const SCHEMA: &str = "superfluid.inspect/1";

/// A model, described.
#[derive(Debug)]
pub struct Inspection {
    /// What was opened.
    pub path: PathBuf,
    /// E.g. `GGUF v3`.
    pub format: String,
    /// What its author calls it.
    pub name: Option<String>,
    /// E.g. `llama`.
    pub architecture: String,
    /// E.g. `Q4_K_M`.
    pub quantization: String,
    /// How a bundle was packed, and of what.
    pub packed: Option<Packed>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Weights.
    pub parameters: Option<u64>,
    /// Positions it was trained for.
    pub context: Option<u32>,
    /// The layers, or why they would not be packed.
    pub layers: Result<Arch, String>,
    /// The tokenizer and the template in a line, or what is wrong with them.
    pub text: Result<String, String>,
    /// In the order of the files.
    pub tensors: Vec<TensorLine>,
    /// Bytes that were compared with their checksums.
    pub verified: Option<u64>,
}

/// How a bundle was packed, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// `keep`, `q4`, `q8` or `f16`.
    pub profile: String,
    /// `gguf` or `safetensors`.
    pub from: String,
    /// What its weights were.
    pub quantization: String,
}

/// A tensor, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLine {
    /// In its file.
    pub name: String,
    /// Sizes, the slowest first.
    pub shape: Vec<u64>,
    /// E.g. `Q4_1`, `q4m.16x32`.
    pub kind: String,
    /// Of its data.
    pub bytes: u64,
}

/// Reads the headers of the model at `path`, and all of a bundle if `verify` asks for it.
///
/// # Errors
/// What could not be read; a bundle that differs from its checksums; a break of `progress`.
pub fn inspect(path: &Path, verify: bool, progress: Progress<'_>) -> Result<Inspection, ConvertError> {
    let artifact = open(path)?;
    let verified = match (verify, artifact.bundle()) {
        (false, _) => None,
        (true, Some(bundle)) => Some(compare(path, bundle, progress)?),
        (true, None) => return Err(ConvertError::NoChecksums { path: path.to_owned() }),
    };
    let packed = artifact.bundle().map(|bundle| Packed {
        profile: bundle.header.profile.clone(),
        from: bundle.header.source.format.clone(),
        quantization: bundle.header.source.quantization.clone(),
    });
    let layers = match artifact.bundle() {
        Some(bundle) => Ok(bundle.header.architecture.clone()),
        None => arch_of(&artifact).map_err(|error| error.to_string()),
    };
    let codec = Codec::open(&artifact, CodecOptions::default());
    Ok(Inspection {
        format: artifact.format.to_string(),
        name: artifact.name.clone(),
        architecture: artifact.architecture.clone(),
        quantization: artifact.quantization.clone(),
        packed,
        bytes: artifact.bytes,
        parameters: artifact.parameters(),
        context: artifact.context_trained,
        layers,
        text: codec.map(|codec| codec.describe()).map_err(|error| error.to_string()),
        tensors: tensors(&artifact)?,
        verified,
        path: artifact.path,
    })
}

fn tensors(artifact: &Artifact) -> Result<Vec<TensorLine>, ConvertError> {
    if let Some(bundle) = artifact.bundle() {
        let line = |tensor: &sf_base::Tensor| TensorLine {
            name: match tensor.row {
                0 => tensor.name.clone(),
                row => format!("{} from row {row}", tensor.name),
            },
            shape: vec![tensor.rows.into(), tensor.cols.into()],
            kind: tensor.layout.name().to_owned(),
            bytes: tensor.bytes,
        };
        return Ok(bundle.header.tensors.iter().map(line).collect());
    }
    let mut lines = Vec::new();
    for path in &artifact.files {
        if artifact.format == ArtifactFormat::SafetensorsDir {
            let header = Safetensors::open(path)
                .map_err(|error| ConvertError::Safetensors { path: path.clone(), why: error.to_string() })?;
            lines.extend(header.tensors.into_iter().map(|tensor| TensorLine {
                name: tensor.name,
                shape: tensor.shape,
                kind: tensor.dtype.to_owned(),
                bytes: tensor.bytes,
            }));
            continue;
        }
        let gguf = Gguf::open(path).map_err(|error| ConvertError::Source { path: path.clone(), error })?;
        lines.extend(gguf.tensors().iter().map(|tensor| TensorLine {
            name: tensor.name.clone(),
            shape: tensor.dims.iter().rev().copied().skip_while(|&size| size == 1).collect(),
            kind: tensor.kind.name.to_owned(),
            bytes: tensor.bytes,
        }));
    }
    Ok(lines)
}

/// Reads all of a bundle and compares it with its checksums; gives its bytes.
fn compare(path: &Path, bundle: &Bundle, progress: Progress<'_>) -> Result<u64, ConvertError> {
    let file = File::open(path).map_err(ConvertError::io(path))?;
    let mut watch = Watch::new(progress, bundle.file_bytes);
    let (mut done, mut stopped) = (0, None);
    let read = bundle.verify(&file, &mut |at| {
        let step = watch.step(at - done);
        done = at;
        stopped = step.err();
        stopped.is_none()
    });
    match (read, stopped) {
        (Err(error), _) => Err(ConvertError::Damaged { path: path.to_owned(), error }),
        (Ok(_), Some(stopped)) => Err(stopped),
        (Ok(_), None) => Ok(bundle.file_bytes),
    }
}

impl TensorLine {
    fn sizes(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        if sizes.is_empty() { "1".to_owned() } else { sizes.join(" x ") }
    }

    fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Tensors of one type.
struct Sort<'a> {
    kind: &'a str,
    tensors: usize,
    elements: u64,
    bytes: u64,
}

impl Inspection {
    /// By type, the most elements first.
    fn sorts(&self) -> Vec<Sort<'_>> {
        let mut sorts: Vec<Sort<'_>> = Vec::new();
        for line in &self.tensors {
            let at = sorts.iter().position(|sort| sort.kind == line.kind).unwrap_or_else(|| {
                sorts.push(Sort { kind: &line.kind, tensors: 0, elements: 0, bytes: 0 });
                sorts.len() - 1
            });
            let sort = &mut sorts[at];
            sort.tensors += 1;
            sort.elements += line.elements();
            sort.bytes += line.bytes;
        }
        sorts.sort_by_key(|sort| std::cmp::Reverse(sort.elements));
        sorts
    }

    /// A document of a stable schema; every tensor is in it if `tensors` asks for them.
    pub fn json(&self, tensors: bool) -> Value {
        let sorts = self.sorts().into_iter().map(|sort| {
            json!({"type": sort.kind, "tensors": sort.tensors, "elements": sort.elements, "bytes": sort.bytes})
        });
        let lines = self.tensors.iter().map(
            |line| json!({"name": line.name, "shape": line.shape, "type": line.kind, "bytes": line.bytes}),
        );
        json!({
            "schema": SCHEMA,
            "path": self.path,
            "format": self.format,
            "name": self.name,
            "architecture": self.architecture,
            "quantization": self.quantization,
            "profile": self.packed.as_ref().map(|packed| &packed.profile),
            "source": self.packed.as_ref().map(|packed| json!({"format": packed.from, "quantization": packed.quantization})),
            "bytes": self.bytes,
            "parameters": self.parameters,
            "context": self.context,
            "layers": self.layers.as_ref().ok(),
            "not_packed": self.layers.as_ref().err(),
            "text": self.text.as_ref().ok(),
            "text_error": self.text.as_ref().err(),
            "types": sorts.collect::<Vec<_>>(),
            "tensors": tensors.then(|| lines.collect::<Vec<_>>()),
            "verified_bytes": self.verified,
        })
    }

    /// For people.
    pub fn words(&self, tensors: bool) -> String {
        let mut out = self.to_string();
        if tensors {
            let width = |of: &dyn Fn(&TensorLine) -> usize| self.tensors.iter().map(of).max().unwrap_or(0);
            let (name, sizes) = (width(&|line| line.name.len()), width(&|line| line.sizes().len()));
            for line in &self.tensors {
                let (size, kind) = (line.sizes(), &line.kind);
                out += &format!("  {:name$}  {size:>sizes$}  {kind}\n", line.name);
            }
        }
        out
    }
}

/// In words, how a model is built.
fn layers(arch: &Arch) -> String {
    let kind = if arch.kind == Kind::Decoder { "decoder" } else { "encoder" };
    let windows: Vec<u32> = arch.layers.iter().filter_map(|layer| layer.window).collect();
    let windows = match windows.first() {
        Some(window) => format!(", {} of them see {window} positions", windows.len()),
        None => String::new(),
    };
    format!(
        "{kind}, {} layers{windows}, {} heads on {} of {}, hidden {}, feed-forward {}, {} tokens",
        arch.layers.len(),
        arch.heads,
        arch.kv_heads,
        arch.head_dim,
        arch.hidden,
        arch.ffn,
        arch.vocab
    )
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let Inspection { path, format, architecture, quantization, .. } = self;
        writeln!(f, "{}: {format}, {architecture}, {quantization}, {} MiB", path.display(), mib(self.bytes))?;
        if let Some(name) = &self.name {
            writeln!(f, "  name        {name}")?;
        }
        if let Some(Packed { profile, from, quantization }) = &self.packed {
            writeln!(f, "  packed      {profile}, from {from} of {quantization}")?;
        }
        if let Some(parameters) = self.parameters {
            let bits = self.tensors.iter().map(|line| line.bytes).sum::<u64>() as f64 * 8.0
                / parameters.max(1) as f64;
            writeln!(f, "  parameters  {parameters}, {bits:.2} bits each")?;
        }
        match &self.layers {
            Ok(arch) => writeln!(f, "  layers      {}", layers(arch))?,
            Err(why) => writeln!(f, "  layers      not packed: {}", why.replace('\n', " "))?,
        }
        if let Some(context) = self.context {
            writeln!(f, "  context     {context} positions")?;
        }
        match &self.text {
            Ok(text) => writeln!(f, "  text        {text}")?,
            Err(why) => writeln!(f, "  text        unusable: {}", why.replace('\n', " "))?,
        }
        for (number, sort) in self.sorts().into_iter().enumerate() {
            let Sort { kind, tensors, bytes, .. } = sort;
            let head = if number == 0 { "tensors" } else { "" };
            writeln!(f, "  {head:10}  {tensors} of {kind}, {} MiB", mib(bytes))?;
        }
        if let Some(verified) = self.verified {
            writeln!(f, "  verified    {} MiB are what was written", mib(verified))?;
        }
        Ok(())
    }
}
