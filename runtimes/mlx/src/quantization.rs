//! How a model's matrices are quantized: MLX's affine blocks, and which matrices differ from the rest.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::ModelError;

/// Bits and group sizes that MLX knows.
const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [u32; 3] = [32, 64, 128];
/// Keys of the block itself; every other one names a matrix.
const OWN_KEYS: [&str; 4] = ["group_size", "bits", "mode", "quant_method"];

/// One matrix: each `group` elements of a row share a scale and a bias, an element has `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Bits of an element.
    pub bits: u32,
    /// Elements that share a scale and a bias.
    pub group: u32,
}

/// All matrices: `None` = not quantized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantization {
    usual: Option<Blocks>,
    by_name: BTreeMap<String, Option<Blocks>>,
}

impl Quantization {
    /// Reads `quantization` (or its copy `quantization_config`) of a `config.json`.
    pub(crate) fn read(facts: &Map<String, Value>) -> Result<Quantization, ModelError> {
        let keys = ["quantization", "quantization_config"];
        let found =
            keys.into_iter().find_map(|key| Some((key, facts.get(key).filter(|value| !value.is_null())?)));
        let Some((key, value)) = found else { return Ok(Quantization::default()) };
        let block = value.as_object().ok_or_else(|| ModelError::config(key, "is no object"))?;
        if let Some(method) = block.get("quant_method").and_then(Value::as_str)
            && !block.contains_key("bits")
        {
            return Err(ModelError::unsupported(
                key,
                format!("is of {method}; MLX's affine blocks are read"),
            ));
        }
        let usual = Some(blocks(key, value, None)?);
        let mut by_name = BTreeMap::new();
        for (name, value) in block.iter().filter(|(name, _)| !OWN_KEYS.contains(&name.as_str())) {
            let of_name = match value {
                Value::Bool(false) => None,
                Value::Bool(true) => usual,
                value => Some(blocks(&format!("{key}.{name}"), value, usual)?),
            };
            by_name.insert(name.clone(), of_name);
        }
        Ok(Quantization { usual, by_name })
    }

    /// How the matrix of this name (without `.weight`) is stored; a matrix without scales is plain whatever this says.
    pub fn of(&self, name: &str) -> Option<Blocks> {
        self.by_name.get(name).copied().unwrap_or(self.usual)
    }

    /// In words, e.g. `4-bit`.
    pub fn words(&self) -> Option<String> {
        self.usual.map(|blocks| format!("{}-bit", blocks.bits))
    }
}

fn blocks(key: &str, value: &Value, usual: Option<Blocks>) -> Result<Blocks, ModelError> {
    if let Some(mode) = value.get("mode")
        && mode.as_str() != Some("affine")
    {
        return Err(ModelError::unsupported(key, format!("has mode {mode}; affine is read")));
    }
    let of = |name: &str, known: &[u32], usual: Option<u32>| {
        let full = format!("{key}.{name}");
        let given = match value.get(name) {
            None => usual.ok_or_else(|| ModelError::config(&full, "is missing"))?,
            Some(given) => given
                .as_u64()
                .and_then(|given| u32::try_from(given).ok())
                .ok_or_else(|| ModelError::config(&full, format!("is {given}, not a count")))?,
        };
        if known.contains(&given) {
            return Ok(given);
        }
        let known: Vec<String> = known.iter().map(u32::to_string).collect();
        Err(ModelError::unsupported(&full, format!("is {given}, it can be {}", known.join(", "))))
    };
    Ok(Blocks {
        bits: of("bits", &BITS, usual.map(|blocks| blocks.bits))?,
        group: of("group_size", &GROUPS, usual.map(|blocks| blocks.group))?,
    })
}
