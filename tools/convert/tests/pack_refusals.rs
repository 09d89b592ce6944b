//! What cannot be packed is refused in words that name it, and nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::ops::ControlFlow;

use common::{Folder, Tiny, join, parts};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use sf_convert::{Options, PackOptions, Plain, Profile, pack};

#[expect(clippy::needless_pass_by_value, reason = "an Expect is made for one comparison")]
fn refused(folder: &Folder, source: &str, to: &str, options: PackOptions, expect: Expect) {
    let before = folder.names();
    let error = pack(&folder.path(source), &folder.path(to), &options, &mut |_, _| ControlFlow::Continue(()));
    let error = error.unwrap_err();
    let root = folder.path("").display().to_string();
    expect.assert_eq(&error.to_string().replace(&root, "DIR/"));
    assert!(error.is_refusal(), "{error}");
    assert_eq!(folder.names(), before);
}

fn folder() -> Folder {
    Folder::new(&Options { plain: Some(Plain::F32), ..Options::default() })
}

const KEEP: PackOptions = PackOptions { profile: Profile::Keep, force: false };

#[test]
fn a_place_that_is_taken_is_refused() {
    let folder = folder();
    fs::write(folder.path("notes.txt"), "notes").unwrap();
    refused(
        &folder,
        "tiny",
        "notes.txt",
        KEEP,
        expect![[r#"
        DIR/notes.txt is there already (pack.exists)
          hint: name another file; --force replaces a bundle"#]],
    );
    let forced = PackOptions { force: true, ..KEEP };
    refused(
        &folder,
        "tiny",
        "notes.txt",
        forced,
        expect![[r#"
        DIR/notes.txt is no .base bundle, and is not replaced (pack.not_a_bundle)
          hint: name another file, or remove it"#]],
    );
    refused(
        &folder,
        "tiny",
        "tiny",
        forced,
        expect![[r#"
        DIR/tiny is no .base bundle, and is not replaced (pack.not_a_bundle)
          hint: name another file, or remove it"#]],
    );
    pack(&folder.path("tiny"), &folder.path("a.base"), &KEEP, &mut |_, _| ControlFlow::Continue(())).unwrap();
    refused(
        &folder,
        "a.base",
        "b.base",
        KEEP,
        expect![[r#"
        DIR/a.base is already packed: a .base bundle (convert.format)
          hint: pass the .gguf file, or the directory, that it was packed from"#]],
    );
    assert_eq!(fs::read(folder.path("notes.txt")).unwrap(), b"notes");
}

#[test]
fn a_config_that_cannot_be_computed_is_refused_by_its_key() {
    let folder = folder();
    let plain = fs::read(folder.path("tiny/config.json")).unwrap();
    let before = folder.names();
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
        "original_max_position_embeddings": 64,
    });
    let mut all = String::new();
    for (key, value) in [
        ("model_type", json!("mamba")),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(33)),
        ("hidden_size", json!("64")),
        ("hidden_size", json!(96)),
        ("vocab_size", json!(4_000_000_000_u32)),
        ("vocab_size", Value::Null),
        ("num_hidden_layers", json!(3)),
        ("num_hidden_layers", json!(1)),
        ("num_hidden_layers", json!(1_000_000)),
        ("tie_word_embeddings", json!(false)),
        ("rms_norm_eps", json!(-1)),
        ("hidden_act", json!("relu")),
        ("final_logit_softcapping", json!(30.0)),
        ("layer_types", json!(["full_attention"])),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("partial_rotary_factor", json!(1.5)),
        ("rope_scaling", json!({"rope_type": "longrope"})),
        ("rope_scaling", json!({"rope_type": "linear"})),
        ("rope_scaling", llama3),
        ("rope_interleaved", json!(true)),
        ("quantization", json!({"bits": 4, "group_size": 64})),
    ] {
        fs::write(folder.path("tiny/config.json"), &plain).unwrap();
        folder.edit("tiny/config.json", |config| config[key] = value);
        let (from, to) = (folder.path("tiny"), folder.path("a.base"));
        let error = pack(&from, &to, &KEEP, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert!(error.is_refusal(), "{error}");
        assert_eq!(folder.names(), before);
        all += &format!("{error}\n");
    }
    expect![[r#"
        config.json's model_type is "mamba"; packed are llama, mistral, qwen2, qwen3, gemma2, gemma3_text, bert, roberta, xlm-roberta (convert.key)
        config.json's num_key_value_heads is 3, which does not divide 2 num_attention_heads (convert.key)
        config.json's head_dim is 33, it must be even and not so large (convert.key)
        config.json's hidden_size is "64", not a count (convert.key)
        tensor model.embed_tokens.weight: has 258 x 64 elements, expected are 258 x 96 (convert.tensor)
        the model has no bundle: architecture.vocab is 4000000000, allowed are 1 to 16777216 (base.range)
        config.json's vocab_size is missing (convert.key)
        tensor model.layers.2.input_layernorm.weight: is missing (convert.tensor)
        tensor model.layers.1.input_layernorm.weight: is no part of such a model here (convert.tensor)
        config.json's num_hidden_layers is 1000000, at most 4096 are packed (convert.key)
        tensor lm_head.weight: is missing (convert.tensor)
        config.json's rms_norm_eps is -1, not a positive number (convert.key)
        config.json's hidden_act is "relu"; silu, gelu and gelu_pytorch_tanh are packed (convert.key)
        config.json's final_logit_softcapping has no meaning for this architecture (convert.key)
        config.json's layer_types names 1 layers of 2 (convert.key)
        config.json's sliding_window is missing (convert.key)
        config.json's partial_rotary_factor is 1.5, at most 1 (convert.key)
        config.json's rope_scaling has type longrope; default, linear, llama3 and yarn are packed (convert.key)
        config.json's rope_scaling.factor is missing (convert.key)
        config.json's rope_scaling has high_freq_factor not above low_freq_factor (convert.key)
        config.json's rope_interleaved is true, such heads are not packed (convert.key)
        config.json's quantization says that the model is quantized already; pack the model that it was made of (convert.key)
    "#]].assert_eq(&all);
}

#[test]
fn a_tensor_that_does_not_fit_is_refused_by_its_name() {
    let folder = folder();
    let (whole, bytes) = parts(&folder.path("tiny/model.safetensors"));
    let check = |profile, change: &dyn Fn(&mut Value, &mut Vec<u8>), expect: Expect| {
        let (mut header, mut data) = (whole.clone(), bytes.clone());
        change(&mut header, &mut data);
        join(&folder.path("tiny/model.safetensors"), &header.to_string(), &data);
        refused(&folder, "tiny", "a.base", PackOptions { profile, force: false }, expect);
    };
    let name = "model.layers.1.mlp.down_proj.weight";
    let put = |value: f32| {
        move |header: &mut Value, data: &mut Vec<u8>| {
            let at = header[name]["data_offsets"][0].as_u64().unwrap() as usize + 96 * 4;
            data[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    };
    check(
        Profile::F16,
        &put(1e5),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: row 1 has 1e5, which f16 has not; bf16 has, and --profile keep keeps it (convert.tensor)"
        ],
    );
    check(
        Profile::Keep,
        &put(f32::INFINITY),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: row 1 has inf, which is no weight (convert.tensor)"
        ],
    );
    check(
        Profile::Q4,
        &put(f32::NAN),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: row 1 has NaN, which is no weight (convert.tensor)"
        ],
    );
    check(
        Profile::Q8,
        &put(1e9),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: has a scale that is no number or has no place in half precision (convert.tensor)"
        ],
    );
    let rename = |to: &'static str| {
        move |header: &mut Value, _: &mut Vec<u8>| {
            let entry = header.as_object_mut().unwrap().remove(name).unwrap();
            header[to] = entry;
        }
    };
    check(
        Profile::Keep,
        &rename("model.layers.1.mlp.experts.weight"),
        expect!["tensor model.layers.1.mlp.experts.weight: is no part of such a model here (convert.tensor)"],
    );
    check(
        Profile::Keep,
        &rename("model.layers.1.self_attn.rotary_emb.inv_freq"),
        expect!["tensor model.layers.1.mlp.down_proj.weight: is missing (convert.tensor)"],
    );
    let kind = |dtype: &'static str, shape: Value| {
        move |header: &mut Value, _: &mut Vec<u8>| {
            header[name]["dtype"] = dtype.into();
            header[name]["shape"] = shape.clone();
        }
    };
    check(
        Profile::Keep,
        &kind("I32", json!([64, 96])),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: elements of I32 belong to packed matrices, and config.json names none (convert.tensor)"
        ],
    );
    check(
        Profile::Keep,
        &kind("F32", json!([96, 64])),
        expect![
            "tensor model.layers.1.mlp.down_proj.weight: has 96 x 64 elements, expected are 64 x 96 (convert.tensor)"
        ],
    );
}

#[test]
fn a_file_that_is_not_read_is_refused_by_its_tensor() {
    let folder = folder();
    let gguf = folder.path("odd.gguf");
    let check = |tiny: Tiny, expect: Expect| {
        tiny.write(&gguf);
        refused(&folder, "odd.gguf", "a.base", KEEP, expect);
    };
    check(
        Tiny { kind: 28, ..Tiny::default() },
        expect!["tensor blk.0.ffn_up.weight: blocks of F64 are not converted (convert.tensor)"],
    );
    check(
        Tiny { without: "blk.1.ffn_up.weight", ..Tiny::default() },
        expect!["tensor model.layers.1.mlp.up_proj.weight: is missing (convert.tensor)"],
    );
    check(
        Tiny { ffn: 40, ..Tiny::default() },
        expect![
            "tensor model.layers.0.mlp.gate_proj.weight: has 40 rows; gates are packed in sixteens (convert.tensor)"
        ],
    );
    check(
        Tiny { divisors: &[1.0; 15], ..Tiny::default() },
        expect!["tensor rope_freqs.weight: has 15 elements, 16 pairs are turned (convert.tensor)"],
    );
    const ZERO: &[f32; 16] = &[0.0; 16];
    check(
        Tiny { divisors: ZERO, ..Tiny::default() },
        expect!["tensor rope_freqs.weight: has 0, nothing is divided by that (convert.tensor)"],
    );
    let infinite = [0x00, 0x7c].into_iter().chain([0; 32]).collect::<Vec<u8>>().repeat(2 * 96);
    check(
        Tiny { blocks: Some(("blk.0.ffn_up.weight", 8, infinite)), ..Tiny::default() },
        expect![
            "tensor model.layers.0.mlp.up_proj.weight: row 0 has NaN, which is no weight (convert.tensor)"
        ],
    );
}
