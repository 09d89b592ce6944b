//! Which runtime serves a model, and how a refusal reads.

mod common;

use common::{Fake, Fixture, GGUF, descriptor, mode, model};
use expect_test::{Expect, expect};
use sf_catalog::{Catalog, ModelKind, Requirement, Source};

/// Two that read GGUF, one that reads something else, one that cannot be used.
fn fixture() -> (Fixture, Catalog) {
    let fixture = Fixture::new();
    let better =
        GGUF.replace(r#""it stores KV as f32""#, r#"{"when":"flash attention is on","else":"f16 only"}"#);
    let more = format!(r#"{better},"aliases":["b"],"isolation":"worker""#);
    fixture.runtime("user/alpha", &descriptor("alpha", "1.0", GGUF));
    fixture.runtime("user/beta", &descriptor("beta", "2.0", &more));
    fixture.runtime("user/dirs", &descriptor("dirs", "1.0", r#""formats":[{"format":"safetensors-dir"}]"#));
    let broken = fixture.runtime("user/broken", &descriptor("broken", "1.0", GGUF));
    mode(&broken, 0o777);
    let catalog = fixture.catalog(&[(Source::User, "user")]);
    (fixture, catalog)
}

fn llama() -> ModelKind {
    model("gguf", Some(3), "llama", "Q4_K_M")
}

#[test]
fn the_first_usable_reader_serves_and_the_tie_is_explained() {
    let (_fixture, catalog) = fixture();
    let choice = catalog.choose(llama(), None, &[]).unwrap();
    assert_eq!(choice.entry.id(), "alpha");
    expect!["alpha serves m.gguf because it comes first (user); beta could too: choose with --runtime"]
        .assert_eq(&choice.notes.join("\n"));
    let choice = catalog.choose(model("safetensors-dir", None, "", ""), None, &[]).unwrap();
    assert_eq!((choice.entry.id(), choice.notes.len()), ("dirs", 0));
}

#[test]
fn the_runtime_asked_for_serves_by_id_alias_or_path() {
    let (_fixture, catalog) = fixture();
    let chosen = |name: &str| catalog.choose(llama(), Some(name), &[]).unwrap().entry.id().to_owned();
    assert_eq!(chosen("beta"), "beta");
    assert_eq!(chosen("b"), "beta");
    let fixture = Fixture::new();
    fixture.runtime("mine", &descriptor("alpha", "9.0", GGUF));
    fixture.runtime("user/alpha", &descriptor("alpha", "1.0", GGUF));
    let catalog = fixture.catalog(&[(Source::Explicit, "mine"), (Source::User, "user")]);
    for path in ["mine", "mine/runtime.json", "mine/libfake.so"] {
        let path = fixture.path(path);
        let choice = catalog.choose(llama(), Some(path.to_str().unwrap()), &[]).unwrap();
        assert_eq!(choice.entry.title(), "alpha 9.0");
    }
}

fn check(model: &ModelKind, wanted: Option<&str>, wants: &[Requirement], exit: u8, expect: &Expect) {
    let (fixture, catalog) = fixture();
    let refusal = catalog.choose(model.clone(), wanted, wants).expect_err("a refusal");
    expect.assert_eq(&fixture.normal(&refusal.to_string()));
    assert_eq!(refusal.exit_code(), exit);
}

#[test]
fn refusals_name_the_reason_and_a_way_out() {
    check(
        &llama(),
        Some("alpah"),
        &[],
        4,
        &expect![[r#"
        there is no runtime alpah here; did you mean alpha? (runtime.unknown)
          hint: known here: alpha, beta, broken, dirs; superfluid runtimes shows them"#]],
    );
    check(
        &llama(),
        Some("broken"),
        &[],
        4,
        &expect![[r#"
            runtime broken cannot be used: $DIR/user/broken can be written by every user (mode 0777) (runtime.untrusted)
              hint: chown it to yourself and chmod go-w $DIR/user/broken, if you trust what is in it"#]],
    );
    check(
        &llama(),
        Some("dirs"),
        &[],
        2,
        &expect![[r#"
        runtime dirs 1.0 does not read m.gguf (gguf v3, llama, Q4_K_M): reads safetensors-dir, not gguf (runtime.format)
          hint: these do: alpha, beta"#]],
    );
    check(
        &model("gguf", Some(1), "llama", ""),
        Some("alpha"),
        &[],
        2,
        &expect![[r#"
        runtime alpha 1.0 does not read m.gguf (gguf v1, llama): reads gguf version 2, 3, not 1 (runtime.format_version)
          hint: no other runtime here reads it either"#]],
    );
    check(
        &model("gguf", Some(3), "mamba", ""),
        None,
        &[],
        4,
        &expect![[r#"
            no runtime here reads m.gguf (gguf v3, mamba) (runtime.no_reader)
              alpha 1.0: does not know the architecture mamba; it knows llama, toy (runtime.architecture)
              beta 2.0: does not know the architecture mamba; it knows llama, toy (runtime.architecture)
              broken: $DIR/user/broken can be written by every user (mode 0777) (runtime.untrusted)
              dirs 1.0: reads safetensors-dir, not gguf (runtime.format)"#]],
    );
    check(
        &model("gguf", Some(3), "llama", "Q4_0"),
        None,
        &[],
        4,
        &expect![[r#"
            no runtime here reads m.gguf (gguf v3, llama, Q4_0) (runtime.no_reader)
              alpha 1.0: does not read the quantization Q4_0; it reads Q4_K, Q8_0, F16 (runtime.quantization)
              beta 2.0: does not read the quantization Q4_0; it reads Q4_K, Q8_0, F16 (runtime.quantization)
              broken: $DIR/user/broken can be written by every user (mode 0777) (runtime.untrusted)
              dirs 1.0: reads safetensors-dir, not gguf (runtime.format)"#]],
    );
}

#[test]
fn requirements_are_held_against_the_descriptor() {
    check(
        &llama(),
        None,
        &[Requirement::Chat, Requirement::KvBits(8)],
        2,
        &expect![[r#"
        --kv-bits 8 is not possible with runtime alpha 1.0: it stores KV as f32 (runtime.cannot)
          hint: beta can: --runtime beta"#]],
    );
    check(
        &llama(),
        Some("beta"),
        &[Requirement::InProcess],
        2,
        &expect![[r#"
        --no-worker-process is not possible with runtime beta 2.0: it asks for a process of its own (runtime.cannot)
          hint: alpha can: --runtime alpha"#]],
    );
    check(
        &llama(),
        Some("beta"),
        &[Requirement::Embedding],
        2,
        &expect![[r#"
            embedding is not possible with runtime beta 2.0: it has no vectors (runtime.cannot)
              hint: no other runtime here can; leave it out"#]],
    );
    check(
        &llama(),
        Some("alpha"),
        &[Requirement::Speculate("eagle".into())],
        2,
        &expect![[r#"
        --speculate eagle is not possible with runtime alpha 1.0: it does not say whether it can (its descriptor has no speculation.eagle) (runtime.cannot)
          hint: no other runtime here can; leave it out"#]],
    );
}

#[test]
fn a_condition_passes_with_a_note_and_an_unknown_hint_passes() {
    let (_fixture, catalog) = fixture();
    let choice = catalog.choose(llama(), Some("beta"), &[Requirement::KvBits(8)]).unwrap();
    expect!["--kv-bits 8 with runtime beta: only when flash attention is on"]
        .assert_eq(&choice.notes.join("\n"));
    let dirs = model("safetensors-dir", None, "", "");
    assert!(catalog.choose(dirs.clone(), None, &[Requirement::Fork]).is_ok());
    assert!(catalog.choose(dirs, None, &[Requirement::Grammar]).is_err());
}

#[test]
fn quantizations_match_by_stem_whatever_their_case() {
    let (_fixture, catalog) = fixture();
    let reads =
        |quantization: &str| catalog.choose(model("gguf", Some(3), "llama", quantization), None, &[]).is_ok();
    for (quantization, good) in [
        ("Q4_K", true),
        ("Q4_K_M", true),
        ("q8_0", true),
        ("", true),
        ("Q4_KX", false),
        ("Q4", false),
        ("BF16", false),
    ] {
        assert_eq!(reads(quantization), good, "{quantization}");
    }
}

#[test]
fn an_empty_catalog_says_so() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(&[]);
    expect![[r#"
        no runtime here reads m.gguf (gguf v3, llama, Q4_K_M) (runtime.no_reader)
          hint: no runtime is installed; superfluid runtimes shows where they are looked for"#]]
    .assert_eq(&catalog.choose(llama(), None, &[]).unwrap_err().to_string());
    expect![[r#"
        there is no runtime x here (runtime.unknown)
          hint: no runtime is installed; superfluid runtimes shows where they are looked for"#]]
    .assert_eq(&catalog.choose(llama(), Some("x"), &[]).unwrap_err().to_string());
}

#[test]
fn a_runtime_that_crashed_does_not_serve_and_the_next_one_does() {
    let (fixture, mut catalog) = fixture();
    assert_eq!(catalog.choose(llama(), None, &[]).unwrap().entry.id(), "alpha");
    catalog.probe_all(&Fake::fails("no answer within 5 s").only("alpha"), None);
    assert_eq!(catalog.choose(llama(), None, &[]).unwrap().entry.id(), "beta");
    let refusal = catalog.choose(llama(), Some("alpha"), &[]).unwrap_err();
    expect![[r#"
        runtime alpha 1.0 cannot be used: its probe failed: no answer within 5 s (runtime.probe_failed)
          hint: superfluid runtimes --probe asks again"#]]
    .assert_eq(&fixture.normal(&refusal.to_string()));
}

#[test]
fn a_real_artifact_is_chosen_for_by_its_header() {
    let fixture = Fixture::new();
    let path = fixture.path("tiny.gguf");
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    for text in ["general.architecture", "toy"] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        if text != "toy" {
            bytes.extend(8u32.to_le_bytes());
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let artifact = sf_artifact::open(&path).unwrap();
    let kind = ModelKind::from(&artifact);
    assert_eq!((kind.format.as_str(), kind.version, kind.architecture.as_str()), ("gguf", Some(3), "toy"));
    let (_other, catalog) = self::fixture();
    assert_eq!(catalog.choose(&artifact, None, &[]).unwrap().entry.id(), "alpha");
}
