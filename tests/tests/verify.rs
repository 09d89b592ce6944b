//! `superfluid runtimes verify` as a runtime's author meets it: the real server, the real worker.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use sf_tests::{ToyModel, binary, build_bad, build_sample, real_model, toy_model};

fn verify(path: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(binary("superfluid"));
    command.args(["runtimes", "verify"]).arg(path).args(more);
    command.output().expect("superfluid starts")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// `group/check: words` of everything that failed.
fn failures(report: &Value) -> Vec<String> {
    let mut failures = Vec::new();
    for group in report["groups"].as_array().into_iter().flatten() {
        for check in
            group["checks"].as_array().into_iter().flatten().filter(|check| check["verdict"] == "fail")
        {
            failures.push(format!("{}/{}: {}", group["name"], check["name"], check["words"]));
        }
    }
    failures
}

#[test]
fn the_sample_beside_its_manifest_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, model) = (build_sample(dir.path()), toy_model(dir.path(), &ToyModel::default()));
    let output = verify(&folder, &["--model", model.to_str().unwrap(), "--quick", "--json"]);
    let report = report(&output);
    assert_eq!(failures(&report), [""; 0]);
    assert_eq!((output.status.code(), report["overall"].as_str()), (Some(0), Some("passed")));
    assert_eq!(report["report_version"], 1);
    assert_eq!(report["library_sha256"].as_str().map(str::len), Some(64));
    let checks = report["groups"][0]["checks"].as_array().unwrap();
    let manifest = checks.iter().find(|check| check["name"] == "manifest").unwrap();
    assert_eq!(manifest["verdict"], "pass", "the manifest was there and must have been compared: {manifest}");
}

#[test]
fn without_a_model_it_says_what_was_not_checked() {
    let dir = tempfile::tempdir().unwrap();
    let folder = build_sample(dir.path());
    let check = |more: &[&str], code: i32| {
        let output = verify(&folder, more);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {text}");
        assert!(text.contains("give --model"), "{more:?}: {text}");
    };
    check(&[], 1);
    check(&["--quick"], 0);
}

#[test]
fn a_bad_runtime_fails_where_it_is_bad_and_the_rest_is_still_checked() {
    let check = |mode: &str, failure: &str| {
        let dir = tempfile::tempdir().unwrap();
        let (folder, model) = (build_bad(dir.path(), mode), toy_model(dir.path(), &ToyModel::default()));
        let output = verify(&folder, &["--model", model.to_str().unwrap(), "--quick", "--json"]);
        let report = report(&output);
        assert_eq!(output.status.code(), Some(1), "{mode}: {report}");
        let failures = failures(&report);
        assert!(
            failures.iter().any(|found| found.contains(failure)),
            "{mode}: {failure} not in {failures:#?}"
        );
        assert_eq!(
            report["groups"].as_array().map(Vec::len),
            Some(7),
            "{mode}: one group must not hide the others"
        );
    };
    check("extra_export", "bad_extra_export");
    check("descriptor_mismatch", "descriptor-is-the-sections");
    check("exit_before_hello", "exit code 3");
    check("crash_probe", "SIGSEGV");
    check("lying_effective", "effective says");
    check("crash_step", "SIGSEGV");
    check("batch_dependent", "ragged-is-alone");
    check("neighbour_damage", "afterwards");
}

#[test]
fn a_library_that_was_changed_after_its_manifest_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = build_sample(dir.path());
    let manifest = folder.join("runtime.json");
    let library = serde_json::from_slice::<Value>(&std::fs::read(&manifest).unwrap()).unwrap();
    let library = folder.join(library["libraries"][0]["path"].as_str().unwrap());
    let mut bytes = std::fs::read(&library).unwrap();
    bytes.push(0);
    std::fs::write(&library, bytes).unwrap();
    let report = report(&verify(&folder, &["--quick", "--json"]));
    let failures = failures(&report);
    assert!(failures.iter().any(|found| found.contains("\"static\"/\"manifest\"")), "{failures:#?}");
}

#[test]
fn llamacpp_passes_with_a_real_model() {
    let folder = binary("superfluid").with_file_name("runtimes").join("llamacpp");
    let model = real_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    let output = verify(&folder, &["--model", model.to_str().unwrap(), "--quick", "--json"]);
    let report = report(&output);
    assert_eq!(failures(&report), [""; 0]);
    assert_eq!(output.status.code(), Some(0));
}
