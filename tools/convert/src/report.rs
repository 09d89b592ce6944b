//! What a conversion did, as text and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Name of the JSON form; a change of meaning changes the number.
const SCHEMA: &str = "superfluid.convert/1";

/// What was written, and what a second reading of it found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where the model is.
    pub directory: PathBuf,
    /// `model_type` of the result.
    pub architecture: String,
    /// Safetensors files.
    pub files: usize,
    /// Their bytes together.
    pub bytes: u64,
    /// Their bytes in the source.
    pub source_bytes: u64,
    /// Each way in which elements got there.
    pub shares: Vec<Share>,
}

/// The tensors that had the same done to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// E.g. `copied`, `repacked`, `quantized to 4 bits in groups of 64`.
    pub what: String,
    /// How many.
    pub tensors: usize,
    /// Elements of all of them, each compared with the source.
    pub elements: u64,
    /// How far the farthest is from the source's, as a share of its row's largest; 0 = all are equal.
    pub error_max: f32,
}

impl Share {
    pub(crate) fn new(what: String) -> Share {
        Share { what, tensors: 0, elements: 0, error_max: 0.0 }
    }
}

impl Report {
    /// Elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.shares.iter().map(|share| share.elements).sum()
    }

    /// A document of a stable schema.
    pub fn json(&self) -> Value {
        let shares = self.shares.iter().map(|share| {
            json!({
                "what": share.what, "tensors": share.tensors, "elements": share.elements,
                "error_max": share.error_max,
            })
        });
        json!({
            "schema": SCHEMA,
            "directory": self.directory,
            "architecture": self.architecture,
            "files": self.files,
            "bytes": self.bytes,
            "source_bytes": self.source_bytes,
            "tensors": shares.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let (path, files) = (self.directory.display(), self.files);
        let files = if files == 1 { String::new() } else { format!(" in {files} files") };
        writeln!(
            f,
            "{path}: {}, {} MiB{files}, from {} MiB",
            self.architecture,
            mib(self.bytes),
            mib(self.source_bytes)
        )?;
        for share in &self.shares {
            let Share { what, tensors, error_max, .. } = share;
            let plural = if *tensors == 1 { "" } else { "s" };
            match *error_max > 0.0 {
                true => writeln!(
                    f,
                    "{tensors} tensor{plural} {what}: at most {:.2} % of a row's largest element away",
                    error_max * 100.0
                )?,
                false => writeln!(f, "{tensors} tensor{plural} {what}: equal")?,
            }
        }
        writeln!(f, "read again: all {} elements compared with the source", self.elements())
    }
}
