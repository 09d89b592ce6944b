//! The order in which everything is checked; CI and developers run the same.

use crate::engine::{self, Engine, Which};
use crate::error::TaskError;
use crate::tree::Tree;
use crate::{fetch, mlx, setup, shell, tidy};

/// Installs and fetches what is missing, then checks everything: what `.ci/run` calls.
pub(crate) fn test(tree: &Tree) -> Result<(), TaskError> {
    setup::run()?;
    fetch::run(fetch::DEFAULT)?;
    mlx::fetch_if_there_is_one()?;
    run(tree)
}

/// Cheap rules first, so that a mistake in form is reported before minutes of compiling.
pub(crate) fn run(tree: &Tree) -> Result<(), TaskError> {
    shell::run(shell::cargo(tree.root()).args(["fmt", "--all", "--check"]))?;
    tidy::run(tree)?;
    shell::run(shell::cargo(tree.root()).args([
        "clippy",
        "--locked",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;

    engine::run(tree, &engine::Options::native(Which::LlamaCpp, "debug"))?;
    let engine = Engine::find(tree, false)?;
    let llamacpp = ["--release", "--locked", "-p", "sf-runtime-llamacpp"];
    shell::run(engine.cargo(tree).arg("clippy").args(llamacpp).args([
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;

    mlx::check(tree)?;
    engine::run(tree, &engine::Options::native(Which::Basert, "debug"))?;

    let binaries = ["build", "--locked", "-p", "superfluid", "-p", "superfluid-workerd"];
    shell::run(shell::cargo(tree.root()).args(binaries))?;
    shell::run(shell::cargo(tree.root()).args(["nextest", "run", "--locked", "--no-fail-fast"]))?;
    let engine_tests = ["nextest", "run", "--no-tests=pass", "--locked", "--cargo-profile", "release"];
    shell::run(engine.cargo(tree).args(engine_tests).args(["-p", "sf-runtime-llamacpp"]))?;
    shell::run(shell::cargo(tree.root()).args(["test", "--doc", "--locked"]))
}
