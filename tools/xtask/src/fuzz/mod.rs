//! Fuzzes the targets of `tests/fuzz`, each for so long, and keeps the few inputs that are worth keeping.
//!
//! Building is cargo-fuzz's; the program that it builds is run by us, so that it shows progress and its findings have a
//! place. What it learns stays in the target directory; `--keep` takes the best of it into the committed corpus.

mod keep;
mod run;
mod seeds;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::TaskError;
use crate::shell;
use crate::tree::Tree;

/// Where a target's inputs end and which words help it.
struct Target {
    name: &'static str,
    /// Bytes of one input.
    bytes_max: u32,
    /// A file of `tests/fuzz/dictionaries`, without its ending.
    dictionary: Option<&'static str>,
}

const fn target(name: &'static str, bytes_max: u32, dictionary: Option<&'static str>) -> Target {
    Target { name, bytes_max, dictionary }
}

/// All targets, in the order of a run without names; a test holds it against the folder.
const TARGETS: &[Target] = &[
    target("gguf", 4096, Some("gguf")),
    target("safetensors", 1024, None),
    target("base", 4096, Some("base")),
    target("tokenizer_json", 512, Some("tokenizer")),
    target("tokenizer", 1024, Some("tokenizer")),
    target("detokenize", 512, None),
    target("response", 4096, Some("response")),
    target("grammar", 2048, Some("grammar")),
    target("chat_template", 4096, Some("chat_template")),
    target("wire", 2048, Some("wire")),
    target("mlx_model", 4096, None),
];

const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// What to fuzz, and how.
pub(crate) struct Options {
    targets: Vec<&'static Target>,
    seconds: u32,
    sanitizer: String,
    keep: bool,
}

impl Options {
    /// Reads the arguments of `cargo xtask fuzz`.
    pub(crate) fn parse(args: &[&str]) -> Result<Self, TaskError> {
        let mut options =
            Self { targets: Vec::new(), seconds: 900, sanitizer: "address".into(), keep: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value =
                || args.next().copied().ok_or_else(|| TaskError::Usage(format!("{arg} takes a value")));
            match *arg {
                "--keep" => options.keep = true,
                "--seconds" => {
                    let text = value()?;
                    options.seconds = text.parse().map_err(|_| {
                        TaskError::Usage(format!("--seconds takes a whole number, not {text}"))
                    })?;
                }
                "--sanitizer" => match value()? {
                    known @ ("address" | "none") => known.clone_into(&mut options.sanitizer),
                    other => {
                        return Err(TaskError::Usage(format!(
                            "--sanitizer takes address or none, not {other}"
                        )));
                    }
                },
                name => match TARGETS.iter().find(|target| target.name == name) {
                    Some(target) => options.targets.push(target),
                    None => {
                        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                        let known = known.join(", ");
                        return Err(TaskError::Usage(format!("no fuzz target is called {name}: {known}")));
                    }
                },
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.iter().collect();
        }
        Ok(options)
    }
}

/// Where the parts of one target lie.
struct Place {
    program: PathBuf,
    /// Part of the repository.
    committed: PathBuf,
    /// What a run learns; grows over all runs.
    learned: PathBuf,
    /// Real files, gathered anew before each run.
    seeds: PathBuf,
    findings: PathBuf,
    dictionary: Option<PathBuf>,
}

impl Place {
    fn of(target: &Target, fuzz: &Path, scratch: &Path) -> Result<Self, TaskError> {
        let in_scratch = |kind: &str| -> Result<PathBuf, TaskError> {
            let dir = scratch.join(kind).join(target.name);
            std::fs::create_dir_all(&dir).map_err(TaskError::io(&dir))?;
            Ok(dir)
        };
        Ok(Self {
            program: scratch.join("build").join(HOST).join("release").join(target.name),
            committed: fuzz.join("corpus").join(target.name),
            learned: in_scratch("learned")?,
            seeds: in_scratch("seeds")?,
            findings: in_scratch("findings")?,
            dictionary: target
                .dictionary
                .map(|name| fuzz.join("dictionaries").join(name).with_extension("dict")),
        })
    }
}

/// Runs the targets one after the other; an error when one of them found something.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<(), TaskError> {
    let fuzz = tree.root().join("tests/fuzz");
    let scratch = tree.target().join("fuzz");
    let mut lines = Vec::new();
    let mut findings = 0;
    for target in &options.targets {
        let place = Place::of(target, &fuzz, &scratch)?;
        build(tree, target, &fuzz, &scratch, &options.sanitizer)?;
        seeds::gather(tree, target.name, &place.seeds)?;
        if options.seconds > 0 {
            let report = run::run(target, &place, options.seconds)?;
            findings += report.findings.len();
            lines.push(report.to_string());
        }
        if options.keep {
            lines.push(keep::keep(target, &place)?);
        }
    }
    println!("\n{}", lines.join("\n"));
    if findings > 0 {
        return Err(TaskError::Findings(findings));
    }
    Ok(())
}

fn build(
    tree: &Tree,
    target: &Target,
    fuzz: &Path,
    scratch: &Path,
    sanitizer: &str,
) -> Result<(), TaskError> {
    if !shell::works("cargo-fuzz", &["--version"]) {
        let hint = "cargo-fuzz is missing: cargo install cargo-fuzz";
        return Err(TaskError::Broken(hint.to_owned()));
    }
    let mut command = Command::new("cargo-fuzz");
    // A stable compiler takes the sanitizers' flags only so.
    command.current_dir(tree.root()).env("RUSTC_BOOTSTRAP", "1");
    command.args(["build", "--sanitizer", sanitizer, "--target", HOST]);
    command.arg("--fuzz-dir").arg(fuzz).arg("--target-dir").arg(scratch.join("build"));
    shell::run(command.arg(target.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_folder_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz");
        let stems = std::fs::read_dir(folder.join("fuzz_targets"))
            .expect("the folder")
            .map(|entry| entry.expect("an entry").path());
        let mut stems: Vec<String> =
            stems.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        let mut listed: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        stems.sort();
        listed.sort_unstable();
        assert_eq!(listed, stems);
        for name in TARGETS.iter().filter_map(|target| target.dictionary) {
            assert!(folder.join("dictionaries").join(name).with_extension("dict").is_file(), "{name}");
        }
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let options = Options::parse(&["wire", "--seconds", "5", "gguf", "--keep"]).expect("known arguments");
        let names: Vec<&str> = options.targets.iter().map(|target| target.name).collect();
        assert_eq!((names, options.seconds, options.keep), (vec!["wire", "gguf"], 5, true));
        assert_eq!(Options::parse(&[]).expect("nothing").targets.len(), TARGETS.len());
        let check = |args: &[&str], words: &str| match Options::parse(args) {
            Err(TaskError::Usage(text)) => assert!(text.contains(words), "{text}"),
            other => panic!("{args:?}: {:?}", other.err()),
        };
        check(&["wires"], "no fuzz target is called wires: gguf");
        check(&["--seconds"], "--seconds takes a value");
        check(&["--seconds", "1m"], "not 1m");
        check(&["--sanitizer", "thread"], "address or none");
    }
}
