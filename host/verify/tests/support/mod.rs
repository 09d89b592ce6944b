//! Builds the sample and the bad runtime, and writes the tiny model they read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sf_verify::{CheckReport, Group, GroupReport, Report, Verdict, VerifyOptions, verify};

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// Compiles a runtime of `tests/runtimes` as its own head comment says.
pub(crate) fn build(dir: &Path, source: &str, defines: &[&str]) -> PathBuf {
    let library = dir.join("libruntime.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,noexecstack"]);
    cc.arg("-I").arg(root().join("abi/include")).args(defines.iter().map(|define| format!("-D{define}")));
    cc.arg(root().join("tests/runtimes").join(source)).arg("-o").arg(&library).arg("-lm");
    let out = cc.output().expect("a C compiler named cc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library
}

/// The sample.
pub(crate) fn sample(dir: &Path) -> PathBuf {
    build(dir, "sample/sample_runtime.c", &[])
}

/// The bad runtime in one of its modes, or with another define.
pub(crate) fn bad(dir: &Path, mode: &str) -> PathBuf {
    let define = format!("BAD_MODE={mode}");
    let special = match mode {
        "descriptor_not_json" => Some("BAD_NOT_JSON"),
        "extra_export" => Some("BAD_EXTRA_EXPORT"),
        _ => None,
    };
    let defines: Vec<&str> = std::iter::once(define.as_str()).chain(special).collect();
    build(dir, "bad/bad_runtime.c", &defines)
}

/// A model of architecture `toy`: metadata and nothing else.
pub(crate) fn toy_model(dir: &Path) -> PathBuf {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(5u64.to_le_bytes());
    bytes.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("toy")].concat());
    let numbers = [
        ("toy.vocab_size", 260u32),
        ("toy.seed", 7),
        ("toy.context_length", 1024),
        ("tokenizer.ggml.eos_token_id", 257),
    ];
    for (key, value) in numbers {
        bytes.extend([text(key), 4u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat());
    }
    let path = dir.join("toy.gguf");
    std::fs::write(&path, bytes).expect("a temporary folder takes a file");
    path
}

/// Verifies in processes of this crate's stand-in for the worker.
pub(crate) fn verified(path: &Path, model: Option<&Path>, limit: Duration) -> Report {
    let exe = Path::new(env!("CARGO_BIN_EXE_verify-group-test"));
    let options = VerifyOptions {
        model: model.map(Path::to_owned),
        quick: true,
        time_limit: Some(limit),
        ..VerifyOptions::default()
    };
    verify(exe, path, options)
}

/// The group's part of the report.
pub(crate) fn group(report: &Report, group: Group) -> &GroupReport {
    report.groups.iter().find(|it| it.name == group).unwrap_or_else(|| panic!("no {group:?} in {report}"))
}

/// The failed checks of all groups.
pub(crate) fn failures(report: &Report) -> Vec<(Group, &CheckReport)> {
    let groups = report.groups.iter();
    groups
        .flat_map(|group| group.checks.iter().map(move |check| (group.name, check)))
        .filter(|(_, check)| check.verdict == Verdict::Fail)
        .collect()
}
