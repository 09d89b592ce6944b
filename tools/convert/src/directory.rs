//! A directory of `config.json` and safetensors as a source: what its tensors become, and the files that go with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sf_artifact::Artifact;
use sf_artifact::gguf::TensorType;
use sf_artifact::safetensors::Tensor;

use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::plan::{Entry, Origin, Plan, Way, float_way};
use crate::safetensors;
use crate::{Affine, Job, Options, config, pretty, usable};

/// Taken over as they are.
const BESIDE: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
];
/// Keys that say how matrices are packed: MLX writes both, other tools the second.
const QUANTIZED: [&str; 2] = ["quantization", "quantization_config"];
pub(crate) const INDEX: &str = "model.safetensors.index.json";

pub(crate) fn job(artifact: &Artifact, options: &Options) -> Result<Job, ConvertError> {
    let mut facts = facts(&artifact.path.join("config.json"))?;
    // Its tokenizer goes into the result as it is: what is wrong with it is said before hours of work.
    if !artifact.path.join("tokenizer.json").is_file() {
        let path = artifact.path.display();
        return Err(ConvertError::unusable(format!("there is no tokenizer.json in {path}")));
    }
    usable(artifact)?;
    let packed = packed(&facts)?;
    if let Some(key) = &packed
        && (options.quantize.is_some() || options.plain.is_some())
    {
        return Err(ConvertError::Quantized { key: format!("config.json's {key}") });
    }
    let (mut entries, mut places) = (Vec::new(), BTreeMap::new());
    for (file, path) in artifact.files.iter().enumerate() {
        for tensor in safetensors::tensors(path)? {
            if let Some(other) = places.insert(tensor.name.clone(), file) {
                let other = artifact.files[other].display();
                let why = format!("it is in {} and in {other}", path.display());
                return Err(ConvertError::tensor(&tensor.name, why));
            }
            entries.push(entry(&tensor, file, packed.is_some(), options)?);
        }
    }
    check_index(artifact, &places)?;
    let plan = Plan::new(entries, options)?;
    if let Some(plain) = options.plain {
        let key = if facts.contains_key("dtype") { "dtype" } else { "torch_dtype" };
        facts.insert(key.to_owned(), json!(plain.torch_name()));
    }
    if packed.is_none() {
        config::quantize(&mut facts, &plan);
    }
    let beside = BESIDE.iter().map(|name| artifact.path.join(name));
    Ok(Job {
        architecture: artifact.architecture.clone(),
        plan,
        files: artifact.files.clone(),
        texts: vec![("config.json".to_owned(), pretty(&Value::Object(facts)))],
        copies: beside.filter(|path| path.is_file()).collect(),
    })
}

pub(crate) fn facts(path: &Path) -> Result<Map<String, Value>, ConvertError> {
    let text = fs::read_to_string(path).map_err(ConvertError::io(path))?;
    let name = path.display().to_string();
    serde_json::from_str(&text)
        .map_err(|error| ConvertError::key(&name, format!("is no JSON object: {error}")))
}

/// The key that says that matrices are packed; only MLX's affine form is taken over.
pub(crate) fn packed(facts: &Map<String, Value>) -> Result<Option<&'static str>, ConvertError> {
    let found = QUANTIZED.into_iter().find(|key| facts.get(*key).is_some_and(|value| !value.is_null()));
    let Some(key) = found else { return Ok(None) };
    let block = &facts[key];
    let number = |name: &str| block.get(name).and_then(Value::as_u64).and_then(|value| value.try_into().ok());
    let form = number("bits").zip(number("group_size")).and_then(|(bits, group)| Affine::new(bits, group));
    let mode = block.get("quant_method").or_else(|| block.get("mode")).map_or(json!("affine"), Value::clone);
    if form.is_none() || mode != "affine" {
        let said = |name: &str| block.get(name).map_or("no".to_owned(), Value::to_string);
        let why = format!(
            "says {mode}, {} bits, groups of {}: only MLX's affine forms are copied",
            said("bits"),
            said("group_size")
        );
        return Err(ConvertError::key(&format!("config.json's {key}"), why));
    }
    Ok(Some(key))
}

pub(crate) fn entry(
    tensor: &Tensor,
    file: usize,
    packed: bool,
    options: &Options,
) -> Result<Entry, ConvertError> {
    let (cols, rows) = match tensor.shape[..] {
        [] => (1, 1),
        [ref rows @ .., cols] => (cols, rows.iter().product()),
    };
    if cols == 0 || rows == 0 {
        return Err(ConvertError::tensor(&tensor.name, "it is empty"));
    }
    let own = Plain::named(tensor.dtype);
    if own.is_none() && !packed {
        let why =
            format!("elements of {} belong to packed matrices, and config.json names none", tensor.dtype);
        return Err(ConvertError::tensor(&tensor.name, why));
    }
    let matrix = tensor.shape.len() == 2 && tensor.name.ends_with(".weight") && !tensor.name.contains("norm");
    let (way, plain) = match own.filter(|_| !packed) {
        Some(own) => match float_way(options, matrix, cols, own) {
            (Way::Floats, plain) if plain == own => (Way::Copied, own),
            other => other,
        },
        None => (Way::Copied, own.unwrap_or(Plain::F32)),
    };
    let row_bytes = tensor.bytes / rows;
    let kind = TensorType { id: 0, name: tensor.dtype, block: 1, block_bytes: row_bytes / cols };
    Ok(Entry {
        name: tensor.name.clone(),
        origin: Origin { file, offset: tensor.offset, row_bytes, kind },
        pairs: None,
        offset: 0.0,
        way,
        plain,
        rows,
        cols,
        shape: tensor.shape.clone(),
        matrix,
    })
}

/// Where there is an index, a file that was not fetched is found here.
fn check_index(artifact: &Artifact, places: &BTreeMap<String, usize>) -> Result<(), ConvertError> {
    let path: PathBuf = artifact.path.join(INDEX);
    if !path.is_file() {
        return Ok(());
    }
    let index = facts(&path)?;
    let map = index.get("weight_map").and_then(Value::as_object);
    for (name, file) in map.into_iter().flatten() {
        let at = places.get(name).map(|file| &artifact.files[*file]);
        if !at.is_some_and(|path| path.file_name().is_some_and(|name| file == &json!(name.to_string_lossy())))
        {
            return Err(ConvertError::tensor(
                name,
                format!("{INDEX} says that it is in {file}, and it is not"),
            ));
        }
    }
    Ok(())
}

/// The index of a result of several files.
pub(crate) fn index(plan: &Plan) -> Value {
    let files = plan.files.iter().enumerate().flat_map(|(file, entries)| {
        let outputs = plan.entries[entries.clone()].iter().flat_map(Entry::outputs);
        outputs.map(move |output| (output.name, json!(plan.file_name(file))))
    });
    let map: Map<String, Value> = files.collect();
    json!({"metadata": {"total_size": plan.bytes()}, "weight_map": map})
}
