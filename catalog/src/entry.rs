//! One runtime of the catalog: what it says about itself, where it comes from, whether it can be used.

use std::fmt;
use std::path::{Path, PathBuf};

use sf_abi::descriptor::{Descriptor, Isolation, ProbeAnswer, Requires};

use crate::reason::Reason;

/// Which place of the search order a runtime was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `--runtime PATH`.
    Explicit,
    /// `SUPERFLUID_RUNTIMES`.
    Environment,
    /// `SUPERFLUID_RUNTIMES_ADD`.
    Added,
    /// The user's data directory.
    User,
    /// The system's directories.
    System,
    /// Beside the executable.
    Bundled,
}

impl Source {
    /// In words, as tables and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Explicit => "--runtime",
            Source::Environment => "SUPERFLUID_RUNTIMES",
            Source::Added => "SUPERFLUID_RUNTIMES_ADD",
            Source::User => "user",
            Source::System => "system",
            Source::Bundled => "bundled",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a runtime can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Sound and, if it was probed, able to run here.
    Usable,
    /// Not, and why.
    Unusable(Reason),
}

/// Version, and at worst id, of a runtime whose descriptor could not be read.
const UNKNOWN: &str = "?";

/// A runtime that was found.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it says about itself. When that could not be read: its folder's or file's name as id, version `?`, reads
    /// nothing.
    pub descriptor: Descriptor,
    /// The descriptor's exact bytes; empty when they could not be read.
    pub descriptor_bytes: String,
    /// Absolute path of the library, symbolic links resolved; empty when it is not known.
    pub library: PathBuf,
    /// `runtime.json`, when there is one.
    pub manifest: Option<PathBuf>,
    /// SHA-256 of the library, lower-case hex; empty when it was not computed.
    pub sha256: String,
    /// Where in the search order it was found.
    pub source: Source,
    /// The path that led to it, absolute.
    pub origin: PathBuf,
    /// Whether it can be used.
    pub state: State,
    /// What it answered when it was probed.
    pub probe: Option<ProbeAnswer>,
}

impl Entry {
    /// An entry about which nothing is known but where it was looked for and which file or folder it is named after.
    pub(crate) fn unread(source: Source, origin: &Path, place: &Path) -> Self {
        let is_file =
            place.extension().is_some_and(|end| ["json", "so", "dylib"].iter().any(|known| end == *known));
        let name = match place.file_name() {
            Some(name) if is_file && name == "runtime.json" => place.parent().and_then(Path::file_name),
            _ if is_file => place.file_stem(),
            name => name,
        };
        let mut id = name.map_or_else(|| UNKNOWN.into(), |name| name.to_string_lossy().into_owned());
        // A version's folder lies in its runtime's.
        if let (true, Some(folder)) = (id.starts_with(|c: char| c.is_ascii_digit()), place.ancestors().nth(2))
        {
            id = folder
                .file_name()
                .map_or(id.clone(), |runtime| format!("{}/{id}", runtime.to_string_lossy()));
        }
        Entry {
            descriptor: unread_descriptor(id),
            descriptor_bytes: String::new(),
            library: PathBuf::new(),
            manifest: None,
            sha256: String::new(),
            source,
            origin: origin.to_owned(),
            state: State::Usable,
            probe: None,
        }
    }

    /// The runtime's id.
    pub fn id(&self) -> &str {
        &self.descriptor.id
    }

    /// Whether it can be used.
    pub fn usable(&self) -> Result<(), &Reason> {
        match &self.state {
            State::Usable => Ok(()),
            State::Unusable(reason) => Err(reason),
        }
    }

    /// Whether `--runtime name` means this one: its id, an alias, or a path that leads to it.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.id() == name
            || self.descriptor.aliases.iter().any(|alias| alias == name)
            || self.lies_at(Path::new(name))
    }

    fn lies_at(&self, path: &Path) -> bool {
        if path.components().count() == 0 {
            return false;
        }
        let real = std::fs::canonicalize(path).ok();
        let same = |own: &Path| own == path || real.as_deref().is_some_and(|real| own == real);
        let origin = std::fs::canonicalize(&self.origin).ok();
        let folder = self.manifest.as_deref().and_then(Path::parent);
        self.source == Source::Explicit
            && [
                Some(self.origin.as_path()),
                origin.as_deref(),
                Some(&self.library),
                self.manifest.as_deref(),
                folder,
            ]
            .into_iter()
            .flatten()
            .any(same)
    }

    /// `llamacpp 0.1.0`; the id alone when the version is not known.
    pub fn title(&self) -> String {
        match self.descriptor.version.as_str() {
            UNKNOWN => self.descriptor.id.clone(),
            version => format!("{} {version}", self.descriptor.id),
        }
    }

    /// `llamacpp 0.1.0 (bundled, /usr/lib/...)`, for the line at start-up.
    pub fn provenance(&self) -> String {
        format!("{} ({}, {})", self.title(), self.source, self.library.display())
    }

    /// What `descriptor.env` asks to be set before the library is loaded.
    pub fn env(&self) -> Vec<(String, String)> {
        self.descriptor.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn unread_descriptor(id: String) -> Descriptor {
    Descriptor {
        descriptor_version: 1,
        id,
        aliases: Vec::new(),
        version: UNKNOWN.into(),
        about: String::new(),
        abi: [0, 0],
        requires: Requires::default(),
        isolation: Isolation::default(),
        thread_affinity: false,
        env: Default::default(),
        conflicts: Vec::new(),
        formats: Vec::new(),
        interfaces: Vec::new(),
        capabilities: Default::default(),
        options: Vec::new(),
        links: Vec::new(),
    }
}
