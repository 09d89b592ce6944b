//! Which capability a flag or request needs, and whether a runtime grants it.

use std::collections::BTreeMap;

use sf_abi::descriptor::{Capability, Descriptor, Isolation};

use crate::entry::Entry;

/// Something asked for that not every runtime can do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// `--kv-bits N`; the flag's value: 4, 8, 16, 84.
    KvBits(u32),
    /// `--no-worker-process`.
    InProcess,
    /// Parking of KV on disk.
    Park,
    /// `--park-lossy`.
    ParkLossy,
    /// `--speculate KIND`.
    Speculate(String),
    /// Chats.
    Chat,
    /// Plain completions.
    Completion,
    /// Embeddings.
    Embedding,
    /// Ranking.
    Rerank,
    /// Images in messages.
    Vision,
    /// Sound in messages.
    Audio,
    /// Speech to text.
    Transcribe,
    /// Speech to text in another language.
    Translate,
    /// Answers that follow a grammar.
    Grammar,
    /// Adapters.
    Lora,
    /// Sharing a prefix between lanes.
    Fork,
}

/// Whether an unknown capability refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes what comes out: unknown refuses.
    Semantic,
    /// Changes how fast or how large: unknown passes.
    Hint,
}

/// What a requirement looks for in a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// How the user asked: `--kv-bits 8`.
    pub asked_by: String,
    /// Section of the capabilities; `None` = not a capability but the runtime's isolation wish.
    pub section: Option<&'static str>,
    /// Names in the section; the first that is present decides.
    pub names: Vec<String>,
    /// What unknown means.
    pub class: Class,
}

/// A requirement that is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Without conditions.
    Granted,
    /// While a condition holds, in the runtime's words; only an open model can tell.
    Conditional {
        /// The condition.
        when: String,
        /// What is true otherwise.
        otherwise: String,
    },
    /// The descriptor does not say, and it is only a hint.
    Unknown,
}

/// A requirement that is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The runtime's own reason.
    #[error("{0}")]
    Cannot(String),
    /// The descriptor does not say.
    #[error("it does not say whether it can ({0})")]
    Unknown(String),
}

type Capabilities = BTreeMap<String, BTreeMap<String, Capability>>;

impl Requirement {
    /// What to look for. A new requirement must be given its place here.
    pub fn need(&self) -> Need {
        let need = |asked_by: &str, section, names: &[&str], class| Need {
            asked_by: asked_by.into(),
            section: Some(section),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            class,
        };
        use Class::{Hint, Semantic};
        match self {
            Requirement::KvBits(bits) => {
                need(&format!("--kv-bits {bits}"), "kv", &[&format!("bits_{bits}"), "bits"], Semantic)
            }
            Requirement::InProcess => Need {
                asked_by: "--no-worker-process".into(),
                section: None,
                names: Vec::new(),
                class: Semantic,
            },
            Requirement::Park => need("--park", "kv", &["export"], Semantic),
            Requirement::ParkLossy => need("--park-lossy", "kv", &["export_lossy"], Semantic),
            Requirement::Speculate(kind) => {
                need(&format!("--speculate {kind}"), "speculation", &[kind], Semantic)
            }
            Requirement::Chat => need("chat", "workload", &["chat"], Semantic),
            Requirement::Completion => need("completion", "workload", &["completion"], Semantic),
            Requirement::Embedding => need("embedding", "workload", &["embedding"], Semantic),
            Requirement::Rerank => need("reranking", "workload", &["rerank"], Semantic),
            Requirement::Vision => need("image input", "modalities", &["vision"], Semantic),
            Requirement::Audio => need("sound input", "modalities", &["audio"], Semantic),
            Requirement::Transcribe => need("transcription", "modalities", &["whisper_transcribe"], Semantic),
            Requirement::Translate => {
                need("speech translation", "modalities", &["whisper_translate"], Semantic)
            }
            Requirement::Grammar => need("grammar-bound output", "grammar", &["mask"], Semantic),
            Requirement::Lora => need("a LoRA adapter", "lora", &["load"], Semantic),
            Requirement::Fork => need("prefix sharing", "kv", &["fork"], Hint),
        }
    }

    /// Asks a descriptor.
    ///
    /// # Errors
    /// [`Refusal`] with the runtime's own reason, or because it does not say.
    pub fn check(&self, descriptor: &Descriptor) -> Result<Verdict, Refusal> {
        match self.need().section {
            Some(_) => self.check_capabilities(&descriptor.capabilities),
            None if descriptor.isolation == Isolation::Any => Ok(Verdict::Granted),
            None => Err(Refusal::Cannot("it asks for a process of its own".into())),
        }
    }

    /// Asks capabilities alone: those of a probed runtime or of an open model.
    ///
    /// # Errors
    /// As [`Requirement::check`].
    pub fn check_capabilities(&self, capabilities: &Capabilities) -> Result<Verdict, Refusal> {
        let Need { section, names, class, .. } = self.need();
        let Some(section) = section else { return Ok(Verdict::Granted) };
        let leaf = names.iter().find_map(|name| capabilities.get(section)?.get(name));
        match leaf {
            Some(Capability::Yes(_)) => Ok(Verdict::Granted),
            Some(Capability::No(why)) => Err(Refusal::Cannot(why.clone())),
            Some(Capability::When { when, r#else }) => {
                Ok(Verdict::Conditional { when: when.clone(), otherwise: r#else.clone() })
            }
            None if class == Class::Hint => Ok(Verdict::Unknown),
            None => {
                let name = names.last().map_or("", String::as_str);
                Err(Refusal::Unknown(format!("its descriptor has no {section}.{name}")))
            }
        }
    }

    /// Ids of usable runtimes among `entries` that grant it.
    pub(crate) fn able<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<String> {
        entries
            .filter(|entry| entry.usable().is_ok() && self.check(&entry.descriptor).is_ok())
            .map(|entry| entry.id().to_owned())
            .collect()
    }
}
