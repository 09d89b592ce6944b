//! An open request of any shape, good or bad, and what the runtime made of each option.
#![expect(unsafe_code, reason = "calls open with raw records")]

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value;
use sf_abi::descriptor::{Descriptor, OptionKind};
use sf_abi::{
    SFR_OPT_MUST, SFR_T_BOOL, SFR_T_F64, SFR_T_I64, SFR_T_STR, SfrArray, SfrEngineVt, SfrModel, SfrOpen,
    SfrOpt, SfrStr,
};
use sf_core::{EngineOption, OptionValue};

use crate::journal::{Broken, broken, ensure};
use crate::memory::{Guarded, bytes_of, record_at};
use crate::raw::{Refusal, call, size_u32};

/// Keys that every runtime should read, with their types.
pub(crate) const STANDARD: [(&str, OptionKind); 6] = [
    ("ctx.max", OptionKind::Int),
    ("lanes.max", OptionKind::Int),
    ("step.tokens.max", OptionKind::Int),
    ("threads", OptionKind::Int),
    ("kv.type_k", OptionKind::Str),
    ("kv.type_v", OptionKind::Str),
];

/// An `open` (or `inspect`) to be.
#[derive(Clone, Default)]
pub(crate) struct OpenCall {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) options: Vec<EngineOption>,
    /// Of the request.
    pub(crate) flags: u32,
    /// Set in every option's flags besides MUST.
    pub(crate) option_flags: u32,
    /// Instead of the true one; never larger than the truth.
    pub(crate) struct_size: Option<u32>,
    /// Bytes after the request, counted in its size.
    pub(crate) tail: Vec<u8>,
    /// Bytes after each option, counted in the stride.
    pub(crate) option_tail: Vec<u8>,
    /// Instead of the true stride of the options.
    pub(crate) option_stride: Option<u32>,
}

/// A request in memory, with everything it points at.
pub(crate) struct LaidOpen {
    pub(crate) request: Guarded,
    options: Guarded,
    option_step: usize,
    count: usize,
    _paths: Guarded,
    _texts: Vec<Guarded>,
}

impl OpenCall {
    pub(crate) fn of(path: &std::path::Path) -> OpenCall {
        OpenCall { paths: vec![path.to_owned()], ..OpenCall::default() }
    }

    pub(crate) fn with(mut self, key: &str, value: OptionValue, must: bool) -> OpenCall {
        self.options.retain(|option| option.key != key);
        self.options.push(EngineOption { key: key.to_owned(), value, must });
        self
    }

    /// Lays the request out in guarded memory.
    pub(crate) fn lay(&self) -> LaidOpen {
        let mut texts = Vec::new();
        let mut text = |bytes: &[u8]| -> SfrStr {
            let guarded = Guarded::copy_of(bytes);
            let at = SfrStr { p: guarded.as_ptr().cast(), n: bytes.len() as u64 };
            texts.push(guarded);
            at
        };
        let mut path_bytes = Vec::new();
        for path in &self.paths {
            path_bytes.extend_from_slice(bytes_of(&text(path.as_os_str().as_bytes())));
        }
        let paths = Guarded::copy_of(&path_bytes);
        let mut option_bytes = Vec::new();
        for option in &self.options {
            let mut record = SfrOpt {
                key: text(option.key.as_bytes()),
                s: SfrStr { p: ptr::null(), n: 0 },
                i: 0,
                f: 0.0,
                r#type: 0,
                flags: self.option_flags | if option.must { SFR_OPT_MUST } else { 0 },
                honoured: 0,
                reserved0: 0,
            };
            match &option.value {
                OptionValue::Bool(value) => (record.r#type, record.i) = (SFR_T_BOOL, i64::from(*value)),
                OptionValue::Int(value) => (record.r#type, record.i) = (SFR_T_I64, *value),
                OptionValue::Float(value) => (record.r#type, record.f) = (SFR_T_F64, *value),
                OptionValue::Str(value) => (record.r#type, record.s) = (SFR_T_STR, text(value.as_bytes())),
            }
            option_bytes.extend_from_slice(bytes_of(&record));
            option_bytes.extend_from_slice(&self.option_tail);
        }
        let options = Guarded::copy_of(&option_bytes);
        let option_step = size_of::<SfrOpt>() + self.option_tail.len();
        let stride = self.option_stride.unwrap_or_else(|| narrow(option_step));
        let array = |at: &Guarded, count: usize, stride: u32| SfrArray {
            at: if count == 0 { 0 } else { at.address() },
            count: narrow(count),
            stride,
        };
        let none = SfrStr { p: ptr::null(), n: 0 };
        let request = SfrOpen {
            struct_size: self.struct_size.unwrap_or_else(|| narrow(size_of::<SfrOpen>() + self.tail.len())),
            flags: self.flags,
            paths: array(&paths, self.paths.len(), size_u32::<SfrStr>()),
            opts: array(&options, self.options.len(), stride),
            devices: SfrArray::default(),
            scratch_dir: none,
            cache_dir: none,
            progress: None,
            progress_ctx: ptr::null_mut(),
            control: ptr::null(),
        };
        LaidOpen {
            request: Guarded::holding(&request, &self.tail),
            options,
            option_step,
            count: self.options.len(),
            _paths: paths,
            _texts: texts,
        }
    }

    /// Opens. The caller closes the model.
    pub(crate) fn run(&self, engine: &SfrEngineVt) -> (Result<*mut SfrModel, Refusal>, LaidOpen) {
        let laid = self.lay();
        (laid.open(engine), laid)
    }
}

impl LaidOpen {
    pub(crate) fn open(&self, engine: &SfrEngineVt) -> Result<*mut SfrModel, Refusal> {
        let open = engine.open.expect("checked when the table was read");
        let mut model: *mut SfrModel = ptr::null_mut();
        let request = self.request.as_ptr().cast::<c_void>().cast::<SfrOpen>();
        // SAFETY: the request, what it points at, the output and the record are live for the call.
        call(|err| unsafe { open(request, &raw mut model, err) })?;
        Ok(model)
    }

    /// Calls `open` with any record and gives its status; a model that opens is closed.
    pub(crate) fn status_of_open(&self, engine: &SfrEngineVt, err: *mut sf_abi::SfrError) -> i32 {
        let open = engine.open.expect("checked when the table was read");
        let mut model: *mut SfrModel = ptr::null_mut();
        let request = self.request.as_ptr().cast::<c_void>().cast::<SfrOpen>();
        // SAFETY: as in `open`; the record is NULL or live.
        let status = unsafe { open(request, &raw mut model, err) };
        if status == 0 {
            close(engine, model);
        }
        status
    }

    /// What the runtime wrote into `honoured`, in the options' order.
    pub(crate) fn honoured(&self) -> Vec<u32> {
        let bytes = self.options.bytes();
        let record = |at: usize| record_at::<SfrOpt>(bytes.get(at * self.option_step..)?);
        (0..self.count).filter_map(|at| record(at).map(|record| record.honoured)).collect()
    }
}

/// Closes a model.
pub(crate) fn close(engine: &SfrEngineVt, model: *mut SfrModel) {
    let close = engine.close.expect("checked when the table was read");
    // SAFETY: the model came from open and is closed once.
    unsafe { close(model) }
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).expect("requests of the checks are small")
}

/// Whether `describe().effective` says what was asked for.
pub(crate) fn effective_is(effective: &BTreeMap<String, Value>, option: &EngineOption) -> Result<(), Broken> {
    let EngineOption { key, value, .. } = option;
    let said = effective.get(key).ok_or_else(|| broken!("describe().effective does not tell {key}"))?;
    let same = match value {
        OptionValue::Bool(value) => said.as_bool() == Some(*value),
        OptionValue::Int(value) => said.as_i64() == Some(*value),
        OptionValue::Float(value) => said.as_f64() == Some(*value),
        OptionValue::Str(value) => said.as_str() == Some(value),
    };
    ensure!(same, "{key}={value} was honoured exactly, but describe().effective says {said}");
    Ok(())
}

/// An option from the command line as `key=value`, typed as the standard keys or the descriptor type it.
pub(crate) fn typed(descriptor: &Descriptor, key: &str, text: &str) -> Result<OptionValue, Broken> {
    let own = key.strip_prefix(&format!("x.{}.", descriptor.id));
    let declared = own.and_then(|own| descriptor.options.iter().find(|spec| spec.key == own));
    let standard = STANDARD.iter().find(|(name, _)| *name == key);
    let kind = declared.map(|spec| spec.kind).or(standard.map(|(_, kind)| *kind));
    let parsed = match kind {
        Some(OptionKind::Bool) => match text {
            "on" | "true" => Some(OptionValue::Bool(true)),
            "off" | "false" => Some(OptionValue::Bool(false)),
            _ => None,
        },
        Some(OptionKind::Int) => text.parse().ok().map(OptionValue::Int),
        Some(OptionKind::Float) => text.parse().ok().map(OptionValue::Float),
        Some(OptionKind::Str) => Some(OptionValue::Str(text.to_owned())),
        None => return Err(broken!("--option {key}: neither a standard key nor one of {}", descriptor.id)),
    };
    parsed.ok_or_else(|| broken!("--option {key}={text}: not a value of its type"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_lies_in_memory_as_the_header_says() {
        let call =
            OpenCall { option_tail: vec![0; 8], tail: vec![0; 16], ..OpenCall::of("/m.gguf".as_ref()) }
                .with("threads", OptionValue::Int(3), true)
                .with("kv.type_k", OptionValue::Str("f16".into()), false);
        let laid = call.lay();
        let request: SfrOpen = laid.request.record();
        assert_eq!(request.struct_size as usize, size_of::<SfrOpen>() + 16);
        assert_eq!((request.opts.count, request.opts.stride as usize), (2, size_of::<SfrOpt>() + 8));
        let second: SfrOpt = record_at(&laid.options.bytes()[laid.option_step..]).unwrap();
        assert_eq!((second.r#type, second.flags, second.s.n), (SFR_T_STR, 0, 3));
        assert_eq!(laid.honoured(), [0, 0]);
    }

    #[test]
    fn effective_must_say_what_was_asked() {
        let check = |value: OptionValue, said: Value, same: bool| {
            let option = EngineOption { key: "k".into(), value, must: true };
            let effective = BTreeMap::from([("k".to_owned(), said)]);
            assert_eq!(effective_is(&effective, &option).is_ok(), same, "{option:?}");
        };
        check(OptionValue::Int(4), json!(4), true);
        check(OptionValue::Int(4), json!("4"), false);
        check(OptionValue::Int(4), json!(5), false);
        check(OptionValue::Bool(true), json!(true), true);
        check(OptionValue::Bool(true), json!(1), false);
        check(OptionValue::Float(0.5), json!(0.5), true);
        check(OptionValue::Str("f16".into()), json!("f16"), true);
        let option = EngineOption { key: "k".into(), value: OptionValue::Int(1), must: true };
        assert!(effective_is(&BTreeMap::new(), &option).is_err());
    }
}
