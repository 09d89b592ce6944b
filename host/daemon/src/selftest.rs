//! Tells the operator and `/metrics` how a model's self-test went.

use sf_codec::SelfTest;

const FAILURES: &str = "superfluid_model_selftest_failures";

/// A warning for each failure, and the number of them as a gauge.
pub(crate) fn tell(model: &str, report: &SelfTest) {
    for (check, finding) in report.failures() {
        tracing::warn!(
            model,
            check = check.name(),
            input = finding.input,
            expected = finding.expected,
            found = finding.found,
            hint = check.hint(),
            "a self-test fails: {}",
            check.consequence()
        );
    }
    metrics::describe_gauge!(FAILURES, "Checks of tokenizer, template and wire that the model fails.");
    metrics::gauge!(FAILURES, "model" => model.to_owned()).set(report.failures().count() as f64);
}
