//! The catalog as data of a stable schema, for `superfluid runtimes --json`.
//!
//! Fields are only ever added; `schema` grows when one changes its meaning.

use std::collections::BTreeMap;

use serde::Serialize;
use sf_abi::descriptor::{Capability, Device, Format, Isolation, OptionSpec};

use crate::choose::ModelKind;
use crate::discover::Catalog;
use crate::entry::Entry;
use crate::reason::Reason;

const SCHEMA: u32 = 1;

/// `superfluid runtimes --json`.
#[derive(Debug, Serialize)]
pub struct CatalogReport<'a> {
    /// 1.
    pub schema: u32,
    /// All runtimes, in search order.
    pub runtimes: Vec<RuntimeReport<'a>>,
}

/// One runtime.
#[derive(Debug, Serialize)]
pub struct RuntimeReport<'a> {
    /// Its id.
    pub id: &'a str,
    /// Other names.
    pub aliases: &'a [String],
    /// Its version; `?` when it is not known.
    pub version: &'a str,
    /// One line.
    pub about: &'a str,
    /// Rank in the search order: `--runtime`, `SUPERFLUID_RUNTIMES`, `SUPERFLUID_RUNTIMES_ADD`, `user`, `system`, `bundled`.
    pub source: &'static str,
    /// The path that led to it.
    pub origin: String,
    /// Its manifest.
    pub manifest: Option<String>,
    /// Its library; empty when it is not known.
    pub library: String,
    /// SHA-256 of the library, lower-case hex; empty when it was not computed.
    pub sha256: &'a str,
    /// ABI `[major, minor]`.
    pub abi: [u32; 2],
    /// `any` or `worker`.
    pub isolation: Isolation,
    /// What it reads.
    pub formats: &'a [Format],
    /// Interface ids.
    pub interfaces: &'a [String],
    /// Section → name → `true`, a reason, or a condition.
    pub capabilities: &'a BTreeMap<String, BTreeMap<String, Capability>>,
    /// Its own options.
    pub options: &'a [OptionSpec],
    /// Whether it was probed.
    pub probed: bool,
    /// Devices that a probe listed.
    pub devices: &'a [Device],
    /// Whether it can be used here.
    pub usable: bool,
    /// Why not.
    pub reason: Option<ReasonReport>,
}

/// Why not.
#[derive(Debug, Serialize)]
pub struct ReasonReport {
    /// Stable.
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// `superfluid runtimes MODEL --json`.
#[derive(Debug, Serialize)]
pub struct ModelReport<'a> {
    /// 1.
    pub schema: u32,
    /// Path as given.
    pub model: String,
    /// Its format.
    pub format: String,
    /// Version of the format.
    pub format_version: Option<u32>,
    /// Its architecture; empty = unknown.
    pub architecture: String,
    /// Its quantization; empty = unknown.
    pub quantization: String,
    /// The runtime that would serve it.
    pub chosen: Option<&'a str>,
    /// Every runtime, in search order.
    pub runtimes: Vec<VerdictReport<'a>>,
}

/// Whether one runtime would serve a model.
#[derive(Debug, Serialize)]
pub struct VerdictReport<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its version.
    pub version: &'a str,
    /// It is usable and reads the model.
    pub reads: bool,
    /// Why not.
    pub reason: Option<ReasonReport>,
}

impl From<&Reason> for ReasonReport {
    fn from(reason: &Reason) -> Self {
        let (message, code) = reason.parts();
        ReasonReport { code, message, hint: reason.hint() }
    }
}

impl Catalog {
    /// Everything known about every runtime.
    pub fn report(&self) -> CatalogReport<'_> {
        CatalogReport { schema: SCHEMA, runtimes: self.entries.iter().map(runtime).collect() }
    }

    /// Who reads a model, and why the others do not.
    pub fn model_report(&self, model: impl Into<ModelKind>) -> ModelReport<'_> {
        let model = model.into();
        let verdicts = self.readers(model.clone());
        let chosen = verdicts.iter().find(|(_, verdict)| verdict.is_ok()).map(|(entry, _)| entry.id());
        let runtimes = verdicts.iter().map(|(entry, verdict)| VerdictReport {
            id: entry.id(),
            version: &entry.descriptor.version,
            reads: verdict.is_ok(),
            reason: verdict.as_ref().err().map(ReasonReport::from),
        });
        ModelReport {
            schema: SCHEMA,
            chosen,
            runtimes: runtimes.collect(),
            model: model.path,
            format: model.format,
            format_version: model.version,
            architecture: model.architecture,
            quantization: model.quantization,
        }
    }
}

fn runtime(entry: &Entry) -> RuntimeReport<'_> {
    let descriptor = &entry.descriptor;
    RuntimeReport {
        id: &descriptor.id,
        aliases: &descriptor.aliases,
        version: &descriptor.version,
        about: &descriptor.about,
        source: entry.source.name(),
        origin: entry.origin.display().to_string(),
        manifest: entry.manifest.as_ref().map(|path| path.display().to_string()),
        library: entry.library.display().to_string(),
        sha256: &entry.sha256,
        abi: descriptor.abi,
        isolation: descriptor.isolation,
        formats: &descriptor.formats,
        interfaces: &descriptor.interfaces,
        capabilities: &descriptor.capabilities,
        options: &descriptor.options,
        probed: entry.probe.is_some(),
        devices: entry.probe.as_ref().map_or(&[], |probe| probe.devices.as_slice()),
        usable: entry.usable().is_ok(),
        reason: entry.usable().err().map(ReasonReport::from),
    }
}
