//! Where the repository's parts and the caches lie.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

use crate::error::TaskError;

/// The workspace as cargo sees it.
pub(crate) struct Tree {
    /// Members, dependencies and what resolved to what.
    pub(crate) metadata: Metadata,
}

impl Tree {
    /// Asks cargo about the workspace whose `cargo xtask` runs us; clones may share a target directory, so what was
    /// true when this program was compiled is only the second choice.
    pub(crate) fn find() -> Result<Self, TaskError> {
        let here =
            std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let manifest = Path::new(&here).join("Cargo.toml");
        Ok(Self { metadata: MetadataCommand::new().manifest_path(manifest).exec()? })
    }

    /// The repository's root.
    pub(crate) fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// Where cargo builds, e.g. `target`.
    pub(crate) fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// All files below the root by their relative path, sorted: build output and git's own apart.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, TaskError> {
        let mut files = Vec::new();
        let mut folders = vec![self.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(TaskError::io(&folder))? {
                let path = entry.map_err(TaskError::io(&folder))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() && !matches!(name.as_str(), "target" | ".git" | "__pycache__") {
                    folders.push(path);
                } else if path.is_file() {
                    let relative = path.strip_prefix(self.root()).expect("the walk starts at the root");
                    files.push(relative.to_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// `$variable`, else `~/.cache/superfluid/<name>`.
pub(crate) fn cache(variable: &str, name: &str) -> Result<PathBuf, TaskError> {
    if let Some(dir) = std::env::var_os(variable).filter(|dir| !dir.is_empty()) {
        return Ok(dir.into());
    }
    let home = std::env::home_dir()
        .ok_or_else(|| TaskError::Broken(format!("no home directory: set {variable}")))?;
    Ok(home.join(".cache/superfluid").join(name))
}
