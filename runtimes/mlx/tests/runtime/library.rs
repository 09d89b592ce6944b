//! The built library itself: one export, the descriptor in its section, loadable by path. The test's root says which.
#![expect(unsafe_code, reason = "loads a library")]

use std::path::PathBuf;

use object::{Object, ObjectSection, ObjectSymbol};
use sf_abi::{SFR_DESCRIPTOR_SECTION_ELF, SFR_ENTRY_NAME, SfrEntryFn, SfrQuery};

use crate::{DESCRIPTOR, NAME};

pub(crate) fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let name = format!("{}{NAME}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = here.parent().unwrap().join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

#[cfg(target_os = "linux")]
#[test]
fn it_exports_one_symbol_and_carries_its_descriptor() {
    let bytes = std::fs::read(library()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let exports: Vec<&str> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().unwrap())
        .collect();
    assert_eq!(exports, [SFR_ENTRY_NAME]);
    let section = file.section_by_name(SFR_DESCRIPTOR_SECTION_ELF).unwrap();
    assert_eq!(std::str::from_utf8(section.data().unwrap()).unwrap().trim_end_matches('\0'), DESCRIPTOR);
}

#[test]
fn it_loads_and_answers_to_its_abi_only() {
    // SAFETY: one of our own libraries, with the initialisers of its engine.
    let library = unsafe { libloading::Library::new(library()) }.unwrap();
    // SAFETY: the type that the name stands for.
    let entry = unsafe { library.get::<SfrEntryFn>(SFR_ENTRY_NAME) }.unwrap();
    for (minor, expect) in [(1, false), (2, true), (3, false)] {
        let query = SfrQuery { struct_size: 16, abi_major: 0, abi_minor: minor, abi_minor_min: minor };
        // SAFETY: a query by the header.
        assert_eq!(!unsafe { entry(&query) }.is_null(), expect, "0.{minor}");
    }
    // A runtime is never unloaded.
    std::mem::forget(library);
}
