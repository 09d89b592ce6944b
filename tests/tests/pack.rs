//! `superfluid pack` and `superfluid inspect` as a user meets them: a model becomes a bundle, and a bundle says what it is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::Output;

use expect_test::expect;
use serde_json::{Value, json};
use sf_tests::{ToyModel, WorkDir, real_model, toy_model};

const SMOL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// What it prints, without the paths of this machine; nothing on stderr.
fn prints(work: &WorkDir, args: &[&str]) -> String {
    let output = work.superfluid(args).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{args:?}");
    let models = real_model(SMOL).parent().unwrap().display().to_string();
    work.unplaced(text(&output.stdout)).replace(&models, "MODELS")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_gguf_becomes_a_bundle_that_says_what_it_is() {
    let work = WorkDir::new();
    let source = real_model(SMOL);
    let said = prints(&work, &["pack", source.to_str().unwrap()]);
    expect![[r#"
        DIR/SmolLM2-135M-Instruct.Q4_1-keep.base: llama, keep, 95 MiB from 93 MiB, 5.74 bits per weight
          0.0 % F32 as f32: equal
         78.9 % Q4_1 as q4m.16x32, its codes: equal
         21.0 % Q8_0 as q8.16x32, its codes: equal
        read again: all 134515008 elements compared with the source
    "#]]
    .assert_eq(&said);
    let bundle = "SmolLM2-135M-Instruct.Q4_1-keep.base";
    let said = prints(&work, &["inspect", bundle, "--verify"]);
    expect![[r#"
        SmolLM2-135M-Instruct.Q4_1-keep.base: .base bundle, llama, Q4_1, 95 MiB
          name        Smollm2 135M 8k Lc100K Mix1 Ep2
          packed      keep, from gguf of Q4_1
          parameters  134515008, 5.74 bits each
          layers      decoder, 30 layers, 9 heads on 3 of 64, hidden 576, feed-forward 1536, 49152 tokens
          context     8192 positions
          text        model's template; tokenizer.json BPE, 49152 tokens, no BOS, ends at <|endoftext|> <|im_end|> <reponame>
          tensors     120 of q4m.16x32, 64 MiB
                      1 of q8.16x32, 29 MiB
                      61 of f32, 1 MiB
          verified    95 MiB are what was written
    "#]].assert_eq(&said);
    let listed = prints(&work, &["inspect", bundle, "--tensors"]);
    assert!(listed.contains("\n  layers.29.gate_up     3072 x 576  q4m.16x32\n"), "{listed}");
    // The list of models shows it, and its text passes the self-test.
    let models: Value = serde_json::from_str(&prints(&work, &["models", ".", "--json"])).unwrap();
    let model = &models["models"][0];
    let facts = ["format", "architecture", "quantization", "parameters", "context"].map(|key| &model[key]);
    assert_eq!(json!(facts), json!(["base", "llama", "Q4_1", 134_515_008, 8192]), "{models}");
    assert_eq!(model["self_test"]["passed"], true, "{model}");
    assert_eq!(work.names(), [bundle]);
}

#[test]
fn an_encoder_becomes_one_of_eight_bits() {
    let work = WorkDir::new();
    let source = real_model("all-MiniLM-L6-v2/config.json");
    let source = source.parent().unwrap().to_str().unwrap();
    let said = prints(&work, &["pack", source, "-o", "mini.base", "--profile", "q8", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    let facts = ["schema", "path", "architecture", "profile", "parameters", "exact"].map(|key| &report[key]);
    assert_eq!(json!(facts), json!(["superfluid.pack/1", "DIR/mini.base", "bert", "q8", 22_565_376, false]));
    assert!(report["bytes"].as_u64().unwrap() * 3 < report["source_bytes"].as_u64().unwrap(), "{report}");
    let said = prints(&work, &["inspect", "mini.base", "--json"]);
    let found: Value = serde_json::from_str(&said).unwrap();
    let facts = ["schema", "format", "architecture", "profile", "context", "tensors"].map(|key| &found[key]);
    assert_eq!(json!(facts), json!(["superfluid.inspect/1", ".base bundle", "bert", "q8", 256, null]));
    assert_eq!(found["layers"]["pooling"], json!({"kind": "mean", "normalize": true}), "{found}");
    // What it was made from is described in the same words.
    let said = prints(&work, &["inspect", source, "--json", "--tensors"]);
    let before: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(before["layers"], found["layers"]);
    assert_eq!(before["tensors"].as_array().map(Vec::len), Some(104));
}

#[test]
fn what_cannot_be_packed_is_said_with_an_exit_code() {
    let work = WorkDir::new();
    toy_model(work.path(), &ToyModel::default());
    fs::write(work.path().join("notes.txt"), "notes").unwrap();
    fs::write(work.path().join("cut.base"), b"BASE\x01\0\0\0").unwrap();
    let mut all = String::new();
    for (args, code) in [
        (&["pack", "nowhere.gguf"][..], 1),
        (&["pack", "toy.gguf"], 2),
        (&["pack", "toy.gguf", "-o", "notes.txt"], 2),
        (&["pack", "toy.gguf", "-o", "notes.txt", "--force"], 2),
        (&["pack", "cut.base"], 1),
        (&["pack"], 2),
        (&["inspect", "cut.base"], 1),
        (&["inspect", "notes.txt"], 1),
        (&["inspect", "toy.gguf", "--verify"], 2),
        (&["serve", "cut.base"], 1),
    ] {
        let Output { status, stdout, stderr } = work.superfluid(args).output().unwrap();
        assert_eq!((stdout, status.code()), (Vec::new(), Some(code)), "{args:?}: {}", text(&stderr));
        all += &work.unplaced(text(&stderr));
    }
    expect![[r#"
        superfluid: cannot open nowhere.gguf: cannot read nowhere.gguf: No such file or directory (os error 2) (model.unreadable)
          hint: check the path and its permissions
        superfluid: general.architecture is toy, converted are llama, qwen2, qwen3, gemma2, gemma3 (convert.key)
        superfluid: DIR/notes.txt is there already (pack.exists)
          hint: name another file; --force replaces a bundle
        superfluid: DIR/notes.txt is no .base bundle, and is not replaced (pack.not_a_bundle)
          hint: name another file, or remove it
        superfluid: cannot open cut.base: prologue: ends at byte 64, the file has 8 (base.truncated)
          hint: the copy or download may be incomplete; fetch or pack it again
        superfluid: superfluid pack needs a model (usage.missing)
          hint: for example: superfluid pack smol.gguf -o smol.base; the bundle's file follows -o
        superfluid: cannot open cut.base: prologue: ends at byte 64, the file has 8 (base.truncated)
          hint: the copy or download may be incomplete; fetch or pack it again
        superfluid: cannot open notes.txt: notes.txt is no model: the file starts with [6e, 6f, 74, 65], no known format does (model.format_unknown)
          hint: pass a .gguf file, a .base bundle, or a directory with config.json and *.safetensors
        superfluid: toy.gguf is no .base bundle: it has no checksums to compare (inspect.no_checksums)
        superfluid: cannot open DIR/cut.base: prologue: ends at byte 64, the file has 8 (base.truncated)
          hint: the copy or download may be incomplete; fetch or pack it again
    "#]].assert_eq(&all);
    assert_eq!(work.names(), ["cut.base", "notes.txt", "toy.gguf"]);
    // A model that is not packed is described all the same.
    let said = prints(&work, &["inspect", "toy.gguf"]);
    expect![[r#"
        toy.gguf: GGUF v3, toy, F32, 1 MiB
          name        toy
          parameters  8, 32.00 bits each
          layers      not packed: general.architecture is toy, converted are llama, qwen2, qwen3, gemma2, gemma3 (convert.key)
          context     1024 positions
          text        model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>
          tensors     1 of F32, 1 MiB
    "#]].assert_eq(&said);
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let work = WorkDir::new();
    let source = real_model(SMOL);
    let args = ["pack", source.to_str().unwrap(), "-o", "smol.base"];
    let output = work.interrupted(work.superfluid(&args));
    expect![[r#"
        superfluid: stopped before the end; nothing was left behind (convert.stopped)
    "#]]
    .assert_eq(text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(work.names(), [] as [&str; 0]);
}
