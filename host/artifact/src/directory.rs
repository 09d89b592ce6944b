//! Recognises a safetensors directory (`config.json` beside `*.safetensors`) and reads the few facts a choice needs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::ArtifactError;

/// Most bytes of a JSON or template file of a model directory; a `tokenizer_config.json` that lists thousands of tokens has
/// more than one MiB.
const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of a `tokenizer.json`; those of vocabularies of a quarter of a million tokens have 35 MiB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// Most directory entries that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// Facts of a model directory.
pub(crate) struct Directory {
    pub files: Vec<PathBuf>,
    pub bytes: u64,
    pub architecture: String,
    pub quantization: String,
    pub context_trained: Option<u32>,
    pub name: Option<String>,
}

/// Whether a directory with these entries is a model; `path` is the directory.
pub(crate) fn is_model(mut names: impl Iterator<Item = std::ffi::OsString>, path: &Path) -> bool {
    let is_weights = |name: std::ffi::OsString| {
        Path::new(&name).extension().is_some_and(|extension| extension == "safetensors")
    };
    path.join("config.json").is_file() && names.any(is_weights)
}

/// `None` when the directory holds no model.
pub(crate) fn read(path: &Path) -> Result<Option<Directory>, ArtifactError> {
    let unreadable = |source| ArtifactError::Unreadable { path: path.to_owned(), source };
    let (mut files, mut bytes) = (Vec::new(), 0_u64);
    for entry in std::fs::read_dir(path).map_err(unreadable)?.take(ENTRIES_MAX) {
        let entry = entry.map_err(unreadable)?.path();
        if entry.extension().is_some_and(|extension| extension == "safetensors") {
            let facts = std::fs::metadata(&entry);
            bytes += facts.map_err(|source| ArtifactError::Unreadable { path: entry.clone(), source })?.len();
            files.push(entry);
        }
    }
    files.sort();
    let config = path.join("config.json");
    if files.is_empty() || !config.is_file() {
        return Ok(None);
    }
    let text = text(&config)?;
    let facts: Value = serde_json::from_str(&text)
        .map_err(|fault| ArtifactError::Config { path: config.clone(), reason: fault.to_string() })?;
    let string = |key: &str| facts.get(key).and_then(Value::as_str).map(str::to_owned);
    let first = facts.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
    Ok(Some(Directory {
        files,
        bytes,
        architecture: string("model_type")
            .or_else(|| first.map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned()),
        quantization: quantization(&facts),
        context_trained: facts
            .get("max_position_embeddings")
            .and_then(Value::as_u64)
            .and_then(|value| value.try_into().ok()),
        name: string("_name_or_path").filter(|name| !name.is_empty()),
    }))
}

fn quantization(facts: &Value) -> String {
    let block = facts.get("quantization").or_else(|| facts.get("quantization_config"));
    if let Some(bits) = block.and_then(|block| block.get("bits")).and_then(Value::as_u64) {
        return format!("{bits}-bit");
    }
    let named = block.and_then(|block| block.get("quant_method"));
    let dtype = named.or_else(|| facts.get("torch_dtype")).or_else(|| facts.get("dtype"));
    dtype.and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

/// The whole of a small text file.
fn text(path: &Path) -> Result<String, ArtifactError> {
    text_up_to(path, CONFIG_BYTES_MAX)
}

fn text_up_to(path: &Path, limit: u64) -> Result<String, ArtifactError> {
    use std::io::Read;
    let unreadable = |source| ArtifactError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        let reason = format!("more than {limit} bytes");
        return Err(ArtifactError::Config { path: path.to_owned(), reason });
    }
    String::from_utf8(bytes)
        .map_err(|fault| ArtifactError::Config { path: path.to_owned(), reason: fault.to_string() })
}

/// What a model directory says about its tokenizer, file by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: String,
    /// `tokenizer_config.json`.
    pub config: Option<String>,
    /// `generation_config.json`.
    pub generation: Option<String>,
    /// `config.json`.
    pub model: Option<String>,
}

/// A text of a model by its file's name, with the most bytes it may have; `None` = there is none.
type TextOf<'a> = dyn Fn(&str, u64) -> Result<Option<String>, ArtifactError> + 'a;

/// The texts of a model directory.
pub(crate) fn texts(path: &Path) -> impl Fn(&str, u64) -> Result<Option<String>, ArtifactError> + '_ {
    move |name, limit| match text_up_to(&path.join(name), limit) {
        Ok(text) => Ok(Some(text)),
        Err(ArtifactError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// `None` when there is no `tokenizer.json`; a file that is there and cannot be read is an error.
pub(crate) fn tokenizer(text: &TextOf<'_>) -> Result<Option<TokenizerFiles>, ArtifactError> {
    let Some(tokenizer) = text("tokenizer.json", TOKENIZER_BYTES_MAX)? else { return Ok(None) };
    let optional = |name: &str| text(name, CONFIG_BYTES_MAX);
    Ok(Some(TokenizerFiles {
        tokenizer,
        config: optional("tokenizer_config.json")?,
        generation: optional("generation_config.json")?,
        model: optional("config.json")?,
    }))
}

/// The template: a file of its own, or the entry of the tokenizer's configuration.
pub(crate) fn chat_template(text: &TextOf<'_>) -> Option<String> {
    let text = |name: &str| text(name, CONFIG_BYTES_MAX).ok().flatten();
    if let Some(template) = text("chat_template.jinja") {
        return Some(template);
    }
    let config: Value = serde_json::from_str(&text("tokenizer_config.json")?).ok()?;
    match config.get("chat_template")? {
        Value::String(template) => Some(template.clone()),
        Value::Array(named) => named
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))
            .and_then(|entry| entry.get("template")?.as_str().map(str::to_owned)),
        _ => None,
    }
}
