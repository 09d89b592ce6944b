//! Model directories with weights of arithmetic: the same that `golden/make.py` makes, from each tensor's name.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A golden case, see `golden/make.py`.
pub(crate) struct Case {
    pub(crate) config: Value,
    /// Name, type, shape.
    pub(crate) tensors: Vec<(String, String, Vec<usize>)>,
    pub(crate) tokens: Vec<u32>,
    /// Positions whose logits are known.
    pub(crate) rows: Vec<usize>,
    pub(crate) logits: Vec<Vec<f32>>,
}

/// Every golden case, by name.
pub(crate) fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let json = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let mut names: Vec<String> =
        json.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Case {
    pub(crate) fn read(name: &str) -> Case {
        Case::read_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json")))
    }

    pub(crate) fn read_from(path: &Path) -> Case {
        let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let of = |key: &str| case[key].clone();
        Case {
            config: of("config"),
            tensors: serde_json::from_value(of("tensors")).unwrap(),
            tokens: serde_json::from_value(of("tokens")).unwrap(),
            rows: serde_json::from_value(of("rows")).unwrap(),
            logits: serde_json::from_value(of("logits")).unwrap(),
        }
    }

    /// Writes the model as a directory of so many files.
    pub(crate) fn write(&self, folder: &Path, shards: usize) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        let each = self.tensors.len().div_ceil(shards);
        let mut map = serde_json::Map::new();
        for (number, part) in self.tensors.chunks(each).enumerate() {
            let file = format!("model-{:05}-of-{shards:05}.safetensors", number + 1);
            std::fs::write(folder.join(&file), safetensors(part)).unwrap();
            part.iter().for_each(|(name, ..)| {
                map.insert(name.clone(), json!(file));
            });
        }
        if shards > 1 {
            let index = json!({"metadata": {}, "weight_map": map});
            std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
        }
        folder.to_owned()
    }
}

/// A file of these tensors.
pub(crate) fn safetensors(tensors: &[(String, String, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape) in tensors {
        let start = data.len();
        data.extend(bytes(name, dtype, shape.iter().product()));
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}

/// 32 bits for an element, from the tensor's name.
fn mixed_bits(seed: u32, at: usize) -> u32 {
    let mut x = seed.wrapping_add((at as u32).wrapping_mul(2_654_435_761));
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

fn bytes(name: &str, dtype: &str, count: usize) -> Vec<u8> {
    let seed =
        name.bytes().fold(2_166_136_261_u32, |seed, byte| (seed ^ u32::from(byte)).wrapping_mul(16_777_619));
    let value = |bits: u32| {
        if name.ends_with(".scales") || name.ends_with(".biases") {
            let scale = (1.0 + (bits >> 29) as f32 / 8.0) / 64.0;
            return if name.ends_with(".scales") { scale } else { -scale * 4.0 };
        }
        let even = (bits >> 24) as f32 / 256.0 - 0.5;
        match name {
            name if name.contains("norm") => (bits >> 28) as f32 / 64.0 + 0.875,
            name if name.ends_with(".weight") => even * 0.5,
            _ => even,
        }
    };
    (0..count)
        .flat_map(|at| {
            let bits = mixed_bits(seed, at);
            match dtype {
                "U32" => bits.to_le_bytes().to_vec(),
                "F32" => value(bits).to_le_bytes().to_vec(),
                "F16" => half(value(bits)).to_le_bytes().to_vec(),
                "BF16" => ((value(bits).to_bits() >> 16) as u16).to_le_bytes().to_vec(),
                other => panic!("no weights of {other}"),
            }
        })
        .collect()
}

/// Of a value that a float of 16 bits holds exactly and normally.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    if value == 0.0 {
        return (bits >> 16) as u16;
    }
    let exponent = ((bits >> 23) & 0xFF) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1FFF == 0, "{value} is not exact");
    ((bits >> 16) & 0x8000) as u16 | (exponent as u16) << 10 | ((bits >> 13) & 0x3FF) as u16
}
