//! The repository's own rules: each is a module that looks at paths, texts or the dependency graph and lists findings.

mod frozen;
mod layers;
mod lengths;
mod module_docs;
mod orphans;
mod source;
mod top_level;
mod unsafe_code;
mod words;

use std::fs;
use std::path::PathBuf;

use crate::error::TaskError;
use crate::tree::Tree;

/// A Rust source file of ours.
pub(crate) struct RustFile {
    /// Relative to the root.
    path: PathBuf,
    /// As it stands.
    text: String,
    /// Without comments and the content of literals; lines keep their numbers.
    code: String,
}

impl RustFile {
    fn new(path: impl Into<PathBuf>, text: String) -> Self {
        let code = source::code_only(&text);
        Self { path: path.into(), text, code }
    }
}

/// What a rule found: `path[:line]: words`. A warning is shown and does not fail.
#[derive(Debug, PartialEq)]
enum Finding {
    Broken(String),
    Warning(String),
}

/// Applies every rule and prints what it finds.
pub(crate) fn run(tree: &Tree) -> Result<(), TaskError> {
    let mut files = Vec::new();
    for path in tree.files()?.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        let full = tree.root().join(&path);
        files.push(RustFile::new(path, fs::read_to_string(&full).map_err(TaskError::io(&full))?));
    }
    let mut findings = layers::check(&tree.metadata);
    findings.extend(top_level::check(&top_level::entries(tree.root())?));
    findings.extend(frozen::check(tree.root())?);
    findings.extend(orphans::check(&files));
    for file in &files {
        findings.extend(module_docs::check(file));
        findings.extend(lengths::check(file));
        findings.extend(unsafe_code::check(file));
        findings.extend(words::check(file));
    }
    let mut broken = 0;
    for finding in &findings {
        match finding {
            Finding::Warning(words) => eprintln!("warning: {words}"),
            Finding::Broken(words) => {
                broken += 1;
                eprintln!("tidy: {words}");
            }
        }
    }
    if broken == 0 {
        eprintln!("tidy: {} files follow the rules", files.len());
        Ok(())
    } else {
        Err(TaskError::Findings(broken))
    }
}
