//! Reads the descriptor's section out of a library without loading it.

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Architecture, BinaryFormat, Object as _, ObjectSection as _};
use sf_abi::SFR_DESCRIPTOR_SECTION_ELF;
use sf_core::limits::RUNTIME_JSON_BYTES_MAX;

use crate::machine::Machine;
use crate::reason::Reason;

const MACHO_SECTION: &str = "__sfr_desc";

/// The descriptor's bytes: the section without the NULs at its end.
pub(crate) fn descriptor(path: &Path, machine: &Machine) -> Result<String, Reason> {
    let not_library = |why: String| Reason::NotLibrary { path: path.to_owned(), why };
    let unreadable =
        |error: std::io::Error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() };
    let file = ReadCache::new(File::open(path).map_err(unreadable)?);
    let parsed = object::File::parse(&file).map_err(|error| not_library(error.to_string()))?;
    let arch = architecture(parsed.architecture());
    if arch != Some(machine.arch.as_str()) {
        let here = &machine.arch;
        return Err(not_library(format!("it is for {}, this is {here}", arch.unwrap_or("another machine"))));
    }
    let name = match parsed.format() {
        BinaryFormat::MachO => MACHO_SECTION,
        _ => SFR_DESCRIPTOR_SECTION_ELF,
    };
    let section = parsed
        .section_by_name(name)
        .ok_or(Reason::NoDescriptor { path: path.to_owned(), section: SFR_DESCRIPTOR_SECTION_ELF })?;
    let max = RUNTIME_JSON_BYTES_MAX as u64;
    if section.size() > max {
        let why = format!("the section is {} bytes long, more than {max}", section.size());
        return Err(Reason::BadDescriptor { why });
    }
    let data = section.data().map_err(|error| not_library(error.to_string()))?;
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&data[..end]) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(Reason::BadDescriptor { why: format!("the section is not UTF-8: {error}") }),
    }
}

/// As `std::env::consts::ARCH` spells it.
fn architecture(arch: Architecture) -> Option<&'static str> {
    match arch {
        Architecture::X86_64 => Some("x86_64"),
        Architecture::Aarch64 => Some("aarch64"),
        Architecture::Riscv64 => Some("riscv64"),
        Architecture::LoongArch64 => Some("loongarch64"),
        _ => None,
    }
}
