//! What is found, in which order, and why a runtime is refused.

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{
    Fixture, GGUF, LIBRARY, compile, compile_code, descriptor, mode, states, write, write_manifest,
};
use expect_test::expect;
use sf_catalog::{Catalog, Search, Source, State};

#[test]
fn a_sound_runtime_is_usable_and_described() {
    let fixture = Fixture::new();
    let text = descriptor("acme", "1.2.3", GGUF);
    let folder = fixture.runtime("acme", &text);
    let catalog = fixture.catalog(&[(Source::User, "acme")]);
    let [entry] = catalog.entries() else { panic!("{catalog:?}") };
    assert_eq!(entry.state, State::Usable);
    assert_eq!(entry.descriptor_bytes, text);
    assert_eq!(entry.library, fs::canonicalize(folder.join(LIBRARY)).unwrap());
    assert_eq!(entry.sha256.len(), 64);
    assert_eq!(entry.title(), "acme 1.2.3");
}

/// Makes a sound runtime, spoils it, and says what the catalog says.
fn spoiled(more: &str, spoil: impl FnOnce(&Path)) -> String {
    let fixture = Fixture::new();
    let folder = fixture.runtime("acme", &descriptor("acme", "1.2.3", more));
    spoil(&folder);
    states(&fixture, &fixture.catalog(&[(Source::User, "acme")]))
}

#[test]
fn what_is_wrong_with_a_manifest_is_said() {
    let manifest = |text: &'static str| spoiled("", move |folder| write(&folder.join("runtime.json"), text));
    let text = [
        manifest("{"),
        manifest(r#"{"manifest_version":2,"libraries":[],"descriptor":{}}"#),
        manifest(r#"{"manifest_version":1,"libraries":[],"descriptor":{}}"#),
        spoiled("", |folder| write(&folder.join("runtime.json"), &" ".repeat((1 << 20) + 1))),
    ]
    .join("\n");
    expect![[r#"
        acme [user] $DIR/acme/runtime.json is not a manifest: EOF while parsing an object at line 1 column 1 (runtime.bad_manifest)
        acme [user] $DIR/acme/runtime.json is not a manifest: manifest_version is 2; this host knows 1 (runtime.bad_manifest)
        acme [user] bad descriptor: missing field `descriptor_version` at line 1 column 2 (runtime.bad_descriptor)
        acme [user] $DIR/acme/runtime.json is <n> bytes long, more than <n> (runtime.too_large)"#]].assert_eq(&text);
}

#[test]
fn what_is_wrong_with_a_descriptor_is_said() {
    let with = |text: &str| {
        let fixture = Fixture::new();
        fixture.runtime("acme", text);
        states(&fixture, &fixture.catalog(&[(Source::User, "acme")]))
    };
    let text = [
        with(&descriptor("Acme!", "1", "")),
        with(&descriptor("acme", "", "")),
        with(&descriptor("acme", "1", "").replace("_version\":1", "_version\":9")),
        with(&descriptor("acme", "1", r#""capabilities":{"kv":{"fork":false}}"#)),
        with(&descriptor("acme", "1", r#""options":[{"key":"a","type":"int","min":2,"max":1}]"#)),
        with(&descriptor("acme", "1", r#""options":[{"key":"a","type":"bool"},{"key":"a","type":"int"}]"#)),
        with(&descriptor("acme", "1", r#""options":[{"key":"A B","type":"str"}]"#)),
        with(&descriptor("acme", "1", "").replace("[0,2]", "[0,3]")),
        with(&descriptor("acme", "1", "").replace("[0,2]", "[1,0]")),
        with(&descriptor("acme", "1", r#""requires":{"cpu":["avx2","avx512f","amx_tile"]}"#)),
        with(&descriptor("acme", "1", r#""requires":{"os":["plan9","haiku"]}"#)),
        with(&descriptor("acme", "1", r#""requires":{"cpu":["avx2"]}"#)),
    ]
    .join("\n");
    expect![[r#"
        acme [user] bad descriptor: id "Acme!" is not [a-z0-9][a-z0-9._-]*, at most 64 bytes (runtime.bad_descriptor)
        acme [user] bad descriptor: version is empty (runtime.bad_descriptor)
        acme [user] bad descriptor: descriptor_version is 9; this host knows 1 (runtime.bad_descriptor)
        acme [user] bad descriptor: data did not match any variant of untagged enum Capability at line 1 column 97 (runtime.bad_descriptor)
        acme [user] bad descriptor: option "a" has a range that holds nothing (runtime.bad_descriptor)
        acme [user] bad descriptor: option "a" is declared twice (runtime.bad_descriptor)
        acme [user] bad descriptor: option "A B" is not [a-z0-9-]+, at most 64 bytes (runtime.bad_descriptor)
        acme 1 [user] built for ABI 0.3, this host has 0.2 (runtime.abi)
        acme 1 [user] built for ABI 1.0, this host has 0.2 (runtime.abi)
        acme 1 [user] needs CPU features that this machine lacks: avx512f, amx_tile (runtime.cpu)
        acme 1 [user] needs the system plan9 or haiku, this is $OS (runtime.os)
        acme 1 [user] usable"#]].assert_eq(&text);
}

#[test]
fn a_library_that_differs_from_its_manifest_is_refused() {
    let changed = |change: fn(&mut sf_abi::descriptor::LibraryEntry)| {
        spoiled("", move |folder| {
            write_manifest(folder, &descriptor("acme", "1.2.3", ""), |manifest| {
                change(&mut manifest.libraries[0]);
            });
        })
    };
    let text = [
        changed(|library| library.size += 1),
        changed(|library| library.sha256 = "0".repeat(64)),
        changed(|library| library.os = "plan9".into()),
        changed(|library| library.path = "nowhere.so".into()),
        spoiled("", |folder| write_manifest(folder, &descriptor("acme", "1.2.4", ""), |_| {})),
        spoiled("", |folder| {
            write_manifest(folder, &descriptor("acme", "1.2.3", "").replace(":1,", ": 1,"), |_| {});
        }),
        spoiled("", |folder| {
            compile_code(&folder.join(LIBRARY), "int nothing;\n");
            write_manifest(folder, &descriptor("acme", "1.2.3", ""), |_| {});
        }),
        spoiled("", |folder| {
            write(&folder.join(LIBRARY), "no library at all");
            write_manifest(folder, &descriptor("acme", "1.2.3", ""), |_| {});
        }),
    ]
    .join("\n");
    expect![[r#"
        acme 1.2.3 [user] $DIR/acme/libfake.so is <n> bytes long, its manifest says <n> (runtime.size_mismatch)
        acme 1.2.3 [user] SHA-256 of $DIR/acme/libfake.so is <sha256>, its manifest says <sha256> (runtime.hash_mismatch)
        acme 1.2.3 [user] no library for $OS $ARCH; it has plan9 $ARCH (runtime.platform)
        acme 1.2.3 [user] cannot read $DIR/acme/nowhere.so: No such file or directory (os error 2) (runtime.unreadable)
        acme 1.2.4 [user] manifest and library describe different runtimes: from byte 51 on, the manifest has "4\",\"abi\":[0,2]}", the library "3\",\"abi\":[0,2]}" (runtime.descriptor_mismatch)
        acme 1.2.3 [user] manifest and library describe different runtimes: from byte 22 on, the manifest has " 1,\"id\":\"acme\",\"version\"", the library "1,\"id\":\"acme\",\"version\":" (runtime.descriptor_mismatch)
        acme 1.2.3 [user] $DIR/acme/libfake.so has no descriptor section .sfr_desc (runtime.no_descriptor)
        acme 1.2.3 [user] $DIR/acme/libfake.so is not a library for this machine: Unknown file magic (runtime.not_a_library)"#]].assert_eq(&text);
}

#[test]
fn the_same_descriptor_with_nuls_behind_it_is_the_same() {
    let fixture = Fixture::new();
    let text = descriptor("acme", "1", "");
    let folder = fixture.folder("acme");
    let escaped = text.replace('"', "\\\"");
    let code = format!(
        "#include \"superfluid_runtime.h\"\nSFR_DESCRIPTOR_SECTION static const char D[400] = \"{escaped}\";\n"
    );
    compile_code(&folder.join(LIBRARY), &code);
    write_manifest(&folder, &text, |_| {});
    assert_eq!(states(&fixture, &fixture.catalog(&[(Source::User, "acme")])), "acme 1 [user] usable");
}

#[test]
fn a_path_that_leaves_the_folder_is_refused() {
    let fixture = Fixture::new();
    let text = descriptor("acme", "1", "");
    let folder = fixture.runtime("acme", &text);
    let outside = fixture.folder("outside").join("lib.so");
    fs::copy(folder.join(LIBRARY), &outside).unwrap();
    symlink(&outside, folder.join("link.so")).unwrap();
    let mut seen = Vec::new();
    for path in ["../outside/lib.so", outside.to_str().unwrap(), "link.so", ""] {
        write_manifest(&folder, &text, |manifest| manifest.libraries[0].path = path.into());
        seen.push(states(&fixture, &fixture.catalog(&[(Source::User, "acme")])));
    }
    expect![[r#"
        acme 1 [user] the manifest's library path "../outside/lib.so" leaves its folder (runtime.path_escape)
        acme 1 [user] the manifest's library path "$DIR/outside/lib.so" leaves its folder (runtime.path_escape)
        acme 1 [user] the manifest's library path "link.so" leaves its folder (runtime.path_escape)
        acme 1 [user] the manifest's library path "" leaves its folder (runtime.path_escape)"#]].assert_eq(&seen.join("\n"));
}

#[test]
fn what_others_can_write_is_refused() {
    let text = [
        spoiled("", |folder| mode(&folder.join("runtime.json"), 0o664)),
        spoiled("", |folder| mode(&folder.join(LIBRARY), 0o757)),
        spoiled("", |folder| mode(folder, 0o777)),
    ]
    .join("\n");
    expect![[r#"
        acme [user] $DIR/acme/runtime.json can be written by its group (mode 0664) (runtime.untrusted)
        acme 1.2.3 [user] $DIR/acme/libfake.so can be written by every user (mode 0757) (runtime.untrusted)
        acme [user] $DIR/acme can be written by every user (mode 0777) (runtime.untrusted)"#]]
    .assert_eq(&text);
}

#[test]
fn one_bad_runtime_never_hides_the_others() {
    let fixture = Fixture::new();
    fixture.runtime("all/good", &descriptor("good", "1", ""));
    write(&fixture.folder("all/broken").join("runtime.json"), "{");
    fixture.runtime("all/zeta/2.0", &descriptor("zeta", "2.0", ""));
    fixture.folder("all/empty");
    expect![[r#"
        broken [user] $DIR/all/broken/runtime.json is not a manifest: EOF while parsing an object at line 1 column 1 (runtime.bad_manifest)
        good 1 [user] usable
        zeta 2.0 [user] usable"#]].assert_eq(&states(&fixture, &fixture.catalog(&[(Source::User, "all")])));
}

#[test]
fn of_two_with_one_id_the_first_sound_one_counts() {
    let fixture = Fixture::new();
    fixture.runtime("user/acme/1.9.0", &descriptor("acme", "1.9.0", ""));
    fixture.runtime("user/acme/1.10.0", &descriptor("acme", "1.10.0", ""));
    let bad = fixture.runtime("user/acme/2.0.0", &descriptor("acme", "2.0.0", ""));
    mode(&bad, 0o777);
    fixture.runtime("system/acme", &descriptor("acme", "3.0.0", ""));
    let catalog =
        fixture.catalog(&[(Source::User, "user"), (Source::System, "system"), (Source::Bundled, "user")]);
    expect![[r#"
        acme 1.10.0 [user] usable
        acme 1.9.0 [user] hidden by another acme that comes first: $DIR/user/acme/1.10.0/libfake.so (runtime.shadowed)
        acme/2.0.0 [user] $DIR/user/acme/2.0.0 can be written by every user (mode 0777) (runtime.untrusted)
        acme 3.0.0 [system] hidden by another acme that comes first: $DIR/user/acme/1.10.0/libfake.so (runtime.shadowed)"#]].assert_eq(&states(&fixture, &catalog));
}

#[test]
fn a_bare_library_is_described_by_its_section() {
    let fixture = Fixture::new();
    let library = fixture.folder("lib").join("libacme.so");
    compile(&library, &descriptor("acme", "1", ""));
    let catalog = fixture.catalog(&[(Source::Explicit, "lib/libacme.so")]);
    assert_eq!(states(&fixture, &catalog), "acme 1 [--runtime] usable");
    assert_eq!(catalog.entries()[0].manifest, None);
}

#[test]
fn a_library_named_by_path_is_held_to_the_manifest_beside_it() {
    let fixture = Fixture::new();
    let folder = fixture.runtime("acme", &descriptor("acme", "1", ""));
    write_manifest(&folder, &descriptor("acme", "2", ""), |_| {});
    let catalog = fixture.catalog(&[(Source::Explicit, "acme/libfake.so")]);
    assert!(states(&fixture, &catalog).ends_with("(runtime.descriptor_mismatch)"));
    let other = folder.join("libother.so");
    compile(&other, &descriptor("other", "1", ""));
    let catalog = fixture.catalog(&[(Source::Explicit, "acme/libother.so")]);
    assert_eq!(states(&fixture, &catalog), "other 1 [--runtime] usable");
}

#[test]
fn a_named_place_without_a_runtime_is_said_and_a_standard_one_is_not() {
    let fixture = Fixture::new();
    fixture.folder("empty");
    let roots = [(Source::Explicit, "gone.so"), (Source::Environment, "empty"), (Source::Added, "gone")];
    expect![[r#"
        gone [--runtime] nothing lies at $DIR/gone.so (runtime.missing)
        empty [SUPERFLUID_RUNTIMES] no runtime.json lies in $DIR/empty or up to two folders below (runtime.none_here)
        gone [SUPERFLUID_RUNTIMES_ADD] nothing lies at $DIR/gone (runtime.missing)"#]].assert_eq(&states(&fixture, &fixture.catalog(&roots)));
    let roots = [(Source::User, "gone"), (Source::System, "empty"), (Source::Bundled, "gone")];
    assert!(fixture.catalog(&roots).entries().is_empty());
}

/// Places of a search, as `source path`.
fn places(explicit: &[&str], env: &[(&str, &str)], elevated: bool) -> Vec<String> {
    let explicit: Vec<PathBuf> = explicit.iter().map(PathBuf::from).collect();
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
    let search = Search::new(&explicit, &env, Some(Path::new("/opt/sf/bin/superfluid")), elevated);
    search.roots.iter().map(|root| format!("{} {}", root.source, root.path.display())).collect()
}

const STANDARD: [&str; 3] = [
    "system /usr/local/lib/superfluid/runtimes",
    "system /usr/lib/superfluid/runtimes",
    "bundled /opt/sf/bin/runtimes",
];

#[test]
fn the_search_order_is_that_of_the_specification() {
    let home = ("HOME", "/home/u");
    let user = "user /home/u/.local/share/superfluid/runtimes";
    let check = |explicit: &[&str], env: &[(&str, &str)], front: &[&str], rest: &[&str]| {
        assert_eq!(places(explicit, env, false), [front, rest].concat(), "{env:?}");
    };
    check(&[], &[home], &[user], &STANDARD);
    check(&["/x/a.so"], &[home], &["--runtime /x/a.so", user], &STANDARD);
    check(&[], &[home, ("XDG_DATA_HOME", "/data")], &["user /data/superfluid/runtimes"], &STANDARD);
    check(&[], &[home, ("XDG_DATA_HOME", "data")], &[user], &STANDARD);
    check(&[], &[("SUPERFLUID_RUNTIMES", "")], &[], &STANDARD);
    let add = ("SUPERFLUID_RUNTIMES_ADD", "/b");
    check(&[], &[home, add], &["SUPERFLUID_RUNTIMES_ADD /b", user], &STANDARD);
    let both = ["SUPERFLUID_RUNTIMES /a", "SUPERFLUID_RUNTIMES /c", "SUPERFLUID_RUNTIMES_ADD /b"];
    check(&[], &[home, ("SUPERFLUID_RUNTIMES", "/a::/c"), add], &both, &[]);
}

#[test]
fn an_elevated_process_does_not_look_at_the_environment() {
    let env = [("SUPERFLUID_RUNTIMES", "/a"), ("SUPERFLUID_RUNTIMES_ADD", "/b"), ("HOME", "/home/u")];
    assert_eq!(places(&[], &env, true), STANDARD);
}

#[test]
fn the_working_directory_is_never_looked_at() {
    let mut search = Fixture::new().search(&[]);
    search.roots.push(sf_catalog::Root { source: Source::Environment, path: "relative/here".into() });
    let catalog = Catalog::discover(&search);
    expect!["SUPERFLUID_RUNTIMES holds the relative path relative/here; only absolute ones count (runtime.relative_path)"].assert_eq(&catalog.entries()[0].usable().unwrap_err().to_string());
}

#[test]
fn hashes_are_remembered_until_the_file_changes() {
    let fixture = Fixture::new();
    let folder = fixture.runtime("acme", &descriptor("acme", "1", ""));
    let mut search = fixture.search(&[(Source::User, "acme")]);
    search.cache_dir = Some(fixture.path("cache"));
    let usable = |search: &Search| Catalog::discover(search).entries()[0].usable().is_ok();
    assert!(usable(&search));

    let cache = fixture.path("cache/catalog.json");
    let text = fs::read_to_string(&cache).unwrap();
    let sha256 = Catalog::discover(&search).entries()[0].sha256.clone();
    write(&cache, &text.replace(&sha256, &"0".repeat(64)));
    assert!(!usable(&search), "the remembered hash is believed");

    let bytes = fs::read(folder.join(LIBRARY)).unwrap();
    fs::write(folder.join(LIBRARY), bytes).unwrap();
    assert!(usable(&search), "a file that was written is hashed again");
}

#[test]
fn a_damaged_or_foreign_cache_is_read_as_empty() {
    let fixture = Fixture::new();
    fixture.runtime("acme", &descriptor("acme", "1", ""));
    let mut search = fixture.search(&[(Source::User, "acme")]);
    search.cache_dir = Some(fixture.folder("cache"));
    let cache = fixture.path("cache/catalog.json");
    for text in ["", "{", "[]", r#"{"schema":99,"hashes":{},"probes":{}}"#] {
        write(&cache, text);
        assert!(Catalog::discover(&search).entries()[0].usable().is_ok(), "{text}");
        assert!(fs::read_to_string(&cache).unwrap().contains("libfake.so"), "written anew");
    }
    let text = fs::read_to_string(&cache).unwrap();
    let sha256 = Catalog::discover(&search).entries()[0].sha256.clone();
    write(&cache, &text.replace(&sha256, &"0".repeat(64)));
    mode(&cache, 0o666);
    assert!(
        Catalog::discover(&search).entries()[0].usable().is_ok(),
        "what others can write is not believed"
    );
    let unwritable = Search { cache_dir: Some("/proc/nowhere".into()), ..search };
    assert!(Catalog::discover(&unwritable).entries()[0].usable().is_ok());
}

#[test]
fn the_c_sample_is_a_sound_runtime() {
    let fixture = Fixture::new();
    let library = fixture.folder("sample").join(LIBRARY);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/runtimes/sample/sample_runtime.c");
    compile_code(&library, &fs::read_to_string(source).unwrap());
    let bare = fixture.catalog(&[(Source::Explicit, "sample/libfake.so")]);
    assert_eq!(states(&fixture, &bare), "sample 0.1.0 [--runtime] usable");
    write_manifest(&fixture.path("sample"), &bare.entries()[0].descriptor_bytes, |_| {});
    let catalog = fixture.catalog(&[(Source::Explicit, "sample")]);
    assert_eq!(states(&fixture, &catalog), "sample 0.1.0 [--runtime] usable");
}
