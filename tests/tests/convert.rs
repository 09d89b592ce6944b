//! `superfluid convert` as a user meets it: a GGUF becomes a directory, that one a smaller one, and nothing half-done stays.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "says what is left out")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use expect_test::expect;
use serde_json::{Map, Value, json};
use sf_tests::{ToyModel, WorkDir, binary, names, real_model, toy_model};

const SOURCE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

fn run(work: &WorkDir, args: &[&str]) -> Output {
    command(work, args).output().unwrap()
}

fn command(work: &WorkDir, args: &[&str]) -> Command {
    work.superfluid(&[&["convert"], args].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What it says on stderr, and its exit code.
fn fails(work: &WorkDir, args: &[&str]) -> (String, i32) {
    let output = run(work, args);
    assert_eq!(output.stdout, b"", "{args:?}");
    (work.unplaced(text(&output.stderr)), output.status.code().unwrap())
}

fn config(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("config.json")).unwrap()).unwrap()
}

/// The elements of MLX's affine form: groups of 32, codes of four or eight bits, halves.
fn elements(words: &[u8], scales: &[u8], biases: &[u8]) -> Vec<f32> {
    let half = |bytes: &[u8], at: usize| {
        let bits = u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
        let size = match exponent {
            0 => fraction * 2_f32.powi(-24),
            _ => (fraction + 1024.0) * 2_f32.powi(exponent - 25),
        };
        if bits >> 15 == 0 { size } else { -size }
    };
    let count = scales.len() / 2 * 32;
    let code = |at: usize| match count == words.len() {
        true => f32::from(words[at]),
        false => f32::from(words[at / 2] >> (at % 2 * 4) & 15),
    };
    (0..count).map(|at| half(scales, at / 32) * code(at) + half(biases, at / 32)).collect()
}

/// Makes plain elements, bf16, of a directory that is packed so.
fn unpack(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
    let mut facts = config(from);
    for key in ["quantization", "quantization_config"] {
        facts.as_object_mut().unwrap().remove(key);
    }
    fs::write(to.join("config.json"), facts.to_string()).unwrap();
    let file = fs::read(from.join("model.safetensors")).unwrap();
    let (length, rest) = file.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let bytes = |name: &str| {
        let at = |end: usize| header[name]["data_offsets"][end].as_u64().unwrap() as usize;
        &data[at(0)..at(1)]
    };
    let (mut entries, mut plain) = (Map::new(), Vec::new());
    for (name, entry) in header.iter().filter(|(name, _)| name.ends_with(".weight")) {
        let (mut entry, begin) = (entry.clone(), plain.len());
        if entry["dtype"] == "U32" {
            let stem = name.strip_suffix(".weight").unwrap();
            let part = |part: &str| bytes(&format!("{stem}.{part}"));
            let values = elements(bytes(name), part("scales"), part("biases"));
            plain.extend(values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()));
            entry["shape"][1] = (values.len() as u64 / entry["shape"][0].as_u64().unwrap()).into();
            entry["dtype"] = "BF16".into();
        } else {
            plain.extend(bytes(name));
        }
        entry["data_offsets"] = json!([begin, plain.len()]);
        entries.insert(name.clone(), entry);
    }
    let header = Value::Object(entries).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.extend(plain);
    fs::write(to.join("model.safetensors"), file).unwrap();
}

#[test]
fn a_gguf_becomes_a_directory_and_that_one_a_smaller_one() {
    let (work, source) = (WorkDir::new(), real_model(SOURCE));
    let (root, source) = (work.path(), source.to_str().unwrap());

    // Without any loss.
    let output = run(&work, &[source, "smol"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "no bar where nobody watches");
    let said = work.unplaced(text(&output.stdout));
    expect![[r#"
        DIR/smol: llama, 94 MiB, from 93 MiB
        61 tensors copied: equal
        211 tensors repacked: equal
        read again: all 134515008 elements compared with the source
    "#]]
    .assert_eq(&said);
    assert_eq!(config(&root.join("smol"))["quantization"]["bits"], 4);

    // What is packed is not packed again.
    let (refused, code) = fails(&work, &["smol", "again", "--bits", "8"]);
    assert_eq!(code, 2);
    expect![[r#"
        superfluid: config.json's quantization says that the model is quantized already (convert.quantized)
          hint: give the model that it was made of; without --bits and --plain it is copied as it is
    "#]]
    .assert_eq(&refused);

    // Plain elements are quantized.
    unpack(&root.join("smol"), &root.join("plain"));
    let output = run(&work, &["plain", "four", "--bits", "4", "--json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["schema"], &report["architecture"]),
        (&json!("superfluid.convert/1"), &json!("llama"))
    );
    let quantized = &report["tensors"][1];
    assert_eq!(quantized["what"], "quantized to 4 bits in groups of 64");
    assert_eq!((&quantized["tensors"], &quantized["elements"]), (&json!(211), &json!(134_479_872)));
    assert_eq!(work.names(), ["four", "plain", "smol"]);
    answers(&root.join("four"));
}

/// Where the runtime was built, the result is served by it.
fn answers(model: &Path) {
    let exe = binary("superfluid");
    if !exe.with_file_name("runtimes").join("mlx/runtime.json").is_file() {
        eprintln!("not served: there is no runtime mlx beside {}", exe.display());
        return;
    }
    let args =
        ["What is the capital of France?", "--temperature", "0", "--max-tokens", "16", "--threads", "1"];
    let output = Command::new(exe).arg("run").arg(model).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(text(&output.stdout).contains("Paris"), "{output:?}");
}

#[test]
fn what_cannot_be_converted_is_said_with_an_exit_code() {
    let work = WorkDir::new();
    toy_model(work.path(), &ToyModel::default());
    let mut all = String::new();
    for (args, code) in [
        (&["nowhere.gguf", "to"][..], 1),
        (&["toy.gguf", "to"], 2),
        (&["toy.gguf", "to", "--group", "32"], 2),
        (&["toy.gguf", "to", "--bits", "1"], 2),
        (&["toy.gguf", "."], 2),
        (&["toy.gguf", ".", "--force"], 2),
        (&["toy.gguf"], 2),
    ] {
        let (words, got) = fails(&work, args);
        assert_eq!(got, code, "{args:?}: {words}");
        all += &words;
    }
    expect![[r#"
        superfluid: cannot open nowhere.gguf: cannot read nowhere.gguf: No such file or directory (os error 2) (model.unreadable)
          hint: check the path and its permissions
        superfluid: general.architecture is toy, converted are llama, qwen2, qwen3, gemma2, gemma3 (convert.key)
        superfluid: --group 32 has no meaning without --bits (convert.usage)
          hint: --bits 4 quantizes to four bits
        superfluid: --bits is "1"; accepted is one of 2, 3, 4, 5, 6, 8 (usage.bad_value)
        superfluid: DIR is there already (convert.exists)
          hint: name another directory; --force replaces one that superfluid convert wrote
        superfluid: DIR holds the model that is converted (convert.overlap)
          hint: name another directory
        superfluid: superfluid convert needs a directory for the result (usage.missing)
          hint: for example: superfluid convert smol.gguf ~/models/smol --bits 4
    "#]].assert_eq(&all);
    assert_eq!(work.names(), ["toy.gguf"]);
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let (work, source) = (WorkDir::new(), real_model(SOURCE));
    let output = work.interrupted(command(&work, &[source.to_str().unwrap(), "smol"]));
    expect![[r#"
        superfluid: stopped before the end; nothing was left behind (convert.stopped)
    "#]]
    .assert_eq(text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(work.names(), [] as [&str; 0]);
}
