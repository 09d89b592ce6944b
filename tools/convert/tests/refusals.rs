//! What cannot be converted is refused in words that name it, and nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use common::{Folder, Tiny, join, parts, run};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use sf_convert::{Affine, Options, PackOptions};

#[expect(clippy::needless_pass_by_value, reason = "an Expect is made for one comparison")]
fn refused(folder: &Folder, source: &str, options: &Options, refusal: bool, expect: Expect) {
    let before = folder.names();
    let error = run(&folder.path(source), &folder.path("result"), options).unwrap_err();
    let root = folder.path("").display().to_string();
    expect.assert_eq(&error.to_string().replace(&root, "DIR/"));
    assert_eq!(error.is_refusal(), refusal, "{error}");
    assert_eq!(folder.names(), before);
}

/// A copy of the tiny directory whose only safetensors file has another header, or other data.
fn changed(folder: &Folder, name: &str, change: impl FnOnce(&mut Value, &mut Vec<u8>)) {
    let (from, to) = (folder.path("tiny"), folder.path(name));
    fs::create_dir(&to).unwrap();
    for file in common::names(&from) {
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
    let (mut header, mut data) = parts(&from.join("model.safetensors"));
    change(&mut header, &mut data);
    join(&to.join("model.safetensors"), &header.to_string(), &data);
}

const NORM: &str = "model.norm.weight";

#[test]
fn a_source_that_is_no_model_is_refused() {
    let folder = Folder::new(&Options::default());
    let none = Options::default();
    refused(
        &folder,
        "nowhere",
        &none,
        false,
        expect![[r#"
        cannot open DIR/nowhere: cannot read DIR/nowhere: No such file or directory (os error 2) (model.unreadable)
          hint: check the path and its permissions"#]],
    );
    fs::write(folder.path("notes.txt"), "not a model").unwrap();
    refused(
        &folder,
        "notes.txt",
        &none,
        false,
        expect![[r#"
        cannot open DIR/notes.txt: DIR/notes.txt is no model: the file starts with [6e, 6f, 74, 20], no known format does (model.format_unknown)
          hint: pass a .gguf file, a .base bundle, or a directory with config.json and *.safetensors"#]],
    );
    fs::create_dir(folder.path("empty")).unwrap();
    refused(
        &folder,
        "empty",
        &none,
        false,
        expect![[r#"
        cannot open DIR/empty: DIR/empty is no model: a directory without config.json and *.safetensors (model.format_unknown)
          hint: pass a .gguf file, a .base bundle, or a directory with config.json and *.safetensors"#]],
    );
    fs::write(folder.path("some.base"), "BASE").unwrap();
    refused(
        &folder,
        "some.base",
        &none,
        false,
        expect![[r#"
            cannot open DIR/some.base: prologue: ends at byte 64, the file has 4 (base.truncated)
              hint: the copy or download may be incomplete; fetch or pack it again"#]],
    );
    let whole = folder.path("whole.base");
    let pack = PackOptions::default();
    sf_convert::pack(&folder.path("tiny"), &whole, &pack, &mut |_, _| ControlFlow::Continue(())).unwrap();
    refused(
        &folder,
        "whole.base",
        &none,
        true,
        expect![[r#"
        DIR/whole.base is already packed: a .base bundle (convert.format)
          hint: pass the .gguf file, or the directory, that it was packed from"#]],
    );
    fs::write(folder.path("cut.gguf"), &fs::read(folder.path("tiny.gguf")).unwrap()[..9000]).unwrap();
    refused(
        &folder,
        "cut.gguf",
        &none,
        false,
        expect![[r#"
        cannot open DIR/cut.gguf: file ends at byte 9000, the data of tensor "token_embd.weight" at byte 5312 needs 71360 (model.truncated)
          hint: the download may be incomplete; fetch the file again and compare its SHA-256"#]],
    );
    changed(&folder, "mute", |_, _| {});
    fs::remove_file(folder.path("mute/tokenizer.json")).unwrap();
    refused(
        &folder,
        "mute",
        &none,
        true,
        expect!["the result would not be served: there is no tokenizer.json in DIR/mute (convert.unusable)"],
    );
}

#[test]
fn a_gguf_that_has_no_form_is_refused() {
    let folder = Folder::new(&Options::default());
    let check = |tiny: Tiny, expect: Expect| {
        tiny.write(&folder.path("other.gguf"));
        refused(&folder, "other.gguf", &Options::default(), true, expect);
    };
    // 28 is F64.
    check(
        Tiny { kind: 28, ..Tiny::default() },
        expect![[r#"tensor blk.0.ffn_up.weight: blocks of F64 are not converted (convert.tensor)"#]],
    );
    check(
        Tiny { without: "blk.1.ffn_up.weight", ..Tiny::default() },
        expect![[r#"tensor model.layers.1.mlp.up_proj.weight: is missing (convert.tensor)"#]],
    );
    check(
        Tiny { turned: Some(34), ..Tiny::default() },
        expect![[r#"llama.rope.dimension_count is 34, no pairs of a head of 32 (convert.key)"#]],
    );
    check(
        Tiny { turned: Some(15), ..Tiny::default() },
        expect![[r#"llama.rope.dimension_count is 15, no pairs of a head of 32 (convert.key)"#]],
    );
    check(
        Tiny { turned: Some(0), ..Tiny::default() },
        expect![[r#"llama.rope.dimension_count is 0, no pairs of a head of 32 (convert.key)"#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "snapshots")]
fn a_damaged_file_is_refused() {
    let folder = Folder::new(&Options::default());
    let check = |name: &str, expect: Expect, change: fn(&mut Value, &mut Vec<u8>)| {
        changed(&folder, name, change);
        refused(&folder, name, &Options::default(), false, expect);
    };
    check(
        "cut",
        expect![[r#"
        cannot read DIR/cut/model.safetensors: tensor model.layers.1.mlp.down_proj.weight: its data ends at byte 313088, the file has 313087 bytes of data (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |_, data| data.truncate(data.len() - 1),
    );
    check(
        "tail",
        expect![[r#"
        cannot read DIR/tail/model.safetensors: its tensors end at byte 315170, the file at 315171 (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |_, data| data.push(0),
    );
    check(
        "overlap",
        expect![[r#"
        cannot read DIR/overlap/model.safetensors: tensors model.embed_tokens.weight and model.norm.weight share bytes (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| {
            let [begin, end] = [0, 1].map(|at| header[NORM]["data_offsets"][at].as_u64().unwrap());
            header[NORM]["data_offsets"] = json!([begin - 4, end - 4]);
        },
    );
    check(
        "hole",
        expect![[r#"
        cannot read DIR/hole/model.safetensors: between model.embed_tokens.weight and model.layers.0.input_layernorm.weight lie 256 bytes of no tensor (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| {
            header.as_object_mut().unwrap().remove(NORM);
        },
    );
    check(
        "shape",
        expect![[r#"
        cannot read DIR/shape/model.safetensors: tensor model.norm.weight: data_offsets are 66048 to 66304, its shape has 260 bytes (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| header[NORM]["shape"] = json!([65]),
    );
    check(
        "wide",
        expect![[r#"
        cannot read DIR/wide/model.safetensors: tensor model.norm.weight: its shape has more than 2^64 bytes (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| header[NORM]["shape"] = json!([u64::MAX, 4]),
    );
    check(
        "backwards",
        expect![[r#"
        cannot read DIR/backwards/model.safetensors: tensor model.norm.weight: data_offsets are 8 to 4, its shape has 256 bytes (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| header[NORM]["data_offsets"] = json!([8, 4]),
    );
    check(
        "list",
        expect![[r#"
        cannot read DIR/list/model.safetensors: its header is no JSON object: invalid type: sequence, expected a map at line 1 column 0 (convert.safetensors)
          hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| *header = json!([]),
    );
    check(
        "entry",
        expect![[r#"
            cannot read DIR/entry/model.safetensors: tensor model.norm.weight: invalid type: integer `1`, expected an object of dtype, shape and data_offsets (convert.safetensors)
              hint: the file is damaged or its download incomplete; fetch it again"#]],
        |header, _| header[NORM] = json!(1),
    );
    let file = |bytes: &[u8]| fs::write(folder.path("list/model.safetensors"), bytes).unwrap();
    for (bytes, expect) in [
        (
            &b"short"[..],
            expect![[r#"
            cannot read DIR/list/model.safetensors: it has 5 bytes, such a file has at least 8 (convert.safetensors)
              hint: the file is damaged or its download incomplete; fetch it again"#]],
        ),
        (
            &[0xff; 20],
            expect![[r#"
            cannot read DIR/list/model.safetensors: its header would have 18446744073709551615 bytes, the file has 20 (convert.safetensors)
              hint: the file is damaged or its download incomplete; fetch it again"#]],
        ),
        (
            b"\x04\0\0\0\0\0\0\0{,,}",
            expect![[r#"
            cannot read DIR/list/model.safetensors: its header is no JSON object: key must be a string at line 1 column 2 (convert.safetensors)
              hint: the file is damaged or its download incomplete; fetch it again"#]],
        ),
    ] {
        file(bytes);
        refused(&folder, "list", &Options::default(), false, expect);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "snapshots")]
fn a_directory_that_mlx_would_not_read_is_refused() {
    let folder = Folder::new(&Options::default());
    let check = |name: &str,
                 options: &Options,
                 expect: Expect,
                 change: fn(&mut Value, &mut Vec<u8>),
                 config: Value| {
        changed(&folder, name, change);
        folder.edit(&format!("{name}/config.json"), |facts| {
            facts.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        });
        refused(&folder, name, options, true, expect);
    };
    let none = Options::default();
    let four = Options { quantize: Affine::new(4, 64), ..Options::default() };
    let kept = |_: &mut Value, _: &mut Vec<u8>| {};
    check(
        "words",
        &none,
        expect![[
            r#"tensor model.norm.weight: elements of I32 belong to packed matrices, and config.json names none (convert.tensor)"#
        ]],
        |header, _| header[NORM]["dtype"] = json!("I32"),
        json!({}),
    );
    check(
        "kind",
        &none,
        expect![[
            r#"tensor model.norm.weight: elements of F8_E4M3 are not converted, these are: F32, F16, BF16, U32, I32, U8 (convert.tensor)"#
        ]],
        |header, _| {
            header[NORM]["dtype"] = json!("F8_E4M3");
            header[NORM]["shape"] = json!([256]);
        },
        json!({}),
    );
    let block = json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}});
    check(
        "gptq",
        &none,
        expect![[
            r#"config.json's quantization_config says "gptq", 4 bits, groups of 128: only MLX's affine forms are copied (convert.key)"#
        ]],
        kept,
        block,
    );
    check(
        "seven",
        &none,
        expect![[
            r#"config.json's quantization says "affine", 7 bits, groups of 64: only MLX's affine forms are copied (convert.key)"#
        ]],
        kept,
        json!({"quantization": {"bits": 7, "group_size": 64}}),
    );
    check(
        "twice",
        &four,
        expect![[r#"
        config.json's quantization says that the model is quantized already (convert.quantized)
          hint: give the model that it was made of; without --bits and --plain it is copied as it is"#]],
        kept,
        json!({"quantization": {"bits": 4, "group_size": 64}}),
    );
    let wide = Options { quantize: Affine::new(4, 128), ..Options::default() };
    refused(
        &folder,
        "tiny",
        &wide,
        true,
        expect![[r#"
        no matrix has rows of whole groups of 128 elements (convert.group)
          hint: a smaller --group may divide them"#]],
    );
    folder.edit("tiny/config.json", |facts| *facts = json!([]));
    refused(
        &folder,
        "tiny",
        &none,
        true,
        expect![
            "DIR/tiny/config.json is no JSON object: invalid type: sequence, expected a map at line 1 column 0 (convert.key)"
        ],
    );
}

#[test]
fn a_tensor_that_is_in_two_files_is_refused() {
    let folder = Folder::new(&Options::default());
    changed(&folder, "two", |_, _| {});
    fs::copy(folder.path("two/model.safetensors"), folder.path("two/other.safetensors")).unwrap();
    refused(
        &folder,
        "two",
        &Options::default(),
        true,
        expect![[
            r#"tensor model.embed_tokens.weight: it is in DIR/two/other.safetensors and in DIR/two/model.safetensors (convert.tensor)"#
        ]],
    );
}

#[test]
fn a_number_that_the_result_cannot_say_is_refused() {
    let folder = Folder::new(&Options { plain: Some(sf_convert::Plain::F32), ..Options::default() });
    let put = |name: &str, value: f32| {
        changed(&folder, name, |header, data| {
            let at = header[NORM]["data_offsets"][0].as_u64().unwrap() as usize;
            data[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let embedding = header["model.embed_tokens.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
            data[embedding..embedding + 4].copy_from_slice(&value.to_le_bytes());
        });
    };
    let half = Options { plain: Some(sf_convert::Plain::F16), ..Options::default() };
    put("large", 1e5);
    refused(
        &folder,
        "large",
        &half,
        true,
        expect![
            "tensor model.embed_tokens.weight: row 0 has 1e5, which F16 has not; bf16 has (convert.tensor)"
        ],
    );
    put("none", f32::NAN);
    refused(
        &folder,
        "none",
        &Options { quantize: Affine::new(4, 64), ..Options::default() },
        true,
        expect![[
            r#"tensor model.embed_tokens.weight: row 0 has NaN as f32, which has no code (convert.tensor)"#
        ]],
    );
}

/// Sparse, so that the tensor takes no room here: the result would.
#[test]
fn a_result_that_the_disk_has_no_room_for_is_refused() {
    let folder = Folder::new(&Options::default());
    changed(&folder, "huge", |_, _| {});
    let path = folder.path("huge/model.safetensors");
    let (rows, cols) = (1_u64 << 20, 1_u64 << 20);
    let entry = json!({"dtype": "F32", "shape": [rows, cols], "data_offsets": [0, rows * cols * 4]});
    join(&path, &json!({"model.embed_tokens.weight": entry}).to_string(), &[]);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() + rows * cols * 4).unwrap();
    let error =
        run(&folder.path("huge"), &folder.path("result"), &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("the result needs 4398113"), "{error}");
    assert!(error.contains("(convert.space)\n  hint: fewer --bits need less"), "{error}");
    assert!(!Path::new(&folder.path("result")).exists());
}
