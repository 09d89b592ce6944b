//! `superfluid models`: what lies in directories and in the hub's cache, who serves it, and how its text is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use serde_json::Value;
use sf_tests::{Toy, ToyModel, binary, build_sample, toy_model};

/// A catalog with the sample runtime, and a directory of models of all sorts.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for name in ["runtimes", "models", "hub/models--org--toy/snapshots/1"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        build_sample(&dir.path().join("runtimes"));
        Place { dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn toy(&self, folder: &str, name: &str, change: impl FnOnce(&mut ToyModel)) {
        let mut model = ToyModel { name: name.into(), ..ToyModel::default() };
        change(&mut model);
        toy_model(&self.path(folder), &model);
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(binary("superfluid"))
            .arg("models")
            .args(args)
            .env("SUPERFLUID_RUNTIMES", self.path("runtimes"))
            .env("SUPERFLUID_MODELS", self.path("models"))
            .env("HF_HUB_CACHE", self.path("hub"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .output()
            .unwrap()
    }

    /// What it prints, with the place's own path taken out.
    fn says(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert_eq!(stderr, "", "no progress where nobody watches");
        String::from_utf8(output.stdout).unwrap().replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

/// All kinds of models, sound, broken, foreign and none.
fn filled() -> Place {
    let place = Place::new();
    place.toy("models", "sound", |_| {});
    place.toy("models", "base", |model| model.chat_template = None);
    place.toy("models", "foreign", |model| model.architecture = "llama".into());
    place.toy("models", "double", |model| {
        model.chat_template =
            model.chat_template.take().map(|template| format!("{{{{ bos_token ~ bos_token }}}}{template}"));
    });
    fs::write(place.path("models/cut.gguf"), &fs::read(place.path("models/sound.gguf")).unwrap()[..200])
        .unwrap();
    fs::write(place.path("models/notes.txt"), "not a model").unwrap();
    symlink(".", place.path("models/loop")).unwrap();
    place.toy("hub", "blob", |_| {});
    fs::rename(place.path("hub/blob.gguf"), place.path("hub/5f3a")).unwrap();
    symlink("../../../5f3a", place.path("hub/models--org--toy/snapshots/1/toy.gguf")).unwrap();
    place
}

#[expect(clippy::needless_pass_by_value, reason = "an Expect is made for one comparison")]
fn snapshot(text: &str, expect: Expect) {
    expect.assert_eq(text);
}

#[test]
fn the_table_shows_every_model_and_what_is_wrong_with_it() {
    snapshot(
        &filled().says(&[], 0),
        expect![[r#"
        DIR/models (model directory)
        MODEL    FORMAT   ARCHITECTURE  PARAMETERS  SIZE     QUANTIZATION  CONTEXT  RUNTIME  SELF-TEST
        base     gguf v3  toy           8           4.2 KiB  F32           1024     sample   passed
            DIR/models/base.gguf
            text: raw (the model has no template); BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>
        cut      -        -             -           -        -             -        -        unreadable
            DIR/models/cut.gguf
            unreadable: key count 15 at byte 16, at most 12 are possible here
              hint: the file is damaged or was written by a faulty converter; fetch or convert it again
        double   gguf v3  toy           8           4.5 KiB  F32           1024     sample   1 failed
            DIR/models/double.gguf
            text: model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>
            failed: template.bos of one message of a user: expected one BOS at most, found 2; answers get worse: the model was
                    trained with one BOS
              hint: pass a corrected template with --chat-template FILE
        foreign  gguf v3  llama         8           4.5 KiB  F32           -        none     passed
            DIR/models/foreign.gguf
            no runtime: sample 0.1.0: does not know the architecture llama; it knows toy
            text: model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>
        sound    gguf v3  toy           8           4.5 KiB  F32           1024     sample   passed
            DIR/models/sound.gguf
            text: model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>

        DIR/hub (hub cache)
        MODEL  FORMAT   ARCHITECTURE  PARAMETERS  SIZE     QUANTIZATION  CONTEXT  RUNTIME  SELF-TEST
        toy    gguf v3  toy           8           4.5 KiB  F32           1024     sample   passed
            DIR/hub/models--org--toy/snapshots/1/toy.gguf
            text: model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>
    "#]],
    );
}

#[test]
fn the_json_has_the_same_for_scripts() {
    let place = filled();
    let report: Value = serde_json::from_str(&place.says(&["--json"], 0)).unwrap();
    assert_eq!(report["schema"], 1);
    let models = report["models"].as_array().unwrap();
    let ids: Vec<&str> = models.iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["base", "cut", "double", "foreign", "sound", "toy"], "sorted, by place");
    let by = |id: &str| models.iter().find(|model| model["id"] == id).unwrap();
    snapshot(
        &serde_json::to_string_pretty(by("double")).unwrap(),
        expect![[r#"
        {
          "place": 0,
          "id": "double",
          "repository": null,
          "path": "DIR/models/double.gguf",
          "error": null,
          "format": "gguf",
          "format_version": 3,
          "name": "double",
          "architecture": "toy",
          "parameters": 8,
          "files": 1,
          "bytes": 4640,
          "quantization": "F32",
          "context": 1024,
          "runtime": "sample",
          "runtimes": [
            {
              "id": "sample",
              "version": "0.1.0",
              "reads": true,
              "reason": null
            }
          ],
          "text": "model's template; BPE gpt-2, 264 tokens, no BOS, ends at <|endoftext|> <|im_end|>",
          "text_error": null,
          "self_test": {
            "passed": false,
            "checks_passed": 12,
            "checks_skipped": 2,
            "failures": [
              {
                "check": "template.bos",
                "input": "one message of a user",
                "expected": "one BOS at most",
                "found": "2",
                "consequence": "answers get worse: the model was trained with one BOS",
                "hint": "pass a corrected template with --chat-template FILE"
              }
            ]
          }
        }"#]],
    );
    assert_eq!(by("sound")["self_test"]["passed"], true, "{}", by("sound"));
    assert_eq!(by("toy")["repository"], "org/toy");
    assert_eq!(by("foreign")["runtime"], Value::Null);
    assert!(by("foreign")["runtimes"][0]["reason"]["message"].as_str().unwrap().contains("llama"));
    assert!(by("cut")["error"]["code"].as_str().unwrap().starts_with("model."), "{}", by("cut"));
    assert_eq!(place.says(&["--json"], 0), place.says(&["--json"], 0), "the same again");
}

#[test]
fn a_check_fails_for_what_is_broken_and_a_path_is_looked_at_alone() {
    let place = filled();
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    place.says(&["--check"], 1);
    place.says(&["--check", &path("models/sound.gguf")], 0);
    place.says(&["--check", &path("models/double.gguf")], 1);
    place.says(&["--check", &path("models/cut.gguf")], 1);
    let alone = place.says(&[&path("models/sound.gguf")], 0);
    assert!(alone.contains("sound") && !alone.contains("toy.gguf"), "{alone}");
    let both = place.says(&["--model-dir", &path("hub")], 0);
    assert_eq!(both.matches("toy.gguf").count(), 1, "found twice, listed once: {both}");
    let gone = place.says(&[&path("nowhere"), "--check"], 1);
    assert!(gone.contains("unreadable"), "{gone}");
}

#[test]
fn where_nothing_is_it_says_where_it_looked() {
    let place = Place::new();
    snapshot(
        &place.says(&[], 0),
        expect![[r#"
        no models; looked in: DIR/models, DIR/hub
    "#]],
    );
    assert!(Path::new(&place.path("models")).exists());
}

#[test]
fn engine_a_server_tells_how_the_self_test_went_and_serves_all_the_same() {
    let sound = Toy::default().serve(&[]);
    assert_eq!(sound.get("/v1/models").body["data"][0]["self_test"], "passed");
    assert_eq!(sound.metric("superfluid_model_selftest_failures"), 0.0);
    assert!(sound.log().contains("self-test: passed"), "{}", sound.log());

    let template = format!("{{{{ bos_token ~ bos_token }}}}{}", ToyModel::default().chat_template.unwrap());
    let broken = Toy::new(&ToyModel { chat_template: Some(template), ..ToyModel::default() }).serve(&[]);
    assert_eq!(broken.get("/v1/models").body["data"][0]["self_test"], "failed: template.bos");
    let metrics = broken.get_text("/metrics");
    assert!(metrics.contains("superfluid_model_selftest_failures{model=\"toy\"} 1"), "{metrics}");
    let log = broken.log();
    let warning =
        log.lines().find(|line| line.contains("WARN")).unwrap_or_else(|| panic!("no warning in {log}"));
    for part in [
        "toy",
        "template.bos",
        "one message of a user",
        "one BOS at most",
        "answers get worse",
        "--chat-template FILE",
    ] {
        assert!(warning.contains(part), "no {part:?} in {warning}");
    }
    let body = serde_json::json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4});
    assert_eq!(broken.post("/v1/chat/completions", &body).status, 200, "it serves");
}
