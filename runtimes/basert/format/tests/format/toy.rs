//! A small bundle, and files of changed headers.

use serde_json::{Value, json};
use sf_base::{BaseError, Bundle, DATA_ALIGN, Layout, Sum, align, canonical, prologue};

/// The text in the toy's slot, which lies right behind where its header may end.
pub(crate) const CONFIG: &[u8] = br#"{"model_type":"llama"}"#;
/// Where it lies.
pub(crate) const CONFIG_AT: u64 = 4096;

pub(crate) fn sum(bytes: &[u8]) -> String {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.words()
}

/// What lies at the data offset.
pub(crate) fn data() -> Vec<u8> {
    let mut bytes = Vec::new();
    let codes: [[u8; 32]; 16] = std::array::from_fn(|row| std::array::from_fn(|k| (row * 31 + k * 7) as u8));
    Layout::Q8.pack_codes(&codes, &[0x3c00; 16], &[0; 16], &mut bytes);
    bytes.resize(align(bytes.len() as u64, 64) as usize, 0);
    bytes.extend([1.0_f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// A header of two tensors and a slot.
pub(crate) fn header() -> Value {
    let data = data();
    json!({
        "architecture": {
            "family": "llama", "kind": "decoder", "vocab": 16, "hidden": 32, "heads": 4, "kv_heads": 2,
            "head_dim": 8, "ffn": 64, "context": 128, "activation": "silu", "gated": true, "norm": "rms",
            "norm_eps": 1e-5, "norms": "before", "qk_norm": false, "attention_scale": 0.353_553_39,
            "embedding_scale": 1.0, "attention_softcap": null, "logit_softcap": null, "tied": true,
            "ropes": [{"inv_freq": [1.0, 0.1, 0.01, 0.001], "scale": 1.0}],
            "layers": [{"rope": 0, "window": null}], "pooling": null, "token_types": 0, "positions": 0,
            "first_position": 0
        },
        "name": "toy", "profile": "q8", "quantization": "q8",
        "source": {"format": "gguf", "quantization": "Q8_0"}, "parameters": 515,
        "slots": [{"id": "config.json", "required": true, "offset": CONFIG_AT, "bytes": CONFIG.len(),
                   "checksum": sum(CONFIG)}],
        "tensors": [
            {"name": "embed", "row": 0, "rows": 16, "cols": 32, "layout": "q8.16x32", "offset": DATA_ALIGN,
             "bytes": 544, "checksum": sum(&data[..544])},
            {"name": "final_norm", "row": 0, "rows": 1, "cols": 3, "layout": "f32",
             "offset": DATA_ALIGN + 576, "bytes": 12, "checksum": sum(&data[576..588])}
        ]
    })
}

/// A whole file with this text as its header, whatever that says.
pub(crate) fn file(header: &str) -> Vec<u8> {
    let data = data();
    let mut file = prologue(header.as_bytes(), DATA_ALIGN, DATA_ALIGN + data.len() as u64).to_vec();
    file.extend(header.as_bytes());
    file.resize(CONFIG_AT as usize, 0);
    file.extend(CONFIG);
    file.resize(DATA_ALIGN as usize, 0);
    file.extend(data);
    file
}

pub(crate) fn toy() -> Vec<u8> {
    file(&canonical(&header()))
}

pub(crate) fn parse(file: &[u8]) -> Result<Bundle, BaseError> {
    Bundle::parse(&mut &file[..], file.len() as u64)
}
