//! Reads model files' headers safely: GGUF, safetensors dirs, `.base`.
//!
//! Owns the question "what is this path": format, architecture, size, tokenizer and template sources. It reads headers,
//! never weights, and treats every byte as hostile: a count, length or offset is compared with the file's size before it
//! is believed. It decides neither which runtime serves a model nor how its text is tokenized.

mod bundle;
mod directory;
mod error;
mod find;
pub mod gguf;
mod parameters;
pub mod safetensors;
mod split;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sf_base::{Bundle, Kind};

pub use directory::TokenizerFiles;
pub use error::ArtifactError;
pub use find::{DEPTH_MAX, ENTRIES_MAX, Finder, Found};
pub use gguf::Gguf;
pub use safetensors::{Safetensors, SafetensorsError};

/// What kind of model a path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArtifactFormat {
    /// A GGUF file, or the first of several.
    Gguf {
        /// Of the format: 2 or 3.
        version: u32,
    },
    /// A directory with `config.json` and `*.safetensors`.
    SafetensorsDir,
    /// A `.base` bundle.
    Base,
}

impl ArtifactFormat {
    /// As descriptors spell it: `gguf`, `safetensors`, `base`.
    pub fn name(self) -> &'static str {
        match self {
            ArtifactFormat::Gguf { .. } => "gguf",
            ArtifactFormat::SafetensorsDir => "safetensors",
            ArtifactFormat::Base => "base",
        }
    }
}

impl fmt::Display for ArtifactFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArtifactFormat::Gguf { version } => write!(f, "GGUF v{version}"),
            ArtifactFormat::SafetensorsDir => f.write_str("safetensors directory"),
            ArtifactFormat::Base => f.write_str(".base bundle"),
        }
    }
}

/// Architectures that look both ways, by the names that GGUF and `config.json` give them.
const ENCODERS: &[&str] = &[
    "albert",
    "bert",
    "camembert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "jina-bert-v2",
    "jina-bert-v3",
    "modernbert",
    "modern-bert",
    "mpnet",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "nomic_bert",
    "roberta",
    "xlm-roberta",
];

/// A model on disk and its facts.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// What was opened: a file or a directory.
    pub path: PathBuf,
    /// The files with weights, in order; at least one.
    pub files: Vec<PathBuf>,
    /// What kind it is.
    pub format: ArtifactFormat,
    /// E.g. `llama`, `gemma3`; `unknown` where the header does not say.
    pub architecture: String,
    /// E.g. `Q4_K_M`, `bfloat16`; `unknown` where the header does not say.
    pub quantization: String,
    /// Size of [`Artifact::files`] together, bytes.
    pub bytes: u64,
    /// Window it was trained with, positions.
    pub context_trained: Option<u32>,
    /// What its author calls it.
    pub name: Option<String>,
    gguf: Option<Gguf>,
    bundle: Option<Arc<Bundle>>,
}

impl Artifact {
    /// The checked header of a GGUF model.
    pub fn gguf(&self) -> Option<&Gguf> {
        self.gguf.as_ref()
    }

    /// The checked header of a `.base` bundle.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.bundle.as_deref()
    }

    /// Whether models of this architecture make vectors and no text, whatever runtime serves them.
    pub fn is_encoder(&self) -> bool {
        if let Some(bundle) = &self.bundle {
            return bundle.header.architecture.kind == Kind::Encoder;
        }
        ENCODERS.contains(&self.architecture.as_str())
    }

    /// How many numbers its weights are; `None` where the headers do not tell, as with packed integers.
    pub fn parameters(&self) -> Option<u64> {
        match (self.format, &self.gguf) {
            (ArtifactFormat::Gguf { .. }, Some(gguf)) => parameters::of_gguf(gguf, &self.files),
            (ArtifactFormat::SafetensorsDir, _) => parameters::of_safetensors(&self.files),
            _ => self.bundle.as_ref().map(|bundle| bundle.header.parameters),
        }
    }

    /// The tokenizer of a model directory or a bundle; `None` where there is none, and for GGUF files, which hold it in keys.
    ///
    /// # Errors
    /// A file that is there and cannot be read, is no UTF-8 or too large.
    pub fn tokenizer_files(&self) -> Result<Option<TokenizerFiles>, ArtifactError> {
        match (self.format, &self.bundle) {
            (ArtifactFormat::SafetensorsDir, _) => directory::tokenizer(&directory::texts(&self.path)),
            (ArtifactFormat::Base, Some(bundle)) => directory::tokenizer(&bundle::texts(&self.path, bundle)),
            _ => Ok(None),
        }
    }

    /// The model's own chat template, Jinja; `None` for a base model.
    pub fn chat_template(&self) -> Option<String> {
        match (self.format, &self.gguf) {
            (ArtifactFormat::Gguf { .. }, Some(gguf)) => {
                gguf.get("tokenizer.chat_template").and_then(gguf::Value::as_str).map(str::to_owned)
            }
            (ArtifactFormat::SafetensorsDir, _) => directory::chat_template(&directory::texts(&self.path)),
            _ => directory::chat_template(&bundle::texts(&self.path, self.bundle.as_ref()?)),
        }
    }
}

/// Recognises what lies at `path` and reads its header.
///
/// # Errors
/// [`ArtifactError`]: unreadable, of no known format, or a header that breaks a rule.
pub fn open(path: impl AsRef<Path>) -> Result<Artifact, ArtifactError> {
    let path = path.as_ref();
    let unreadable = |source| ArtifactError::Unreadable { path: path.to_owned(), source };
    let facts = std::fs::metadata(path).map_err(unreadable)?;
    if facts.is_dir() {
        return open_directory(path);
    }
    let mut magic = Vec::new();
    std::fs::File::open(path).map_err(unreadable)?.take(4).read_to_end(&mut magic).map_err(unreadable)?;
    match &magic[..] {
        b"GGUF" => open_gguf(path),
        b"BASE" => open_bundle(path),
        other => {
            let found = match other.len() {
                0 => "the file is empty".to_owned(),
                _ => format!("the file starts with {other:02x?}, no known format does"),
            };
            Err(ArtifactError::FormatUnknown { path: path.to_owned(), found })
        }
    }
}

fn open_directory(path: &Path) -> Result<Artifact, ArtifactError> {
    let Some(facts) = directory::read(path)? else {
        let found = "a directory without config.json and *.safetensors".to_owned();
        return Err(ArtifactError::FormatUnknown { path: path.to_owned(), found });
    };
    Ok(Artifact {
        path: path.to_owned(),
        files: facts.files,
        format: ArtifactFormat::SafetensorsDir,
        architecture: facts.architecture,
        quantization: facts.quantization,
        bytes: facts.bytes,
        context_trained: facts.context_trained,
        name: facts.name,
        gguf: None,
        bundle: None,
    })
}

fn open_bundle(path: &Path) -> Result<Artifact, ArtifactError> {
    let bundle = bundle::open(path)?;
    let header = &bundle.header;
    Ok(Artifact {
        path: path.to_owned(),
        files: vec![path.to_owned()],
        format: ArtifactFormat::Base,
        architecture: header.architecture.family.clone(),
        quantization: header.quantization.clone(),
        bytes: bundle.file_bytes,
        context_trained: Some(header.architecture.context),
        name: header.name.clone(),
        gguf: None,
        bundle: Some(Arc::new(bundle)),
    })
}

fn open_gguf(path: &Path) -> Result<Artifact, ArtifactError> {
    let gguf = Gguf::open(path)?;
    let files = split::parts(path, &gguf)?;
    let mut bytes = 0_u64;
    for file in &files {
        let facts = std::fs::metadata(file);
        let facts = facts.map_err(|source| ArtifactError::Unreadable { path: file.clone(), source })?;
        bytes = bytes.saturating_add(facts.len());
    }
    let text = |key: &'static str| match gguf.get(key) {
        None => Ok(None),
        Some(gguf::Value::String(text)) => Ok(Some(text.to_string())),
        Some(other) => {
            let (expected, found) = ("string", other.kind().name());
            Err(ArtifactError::KeyType { key: key.to_owned(), expected, found })
        }
    };
    let key = "general.architecture";
    let architecture = text(key)?.ok_or(ArtifactError::MissingKey { key })?;
    let context = gguf.get(&format!("{architecture}.context_length")).and_then(gguf::Value::as_u64);
    Ok(Artifact {
        path: path.to_owned(),
        files,
        format: ArtifactFormat::Gguf { version: gguf.version() },
        architecture,
        quantization: gguf.quantization().to_owned(),
        bytes,
        context_trained: context.and_then(|value| value.try_into().ok()),
        name: text("general.name")?,
        gguf: Some(gguf),
        bundle: None,
    })
}
