//! The kit against runtimes of known quality: the sample passes, and each way of being bad is noticed where it shows.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use sf_verify::{Group, Overall, Verdict};
use support::{bad, failures, group, sample, toy_model, verified};

/// More than any group needs here, so that a loaded machine fails nothing.
const AMPLE: Duration = Duration::from_secs(120);
/// What a hanging runtime is given.
const BRIEF: Duration = Duration::from_millis(1500);

#[test]
fn the_sample_in_c_passes_every_check() {
    let dir = tempfile::tempdir().unwrap();
    let (library, model) = (sample(dir.path()), toy_model(dir.path()));
    let report = verified(&library, Some(&model), AMPLE);
    assert!(failures(&report).is_empty(), "{report}");
    assert_eq!(report.overall, Overall::Passed, "{report}");
    assert_eq!(report.exit_code(), 0);
    assert_eq!(report.runtime.as_deref(), Some("sample 0.1.0"));
    let embed = group(&report, Group::Embed);
    assert_eq!(embed.checks[1].verdict, Verdict::Skipped, "a hash has no vectors: {embed:?}");
    for name in Group::ALL.into_iter().filter(|name| *name != Group::Embed) {
        assert!(group(&report, name).checks.len() > 5, "{name:?} checked next to nothing: {report}");
    }
}

#[test]
fn without_a_model_the_report_is_incomplete_but_the_rest_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let report = verified(&sample(dir.path()), None, AMPLE);
    assert_eq!(report.overall, Overall::Incomplete, "{report}");
    for name in [Group::Options, Group::StepFuzz, Group::Semantics, Group::Embed] {
        let group = group(&report, name);
        assert_eq!(group.verdict, Verdict::Skipped);
        assert!(group.reason.as_deref().is_some_and(|reason| reason.contains("give --model")), "{group:?}");
    }
    assert!(group(&report, Group::Options).checks.iter().any(|check| check.name == "no-model-files"));
}

/// The mode is noticed by the check, in words that hold the text.
fn check(mode: &str, where_: Group, check: &str, words: &str) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (library, model) = (bad(dir.path(), mode), toy_model(dir.path()));
    let limit = if mode.starts_with("hang") { BRIEF } else { AMPLE };
    let report = verified(&library, Some(&model), limit);
    assert_eq!((report.overall, report.exit_code()), (Overall::Failed, 1), "{mode}: {report}");
    let failures = failures(&report);
    let hit = failures.iter().find(|(group, failed)| *group == where_ && failed.name == check);
    let (_, failed) = hit.unwrap_or_else(|| panic!("{mode} is not noticed by {where_:?}/{check}: {report}"));
    assert!(failed.words.contains(words), "{mode}: {:?} does not hold {words:?}", failed.words);
}

#[test]
fn the_bad_runtime_without_a_fault_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (library, model) = (bad(dir.path(), "none"), toy_model(dir.path()));
    let report = verified(&library, Some(&model), AMPLE);
    assert!(failures(&report).is_empty(), "{report}");
}

#[test]
fn a_bad_file_is_noticed_without_running_it() {
    check("extra_export", Group::Static, "one-export", "bad_extra_export");
    check("descriptor_not_json", Group::Static, "descriptor", "does not parse");
}

#[test]
fn a_bad_entry_or_table_is_noticed() {
    check("null_entry", Group::Negotiation, "foreign-versions", "NULL");
    check("wrong_major", Group::Negotiation, "runtime-table", "ABI 7.2");
    check("short_struct", Group::Negotiation, "runtime-table", "struct_size is 24");
    check("exit_before_hello", Group::Negotiation, "load", "exit code 3");
    check("descriptor_mismatch", Group::Negotiation, "descriptor-is-the-sections", "differs");
    check("no_engine", Group::Negotiation, "engine-table", "NULL");
    check("null_member", Group::Negotiation, "engine-table", "step_begin is NULL");
    check("crash_init", Group::Negotiation, "init", "SIGSEGV");
}

#[test]
fn a_bad_probe_is_noticed() {
    check("crash_probe", Group::Probe, "time", "SIGSEGV");
    check("probe_not_json", Group::Probe, "answer", "no probe answer");
}

#[test]
fn a_runtime_that_hangs_is_ended_and_the_check_named() {
    check("hang_init", Group::Negotiation, "init", "no end within");
    check("hang_probe", Group::Probe, "time", "no end within");
    check("hang_open", Group::Options, "no-model-files", "no end within");
    check("hang_step", Group::Semantics, "tokens-matter", "no end within");
}

#[test]
fn a_bad_open_is_noticed() {
    check("crash_open", Group::Options, "no-model-files", "SIGSEGV");
    check("exit_open", Group::Options, "no-model-files", "exit code 3");
    check("error_without_message", Group::Options, "no-model-files", "message is empty");
    check("long_message", Group::Options, "no-model-files", "message is no UTF-8");
    check("ignore_must", Group::Options, "unknown-options", "accepted");
    check("lying_effective", Group::Options, "standard-ctx-max", "effective says");
    check("writes_stdout", Group::Options, "stdout-silent", "the bad runtime was here");
}

#[test]
fn a_bad_step_is_noticed() {
    check("crash_step", Group::Semantics, "tokens-matter", "SIGSEGV");
    check("abort_step", Group::Semantics, "tokens-matter", "SIGABRT");
    check("exit_step", Group::StepFuzz, "control-lanes", "exit code 3");
    check("error_step", Group::Semantics, "repeatable", "asked to fail");
    check("fatal_step", Group::StepFuzz, "control-lanes", "E_FATAL");
    check("wrong_vocab", Group::Semantics, "masks", "vocab");
    check("wrong_lane_row", Group::Semantics, "rows-in-order", "lane");
    check("row_out_of_range", Group::Semantics, "masks", "logits_row");
    check("token_out_of_range", Group::Semantics, "masks", "carries token");
    check("nan_logits", Group::Semantics, "masks", "not finite");
    check("null_logits", Group::Semantics, "masks", "without logits");
    check("wrong_seq", Group::Semantics, "masks", "seq");
    check("wild_offset", Group::Semantics, "masks", "outside the used arena");
    check("missing_lane_out", Group::Semantics, "masks", "lanes for");
}

#[test]
fn a_step_that_means_something_else_is_noticed() {
    check("chunk_dependent", Group::Semantics, "chunks-are-the-whole", "chunks");
    check("batch_dependent", Group::Semantics, "ragged-is-alone", "ragged");
    check("fork_leak", Group::Semantics, "fork-is-isolated", "went its own way");
    check("truncate_lie", Group::Semantics, "truncate-and-refeed", "cut to a prefix");
    check("position_blind", Group::Semantics, "tokens-matter", "leaves the row");
    check("neighbour_damage", Group::StepFuzz, "position-ahead", "afterwards");
}
