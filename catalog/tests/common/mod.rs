//! What the tests share: runtimes made on the spot by the C compiler, a made-up machine, a made-up prober.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made is a failed test")]

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::value::RawValue;
use sf_abi::descriptor::{LibraryEntry, Manifest};
use sf_catalog::{Catalog, Machine, ModelKind, Root, Search, Source};
use sf_core::ports::{ProbeFailure, Prober};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

pub(crate) const LIBRARY: &str = "libfake.so";

/// A descriptor with an id, a version and more fields, in canonical order where it matters to nobody.
pub(crate) fn descriptor(id: &str, version: &str, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { "," };
    format!(r#"{{"descriptor_version":1,"id":"{id}","version":"{version}","abi":[0,2]{comma}{more}}}"#)
}

/// Reads GGUF and can do a few things.
pub(crate) const GGUF: &str = concat!(
    r#""about":"made for a test","formats":[{"format":"gguf","versions":[2,3],"architectures":["llama","toy"],"#,
    r#""quantizations":["Q4_K","Q8_0","F16"]}],"capabilities":{"workload":{"chat":true,"completion":true,"#,
    r#""embedding":"it has no vectors"},"kv":{"fork":true,"bits":"it stores KV as f32"}}"#
);

pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Fixture { dir: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// A sound runtime in a folder of its own: library and manifest.
    pub(crate) fn runtime(&self, folder: &str, descriptor: &str) -> PathBuf {
        let folder = self.folder(folder);
        compile(&folder.join(LIBRARY), descriptor);
        write_manifest(&folder, descriptor, |_| {});
        folder
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir_all(&folder).unwrap();
        let mut up = folder.as_path();
        while up != self.dir.path() {
            mode(up, 0o755);
            up = up.parent().unwrap();
        }
        folder
    }

    pub(crate) fn search(&self, roots: &[(Source, &str)]) -> Search {
        let root = |(source, path): &(Source, &str)| Root { source: *source, path: self.path(path) };
        Search {
            roots: roots.iter().map(root).collect(),
            cache_dir: None,
            machine: machine(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    pub(crate) fn catalog(&self, roots: &[(Source, &str)]) -> Catalog {
        Catalog::discover(&self.search(roots))
    }

    /// Text without what differs from run to run.
    pub(crate) fn normal(&self, text: &str) -> String {
        let real = fs::canonicalize(self.dir.path()).unwrap();
        let text =
            text.replace(real.to_str().unwrap(), "$DIR").replace(self.dir.path().to_str().unwrap(), "$DIR");
        let mut out = String::new();
        let mut run = String::new();
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_hexdigit() && !c.is_ascii_uppercase() {
                run.push(c);
                continue;
            }
            let size = run.len() > 4 && run.bytes().all(|byte| byte.is_ascii_digit());
            out.push_str(if run.len() == 64 {
                "<sha256>"
            } else if size {
                "<n>"
            } else {
                &run
            });
            run.clear();
            out.push(c);
        }
        out.trim_end().replace(std::env::consts::OS, "$OS").replace(std::env::consts::ARCH, "$ARCH")
    }
}

/// States of all entries, one per line.
pub(crate) fn states(fixture: &Fixture, catalog: &Catalog) -> String {
    let line = |entry: &sf_catalog::Entry| match entry.usable() {
        Ok(()) => format!("{} [{}] usable", entry.title(), entry.source),
        Err(reason) => format!("{} [{}] {reason}", entry.title(), entry.source),
    };
    fixture.normal(&catalog.entries().iter().map(line).collect::<Vec<_>>().join("\n"))
}

pub(crate) fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A library that holds a descriptor and nothing else.
pub(crate) fn compile(library: &Path, descriptor: &str) {
    let text = descriptor.replace('\\', "\\\\").replace('"', "\\\"");
    let code = format!(
        "#include \"superfluid_runtime.h\"\nSFR_DESCRIPTOR_SECTION static const char DESCRIPTOR[] = \"{text}\";\n"
    );
    compile_code(library, &code);
}

pub(crate) fn compile_code(library: &Path, code: &str) {
    let source = library.with_extension("c");
    fs::write(&source, code).unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/include");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source).arg("-I").arg(header);
    let output = cc.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(&source).unwrap();
    mode(library, 0o755);
}

pub(crate) fn write_manifest(
    folder: &Path,
    descriptor: &str,
    change: impl FnOnce(&mut Manifest<Box<RawValue>>),
) {
    let bytes = fs::read(folder.join(LIBRARY)).unwrap();
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut manifest = Manifest {
        manifest_version: 1,
        libraries: vec![LibraryEntry {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            path: LIBRARY.into(),
            sha256,
            size: bytes.len() as u64,
        }],
        descriptor: RawValue::from_string(descriptor.to_owned()).unwrap(),
    };
    change(&mut manifest);
    write(&folder.join("runtime.json"), &serde_json::to_string_pretty(&manifest).unwrap());
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    mode(path, 0o644);
}

/// This system and architecture with one CPU feature.
pub(crate) fn machine() -> Machine {
    Machine {
        os: std::env::consts::OS.into(),
        arch: std::env::consts::ARCH.into(),
        cpu: ["avx2".to_owned()].into(),
        kernel: "1.0".into(),
        visibility: Vec::new(),
    }
}

pub(crate) fn model(format: &str, version: Option<u32>, architecture: &str, quantization: &str) -> ModelKind {
    ModelKind {
        path: "m.gguf".into(),
        format: format.into(),
        version,
        architecture: architecture.into(),
        quantization: quantization.into(),
    }
}

/// Library, environment, depth.
type Asked = (String, Vec<(String, String)>, u32);

/// Answers always the same, and writes down what it was asked.
pub(crate) struct Fake {
    answer: Result<String, ProbeFailure>,
    /// Part of the library's path; others are available.
    only: &'static str,
    pub(crate) asked: RefCell<Vec<Asked>>,
}

impl Fake {
    pub(crate) fn answers(json: &str) -> Self {
        Fake { answer: Ok(json.into()), only: "", asked: RefCell::default() }
    }

    pub(crate) fn fails(reason: &str) -> Self {
        Fake { answer: Err(ProbeFailure { reason: reason.into() }), only: "", asked: RefCell::default() }
    }

    pub(crate) fn only(self, only: &'static str) -> Self {
        Fake { only, ..self }
    }

    pub(crate) fn count(&self) -> usize {
        self.asked.borrow().len()
    }
}

impl Prober for Fake {
    fn probe(&self, library: &Path, env: &[(String, String)], depth: u32) -> Result<String, ProbeFailure> {
        let name = library.file_name().unwrap().to_string_lossy().into_owned();
        self.asked.borrow_mut().push((name, env.to_vec(), depth));
        if library.to_string_lossy().contains(self.only) {
            self.answer.clone()
        } else {
            Ok(r#"{"available":true}"#.into())
        }
    }
}
