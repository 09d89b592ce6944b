//! Installs what a fresh machine lacks: compilers and tools from the system's package manager, cargo-nextest.

use std::path::Path;
use std::process::Command;

use crate::error::TaskError;
use crate::shell;

/// A tool by how to see that it is there, and the packages that bring it.
struct Need {
    what: &'static str,
    present: fn() -> bool,
    debian: &'static [&'static str],
    brew: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need {
        what: "C and C++ compilers",
        present: || shell::works("cc", &["--version"]) && shell::works("c++", &["--version"]),
        debian: &["build-essential"],
        brew: &[],
    },
    Need {
        what: "cmake",
        present: || shell::works("cmake", &["--version"]),
        debian: &["cmake"],
        brew: &["cmake"],
    },
    Need {
        what: "clang and libclang",
        present: || shell::works("clang", &["--version"]) && libclang(),
        debian: &["clang", "libclang-dev"],
        brew: &["llvm"],
    },
    Need {
        what: "ccache",
        present: || shell::works("ccache", &["--version"]),
        debian: &["ccache"],
        brew: &["ccache"],
    },
    Need {
        what: "Python with pip and venv",
        present: || {
            shell::works("python3", &["-m", "pip", "--version"])
                && shell::works("python3", &["-c", "import ensurepip"])
        },
        debian: &["python3", "python3-pip", "python3-venv"],
        brew: &["python3"],
    },
];

/// Installs what is missing and says so; does nothing on a complete machine.
pub(crate) fn run() -> Result<(), TaskError> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.present)()).collect();
    for need in &missing {
        eprintln!("missing: {}", need.what);
    }
    if !missing.is_empty() {
        install(&missing)?;
    }
    if !shell::works("cargo", &["nextest", "--version"]) {
        eprintln!("missing: cargo-nextest");
        shell::run(Command::new("cargo").args(["install", "--locked", "cargo-nextest"]))?;
    }
    Ok(())
}

fn install(missing: &[&Need]) -> Result<(), TaskError> {
    let debian: Vec<&str> = missing.iter().flat_map(|need| need.debian).copied().collect();
    let brew: Vec<&str> = missing.iter().flat_map(|need| need.brew).copied().collect();
    if cfg!(target_os = "macos") {
        return shell::run(Command::new("brew").arg("install").args(&brew));
    }
    if !shell::works("apt-get", &["--version"]) {
        let names = debian.join(" ");
        return Err(TaskError::Broken(format!(
            "this system has no apt-get: install by hand what Debian calls {names}"
        )));
    }
    let apt = |args: &[&str]| {
        let mut command = if is_root() { Command::new("apt-get") } else { Command::new("sudo") };
        if !is_root() {
            command.arg("apt-get");
        }
        shell::run(command.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update", "-qq"])?;
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(debian);
    apt(&args)
}

fn is_root() -> bool {
    shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Where bindgen looks, near enough: an explicit path, or Debian's and Apple's usual places.
fn libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() || cfg!(target_os = "macos") {
        return true;
    }
    let holds = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("libclang"))
    };
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    llvm.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-")))
        .any(|path| holds(&path.join("lib")))
}
