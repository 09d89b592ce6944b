//! What a library's file says about itself: exports, dependencies, segments, descriptor. Nothing is executed.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, Object as _, ObjectSection as _, StringTable};

use crate::journal::{Broken, broken, ensure};

/// The section that holds the descriptor in a Mach-O file.
const DESCRIPTOR_SECTION_MACHO: &str = "__sfr_desc";

/// A symbol that the library shows to the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) kind: ExportKind,
}

/// How strongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportKind {
    Strong,
    Weak,
    /// STB_GNU_UNIQUE: one per process, whatever RTLD_LOCAL says.
    Unique,
}

/// The facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// `elf` or `mach-o`.
    pub(crate) format: &'static str,
    pub(crate) exports: Vec<Export>,
    pub(crate) needed: Vec<String>,
    /// Components of RPATH and RUNPATH.
    pub(crate) run_paths: Vec<String>,
    /// `None` where the format has no such thing.
    pub(crate) stack_executable: Option<bool>,
    pub(crate) text_relocations: bool,
    /// Bytes of the descriptor without trailing NULs; `None` without the section.
    pub(crate) descriptor: Option<Vec<u8>>,
    /// Undefined symbols.
    pub(crate) imports: Vec<String>,
}

impl Image {
    /// Reads the file's headers.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Image, Broken> {
        let kind = object::FileKind::parse(bytes).map_err(|error| broken!("no library: {error}"))?;
        match kind {
            object::FileKind::Elf64 => {
                parse_elf(bytes).map_err(|error| broken!("a damaged ELF file: {error}"))?
            }
            object::FileKind::MachO64 => {
                parse_macho(bytes).map_err(|error| broken!("a damaged Mach-O file: {error}"))
            }
            other => Err(broken!("a file of kind {other:?}; want a 64-bit ELF or Mach-O library")),
        }
    }
}

fn parse_elf(bytes: &[u8]) -> object::Result<Result<Image, Broken>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let (kind, machine) = (header.e_type(endian), header.e_machine(endian));
    if kind != elf::ET_DYN || !machine_is_ours(machine) {
        return Ok(Err(broken!(
            "ELF type {kind} for machine {machine} is no library for {}",
            std::env::consts::ARCH
        )));
    }
    let mut image = Image { format: "elf", stack_executable: Some(true), ..Image::default() };
    for segment in header.program_headers(endian, bytes)? {
        if segment.p_type(endian) == elf::PT_GNU_STACK {
            image.stack_executable = Some(segment.p_flags(endian) & elf::PF_X != 0);
        }
    }
    let sections = header.sections(endian, bytes)?;
    for section in sections.iter() {
        if sections.section_name(endian, section)? == sf_abi::SFR_DESCRIPTOR_SECTION_ELF.as_bytes() {
            image.descriptor = Some(trimmed(section.data(endian, bytes)?));
        }
    }
    if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, link)?;
        for entry in entries {
            read_dynamic(&mut image, entry, endian, strings)?;
        }
    }
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned();
        let bind = symbol.st_bind();
        if name.is_empty() || bind == elf::STB_LOCAL {
            continue;
        }
        // A version script's node is an absolute symbol: nothing that could be called or shared.
        let shown = matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
        match symbol.st_shndx(endian) {
            elf::SHN_UNDEF => image.imports.push(name),
            elf::SHN_ABS => {}
            _ if shown => image.exports.push(Export { name, kind: export_kind(bind) }),
            _ => {}
        }
    }
    Ok(Ok(image))
}

fn export_kind(bind: u8) -> ExportKind {
    match bind {
        elf::STB_GNU_UNIQUE => ExportKind::Unique,
        elf::STB_WEAK => ExportKind::Weak,
        _ => ExportKind::Strong,
    }
}

fn read_dynamic(
    image: &mut Image,
    entry: &elf::Dyn64<Endianness>,
    endian: Endianness,
    strings: StringTable<'_>,
) -> object::Result<()> {
    let text = || Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
    match entry.tag32(endian) {
        Some(elf::DT_NEEDED) => image.needed.push(text()?),
        Some(elf::DT_RPATH | elf::DT_RUNPATH) => {
            image.run_paths.extend(text()?.split(':').filter(|path| !path.is_empty()).map(str::to_owned));
        }
        Some(elf::DT_TEXTREL) => image.text_relocations = true,
        Some(elf::DT_FLAGS) => {
            image.text_relocations |= entry.val32(endian).is_some_and(|flags| flags & elf::DF_TEXTREL != 0);
        }
        _ => {}
    }
    Ok(())
}

fn machine_is_ours(machine: u16) -> bool {
    match std::env::consts::ARCH {
        "x86_64" => machine == elf::EM_X86_64,
        "aarch64" => machine == elf::EM_AARCH64,
        "riscv64" => machine == elf::EM_RISCV,
        _ => true,
    }
}

fn parse_macho(bytes: &[u8]) -> object::Result<Image> {
    let file = object::File::parse(bytes)?;
    let mut image = Image { format: "mach-o", ..Image::default() };
    for export in file.exports()? {
        let name = String::from_utf8_lossy(export.name());
        let name = name.strip_prefix('_').unwrap_or(&name).to_owned();
        image.exports.push(Export { name, kind: ExportKind::Strong });
    }
    for import in file.imports()? {
        let library = String::from_utf8_lossy(import.library()).into_owned();
        if !image.needed.contains(&library) {
            image.needed.push(library);
        }
    }
    if let Some(section) = file.section_by_name(DESCRIPTOR_SECTION_MACHO) {
        image.descriptor = Some(trimmed(section.data()?));
    }
    Ok(image)
}

fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..end].to_vec()
}

/// The descriptor's text, from the section.
pub(crate) fn descriptor_text(image: &Image) -> Result<&str, Broken> {
    let section = sf_abi::SFR_DESCRIPTOR_SECTION_ELF;
    let bytes = image.descriptor.as_deref().ok_or_else(|| broken!("no descriptor section ({section})"))?;
    let most = sf_core::limits::RUNTIME_JSON_BYTES_MAX;
    ensure!(bytes.len() <= most, "a descriptor of {} bytes, at most {most}", bytes.len());
    core::str::from_utf8(bytes).map_err(|error| broken!("the descriptor is not UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused_in_words() {
        let check = |bytes: &[u8], words: &str| {
            let broken = Image::parse(bytes).unwrap_err().to_string();
            assert!(broken.contains(words), "{broken}");
        };
        check(b"", "no library");
        check(b"#!/bin/sh\nexit 0\n........................", "no library");
        check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", "ELF");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_very_program_has_a_librarys_type_but_no_descriptor() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert!(descriptor_text(&image).unwrap_err().to_string().contains("no descriptor section"));
        assert!(image.needed.iter().any(|name| name.starts_with("libc.")), "{:?}", image.needed);
        assert_eq!((image.stack_executable, image.text_relocations), (Some(false), false));
    }

    #[test]
    fn trailing_nuls_are_no_part_of_the_descriptor() {
        assert_eq!(trimmed(b"{}\0\0"), b"{}");
        assert_eq!(trimmed(b"\0\0"), b"");
    }
}
