//! Files stay short enough to be read in one go.

use super::{Finding, RustFile};

/// Lines from which a file is asked to be split.
const LINES_WARN: usize = 400;
/// Lines that no file may exceed.
const LINES_MAX: usize = 800;

pub(super) fn check(file: &RustFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    let words = |limit| format!("{}: {lines} lines, {limit}", file.path.display());
    if lines > LINES_MAX {
        Some(Finding::Broken(words(format!("at most {LINES_MAX}"))))
    } else if lines > LINES_WARN {
        Some(Finding::Warning(words(format!("aim for {LINES_WARN}"))))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_warn_and_very_long_ones_fail() {
        let check = |lines: usize| check(&RustFile::new("a.rs", "x\n".repeat(lines)));
        assert_eq!(check(LINES_WARN), None);
        assert!(matches!(check(LINES_WARN + 1), Some(Finding::Warning(_))));
        assert!(matches!(check(LINES_MAX), Some(Finding::Warning(_))));
        assert!(matches!(check(LINES_MAX + 1), Some(Finding::Broken(_))));
    }
}
