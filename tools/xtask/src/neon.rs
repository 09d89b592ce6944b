//! Tests the NEON kernels of our own engine: in an emulator where the machine is of another kind.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::TaskError;
use crate::shell;
use crate::tree::Tree;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATORS: [&str; 2] = ["qemu-aarch64", "qemu-aarch64-static"];
/// Where the folder with the tools is; what lies there has the paths that it would have on a system.
const VARIABLE: &str = "SUPERFLUID_AARCH64";
/// For the error's text: how to get the tools.
const HOW: &str = "install rustup's target aarch64-unknown-linux-gnu and Debian's gcc-aarch64-linux-gnu, \
    libc6-dev-arm64-cross and qemu-user, or unpack these and rustc-web, libstd-rust-web-dev (of amd64 and of arm64) \
    and what they depend on in a folder, and set SUPERFLUID_AARCH64 to it";

/// Compilers and an emulator for the other kind of machine.
struct Tools {
    /// None: the system's own.
    folder: Option<PathBuf>,
    path: OsString,
    rustc: PathBuf,
    emulator: &'static str,
}

/// Runs the unit tests of the kernels' crate; each set of kernels is compared with the plain one, bit by bit.
pub(crate) fn run(tree: &Tree) -> Result<(), TaskError> {
    let mut cargo = shell::cargo(tree.root());
    cargo.args(["test", "-p", "sf-runtime-basert", "--lib"]);
    if cfg!(not(target_arch = "aarch64")) {
        let tools = Tools::find(env::var_os(VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from))?;
        // Another compiler may be at work: what the usual one built stays.
        cargo.args(["--target", TARGET, "--target-dir"]).arg(tree.target().join("aarch64"));
        tools.give_to(&mut cargo);
    }
    shell::run(&mut cargo)
}

impl Tools {
    fn find(folder: Option<PathBuf>) -> Result<Tools, TaskError> {
        let bin = folder.iter().map(|folder| folder.join("usr/bin"));
        let usual = env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<PathBuf> = bin.chain(env::split_paths(&usual)).collect();
        let has = |program: &str| dirs.iter().any(|dir| dir.join(program).is_file());
        let own = folder.as_ref().map(|folder| folder.join("usr/bin/rustc")).filter(|rustc| rustc.is_file());
        let rustc = own.unwrap_or_else(|| env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into());
        let emulator = EMULATORS.into_iter().find(|program| has(program));
        let path = env::join_paths(&dirs)
            .map_err(|error| TaskError::Broken(format!("{VARIABLE} cannot be put into PATH: {error}")))?;
        let tools = Tools { folder, path, rustc, emulator: emulator.unwrap_or(EMULATORS[0]) };
        let present = [
            (tools.has_library(), "Rust's library for aarch64"),
            (has(LINKER), LINKER),
            (emulator.is_some(), EMULATORS[0]),
        ];
        let missing: Vec<&str> = present.iter().filter(|(there, _)| !there).map(|(_, what)| *what).collect();
        if missing.is_empty() { Ok(tools) } else { Err(refusal(&missing, tools.folder.as_deref())) }
    }

    /// Whether the compiler has what programs for the other machine are linked with.
    fn has_library(&self) -> bool {
        let mut rustc = Command::new(&self.rustc);
        self.share_libraries(&mut rustc);
        let dir = shell::output(rustc.args(["--print", "target-libdir", "--target", TARGET]));
        dir.is_ok_and(|dir| Path::new(dir.trim()).is_dir())
    }

    /// The folder's programs need the folder's shared libraries.
    fn share_libraries(&self, command: &mut Command) {
        if let Some(folder) = &self.folder {
            command.env("LD_LIBRARY_PATH", folder.join("usr/lib/x86_64-linux-gnu"));
        }
    }

    fn give_to(&self, cargo: &mut Command) {
        let root = self.folder.as_deref().unwrap_or(Path::new("/"));
        let libraries = root.join("usr/aarch64-linux-gnu");
        let runner = format!("{} -cpu max -L {}", self.emulator, libraries.display());
        cargo
            .env("PATH", &self.path)
            .env("RUSTC", &self.rustc)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
        if let Some(folder) = &self.folder {
            let flags = format!("-C link-arg=--sysroot={}", folder.display());
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", flags);
        }
        self.share_libraries(cargo);
    }
}

fn refusal(missing: &[&str], folder: Option<&Path>) -> TaskError {
    let place = match folder {
        Some(folder) => format!("in {} ({VARIABLE}) or on this system", folder.display()),
        None => "on this system".to_owned(),
    };
    TaskError::Broken(format!("not {place}: {}; {HOW}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_folder_lacks_is_named_with_how_to_get_it() {
        let empty = tempfile::tempdir().unwrap();
        let text = refusal(&[LINKER], Some(empty.path())).to_string();
        for part in [LINKER, VARIABLE, TARGET, "qemu-user", &empty.path().display().to_string()] {
            assert!(text.contains(part), "{part} in: {text}");
        }
    }

    #[test]
    fn a_folder_s_tools_come_before_the_system_s() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        for program in [LINKER, "qemu-aarch64-static"] {
            std::fs::write(bin.join(program), "").unwrap();
        }
        // A compiler that answers with a folder that is there.
        let rustc = bin.join("rustc");
        std::fs::write(&rustc, format!("#!/bin/sh\necho {}\n", bin.display())).unwrap();
        std::fs::set_permissions(&rustc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let tools = Tools::find(Some(dir.path().to_owned())).unwrap();
        assert_eq!(tools.rustc, rustc);
        assert_eq!(env::split_paths(&tools.path).next(), Some(bin));
    }
}
