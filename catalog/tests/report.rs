//! How the catalog is shown: table, list, JSON.

mod common;

use common::{Fake, Fixture, GGUF, descriptor, mode, model};
use expect_test::expect;
use sf_catalog::{Catalog, Source, Style, catalog_table, model_table};

const WIDE: Style = Style { width: 120, colour: false };
const NARROW: Style = Style { width: 50, colour: false };

fn fixture() -> (Fixture, Catalog) {
    let fixture = Fixture::new();
    fixture.runtime("user/alpha", &descriptor("alpha", "1.0", GGUF));
    fixture.runtime("user/dirs", &descriptor("dirs", "0.2.1", r#""formats":[{"format":"safetensors-dir"}]"#));
    let broken = fixture.runtime("user/broken", &descriptor("broken", "1.0", GGUF));
    mode(&broken, 0o777);
    let mut catalog = fixture.catalog(&[(Source::User, "user")]);
    catalog.probe_all(&Fake::answers(r#"{"available":true,"devices":[{"id":"cpu:0"}]}"#), None);
    (fixture, catalog)
}

#[test]
fn a_wide_terminal_gets_a_table() {
    let (fixture, catalog) = fixture();
    expect![[r#"
        ID      VERSION  SOURCE  READS            DEVICES  CAN                     STATE
        alpha   1.0      user    gguf v2/3        cpu:0    chat, completion, fork  usable
        broken  ?        user    -                -        -                       not usable
            $DIR/user/broken can be written by every user (mode 0777) (runtime.untrusted)
            found through $DIR/user
            hint: chown it to yourself and chmod go-w $DIR/user/broken, if you trust what is in it
        dirs    0.2.1    user    safetensors-dir  cpu:0    -                       usable"#]]
    .assert_eq(&fixture.normal(&catalog_table(&catalog, WIDE)));
}

#[test]
fn a_narrow_terminal_gets_a_list() {
    let (fixture, catalog) = fixture();
    let text = catalog_table(&catalog, NARROW);
    for line in text.lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 50, "{line}");
    }
    let alpha = text.split("broken").next().unwrap();
    expect![[r#"
        alpha 1.0  usable
          from     user
          reads    gguf v2/3
          devices  cpu:0
          can      chat, completion, fork"#]]
    .assert_eq(&fixture.normal(alpha));
}

#[test]
fn a_model_is_told_who_reads_it() {
    let (fixture, catalog) = fixture();
    let text = model_table(&catalog, model("gguf", Some(3), "llama", "Q8_0"), WIDE);
    expect![[r#"
        m.gguf (gguf v3, llama, Q8_0)
          alpha 1.0  serves it
          broken  no
            $DIR/user/broken can be written by every user (mode 0777) (runtime.untrusted)
          dirs 0.2.1  no
            reads safetensors-dir, not gguf (runtime.format)"#]]
    .assert_eq(&fixture.normal(&text));
    let text = model_table(&catalog, model("base", None, "llama", ""), WIDE);
    assert!(text.ends_with("no runtime here serves it\n"), "{text}");
}

#[test]
fn colours_are_only_used_when_understood() {
    let (_fixture, catalog) = fixture();
    assert!(!catalog_table(&catalog, WIDE).contains('\x1b'));
    assert!(catalog_table(&catalog, Style { colour: true, ..WIDE }).contains("\x1b[32musable\x1b[0m"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot")]
fn the_json_of_a_catalog_is_stable() {
    let (fixture, catalog) = fixture();
    let mut report = serde_json::to_value(catalog.report()).unwrap();
    let rows = report["runtimes"].as_array_mut().unwrap();
    rows.truncate(2);
    let text = serde_json::to_string_pretty(&report).unwrap();
    expect![[r#"
        {
          "schema": 1,
          "runtimes": [
            {
              "id": "alpha",
              "aliases": [],
              "version": "1.0",
              "about": "made for a test",
              "source": "user",
              "origin": "$DIR/user",
              "manifest": "$DIR/user/alpha/runtime.json",
              "library": "$DIR/user/alpha/libfake.so",
              "sha256": "<sha256>",
              "abi": [
                0,
                2
              ],
              "isolation": "any",
              "formats": [
                {
                  "format": "gguf",
                  "versions": [
                    2,
                    3
                  ],
                  "architectures": [
                    "llama",
                    "toy"
                  ],
                  "quantizations": [
                    "Q4_K",
                    "Q8_0",
                    "F16"
                  ],
                  "magic": null,
                  "extension": null
                }
              ],
              "interfaces": [],
              "capabilities": {
                "kv": {
                  "bits": "it stores KV as f32",
                  "fork": true
                },
                "workload": {
                  "chat": true,
                  "completion": true,
                  "embedding": "it has no vectors"
                }
              },
              "options": [],
              "probed": true,
              "devices": [
                {
                  "id": "cpu:0",
                  "name": "",
                  "backend": "",
                  "memory_total": 0
                }
              ],
              "usable": true,
              "reason": null
            },
            {
              "id": "broken",
              "aliases": [],
              "version": "?",
              "about": "",
              "source": "user",
              "origin": "$DIR/user",
              "manifest": "$DIR/user/broken/runtime.json",
              "library": "",
              "sha256": "",
              "abi": [
                0,
                0
              ],
              "isolation": "any",
              "formats": [],
              "interfaces": [],
              "capabilities": {},
              "options": [],
              "probed": false,
              "devices": [],
              "usable": false,
              "reason": {
                "code": "runtime.untrusted",
                "message": "$DIR/user/broken can be written by every user (mode 0777)",
                "hint": "chown it to yourself and chmod go-w $DIR/user/broken, if you trust what is in it"
              }
            }
          ]
        }"#]]
    .assert_eq(&fixture.normal(&text));
}

#[test]
fn the_json_of_a_model_is_stable() {
    let (fixture, catalog) = fixture();
    let report = catalog.model_report(model("gguf", Some(3), "llama", "Q8_0"));
    let text = serde_json::to_string_pretty(&report).unwrap();
    let text = fixture.normal(&text);
    expect![[r#"
        {
          "schema": 1,
          "model": "m.gguf",
          "format": "gguf",
          "format_version": 3,
          "architecture": "llama",
          "quantization": "Q8_0",
          "chosen": "alpha",
          "runtimes": [
            {
              "id": "alpha",
              "version": "1.0",
              "reads": true,
              "reason": null
            },
            {
              "id": "broken",
              "version": "?",
              "reads": false,
              "reason": {
                "code": "runtime.untrusted",
                "message": "$DIR/user/broken can be written by every user (mode 0777)",
                "hint": "chown it to yourself and chmod go-w $DIR/user/broken, if you trust what is in it"
              }
            },
            {
              "id": "dirs",
              "version": "0.2.1",
              "reads": false,
              "reason": {
                "code": "runtime.format",
                "message": "reads safetensors-dir, not gguf",
                "hint": null
              }
            }
          ]
        }"#]]
    .assert_eq(&text);
}

#[test]
fn an_empty_catalog_has_a_line() {
    assert_eq!(catalog_table(&Fixture::new().catalog(&[]), WIDE), "no runtime is installed\n");
}
