//! Group `options`: what `open` takes and refuses. Files that are no model are tried without one; the rest needs one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sf_abi::descriptor::{Descriptor, ModelDescription, OptionKind, OptionSpec};
use sf_abi::{
    SFR_E_ABI, SFR_E_ARG, SFR_E_CAPACITY, SFR_E_FORMAT, SFR_E_NOMEM_DEVICE, SFR_E_NOMEM_HOST,
    SFR_E_NOT_FOUND, SFR_E_OPTION, SFR_E_UNSUPPORTED, SFR_HONOURED_EXACTLY, SFR_HONOURED_IGNORED,
    SFR_HONOURED_UNSEEN, SfrEngineVt, SfrStatus,
};
use sf_core::{EngineOption, OptionValue};

use crate::child::Subject;
use crate::groups::negotiation::started;
use crate::journal::{Broken, Found, Journal, broken, ensure, not_here};
use crate::options::{OpenCall, STANDARD, close, effective_is, typed};
use crate::raw::{self, Bound, Refusal, refused, worked};
use crate::scratch::Scratch;
use crate::session::Session;

/// Bytes kept of a model that is cut short.
const CUT_BYTES_MAX: u64 = 32 << 20;
/// A whole number that most options bear.
const USUAL: i64 = 512;
/// Times a model is opened and closed.
const OPENS: u32 = 12;
const OPENS_QUICK: u32 = 3;
/// What an honest "no" to an option may be.
const REFUSALS: [SfrStatus; 3] = [SFR_E_OPTION, SFR_E_ARG, SFR_E_UNSUPPORTED];

/// An open as small as the checks need it. Hints only: a runtime may have its own fixed sizes, and then says so.
pub(super) fn small(subject: &Subject, descriptor: &Descriptor, model: &Path) -> Result<OpenCall, Broken> {
    let mut call = OpenCall::of(model)
        .with("ctx.max", OptionValue::Int(256), false)
        .with("lanes.max", OptionValue::Int(4), false)
        .with("step.tokens.max", OptionValue::Int(128), false)
        .with("threads", OptionValue::Int(1), false);
    for (key, text) in &subject.options {
        call = call.with(key, typed(descriptor, key, text)?, true);
    }
    Ok(call)
}

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let Some((bound, descriptor)) = started(subject, journal) else { return };
    let Ok(engine) = bound.engine() else { return };
    let tried = Tried { subject, bound: &bound, engine: &engine, descriptor: &descriptor };
    journal.check("no-model-files", || tried.no_model_files());
    let Some(model) = &subject.model else { return };
    let opens = journal.check("opens", || tried.opens(model));
    if !opens {
        return;
    }
    journal.check("cut-files", || tried.cut_files(model));
    journal.check("request-sizes", || tried.request_sizes(model));
    journal.check("unknown-bits", || tried.unknown_bits(model));
    journal.check("unknown-options", || tried.unknown_options(model));
    for (key, kind) in STANDARD {
        journal.check(&format!("standard-{}", key.replace(['.', '_'], "-")), || {
            tried.standard(model, key, kind)
        });
    }
    for option in &descriptor.options {
        journal.check(&format!("option-{}", option.key), || tried.declared(model, option));
    }
    journal.check("inspect", || tried.inspect(model));
    bound.shutdown();
}

struct Tried<'a> {
    subject: &'a Subject,
    bound: &'a Bound,
    engine: &'a SfrEngineVt,
    descriptor: &'a Descriptor,
}

/// A model that opened and what became of each option.
struct Opened {
    description: ModelDescription,
    honoured: Vec<u32>,
}

impl Tried<'_> {
    fn small(&self, model: &Path) -> Result<OpenCall, Broken> {
        small(self.subject, self.descriptor, model)
    }

    /// Opens, describes and closes.
    fn open(&self, call: &OpenCall) -> Result<Result<Opened, Refusal>, Broken> {
        let (outcome, laid) = call.run(self.engine);
        let model = match outcome {
            Ok(model) => model,
            Err(refusal) => return Ok(Err(refusal.sound()?)),
        };
        ensure!(!model.is_null(), "open returned OK and a NULL model");
        let describe = self.engine.describe.expect("checked when the table was read");
        let text = raw::fetch("describe", |json, err| raw::describe(describe, model, json, err));
        close(self.engine, model);
        let description =
            serde_json::from_str(&text?).map_err(|error| broken!("describe() does not parse: {error}"))?;
        Ok(Ok(Opened { description, honoured: laid.honoured() }))
    }

    fn must_open(&self, call: &OpenCall, what: &str) -> Result<Opened, Broken> {
        worked(self.open(call)?, what)
    }

    fn must_refuse(&self, call: &OpenCall, codes: &[SfrStatus], what: &str) -> Result<Refusal, Broken> {
        refused(self.open(call)?, codes, what)
    }

    fn no_model_files(&self) -> Found {
        let codes = [SFR_E_NOT_FOUND, SFR_E_FORMAT, SFR_E_ARG, SFR_E_UNSUPPORTED];
        let dir = Scratch::new()?;
        let missing = dir.path.join("missing.gguf");
        self.must_refuse(&OpenCall::of(&missing), &[SFR_E_NOT_FOUND], "a missing file")?;
        self.must_refuse(&OpenCall::of(&dir.path), &codes, "an empty folder")?;
        self.must_refuse(&OpenCall::default(), &codes, "no path at all")?;
        let mut noise = crate::compare::Dice::new(0xBAD);
        let contents: [(&str, Vec<u8>); 4] = [
            ("empty", Vec::new()),
            ("text", b"this is no model\n".to_vec()),
            ("noise", (0..4096).flat_map(|_| noise.next().to_le_bytes()).collect()),
            ("gguf-noise", [b"GGUF\x03\0\0\0".as_slice(), &[0xFF; 4096]].concat()),
        ];
        for (name, bytes) in contents {
            let path = dir.file(name, &bytes)?;
            let refusal = self.must_refuse(&OpenCall::of(&path), &codes, &format!("a file of {name}"))?;
            ensure!(refusal.scope == 0, "a file of {name} is refused with scope {}", refusal.scope);
        }
        Ok("missing, folder, empty, text, noise: refused in words".to_owned())
    }

    fn opens(&self, model: &Path) -> Found {
        let times = if self.subject.quick { OPENS_QUICK } else { OPENS };
        let call = self.small(model)?;
        let first = self.must_open(&call, "open of the model")?.description;
        for _ in 1..times {
            let again = self.must_open(&call, "open of the model once more")?.description;
            ensure!(again == first, "describe() differs between two opens");
        }
        let facts = first.model;
        ensure!(facts.vocab > 0, "describe().model.vocab is 0 or missing");
        Ok(format!("{times} times; {} of {} tokens", facts.architecture, facts.vocab))
    }

    fn cut_files(&self, model: &Path) -> Found {
        if !model.is_file() {
            not_here!("the model is no single file");
        }
        let len = std::fs::metadata(model).map_err(|error| broken!("cannot read the model: {error}"))?.len();
        let dir = Scratch::new()?;
        let ending = model.extension().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let cuts = [4, 16, len / 4, (len / 2).min(CUT_BYTES_MAX)];
        let mut lengths = Vec::new();
        for cut in cuts.into_iter().filter(|cut| *cut < len) {
            let path = dir.path.join(format!("cut-{cut}.{ending}"));
            copy_start(model, &path, cut)?;
            let what = format!("the first {cut} of {len} bytes of the model");
            let call = OpenCall { paths: vec![path.clone()], ..self.small(model)? };
            self.must_refuse(&call, &[SFR_E_FORMAT, SFR_E_NOT_FOUND], &what)?;
            // A failed removal only costs space until the folder goes.
            let _ = std::fs::remove_file(path);
            lengths.push(cut);
        }
        Ok(format!("cut to {lengths:?} bytes: refused"))
    }

    fn request_sizes(&self, model: &Path) -> Found {
        let call = self.small(model)?;
        for size in [0u32, 8, 96] {
            let short = OpenCall { struct_size: Some(size), ..call.clone() };
            self.must_refuse(&short, &[SFR_E_ABI], &format!("a request of {size} bytes"))?;
        }
        let long = OpenCall { tail: vec![0; 24], option_tail: vec![0; 8], ..call.clone() };
        self.must_open(&long, "a longer request and longer options with zero tails")?;
        let set = OpenCall { tail: vec![0, 0, 0, 0, 0, 0, 0, 1], ..call.clone() };
        self.must_refuse(&set, &[SFR_E_UNSUPPORTED], "a longer request with a set tail")?;
        let set = OpenCall { option_tail: vec![1, 0, 0, 0, 0, 0, 0, 0], ..call.clone() };
        self.must_refuse(&set, &[SFR_E_UNSUPPORTED], "longer options with a set tail")?;
        for stride in [0u32, 8, 60, 65] {
            let odd = OpenCall { option_stride: Some(stride), ..call.clone() };
            self.must_refuse(&odd, &[SFR_E_ABI], &format!("options with a stride of {stride}"))?;
        }
        Ok("short refused, long taken, set tails refused".to_owned())
    }

    fn unknown_bits(&self, model: &Path) -> Found {
        let call = self.small(model)?;
        for bit in [1u32, 1 << 31] {
            let flagged = OpenCall { flags: bit, ..call.clone() };
            self.must_refuse(&flagged, &[SFR_E_UNSUPPORTED], &format!("open flags {bit:#x}"))?;
        }
        for bit in [2u32, 1 << 31] {
            let flagged = OpenCall { option_flags: bit, ..call.clone() };
            self.must_refuse(&flagged, &[SFR_E_UNSUPPORTED], &format!("option flags {bit:#x}"))?;
        }
        Ok("refused".to_owned())
    }

    fn unknown_options(&self, model: &Path) -> Found {
        let key = "x.verify.no-such-option";
        let with = |must: bool| Ok::<_, Broken>(self.small(model)?.with(key, OptionValue::Int(7), must));
        let refusal = self.must_refuse(&with(true)?, &[SFR_E_OPTION], "an unknown option with MUST")?;
        ensure!(refusal.field == key, "the refusal names {:?} instead of {key}", refusal.field);
        let honoured = self.must_open(&with(false)?, "an unknown option without MUST")?.honoured;
        let answer = honoured.last().copied().unwrap_or_default();
        let honest = [SFR_HONOURED_UNSEEN, SFR_HONOURED_IGNORED].contains(&answer);
        ensure!(honest, "an unknown option is said to be honoured ({answer})");
        Ok("refused with MUST, left alone without".to_owned())
    }

    /// One value with MUST: honoured exactly and so described, or refused by its key. True when honoured.
    fn honest(&self, call: &OpenCall, option: &EngineOption) -> Result<bool, Broken> {
        let EngineOption { key, value, .. } = option;
        let what = format!("{key}={value} with MUST");
        match self.open(&call.clone().with(key, value.clone(), true))? {
            Ok(opened) => {
                let answer = opened.honoured.last().copied().unwrap_or_default();
                ensure!(answer == SFR_HONOURED_EXACTLY, "{what} was taken, but honoured is {answer}");
                effective_is(&opened.description.effective, option)?;
                Ok(true)
            }
            Err(refusal) => {
                let short = [SFR_E_NOMEM_HOST, SFR_E_NOMEM_DEVICE, SFR_E_CAPACITY].contains(&refusal.code);
                let named = REFUSALS.contains(&refusal.code) && refusal.field == *key;
                ensure!(short || named, "{what}: the refusal should name {key}: {refusal}");
                Ok(false)
            }
        }
    }

    /// A value that must not be taken.
    fn must_not_take(&self, call: &OpenCall, key: &str, value: OptionValue) -> Result<(), Broken> {
        let what = format!("{key}={value:?} with MUST");
        let refusal = self.must_refuse(&call.clone().with(key, value, true), &REFUSALS, &what)?;
        ensure!(refusal.field == key, "{what}: the refusal names {:?}: {refusal}", refusal.field);
        Ok(())
    }

    fn standard(&self, model: &Path, key: &str, kind: OptionKind) -> Found {
        let call = self.small(model)?;
        let (good, bad) = match (kind, key) {
            (OptionKind::Int, "ctx.max") => (vec![OptionValue::Int(256), OptionValue::Int(512)], ints(&[-1])),
            (OptionKind::Int, "step.tokens.max") => {
                (vec![OptionValue::Int(64), OptionValue::Int(256)], ints(&[-1, 0]))
            }
            (OptionKind::Int, _) => (vec![OptionValue::Int(1), OptionValue::Int(2)], ints(&[-1, i64::MIN])),
            _ => (vec![OptionValue::Str("f16".into())], vec![OptionValue::Str("no-such-type".into())]),
        };
        for value in bad.into_iter().chain([wrong_type(kind)]) {
            self.must_not_take(&call, key, value)?;
        }
        let mut kept = Vec::new();
        for value in good {
            let option = EngineOption { key: key.to_owned(), value, must: true };
            if self.honest(&call, &option)? {
                kept.push(option.value.to_string());
            }
        }
        Ok(if kept.is_empty() {
            "refused by name".to_owned()
        } else {
            format!("exactly {}", kept.join(", "))
        })
    }

    fn declared(&self, model: &Path, spec: &OptionSpec) -> Found {
        let call = self.small(model)?;
        let key = format!("x.{}.{}", self.descriptor.id, spec.key);
        for value in out_of_range(spec) {
            self.must_not_take(&call, &key, value)?;
        }
        let values = in_range(spec);
        if values.is_empty() {
            not_here!("no value is known from the descriptor");
        }
        let mut kept = Vec::new();
        let mut refused = Vec::new();
        for value in values {
            let option = EngineOption { key: key.clone(), value, must: true };
            let list = if self.honest(&call, &option)? { &mut kept } else { &mut refused };
            list.push(option.value.to_string());
        }
        ensure!(!kept.is_empty(), "not one of its declared values is honoured here: {refused:?}");
        Ok(format!("exactly {kept:?}, refused by name {refused:?}"))
    }

    fn inspect(&self, model: &Path) -> Found {
        let Some(vt) = self.bound.inspect()? else { not_here!("sf.inspect/1 is not offered") };
        let call = self.small(model)?;
        let laid = call.lay();
        let text = raw::inspect(&vt, &laid.request)?;
        let facts: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| broken!("inspect answers no JSON: {error}"))?;
        let description = Session::open(self.bound, &call)?.description.clone();
        let vocab = facts.get("vocab").and_then(serde_json::Value::as_u64);
        let real = u64::from(description.model.vocab);
        ensure!(
            vocab.is_none_or(|vocab| vocab == real),
            "inspect says vocab {vocab:?}, the model has {real}"
        );
        let arch = facts.get("architecture").and_then(serde_json::Value::as_str);
        let same = arch.is_none_or(|arch| arch == description.model.architecture);
        ensure!(same, "inspect says {arch:?}, the model is {:?}", description.model.architecture);
        let estimate = worked(raw::estimate(&vt, &laid.request), "estimate")?;
        let trained = (estimate.ctx_trained, description.model.ctx_trained);
        ensure!(
            trained.0 == 0 || trained.0 == trained.1,
            "ctx_trained: estimate {}, model {}",
            trained.0,
            trained.1
        );
        let missing = OpenCall::of("/no/such/folder/no-such-model".as_ref()).lay();
        let outcome = raw::estimate(&vt, &missing.request);
        refused(outcome, &[SFR_E_NOT_FOUND, SFR_E_FORMAT], "estimate of a missing file")?;
        Ok(format!(
            "{} bytes of weights, {} per position",
            estimate.bytes_weights, estimate.bytes_kv_per_token
        ))
    }
}

fn ints(values: &[i64]) -> Vec<OptionValue> {
    values.iter().map(|value| OptionValue::Int(*value)).collect()
}

fn wrong_type(kind: OptionKind) -> OptionValue {
    match kind {
        OptionKind::Str => OptionValue::Int(1),
        _ => OptionValue::Str("a text".into()),
    }
}

/// Values that the descriptor says are good: few, and small ones rather than the largest.
fn in_range(spec: &OptionSpec) -> Vec<OptionValue> {
    let whole = |value: f64| value as i64;
    let mut values = match spec.kind {
        OptionKind::Bool => vec![OptionValue::Bool(false), OptionValue::Bool(true)],
        OptionKind::Int => {
            let (low, high) = (spec.min.map(whole), spec.max.map(whole));
            let given = spec.default.as_i64();
            let within = |value: i64| value.max(low.unwrap_or(i64::MIN)).min(high.unwrap_or(i64::MAX));
            let next = within(low.or(given).unwrap_or(0).saturating_add(1));
            // The smallest ones may be too small for the other options of the request.
            let usual = given.unwrap_or_else(|| within(USUAL));
            ints(&[low, Some(usual), Some(next)].into_iter().flatten().collect::<Vec<_>>())
        }
        OptionKind::Float => {
            let ends = [spec.min, spec.default.as_f64(), spec.max];
            ends.into_iter().flatten().map(OptionValue::Float).collect()
        }
        OptionKind::Str if spec.values.is_empty() => {
            spec.default.as_str().map(|text| OptionValue::Str(text.to_owned())).into_iter().collect()
        }
        OptionKind::Str => spec.values.iter().map(|text| OptionValue::Str(text.clone())).collect(),
    };
    values.dedup();
    values
}

/// Values that the descriptor says are bad.
fn out_of_range(spec: &OptionSpec) -> Vec<OptionValue> {
    let mut values = vec![wrong_type(spec.kind)];
    match spec.kind {
        OptionKind::Int => {
            values.extend(spec.min.map(|min| OptionValue::Int((min as i64).saturating_sub(1))));
            values.extend(spec.max.map(|max| OptionValue::Int((max as i64).saturating_add(1))));
        }
        OptionKind::Float => {
            values.extend(spec.min.map(|min| OptionValue::Float(min - 1.0)));
            values.extend(spec.max.map(|max| OptionValue::Float(max + 1.0)));
        }
        OptionKind::Str if !spec.values.is_empty() => values.push(OptionValue::Str("no-such-value".into())),
        OptionKind::Str | OptionKind::Bool => {}
    }
    values
}

fn copy_start(from: &Path, to: &Path, len: u64) -> Result<(), Broken> {
    let copied = File::open(from)
        .and_then(|file| File::create(to).and_then(|mut out| std::io::copy(&mut file.take(len), &mut out)));
    copied.map(|_| ()).map_err(|error| broken!("cannot cut the model into {}: {error}", to.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_declared_range_says_what_to_try() {
        let check = |spec: serde_json::Value, good: &str, bad: &str| {
            let spec: OptionSpec = serde_json::from_value(spec).unwrap();
            let show = |values: Vec<OptionValue>| {
                values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            assert_eq!((show(in_range(&spec)).as_str(), show(out_of_range(&spec)).as_str()), (good, bad));
        };
        check(json!({"key":"a","type":"int","default":8,"min":1,"max":16}), "1 8 2", "a text 0 17");
        check(json!({"key":"a","type":"int","default":null,"min":0,"max":0}), "0", "a text -1 1");
        check(json!({"key":"a","type":"int","default":null,"min":1}), "1 512 2", "a text 0");
        check(json!({"key":"a","type":"bool","default":true}), "off on", "a text");
        check(json!({"key":"a","type":"float","default":0.5,"min":0.0,"max":1.0}), "0 0.5 1", "a text -1 2");
        check(json!({"key":"a","type":"str","default":"x","values":["x","y"]}), "x y", "1 no-such-value");
        check(json!({"key":"a","type":"str","default":null}), "", "1");
    }
}
