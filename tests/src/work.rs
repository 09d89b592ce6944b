//! A directory in which commands are run, and what lies in it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::{binary, signal};

/// An empty directory; what is remembered about runtimes lies beside it.
pub struct WorkDir {
    root: PathBuf,
    _parent: tempfile::TempDir,
}

impl WorkDir {
    /// A new one.
    ///
    /// # Panics
    /// When there is no place for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> WorkDir {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let root = parent.path().join("work");
        fs::create_dir(&root).expect("a writable temporary directory");
        WorkDir { root, _parent: parent }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// `superfluid` with these arguments, run in it.
    pub fn superfluid(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("superfluid"));
        command.args(args).current_dir(&self.root).env("XDG_CACHE_HOME", self.root.with_file_name("cache"));
        command
    }

    /// Starts a command, interrupts it once something of its own lies in the directory, and waits for its end.
    ///
    /// # Panics
    /// When it does not start.
    pub fn interrupted(&self, mut command: Command) -> Output {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        while self.names().is_empty() && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        signal(child.id(), Signal::INT);
        child.wait_with_output().expect("an end")
    }

    /// What lies in it, by name.
    ///
    /// # Panics
    /// When it was removed.
    pub fn names(&self) -> Vec<String> {
        names(&self.root)
    }

    /// A text of a command without the path of the directory.
    pub fn unplaced(&self, text: &str) -> String {
        text.replace(&self.root.display().to_string(), "DIR")
    }
}

/// What lies in a directory, by name.
///
/// # Panics
/// When it cannot be listed.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
