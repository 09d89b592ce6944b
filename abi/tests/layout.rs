//! Holds the Rust mirror to the header: sizes, offsets and constants as C compilers see them, types as bindgen does.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use sf_abi::*;

/// One struct of the mirror: C name, Rust name, size, and per field its C name, offset and size.
struct Record {
    c: &'static str,
    rust: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

fn size_of_field<S, F>(_: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! records {
    ($($c:literal $rust:ident { $($field:ident)* })*) => {
        vec![$(Record {
            c: $c,
            rust: stringify!($rust),
            size: size_of::<$rust>(),
            fields: vec![$((
                stringify!($field).trim_start_matches("r#"),
                offset_of!($rust, $field),
                size_of_field(|s: &$rust| &s.$field),
            )),*],
        }),*]
    };
}

fn mirror() -> Vec<Record> {
    records! {
        "sfr_str" SfrStr { p n }
        "sfr_buf" SfrBuf { p cap needed }
        "sfr_array" SfrArray { at count stride }
        "sfr_error" SfrError { struct_size code native_code scope message_len field_len message field }
        "sfr_host" SfrHost { struct_size abi_minor ctx host_name host_version log log_enabled now_ns get_interface }
        "sfr_control" SfrControl { struct_size yield_seq abort_seq reserved0 reserved }
        "sfr_opt" SfrOpt { key s i f r#type flags honoured reserved0 }
        "sfr_open" SfrOpen { struct_size flags paths opts devices scratch_dir cache_dir progress progress_ctx control }
        "sfr_feed" SfrFeed { lane token_off token_len pos0 flags row_off row_len sampler adapter media_off media_len
            tree reserved0 }
        "sfr_plan" SfrPlan { struct_size flags seq deadline_ns arena arena_len feeds tokens samplers adapters media
            trees control }
        "sfr_lane_out" SfrLaneOut { lane status native_code pos consumed row_off row_len }
        "sfr_row" SfrRow { lane pos logits_row token logprob }
        "sfr_result" SfrResult { struct_size flags seq arena arena_len arena_used lanes rows logits logits_rows
            logits_stride logits_dtype vocab reserved0 device_ns }
        "sfr_stats" SfrStats { struct_size lanes_live steps tokens_fed bytes_weights bytes_kv bytes_compute
            bytes_mapped device_free kv_cells_total kv_cells_used }
        "sfr_estimate" SfrEstimate { struct_size confidence bytes_weights bytes_kv_per_token bytes_fixed_per_lane
            bytes_compute ctx_trained lanes_max }
        "sfr_probe" SfrProbe { struct_size depth budget_ns }
        "sfr_query" SfrQuery { struct_size abi_major abi_minor abi_minor_min }
        "sfr_engine_vt" SfrEngineVt { struct_size reserved0 open close describe lane_create lane_free lane_truncate
            step_begin step_end stats get_interface }
        "sfr_inspect_vt" SfrInspectVt { struct_size reserved0 inspect estimate }
        "sfr_tokenizer_vt" SfrTokenizerVt { struct_size reserved0 open close encode token_bytes facts }
        "sfr_kv_vt" SfrKvVt { struct_size reserved0 fork export_size export_state import_state }
        "sfr_embed" SfrEmbed { struct_size flags tokens lengths pooling normalize control }
        "sfr_embed_vt" SfrEmbedVt { struct_size reserved0 embed }
        "sfr_runtime" SfrRuntime { struct_size abi_major abi_minor abi_minor_min_host descriptor_json init shutdown
            probe get_interface }
    }
}

macro_rules! constants {
    ($($name:ident)*) => { BTreeMap::from([$((stringify!($name), i128::from($name as i64))),*]) };
}

fn mirror_constants() -> BTreeMap<&'static str, i128> {
    constants! {
        SFR_ABI_MAJOR SFR_ABI_MINOR SFR_OK SFR_E_ABI SFR_E_ARG SFR_E_UNSUPPORTED SFR_E_OPTION SFR_E_NOT_FOUND
        SFR_E_FORMAT SFR_E_NOMEM_HOST SFR_E_NOMEM_DEVICE SFR_E_CAPACITY SFR_E_BUSY SFR_E_CANCELLED SFR_E_DEADLINE
        SFR_E_IDENTITY SFR_E_CHECKSUM SFR_E_SMALL_BUFFER SFR_E_STATE SFR_E_DEVICE_LOST SFR_E_FATAL SFR_E_INTERNAL
        SFR_SCOPE_CALL SFR_SCOPE_LANE SFR_SCOPE_MODEL SFR_SCOPE_RUNTIME SFR_SCOPE_PROCESS
        SFR_ERROR_MESSAGE_MAX SFR_ERROR_FIELD_MAX
        SFR_LOG_ERROR SFR_LOG_WARN SFR_LOG_INFO SFR_LOG_DEBUG SFR_LOG_TRACE
        SFR_T_BOOL SFR_T_I64 SFR_T_F64 SFR_T_STR SFR_OPT_MUST
        SFR_HONOURED_UNSEEN SFR_HONOURED_EXACTLY SFR_HONOURED_APPROXIMATELY SFR_HONOURED_IGNORED
        SFR_NONE SFR_DTYPE_F32 SFR_DTYPE_F16 SFR_DTYPE_BF16 SFR_RESULT_YIELDED SFR_ENCODE_SPECIAL SFR_ENCODE_ADD_BOS
        SFR_POOLING_MODEL SFR_POOLING_MEAN SFR_POOLING_FIRST SFR_POOLING_LAST
        SFR_NORMALIZE_MODEL SFR_NORMALIZE_YES SFR_NORMALIZE_NO
    }
}

/// Numeric `#define SFR_` names of the header; macros with parameters, attributes and strings are not numbers.
fn header_constants() -> Vec<String> {
    let number =
        |value: &str| value.trim_start_matches(['(', '-']).starts_with(|first: char| first.is_ascii_digit());
    HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define ").and_then(|rest| rest.split_once(' ')))
        .filter(|(name, value)| name.starts_with("SFR_") && number(value.trim_start()))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/superfluid_runtime.h")
}

/// Compilers that exist here, with their C++ face. `cc` must; the others are extra witnesses.
fn compilers() -> Vec<(&'static str, &'static str)> {
    let exists =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let found: Vec<_> = [("cc", "c++"), ("gcc", "g++"), ("clang", "clang++")]
        .into_iter()
        .filter(|(c, cpp)| exists(c) && exists(cpp))
        .collect();
    assert!(!found.is_empty(), "no C and C++ compiler: run cargo xtask setup");
    found
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("compilers print UTF-8")
}

/// A program that prints `struct = size`, `struct field offset size` and `constant : value` lines.
fn witness() -> String {
    let mut c = String::from("#include \"superfluid_runtime.h\"\n#include <stdio.h>\nint main(void) {\n");
    for record in mirror() {
        let name = record.c;
        c += &format!("printf(\"{name} = %u\\n\", (unsigned)sizeof({name}));\n");
        for (field, ..) in &record.fields {
            c += &format!(
                "printf(\"{name} {field} %u %u\\n\", (unsigned)offsetof({name}, {field}), \
                 (unsigned)sizeof((({name} *)0)->{field}));\n"
            );
        }
    }
    for name in header_constants() {
        c += &format!("printf(\"{name} : %lld\\n\", (long long){name});\n");
    }
    c + "return 0;\n}\n"
}

fn expected() -> String {
    let mut text = String::new();
    for record in mirror() {
        text += &format!("{} = {}\n", record.c, record.size);
        for (field, offset, size) in &record.fields {
            text += &format!("{} {field} {offset} {size}\n", record.c);
        }
    }
    let constants = mirror_constants();
    for name in header_constants() {
        let value = constants.get(&*name).unwrap_or_else(|| panic!("the mirror has no {name}"));
        text += &format!("{name} : {value}\n");
    }
    text
}

#[test]
fn every_c_compiler_and_standard_lays_the_header_out_as_the_mirror_does() {
    let dir = tempfile::tempdir().unwrap();
    let expected = expected();
    for (c, cpp) in compilers() {
        for (compiler, std, file) in [(c, "c99", "w.c"), (c, "c11", "w.c"), (cpp, "c++11", "w.cpp")] {
            let source = dir.path().join(file);
            let program = dir.path().join("witness");
            std::fs::write(&source, witness()).unwrap();
            run(Command::new(compiler)
                .args([&format!("-std={std}"), "-Wall", "-Wextra", "-Wpadded", "-Werror", "-pedantic"])
                .arg(format!("-I{}", header().parent().unwrap().display()))
                .arg(&source)
                .arg("-o")
                .arg(&program));
            let found = run(&mut Command::new(&program));
            assert_eq!(found.lines().count(), expected.lines().count(), "{compiler} -std={std}");
            for (found, expected) in found.lines().zip(expected.lines()) {
                assert_eq!(found, expected, "{compiler} -std={std}: header and mirror");
            }
        }
    }
}

#[test]
fn the_mirror_has_no_constant_that_the_header_lacks() {
    let header = header_constants();
    for name in mirror_constants().keys() {
        assert!(header.iter().any(|known| known == name), "{name} is not in the header");
    }
    assert_eq!(header.len(), mirror_constants().len());
}

#[test]
fn strings_and_interface_ids_are_the_headers() {
    assert!(HEADER.contains(&format!("#define SFR_ENTRY_NAME \"{SFR_ENTRY_NAME}\"")));
    assert!(HEADER.contains(&format!("section(\"{SFR_DESCRIPTOR_SECTION_ELF}\")")));
    for id in [SF_ENGINE_1, SF_INSPECT_1, SF_TOKENIZER_1, SF_KV_1, SF_EMBED_1] {
        assert!(HEADER.contains(&format!("\"{}\"", id.to_str().unwrap())), "{id:?}");
    }
}

/// `sfr_lane_out` → `SfrLaneOut`, for every identifier of the text that starts so.
fn rust_names(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let Some(_) = word.strip_prefix("sfr_") else {
            out.push_str(word);
            continue;
        };
        for part in word.split('_') {
            let mut chars = part.chars();
            out.extend(chars.next().map(|first| first.to_ascii_uppercase()));
            out.push_str(chars.as_str());
        }
    }
    out
}

/// Bodies of `pub struct`s by name, as one canonical spelling of Rust types.
fn struct_bodies(source: &str) -> BTreeMap<String, String> {
    let mut bodies = BTreeMap::new();
    for piece in source.split("pub struct ").skip(1) {
        let Some((name, rest)) = piece.split_once('{') else { continue };
        let body: String = rest.split('}').next().unwrap_or_default().split_whitespace().collect();
        let canonical = body
            .replace("::std::option::", "")
            .replace("::std::os::raw::", "")
            .replace("::core::ffi::", "")
            .replace("SFR_ERROR_MESSAGE_MAX", "400")
            .replace("SFR_ERROR_FIELD_MAX", "88")
            .replace("usize]", "]")
            .replace("r#type", "type_")
            .replace(",)", ")")
            .replace(",>", ">");
        bodies.insert(name.trim().to_owned(), canonical.trim_end_matches(',').to_owned());
    }
    bodies
}

#[test]
fn bindgen_makes_the_mirrors_structs_field_by_field() {
    let bindings = bindgen::Builder::default()
        .header(header().to_str().unwrap())
        .allowlist_type("sfr_.*")
        .derive_debug(false)
        .layout_tests(false)
        .generate_comments(false)
        .generate()
        .expect("bindgen reads the header (needs libclang: run cargo xtask setup)");
    let theirs = struct_bodies(&rust_names(&bindings.to_string()));
    let mut ours = struct_bodies(include_str!("../src/mirror.rs"));
    ours.extend(struct_bodies(include_str!("../src/tables.rs")));
    for record in mirror() {
        let (ours, theirs) = (ours.get(record.rust), theirs.get(record.rust));
        assert!(
            ours.is_some_and(|body| body.contains("pub")),
            "{} is not in the mirror's source",
            record.rust
        );
        assert_eq!(ours, theirs, "{} differs from the header", record.rust);
    }
    let covered: Vec<_> = mirror().iter().map(|record| record.rust).collect();
    for name in theirs.keys().filter(|name| !["SfrModel", "SfrTokenizer"].contains(&name.as_str())) {
        assert!(covered.contains(&name.as_str()), "{name} of the header has no mirror");
    }
}

#[test]
fn the_newest_frozen_header_is_the_current_one_or_of_an_older_minor() {
    let current = format!("v{SFR_ABI_MAJOR}.{SFR_ABI_MINOR}.h");
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen").join(&current);
    let text =
        std::fs::read_to_string(&frozen).unwrap_or_else(|error| panic!("{}: {error}", frozen.display()));
    assert_eq!(text, HEADER, "abi/frozen/{current} and the header differ: a change needs a new minor");
}
