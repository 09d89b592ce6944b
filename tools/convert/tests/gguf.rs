//! A real GGUF file becomes a directory whose tokenizer, sizes and template are the file's own.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ops::ControlFlow;

use common::{HEAD, Tiny, codec, model, open, read, run};
use sf_convert::{Affine, Options, Plain, convert};

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
    let report = convert(&source, &to, &Options::default(), &mut |done, total| {
        seen.push((done, total));
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert_eq!(report.architecture, "llama");
    let shares = report.shares.iter().map(|share| (share.what.as_str(), share.tensors, share.error_max));
    assert_eq!(shares.collect::<Vec<_>>(), [("copied", 61, 0.0), ("repacked", 211, 0.0)]);
    assert_eq!(report.elements(), 134_515_008);
    assert!(seen.is_sorted() && seen.last().is_some_and(|(done, total)| done == total), "{:?}", seen.last());
    let (from, converted) = (sf_artifact::open(&source).unwrap(), sf_artifact::open(&to).unwrap());
    assert_eq!(converted.chat_template(), from.chat_template());
    assert_eq!((converted.context_trained, converted.quantization.as_str()), (from.context_trained, "4-bit"));
    let (before, after) = (codec(&source), codec(&to));
    assert_eq!(after.vocab(), before.vocab());
    for text in TEXTS {
        assert_eq!(after.encode(text, true).unwrap(), before.encode(text, true).unwrap(), "{text}");
    }
    open(&to);
}

#[test]
fn gemma3_keeps_its_tokens() {
    let (source, dir) = (model("gemma-3-270m-Q4_K_M.gguf"), tempfile::tempdir().unwrap());
    let to = dir.path().join("gemma");
    let report = run(&source, &to, &Options::default()).unwrap();
    assert_eq!(report.architecture, "gemma3_text");
    open(&to);
    println!("{report}");
    // What MLX has no form for can be quantized beside what it has one for.
    let quantized = dir.path().join("quantized");
    let options = Options { quantize: Affine::new(6, 64), ..Options::default() };
    let smaller = run(&source, &quantized, &options).unwrap();
    assert!(smaller.bytes < report.bytes, "{} and {}", smaller.bytes, report.bytes);
    println!("{smaller}");
    let (config, _) = open(&quantized);
    let of = |name: &str| config.quantization.of(name).map(|blocks| (blocks.bits, blocks.group));
    let expect = (Some((8, 32)), Some((6, 64)), Some((5, 32)));
    let got =
        (of("model.embed_tokens"), of("model.layers.0.mlp.down_proj"), of("model.layers.3.mlp.up_proj"));
    assert_eq!(got, expect);
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
    let refused = run(&source, &to, &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("general.architecture is mamba, converted are llama"), "{refused}");
    assert!(!to.exists());
}

/// Rows of heads whose first pairs alone are turned: those come to stand apart, the others stay.
#[test]
fn a_head_that_is_turned_in_part_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("tiny.gguf");
    let float = Options { plain: Some(Plain::F32), ..Options::default() };
    let mut rows = Vec::new();
    for (turned, expect) in [(None, HEAD as u32), (Some(32), 32), (Some(20), 20)] {
        Tiny { turned, ..Tiny::default() }.write(&source);
        let to = dir.path().join(format!("{turned:?}"));
        run(&source, &to, &float).unwrap();
        let (config, _) = open(&to);
        assert_eq!((config.rope.turned(), config.head_dim), (expect, HEAD as u32));
        let (_, shape, bytes) = &read(&to)["model.layers.0.self_attn.k_proj.weight"];
        let row = |row: usize| bytes.chunks(bytes.len() / shape[0] as usize).nth(row).unwrap().to_vec();
        rows.push((0..HEAD as usize).map(row).collect::<Vec<_>>());
    }
    assert_eq!(rows[0], rows[1]);
    // The whole head: row 2 of the source is row 1 of the result, its row 1 is row 16. Of a turned part of 20: row 10.
    assert_eq!((&rows[2][0], &rows[2][1]), (&rows[0][0], &rows[0][1]));
    assert_eq!(rows[2][10], rows[0][16]);
    // Behind the part: row 20 of the source is row 10 of a whole head, and row 20 here.
    assert_eq!((&rows[2][20], &rows[2][31]), (&rows[0][10], &rows[0][31]));
}
