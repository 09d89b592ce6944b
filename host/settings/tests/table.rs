//! The table, the parser, the help and the specification hold together.

mod common;

use std::collections::BTreeSet;

use common::{invocation, options, parse_in};
use sf_settings::{
    FLAGS, Flag, Kind, RetiredValue, Shell, Status, VERBS, Verb, completions, help, manual, overview,
};

/// Every flag that the specification of `serve` names, as it spells them; toggles by their positive name.
const SPECIFIED: &str = "model model-dir idle-timeout offline pull-<option> runtime worker-process max-context \
    max-batch kv-bits temperature top-p top-k min-p repeat-penalty max-tokens http host port no-http api-key \
    key-policy rate-limit request-timeout drain-timeout nonstream-keepalive web web-origin files-max-bytes \
    files-expiry files-sweep sessions socket sessions-cache tool-lease-ms park park-lossy park-budget-gb \
    tick-decode-budget tick-target-ms prefill-budget starvation-ticks class-lanes http-default-qos \
    no-http-qos-header http-allow-batch-invariant pin-budget-pct pressure-high pressure-low os-pressure \
    prefix-blob-budget-mb speculate spec-draft-tokens spec-adaptive spec-min-yield spec-yield-rounds \
    spec-throughput-gate spec-gate-probe-tokens spec-min-speedup spec-gate-reprobe spec-gate-reprobe-max \
    spec-max-temperature spec-bitexact dspark-confidence fim-model fim-max-context fim-max-batch \
    completion-deadline-ms completion-rate completion-burst dialect chat-template tool-call-parser log-file log-dir \
    log-filter otlp-endpoint otlp-header otlp-service-name otlp-filter otlp-queue otlp-batch-ms otlp-timeout-ms \
    otlp-metrics otlp-interval-ms tui fleet fleet-listen fleet-auth fleet-policy fleet-pool-high \
    fleet-conns-per-node paged-kv prefix-cache continuous-batching prefix-cache-file prefix-cache-save-interval \
    files-dir media-dir prefill-chunk metallib gpu-wait-timeout-ms decode-replay paged-weights \
    no-paged-weights-retry no-baked-decode";

/// Ours, beyond the specification's table: engine threads, and the long name of `-v`.
const OURS: &[&str] = &["threads", "verbose"];

/// A value that a ready row accepts and that differs from its default.
fn sample(flag: &Flag) -> String {
    match flag.kind {
        _ if flag.name == "class-lanes" => "agent=1".into(),
        _ if flag.name == "http-default-qos" => "background".into(),
        Kind::Switch | Kind::Toggle | Kind::Count | Kind::Family => String::new(),
        Kind::Int { max, .. } => max.to_string(),
        Kind::Float { max, .. } => (max / 2.0).to_string(),
        Kind::Choice { words, .. } => words[words.len() - 1].into(),
        Kind::Address => "127.0.0.2:9".into(),
        Kind::Text | Kind::Path | Kind::Secret => "thing".into(),
    }
}

fn base(verb: Verb) -> Vec<String> {
    let mut words: Vec<String> = verb.name().split(' ').map(str::to_owned).collect();
    words.push("m.gguf".into());
    if verb == Verb::Convert {
        words.push("directory".into());
    }
    words
}

#[test]
fn every_specified_flag_is_in_the_table_and_nothing_else() {
    let serve: BTreeSet<&str> =
        FLAGS.iter().filter(|flag| flag.verbs.contains(&Verb::Serve)).map(|flag| flag.name).collect();
    let specified: BTreeSet<&str> = SPECIFIED.split_whitespace().chain(OURS.iter().copied()).collect();
    assert_eq!(serve, specified);
    assert!(FLAGS.iter().any(|flag| flag.alias == Some("max-batch-size") && flag.name == "max-batch"));
    assert!(FLAGS.iter().any(|flag| flag.short == Some('v')));
}

#[test]
fn every_ready_flag_changes_the_settings_of_each_of_its_verbs() {
    for flag in FLAGS.iter().filter(|flag| flag.status == Status::Ready) {
        for verb in flag.verbs {
            let mut base = base(*verb);
            let plain = parse_in(&base.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
            if flag.name == "url" {
                // A bench is for a model or for a server.
                base.pop();
            }
            let sample = sample(flag);
            let mut words = base.clone();
            words.push(format!("--{}", flag.name));
            if flag.takes_value() {
                words.push(sample.clone());
            }
            let given = parse_in(&words.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
            assert_ne!(given, plain, "{words:?}");

            let env = flag.env();
            let value = if flag.takes_value() { sample.as_str() } else { "1" };
            let words: Vec<&str> = base.iter().map(String::as_str).collect();
            let by_env = parse_in(&words, &[(&env, value)]).unwrap();
            if !(flag.name == "model" && *verb == Verb::Serve) {
                assert_eq!(by_env, given, "{env}");
            }
        }
    }
}

#[test]
fn every_flag_of_a_later_build_is_refused_by_name() {
    for flag in FLAGS.iter().filter(|flag| flag.status == Status::NotYet) {
        let spelled = format!("--{}", flag.name.replace("<option>", "token"));
        for words in [vec!["serve", "m.gguf", &spelled], vec!["serve", "m.gguf", &spelled, "1"]] {
            let refusal = parse_in(&words, &[]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{spelled} is not in this build yet: ")), "{refusal}");
        }
        if flag.kind != Kind::Family {
            let env = flag.env();
            let refusal = parse_in(&["serve", "m.gguf"], &[(&env, "1")]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{env} is not in this build yet: ")), "{refusal}");
        }
        if flag.kind == Kind::Toggle {
            let spelled = format!("--no-{}", flag.name);
            let refusal = parse_in(&["serve", "m.gguf", &spelled], &[]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{spelled} is not in this build yet: ")), "{refusal}");
        }
    }
}

#[test]
fn every_retired_flag_is_accepted_with_a_line_and_its_value_consumed() {
    for flag in FLAGS {
        let Status::Retired { replacement, value } = flag.status else { continue };
        let spelled = format!("--{}", flag.name);
        let mut words = vec!["serve", spelled.as_str()];
        words.extend(match value {
            RetiredValue::None => None,
            RetiredValue::Taken => Some("x"),
            RetiredValue::Number => Some("32"),
            RetiredValue::Ending(_) => Some("a.metallib"),
        });
        words.push("m.gguf");
        let sf_settings::Invocation::Serve(settings) = parse_in(&words, &[]).unwrap() else {
            panic!("{words:?}")
        };
        assert_eq!(settings.models, ["m.gguf"], "{words:?}");
        assert_eq!(settings.notices, [format!("{spelled} has no effect any more: {replacement}")]);
    }
}

#[test]
fn rows_are_well_formed() {
    for (index, flag) in FLAGS.iter().enumerate() {
        let twin = |other: &&Flag| {
            other.name == flag.name && other.verbs.iter().any(|verb| flag.verbs.contains(verb))
        };
        assert!(!FLAGS[..index].iter().any(|other| twin(&other)), "{} twice", flag.name);
        assert!(!flag.help.is_empty() && !flag.verbs.is_empty(), "{}", flag.name);
        if let (Kind::Int { min, max, .. }, Status::Ready) = (flag.kind, flag.status) {
            assert!(0 <= min && min < max && max <= u32::MAX.into(), "{}", flag.name);
        }
    }
}

#[test]
fn help_shows_every_flag_of_a_verb_within_100_columns() {
    let options = options();
    for row in VERBS {
        let Some(verb) = row.verb else { continue };
        let text = help(verb, &options);
        for flag in FLAGS.iter().filter(|flag| flag.verbs.contains(&verb)) {
            let positive = format!("--{}", flag.name);
            let toggle = format!("--[no-]{}", flag.name);
            assert!(
                text.contains(&positive) || text.contains(&toggle),
                "{} in help of {}",
                flag.name,
                row.name
            );
        }
        for line in text.lines().chain(overview().lines()) {
            assert!(line.chars().count() <= 100, "{line}");
            assert_eq!(line, line.trim_end());
        }
        for example in row.examples {
            assert!(text.contains(example));
        }
    }
}

#[test]
fn examples_in_help_parse() {
    for example in VERBS.iter().flat_map(|row| row.examples) {
        let line = example.split([';', '|', '>']).next().unwrap().replace("\"$KEY\"", "key");
        let line = line.replace("\"Why is the sky blue?\"", "Why?").replace("superfluid ", "");
        assert!(invocation(&line).is_ok(), "{example}: {:?}", invocation(&line));
    }
}

#[test]
fn completions_and_manual_name_every_ready_flag_and_parse_as_shell() {
    let options = options();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = completions(shell, &options);
        for flag in FLAGS.iter().filter(|flag| flag.status == Status::Ready) {
            let long =
                if shell == Shell::Fish { format!("-l {}", flag.name) } else { format!("--{}", flag.name) };
            assert!(script.contains(&long), "{shell:?} {}", flag.name);
        }
        assert!(script.contains("llamacpp-ubatch-size"));
        assert!(!script.contains("otlp"), "a completion offers nothing that is refused");
    }
    let script = completions(Shell::Bash, &options);
    let bash = std::process::Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    let manual = manual();
    for flag in FLAGS {
        assert!(manual.contains(&flag.name.replace('-', "\\-")), "{}", flag.name);
    }
}

#[test]
fn the_bash_script_completes_flags_words_and_verbs() {
    let script = completions(Shell::Bash, &options());
    let complete = |words: &str, index: usize| {
        let driver = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={index}; _superfluid; echo \"${{COMPREPLY[@]}}\""
        );
        let output = std::process::Command::new("bash").args(["-c", &driver]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("superfluid ser", 1), "serve");
    assert_eq!(complete("superfluid serve m.gguf --max-b", 3), "--max-batch --max-batch-size");
    assert_eq!(complete("superfluid serve --kv-bits 8", 3), "8 84");
    assert_eq!(complete("superfluid runtimes verify --qu", 3), "--quick");
    assert_eq!(complete("superfluid serve --llamacpp-u", 2), "--llamacpp-ubatch-size");
}
