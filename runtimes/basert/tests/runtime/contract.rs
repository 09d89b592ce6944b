//! What is refused, by which words; what is said about a model; and that nothing but a model's own numbers changes a bit.

use std::path::Path;

use serde_json::{Value, json};
use sf_abi::descriptor::Descriptor;
use sf_core::{EngineOption, OptionValue};
use sf_kit::KitError;
use superfluid_basert::DESCRIPTOR;

use crate::support::{int, open, request, runtime};
use crate::tiny::Case;

#[test]
fn the_descriptor_is_canonical() {
    let descriptor: Descriptor = serde_json::from_str(DESCRIPTOR).unwrap();
    assert_eq!(serde_json::to_string(&descriptor).unwrap(), DESCRIPTOR);
    assert_eq!(descriptor.version, env!("CARGO_PKG_VERSION"));
}

fn text(key: &str, value: &str) -> EngineOption {
    EngineOption { key: key.to_owned(), value: OptionValue::Str(value.to_owned()), must: true }
}

fn refusal(path: &Path, options: &[EngineOption]) -> (i32, String, String) {
    match open(path, options).err().expect("it is refused") {
        KitError::Refused { code, message, field, .. } => (code, message, field),
        other => panic!("no refusal of the runtime: {other:?}"),
    }
}

/// Kernels that this machine has, the portable ones among them.
fn kernels() -> Vec<&'static str> {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama_q4").write(dir.path(), 1);
    let all = ["avx512-vnni", "avx2", "neon", "portable"];
    let here: Vec<&str> =
        all.into_iter().filter(|name| open(&path, &[text("x.basert.kernels", name)]).is_ok()).collect();
    assert!(here.contains(&"portable"), "{here:?}");
    here
}

#[test]
fn every_instruction_set_gives_the_same_bits_as_does_any_placement_of_the_weights() {
    for name in ["llama", "llama_q4", "llama_q5", "llama_bf16_bias", "qwen3", "gemma2", "gemma3"] {
        let dir = tempfile::tempdir().unwrap();
        let path = Case::read(name).write(dir.path(), 1);
        let tokens: Vec<u32> = (0..70).map(|at| at * 31 % 64).collect();
        let rows = |options: &[EngineOption]| {
            let mut model = open(&path, options).unwrap();
            let lane = model.lane();
            model.step(&[(lane, 0, &tokens, 0..70)]).unwrap().remove(0)
        };
        let expect = rows(&[text("x.basert.kernels", "portable")]);
        assert!(expect.iter().flatten().all(|logit| logit.is_finite()), "{name}");
        let spread = |row: &[f32]| {
            row.iter().copied().fold(f32::MIN, f32::max) - row.iter().copied().fold(f32::MAX, f32::min)
        };
        assert!(expect.iter().all(|row| spread(row) > 0.1), "{name}: rows that say nothing");
        for kernels in kernels() {
            assert!(rows(&[text("x.basert.kernels", kernels)]) == expect, "{name} {kernels}");
        }
        for placement in ["map", "copy"] {
            assert!(rows(&[text("x.basert.weights", placement)]) == expect, "{name} {placement}");
        }
    }
}

#[test]
fn an_encoder_makes_vectors_and_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("bert").write(dir.path(), 1);
    let model = open(&path, &[]).unwrap();
    let facts = model.0.description().embedding.clone().unwrap();
    assert_eq!(
        (facts.dims, facts.pooling.as_str(), facts.normalized, facts.tokens_max),
        (64, "mean", true, 512)
    );
}

#[test]
fn a_bundle_that_does_not_fit_its_description_is_refused_by_its_tensor() {
    let check = |change: &dyn Fn(&mut Case), words: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut case = Case::read("llama");
        let mut wrong = Case::read("llama");
        change(&mut wrong);
        // The weights of one, the description of the other.
        std::mem::swap(&mut case.arch, &mut wrong.arch);
        let path = dir.path().join("wrong.base");
        std::fs::write(&path, described(&wrong.bytes(), &case)).unwrap();
        let (_, message, field) = refusal(&path, &[]);
        assert_eq!(field, "paths", "{message}");
        assert!(message.contains(words), "{message}, not {words}");
    };
    check(&|case| case.arch.vocab = 65, "tensor embed: 64 rows, the architecture needs 65");
    check(&|case| case.arch.ffn = 128, "tensor layers.0.gate_up");
    check(&|case| case.arch.qk_norm = true, "tensor layers.0.q_norm: it is missing");
    let narrow = |case: &mut Case| {
        (case.arch.head_dim, case.arch.heads) = (8, 8);
        case.arch.ropes.iter_mut().for_each(|rope| rope.inv_freq.truncate(4));
    };
    check(&narrow, "heads of 8 elements");
}

/// The bundle with another's description.
fn described(bytes: &[u8], other: &Case) -> Vec<u8> {
    let len = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[64..64 + len]).unwrap();
    header["architecture"] = serde_json::to_value(&other.arch).unwrap();
    let text = sf_base::canonical(&header);
    let data = sf_base::DATA_ALIGN as usize;
    let mut file = sf_base::prologue(text.as_bytes(), data as u64, bytes.len() as u64).to_vec();
    file.extend(text.as_bytes());
    file.resize(data, 0);
    file.extend(&bytes[data..]);
    file
}

/// A bundle with a header's description and no weights at all.
fn emptied(header: &[u8]) -> Vec<u8> {
    let mut header: Value = serde_json::from_slice(header).unwrap();
    header["tensors"] = json!([]);
    let text = sf_base::canonical(&header);
    let data = sf_base::DATA_ALIGN;
    let mut file = sf_base::prologue(text.as_bytes(), data, data).to_vec();
    file.extend(text.as_bytes());
    file.resize(data as usize, 0);
    file
}

#[test]
fn damaged_bundles_are_refused() {
    let bytes = Case::read("llama").bytes();
    let check = |bytes: &[u8], words: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("damaged.base");
        std::fs::write(&path, bytes).unwrap();
        let (code, message, _) = refusal(&path, &[]);
        assert_eq!(code, sf_abi::SFR_E_FORMAT, "{message}");
        assert!(message.contains(words), "{message}, not {words}");
    };
    let header = 64 + u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let empty = emptied(&bytes[64..header]);
    check(&empty, "tensor layers.0.gate_up: 0 rows");
    check(b"", "base.truncated");
    check(b"GGUF and so on, and on, and on", "base.magic");
    check(&bytes[..bytes.len() - 1], "base.truncated");
    let mut flipped = bytes;
    flipped[100] ^= 1;
    check(&flipped, "base.checksum");
}

#[test]
fn a_path_without_a_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refusal(&dir.path().join("nowhere"), &[]).1.contains("No such file"));
}

#[test]
fn an_option_out_of_its_range_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama").write(dir.path(), 1);
    let options = [
        int("ctx.max", 0),
        int("lanes.max", 2000),
        int("x.basert.speed", 1),
        text("x.basert.kernels", "abacus"),
        text("x.basert.weights", "cloud"),
        text("kv.type_k", "q4_0"),
    ];
    for option in options {
        let (code, message, field) = refusal(&path, std::slice::from_ref(&option));
        assert_eq!((code, &field), (sf_abi::SFR_E_OPTION, &option.key), "{message}");
    }
}

#[test]
fn headers_alone_give_facts_and_an_estimate() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama_q4").write(dir.path(), 1);
    let facts = runtime().inspect(&request(&path, &[])).unwrap().unwrap();
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let shown = |key: &str| facts[key].to_string();
    assert_eq!(
        ["architecture", "vocab", "ctx_trained", "quantization", "layers", "parameters"].map(shown),
        ["\"llama\"", "64", "512", "\"tiny\"", "2", "12345"].map(str::to_owned)
    );
    let estimate = runtime().estimate(&request(&path, &[])).unwrap().unwrap();
    // Two layers, two heads of 16 for keys and for values, two bytes.
    assert_eq!(estimate.bytes_kv_per_token, 2 * 2 * 2 * 16 * 2);
}

#[test]
fn what_was_asked_for_is_shown_as_effective() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama_q4").write(dir.path(), 1);
    let asked = [
        int("ctx.max", 100),
        int("lanes.max", 3),
        int("step.tokens.max", 64),
        int("threads", 2),
        int("kv.cells", 150),
    ];
    let model = open(&path, &asked).unwrap();
    let description = model.0.description();
    for option in &asked {
        let OptionValue::Int(value) = option.value else { unreachable!("all are numbers") };
        assert_eq!(description.effective.get(&option.key), Some(&json!(value)), "{}", option.key);
    }
    assert_eq!((description.model.architecture.as_str(), description.model.vocab), ("llama", 64));
    assert_eq!(model.0.stats().unwrap().kv_cells_total, 150);
}
