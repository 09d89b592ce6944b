//! What a verification found: the report, its JSON (stable, versioned) and its face for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of the report's JSON. Fields are only added within one version.
pub const REPORT_VERSION: u32 = 1;

/// A family of checks that shares one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The file itself; nothing of it is executed.
    Static,
    /// Entry, versions, tables, interfaces.
    Negotiation,
    /// Probe at depth 0.
    Probe,
    /// Opening: options, files, sizes.
    Options,
    /// Hostile plans.
    StepFuzz,
    /// What a step means.
    Semantics,
    /// Vectors of texts.
    Embed,
}

impl Group {
    /// All groups in the order they run.
    pub const ALL: [Group; 7] = [
        Group::Static,
        Group::Negotiation,
        Group::Probe,
        Group::Options,
        Group::StepFuzz,
        Group::Semantics,
        Group::Embed,
    ];

    /// Its name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Group::Static => "static",
            Group::Negotiation => "negotiation",
            Group::Probe => "probe",
            Group::Options => "options",
            Group::StepFuzz => "step-fuzz",
            Group::Semantics => "semantics",
            Group::Embed => "embed",
        }
    }

    /// The group of that name.
    pub fn by_name(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// How a check or a group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The rule holds.
    Pass,
    /// The rule is broken.
    Fail,
    /// Not checked; the words say why.
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Skipped => "skipped",
        })
    }
}

/// One rule and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Stable kebab-case name.
    pub name: String,
    /// The outcome.
    pub verdict: Verdict,
    /// What was measured, what broke, or why it was skipped. One line.
    pub words: String,
    /// Time it took.
    pub milliseconds: u64,
}

/// One group and its checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub name: Group,
    /// `Skipped` also when part of it could not run for want of a model.
    pub verdict: Verdict,
    /// Why it was skipped.
    pub reason: Option<String>,
    /// Time of its process, start included.
    pub milliseconds: u64,
    /// In the order they ran.
    pub checks: Vec<CheckReport>,
}

/// The outcome of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overall {
    /// Every rule was checked and holds.
    Passed,
    /// At least one rule is broken.
    Failed,
    /// Nothing broke, but a model is needed to check the rest.
    Incomplete,
}

/// The certificate: what was checked on which file, where, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// The library's path.
    pub library: String,
    /// SHA-256 of the library, lower-case hex; empty when it could not be read.
    pub library_sha256: String,
    /// The runtime's id and version by its descriptor, e.g. `acme 1.2.0`.
    pub runtime: Option<String>,
    /// ABI major and minor of the host.
    pub abi: [u32; 2],
    /// The host's version.
    pub host_version: String,
    /// System, architecture and processor.
    pub machine: String,
    /// The model's path.
    pub model: Option<String>,
    /// Fewer repetitions, and a missing model is no failure.
    pub quick: bool,
    /// The outcome.
    pub overall: Overall,
    /// Time of all groups.
    pub milliseconds: u64,
    /// In the order they ran.
    pub groups: Vec<GroupReport>,
}

impl Report {
    /// 0 when every required check passed; 1 otherwise. Without a model the semantics are not checked, which is 1
    /// too unless the user asked for `--quick`.
    pub fn exit_code(&self) -> i32 {
        match self.overall {
            Overall::Passed => 0,
            Overall::Incomplete if self.quick => 0,
            Overall::Incomplete | Overall::Failed => 1,
        }
    }

    /// The outcome that follows from the groups.
    pub(crate) fn judge(groups: &[GroupReport]) -> Overall {
        if groups.iter().any(|group| group.verdict == Verdict::Fail) {
            Overall::Failed
        } else if groups.iter().any(|group| group.verdict == Verdict::Skipped) {
            Overall::Incomplete
        } else {
            Overall::Passed
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.as_deref().unwrap_or("unknown runtime");
        writeln!(f, "{runtime}  {}", self.library)?;
        writeln!(f, "sha256   {}", self.library_sha256)?;
        let [major, minor] = self.abi;
        writeln!(f, "host     superfluid {}, ABI {major}.{minor}, {}", self.host_version, self.machine)?;
        writeln!(f, "model    {}", self.model.as_deref().unwrap_or("none"))?;
        for group in &self.groups {
            writeln!(f)?;
            write!(f, "{:<12} {:<8} {:>7} ms", group.name.name(), group.verdict, group.milliseconds)?;
            match &group.reason {
                Some(reason) => writeln!(f, "  {reason}")?,
                None => writeln!(f, "  {} checks", group.checks.len())?,
            }
            for check in &group.checks {
                let CheckReport { name, verdict, words, milliseconds } = check;
                writeln!(f, "  {verdict:<8} {name:<30} {milliseconds:>6} ms  {words}")?;
            }
        }
        let broken =
            self.groups.iter().flat_map(|group| &group.checks).filter(|check| check.verdict == Verdict::Fail);
        writeln!(f)?;
        match self.overall {
            Overall::Passed => writeln!(f, "passed"),
            Overall::Failed => writeln!(f, "FAILED: {} broken", broken.count()),
            Overall::Incomplete => {
                writeln!(f, "incomplete: nothing broke, but what steps mean was not checked")?;
                writeln!(f, "hint: give --model with a small model that the runtime reads")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict], quick: bool) -> Report {
        let groups: Vec<GroupReport> = verdicts
            .iter()
            .zip(Group::ALL)
            .map(|(verdict, name)| GroupReport {
                name,
                verdict: *verdict,
                reason: None,
                milliseconds: 1,
                checks: Vec::new(),
            })
            .collect();
        Report {
            report_version: REPORT_VERSION,
            library: "/r/libacme.so".into(),
            library_sha256: "ab".into(),
            runtime: Some("acme 1.0".into()),
            abi: [0, 2],
            host_version: "0.1.0".into(),
            machine: "linux".into(),
            model: None,
            quick,
            overall: Report::judge(&groups),
            milliseconds: 2,
            groups,
        }
    }

    #[test]
    fn only_a_complete_pass_exits_with_zero_unless_quick() {
        use Verdict::{Fail, Pass, Skipped};
        let check = |verdicts: &[Verdict], quick: bool, overall: Overall, code: i32| {
            let report = report(verdicts, quick);
            assert_eq!((report.overall, report.exit_code()), (overall, code), "{verdicts:?} quick={quick}");
        };
        check(&[Pass, Pass], false, Overall::Passed, 0);
        check(&[Pass, Skipped], false, Overall::Incomplete, 1);
        check(&[Pass, Skipped], true, Overall::Incomplete, 0);
        check(&[Fail, Skipped], true, Overall::Failed, 1);
        check(&[Fail, Pass], false, Overall::Failed, 1);
    }

    #[test]
    fn json_keeps_every_field_and_the_names_of_groups() {
        let before = report(&[Verdict::Pass, Verdict::Fail], false);
        let text = serde_json::to_string(&before).unwrap();
        assert!(text.contains(r#""report_version":1"#), "{text}");
        assert!(text.contains(r#""name":"negotiation","verdict":"fail""#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), before);
    }

    #[test]
    fn the_face_for_people_says_what_was_not_checked() {
        let text = report(&[Verdict::Pass, Verdict::Skipped], false).to_string();
        assert!(text.contains("what steps mean was not checked"), "{text}");
        assert!(text.contains("give --model"), "{text}");
    }

    #[test]
    fn a_groups_name_finds_the_group() {
        for group in Group::ALL {
            assert_eq!(Group::by_name(group.name()), Some(group));
            assert_eq!(serde_json::to_string(&group).unwrap(), format!("\"{}\"", group.name()));
        }
        assert_eq!(Group::by_name("Static"), None);
    }
}
