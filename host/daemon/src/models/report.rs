//! What `superfluid models --json` prints, and the table is made of. Fields are only ever added; `schema` grows when one
//! changes its meaning.

use serde::Serialize;
use sf_artifact::ArtifactFormat;
use sf_catalog::{Catalog, ReasonReport, VerdictReport};
use sf_codec::{Outcome, SelfTest};

use super::look::{Facts, Header, Text};
use super::places::Place;

const SCHEMA: u32 = 1;

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    /// 1.
    schema: u32,
    /// Where models were looked for, in order.
    pub(crate) places: Vec<PlaceReport>,
    /// By place, then by path.
    pub(crate) models: Vec<ModelReport<'a>>,
}

/// One place.
#[derive(Debug, Serialize)]
pub(crate) struct PlaceReport {
    /// Its path.
    pub(crate) path: String,
    /// `argument`, `--model-dir`, `model directory` or `hub cache`.
    pub(crate) what: &'static str,
    /// How many models it has, unreadable ones included.
    pub(crate) models: usize,
}

/// One model. Of one that cannot be read, everything behind `error` is null or empty.
#[derive(Debug, Serialize)]
pub(crate) struct ModelReport<'a> {
    /// Index into `places`.
    pub(crate) place: usize,
    /// What `serve` calls it.
    pub(crate) id: &'a str,
    /// `org/name` in the hub's cache.
    pub(crate) repository: Option<&'a str>,
    /// Its file or directory.
    pub(crate) path: String,
    /// Why it cannot be read.
    pub(crate) error: Option<ReasonReport>,
    /// `gguf`, `safetensors` or `base`.
    pub(crate) format: Option<&'static str>,
    /// Version of the format.
    pub(crate) format_version: Option<u32>,
    /// What its author calls it.
    name: Option<&'a str>,
    /// Its architecture.
    pub(crate) architecture: Option<&'a str>,
    /// How many numbers its weights are.
    pub(crate) parameters: Option<u64>,
    /// Files with weights.
    files: Option<usize>,
    /// Their size.
    pub(crate) bytes: Option<u64>,
    /// Its quantization.
    pub(crate) quantization: Option<&'a str>,
    /// Positions it was trained with.
    pub(crate) context: Option<u32>,
    /// The runtime that `serve` would choose.
    pub(crate) runtime: Option<&'a str>,
    /// Every runtime, and why it does not read the model.
    pub(crate) runtimes: Vec<VerdictReport<'a>>,
    /// How text becomes tokens and messages a prompt, in one line.
    pub(crate) text: Option<&'a str>,
    /// Why its text cannot be used.
    pub(crate) text_error: Option<ReasonReport>,
    /// Its self-test.
    pub(crate) self_test: Option<SelfTestReport<'a>>,
}

/// How a self-test went.
#[derive(Debug, Serialize)]
pub(crate) struct SelfTestReport<'a> {
    /// Nothing fails.
    pub(crate) passed: bool,
    /// Checks by how they ended.
    checks_passed: usize,
    checks_skipped: usize,
    /// Those that fail.
    pub(crate) failures: Vec<FailureReport<'a>>,
}

/// A check that fails.
#[derive(Debug, Serialize)]
pub(crate) struct FailureReport<'a> {
    /// Its name.
    pub(crate) check: &'static str,
    /// With what.
    pub(crate) input: &'a str,
    /// What had to come of it.
    pub(crate) expected: &'a str,
    /// What came.
    pub(crate) found: &'a str,
    /// What it means.
    pub(crate) consequence: &'static str,
    /// What helps.
    pub(crate) hint: &'static str,
}

impl<'a> Report<'a> {
    /// `wanted`: the only runtime that counts, where one was named.
    pub(crate) fn new(
        places: &[Place],
        facts: &'a [Facts],
        catalog: &'a Catalog,
        wanted: Option<&str>,
    ) -> Report<'a> {
        let count = |at| facts.iter().filter(|facts| facts.place == at).count();
        let place = |(at, place): (usize, &Place)| PlaceReport {
            path: place.path.display().to_string(),
            what: place.what,
            models: count(at),
        };
        Report {
            schema: SCHEMA,
            places: places.iter().enumerate().map(place).collect(),
            models: facts.iter().map(|facts| model(facts, catalog, wanted)).collect(),
        }
    }
}

fn model<'a>(facts: &'a Facts, catalog: &'a Catalog, wanted: Option<&str>) -> ModelReport<'a> {
    let mut report = ModelReport {
        place: facts.place,
        id: &facts.id,
        repository: facts.repository.as_deref(),
        path: facts.path.display().to_string(),
        error: None,
        format: None,
        format_version: None,
        name: None,
        architecture: None,
        parameters: None,
        files: None,
        bytes: None,
        quantization: None,
        context: None,
        runtime: None,
        runtimes: Vec::new(),
        text: None,
        text_error: None,
        self_test: None,
    };
    match &facts.header {
        Ok(header) => read(&mut report, header, catalog, wanted),
        Err(error) => {
            report.error = Some(reason(error.code(), &error.to_string(), error.hint()));
        }
    }
    report
}

fn read<'a>(report: &mut ModelReport<'a>, header: &'a Header, catalog: &'a Catalog, wanted: Option<&str>) {
    report.format = Some(header.format.name());
    report.format_version = match header.format {
        ArtifactFormat::Gguf { version } => Some(version),
        ArtifactFormat::SafetensorsDir | ArtifactFormat::Base => None,
    };
    report.name = header.name.as_deref();
    let known = |text: &'a str| Some(text).filter(|text| !text.is_empty());
    report.architecture = known(&header.kind.architecture);
    report.quantization = known(&header.kind.quantization);
    report.parameters = header.parameters;
    (report.files, report.bytes, report.context) = (Some(header.files), Some(header.bytes), header.context);
    let chosen = catalog.choose(header.kind.clone(), wanted, &[]);
    report.runtime = chosen.ok().map(|choice| choice.entry.id());
    report.runtimes = catalog.model_report(header.kind.clone()).runtimes;
    match &*header.text {
        Text::Usable { line, report: test } => {
            report.text = Some(line);
            report.self_test = Some(self_test(test));
        }
        Text::Unusable(error) => {
            report.text_error = Some(reason(error.code(), &error.to_string(), error.hint()));
        }
    }
}

fn reason(code: &str, message: &str, hint: &str) -> ReasonReport {
    // The code has a field of its own.
    let message = message.strip_suffix(&format!(" ({code})")).unwrap_or(message);
    ReasonReport { code: code.to_owned(), message: message.to_owned(), hint: Some(hint.to_owned()) }
}

fn self_test(test: &SelfTest) -> SelfTestReport<'_> {
    let skipped = test.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Skipped(_)));
    let failures = test.failures().map(|(check, finding)| FailureReport {
        check: check.name(),
        input: &finding.input,
        expected: &finding.expected,
        found: &finding.found,
        consequence: check.consequence(),
        hint: check.hint(),
    });
    SelfTestReport {
        passed: test.passed(),
        checks_passed: test.count_passed(),
        checks_skipped: skipped.count(),
        failures: failures.collect(),
    }
}
