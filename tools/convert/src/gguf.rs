//! A GGUF file as a source: what its tensors become, and the files beside them.

use std::path::Path;

use sf_artifact::Gguf;
use sf_artifact::gguf::TensorInfo;

use crate::blocks::{Held, held};
use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::metadata::Metadata;
use crate::names::{Kind, Pairs};
use crate::plan::{Entry, Origin, Plan, Way, float_way};
use crate::{Job, Options, config, pretty, tokenizer};

pub(crate) fn job(path: &Path, gguf: &Gguf, options: &Options) -> Result<Job, ConvertError> {
    let metadata = Metadata::new(gguf);
    let kind = Kind::of(&metadata)?;
    let tensors = gguf.tensors().iter();
    let entries: Result<_, _> =
        tensors.map(|tensor| entry(tensor, gguf.data_offset(), &kind, options)).collect();
    let plan = Plan::new(entries?, options)?;
    complete(&metadata, &plan)?;
    let mut facts = config::config(&metadata, &kind, &plan)?;
    config::quantize(&mut facts, &plan);
    let mut texts = vec![("config.json".to_owned(), pretty(&facts.into()))];
    texts.extend(tokenizer::files(&metadata)?.into_iter().map(|(name, text)| (name.to_owned(), text)));
    Ok(Job {
        architecture: kind.model_type.to_owned(),
        plan,
        files: vec![path.to_owned()],
        texts,
        copies: Vec::new(),
    })
}

/// What a tensor becomes; it is in the first file.
pub(crate) fn entry(
    tensor: &TensorInfo,
    data: u64,
    kind: &Kind,
    options: &Options,
) -> Result<Entry, ConvertError> {
    let refused = |why: String| ConvertError::tensor(&tensor.name, why);
    let named = kind.name(&tensor.name)?;
    let held = held(tensor.kind)
        .ok_or_else(|| refused(format!("blocks of {} are not converted", tensor.kind.name)))?;
    let [cols, rows, ref more @ ..] = tensor.dims;
    if cols == 0 || rows == 0 {
        return Err(refused("it is empty".to_owned()));
    }
    if more.iter().any(|&size| size != 1) {
        return Err(refused("more than two dimensions".to_owned()));
    }
    let pairs = match named.interleaved {
        Some(heads) if heads == 0 || !rows.is_multiple_of(heads) || rows / heads < kind.turned => {
            return Err(refused(format!("{rows} rows are no pairs of {heads} heads")));
        }
        Some(heads) => Some(Pairs { head: rows / heads, turned: kind.turned }),
        None => None,
    };
    let flat = rows == 1 && (tensor.name.ends_with("_norm.weight") || tensor.name.ends_with(".bias"));
    let group = Held::GROUP as u64;
    if !matches!(held, Held::Plain(_)) && !cols.is_multiple_of(group) {
        return Err(refused(format!("rows of {cols} elements are no whole groups of {group}")));
    }
    let (way, plain) = match held {
        Held::Halves(form) => (Way::Repacked(form), Plain::F16),
        Held::Floats(form) => (Way::Repacked(form), Plain::F32),
        Held::Plain(own) => float_way(options, !flat, cols, own),
        Held::Not => float_way(options, !flat, cols, Plain::F16),
    };
    Ok(Entry {
        name: named.name,
        origin: Origin {
            file: 0,
            offset: data + tensor.offset,
            row_bytes: tensor.bytes / rows,
            kind: tensor.kind,
        },
        pairs,
        offset: named.offset,
        way,
        plain,
        rows,
        cols,
        shape: if flat { vec![cols] } else { vec![rows, cols] },
        matrix: !flat,
    })
}

/// Every layer has the tensors that the first one has.
fn complete(metadata: &Metadata<'_>, plan: &Plan) -> Result<(), ConvertError> {
    let first = "model.layers.0.";
    let parts = plan.entries.iter().filter_map(|entry| entry.name.strip_prefix(first));
    let parts: Vec<&str> = parts.collect();
    let missing = |name: &str| ConvertError::tensor(name, "is missing");
    let layers = metadata.own_must("block_count")?;
    if layers > plan.entries.len() as u64 || parts.is_empty() {
        return Err(missing(&format!("{first}self_attn.q_proj.weight")));
    }
    let mut names = vec!["model.embed_tokens.weight".to_owned(), "model.norm.weight".to_owned()];
    names.extend(
        (1..layers).flat_map(|layer| parts.iter().map(move |part| format!("model.layers.{layer}.{part}"))),
    );
    let known: std::collections::BTreeSet<&str> =
        plan.entries.iter().map(|entry| entry.name.as_str()).collect();
    match names.iter().find(|name| !known.contains(name.as_str())) {
        Some(name) => Err(missing(name)),
        None => Ok(()),
    }
}
