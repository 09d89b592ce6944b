//! The files of a model directory: `config.json`, the safetensors files it names, and where each tensor is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::ModelError;
use crate::safetensors::{Header, HeaderError, Tensor, header_bytes};

const CONFIG_BYTES_MAX: u64 = 8 << 20;
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Most entries of a directory that are looked at, and most safetensors files among them.
const ENTRIES_MAX: usize = 10_000;
const SHARDS_MAX: usize = 2_000;

/// Where a tensor's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into [`Files::shards`].
    pub shard: usize,
    /// Its type, shape and offset there.
    pub tensor: Tensor,
}

/// A safetensors file.
#[derive(Debug)]
pub struct Shard {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Bytes before the first tensor.
    pub data: u64,
}

/// A model directory, read as far as its headers.
#[derive(Debug)]
pub struct Files {
    /// Where they are.
    pub directory: PathBuf,
    /// The text of `config.json`.
    pub config: String,
    /// The safetensors files, by name.
    pub shards: Vec<Shard>,
    /// Every tensor by its name.
    pub tensors: BTreeMap<String, Place>,
}

impl Files {
    /// Reads the headers of a model directory; `path` is the directory or a file in it.
    ///
    /// # Errors
    /// A file that is missing, damaged or contradicts the index.
    pub fn open(path: &Path) -> Result<Files, ModelError> {
        let facts = std::fs::metadata(path)
            .map_err(|source| ModelError::Unreadable { path: path.to_owned(), source })?;
        let directory = match path.parent() {
            Some(parent) if !facts.is_dir() => parent,
            _ => path,
        };
        let config = directory.join("config.json");
        if !config.is_file() {
            let why = "there is no config.json in this directory".to_owned();
            return Err(ModelError::Directory { path: directory.to_owned(), why });
        }
        let mut files = Files {
            directory: directory.to_owned(),
            config: text(&config, CONFIG_BYTES_MAX)?,
            shards: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for path in shards(directory)? {
            files.add(&path)?;
        }
        files.check_index(directory)?;
        Ok(files)
    }

    /// The text of a small file beside `config.json`; `None` where there is none.
    pub(crate) fn text_beside(&self, name: &str) -> Result<Option<String>, ModelError> {
        let path = self.directory.join(name);
        if path.is_file() { text(&path, CONFIG_BYTES_MAX).map(Some) } else { Ok(None) }
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|place| place.tensor.bytes).sum()
    }

    fn add(&mut self, path: &Path) -> Result<(), ModelError> {
        let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
        let broken = |error| ModelError::Header { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let mut start = Vec::new();
        file.by_ref().take(8).read_to_end(&mut start).map_err(unreadable)?;
        let header = header_bytes(&start, bytes).map_err(broken)?;
        file.take(header).read_to_end(&mut start).map_err(unreadable)?;
        let parsed = Header::parse(&start, bytes).map_err(broken)?;
        let shard = self.shards.len();
        for (name, tensor) in parsed.tensors {
            if self.tensors.insert(name.clone(), Place { shard, tensor }).is_some() {
                return Err(broken(HeaderError::Twice(name)));
            }
        }
        self.shards.push(Shard { path: path.to_owned(), bytes, data: 8 + header });
        Ok(())
    }

    /// Where there is an index, it and the files must say the same: a shard that was not copied is found here.
    fn check_index(&self, directory: &Path) -> Result<(), ModelError> {
        let path = directory.join("model.safetensors.index.json");
        if !path.is_file() {
            return Ok(());
        }
        let broken = |why: String| ModelError::Index { path: path.clone(), why };
        let index: Value = serde_json::from_str(&text(&path, INDEX_BYTES_MAX)?)
            .map_err(|error| broken(format!("it is not JSON: {error}")))?;
        let map = index.get("weight_map").and_then(Value::as_object);
        for (name, file) in map.ok_or_else(|| broken("it has no weight_map".to_owned()))? {
            let file = file.as_str().ok_or_else(|| broken(format!("{name} has no file's name")))?;
            let found = self.tensors.get(name).map(|place| &self.shards[place.shard].path);
            match found {
                Some(path) if path.file_name().is_some_and(|name| name == file) => {}
                Some(path) => {
                    let here = path.file_name().unwrap_or_default().to_string_lossy();
                    return Err(broken(format!("{name} should be in {file} and is in {here}")));
                }
                None if directory.join(file).is_file() => {
                    return Err(broken(format!("{file} should hold {name} and does not")));
                }
                None => return Err(broken(format!("{file} is missing, which holds {name}"))),
            }
        }
        Ok(())
    }
}

/// The safetensors files of a directory, sorted by name.
fn shards(directory: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: directory.to_owned(), source };
    let mut shards = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)?.take(ENTRIES_MAX) {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            shards.push(path);
        }
    }
    shards.sort();
    let why = match shards.len() {
        0 => "there is no .safetensors file in this directory".to_owned(),
        1..=SHARDS_MAX => return Ok(shards),
        count => format!("{count} .safetensors files, at most {SHARDS_MAX}"),
    };
    Err(ModelError::Directory { path: directory.to_owned(), why })
}

fn text(path: &Path, limit: u64) -> Result<String, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes > limit {
        return Err(ModelError::TooLong { path: path.to_owned(), bytes, limit });
    }
    let mut text = String::new();
    file.take(limit).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}
