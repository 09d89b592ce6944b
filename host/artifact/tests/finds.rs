//! Models are found where they lie, once each, whatever else lies there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sf_artifact::{ArtifactError, DEPTH_MAX, Finder, open};
use support::tiny;

fn put(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Relative paths; a fault's with its code behind it.
fn found(root: &Path) -> Vec<String> {
    let names = Finder::default().search(root).into_iter().map(|found| {
        let path = found.path.strip_prefix(root).unwrap().display().to_string();
        found.fault.map_or(path.clone(), |fault| format!("{path} {}", fault.code()))
    });
    names.collect()
}

#[test]
fn files_by_their_ending_and_directories_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["b.gguf", "A.GGUF", "x/bundle.base", "x/readme.md", "x/model.bin", "noending"] {
        put(root, name, &tiny());
    }
    for name in ["whole/config.json", "whole/model.safetensors", "whole/inside/other.gguf"] {
        put(root, name, b"{}");
    }
    put(root, "half/config.json", b"{}");
    for name in ["s-00001-of-00002.gguf", "s-00002-of-00002.gguf", "alone-00002-of-00002.gguf"] {
        put(root, name, &tiny());
    }
    let expect =
        ["A.GGUF", "alone-00002-of-00002.gguf", "b.gguf", "s-00001-of-00002.gguf", "whole", "x/bundle.base"];
    assert_eq!(found(root), expect);
    let whole = Finder::default().search(&root.join("whole"));
    assert_eq!(whole.len(), 1, "a directory that is itself a model: {whole:?}");
    let named = Finder::default().search(&root.join("noending"));
    assert_eq!(named.len(), 1, "a file that is named: {named:?}");
}

#[test]
fn links_are_followed_once_and_loops_end() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "blobs/5f3a", &tiny());
    fs::create_dir_all(root.join("snapshots/1")).unwrap();
    fs::create_dir_all(root.join("snapshots/2")).unwrap();
    symlink("../../blobs/5f3a", root.join("snapshots/1/m.gguf")).unwrap();
    symlink("../../blobs/5f3a", root.join("snapshots/2/m.gguf")).unwrap();
    symlink("..", root.join("snapshots/up")).unwrap();
    symlink(".", root.join("self")).unwrap();
    symlink("gone.gguf", root.join("dangling.gguf")).unwrap();
    symlink("nowhere", root.join("nowhere")).unwrap();
    assert_eq!(found(root), ["dangling.gguf model.unreadable", "snapshots/1/m.gguf"]);
}

#[test]
fn eight_levels_down_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let path = |levels: usize| format!("{}m.gguf", "d/".repeat(levels));
    for levels in [0, 1, DEPTH_MAX, DEPTH_MAX + 1] {
        put(dir.path(), &path(levels), &tiny());
    }
    let mut expect = [0, 1, DEPTH_MAX].map(path);
    expect.sort();
    assert_eq!(found(dir.path()), expect);
}

#[test]
fn what_is_not_there_is_a_fault() {
    let found = Finder::default().search(Path::new("/nowhere/at/all"));
    assert!(matches!(found[0].fault, Some(ArtifactError::Unreadable { .. })), "{found:?}");
}

#[test]
fn parameters_are_counted_where_headers_tell() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "tiny.gguf", &tiny());
    assert_eq!(open(dir.path().join("tiny.gguf")).unwrap().parameters(), Some(2 * 32 + 3));
    let safetensors = |tensors: &str, data: usize| {
        [&(tensors.len() as u64).to_le_bytes()[..], tensors.as_bytes(), &vec![0; data]].concat()
    };
    let check = |what: &str, files: &[(&str, usize)], expect: Option<u64>| {
        let folder = dir.path().join(what);
        put(&folder, "config.json", b"{}");
        for (index, &(tensors, data)) in files.iter().enumerate() {
            put(&folder, &format!("model-{index}.safetensors"), &safetensors(tensors, data));
        }
        assert_eq!(open(&folder).unwrap().parameters(), expect, "{what}");
    };
    let float = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[3,4],"data_offsets":[0,24]},
        "b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}}"#;
    check("one", &[(float, 28)], Some(13));
    check("two", &[(float, 28), (float, 28)], Some(26));
    check("cut", &[(float, 27)], None);
    check("packed", &[(r#"{"a":{"dtype":"I32","shape":[8],"data_offsets":[0,32]}}"#, 32)], None);
    let huge = r#"{"a":{"dtype":"F16","shape":[18446744073709551615,9],"data_offsets":[0,2]}}"#;
    check("huge", &[(huge, 2)], None);
    check("damaged", &[("{", 0)], None);
}
