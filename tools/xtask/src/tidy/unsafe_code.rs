//! `unsafe` stays where two worlds meet: the ABI's two sides, the loader, shared memory, the verifier's raw calls.

use super::{Finding, RustFile};

/// Folders in which the keyword may appear. The compiler asks each file there for a reason of its own.
const ALLOWED: &[&str] = &[
    "abi/src/",
    "abi/sdk/",
    "host/engine/",
    "host/kit/",
    "host/verify/",
    "host/workerd/",
    "runtimes/",
    "tests/counting/",
    "tools/bench/",
];

pub(super) fn check(file: &RustFile) -> Option<Finding> {
    let path = file.path.to_string_lossy();
    if ALLOWED.iter().any(|folder| path.starts_with(folder)) {
        return None;
    }
    let is_word =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
    let line = file.code.lines().position(is_word)?;
    Some(Finding::Broken(format!("{path}:{}: unsafe outside of {}", line + 1, ALLOWED.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_refused_outside_its_folders() {
        let check = |path: &str, text: &str, fine: bool| {
            assert_eq!(check(&RustFile::new(path, text.into())).is_none(), fine, "{path}: {text}");
        };
        check("host/kit/src/calls.rs", "unsafe { f() }", true);
        check("host/api/src/lib.rs", "fn f() {\n    unsafe { g() }\n}", false);
        check("host/api/src/lib.rs", "// unsafe\nlet s = \"unsafe\";", true);
        check("host/api/src/lib.rs", "#![deny(unsafe_code)]", true);
        check("runtimes_other/src/lib.rs", "unsafe fn f() {}", false);
    }
}
