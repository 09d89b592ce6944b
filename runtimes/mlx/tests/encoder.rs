//! Encoders: vectors of every golden case with each set of kernels, alone and in company, and what is refused.
//!
//! Alone in its process: the kernels are chosen for all of it.
#![cfg(sf_mlx)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "uses a part of what the other tests share")]
#![allow(clippy::print_stderr, reason = "says which kernels this CPU does not run")]

#[path = "runtime/support.rs"]
mod support;
#[path = "runtime/tiny.rs"]
mod tiny;

use std::path::Path;
use std::sync::Mutex;
use superfluid_mlx::superfluid_export::superfluid_runtime_v1;

use serde_json::{Value, json};
use sf_abi::{SFR_E_ARG, SFR_E_FORMAT, SFR_E_UNSUPPORTED};
use sf_core::{EmbedBatch, Token};
use sf_kit::{KitError, Model};
use superfluid_mlx::use_kernels;
use support::{int, request, runtime};

/// The kernels are of the process: one test at a time.
static KERNELS: Mutex<()> = Mutex::new(());

struct Case {
    config: Value,
    tensors: Vec<(String, String, Vec<usize>)>,
    pooling: String,
    normalized: bool,
    texts: Vec<Vec<u32>>,
    vectors: Vec<Vec<f32>>,
}

impl Case {
    fn read(name: &str) -> Case {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/encoder/{name}.json"));
        let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let of = |key: &str| case[key].clone();
        Case {
            config: of("config"),
            tensors: serde_json::from_value(of("tensors")).unwrap(),
            pooling: serde_json::from_value(of("pooling")).unwrap(),
            normalized: serde_json::from_value(of("normalized")).unwrap(),
            texts: serde_json::from_value(of("texts")).unwrap(),
            vectors: serde_json::from_value(of("vectors")).unwrap(),
        }
    }

    /// A model directory, with the files of sentence-transformers.
    fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        std::fs::write(folder.join("model.safetensors"), tiny::safetensors(&self.tensors)).unwrap();
        let kind = |name: &str| format!("sentence_transformers.models.{name}");
        let mut modules = vec![
            json!({"idx": 0, "name": "0", "path": "", "type": kind("Transformer")}),
            json!({"idx": 1, "name": "1", "path": "1_Pooling", "type": kind("Pooling")}),
        ];
        if self.normalized {
            modules.push(json!({"idx": 2, "name": "2", "path": "2_Normalize", "type": kind("Normalize")}));
        }
        std::fs::write(folder.join("modules.json"), Value::from(modules).to_string()).unwrap();
        let flag = |mode: &str| self.pooling == mode;
        let pooling = json!({
            "word_embedding_dimension": self.config["hidden_size"],
            "pooling_mode_cls_token": flag("first"),
            "pooling_mode_mean_tokens": flag("mean"),
            "pooling_mode_lasttoken": flag("last"),
            "pooling_mode_max_tokens": false,
        });
        std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
        std::fs::write(folder.join("1_Pooling/config.json"), pooling.to_string()).unwrap();
    }
}

fn open(folder: &Path) -> Result<Model, KitError> {
    runtime().open(&request(folder, &[]))
}

fn embed(model: &mut Model, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, KitError> {
    let (mut batch, mut out) = (EmbedBatch::default(), Vec::new());
    for text in texts {
        batch.push(&text.iter().map(|token| Token(*token)).collect::<Vec<_>>());
    }
    let dims = model.embed(&batch, &mut out)?;
    Ok(out.chunks_exact(dims).map(<[f32]>::to_vec).collect())
}

#[test]
fn vectors_are_those_of_the_equations() {
    let _kernels = KERNELS.lock().unwrap();
    for name in ["bert", "bert_first", "bert_last"] {
        let (case, dir) = (Case::read(name), tempfile::tempdir().unwrap());
        case.write(dir.path());
        for kernels in [c"plain", c"avx2", c"builtin", c"avx512"] {
            if !use_kernels(kernels) {
                eprintln!("this CPU does not run {kernels:?}");
                continue;
            }
            let mut model = open(dir.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let facts = model.description().embedding.clone().unwrap();
            assert_eq!((facts.pooling.as_str(), facts.normalized), (case.pooling.as_str(), case.normalized));
            assert_eq!((facts.dims, facts.tokens_max), (48, 32));
            let vectors = embed(&mut model, &case.texts).unwrap();
            // MLX's own operations multiply weights of 16 bits in their own type.
            let share = if kernels == c"builtin" { 2e-3 } else { 1e-5 };
            for (number, (got, want)) in vectors.iter().zip(&case.vectors).enumerate() {
                let most = want.iter().fold(0_f32, |most, value| most.max(value.abs()));
                for (got, want) in got.iter().zip(want) {
                    let far = (got - want).abs() / most;
                    assert!(far <= share, "{kernels:?} {name}: text {number}: {got}, numpy has {want}");
                }
            }
        }
    }
}

#[test]
fn a_vector_is_the_same_bit_for_bit_alone_in_company_and_with_more_threads() {
    let _kernels = KERNELS.lock().unwrap();
    let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
    case.write(dir.path());
    let mut model = open(dir.path()).unwrap();
    let together = embed(&mut model, &case.texts).unwrap();
    let mut others = runtime().open(&request(dir.path(), &[int("threads", 3)])).unwrap();
    let backwards: Vec<Vec<u32>> = case.texts.iter().rev().cloned().collect();
    let turned = embed(&mut others, &backwards).unwrap();
    for (number, text) in case.texts.iter().enumerate() {
        let alone = embed(&mut model, std::slice::from_ref(text)).unwrap().remove(0);
        assert_eq!(alone, together[number], "text {number}");
        assert_eq!(alone, turned[case.texts.len() - 1 - number], "text {number}, backwards on three threads");
    }
}

#[test]
fn an_encoder_has_no_lanes_and_says_so() {
    let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
    case.write(dir.path());
    let mut model = open(dir.path()).unwrap();
    assert_eq!(model.interfaces(), ["sf.embed/1"]);
    let refused = model.lane_create().unwrap_err();
    assert_eq!(refused.code(), SFR_E_UNSUPPORTED);
    assert!(refused.to_string().contains("an encoder makes no text"), "{refused}");
}

#[test]
fn texts_that_do_not_fit_are_refused_and_the_model_goes_on() {
    let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
    case.write(dir.path());
    let mut model = open(dir.path()).unwrap();
    let mut check = |texts: &[Vec<u32>], words: &str| {
        let refused = embed(&mut model, texts).unwrap_err();
        assert_eq!(refused.code(), SFR_E_ARG, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    };
    check(&[vec![1, 2], vec![1; 33]], "text 1 has 33 tokens, the model takes 1 to 32");
    check(&[vec![1, 2], vec![]], "text 1 has 0 tokens");
    check(&[], "there are no texts");
    check(&[vec![1, 64]], "token 64 is outside of the vocabulary of 64");
    assert_eq!(embed(&mut model, &[vec![1; 32]]).unwrap().len(), 1);
}

#[test]
fn without_the_files_of_sentence_transformers_the_mean_is_taken_and_limits_are_the_tables() {
    let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
    case.write(dir.path());
    std::fs::remove_file(dir.path().join("modules.json")).unwrap();
    let facts = open(dir.path()).unwrap().description().embedding.clone().unwrap();
    assert_eq!((facts.pooling.as_str(), facts.normalized, facts.tokens_max), ("mean", false, 32));
    std::fs::write(dir.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 12}"#).unwrap();
    assert_eq!(open(dir.path()).unwrap().description().embedding.clone().unwrap().tokens_max, 12);
}

#[test]
fn a_roberta_counts_positions_from_behind_its_padding() {
    let _kernels = KERNELS.lock().unwrap();
    let (mut case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
    case.config["model_type"] = json!("roberta");
    case.config["pad_token_id"] = json!(1);
    case.write(dir.path());
    let mut model = open(dir.path()).unwrap();
    assert_eq!(model.description().embedding.as_ref().unwrap().tokens_max, 30);
    assert_ne!(embed(&mut model, &[vec![1, 5, 2]]).unwrap(), {
        let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
        case.write(dir.path());
        embed(&mut open(dir.path()).unwrap(), &[vec![1, 5, 2]]).unwrap()
    });
}

#[test]
fn what_is_not_computed_is_refused_by_its_name() {
    let check = |key: &str, value: Value, code: i32, words: &str| {
        let (mut case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
        case.config[key] = value;
        case.write(dir.path());
        let refused = open(dir.path()).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    };
    check("is_decoder", json!(true), SFR_E_UNSUPPORTED, "is_decoder is true");
    check("add_cross_attention", json!(true), SFR_E_UNSUPPORTED, "add_cross_attention is true");
    check("position_embedding_type", json!("relative_key"), SFR_E_UNSUPPORTED, "\"relative_key\"");
    check("hidden_act", json!("relu6"), SFR_E_UNSUPPORTED, "relu6");
    check("architectures", json!(["BertForSequenceClassification"]), SFR_E_UNSUPPORTED, "ForSequenceClass");
    check("num_attention_heads", json!(5), SFR_E_FORMAT, "does not divide 48");
    check("vocab_size", json!(65), SFR_E_FORMAT, "word_embeddings.weight: has shape [64, 48]");
    check("hidden_size", Value::Null, SFR_E_FORMAT, "hidden_size is missing");
    check("layer_norm_eps", json!(-1), SFR_E_FORMAT, "layer_norm_eps is -1");
}

#[test]
fn files_of_sentence_transformers_are_read_or_refused() {
    let check = |file: &str, text: &str, words: &str| {
        let (case, dir) = (Case::read("bert"), tempfile::tempdir().unwrap());
        case.write(dir.path());
        std::fs::write(dir.path().join(file), text).unwrap();
        let refused = open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    };
    check(
        "modules.json",
        r#"[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]"#,
        "models.Dense",
    );
    check("modules.json", r#"[{"type": "x.Pooling", "path": "../p"}]"#, "is not a folder of the model");
    check(
        "modules.json",
        r#"[{"type": "x.Pooling", "path": "9_Pooling"}]"#,
        "9_Pooling/config.json is missing",
    );
    check("modules.json", "{", "modules.json is not JSON");
    check("1_Pooling/config.json", r#"{"pooling_mode_max_tokens": true}"#, "pooling_mode_max_tokens");
    let two = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#;
    check("1_Pooling/config.json", two, "at once");
    check("sentence_bert_config.json", r#"{"max_seq_length": 0}"#, "max_seq_length is 0");
}
