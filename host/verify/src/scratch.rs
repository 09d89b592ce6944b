//! A folder for throw-away files that goes when its owner does, however a group's process ended.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::journal::{Broken, broken};

/// A folder that goes with its value. The parent makes one per group and names it in `TMPDIR`, so that what a crashed
/// group left inside goes too.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Broken> {
        let mut name = [0u8; 8];
        let drawn = rustix::rand::getrandom(&mut name, rustix::rand::GetRandomFlags::empty());
        drawn.map_err(|error| broken!("no random name for a folder: {error}"))?;
        let path = std::env::temp_dir().join(format!("superfluid-verify-{:016x}", u64::from_le_bytes(name)));
        std::fs::create_dir(&path).map_err(|error| broken!("cannot make {}: {error}", path.display()))?;
        Ok(Scratch { path })
    }

    /// A file of a model's name.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Broken> {
        let path = self.path.join(format!("{name}.gguf"));
        let written = File::create(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| broken!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
