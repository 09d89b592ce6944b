//! A bundle describes a model's layers as the runtime for MLX reads them off the same `config.json`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};
use sf_base::{Activation, Arch, Bundle, Kind, Norm, Norms, PoolingKind};
use sf_convert::{PackOptions, pack};
use superfluid_mlx::config::Config;

use common::{Folder, join};

const HIDDEN: usize = 64;
const HEAD: usize = 16;
const FFN: usize = 48;
const VOCAB: usize = 258;

/// Names of a decoder's tensors and their shapes.
fn decoder(
    layers: usize,
    head_norms: bool,
    around: bool,
    bias: bool,
    tied: bool,
) -> Vec<(String, Vec<usize>)> {
    let mut all = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
    ];
    if !tied {
        all.push(("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]));
    }
    for layer in 0..layers {
        let mut put =
            |part: &str, shape: &[usize]| all.push((format!("model.layers.{layer}.{part}"), shape.to_vec()));
        for (part, rows) in [("q", 4 * HEAD), ("k", 2 * HEAD), ("v", 2 * HEAD)] {
            put(&format!("self_attn.{part}_proj.weight"), &[rows, HIDDEN]);
            if bias {
                put(&format!("self_attn.{part}_proj.bias"), &[rows]);
            }
        }
        put("self_attn.o_proj.weight", &[HIDDEN, 4 * HEAD]);
        for part in ["gate", "up"] {
            put(&format!("mlp.{part}_proj.weight"), &[FFN, HIDDEN]);
        }
        put("mlp.down_proj.weight", &[HIDDEN, FFN]);
        put("input_layernorm.weight", &[HIDDEN]);
        put("post_attention_layernorm.weight", &[HIDDEN]);
        if around {
            put("pre_feedforward_layernorm.weight", &[HIDDEN]);
            put("post_feedforward_layernorm.weight", &[HIDDEN]);
        }
        if head_norms {
            put("self_attn.q_norm.weight", &[HEAD]);
            put("self_attn.k_norm.weight", &[HEAD]);
        }
    }
    all
}

/// A safetensors file of singles that count up from zero in each tensor.
fn write(path: &Path, tensors: &[(String, Vec<usize>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::<u8>::new());
    for (name, shape) in tensors {
        let begin = data.len();
        let count: usize = shape.iter().product();
        data.extend((0..count).flat_map(|at| (at as f32 / 1024.0).to_le_bytes()));
        header.insert(
            name.clone(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]}),
        );
    }
    join(path, &Value::Object(header).to_string(), &data);
}

/// The toy's tokenizer with another model beside it.
struct Place {
    folder: Folder,
}

impl Place {
    fn new() -> Place {
        Place { folder: Folder::new(&sf_convert::Options::default()) }
    }

    fn pack(&self, config: &Value, tensors: &[(String, Vec<usize>)]) -> Bundle {
        fs::write(self.folder.path("tiny/config.json"), config.to_string()).unwrap();
        write(&self.folder.path("tiny/model.safetensors"), tensors);
        let to = self.folder.path("a.base");
        let options = PackOptions { force: true, ..PackOptions::default() };
        let report =
            pack(&self.folder.path("tiny"), &to, &options, &mut |_, _| ControlFlow::Continue(())).unwrap();
        assert!(report.is_exact(), "{report}");
        Bundle::read(&fs::File::open(&to).unwrap()).unwrap()
    }
}

fn config(model_type: &str, layers: usize, more: &Value) -> Value {
    let mut config = json!({
        "model_type": model_type, "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": HEAD, "intermediate_size": FFN, "vocab_size": VOCAB,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "eos_token_id": 257,
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() <= want.abs() * 1e-6
}

/// Sizes, scales, windows and rotations are those that the other runtime computes with.
fn same(arch: &Arch, config: &Config) {
    let got = (arch.hidden, arch.heads, arch.kv_heads, arch.head_dim, arch.ffn, arch.vocab);
    let want = (config.hidden, config.heads, config.kv_heads, config.head_dim, config.ffn, config.vocab);
    assert_eq!((got, arch.context, arch.tied), (want, config.ctx_trained, config.tied));
    assert_eq!(arch.qk_norm, config.architecture.head_norms);
    assert_eq!(arch.norms == Norms::Around, config.architecture.norms_behind);
    assert_eq!(arch.embedding_scale != 1.0, config.architecture.embedding_scaled);
    assert!(near(arch.attention_scale, config.score_scale.into()), "{arch:?}");
    assert!(near(arch.norm_eps, config.norm_eps.into()));
    assert_eq!(arch.attention_softcap.map(|cap| cap as f32), config.score_softcap);
    assert_eq!(arch.logit_softcap.map(|cap| cap as f32), config.logit_softcap);
    assert_eq!(arch.layers.iter().map(|layer| layer.window).collect::<Vec<_>>(), config.windows);
    for (number, layer) in arch.layers.iter().enumerate() {
        let rope = &arch.ropes[layer.rope.unwrap() as usize];
        for position in [1, 100, 4000] {
            let mut table = Vec::new();
            config.rope_of(number as u32).push(position, &mut table);
            let angle = |frequency: &f64| f64::from(position) * frequency;
            let cos = rope.inv_freq.iter().map(|frequency| rope.scale * angle(frequency).cos());
            let sin = rope.inv_freq.iter().map(|frequency| rope.scale * angle(frequency).sin());
            let mine: Vec<f64> = cos.chain(sin).collect();
            assert_eq!(mine.len(), table.len());
            for (mine, other) in mine.iter().zip(&table) {
                assert!((mine - f64::from(*other)).abs() < 1e-6, "{number} {position}: {mine} {other}");
            }
        }
    }
}

#[test]
fn decoders_are_described_as_the_other_runtime_reads_them() {
    let place = Place::new();
    let check = |model_type: &str, more: Value, (head_norms, around, bias): (bool, bool, bool)| {
        let config = config(model_type, 6, &more);
        let parsed = Config::parse(&config.to_string()).unwrap();
        let tensors = decoder(6, head_norms, around, bias, parsed.tied);
        let bundle = place.pack(&config, &tensors);
        let arch = &bundle.header.architecture;
        assert_eq!((arch.family.as_str(), arch.kind, arch.norm), (model_type, Kind::Decoder, Norm::Rms));
        same(arch, &parsed);
        let names =
            |end: &str| bundle.header.tensors.iter().filter(|tensor| tensor.name.ends_with(end)).count();
        let expect = if bias { 6 } else { 0 };
        assert_eq!((names(".qkv"), names(".qkv_bias"), names("head")), (6, expect, usize::from(!arch.tied)));
    };
    let (plain, norms) = ((false, false, false), (true, false, false));
    check("llama", json!({"tie_word_embeddings": true}), plain);
    check(
        "llama",
        json!({"rope_theta": 500_000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        plain,
    );
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    });
    check("llama", json!({"rope_scaling": llama3}), plain);
    for yarn in [
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}),
        json!({"type": "yarn", "factor": 2.5, "beta_fast": 16, "beta_slow": 2, "truncate": false}),
        json!({"rope_type": "yarn", "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 0.5}),
        json!({"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2}),
    ] {
        check("llama", json!({"rope_scaling": yarn}), plain);
    }
    check("llama", json!({"partial_rotary_factor": 0.5}), plain);
    check("llama", json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}), plain);
    check("mistral", json!({"sliding_window": 128}), plain);
    check("mistral", json!({"sliding_window": null}), plain);
    check("qwen2", json!({"sliding_window": 128, "use_sliding_window": false}), (false, false, true));
    check("qwen3", json!({"tie_word_embeddings": true}), norms);
    let caps = json!({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 24,
        "sliding_window": 64});
    check("gemma2", caps, (false, true, false));
    check("gemma3_text", json!({"sliding_window": 64}), (true, true, false));
    let newer = json!({
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention",
            "full_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    });
    check("gemma3_text", newer, (true, true, false));
}

#[test]
fn norms_that_are_stored_less_one_have_it_added() {
    let place = Place::new();
    let config = config("gemma2", 1, &json!({}));
    let bundle = place.pack(&config, &decoder(1, false, true, false, true));
    let bytes = fs::read(place.folder.path("a.base")).unwrap();
    for name in [
        "final_norm",
        "layers.0.attn_norm",
        "layers.0.attn_post_norm",
        "layers.0.ffn_norm",
        "layers.0.ffn_post_norm",
    ] {
        let tensor = bundle.header.tensors.iter().find(|tensor| tensor.name == name).unwrap();
        let third = &bytes[tensor.offset as usize + 8..][..4];
        assert_eq!(third, (1.0 + 2.0 / 1024.0_f32).to_le_bytes(), "{name}");
    }
    assert_eq!(bundle.header.architecture.embedding_scale, 8.0);
}

/// Names of an encoder's tensors and their shapes.
fn encoder(prefix: &str, positions: usize, norm: (&str, &str)) -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    let mut put = |name: String, shape: &[usize]| all.push((format!("{prefix}{name}"), shape.to_vec()));
    for (table, rows) in [("word", VOCAB), ("position", positions), ("token_type", 1)] {
        put(format!("embeddings.{table}_embeddings.weight"), &[rows, HIDDEN]);
    }
    let mut norms = vec!["embeddings.LayerNorm".to_owned()];
    for layer in 0..2 {
        let at = format!("encoder.layer.{layer}");
        for (part, rows, cols) in [
            ("attention.self.query", HIDDEN, HIDDEN),
            ("attention.self.key", HIDDEN, HIDDEN),
            ("attention.self.value", HIDDEN, HIDDEN),
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", FFN, HIDDEN),
            ("output.dense", HIDDEN, FFN),
        ] {
            put(format!("{at}.{part}.weight"), &[rows, cols]);
            put(format!("{at}.{part}.bias"), &[rows]);
        }
        norms.extend(["attention.output", "output"].map(|part| format!("{at}.{part}.LayerNorm")));
    }
    for stem in norms {
        put(format!("{stem}.{}", norm.0), &[HIDDEN]);
        put(format!("{stem}.{}", norm.1), &[HIDDEN]);
    }
    put("pooler.dense.weight".to_owned(), &[HIDDEN, HIDDEN]);
    put("embeddings.position_ids".to_owned(), &[1, positions]);
    all
}

#[test]
fn encoders_are_described_with_their_pooling() {
    let place = Place::new();
    let base = json!({
        "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": FFN,
        "vocab_size": VOCAB, "max_position_embeddings": 40, "type_vocab_size": 1, "pad_token_id": 1, "hidden_act": "gelu",
    });
    let of = |model_type: &str| {
        let mut config = base.clone();
        config["model_type"] = model_type.into();
        config
    };
    let bundle = place.pack(&of("bert"), &encoder("", 40, ("gamma", "beta")));
    let arch = &bundle.header.architecture;
    assert_eq!(
        (arch.kind, arch.norm, arch.norms, arch.activation),
        (Kind::Encoder, Norm::Layer, Norms::Behind, Activation::Gelu)
    );
    assert_eq!((arch.gated, arch.tied, arch.token_types, arch.norm_eps), (false, true, 1, 1e-12));
    assert_eq!((arch.positions, arch.first_position, arch.context), (40, 0, 40));
    let pooling = arch.pooling.unwrap();
    assert_eq!((pooling.kind, pooling.normalize), (PoolingKind::Mean, false));
    let names: Vec<&str> = bundle.header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names.len(), 5 + 2 * 12, "{names:?}");
    assert!(sf_artifact::open(place.folder.path("a.base")).unwrap().is_encoder());

    let tiny = place.folder.path("tiny");
    fs::create_dir(tiny.join("1_Pooling")).unwrap();
    let modules = ["Transformer", "Pooling", "Normalize"].iter().enumerate().map(|(number, kind)| {
        let path = if *kind == "Pooling" { "1_Pooling" } else { "" };
        json!({"idx": number, "path": path, "type": format!("sentence_transformers.models.{kind}")})
    });
    fs::write(tiny.join("modules.json"), Value::from(modules.collect::<Vec<_>>()).to_string()).unwrap();
    fs::write(tiny.join("1_Pooling/config.json"), r#"{"pooling_mode_cls_token":true}"#).unwrap();
    fs::write(tiny.join("sentence_bert_config.json"), r#"{"max_seq_length":32}"#).unwrap();
    let bundle = place.pack(&of("xlm-roberta"), &encoder("roberta.", 40, ("weight", "bias")));
    let arch = &bundle.header.architecture;
    assert_eq!((arch.positions, arch.first_position, arch.context), (40, 2, 32));
    let pooling = arch.pooling.unwrap();
    assert_eq!((pooling.kind, pooling.normalize), (PoolingKind::First, true));
    let slots: Vec<&str> = bundle.header.slots.iter().map(|slot| slot.id.as_str()).collect();
    assert!(slots.contains(&"modules.json") && slots.contains(&"1_Pooling/config.json"), "{slots:?}");
}
