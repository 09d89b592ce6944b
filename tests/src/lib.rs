//! Fixtures of the black-box tests: the C runtimes compiled on the spot, tiny GGUF files, and where things lie.
//!
//! A fixture panics with the compiler's own words when it cannot be made: a test without its fixture has failed.

mod agree;
mod conform;
mod foreign;
mod prompts;
mod runtimes;
mod served;
mod server;
mod toy;
mod work;

use std::path::{Path, PathBuf};

pub use agree::agree;
pub use conform::verified;
pub use foreign::{Node, python, run};
pub use prompts::QUESTIONS;
pub use runtimes::{
    BAD_MODES, build_bad, build_sample, compile, descriptor_section, source_path, write_manifest,
};
pub use served::{Toy, completion, piece_of, streamed, text_of};
pub use server::{Answer, Events, Server, signal};
pub use toy::{CHATML, ToyModel, toy_model};
pub use work::{WorkDir, names};

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the repository's root")
}

/// A program built into the same target directory and profile as the running test, e.g. `superfluid`.
///
/// # Panics
/// When it was not built: `cargo xtask test` builds it before the tests run.
pub fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let profile = exe.ancestors().nth(2).expect("a test lies in target/<profile>/deps");
    let path = profile.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.is_file(), "{} is missing: run cargo xtask test, or cargo build -p {name}", path.display());
    path
}

/// A real model from `SUPERFLUID_MODELS`, else from the user's cache, by file name.
///
/// # Panics
/// When it is absent.
pub fn real_model(file: &str) -> PathBuf {
    let dir = std::env::var_os("SUPERFLUID_MODELS").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::home_dir().expect("a home directory, or SUPERFLUID_MODELS");
        home.join(".cache/superfluid/models")
    });
    let path = dir.join(file);
    assert!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
    path
}
