//! The built library itself: one export, no unique symbols, the descriptor in its section, loadable by path.
#![expect(unsafe_code, reason = "loads a library")]

use std::path::PathBuf;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};
use sf_abi::{SFR_DESCRIPTOR_SECTION_ELF, SFR_ENTRY_NAME, SfrEntryFn, SfrQuery};
use superfluid_llamacpp::DESCRIPTOR;

fn library() -> PathBuf {
    let here = std::env::current_exe().expect("a test binary");
    let name = format!("{}superfluid_llamacpp{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = here.parent().expect("a folder").join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

#[cfg(target_os = "linux")]
#[test]
fn it_exports_one_symbol_and_nothing_unique() {
    let bytes = std::fs::read(library()).expect("the library");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("ELF");
    let mut exports = Vec::new();
    for symbol in file.dynamic_symbols() {
        let binding = symbol.elf_symbol().st_bind();
        let name = symbol.name().expect("a name").to_owned();
        // STB_GNU_UNIQUE: such a symbol is one for the whole process, across libraries.
        assert_ne!(binding, object::elf::STB_GNU_UNIQUE, "{name}");
        if symbol.is_definition() {
            exports.push(name);
        }
    }
    assert_eq!(exports, [SFR_ENTRY_NAME]);
    let section = file.section_by_name(SFR_DESCRIPTOR_SECTION_ELF).expect("the descriptor's section");
    let text = section.data().expect("its bytes");
    assert_eq!(std::str::from_utf8(text).expect("UTF-8").trim_end_matches('\0'), DESCRIPTOR);
}

#[test]
fn it_loads_and_answers_to_its_abi_only() {
    // SAFETY: our own library; its initialisers only register ggml's CPU backend.
    let library = unsafe { libloading::Library::new(library()) }.expect("it loads");
    // SAFETY: the type that the name stands for.
    let entry = unsafe { library.get::<SfrEntryFn>(SFR_ENTRY_NAME) }.expect("the symbol");
    for (minor, expect) in [(1, false), (2, true), (3, false)] {
        let query = SfrQuery { struct_size: 16, abi_major: 0, abi_minor: minor, abi_minor_min: minor };
        // SAFETY: a query by the header.
        assert_eq!(!unsafe { entry(&query) }.is_null(), expect, "0.{minor}");
    }
    // SAFETY: a look-up by name.
    assert!(unsafe { library.get::<SfrEntryFn>("llama_decode") }.is_err(), "llama.cpp is hidden");
    // A runtime is never unloaded.
    std::mem::forget(library);
}
