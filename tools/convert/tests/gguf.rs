//! A real GGUF file becomes a directory whose tokenizer, sizes and template are the file's own.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use sf_codec::{Codec, CodecOptions};
use sf_convert::{ConvertError, Options, gguf_to_mlx};

fn model(name: &str) -> PathBuf {
    let folder = std::env::var_os("SUPERFLUID_MODELS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/superfluid/models"),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
    path
}

fn codec(path: &Path) -> Codec {
    Codec::open(&sf_artifact::open(path).unwrap(), CodecOptions::default()).unwrap()
}

const TEXTS: [&str; 8] = [
    "The capital of France is Paris.",
    "  two  spaces\tand a tab\n\n\nthree lines ",
    "x=12345.678; y = [1,2,3]",
    "fn main() { println!(\"{}\", 1 << 20); }",
    "Zażółć gęślą jaźń, Ελληνικά, кириллица",
    "日本語のテキスト、中文文本",
    "👩‍🚀🚀 emoji e\u{301} combining",
    "don't WE'LL it's",
];

#[test]
fn smollm2_keeps_its_weights_its_tokens_and_its_template() {
    let (source, dir) = (model("SmolLM2-135M-Instruct.Q4_1.gguf"), tempfile::tempdir().unwrap());
    let to = dir.path().join("smol");
    let mut seen = Vec::new();
    let report =
        gguf_to_mlx(&source, &to, Options::default(), &mut |done, total| seen.push((done, total))).unwrap();
    assert_eq!((report.architecture.as_str(), report.exact), ("llama", 272));
    assert!(report.dequantized.is_empty());
    assert_eq!(report.checked.elements, 134_515_008);
    assert!(seen.is_sorted() && seen.last().is_some_and(|(done, total)| done == total), "{:?}", seen.last());
    let (from, converted) = (sf_artifact::open(&source).unwrap(), sf_artifact::open(&to).unwrap());
    assert_eq!(converted.chat_template(), from.chat_template());
    assert_eq!((converted.context_trained, converted.quantization.as_str()), (from.context_trained, "4-bit"));
    let (before, after) = (codec(&source), codec(&to));
    assert_eq!(after.vocab(), before.vocab());
    for text in TEXTS {
        assert_eq!(after.encode(text, true).unwrap(), before.encode(text, true).unwrap(), "{text}");
    }
    let again = gguf_to_mlx(&source, &to, Options::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(again, ConvertError::Exists { .. }), "{again}");
}

#[test]
fn gemma3_keeps_its_tokens() {
    let (source, dir) = (model("gemma-3-270m-Q4_K_M.gguf"), tempfile::tempdir().unwrap());
    let to = dir.path().join("gemma");
    let report = gguf_to_mlx(&source, &to, Options::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.architecture, "gemma3_text");
    assert!(report.checked.rounding_max < 1e-3, "{}", report.checked.rounding_max);
    let (before, after) = (codec(&source), codec(&to));
    assert_eq!(after.vocab(), before.vocab());
    for text in TEXTS {
        assert_eq!(after.encode(text, true).unwrap(), before.encode(text, true).unwrap(), "{text}");
    }
}

#[test]
fn a_file_that_is_not_converted_is_refused_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("toy.gguf");
    // Version 3, no tensors, one key.
    let key = "general.architecture";
    let mut bytes = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend(key.bytes());
    bytes.extend(8_u32.to_le_bytes());
    bytes.extend(5_u64.to_le_bytes());
    bytes.extend(b"mamba");
    std::fs::write(&source, bytes).unwrap();
    let to = dir.path().join("result");
    let refused = gguf_to_mlx(&source, &to, Options::default(), &mut |_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("general.architecture is mamba, converted are llama"), "{refused}");
    assert!(!to.exists());
}
