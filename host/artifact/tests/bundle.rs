//! A `.base` bundle says what it is and holds its texts; what is wrong with one is said in the words of its format.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sf_artifact::{ArtifactError, ArtifactFormat, TokenizerFiles, open};
use sf_base::{Sum, canonical, prologue};

/// Where the one tensor is.
const DATA: usize = 2 << 20;

/// A bundle of these texts and one tensor; `change` may spoil its header.
fn bundle(texts: &[(&str, &[u8])], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let data = [0x3f; 64];
    let sum = |bytes: &[u8]| {
        let mut sum = Sum::new();
        sum.add(bytes);
        sum.words()
    };
    let (mut file, mut at) = (vec![0; DATA], 1 << 20);
    let mut slots = Vec::new();
    for (id, bytes) in texts {
        file[at..at + bytes.len()].copy_from_slice(bytes);
        slots.push(json!({
            "id": id, "required": false, "offset": at, "bytes": bytes.len(), "checksum": sum(bytes),
        }));
        at = (at + bytes.len()).next_multiple_of(64);
    }
    let mut header = json!({
        "architecture": {
            "family": "qwen3", "kind": "decoder", "vocab": 10, "hidden": 16, "heads": 2, "kv_heads": 1, "head_dim": 8,
            "ffn": 32, "context": 4096, "activation": "silu", "gated": true, "norm": "rms", "norm_eps": 1.0,
            "norms": "before", "qk_norm": true, "attention_scale": 0.5, "embedding_scale": 1.0,
            "attention_softcap": null, "logit_softcap": null, "tied": true,
            "ropes": [{"inv_freq": [1.0], "scale": 1.0}], "layers": [{"rope": 0, "window": null}],
            "pooling": null, "token_types": 0, "positions": 0, "first_position": 0,
        },
        "name": "Toy", "profile": "q4", "quantization": "q4", "parameters": 16,
        "source": {"format": "gguf", "quantization": "F16"},
        "slots": slots,
        "tensors": [{
            "name": "final_norm", "row": 0, "rows": 1, "cols": 16, "layout": "f32", "offset": DATA, "bytes": 64,
            "checksum": sum(&data),
        }],
    });
    change(&mut header);
    let header = canonical(&header);
    file[..64].copy_from_slice(&prologue(header.as_bytes(), DATA as u64, (DATA + 64) as u64));
    file[64..64 + header.len()].copy_from_slice(header.as_bytes());
    file.extend(data);
    file
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a temporary directory"))
    }

    fn put(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("toy.base");
        fs::write(&path, bytes).expect("a writable directory");
        path
    }
}

fn fault(path: &Path) -> (String, &'static str, &'static str) {
    let error: ArtifactError = open(path).expect_err("it is refused");
    (error.to_string(), error.code(), error.hint())
}

#[test]
fn a_bundle_says_what_it_is() {
    let place = Place::new();
    let artifact = open(place.put(&bundle(&[], |_| {}))).expect("a bundle");
    assert_eq!(artifact.format, ArtifactFormat::Base);
    assert_eq!((&*artifact.architecture, &*artifact.quantization), ("qwen3", "q4"));
    assert_eq!((artifact.context_trained, artifact.name.as_deref()), (Some(4096), Some("Toy")));
    assert_eq!((artifact.parameters(), artifact.bytes), (Some(16), DATA as u64 + 64));
    assert_eq!((artifact.is_encoder(), artifact.files.len()), (false, 1));
    assert_eq!(artifact.bundle().map(|bundle| bundle.header.tensors.len()), Some(1));
    assert_eq!((artifact.tokenizer_files().expect("no fault"), artifact.chat_template()), (None, None));
    let vectors = |header: &mut Value| {
        header["architecture"]["kind"] = json!("encoder");
        header["architecture"]["pooling"] = json!({"kind": "mean", "normalize": true});
    };
    assert!(open(place.put(&bundle(&[], vectors))).expect("a bundle").is_encoder());
}

#[test]
fn texts_are_those_of_a_model_directory() {
    let place = Place::new();
    let config = br#"{"chat_template":"{{ x }}"}"#;
    let texts: [(&str, &[u8]); 3] =
        [("tokenizer.json", b"{1}"), ("tokenizer_config.json", config), ("config.json", b"{3}")];
    let artifact = open(place.put(&bundle(&texts, |_| {}))).expect("a bundle");
    let expect = TokenizerFiles {
        tokenizer: "{1}".to_owned(),
        config: Some(r#"{"chat_template":"{{ x }}"}"#.to_owned()),
        generation: None,
        model: Some("{3}".to_owned()),
    };
    assert_eq!(artifact.tokenizer_files().expect("no fault"), Some(expect));
    assert_eq!(artifact.chat_template().as_deref(), Some("{{ x }}"));
    let texts: [(&str, &[u8]); 2] = [("chat_template.jinja", b"{{ y }}"), ("tokenizer_config.json", config)];
    let artifact = open(place.put(&bundle(&texts, |_| {}))).expect("a bundle");
    assert_eq!(artifact.chat_template().as_deref(), Some("{{ y }}"), "its own file comes first");
}

#[test]
fn a_text_that_was_changed_is_refused() {
    let place = Place::new();
    let refused = |bytes: Vec<u8>| {
        let error =
            open(place.put(&bytes)).expect("the header is whole").tokenizer_files().expect_err("refused");
        (error.to_string(), error.code())
    };
    let mut bytes = bundle(&[("tokenizer.json", b"{1}")], |_| {});
    bytes[(1 << 20) + 1] = b'2';
    let (words, code) = refused(bytes);
    assert!(words.starts_with("slot tokenizer.json: its bytes have the checksum "), "{words}");
    assert_eq!(code, "base.checksum");
    let (words, code) = refused(bundle(&[("tokenizer.json", b"{\xff}")], |_| {}));
    assert!(words.contains("toy.base/tokenizer.json: invalid utf-8"), "{words}");
    assert_eq!(code, "model.config");
}

#[test]
fn a_bundle_that_breaks_a_rule_is_refused_by_its_field() {
    let place = Place::new();
    let check = |bytes: &[u8], words: &str, code: &str, hint: &str| {
        let got = fault(&place.put(bytes));
        assert_eq!((got.0.as_str(), got.1), (words, code));
        assert!(got.2.contains(hint), "{}", got.2);
    };
    let whole = bundle(&[], |_| {});
    check(
        &whole[..whole.len() - 1],
        "file: ends at byte 2097216, the file has 2097215 (base.truncated)",
        "base.truncated",
        "incomplete",
    );
    let mut newer = whole;
    newer[4] = 2;
    check(
        &newer,
        "version 2, this build reads version 1 (base.version)",
        "base.version",
        "update superfluid",
    );
    let heads = |header: &mut Value| header["architecture"]["kv_heads"] = json!(3);
    check(
        &bundle(&[], heads),
        "architecture.heads is 2, no multiple of kv_heads, 3 (base.range)",
        "base.range",
        "damaged",
    );
}
