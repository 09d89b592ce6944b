//! What is refused, by which words, before a weight is read; what is said about a model.

use std::path::Path;

use serde_json::{Value, json};
use sf_abi::descriptor::Descriptor;
use sf_core::{EngineOption, OptionValue};
use sf_kit::KitError;
use superfluid_mlx::DESCRIPTOR;
use superfluid_mlx::architecture::ARCHITECTURES;
use superfluid_mlx::encoder::FAMILIES;

use crate::support::{int, open, request, runtime};
use crate::tiny::{Case, safetensors};

#[test]
fn the_descriptor_is_canonical_and_names_what_the_table_has() {
    let descriptor: Descriptor = serde_json::from_str(DESCRIPTOR).unwrap();
    assert_eq!(serde_json::to_string(&descriptor).unwrap(), DESCRIPTOR);
    assert!(descriptor.version.starts_with(env!("CARGO_PKG_VERSION")), "{}", descriptor.version);
    let text = ARCHITECTURES.iter().map(|row| row.model_type);
    let mut known: Vec<&str> = text.chain(FAMILIES.iter().map(|row| row.model_type)).collect();
    known.sort_unstable();
    assert_eq!(descriptor.formats[0].architectures, known);
}

fn refusal(path: &Path, options: &[EngineOption]) -> (i32, String, String) {
    match open(path, options).err().expect("it is refused") {
        KitError::Refused { code, message, field, .. } => (code, message, field),
        other => panic!("no refusal of the runtime: {other:?}"),
    }
}

#[test]
fn a_config_that_is_not_computed_is_refused_by_its_key() {
    let check = |changes: Value, field: &str, words: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut case = Case::read("llama_q4");
        for (key, value) in changes.as_object().unwrap() {
            case.config[key] = value.clone();
        }
        let (_, message, found) = refusal(&case.write(dir.path(), 1), &[]);
        assert_eq!(found, field, "{changes}: {message}");
        assert!(message.contains(words), "{changes}: {message}");
    };
    check(json!({"model_type": "mamba"}), "model_type", "is mamba; this runtime computes llama, mistral");
    check(json!({"model_type": null}), "model_type", "is missing");
    check(json!({"hidden_act": "relu2"}), "hidden_act", "relu2");
    check(json!({"rope_scaling": {"type": "dynamic", "factor": 4.0}}), "rope_scaling", "dynamic");
    check(json!({"rope_scaling": {"type": "linear"}}), "rope_scaling.factor", "is missing");
    check(json!({"partial_rotary_factor": 1.5}), "partial_rotary_factor", "at most 1");
    check(json!({"num_key_value_heads": 3}), "num_key_value_heads", "does not divide 4");
    check(json!({"num_hidden_layers": 0}), "num_hidden_layers", "is 0");
    check(json!({"num_hidden_layers": 4_000_000_000_u64}), "num_hidden_layers", "1 to 1024");
    check(json!({"hidden_size": "64"}), "hidden_size", "not a count");
    check(json!({"rms_norm_eps": -1.0}), "rms_norm_eps", "not a positive number");
    check(json!({"layer_types": ["full_attention"]}), "layer_types", "names 1 layers of 2");
    check(json!({"layer_types": ["full_attention", "linear_attention"]}), "layer_types", "linear_attention");
    check(json!({"attn_logit_softcapping": 30.0}), "attn_logit_softcapping", "not computed");
    check(json!({"quantization": {"bits": 4}}), "quantization.group_size", "is missing");
    check(
        json!({"quantization": {"bits": 7, "group_size": 32}}),
        "quantization.bits",
        "is 7, it can be 2, 3",
    );
    check(json!({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}), "quantization", "mxfp4");
    check(
        json!({"quantization": null, "quantization_config": {"quant_method": "awq"}}),
        "quantization_config",
        "awq",
    );
    // What the files hold is another size.
    check(
        json!({"vocab_size": 65}),
        "model.embed_tokens.weight",
        "has shape [64, 8], config.json asks for [65, 8]",
    );
    check(json!({"quantization": {"bits": 8, "group_size": 32}}), "model.embed_tokens.weight", "[64, 16]");
    check(json!({"quantization": null}), "model.embed_tokens.scales", "does not say how");
    check(json!({"num_hidden_layers": 3}), "model.layers.2.input_layernorm.weight", "is missing");
    check(json!({"attention_bias": true}), "model.layers.0.self_attn.q_proj.bias", "is missing");
}

#[test]
fn a_device_that_is_not_here_is_refused_by_its_option() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama_q4").write(dir.path(), 1);
    let on = |name: &str| EngineOption {
        key: "x.mlx.device".to_owned(),
        value: OptionValue::Str(name.to_owned()),
        must: true,
    };
    for name in ["auto", "cpu"] {
        let model = open(&path, &[on(name)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.0.description().effective["x.mlx.device"], json!(name));
    }
    let refused = |name: &str| {
        let (_, message, field) = refusal(&path, &[on(name)]);
        assert_eq!(field, "x.mlx.device", "{message}");
        message
    };
    assert!(refused("tpu").contains("can be auto, cpu or gpu"));
    // The build that is tested has none.
    assert!(refused("gpu").contains("there is no GPU"));
}

#[test]
fn damaged_files_are_refused_before_a_weight_is_read() {
    let case = Case::read("llama");
    let check = |damage: &dyn Fn(&Path), words: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = case.write(dir.path(), 3);
        damage(&path);
        let (code, message, _) = refusal(&path, &[]);
        assert!([sf_abi::SFR_E_FORMAT, sf_abi::SFR_E_NOT_FOUND].contains(&code), "{code}: {message}");
        assert!(message.contains(words), "{message}, not {words}");
    };
    let second = |path: &Path| path.join("model-00002-of-00003.safetensors");
    let put = |path: &Path, bytes: &[u8]| std::fs::write(second(path), bytes).unwrap();
    check(&|path| std::fs::remove_file(path.join("config.json")).unwrap(), "no config.json");
    check(&|path| std::fs::write(path.join("config.json"), "{").unwrap(), "config.json is not JSON");
    check(&|path| std::fs::write(path.join("config.json"), "[".repeat(100_000)).unwrap(), "not JSON");
    check(&|path| std::fs::write(path.join("config.json"), vec![b' '; 9 << 20]).unwrap(), "at most 8388608");
    check(&|path| std::fs::remove_file(second(path)).unwrap(), "model-00002-of-00003.safetensors is missing");
    check(&|path| put(path, b""), "has 0 bytes");
    check(&|path| put(path, &[0xFF; 100]), "the header says it has 18446744073709551615");
    check(&|path| put(path, &safetensors(&[])), "should hold");
    check(&|path| std::fs::write(path.join("model.safetensors.index.json"), "{}").unwrap(), "no weight_map");
    let cut = |path: &Path| {
        let bytes = std::fs::read(second(path)).unwrap();
        put(path, &bytes[..bytes.len() - 100]);
    };
    check(&cut, "the file ends before");
    let twice = |path: &Path| {
        std::fs::copy(second(path), path.join("model-again.safetensors")).unwrap();
    };
    check(&twice, "twice");
}

#[test]
fn what_the_fuzzer_found_stays_fixed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/mlx_model");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 15, "{files:?}");
    files.iter().for_each(|file| superfluid_mlx::fuzz(&std::fs::read(file).unwrap()));
}

#[test]
fn a_path_without_a_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (path, words) in [(dir.path().join("nowhere"), "nowhere"), (dir.path().to_owned(), "no config.json")]
    {
        assert!(refusal(&path, &[]).1.contains(words));
    }
}

#[cfg(sf_mlx)]
#[test]
fn an_option_out_of_its_range_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama").write(dir.path(), 1);
    let kv =
        EngineOption { key: "kv.type_k".to_owned(), value: OptionValue::Str("q8_0".to_owned()), must: true };
    for option in
        [int("ctx.max", 0), int("lanes.max", 2000), int("x.mlx.cache-mb", -1), int("x.mlx.speed", 1), kv]
    {
        let (code, message, field) = refusal(&path, std::slice::from_ref(&option));
        assert_eq!((code, &field), (sf_abi::SFR_E_OPTION, &option.key), "{message}");
    }
}

#[test]
fn headers_alone_give_facts_and_an_estimate() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama_q4").write(dir.path(), 2);
    let facts = runtime().inspect(&request(&path, &[])).unwrap().unwrap();
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let shown = |key: &str| facts[key].to_string();
    assert_eq!(
        ["architecture", "vocab", "ctx_trained", "quantization", "tensors", "parameters"].map(shown),
        ["\"llama\"", "64", "128", "\"4-bit\"", "53", "69952"].map(str::to_owned)
    );
    let estimate = runtime().estimate(&request(&path, &[])).unwrap().unwrap();
    // Two layers, two heads of 16 for keys and for values, four bytes; 69,632 codes of four bits, two half floats for 32
    // of them, and 320 elements of norms.
    assert_eq!(estimate.bytes_kv_per_token, 2 * 2 * 2 * 16 * 4);
    assert_eq!(estimate.bytes_weights, 69_632 / 2 + 69_632 / 32 * 4 + 320 * 2);
}

#[cfg(sf_mlx)]
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
        int("x.mlx.cache-mb", 7),
    ];
    let model = open(&path, &asked).unwrap();
    let description = model.0.description();
    for option in &asked {
        let OptionValue::Int(value) = option.value else { unreachable!("all are numbers") };
        assert_eq!(description.effective.get(&option.key), Some(&json!(value)), "{}", option.key);
    }
    assert_eq!((description.model.architecture.as_str(), description.model.vocab), ("llama", 64));
    let stats = model.0.stats().unwrap();
    assert_eq!((stats.kv_cells_total, stats.bytes_weights), (150, 44_160));
}

#[cfg(not(sf_mlx))]
#[test]
fn without_mlx_the_reason_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read("llama").write(dir.path(), 1);
    assert!(refusal(&path, &[]).1.contains("built without MLX"));
    let answer = runtime().probe(0, std::time::Duration::from_secs(1)).unwrap();
    assert!(answer.contains("built without MLX"), "{answer}");
}
