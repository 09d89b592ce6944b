//! What the tests share: a command line as words, a fixed environment, the options of two runtimes.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsString;

use sf_settings::{Invocation, RunSettings, RuntimeOption, RuntimeValue, ServeSettings, UsageError, parse};

pub(crate) fn options() -> Vec<RuntimeOption> {
    let option = |runtime: &str, key: &str, value, accepts: &str, default: &str, help: &str| RuntimeOption {
        runtime: runtime.into(),
        key: key.into(),
        value,
        help: help.into(),
        accepts: accepts.into(),
        default: default.into(),
    };
    vec![
        option("llamacpp", "ubatch-size", RuntimeValue::Int, "1 to 4096", "512", "Tokens computed at once."),
        option("llamacpp", "flash-attn", RuntimeValue::Bool, "", "on", "Fused attention."),
        option("acme.flash", "mode", RuntimeValue::Str, "slow, fast", "", "How it goes about it."),
    ]
}

pub(crate) fn parse_in(words: &[&str], env: &[(&str, &str)]) -> Result<Invocation, UsageError> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    parse(&words, &env, &options())
}

pub(crate) fn invocation(line: &str) -> Result<Invocation, UsageError> {
    parse_in(&line.split_whitespace().collect::<Vec<_>>(), &[])
}

pub(crate) fn serve_in(line: &str, env: &[(&str, &str)]) -> ServeSettings {
    match parse_in(&line.split_whitespace().collect::<Vec<_>>(), env) {
        Ok(Invocation::Serve(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

pub(crate) fn serve(line: &str) -> ServeSettings {
    serve_in(line, &[])
}

pub(crate) fn run(line: &str) -> RunSettings {
    match invocation(line) {
        Ok(Invocation::Run(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}
