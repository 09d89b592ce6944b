//! A model directory's tokenizer is found with the files beside it, and a file that cannot be read is no missing one.

use std::path::Path;

use sf_artifact::{TokenizerFiles, open};

fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.path().join(name), bytes).expect("a writable directory");
    };
    put("config.json", br#"{"model_type": "bert"}"#);
    put("model.safetensors", b"");
    for (name, bytes) in files {
        put(name, bytes);
    }
    directory
}

fn read(path: &Path) -> Result<Option<TokenizerFiles>, String> {
    let artifact = open(path).expect("a model directory");
    artifact.tokenizer_files().map_err(|fault| fault.to_string())
}

#[test]
fn all_files_are_read_and_only_tokenizer_json_is_needed() {
    let full = directory(&[
        ("tokenizer.json", b"{1}"),
        ("tokenizer_config.json", b"{2}"),
        ("generation_config.json", b"{3}"),
    ]);
    let text = |text: &str| Some(text.to_owned());
    let model = text(r#"{"model_type": "bert"}"#);
    let expect =
        TokenizerFiles { tokenizer: "{1}".to_owned(), config: text("{2}"), generation: text("{3}"), model };
    assert_eq!(read(full.path()), Ok(Some(expect.clone())));
    let least = directory(&[("tokenizer.json", b"{1}")]);
    assert_eq!(read(least.path()), Ok(Some(TokenizerFiles { config: None, generation: None, ..expect })));
    assert_eq!(read(directory(&[("tokenizer_config.json", b"{2}")]).path()), Ok(None));
}

#[test]
fn a_file_that_is_there_must_be_readable() {
    let check = |files: &[(&str, &[u8])], expect: &str| {
        let fault = read(directory(files).path()).expect_err(expect);
        assert!(fault.contains(expect), "{fault}, expected {expect:?}");
    };
    check(&[("tokenizer.json", b"\xff")], "tokenizer.json");
    check(&[("tokenizer.json", b"{}"), ("tokenizer_config.json", b"a\xff")], "index 1");
    let large = vec![b' '; (8 << 20) + 1];
    check(&[("tokenizer.json", b"{}"), ("generation_config.json", &large)], "more than 8388608 bytes");
    let blocked = directory(&[("tokenizer.json", b"{}")]);
    std::fs::create_dir(blocked.path().join("tokenizer_config.json")).expect("writable");
    assert!(read(blocked.path()).expect_err("a directory").contains("tokenizer_config.json"));
}
