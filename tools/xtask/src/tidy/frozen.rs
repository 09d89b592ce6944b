//! The C header against every frozen version of its major: it may have grown, nothing else.

use std::fs;
use std::path::Path;

use super::Finding;
use crate::error::TaskError;
use crate::gate::{self, Header};

const HEADER: &str = "abi/include/superfluid_runtime.h";
const FROZEN: &str = "abi/frozen";

/// Compares the header with the frozen copies below `root`.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, TaskError> {
    let current = root.join(HEADER);
    let folder = root.join(FROZEN);
    let text = fs::read_to_string(&current).map_err(TaskError::io(&current))?;
    let mut findings = Vec::new();
    let mut is_frozen = false;
    for entry in fs::read_dir(&folder).map_err(TaskError::io(&folder))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((major, minor)) = version(&name) else {
            findings.push(Finding::Broken(format!("{FROZEN}/{name}: not named v<major>.<minor>.h")));
            continue;
        };
        if major != sf_abi::SFR_ABI_MAJOR {
            continue;
        }
        if minor == sf_abi::SFR_ABI_MINOR {
            is_frozen = true;
            if fs::read_to_string(entry.path()).map_err(TaskError::io(entry.path()))? != text {
                findings
                    .push(Finding::Broken(format!("{HEADER}: differs from its frozen copy {FROZEN}/{name}")));
            }
        }
        let breaks = gate::compare(&Header::read(&entry.path())?, &Header::read(&current)?);
        findings
            .extend(breaks.iter().map(|what| Finding::Broken(format!("{HEADER} against {name}: {what}"))));
    }
    if !is_frozen {
        let wanted = format!("v{}.{}.h", sf_abi::SFR_ABI_MAJOR, sf_abi::SFR_ABI_MINOR);
        findings
            .push(Finding::Broken(format!("{FROZEN}/{wanted} is missing: freeze the header with its minor")));
    }
    Ok(findings)
}

fn version(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix('v')?.strip_suffix(".h")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with the real header, its frozen copy changed by `edit`, under `name`.
    fn findings(name: &str, edit: impl Fn(&str) -> String) -> Vec<Finding> {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["abi/include", FROZEN] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join(HEADER), sf_abi::HEADER).unwrap();
        fs::write(dir.path().join(FROZEN).join(name), edit(sf_abi::HEADER)).unwrap();
        check(dir.path()).unwrap()
    }

    #[test]
    fn the_header_equals_its_own_frozen_version() {
        let name = format!("v{}.{}.h", sf_abi::SFR_ABI_MAJOR, sf_abi::SFR_ABI_MINOR);
        assert_eq!(findings(&name, str::to_owned), []);
        assert!(!findings(&name, |text| text.replace("(-2)", "(-20)")).is_empty());
        assert!(!findings(&name, |text| format!("{text}\n")).is_empty());
    }

    #[test]
    fn an_unfrozen_or_misnamed_version_is_reported() {
        assert!(!findings("v9.0.h", str::to_owned).is_empty());
        assert_eq!(findings("latest.h", str::to_owned).len(), 2);
    }
}
