//! Every source file is part of a crate: a file that no `mod` names is dead.

use std::path::Path;

use super::{Finding, RustFile};

pub(super) fn check(files: &[RustFile]) -> Vec<Finding> {
    files.iter().filter(|file| is_orphan(file, files)).map(|file| words(&file.path)).collect()
}

fn words(path: &Path) -> Finding {
    Finding::Broken(format!("{}: no file beside it declares this module", path.display()))
}

/// Roots (main, lib, build scripts, and what lies directly in tests, benches, bin, examples, fuzz targets) need nobody.
fn is_orphan(file: &RustFile, files: &[RustFile]) -> bool {
    let path = &file.path;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parent = path.parent().unwrap_or(Path::new(""));
    let folder = parent.file_name().unwrap_or_default().to_string_lossy();
    let is_root = matches!(&*stem, "main" | "lib" | "build")
        || matches!(&*folder, "tests" | "benches" | "bin" | "examples" | "fuzz_targets");
    if is_root {
        return false;
    }
    // `a/mod.rs` is declared beside `a`; `a/b.rs` by `a/mod.rs`, `a.rs`, or the crate's root in `a`.
    let (name, home) =
        if stem == "mod" { (folder, parent.parent().unwrap_or(Path::new(""))) } else { (stem, parent) };
    let declares = |candidate: &RustFile| {
        let beside = candidate.path.parent() == Some(home) && candidate.path != *path;
        let above = candidate.path.with_extension("") == *home;
        (beside || above) && declares_module(&candidate.code, &name)
    };
    !files.iter().any(declares)
}

fn declares_module(code: &str, name: &str) -> bool {
    let wanted = format!("mod {name};");
    code.lines().any(|line| {
        let line = line.trim();
        line == wanted || line.strip_suffix(&wanted).is_some_and(|before| before.ends_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_declaration_is_dead() {
        let file = |path: &str, text: &str| RustFile::new(path, text.into());
        let files = [
            file("x/src/lib.rs", "mod a;\npub(crate) mod b;\n// mod dead;"),
            file("x/src/a.rs", "mod inner;"),
            file("x/src/a/inner.rs", ""),
            file("x/src/b/mod.rs", ""),
            file("x/src/dead.rs", ""),
            file("x/tests/claims.rs", ""),
        ];
        assert_eq!(check(&files), [words(Path::new("x/src/dead.rs"))]);
    }
}
