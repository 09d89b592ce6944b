//! What an open call asks of a runtime, and whether the answer is what was asked.

use std::path::PathBuf;

use serde_json::Value;
use sf_abi::descriptor::ModelDescription;
use sf_abi::{
    SFR_E_ARG, SFR_E_OPTION, SFR_HONOURED_APPROXIMATELY, SFR_HONOURED_EXACTLY, SFR_HONOURED_IGNORED,
    SFR_HONOURED_UNSEEN, SFR_OPT_MUST, SFR_T_BOOL, SFR_T_F64, SFR_T_I64, SFR_T_STR, SfrOpen, SfrOpt, SfrStr,
};
use sf_core::{EngineOption, OptionValue};

use crate::calls::{array, lend};
use crate::error::KitError;

/// Which files to open and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRequest {
    /// The model's files, absolute and UTF-8, the main one first.
    pub models: Vec<PathBuf>,
    /// At most one per key.
    pub options: Vec<EngineOption>,
    /// Device ids from a probe; empty = the runtime's own order.
    pub devices: Vec<String>,
}

/// What a runtime did with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Honoured {
    /// It never looked at the key.
    Unseen,
    /// It did what was asked.
    Exactly,
    /// It did something close.
    Approximately,
    /// It read the key and went on without it.
    Ignored,
}

impl Honoured {
    fn from_abi(word: u32) -> Option<Honoured> {
        match word {
            SFR_HONOURED_UNSEEN => Some(Honoured::Unseen),
            SFR_HONOURED_EXACTLY => Some(Honoured::Exactly),
            SFR_HONOURED_APPROXIMATELY => Some(Honoured::Approximately),
            SFR_HONOURED_IGNORED => Some(Honoured::Ignored),
            _ => None,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Honoured::Unseen => "the runtime does not know it",
            Honoured::Exactly => "the runtime honoured it",
            Honoured::Approximately => "the runtime only approximated it",
            Honoured::Ignored => "the runtime ignored it",
        }
    }
}

/// An [`OpenRequest`] as the records that the ABI takes. Borrows the request's text.
pub(crate) struct OpenArgs<'a> {
    call: &'static str,
    options: &'a [EngineOption],
    paths: Vec<SfrStr>,
    opts: Vec<SfrOpt>,
    devices: Vec<SfrStr>,
}

impl<'a> OpenArgs<'a> {
    /// Refuses paths that the ABI cannot carry and repeated keys.
    pub(crate) fn new(call: &'static str, request: &'a OpenRequest) -> Result<OpenArgs<'a>, KitError> {
        let mut paths = Vec::with_capacity(request.models.len());
        for path in &request.models {
            let shown = path.display();
            let Some(text) = path.to_str() else {
                return Err(KitError::refused(call, SFR_E_ARG, "paths", format!("{shown} is not UTF-8")));
            };
            if !path.is_absolute() {
                return Err(KitError::refused(call, SFR_E_ARG, "paths", format!("{shown} is not absolute")));
            }
            paths.push(lend(text));
        }
        for (at, option) in request.options.iter().enumerate() {
            if request.options[..at].iter().any(|earlier| earlier.key == option.key) {
                return Err(KitError::refused(call, SFR_E_ARG, &option.key, "the option is given twice"));
            }
        }
        let opts = request.options.iter().map(to_abi).collect();
        let devices = request.devices.iter().map(|id| lend(id)).collect();
        Ok(OpenArgs { call, options: &request.options, paths, opts, devices })
    }

    /// Lends the records for one call.
    pub(crate) fn with<R>(&mut self, run: impl FnOnce(*const SfrOpen) -> R) -> R {
        let open = SfrOpen {
            struct_size: size_of::<SfrOpen>() as u32,
            flags: 0,
            paths: array(&mut self.paths),
            opts: array(&mut self.opts),
            devices: array(&mut self.devices),
            scratch_dir: lend(""),
            cache_dir: lend(""),
            progress: None,
            progress_ctx: std::ptr::null_mut(),
            control: std::ptr::null(),
        };
        run(&open)
    }

    /// What became of each option; a must option that was not honoured exactly is a refusal naming it.
    pub(crate) fn honoured(&self) -> Result<Vec<(String, Honoured)>, KitError> {
        let mut answers = Vec::with_capacity(self.opts.len());
        for (option, opt) in self.options.iter().zip(&self.opts) {
            let key = &option.key;
            let Some(answer) = Honoured::from_abi(opt.honoured) else {
                let reason = format!("honoured is {} for option {key}", opt.honoured);
                return Err(KitError::contract(self.call, reason));
            };
            if option.must && answer != Honoured::Exactly {
                let message = format!("option {key} = {}: {}", option.value, answer.in_words());
                return Err(KitError::refused(self.call, SFR_E_OPTION, key, message));
            }
            answers.push((key.clone(), answer));
        }
        Ok(answers)
    }

    /// Compares the effective value of each must option with what was asked.
    pub(crate) fn compare(&self, description: &ModelDescription) -> Result<(), KitError> {
        for option in self.options.iter().filter(|option| option.must) {
            let key = &option.key;
            let message = match description.effective.get(key) {
                Some(value) if same(&option.value, value) => continue,
                Some(value) => format!("option {key} = {}: the model runs with {value}", option.value),
                None => format!("option {key} = {}: the model does not say what it runs with", option.value),
            };
            return Err(KitError::refused(self.call, SFR_E_OPTION, key, message));
        }
        Ok(())
    }
}

fn to_abi(option: &EngineOption) -> SfrOpt {
    let mut opt = SfrOpt {
        key: lend(&option.key),
        s: lend(""),
        i: 0,
        f: 0.0,
        r#type: 0,
        flags: if option.must { SFR_OPT_MUST } else { 0 },
        honoured: SFR_HONOURED_UNSEEN,
        reserved0: 0,
    };
    match &option.value {
        OptionValue::Bool(value) => (opt.r#type, opt.i) = (SFR_T_BOOL, i64::from(*value)),
        OptionValue::Int(value) => (opt.r#type, opt.i) = (SFR_T_I64, *value),
        OptionValue::Float(value) => (opt.r#type, opt.f) = (SFR_T_F64, *value),
        OptionValue::Str(value) => (opt.r#type, opt.s) = (SFR_T_STR, lend(value)),
    }
    opt
}

/// Whether a JSON value says what was asked. A float may have gone through 32 bits.
fn same(asked: &OptionValue, effective: &Value) -> bool {
    match asked {
        OptionValue::Bool(value) => effective.as_bool() == Some(*value),
        OptionValue::Int(value) => effective.as_i64() == Some(*value),
        OptionValue::Float(value) => {
            effective.as_f64().is_some_and(|got| got == *value || got as f32 == *value as f32)
        }
        OptionValue::Str(value) => effective.as_str() == Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn option(key: &str, value: OptionValue) -> EngineOption {
        EngineOption { key: key.to_owned(), value, must: true }
    }

    #[test]
    fn an_effective_value_counts_only_when_it_is_the_asked_one() {
        let check = |asked: OptionValue, effective: Value, expect: bool| {
            assert_eq!(same(&asked, &effective), expect, "{asked} {effective}");
        };
        check(OptionValue::Int(4096), json!(4096), true);
        check(OptionValue::Int(4096), json!(4095), false);
        check(OptionValue::Int(4096), json!("4096"), false);
        check(OptionValue::Bool(true), json!(true), true);
        check(OptionValue::Bool(true), json!(1), false);
        check(OptionValue::Float(0.1), json!(0.1), true);
        check(OptionValue::Float(0.1), json!(0.1_f32), true);
        check(OptionValue::Float(0.1), json!(0.2), false);
        check(OptionValue::Str("q8_0".into()), json!("q8_0"), true);
        check(OptionValue::Str("q8_0".into()), json!("f16"), false);
    }

    #[test]
    fn a_must_option_passes_only_when_honoured_exactly() {
        let request = OpenRequest {
            options: vec![option("ctx.max", OptionValue::Int(4096))],
            ..OpenRequest::default()
        };
        let check = |word: u32, must: bool, expect: &str| {
            let mut request = request.clone();
            request.options[0].must = must;
            let mut args = OpenArgs::new("open", &request).unwrap();
            args.opts[0].honoured = word;
            let text = match args.honoured() {
                Ok(answers) => format!("{:?}", answers[0].1),
                Err(error) => error.to_string(),
            };
            assert!(text.contains(expect), "{text}");
        };
        check(SFR_HONOURED_EXACTLY, true, "Exactly");
        check(SFR_HONOURED_UNSEEN, true, "option ctx.max = 4096: the runtime does not know it");
        check(SFR_HONOURED_APPROXIMATELY, true, "only approximated it (code -4, ctx.max)");
        check(SFR_HONOURED_IGNORED, true, "ignored it");
        check(SFR_HONOURED_IGNORED, false, "Ignored");
        check(9, false, "honoured is 9 for option ctx.max");
    }

    #[test]
    fn a_request_that_the_abi_cannot_carry_is_refused_by_name() {
        let check = |request: &OpenRequest, expect: &str| {
            let error = OpenArgs::new("open", request).err().expect("it is refused").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&OpenRequest { models: vec!["a/b".into()], ..OpenRequest::default() }, "a/b is not absolute");
        let twice = vec![option("threads", OptionValue::Int(1)), option("threads", OptionValue::Int(2))];
        check(&OpenRequest { options: twice, ..OpenRequest::default() }, "given twice (code -2, threads)");
    }
}
