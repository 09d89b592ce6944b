//! A directory of safetensors becomes one that MLX reads, quantized or as it is; whatever goes wrong leaves nothing behind.

mod common;

use std::fs;
use std::ops::ControlFlow;

use common::{FFN, Folder, Tensor, json, names, open, read, run};
use sf_convert::{Affine, ConvertError, Options, Packed, Plain, convert};

fn options(bits: u32, group: u32) -> Options {
    Options { quantize: Affine::new(bits, group), ..Options::default() }
}

fn plain(plain: Plain) -> Options {
    Options { plain: Some(plain), ..Options::default() }
}

/// Elements of a plain tensor; the tests' own are exact in each type.
fn elements((dtype, _, bytes): &Tensor) -> Vec<f32> {
    let wide = |pair: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
    match dtype.as_str() {
        "F32" => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        "BF16" => bytes.chunks(2).map(wide).collect(),
        other => panic!("{other} is not read here"),
    }
}

#[test]
fn matrices_are_quantized_as_mlx_does_and_the_rest_stays() {
    for kind in [Plain::F32, Plain::Bf16] {
        let folder = Folder::new(&plain(kind));
        let before = read(&folder.path("tiny"));
        for bits in Affine::BITS {
            for group in [32, 64] {
                let to = folder.path(&format!("{bits}-{group}"));
                let form = Affine::new(bits, group).unwrap();
                let report = run(&folder.path("tiny"), &to, &options(bits, group)).unwrap();
                let after = read(&to);
                let mut quantized = 0;
                for (name, tensor) in &before {
                    let (_, shape, _) = tensor;
                    if shape.len() != 2 || !shape[1].is_multiple_of(u64::from(group)) {
                        assert_eq!(&after[name], tensor, "{name}");
                        continue;
                    }
                    quantized += 1;
                    let mut expect = Packed::default();
                    form.quantize(&elements(tensor), kind, &mut expect);
                    let stem = name.strip_suffix(".weight").unwrap();
                    let got =
                        ["weight", "scales", "biases"].map(|part| after[&format!("{stem}.{part}")].2.clone());
                    assert_eq!(got, [expect.words, expect.scales, expect.biases], "{name}, {form:?}");
                }
                // The feed-forward's way back has rows of 96.
                assert_eq!(quantized, if group == 32 { 15 } else { 13 });
                let (config, layout) = open(&to);
                assert!(
                    layout
                        .matrices()
                        .all(|matrix| matrix.blocks.is_some()
                            == (group == 32 || u64::from(matrix.cols) != FFN))
                );
                let of = |name: &str| config.quantization.of(name).map(|blocks| (blocks.bits, blocks.group));
                assert_eq!(of("model.layers.1.self_attn.q_proj"), Some((bits, group)));
                assert_eq!(of("model.layers.1.mlp.down_proj"), (group == 32).then_some((bits, group)));
                let worst = report.shares.iter().map(|share| share.error_max).fold(0.0, f32::max);
                assert!(worst > 0.0 && worst <= 2.01 / ((1 << bits) - 1) as f32, "{bits}: {worst}");
                assert_eq!(report.shares.iter().map(|share| share.tensors).sum::<usize>(), before.len());
            }
        }
    }
}

#[test]
fn the_words_of_a_report_say_how_elements_got_there() {
    let folder = Folder::new(&plain(Plain::Bf16));
    let report = run(&folder.path("tiny"), &folder.path("4"), &options(4, 64)).unwrap();
    let text = report.to_string().replace(&folder.path("").display().to_string(), "");
    expect_test::expect![[r#"
        4: llama, 1 MiB, from 1 MiB
        7 tensors copied: equal
        13 tensors quantized to 4 bits in groups of 64: at most 12.50 % of a row's largest element away
        read again: all 78272 elements compared with the source
    "#]]
    .assert_eq(&text);
    let mut value = report.json();
    value["directory"] = "DIR".into();
    expect_test::expect![[r#"{"schema":"superfluid.convert/1","directory":"DIR","architecture":"llama","files":1,"bytes":66792,"source_bytes":156544,"tensors":[{"what":"copied","tensors":7,"elements":12608,"error_max":0.0},{"what":"quantized to 4 bits in groups of 64","tensors":13,"elements":65664,"error_max":0.125}]}"#]].assert_eq(&value.to_string());
}

#[test]
fn what_nothing_is_asked_of_is_copied() {
    let folder = Folder::new(&plain(Plain::Bf16));
    fs::write(folder.path("tiny/special_tokens_map.json"), "{}").unwrap();
    fs::write(folder.path("tiny/notes.txt"), "not of the model").unwrap();
    run(&folder.path("tiny"), &folder.path("copy"), &Options::default()).unwrap();
    assert_eq!(read(&folder.path("copy")), read(&folder.path("tiny")));
    assert_eq!(json(&folder.path("copy/config.json")), json(&folder.path("tiny/config.json")));
    let expect = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names(&folder.path("copy")), expect);
}

#[test]
fn what_is_quantized_already_is_copied_and_not_quantized_again() {
    let folder = Folder::new(&plain(Plain::Bf16));
    run(&folder.path("tiny"), &folder.path("3"), &options(3, 32)).unwrap();
    run(&folder.path("3"), &folder.path("copy"), &Options::default()).unwrap();
    assert_eq!(read(&folder.path("copy")), read(&folder.path("3")));
    for asked in [options(4, 64), plain(Plain::F16)] {
        let refused = run(&folder.path("3"), &folder.path("again"), &asked).unwrap_err();
        assert!(matches!(refused, ConvertError::Quantized { .. }) && refused.is_refusal(), "{refused}");
    }
    assert_eq!(folder.names(), ["3", "copy", "tiny", "tiny.gguf"]);
}

#[test]
fn plain_elements_become_what_is_asked() {
    let folder = Folder::new(&plain(Plain::Bf16));
    for (kind, name, torch) in [(Plain::F32, "F32", "float32"), (Plain::F16, "F16", "float16")] {
        let to = folder.path(name);
        run(&folder.path("tiny"), &to, &Options { quantize: Affine::new(4, 64), ..plain(kind) }).unwrap();
        let of = |dtype: &str| dtype == name || dtype == "U32";
        assert!(read(&to).values().all(|(dtype, ..)| of(dtype)));
        assert_eq!(json(&to.join("config.json"))["torch_dtype"], torch);
        open(&to);
    }
}

#[test]
fn a_large_result_is_of_several_files_and_an_index() {
    let folder = Folder::new(&plain(Plain::Bf16));
    let to = folder.path("several");
    let report =
        run(&folder.path("tiny"), &to, &Options { file_bytes_max: 20_000, ..options(8, 32) }).unwrap();
    let files: Vec<String> = names(&to).into_iter().filter(|name| name.ends_with(".safetensors")).collect();
    assert_eq!(files.len(), report.files);
    assert_eq!(files[1], format!("model-00002-of-{:05}.safetensors", files.len()));
    let index = json(&to.join("model.safetensors.index.json"));
    assert_eq!(index["weight_map"].as_object().unwrap().len(), read(&to).len());
    open(&to);
    // And back into one.
    run(&to, &folder.path("one"), &Options::default()).unwrap();
    assert_eq!(read(&folder.path("one")), read(&to));
    assert!(!folder.path("one/model.safetensors.index.json").exists());
    // A file that was not fetched is missed.
    fs::remove_file(to.join(&files[1])).unwrap();
    let refused = run(&to, &folder.path("two"), &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("model.safetensors.index.json says that it is in"), "{refused}");
}

#[test]
fn only_a_directory_of_ours_is_replaced_and_only_when_asked() {
    let folder = Folder::new(&plain(Plain::Bf16));
    let (source, to) = (folder.path("tiny"), folder.path("to"));
    let force = Options { force: true, ..options(4, 64) };
    run(&source, &to, &force).unwrap();
    fs::write(to.join("of-before"), "").unwrap();
    let code = |options: &Options| {
        run(&source, &to, options).map(|report| report.files).map_err(|error| error.to_string())
    };
    assert!(code(&options(4, 64)).unwrap_err().contains("(convert.exists)"));
    assert_eq!(code(&force), Ok(1));
    assert!(!to.join("of-before").exists());
    let itself = run(&to, &to, &Options { force: true, ..Options::default() }).unwrap_err();
    assert!(itself.to_string().contains("(convert.overlap)"), "{itself}");
    // A model of somebody else, and something that is no model.
    let (header, data) = common::parts(&to.join("model.safetensors"));
    let mut header = header;
    header["__metadata__"] = serde_json::json!({"format": "pt"});
    common::join(&to.join("model.safetensors"), &header.to_string(), &data);
    assert!(code(&force).unwrap_err().contains("(convert.not_ours)"));
    fs::remove_file(to.join("model.safetensors")).unwrap();
    assert!(code(&force).unwrap_err().contains("(convert.not_ours)"));
    assert_eq!(folder.names(), ["tiny", "tiny.gguf", "to"]);
}

#[test]
fn a_conversion_that_is_stopped_leaves_what_was_there() {
    let folder = Folder::new(&plain(Plain::Bf16));
    let (source, to) = (folder.path("tiny"), folder.path("to"));
    let stop = |options: &Options| {
        let stopped = convert(&source, &to, options, &mut |_, _| ControlFlow::Break(())).unwrap_err();
        assert!(matches!(stopped, ConvertError::Stopped) && !stopped.is_refusal(), "{stopped}");
    };
    stop(&options(4, 64));
    assert_eq!(folder.names(), ["tiny", "tiny.gguf"]);
    run(&source, &to, &options(4, 64)).unwrap();
    let before = read(&to);
    stop(&Options { force: true, ..options(8, 64) });
    assert_eq!(folder.names(), ["tiny", "tiny.gguf", "to"]);
    assert_eq!(read(&to), before);
}

#[test]
fn what_a_killed_conversion_left_is_removed_by_the_next_one() {
    let folder = Folder::new(&plain(Plain::Bf16));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let (ended, alive) = (child.id(), std::os::unix::process::parent_id());
    let others = [format!(".other.converting-{ended}"), format!(".to.converting-{alive}")];
    for name in others.iter().chain([&format!(".to.converting-{ended}")]) {
        fs::create_dir(folder.path(name)).unwrap();
        fs::write(folder.path(name).join("config.json"), "{}").unwrap();
    }
    run(&folder.path("tiny"), &folder.path("to"), &options(4, 64)).unwrap();
    let [other, living] = others.each_ref().map(String::as_str);
    assert_eq!(folder.names(), [other, living, "tiny", "tiny.gguf", "to"]);
}
