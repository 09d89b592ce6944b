//! Logits of our own engine for every architecture that is packed from a directory, against mlx-lm's.
//!
//! The golden cases are those of the MLX runtime: `runtimes/mlx/tests/golden`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "uses a part of what the other tests share")]

#[path = "../../../runtimes/mlx/tests/runtime/support.rs"]
mod support;
#[path = "../../../runtimes/mlx/tests/runtime/tiny.rs"]
mod tiny;

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};
use sf_convert::{PackOptions, pack};
use superfluid_basert::superfluid_export::superfluid_runtime_v1;
use support::open;
use tiny::Case;

/// Of the largest logit: keys and values are kept as halves, and sums are made in another order.
const SHARE: f32 = 2e-3;

/// Cases whose weights are plain, of families that are packed; those of Qwen 3 have heads of 24, which no kernel here takes.
const CASES: [&str; 9] = [
    "llama",
    "llama_f16_tied",
    "llama_windows",
    "llama3_rope",
    "linear_rope",
    "mistral",
    "qwen2",
    "gemma2",
    "gemma3",
];

/// A vocabulary of 64 pieces: what a bundle needs beside weights, and no test reads.
fn tokenizer() -> Value {
    let pieces: Vec<Value> = (0..64)
        .map(|n| match n {
            0 => json!(["<unk>", 0.0]),
            1 => json!(["\u{2581}", -1.0]),
            n => json!([char::from(b'0' + n as u8).to_string(), -2.0]),
        })
        .collect();
    json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}
    })
}

fn packed(case: &Case, folder: &Path) -> std::path::PathBuf {
    let directory = case.write(&folder.join("model"), 1);
    std::fs::write(directory.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let bundle = folder.join("model.base");
    let report = pack(&directory, &bundle, &PackOptions::default(), &mut |_, _| ControlFlow::Continue(()));
    report.unwrap_or_else(|error| panic!("{error}"));
    bundle
}

#[test]
fn logits_are_those_of_mlx_lm() {
    for name in CASES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../runtimes/mlx/tests/golden/{name}.json"));
        let case = Case::read_from(&path);
        let dir = tempfile::tempdir().unwrap();
        let bundle = packed(&case, dir.path());
        let mut model = open(&bundle, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        // A neighbour, and in two steps: what one of them keeps the next one reads.
        let (lane, other, (begin, end)) = (model.lane(), model.lane(), case.tokens.split_at(5));
        let mut rows = model.step(&[(other, 0, end, 0..1), (lane, 0, begin, 0..5)]).unwrap().remove(1);
        rows.extend(model.step(&[(lane, 5, end, 0..end.len() as u32)]).unwrap().remove(0));
        let most = case.logits.iter().flatten().fold(0_f32, |most, logit| most.max(logit.abs()));
        for (&row, expect) in case.rows.iter().zip(&case.logits) {
            for (token, (got, want)) in rows[row].iter().zip(expect).enumerate() {
                let far = (got - want).abs() / most;
                assert!(far <= SHARE, "{name}: row {row}, token {token}: {got}, mlx-lm has {want}");
            }
        }
    }
}
