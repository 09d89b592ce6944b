//! Everything about one model that its files tell.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sf_artifact::{Artifact, ArtifactError, ArtifactFormat, Found};
use sf_catalog::ModelKind;
use sf_codec::{Codec, CodecError, CodecOptions, SelfTest};

use super::places::{Place, repository};
use crate::prepare::model_id;

/// One model, or what should have been one.
pub(crate) struct Facts {
    /// Index of the place where it was found.
    pub(crate) place: usize,
    /// What `serve` would call it.
    pub(crate) id: String,
    /// `org/name`, in the hub's cache.
    pub(crate) repository: Option<String>,
    pub(crate) path: PathBuf,
    pub(crate) header: Result<Header, ArtifactError>,
}

/// What a header tells.
pub(crate) struct Header {
    pub(crate) kind: ModelKind,
    pub(crate) format: ArtifactFormat,
    pub(crate) name: Option<String>,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    pub(crate) parameters: Option<u64>,
    pub(crate) context: Option<u32>,
    pub(crate) text: Arc<Text>,
}

/// What became of tokenizer and template.
pub(crate) enum Text {
    /// The codec's line, and how its self-test went.
    Usable { line: String, report: SelfTest },
    /// They cannot be used.
    Unusable(CodecError),
}

impl Facts {
    /// Whether it can be read and nothing of its text fails.
    pub(crate) fn is_sound(&self) -> bool {
        match self.header.as_ref().map(|header| &*header.text) {
            Ok(Text::Usable { report, .. }) => report.passed(),
            // A runtime may tokenize by itself.
            Ok(Text::Unusable(_)) => true,
            Err(_) => false,
        }
    }
}

/// Texts that were tested already: the quantizations of one model share tokenizer and template.
#[derive(Default)]
pub(crate) struct Texts(Mutex<HashMap<u64, Arc<OnceLock<Arc<Text>>>>>);

impl Texts {
    fn of(&self, artifact: &Artifact) -> Arc<Text> {
        let Some(key) = key(artifact) else { return Arc::new(text(artifact)) };
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(key).or_default())
        };
        Arc::clone(slot.get_or_init(|| Arc::new(text(artifact))))
    }
}

/// Equal for models whose text is equal; `None` where their headers do not hold it.
fn key(artifact: &Artifact) -> Option<u64> {
    let mut state = DefaultHasher::new();
    let decides =
        |key: &str| key.starts_with("tokenizer.") || matches!(key, "general.name" | "general.architecture");
    artifact.gguf()?.hash_entries(decides, &mut state);
    artifact.format.name().hash(&mut state);
    Some(state.finish())
}

fn text(artifact: &Artifact) -> Text {
    match Codec::open(artifact, CodecOptions::default()) {
        Ok(codec) => Text::Usable { line: codec.describe(), report: codec.self_test() },
        Err(error) => Text::Unusable(error),
    }
}

/// Reads the header of what was found.
pub(crate) fn look(at: usize, place: &Place, found: Found, texts: &Texts) -> Facts {
    let Found { path, fault } = found;
    let header = match fault {
        Some(fault) => Err(fault),
        None => sf_artifact::open(&path).map(|artifact| header(&artifact, texts)),
    };
    let repository = repository(&path).filter(|_| place.hub);
    Facts { place: at, id: model_id(&path), repository, path, header }
}

fn header(artifact: &Artifact, texts: &Texts) -> Header {
    Header {
        kind: artifact.into(),
        format: artifact.format,
        name: artifact.name.clone(),
        files: artifact.files.len(),
        bytes: artifact.bytes,
        parameters: artifact.parameters(),
        context: artifact.context_trained,
        text: texts.of(artifact),
    }
}
