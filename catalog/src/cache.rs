//! Remembers library hashes and probe answers between starts, in one small file of the user's.
//!
//! Losing it costs time, never correctness: a file that is damaged, foreign or written by others is read as empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sf_core::limits::RUNTIME_JSON_BYTES_MAX;
use sha2::{Digest as _, Sha256};

use crate::reason::Reason;
use crate::trust;

const FILE: &str = "catalog.json";
const SCHEMA: u32 = 1;
/// Hashes, and probe answers, kept at most.
const RECORDS_MAX: usize = 256;

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    schema: u32,
    hashes: BTreeMap<String, HashRecord>,
    probes: BTreeMap<String, ProbeRecord>,
}

/// A file's hash and what must not have changed since.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct HashRecord {
    size: u64,
    mtime_ns: i128,
    ctime_ns: i128,
    device: u64,
    inode: u64,
    sha256: String,
}

/// What a probe came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProbeRecord {
    /// Its JSON.
    Answer(String),
    /// It crashed, hung, or could not be started.
    Failure(String),
}

/// The open cache.
pub(crate) struct Cache {
    file: Option<PathBuf>,
    stored: Stored,
    used: BTreeSet<String>,
    changed: bool,
}

impl Cache {
    /// Reads what is remembered under `dir`.
    pub(crate) fn open(dir: Option<&Path>, uid: u32) -> Self {
        let file = dir.map(|dir| dir.join(FILE));
        let stored = file.as_deref().and_then(|file| read(file, uid)).unwrap_or_default();
        Cache { file, stored, used: BTreeSet::new(), changed: false }
    }

    /// SHA-256 of a file, lower-case hex; not computed again while the file is the same.
    pub(crate) fn sha256(&mut self, path: &Path) -> Result<String, Reason> {
        let unreadable =
            |error: io::Error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() };
        let facts = fs::metadata(path).map_err(unreadable)?;
        let key = path.to_string_lossy().into_owned();
        let mut record = HashRecord {
            size: facts.len(),
            mtime_ns: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
            ctime_ns: i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec()),
            device: facts.dev(),
            inode: facts.ino(),
            sha256: String::new(),
        };
        self.used.insert(key.clone());
        if let Some(known) = self.stored.hashes.get(&key) {
            record.sha256.clone_from(&known.sha256);
            if record == *known {
                return Ok(record.sha256);
            }
        }
        record.sha256 = hash(path).map_err(unreadable)?;
        let sha256 = record.sha256.clone();
        self.stored.hashes.insert(key, record);
        self.changed = true;
        Ok(sha256)
    }

    /// What a probe came to under this key.
    pub(crate) fn probe(&mut self, key: &str) -> Option<ProbeRecord> {
        self.used.insert(key.to_owned());
        self.stored.probes.get(key).cloned()
    }

    /// Remembers what a probe came to.
    pub(crate) fn remember(&mut self, key: &str, record: ProbeRecord) {
        self.used.insert(key.to_owned());
        self.stored.probes.insert(key.to_owned(), record);
        self.changed = true;
    }

    /// Writes what changed. A cache that cannot be written is a line in the log, no failure.
    pub(crate) fn save(&mut self) {
        let Some(file) = self.file.as_deref().filter(|_| self.changed) else { return };
        let used = &self.used;
        if self.stored.hashes.len() > RECORDS_MAX {
            self.stored.hashes.retain(|key, _| used.contains(key));
        }
        if self.stored.probes.len() > RECORDS_MAX {
            self.stored.probes.retain(|key, _| used.contains(key));
        }
        self.stored.schema = SCHEMA;
        self.changed = false;
        if let Err(error) = write(file, &self.stored) {
            tracing::debug!(file = %file.display(), %error, "the catalog's cache cannot be written");
        }
    }
}

fn read(file: &Path, uid: u32) -> Option<Stored> {
    if !file.exists() {
        return None;
    }
    let facts =
        trust::check_file(file, uid).inspect_err(|reason| tracing::warn!(%reason, "cache not used")).ok()?;
    // A record is a few hundred bytes, a probe's answer at most the limit; a file beyond that is not ours.
    if facts.len() > 4 * RUNTIME_JSON_BYTES_MAX as u64 {
        return None;
    }
    let stored: Stored = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (stored.schema == SCHEMA).then_some(stored)
}

/// Whole or not at all: a second process never sees half a file.
fn write(file: &Path, stored: &Stored) -> io::Result<()> {
    let dir = file.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let draft = dir.join(format!("{FILE}.{}", std::process::id()));
    let written = (|| {
        let mut out =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        out.write_all(&serde_json::to_vec(stored)?)?;
        fs::rename(&draft, file)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sha = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hex(&sha.finalize())),
            n => sha.update(&block[..n]),
        }
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
