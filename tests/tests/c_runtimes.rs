//! The C runtimes as a third party would build them: what is in the library, what the manifest says, what it survives.

use std::fs;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSymbol};
use serde_json::value::RawValue;
use sf_abi::descriptor::{Capability, Descriptor, Manifest};
use sf_artifact::ArtifactFormat;
use sf_codec::{Codec, CodecOptions};
use sf_core::{Message, Role};
use sf_tests::{
    BAD_MODES, ToyModel, build_bad, build_sample, compile, descriptor_section, repository, source_path,
    toy_model,
};

/// The one file in a runtime's folder that is not its manifest.
fn library(folder: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(folder).expect("the fixture made the folder").flatten();
    let mut files = entries.map(|entry| entry.path());
    files.find(|path| path.extension().is_none_or(|ext| ext != "json")).expect("the fixture built a library")
}

fn exports(library: &Path) -> Vec<String> {
    let bytes = fs::read(library).expect("the library was just built");
    let file = object::File::parse(&*bytes).expect("a shared library");
    let defined = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    defined.flat_map(|symbol| symbol.name().map(|name| name.trim_start_matches('_').to_owned())).collect()
}

#[test]
fn the_sample_compiles_without_a_warning_wherever_there_is_a_compiler() {
    let dir = tempfile::tempdir().unwrap();
    let exists =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    for compiler in ["cc", "gcc", "clang"].iter().filter(exists) {
        for std in ["-std=c99", "-std=c11"] {
            compile(compiler, &source_path("sample"), &dir.path().join("lib.so"), &[std]);
            assert_eq!(exports(&dir.path().join("lib.so")), [sf_abi::SFR_ENTRY_NAME], "{compiler} {std}");
        }
    }
}

#[test]
fn the_manifest_carries_the_sections_very_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = build_sample(dir.path());
    let text = fs::read_to_string(folder.join("runtime.json")).unwrap();
    let raw: Manifest<Box<RawValue>> = serde_json::from_str(&text).unwrap();
    assert_eq!(raw.descriptor.get().as_bytes(), descriptor_section(&library(&folder)));
    assert_eq!(raw.libraries[0].size, fs::metadata(library(&folder)).unwrap().len());

    let descriptor: Descriptor = serde_json::from_str(raw.descriptor.get()).unwrap();
    assert_eq!((descriptor.id.as_str(), descriptor.abi), ("sample", [0, 2]));
    assert!(matches!(descriptor.capabilities["kv"]["export"], Capability::Yes(_)));
}

#[test]
fn the_sample_survives_damaged_files_and_broken_plans_under_the_sanitizers() {
    let dir = tempfile::tempdir().unwrap();
    let toy = toy_model(dir.path(), &ToyModel::default());
    let check = dir.path().join("sample_check");
    let built = Command::new("cc")
        .args(["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(repository().join("abi/include"))
        .arg(repository().join("tests/runtimes/sample/sample_check.c"))
        .arg("-o")
        .arg(&check)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let out = Command::new(&check).arg(toy).arg(dir.path().join("scratch.gguf")).output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
}

#[test]
fn every_bad_mode_compiles_and_none_is_forgotten() {
    let source = fs::read_to_string(source_path("bad")).unwrap();
    let table = source.split("#define BAD_MODES(X)").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = table.split("X(").skip(1).map(|rest| rest.split(')').next().unwrap());
    assert_eq!(names.filter(|name| *name != "none").collect::<Vec<_>>(), BAD_MODES);
    for mode in BAD_MODES {
        let out = Command::new("cc")
            .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
            .arg(repository().join("abi/include"))
            .arg(format!("-DBAD_MODE={mode}"))
            .arg(source_path("bad"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{mode}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn static_misbehaviour_shows_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let built = |mode: &str| library(&build_bad(dir.path(), mode));
    assert_eq!(exports(&built("none")), [sf_abi::SFR_ENTRY_NAME]);
    assert_eq!(exports(&built("extra_export")).len(), 2);
    let section = |mode: &str| String::from_utf8(descriptor_section(&built(mode))).unwrap();
    assert!(serde_json::from_str::<Descriptor>(&section("none")).is_ok());
    assert!(serde_json::from_str::<Descriptor>(&section("descriptor_not_json")).is_err());
}

#[test]
fn a_toy_model_reads_like_a_real_one() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = sf_artifact::open(toy_model(dir.path(), &ToyModel::default())).unwrap();
    assert_eq!(artifact.format, ArtifactFormat::Gguf { version: 3 });
    assert_eq!((artifact.architecture.as_str(), artifact.context_trained), ("toy", Some(1024)));

    let codec = Codec::open(&artifact, CodecOptions::default()).unwrap();
    assert_eq!(codec.vocab(), ToyModel::VOCAB);
    let text = "the hen is in \u{e4}\n\u{1f980}";
    let tokens = codec.encode(text, false).unwrap();
    assert!(tokens.len() < text.len(), "merges apply");
    assert_eq!(codec.decode(&tokens), text);
    assert!(codec.is_eog(sf_core::Token(ToyModel::EOS)));

    let chat = vec![Message::new(Role::User, "hi")].into();
    let text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(codec.render_text(&chat).unwrap(), text);
    let prompt = codec.render(&chat).unwrap();
    assert_eq!(
        prompt.iter().filter(|token| token.0 > ToyModel::BOS).count(),
        3,
        "markers are control tokens"
    );

    let base = ToyModel { name: "base".into(), chat_template: None, ..ToyModel::default() };
    let base = sf_artifact::open(toy_model(dir.path(), &base)).unwrap();
    assert!(!Codec::open(&base, CodecOptions::default()).unwrap().has_chat());
}
