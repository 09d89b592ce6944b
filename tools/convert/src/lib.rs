//! Turns a GGUF file into a directory that MLX reads: `config.json`, safetensors, and the tokenizer's files.
//!
//! Weights stay what they are: plain ones are copied, and blocks that MLX's affine form holds exactly are repacked. Only
//! what it cannot hold is written as plain floats. Nothing is written before everything is known to be convertible.

mod blocks;
mod check;
mod config;
mod error;
mod kinds;
mod metadata;
mod names;
mod plan;
mod tokenizer;
mod vocabulary;
mod write;

use std::fs;
use std::path::Path;

pub use check::Checked;
pub use error::ConvertError;
pub use kinds::Plain;

use metadata::Metadata;

/// What to write besides what is repacked exactly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Elements of what must be dequantized.
    pub plain: Plain,
}

/// How far a conversion is: bytes of the source that were read, of all of them.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// What was written.
#[derive(Clone, Debug)]
pub struct Report {
    /// `model_type` of the result.
    pub architecture: String,
    /// Tensors that were copied or repacked without any loss.
    pub exact: usize,
    /// Tensors that were dequantized, as MLX has no form for their blocks: their type in the source and how many.
    pub dequantized: Vec<(String, usize)>,
    /// Bytes of the safetensors file.
    pub bytes: u64,
    /// What a second reading of the result found.
    pub checked: Checked,
}

/// Converts `source` into the directory `to`, which must not exist, and reads the result again.
///
/// # Errors
/// What in the source cannot be converted, by its key or tensor; what could not be read or written.
pub fn gguf_to_mlx(
    source: &Path,
    to: &Path,
    options: Options,
    progress: Progress<'_>,
) -> Result<Report, ConvertError> {
    if to.exists() {
        return Err(ConvertError::Exists { path: to.to_owned() });
    }
    let gguf = sf_artifact::Gguf::open(source)?;
    let metadata = Metadata::new(&gguf);
    let kind = names::Kind::of(&metadata)?;
    let plan = plan::Plan::make(&gguf, &kind, options.plain)?;
    let config = config::config(&metadata, &kind, &plan)?;
    let tokenizer = tokenizer::files(&metadata)?;
    // Beside the result, so that the last step is a rename and nothing half-written is ever taken for a model.
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let fresh = to.with_file_name(format!(".{name}.converting-{}", std::process::id()));
    if let Some(parent) = fresh.parent() {
        fs::create_dir_all(parent).map_err(ConvertError::io(parent))?;
    }
    fs::create_dir(&fresh).map_err(ConvertError::io(&fresh))?;
    let put = |name: &str, text: &str| {
        let path = fresh.join(name);
        fs::write(&path, text).map_err(ConvertError::io(&path))
    };
    put("config.json", &pretty(&config))?;
    for (name, text) in &tokenizer {
        put(name, text)?;
    }
    let file = fresh.join("model.safetensors");
    let bytes = write::write(source, &gguf, &plan, &file, progress)?;
    let checked = check::check(source, &gguf, &plan, &file)?;
    fs::rename(&fresh, to).map_err(ConvertError::io(to))?;
    Ok(Report {
        architecture: kind.model_type.to_owned(),
        exact: plan.exact(),
        dequantized: plan.dequantized(),
        bytes,
        checked,
    })
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON can be written") + "\n"
}
