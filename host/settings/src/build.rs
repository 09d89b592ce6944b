//! From matched rows to typed settings, verb by verb, with the checks that need more than one flag.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use sf_core::SamplingParams;
use sf_core::limits::{DRAIN_DEFAULT, MAX_BATCH_DEFAULT};

use crate::Env;
use crate::bench::bench;
use crate::convert::convert;
use crate::error::{Problem, UsageError, nearest};
use crate::pack::{inspect, pack};
use crate::parse::{Matches, asks_for_help, matches, texts};
use crate::runtime_options::RuntimeOptions;
use crate::scheduling::{default_class, scheduling};
use crate::settings::{
    Dialect, EngineSettings, HttpSettings, Invocation, KvBits, ListenAddress, LogSettings, ModelsSettings,
    Placement, RunSettings, RuntimeChoice, RuntimesSettings, SamplingSettings, Secret, ServeSettings, Shell,
    TextSettings, VerifySettings, Window,
};
use crate::value::address;
use crate::verbs::{VERBS, Verb, VerbRow, find};

pub(crate) fn invocation(
    args: &[OsString],
    env: Env<'_>,
    options: &dyn RuntimeOptions,
) -> Result<Invocation, UsageError> {
    let words = texts(args)?;
    match words.first() {
        None => return Err(no_verb()),
        Some(&("--help" | "-h")) => return Ok(Invocation::Help(None)),
        Some(&("--version" | "-V")) => return Ok(Invocation::Version),
        Some(_) => {}
    }
    let (row, taken) = find(&words).ok_or_else(|| unknown_verb(words[0]))?;
    let Some(verb) = row.verb else {
        let hint = "superfluid help lists what this build has";
        return Err(UsageError::hint(Problem::VerbNotYet { verb: row.name, about: row.about }, hint));
    };
    let words = &words[taken..];
    if asks_for_help(words) {
        return Ok(Invocation::Help(Some(verb)));
    }
    if verb == Verb::Help {
        return help_topic(words);
    }
    let matches = matches(verb, words, env, options)?;
    Ok(match verb {
        Verb::Serve => Invocation::Serve(Box::new(serve(&matches)?)),
        Verb::Run => Invocation::Run(Box::new(run(&matches)?)),
        Verb::Runtimes => Invocation::Runtimes(runtimes(&matches)?),
        Verb::Verify => Invocation::Verify(verify(&matches)?),
        Verb::Models => Invocation::Models(models(&matches)),
        Verb::Bench => Invocation::Bench(Box::new(bench(&matches, env, options)?)),
        Verb::Convert => Invocation::Convert(convert(&matches)?),
        Verb::Pack => Invocation::Pack(pack(&matches)?),
        Verb::Inspect => Invocation::Inspect(inspect(&matches)?),
        Verb::Completions => Invocation::Completions(shell(&matches)?),
        Verb::Man => none_left(verb, &matches.operands, 0).map(|()| Invocation::Man)?,
        Verb::Version => none_left(verb, &matches.operands, 0).map(|()| Invocation::Version)?,
        Verb::Help => unreachable!("answered above"),
    })
}

fn no_verb() -> UsageError {
    UsageError::hint(
        Problem::NoVerb,
        "superfluid serve <model> starts a server; superfluid help lists all verbs",
    )
}

fn unknown_verb(word: &str) -> UsageError {
    let near = nearest(word, VERBS.iter().map(|row| row.name));
    let hint = match near {
        _ if word.starts_with('-') => "the verb comes first: superfluid serve <model> [flags]".into(),
        Some(near) => format!("did you mean superfluid {near}?"),
        None if word.contains(['/', '.']) => format!("to serve a model: superfluid serve {word}"),
        None => "superfluid help lists all verbs".into(),
    };
    UsageError::hint(Problem::UnknownVerb { verb: word.into() }, hint)
}

fn help_topic(words: &[&str]) -> Result<Invocation, UsageError> {
    if words.is_empty() {
        return Ok(Invocation::Help(None));
    }
    match find(words) {
        Some((VerbRow { verb: Some(verb), .. }, taken)) if taken == words.len() => {
            Ok(Invocation::Help(Some(*verb)))
        }
        Some((VerbRow { verb: None, name, about, .. }, _)) => {
            Err(Problem::VerbNotYet { verb: name, about }.into())
        }
        Some((_, taken)) => {
            Err(Problem::ExtraArgument { verb: "help", value: words[taken].to_owned() }.into())
        }
        None => Err(unknown_verb(words[0])),
    }
}

fn serve(matches: &Matches) -> Result<ServeSettings, UsageError> {
    let models = matches.operands.clone();
    if models.is_empty() {
        let hint = "for example: superfluid serve ~/models/smol.gguf";
        return Err(UsageError::hint(Problem::Missing { verb: "serve", what: "a model" }, hint));
    }
    for (index, model) in models.iter().enumerate() {
        if model.is_empty() || models[..index].contains(model) {
            return Err(twice_or_empty("serve", model));
        }
    }
    let mut engine = engine(matches, &models)?;
    let mut notices = matches.notices.clone();
    if models.len() > 1 && engine.placement == Placement::InProcess {
        engine.placement = Placement::Worker;
        notices.push("several models: each gets its own worker process, despite --no-worker-process".into());
    }
    let offline = matches.on("offline").unwrap_or(false);
    let scheduling = scheduling(matches, engine.max_batch)?;
    let (sampling, http) = (sampling(matches), http(matches)?);
    let (text, logs) = (text(matches)?, logs(matches));
    Ok(ServeSettings { models, offline, engine, scheduling, sampling, http, text, logs, notices })
}

fn twice_or_empty(verb: &'static str, operand: &str) -> UsageError {
    match operand {
        "" => Problem::ExtraArgument { verb, value: String::new() }.into(),
        value => Problem::OperandTwice { value: value.into() }.into(),
    }
}

fn run(matches: &Matches) -> Result<RunSettings, UsageError> {
    let [model, prompt @ ..] = matches.operands.as_slice() else {
        let hint = "for example: superfluid run ~/models/smol.gguf \"Why is the sky blue?\"";
        return Err(UsageError::hint(Problem::Missing { verb: "run", what: "a model" }, hint));
    };
    if let [_, extra, ..] = prompt {
        let hint = "quote a prompt of several words";
        return Err(UsageError::hint(Problem::ExtraArgument { verb: "run", value: extra.clone() }, hint));
    }
    if model.is_empty() {
        return Err(twice_or_empty("run", model));
    }
    let mut engine = engine(matches, std::slice::from_ref(model))?;
    engine.max_batch = 1;
    Ok(RunSettings {
        model: model.clone(),
        prompt: prompt.first().cloned(),
        offline: matches.on("offline").unwrap_or(false),
        engine,
        sampling: sampling(matches),
        text: text(matches)?,
        logs: logs(matches),
        notices: matches.notices.clone(),
    })
}

fn runtimes(matches: &Matches) -> Result<RuntimesSettings, UsageError> {
    none_left(Verb::Runtimes, &matches.operands, 1)?;
    Ok(RuntimesSettings {
        model: matches.operands.first().cloned(),
        json: matches.on("json").unwrap_or(false),
        probe: matches.on("probe").unwrap_or(false),
        runtimes: matches.texts("runtime").into_iter().map(RuntimeChoice::read).collect(),
        logs: logs(matches),
    })
}

fn verify(matches: &Matches) -> Result<VerifySettings, UsageError> {
    none_left(Verb::Verify, &matches.operands, 1)?;
    let Some(path) = matches.operands.first().filter(|path| !path.is_empty()) else {
        let problem = Problem::Missing { verb: "runtimes verify", what: "the path of a runtime's library" };
        return Err(UsageError::hint(problem, "for example: superfluid runtimes verify ./libacme.so"));
    };
    Ok(VerifySettings {
        path: path.into(),
        model: matches.text("model").map(PathBuf::from),
        quick: matches.on("quick").unwrap_or(false),
        json: matches.on("json").unwrap_or(false),
        logs: logs(matches),
    })
}

fn models(matches: &Matches) -> ModelsSettings {
    ModelsSettings {
        paths: matches.operands.iter().map(PathBuf::from).collect(),
        model_dirs: matches.texts("model-dir").into_iter().map(PathBuf::from).collect(),
        json: matches.on("json").unwrap_or(false),
        check: matches.on("check").unwrap_or(false),
        runtimes: matches.texts("runtime").into_iter().map(RuntimeChoice::read).collect(),
        logs: logs(matches),
    }
}

fn shell(matches: &Matches) -> Result<Shell, UsageError> {
    none_left(Verb::Completions, &matches.operands, 1)?;
    match matches.operands.first().map(String::as_str) {
        Some("bash") => Ok(Shell::Bash),
        Some("zsh") => Ok(Shell::Zsh),
        Some("fish") => Ok(Shell::Fish),
        Some(other) => {
            let (flag, accepts) = ("the shell".into(), "one of bash, zsh, fish".into());
            Err(Problem::BadValue { flag, value: other.into(), accepts }.into())
        }
        None => Err(Problem::Missing { verb: "completions", what: "a shell: bash, zsh or fish" }.into()),
    }
}

fn none_left(verb: Verb, operands: &[String], taken: usize) -> Result<(), UsageError> {
    match operands.get(taken) {
        None => Ok(()),
        Some(extra) => Err(Problem::ExtraArgument { verb: verb.name(), value: extra.clone() }.into()),
    }
}

fn engine(matches: &Matches, models: &[String]) -> Result<EngineSettings, UsageError> {
    let runtimes: Vec<_> = matches.texts("runtime").into_iter().map(RuntimeChoice::read).collect();
    for (index, choice) in runtimes.iter().enumerate() {
        if runtimes[..index].iter().any(|earlier| earlier.model == choice.model) {
            let problem = Problem::GivenTwice {
                flag: match &choice.model {
                    Some(model) => format!("--runtime {model}="),
                    None => "--runtime for all models".into(),
                },
            };
            return Err(UsageError::hint(problem, "--runtime MODEL=ID chooses for one of several models"));
        }
        if let Some(model) = choice.model.as_ref().filter(|model| !models.contains(model)) {
            let hint = format!("write it as in the list of models: {}", models.join(", "));
            return Err(UsageError::hint(Problem::UnknownModel { model: model.clone() }, hint));
        }
    }
    Ok(EngineSettings {
        runtimes,
        runtime_options: matches.runtime.clone(),
        placement: match matches.on("worker-process") {
            None => Placement::Default,
            Some(true) => Placement::Worker,
            Some(false) => Placement::InProcess,
        },
        max_context: match (matches.int("max-context"), matches.word("max-context")) {
            (Some(positions), _) => Window::Exactly(positions),
            (None, Some(_)) => Window::Auto,
            (None, None) => Window::Default,
        },
        max_batch: matches.max_batch(),
        kv_bits: match matches.word("kv-bits") {
            Some("4") => KvBits::B4,
            Some("8") => KvBits::B8,
            Some("16") => KvBits::B16,
            Some("84") => KvBits::K8V4,
            _ => KvBits::Default,
        },
        threads: matches.int("threads"),
    })
}

impl Matches {
    fn max_batch(&self) -> u32 {
        match self.verb() {
            Verb::Serve => self.int("max-batch").unwrap_or(MAX_BATCH_DEFAULT),
            _ => 1,
        }
    }
}

fn sampling(matches: &Matches) -> SamplingSettings {
    let params = SamplingParams {
        temperature: matches.float("temperature"),
        // 0 keeps the likeliest token alone, as the smallest positive number does.
        top_p: matches.float("top-p").map(|p| p.max(f32::MIN_POSITIVE)),
        top_k: matches.int("top-k"),
        min_p: matches.float("min-p"),
        repeat_penalty: matches
            .float("repeat-penalty")
            .map(|penalty| if penalty == 0.0 { 1.0 } else { penalty }),
        ..SamplingParams::default()
    };
    SamplingSettings { params, max_tokens: matches.int("max-tokens") }
}

fn http(matches: &Matches) -> Result<HttpSettings, UsageError> {
    let (host, port) = matches.text("http").and_then(address).unwrap_or_else(|| {
        let port =
            matches.int("port").map_or(8453, |port| u16::try_from(port).expect("its row ends at 65535"));
        (matches.text("host").unwrap_or("127.0.0.1"), port)
    });
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(HttpSettings {
        listen: (matches.on("no-http") != Some(true)).then_some(ListenAddress { host, port }),
        api_key: matches.text("api-key").map(Secret::new),
        default_class: default_class(matches)?,
        qos_header: matches.on("no-http-qos-header") != Some(true),
        request_timeout: matches.int("request-timeout").map(|ms| Duration::from_millis(ms.into())),
        drain_timeout: matches.int("drain-timeout").map_or(DRAIN_DEFAULT, |s| Duration::from_secs(s.into())),
    })
}

fn text(matches: &Matches) -> Result<TextSettings, UsageError> {
    let dialect = match matches.word("dialect") {
        Some("template") => Dialect::Template,
        Some("chatml") => Dialect::Chatml,
        Some("raw") => Dialect::Raw,
        _ => Dialect::Auto,
    };
    let chat_template = matches.text("chat-template").map(PathBuf::from);
    if chat_template.is_some() && matches!(dialect, Dialect::Chatml | Dialect::Raw) {
        let first = format!("--dialect {}", matches.word("dialect").unwrap_or_default());
        let why = "that dialect uses no template";
        return Err(Problem::Contradiction { first, second: "--chat-template".into(), why }.into());
    }
    let wire = matches.text("tool-call-parser").filter(|name| *name != "auto").map(str::to_owned);
    Ok(TextSettings { dialect, chat_template, wire })
}

fn logs(matches: &Matches) -> LogSettings {
    let verbosity = matches.int("verbose").unwrap_or(0).min(9) as u8;
    LogSettings { filter: matches.text("log-filter").map(str::to_owned), verbosity }
}
