//! Chooses the runtime that serves a model: the one asked for, else the first usable one that reads it.

use std::fmt;

use sf_abi::descriptor::Format;
use sf_artifact::{Artifact, ArtifactFormat};

use crate::discover::Catalog;
use crate::entry::Entry;
use crate::reason::Reason;
use crate::require::{Refusal, Requirement, Verdict};

/// What a choice looks at in a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelKind {
    /// For messages.
    pub path: String,
    /// As descriptors spell it: `gguf`, `safetensors`, `base`.
    pub format: String,
    /// Of the format, when it has one.
    pub version: Option<u32>,
    /// By the format's own name; empty = unknown.
    pub architecture: String,
    /// By the format's own name; empty = unknown.
    pub quantization: String,
}

impl From<&Artifact> for ModelKind {
    fn from(artifact: &Artifact) -> Self {
        let (format, version) = match artifact.format {
            ArtifactFormat::Gguf { version } => ("gguf", Some(version)),
            ArtifactFormat::SafetensorsDir => ("safetensors", None),
            ArtifactFormat::Base => ("base", None),
        };
        // What a header does not say, or a model without weights.
        let known =
            |text: &str| if matches!(text, "unknown" | "none") { String::new() } else { text.to_owned() };
        ModelKind {
            path: artifact.path.display().to_string(),
            format: format.into(),
            version,
            architecture: known(&artifact.architecture),
            quantization: known(&artifact.quantization),
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.path, self.format)?;
        if let Some(version) = self.version {
            write!(f, " v{version}")?;
        }
        for fact in [&self.architecture, &self.quantization] {
            if !fact.is_empty() {
                write!(f, ", {fact}")?;
            }
        }
        f.write_str(")")
    }
}

/// The runtime that was chosen, and what the log should say about it.
#[derive(Debug)]
pub struct Choice<'a> {
    /// The runtime.
    pub entry: &'a Entry,
    /// Lines that explain a tie, or a condition that the runtime made.
    pub notes: Vec<String>,
}

/// Why no runtime was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum ChoiceError {
    #[error(
        "there is no runtime {wanted} here{} (runtime.unknown)\n  hint: {}",
        tail(nearest),
        listed(known)
    )]
    UnknownRuntime { wanted: String, nearest: Option<String>, known: Vec<String> },
    #[error("runtime {runtime} cannot be used: {reason}{}", hint(reason))]
    Unusable { runtime: String, reason: Box<Reason> },
    #[error("runtime {runtime} does not read {model}: {reason}{}", readers_hint(readers))]
    DoesNotRead { runtime: String, model: String, reason: Box<Reason>, readers: Vec<String> },
    #[error("no runtime here reads {model} (runtime.no_reader){}", verdict_lines(verdicts))]
    NoReader { model: String, verdicts: Vec<(String, Reason)> },
    #[error("{asked_by} is not possible with runtime {runtime}: {why} (runtime.cannot){}", able_hint(able))]
    Refused { asked_by: String, runtime: String, why: Refusal, able: Vec<String> },
}

impl ChoiceError {
    /// 2: this runtime cannot honour that; 4: no runtime here can be used for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            ChoiceError::DoesNotRead { .. } | ChoiceError::Refused { .. } => 2,
            ChoiceError::UnknownRuntime { .. }
            | ChoiceError::Unusable { .. }
            | ChoiceError::NoReader { .. } => 4,
        }
    }
}

fn tail(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

fn listed(known: &[String]) -> String {
    if known.is_empty() {
        return "no runtime is installed; superfluid runtimes shows where they are looked for".into();
    }
    format!("known here: {}; superfluid runtimes shows them", known.join(", "))
}

fn hint(reason: &Reason) -> String {
    reason.hint().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default()
}

fn readers_hint(readers: &[String]) -> String {
    match readers {
        [] => "\n  hint: no other runtime here reads it either".into(),
        readers => format!("\n  hint: these do: {}", readers.join(", ")),
    }
}

fn able_hint(able: &[String]) -> String {
    match able {
        [] => "\n  hint: no other runtime here can; leave it out".into(),
        [first, ..] => format!("\n  hint: {} can: --runtime {first}", able.join(", ")),
    }
}

fn verdict_lines(verdicts: &[(String, Reason)]) -> String {
    if verdicts.is_empty() {
        return "\n  hint: no runtime is installed; superfluid runtimes shows where they are looked for"
            .into();
    }
    verdicts.iter().map(|(title, reason)| format!("\n  {title}: {reason}")).collect()
}

impl Catalog {
    /// Chooses. `wanted` is an id, an alias, or a path given by `--runtime`; without it the first usable runtime that
    /// reads the model wins, in the order of [`Catalog::entries`]. Then every requirement is checked against its
    /// descriptor.
    ///
    /// # Errors
    /// [`ChoiceError`], with a way out.
    pub fn choose(
        &self,
        model: impl Into<ModelKind>,
        wanted: Option<&str>,
        wants: &[Requirement],
    ) -> Result<Choice<'_>, ChoiceError> {
        let model = model.into();
        let mut choice = match wanted {
            Some(name) => self.named(name, &model)?,
            None => self.first_reader(&model)?,
        };
        for requirement in wants {
            match requirement.check(&choice.entry.descriptor) {
                Ok(Verdict::Granted | Verdict::Unknown) => {}
                // No flag asks for it but the model, and that is what the condition is about.
                Ok(Verdict::Conditional { .. }) if *requirement == Requirement::Embedding => {}
                Ok(Verdict::Conditional { when, .. }) => {
                    let asked_by = requirement.need().asked_by;
                    choice
                        .notes
                        .push(format!("{asked_by} with runtime {}: only when {when}", choice.entry.id()));
                }
                Err(why) => {
                    let readers = self.entries.iter().filter(|entry| reads(entry, &model).is_ok());
                    return Err(ChoiceError::Refused {
                        asked_by: requirement.need().asked_by,
                        runtime: choice.entry.title(),
                        why,
                        able: requirement.able(readers),
                    });
                }
            }
        }
        Ok(choice)
    }

    /// Every runtime in order, and whether it could serve the model: it is usable and reads it.
    pub fn readers(&self, model: impl Into<ModelKind>) -> Vec<(&Entry, Result<(), Reason>)> {
        let model = model.into();
        let verdict = |entry: &Entry| match entry.usable() {
            // Of a runtime that cannot be used, the more telling reason is that it would not read the model anyway.
            Err(reason) if entry.descriptor.formats.is_empty() => Err(reason.clone()),
            usable => reads(entry, &model).and_then(|()| usable.map_err(Reason::clone)),
        };
        self.entries.iter().map(|entry| (entry, verdict(entry))).collect()
    }

    /// The entry that `--runtime name` means: a usable one if there is one.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        let named = || self.entries.iter().filter(|entry| entry.is_named(name));
        named().find(|entry| entry.usable().is_ok()).or_else(|| named().next())
    }

    fn named(&self, name: &str, model: &ModelKind) -> Result<Choice<'_>, ChoiceError> {
        let Some(entry) = self.find(name) else {
            let mut known: Vec<String> = self.entries.iter().map(|entry| entry.id().to_owned()).collect();
            known.dedup();
            let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
            return Err(ChoiceError::UnknownRuntime { wanted: name.to_owned(), nearest: near, known });
        };
        if let Err(reason) = entry.usable() {
            return Err(ChoiceError::Unusable { runtime: entry.title(), reason: Box::new(reason.clone()) });
        }
        if let Err(reason) = reads(entry, model) {
            return Err(ChoiceError::DoesNotRead {
                runtime: entry.title(),
                model: model.to_string(),
                reason: Box::new(reason),
                readers: self.usable_readers(model).iter().map(|entry| entry.id().to_owned()).collect(),
            });
        }
        Ok(Choice { entry, notes: Vec::new() })
    }

    fn usable_readers(&self, model: &ModelKind) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.usable().is_ok() && reads(entry, model).is_ok()).collect()
    }

    fn first_reader(&self, model: &ModelKind) -> Result<Choice<'_>, ChoiceError> {
        let readers = self.usable_readers(model);
        let Some((first, others)) = readers.split_first() else {
            let verdicts = self.readers(model.clone());
            let why_not =
                |(entry, verdict): (&Entry, Result<(), Reason>)| Some((entry.title(), verdict.err()?));
            let verdicts = verdicts.into_iter().filter_map(why_not).collect();
            return Err(ChoiceError::NoReader { model: model.to_string(), verdicts });
        };
        let mut notes = Vec::new();
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(|entry| entry.id()).collect();
            notes.push(format!(
                "{} serves {} because it comes first ({}); {} could too: choose with --runtime",
                first.id(),
                model.path,
                first.source,
                others.join(", ")
            ));
        }
        Ok(Choice { entry: first, notes })
    }
}

/// Whether the descriptor says that the runtime reads the model.
fn reads(entry: &Entry, model: &ModelKind) -> Result<(), Reason> {
    let formats = &entry.descriptor.formats;
    let mut refusal = None;
    for format in formats.iter().filter(|format| format.format == model.format) {
        match reads_as(format, model) {
            Ok(()) => return Ok(()),
            Err(reason) => refusal = Some(reason),
        }
    }
    Err(refusal.unwrap_or_else(|| {
        let names: Vec<&str> = formats.iter().map(|format| format.format.as_str()).collect();
        let reads = if names.is_empty() { "nothing".into() } else { names.join(", ") };
        Reason::Format { reads, format: model.format.clone() }
    }))
}

/// An empty list of the descriptor is no limit; a fact that the model's header does not give is none either.
fn reads_as(format: &Format, model: &ModelKind) -> Result<(), Reason> {
    if let Some(version) =
        model.version.filter(|version| !format.versions.is_empty() && !format.versions.contains(version))
    {
        let reads = format.versions.iter().map(u32::to_string).collect();
        return Err(Reason::FormatVersion { format: format.format.clone(), reads, version });
    }
    let ModelKind { architecture, quantization, .. } = model;
    let known = &format.architectures;
    if !known.is_empty() && !architecture.is_empty() && !known.contains(architecture) {
        return Err(Reason::Architecture { architecture: architecture.clone(), knows: known.clone() });
    }
    // A mix such as Q4_K_M consists of what its stem names.
    let stem = |listed: &String| {
        let tail = quantization
            .get(listed.len()..)
            .filter(|_| quantization.to_lowercase().starts_with(&listed.to_lowercase()));
        tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('_'))
    };
    if !format.quantizations.is_empty() && !quantization.is_empty() && !format.quantizations.iter().any(stem)
    {
        let (quantization, reads) = (quantization.clone(), format.quantizations.clone());
        return Err(Reason::Quantization { quantization, reads });
    }
    Ok(())
}

/// The candidate nearest to what was typed, if at most a third of its characters differ.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (typed.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(typed, name), name))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
