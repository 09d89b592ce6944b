//! Loads a runtime's library: by absolute path, once per process, never unloaded.
//!
//! `RTLD_NOW` so that a missing symbol is an error here and not a crash later; `RTLD_LOCAL` so that two runtimes do not
//! see each other's symbols; `RTLD_NODELETE` because threads and destructors of a library outlive any safe moment to
//! unload it. No `RTLD_DEEPBIND` (it breaks C++ streams and RTTI), no `dlmopen` (few namespaces, static TLS).
#![expect(unsafe_code, reason = "runs a library's initialisers and calls its entry symbol")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sf_abi::{SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_ENTRY_NAME, SfrEntryFn};
use sf_kit::{KitError, Runtime};

use crate::error::EngineError;

/// Not offered by `libloading`; the value is the same on every Linux architecture.
#[cfg(target_os = "linux")]
const RTLD_NODELETE: std::ffi::c_int = 0x1000;
#[cfg(target_os = "macos")]
const RTLD_NODELETE: std::ffi::c_int = 0x80;

/// The one lock under which loading happens: `dlopen`, initialisers and `init` of two libraries never interleave.
static LOADING: Mutex<()> = Mutex::new(());

/// The library's runtime, loaded and initialised if this process has not done so yet.
///
/// `expected` are the descriptor's bytes as the manifest has them; a difference is a refusal.
///
/// # Errors
/// [`EngineError::Load`] with the missing dependency, symbol or ABI version in it; [`EngineError::Refused`] from `init`.
pub fn load(library: &Path, expected: Option<&str>) -> Result<Runtime, EngineError> {
    load_with(library, &[], expected)
}

/// As [`load`], after setting `env` in this process, which changes it for every thread.
pub(crate) fn load_with(
    library: &Path,
    env: &[(String, String)],
    expected: Option<&str>,
) -> Result<Runtime, EngineError> {
    let refuse = |reason: String| EngineError::Load { library: library.display().to_string(), reason };
    if !library.is_absolute() {
        return Err(refuse("its path is not absolute".to_owned()));
    }
    check_env(env).map_err(refuse)?;
    let library = library.canonicalize().map_err(|error| refuse(error.to_string()))?;
    // It guards no data of ours, so a panic of another holder spoils nothing.
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    set_env(env);
    // The system gives the same library for the same path, and the kit binds the same library once.
    let entry = entry(&library).map_err(refuse)?;
    // SAFETY: the symbol has the name that the header gives to this type, and the library is never unloaded.
    let runtime = unsafe { Runtime::bind(entry, sf_kit::host::host()) };
    let runtime = runtime.map_err(|error| match error {
        KitError::Version { reason } => {
            refuse(format!("it does not speak ABI {SFR_ABI_MAJOR}.{SFR_ABI_MINOR}: {reason}"))
        }
        other => other.into(),
    })?;
    match expected {
        Some(expected) if expected != runtime.descriptor_json() => {
            Err(refuse("its descriptor differs from the manifest's".to_owned()))
        }
        _ => Ok(runtime),
    }
}

/// A descriptor is foreign input, and the system takes neither odd names nor NULs.
pub(crate) fn check_env(env: &[(String, String)]) -> Result<(), String> {
    let odd = |(name, value): &&(String, String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match env.iter().find(odd) {
        Some((name, _)) => Err(format!("its descriptor sets {name:?}, which no environment can hold")),
        None => Ok(()),
    }
}

/// Only variables whose value differs are written, because writing is what other threads can trip over.
fn set_env(env: &[(String, String)]) {
    for (name, value) in env {
        if std::env::var_os(name).is_none_or(|now| now != value.as_str()) {
            // SAFETY: no Rust thread reads the environment unlocked; a C library that reads it at this moment from
            // another thread races. The worker, where this list is empty because the process began with it, is the
            // default for that reason; in-process runtimes are opened while the server starts or the user asks for it.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

fn entry(library: &Path) -> Result<SfrEntryFn, String> {
    let flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    // SAFETY: runs the library's initialisers. That is what loading a runtime means: it is trusted code, or it is in a
    // process of its own.
    let handle = unsafe { Library::open(Some(library), flags) };
    let handle = handle.map_err(|error| explain(library, &words(&error)))?;
    // SAFETY: the header fixes the symbol's type.
    let entry = unsafe { handle.get::<SfrEntryFn>(SFR_ENTRY_NAME) };
    let entry = entry.map(|symbol| *symbol).map_err(|_| format!("it does not export {SFR_ENTRY_NAME}"));
    // Never closed: the pointer and everything behind it stay valid until the process ends.
    std::mem::forget(handle);
    entry
}

/// The system's words without the wrapper's.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// `dlerror` names the file it is about first: when that is not the library, it is what the library needs.
fn explain(library: &Path, words: &str) -> String {
    let words = words.trim_matches(|c: char| c == '"' || c.is_whitespace());
    match words.split_once(": ") {
        Some((file, reason)) if Path::new(file) == library => reason.to_owned(),
        Some((file, reason)) => format!("it needs {file}: {reason}"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_dependency_is_named() {
        let check = |words: &str, expect: &str| assert_eq!(explain(Path::new("/r/libx.so"), words), expect);
        check(
            "libcudart.so.12: cannot open shared object file: No such file or directory",
            "it needs libcudart.so.12: cannot open shared object file: No such file or directory",
        );
        check("/r/libx.so: undefined symbol: frob", "undefined symbol: frob");
        check("/r/libx.so: file too short", "file too short");
        check("out of memory", "out of memory");
    }

    #[test]
    fn a_variable_that_cannot_be_set_is_refused() {
        let check = |name: &str, value: &str, ok: bool| {
            assert_eq!(check_env(&[(name.to_owned(), value.to_owned())]).is_ok(), ok, "{name:?} {value:?}");
        };
        check("GGML_NO_BACKTRACE", "1", true);
        check("A", "b=c", true);
        check("", "1", false);
        check("A=B", "1", false);
        check("A\0", "1", false);
        check("A", "\0", false);
    }

    #[test]
    fn what_is_no_library_is_refused_before_it_runs() {
        let check = |path: &Path, expect: &str| {
            let error = load(path, None).err().unwrap().to_string();
            assert!(error.contains(expect) && error.contains("engine.load"), "{error}");
        };
        check(Path::new("libx.so"), "not absolute");
        check(Path::new("/nonexistent/libx.so"), "No such file");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libx.so");
        std::fs::write(&file, b"#!/bin/sh\n").unwrap();
        check(&file, "file too short");
    }
}
