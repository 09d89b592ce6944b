//! The outside of a verification: which groups run on what, and what their processes' ends mean.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sf_abi::descriptor::Descriptor;
use sf_abi::{SFR_ABI_MAJOR, SFR_ABI_MINOR};

use crate::child::Subject;
use crate::image::{Image, descriptor_text};
use crate::journal::Broken;
use crate::process::{self, Ran};
use crate::report::{CheckReport, Group, GroupReport, REPORT_VERSION, Report, Verdict};
use crate::scratch::Scratch;
use crate::target::{Target, sha256_hex};

/// What to verify with.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// A model that the runtime reads; the smaller the better. Without one, what steps mean is not checked.
    pub model: Option<PathBuf>,
    /// Fewer repetitions, and a missing model is no failure.
    pub quick: bool,
    /// Options for every open as key and value, e.g. `("threads", "4")`; set with MUST.
    pub options: Vec<(String, String)>,
    /// Time limit of each group instead of its own.
    pub time_limit: Option<Duration>,
}

/// Verifies a runtime: `path` is a library, a folder with `runtime.json`, or a `runtime.json`.
///
/// Each group runs as `worker_exe verify-group ...` in a process of its own, which may crash or hang; see
/// [`group_main`](crate::group_main). Never fails itself: what goes wrong is in the report.
pub fn verify(worker_exe: &Path, path: &Path, options: VerifyOptions) -> Report {
    let began = Instant::now();
    let found = Target::find(path);
    let library = found.as_ref().map_or_else(|_| path.to_owned(), |target| target.library.clone());
    let bytes =
        found.as_ref().ok().and_then(|target| std::fs::read(&target.library).ok()).unwrap_or_default();
    let descriptor = read_descriptor(&bytes);
    let groups = match &found {
        Ok(target) => run_groups(worker_exe, target, &options, descriptor.as_ref()),
        Err(broken) => vec![unfound(broken)],
    };
    Report {
        report_version: REPORT_VERSION,
        library: library.display().to_string(),
        library_sha256: if bytes.is_empty() { String::new() } else { sha256_hex(&bytes) },
        runtime: descriptor.map(|it| format!("{} {}", it.id, it.version)),
        abi: [SFR_ABI_MAJOR, SFR_ABI_MINOR],
        host_version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        model: options.model.map(|model| model.display().to_string()),
        quick: options.quick,
        overall: Report::judge(&groups),
        milliseconds: millis(began.elapsed()),
        groups,
    }
}

fn read_descriptor(library: &[u8]) -> Option<Descriptor> {
    let image = Image::parse(library).ok()?;
    serde_json::from_str(descriptor_text(&image).ok()?).ok()
}

fn unfound(broken: &Broken) -> GroupReport {
    let check = CheckReport {
        name: "found".to_owned(),
        verdict: Verdict::Fail,
        words: broken.to_string(),
        milliseconds: 0,
    };
    GroupReport {
        name: Group::Static,
        verdict: Verdict::Fail,
        reason: None,
        milliseconds: 0,
        checks: vec![check],
    }
}

fn run_groups(
    exe: &Path,
    target: &Target,
    options: &VerifyOptions,
    descriptor: Option<&Descriptor>,
) -> Vec<GroupReport> {
    // Groups run in `/`, and the ABI wants absolute paths. A model that is not there is the runtime's to refuse.
    let model =
        options.model.as_ref().map(|model| std::path::absolute(model).unwrap_or_else(|_| model.clone()));
    let declared: Vec<_> = descriptor.map(|it| it.env.clone().into_iter().collect()).unwrap_or_default();
    Group::ALL
        .into_iter()
        .map(|group| {
            if model.is_none() && matches!(group, Group::StepFuzz | Group::Semantics | Group::Embed) {
                return skipped(group);
            }
            let subject = Subject {
                group,
                library: target.library.clone(),
                manifest: target.manifest.clone(),
                model: model.clone(),
                quick: options.quick,
                options: options.options.clone(),
            };
            let limit = options.time_limit.unwrap_or_else(|| limit_of(group));
            let scratch = Scratch::new();
            let mut env = declared.clone();
            if let Ok(Scratch { path }) = &scratch {
                env.push(("TMPDIR".to_owned(), path.display().to_string()));
            }
            judge(group, process::run(exe, &subject.args(), &env, limit), model.is_some())
        })
        .collect()
}

/// Long enough for a small model on one slow core; a runtime that needs more is better tried with a smaller model.
fn limit_of(group: Group) -> Duration {
    Duration::from_secs(match group {
        Group::Static | Group::Negotiation | Group::Probe => 60,
        Group::Options | Group::StepFuzz | Group::Semantics | Group::Embed => 600,
    })
}

fn skipped(group: Group) -> GroupReport {
    GroupReport {
        name: group,
        verdict: Verdict::Skipped,
        reason: Some("give --model".to_owned()),
        milliseconds: 0,
        checks: Vec::new(),
    }
}

fn judge(group: Group, ran: Ran, with_model: bool) -> GroupReport {
    let Ran { mut checks, running, trouble, took } = ran;
    if let Some(trouble) = trouble {
        let name = running.unwrap_or_else(|| "process".to_owned());
        checks.push(CheckReport { name, verdict: Verdict::Fail, words: trouble, milliseconds: 0 });
    }
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    let partly = group == Group::Options && !with_model;
    let (verdict, reason) = match (failed, partly) {
        (true, _) => (Verdict::Fail, None),
        (false, true) => (Verdict::Skipped, Some("in part: give --model".to_owned())),
        (false, false) => (Verdict::Pass, None),
    };
    GroupReport { name: group, verdict, reason, milliseconds: millis(took), checks }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// System, release, architecture, processor and cores, e.g. `linux 6.1.0 x86_64, Some CPU, 8 cores`.
fn machine() -> String {
    let name = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = model.map_or("unknown processor", |(_, cpu)| cpu.trim());
    let release = name.release().to_string_lossy();
    format!("{} {release} {}, {cpu}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(verdicts: &[Verdict], running: Option<&str>, trouble: Option<&str>) -> Ran {
        let check = |verdict: &Verdict| CheckReport {
            name: "c".into(),
            verdict: *verdict,
            words: String::new(),
            milliseconds: 0,
        };
        Ran {
            checks: verdicts.iter().map(check).collect(),
            running: running.map(str::to_owned),
            trouble: trouble.map(str::to_owned),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_death_is_a_failed_check_under_the_name_of_the_one_that_ran() {
        let report =
            judge(Group::Probe, ran(&[Verdict::Pass], Some("json"), Some("killed by SIGSEGV")), true);
        assert_eq!(report.verdict, Verdict::Fail);
        let last = report.checks.last().unwrap();
        assert_eq!((last.name.as_str(), last.words.as_str()), ("json", "killed by SIGSEGV"));
    }

    #[test]
    fn a_check_that_does_not_apply_fails_nothing_but_a_missing_model_is_told() {
        let check = |group: Group, with_model: bool, verdict: Verdict| {
            let report = judge(group, ran(&[Verdict::Pass, Verdict::Skipped], None, None), with_model);
            assert_eq!(report.verdict, verdict, "{group:?} {with_model}");
        };
        check(Group::Semantics, true, Verdict::Pass);
        check(Group::Options, true, Verdict::Pass);
        check(Group::Options, false, Verdict::Skipped);
        check(Group::Probe, false, Verdict::Pass);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_in_the_report() {
        let report = verify(Path::new("/none"), Path::new("/no/such/library.so"), VerifyOptions::default());
        assert_eq!(report.exit_code(), 1);
        assert!(report.to_string().contains("/no/such/library.so"), "{report}");
    }
}
