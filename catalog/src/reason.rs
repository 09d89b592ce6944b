//! Why a runtime cannot be used, or does not read a model: words for people, a stable code for programs.

use std::path::PathBuf;

/// Why not. The phrase ends with its code in parentheses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum Reason {
    #[error("nothing lies at {} (runtime.missing)", path.display())]
    Missing { path: PathBuf },
    #[error("no runtime.json lies in {} or up to two folders below (runtime.none_here)", path.display())]
    NoneHere { path: PathBuf },
    #[error("{variable} holds the relative path {}; only absolute ones count (runtime.relative_path)", path.display())]
    RelativePath { variable: &'static str, path: PathBuf },
    #[error("cannot read {}: {error} (runtime.unreadable)", path.display())]
    Unreadable { path: PathBuf, error: String },
    #[error("{} is {bytes} bytes long, more than {max} (runtime.too_large)", path.display())]
    TooLarge { path: PathBuf, bytes: u64, max: u64 },
    #[error("{} {why} (runtime.untrusted)", path.display())]
    Untrusted { path: PathBuf, why: String },
    #[error("{} is not a manifest: {why} (runtime.bad_manifest)", path.display())]
    BadManifest { path: PathBuf, why: String },
    #[error("no library for {wanted}; it has {offered} (runtime.platform)")]
    Platform { wanted: String, offered: String },
    #[error("the manifest's library path {path:?} leaves its folder (runtime.path_escape)")]
    PathEscape { path: String },
    #[error("{} is not a library for this machine: {why} (runtime.not_a_library)", path.display())]
    NotLibrary { path: PathBuf, why: String },
    #[error("{} has no descriptor section {section} (runtime.no_descriptor)", path.display())]
    NoDescriptor { path: PathBuf, section: &'static str },
    #[error("bad descriptor: {why} (runtime.bad_descriptor)")]
    BadDescriptor { why: String },
    #[error(
        "manifest and library describe different runtimes: from byte {at} on, the manifest has {manifest:?}, \
         the library {library:?} (runtime.descriptor_mismatch)"
    )]
    DescriptorMismatch { at: usize, manifest: String, library: String },
    #[error("{} is {actual} bytes long, its manifest says {expected} (runtime.size_mismatch)", path.display())]
    SizeMismatch { path: PathBuf, expected: u64, actual: u64 },
    #[error("SHA-256 of {} is {actual}, its manifest says {expected} (runtime.hash_mismatch)", path.display())]
    HashMismatch { path: PathBuf, expected: String, actual: String },
    #[error("built for ABI {}.{}, this host has {}.{} (runtime.abi)", runtime[0], runtime[1], host[0], host[1])]
    Abi { runtime: [u32; 2], host: [u32; 2] },
    #[error("needs the system {}, this is {here} (runtime.os)", needs.join(" or "))]
    Os { needs: Vec<String>, here: String },
    #[error("needs CPU features that this machine lacks: {} (runtime.cpu)", missing.join(", "))]
    Cpu { missing: Vec<String> },
    #[error("hidden by another {id} that comes first: {} (runtime.shadowed)", by.display())]
    Shadowed { id: String, by: PathBuf },
    #[error("it says that it cannot run here: {reason} (runtime.unavailable)")]
    Unavailable { reason: String },
    #[error("its probe failed: {reason} (runtime.probe_failed)")]
    ProbeFailed { reason: String },
    #[error("its probe answered no valid JSON: {why} (runtime.bad_probe)")]
    BadProbe { why: String },
    #[error("reads {reads}, not {format} (runtime.format)")]
    Format { reads: String, format: String },
    #[error("reads {format} version {}, not {version} (runtime.format_version)", reads.join(", "))]
    FormatVersion { format: String, reads: Vec<String>, version: u32 },
    #[error("does not know the architecture {architecture}; it knows {} (runtime.architecture)", few(knows))]
    Architecture { architecture: String, knows: Vec<String> },
    #[error("does not read the quantization {quantization}; it reads {} (runtime.quantization)", few(reads))]
    Quantization { quantization: String, reads: Vec<String> },
}

/// Names shown before the rest becomes a count.
const FEW: usize = 12;

fn few(names: &[String]) -> String {
    match names.len().checked_sub(FEW) {
        Some(rest @ 1..) => format!("{} and {rest} more", names[..FEW].join(", ")),
        _ => names.join(", "),
    }
}

impl Reason {
    /// Stable, e.g. `runtime.hash_mismatch`.
    pub fn code(&self) -> String {
        let (_, code) = self.parts();
        code
    }

    /// The phrase without its code, and the code.
    pub fn parts(&self) -> (String, String) {
        let text = self.to_string();
        match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
            Some((phrase, code)) => (phrase.to_owned(), code.to_owned()),
            None => (text, "runtime.unusable".to_owned()),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Reason::Untrusted { path, .. } => {
                format!("chown it to yourself and chmod go-w {}, if you trust what is in it", path.display())
            }
            Reason::HashMismatch { .. } | Reason::SizeMismatch { .. } | Reason::DescriptorMismatch { .. } => {
                "the library was changed or replaced after its manifest was written: install the runtime again".into()
            }
            Reason::ProbeFailed { .. } | Reason::BadProbe { .. } | Reason::Unavailable { .. } => {
                "superfluid runtimes --probe asks again".into()
            }
            Reason::Abi { .. } => "it must be built again with this version's superfluid_runtime.h".into(),
            _ => return None,
        })
    }
}
