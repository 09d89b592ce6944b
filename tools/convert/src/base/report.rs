//! What packing did, as text and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Name of the JSON form; a change of meaning changes the number.
const SCHEMA: &str = "superfluid.pack/1";

/// What was written, and what a second reading of it found.
#[derive(Clone, Debug)]
pub struct PackReport {
    /// Where the bundle is.
    pub path: PathBuf,
    /// `model_type` of the model.
    pub architecture: String,
    /// How it was packed.
    pub profile: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// Bytes of its tensors.
    pub tensor_bytes: u64,
    /// Bytes of the source's tensors.
    pub source_bytes: u64,
    /// Weights.
    pub parameters: u64,
    /// Each way in which elements got there.
    pub shares: Vec<Share>,
}

/// The tensors that had the same done to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// E.g. `Q4_1 as q4m.16x32, its codes`.
    pub what: String,
    /// How many of the source's.
    pub tensors: usize,
    /// Elements of all of them, each compared with the source.
    pub elements: u64,
    /// What they take in the bundle.
    pub bytes: u64,
    /// How far the farthest is from the source's, as a share of its row's largest; 0 = all are equal.
    pub error_max: f32,
    pub(super) squares: f64,
    pub(super) errors: f64,
}

impl Share {
    /// Counts another one's tensors too.
    pub(super) fn add(&mut self, other: &Share) {
        self.tensors += other.tensors;
        self.elements += other.elements;
        self.bytes += other.bytes;
        self.error_max = self.error_max.max(other.error_max);
        self.squares += other.squares;
        self.errors += other.errors;
    }

    /// The root of the mean square of all differences, as a share of that of the elements; 0 = all are equal.
    pub fn error(&self) -> f64 {
        if self.squares > 0.0 { (self.errors / self.squares).sqrt() } else { 0.0 }
    }
}

impl PackReport {
    /// Elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.shares.iter().map(|share| share.elements).sum()
    }

    /// Whether every element is the source's.
    pub fn is_exact(&self) -> bool {
        self.shares.iter().all(|share| share.error_max == 0.0)
    }

    /// Bits of the bundle's tensors for each weight.
    pub fn bits_per_weight(&self) -> f64 {
        self.tensor_bytes as f64 * 8.0 / self.parameters.max(1) as f64
    }

    /// A document of a stable schema.
    pub fn json(&self) -> Value {
        let shares = self.shares.iter().map(|share| {
            json!({
                "what": share.what, "tensors": share.tensors, "elements": share.elements, "bytes": share.bytes,
                "error_max": share.error_max, "error_rms": share.error(),
            })
        });
        json!({
            "schema": SCHEMA,
            "path": self.path,
            "architecture": self.architecture,
            "profile": self.profile,
            "bytes": self.bytes,
            "source_bytes": self.source_bytes,
            "parameters": self.parameters,
            "bits_per_weight": self.bits_per_weight(),
            "exact": self.is_exact(),
            "tensors": shares.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for PackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let (path, architecture, profile) = (self.path.display(), &self.architecture, self.profile);
        let (bytes, from, bits) = (mib(self.bytes), mib(self.source_bytes), self.bits_per_weight());
        writeln!(
            f,
            "{path}: {architecture}, {profile}, {bytes} MiB from {from} MiB, {bits:.2} bits per weight"
        )?;
        let all = self.elements().max(1) as f64;
        for share in &self.shares {
            let part = share.elements as f64 / all * 100.0;
            write!(f, "{part:5.1} % {}: ", share.what)?;
            match share.error_max > 0.0 {
                true => writeln!(
                    f,
                    "at most {:.2} % of a row's largest element away, {:.3} % in the mean",
                    share.error_max * 100.0,
                    share.error() * 100.0
                )?,
                false => writeln!(f, "equal")?,
            }
        }
        writeln!(f, "read again: all {} elements compared with the source", self.elements())
    }
}
