//! The top level stays readable: a fixed list of entries, and tool configuration behind dots.

use std::fs;
use std::path::Path;

use super::Finding;
use crate::error::TaskError;

const ENTRIES: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "abi",
    "catalog",
    "host",
    "runtimes",
    "target",
    "tests",
    "tools",
];

/// Names of everything in the root.
pub(super) fn entries(root: &Path) -> Result<Vec<String>, TaskError> {
    let entries = fs::read_dir(root).map_err(TaskError::io(root))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

pub(super) fn check(entries: &[String]) -> Vec<Finding> {
    let stray = entries.iter().filter(|name| !name.starts_with('.') && !ENTRIES.contains(&name.as_str()));
    stray.map(|name| Finding::Broken(format!("{name}: not an entry of the top level"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_entry_is_named() {
        let names = [".ci", "Cargo.toml", "abi", "notes.txt"].map(String::from);
        assert_eq!(check(&names), [Finding::Broken("notes.txt: not an entry of the top level".into())]);
    }
}
