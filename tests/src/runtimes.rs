//! Compiles the C runtimes of `tests/runtimes` and writes the manifest beside each library.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use serde_json::value::RawValue;
use sf_abi::descriptor::{LibraryEntry, Manifest};
use sha2::{Digest, Sha256};

/// Every misbehaviour that `bad_runtime.c` knows, `none` apart.
pub const BAD_MODES: &[&str] = &[
    "null_entry",
    "wrong_major",
    "short_struct",
    "exit_before_hello",
    "descriptor_mismatch",
    "descriptor_not_json",
    "extra_export",
    "no_engine",
    "null_member",
    "hang_init",
    "crash_init",
    "hang_probe",
    "crash_probe",
    "probe_unavailable",
    "probe_not_json",
    "hang_open",
    "crash_open",
    "exit_open",
    "error_without_message",
    "long_message",
    "ignore_must",
    "lying_effective",
    "writes_stdout",
    "hang_step",
    "crash_step",
    "abort_step",
    "exit_step",
    "error_step",
    "fatal_step",
    "wrong_vocab",
    "wrong_lane_row",
    "row_out_of_range",
    "token_out_of_range",
    "nan_logits",
    "null_logits",
    "wrong_seq",
    "wild_offset",
    "missing_lane_out",
    "chunk_dependent",
    "batch_dependent",
    "fork_leak",
    "truncate_lie",
    "position_blind",
    "neighbour_damage",
];

/// Path of a runtime's source: `sample` or `bad`.
pub fn source_path(name: &str) -> PathBuf {
    crate::repository().join(format!("tests/runtimes/{name}/{name}_runtime.c"))
}

/// Compiles the good C runtime into `<dir>/sample` and returns that folder: `runtime.json` and the library.
///
/// # Panics
/// When there is no C compiler or the source has a warning.
pub fn build_sample(dir: &Path) -> PathBuf {
    let folder = fresh_folder(dir, "sample");
    let library = folder.join(library_name("sample"));
    compile("cc", &source_path("sample"), &library, &[]);
    write_manifest(&library);
    folder
}

/// Compiles the bad C runtime with one of [`BAD_MODES`], or `none`, into `<dir>/bad-<mode>` and returns that folder.
///
/// # Panics
/// As [`build_sample`], and for an unknown mode.
pub fn build_bad(dir: &Path, mode: &str) -> PathBuf {
    assert!(mode == "none" || BAD_MODES.contains(&mode), "the bad runtime has no mode {mode}");
    let folder = fresh_folder(dir, &format!("bad-{mode}"));
    let library = folder.join(library_name("bad"));
    let define = format!("-DBAD_MODE={mode}");
    let mut flags = vec![define.as_str()];
    match mode {
        "descriptor_not_json" => flags.push("-DBAD_NOT_JSON"),
        "extra_export" => flags.push("-DBAD_EXTRA_EXPORT"),
        _ => {}
    }
    compile("cc", &source_path("bad"), &library, &flags);
    write_manifest(&library);
    folder
}

/// Compiles one C source into a runtime library, as strictly as abi/README.md asks a runtime's author to.
///
/// # Panics
/// When the compiler is missing or has anything to say.
pub fn compile(compiler: &str, source: &Path, library: &Path, flags: &[&str]) {
    let out = Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"])
        .args(["-fPIC", "-shared", "-fvisibility=hidden"])
        .args(flags)
        .arg("-I")
        .arg(crate::repository().join("abi/include"))
        .arg(source)
        .arg("-o")
        .arg(library)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(
        out.status.success() && out.stderr.is_empty(),
        "{compiler} {flags:?} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&out.stderr)
    );
    fs::set_permissions(library, fs::Permissions::from_mode(0o755)).expect("the library was just written");
}

/// The descriptor's bytes as they stand in a library's section, without running anything of it.
///
/// # Panics
/// When the file is no library or has no such section.
pub fn descriptor_section(library: &Path) -> Vec<u8> {
    let bytes = fs::read(library).expect("the library is readable");
    let file = object::File::parse(&*bytes).expect("a shared library");
    let section = file
        .section_by_name(sf_abi::SFR_DESCRIPTOR_SECTION_ELF)
        .or_else(|| file.section_by_name("__sfr_desc"))
        .expect("a descriptor section");
    let data = section.data().expect("the section lies in the file");
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    data[..end].to_vec()
}

/// Writes `runtime.json` beside a library: the section's bytes verbatim, hash and size of the file.
///
/// A descriptor that is not JSON (one of the bad modes) is replaced by an empty object, so that the manifest parses.
///
/// # Panics
/// When the library has no descriptor section.
pub fn write_manifest(library: &Path) {
    let bytes = fs::read(library).expect("the library is readable");
    let text = String::from_utf8(descriptor_section(library)).expect("a descriptor is UTF-8");
    let descriptor = RawValue::from_string(text)
        .unwrap_or_else(|_| RawValue::from_string("{}".to_owned()).expect("{} is JSON"));
    let manifest = Manifest {
        manifest_version: 1,
        libraries: vec![LibraryEntry {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            path: library.file_name().expect("a file").to_string_lossy().into_owned(),
            sha256: Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
            size: bytes.len() as u64,
        }],
        descriptor,
    };
    let path = library.with_file_name("runtime.json");
    let json = serde_json::to_string(&manifest).expect("a manifest is plain data");
    fs::write(&path, json).expect("the library's folder is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the manifest was just written");
}

fn library_name(id: &str) -> String {
    format!("lib{id}{}", std::env::consts::DLL_SUFFIX)
}

/// Not writable by others, whatever the umask: the catalog refuses such folders.
fn fresh_folder(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    fs::create_dir_all(&folder).expect("the test's directory is writable");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("the folder was just made");
    folder
}
