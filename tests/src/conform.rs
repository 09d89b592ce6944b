//! `runtimes verify` on one of our runtimes, as JSON.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary;

/// Runs every group quickly on a model and gives the groups; the runtime lies beside the binaries.
///
/// # Panics
/// When a check fails, or there is no report.
pub fn verified(runtime: &str, model: &Path) -> Vec<Value> {
    let folder = binary("superfluid").with_file_name("runtimes").join(runtime);
    let mut command = Command::new(binary("superfluid"));
    command.args(["runtimes", "verify"]).arg(folder).arg("--model").arg(model).args(["--quick", "--json"]);
    let output = command.output().expect("the command starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    let groups = report["groups"].as_array().expect("groups").clone();
    let checks = groups.iter().flat_map(|group| group["checks"].as_array().expect("checks"));
    let failed: Vec<&Value> = checks.filter(|check| check["verdict"] == "fail").collect();
    assert_eq!((failed.len(), output.status.code()), (0, Some(0)), "{failed:#?}");
    groups
}
