//! Every kind of refusal, as it reads.

mod common;

use common::{invocation, parse_in};
use expect_test::{Expect, expect};

fn check(lines: &[&str], expect: &Expect) {
    let mut text = String::new();
    for line in lines {
        let refusal = invocation(line).expect_err(line);
        text.push_str(&format!("$ superfluid {line}\n{refusal}\n"));
    }
    expect.assert_eq(&text);
}

#[test]
fn verbs() {
    check(
        &[
            "",
            "serv m",
            "model.gguf",
            "--port 80",
            "pull",
            "runtimes install x",
            "bench",
            "help fleet",
            "xyzzy",
        ],
        &expect![[r#"
            $ superfluid 
            no verb (usage.no_verb)
              hint: superfluid serve <model> starts a server; superfluid help lists all verbs
            $ superfluid serv m
            serv is not a verb of superfluid (usage.unknown_verb)
              hint: did you mean superfluid serve?
            $ superfluid model.gguf
            model.gguf is not a verb of superfluid (usage.unknown_verb)
              hint: to serve a model: superfluid serve model.gguf
            $ superfluid --port 80
            --port is not a verb of superfluid (usage.unknown_verb)
              hint: the verb comes first: superfluid serve <model> [flags]
            $ superfluid pull
            superfluid pull is not in this build yet: fetch a model by id (usage.not_yet)
              hint: superfluid help lists what this build has
            $ superfluid runtimes install x
            superfluid runtimes install is not in this build yet: put a runtime into your catalog (usage.not_yet)
              hint: superfluid help lists what this build has
            $ superfluid bench
            superfluid bench needs a model to serve, or the --url of a server (usage.missing)
              hint: for example: superfluid bench --url http://127.0.0.1:8453 --clients 8
            $ superfluid help fleet
            superfluid fleet is not in this build yet: several nodes as one server (usage.not_yet)
            $ superfluid xyzzy
            xyzzy is not a verb of superfluid (usage.unknown_verb)
              hint: superfluid help lists all verbs
        "#]],
    );
}

#[test]
fn unknown_flags_offer_the_nearest() {
    check(
        &[
            "serve m --prot 80",
            "serve m --max-bach=3",
            "serve m --no-worker-proces",
            "serve m --llamacpp-ubatchsize 5",
            "serve m --llamacpp-zzz 5",
            "serve m --json",
            "runtimes --port 80",
            "serve m -x",
            "run m --something-else",
        ],
        &expect![[r#"
            $ superfluid serve m --prot 80
            --prot is not a flag of superfluid serve (usage.unknown_flag)
              hint: did you mean --port?
            $ superfluid serve m --max-bach=3
            --max-bach is not a flag of superfluid serve (usage.unknown_flag)
              hint: did you mean --max-batch?
            $ superfluid serve m --no-worker-proces
            --no-worker-proces is not a flag of superfluid serve (usage.unknown_flag)
              hint: did you mean --no-worker-process?
            $ superfluid serve m --llamacpp-ubatchsize 5
            --llamacpp-ubatchsize is not a flag of superfluid serve (usage.unknown_flag)
              hint: did you mean --llamacpp-ubatch-size?
            $ superfluid serve m --llamacpp-zzz 5
            --llamacpp-zzz is not a flag of superfluid serve (usage.unknown_flag)
              hint: superfluid help serve lists them all; a runtime's own options are known once superfluid runtimes shows it
            $ superfluid serve m --json
            --json is not a flag of superfluid serve (usage.unknown_flag)
              hint: it is a flag of superfluid bench and superfluid runtimes and superfluid runtimes verify and superfluid models and superfluid convert and superfluid pack and superfluid inspect
            $ superfluid runtimes --port 80
            --port is not a flag of superfluid runtimes (usage.unknown_flag)
              hint: it is a flag of superfluid serve
            $ superfluid serve m -x
            -x is not a flag of superfluid serve (usage.unknown_flag)
              hint: superfluid help serve lists them all; a runtime's own options are known once superfluid runtimes shows it
            $ superfluid run m --something-else
            --something-else is not a flag of superfluid run (usage.unknown_flag)
              hint: superfluid help run lists them all; a runtime's own options are known once superfluid runtimes shows it
        "#]],
    );
}

#[test]
fn values() {
    check(
        &[
            "serve m --port",
            "serve m --port --host x",
            "serve m --port 65536",
            "serve m --port=eighty",
            "serve m --port=",
            "serve m --temperature 2.1",
            "serve m --temperature nan",
            "serve m --top-p -0.1",
            "serve m --max-context 511",
            "serve m --max-context all",
            "serve m --kv-bits 7",
            "serve m --dialect atem",
            "serve m --dialect jinja",
            "serve m --http localhost",
            "serve m --http ::1:80",
            "serve m --offline=yes",
            "serve m --max-batch 0",
            "serve m --max-batch-size 257",
            "serve m --llamacpp-ubatch-size",
            "completions tcsh",
        ],
        &expect![[r#"
            $ superfluid serve m --port
            --port needs a value: a whole number from 0 to 65535 (usage.no_value)
            $ superfluid serve m --port --host x
            --port needs a value: a whole number from 0 to 65535 (usage.no_value)
            $ superfluid serve m --port 65536
            --port is "65536"; accepted is a whole number from 0 to 65535 (usage.bad_value)
            $ superfluid serve m --port=eighty
            --port is "eighty"; accepted is a whole number from 0 to 65535 (usage.bad_value)
            $ superfluid serve m --port=
            --port is ""; accepted is a whole number from 0 to 65535 (usage.bad_value)
            $ superfluid serve m --temperature 2.1
            --temperature is "2.1"; accepted is a number from 0 to 2 (usage.bad_value)
            $ superfluid serve m --temperature nan
            --temperature is "nan"; accepted is a number from 0 to 2 (usage.bad_value)
            $ superfluid serve m --top-p -0.1
            --top-p is "-0.1"; accepted is a number from 0 to 1 (usage.bad_value)
            $ superfluid serve m --max-context 511
            --max-context is "511"; accepted is a whole number from 512 to 16777216, or auto (usage.bad_value)
            $ superfluid serve m --max-context all
            --max-context is "all"; accepted is a whole number from 512 to 16777216, or auto (usage.bad_value)
            $ superfluid serve m --kv-bits 7
            --kv-bits is "7"; accepted is one of 0, 4, 8, 16, 84 (usage.bad_value)
            $ superfluid serve m --dialect atem
            --dialect atem is not in this build yet (usage.not_yet)
            $ superfluid serve m --dialect jinja
            --dialect is "jinja"; accepted is one of auto, template, chatml, raw (usage.bad_value)
            $ superfluid serve m --http localhost
            --http is "localhost"; accepted is HOST:PORT, e.g. 127.0.0.1:8453 or [::1]:8453 (usage.bad_value)
            $ superfluid serve m --http ::1:80
            --http is "::1:80"; accepted is HOST:PORT, e.g. 127.0.0.1:8453 or [::1]:8453 (usage.bad_value)
            $ superfluid serve m --offline=yes
            --offline takes no value, and got "yes" (usage.value_not_taken)
            $ superfluid serve m --max-batch 0
            --max-batch is "0"; accepted is a whole number from 1 to 256 (usage.bad_value)
            $ superfluid serve m --max-batch-size 257
            --max-batch-size is "257"; accepted is a whole number from 1 to 256 (usage.bad_value)
            $ superfluid serve m --llamacpp-ubatch-size
            --llamacpp-ubatch-size needs a value: 1 to 4096 (usage.no_value)
            $ superfluid completions tcsh
            the shell is "tcsh"; accepted is one of bash, zsh, fish (usage.bad_value)
        "#]],
    );
}

#[test]
fn repetitions_and_contradictions() {
    check(
        &[
            "serve m --port 1 --port 1",
            "serve m --max-batch 1 --max-batch-size 2",
            "serve m --offline --offline",
            "serve m m",
            "serve m --llamacpp-ubatch-size 1 --llamacpp-ubatch-size=2",
            "serve m --runtime a --runtime b",
            "serve m --runtime m=a --runtime m=b",
            "serve m --runtime n=a",
            "serve m --worker-process --no-worker-process",
            "serve m --no-http --port 80",
            "serve m --http 1.2.3.4:5 --host x",
            "serve m --dialect raw --chat-template t.jinja",
        ],
        &expect![[r#"
            $ superfluid serve m --port 1 --port 1
            --port is given twice (usage.given_twice)
            $ superfluid serve m --max-batch 1 --max-batch-size 2
            --max-batch-size is given twice (usage.given_twice)
            $ superfluid serve m --offline --offline
            --offline is given twice (usage.given_twice)
            $ superfluid serve m m
            "m" is given twice (usage.given_twice)
            $ superfluid serve m --llamacpp-ubatch-size 1 --llamacpp-ubatch-size=2
            --llamacpp-ubatch-size is given twice (usage.given_twice)
            $ superfluid serve m --runtime a --runtime b
            --runtime for all models is given twice (usage.given_twice)
              hint: --runtime MODEL=ID chooses for one of several models
            $ superfluid serve m --runtime m=a --runtime m=b
            --runtime m= is given twice (usage.given_twice)
              hint: --runtime MODEL=ID chooses for one of several models
            $ superfluid serve m --runtime n=a
            --runtime names the model "n", which is not among the models given (usage.unknown_model)
              hint: write it as in the list of models: m
            $ superfluid serve m --worker-process --no-worker-process
            --worker-process contradicts --no-worker-process: they are opposites (usage.contradiction)
            $ superfluid serve m --no-http --port 80
            --no-http contradicts --port: there is nothing to listen on (usage.contradiction)
            $ superfluid serve m --http 1.2.3.4:5 --host x
            --http contradicts --host: --http already names the host (usage.contradiction)
            $ superfluid serve m --dialect raw --chat-template t.jinja
            --dialect raw contradicts --chat-template: that dialect uses no template (usage.contradiction)
        "#]],
    );
}

#[test]
fn missing_and_extra_arguments() {
    check(
        &[
            "serve",
            "run",
            "run m two words",
            "runtimes a b",
            "runtimes verify",
            "completions",
            "man x",
            "version x",
        ],
        &expect![[r#"
            $ superfluid serve
            superfluid serve needs a model (usage.missing)
              hint: for example: superfluid serve ~/models/smol.gguf
            $ superfluid run
            superfluid run needs a model (usage.missing)
              hint: for example: superfluid run ~/models/smol.gguf "Why is the sky blue?"
            $ superfluid run m two words
            superfluid run takes no argument "words" (usage.extra_argument)
              hint: quote a prompt of several words
            $ superfluid runtimes a b
            superfluid runtimes takes no argument "b" (usage.extra_argument)
            $ superfluid runtimes verify
            superfluid runtimes verify needs the path of a runtime's library (usage.missing)
              hint: for example: superfluid runtimes verify ./libacme.so
            $ superfluid completions
            superfluid completions needs a shell: bash, zsh or fish (usage.missing)
            $ superfluid man x
            superfluid man takes no argument "x" (usage.extra_argument)
            $ superfluid version x
            superfluid version takes no argument "x" (usage.extra_argument)
        "#]],
    );
}

#[test]
fn later_flags() {
    check(
        &["serve m --park", "serve m --no-tui", "serve m --pull-token x", "run m --speculate auto"],
        &expect![[r#"
            $ superfluid serve m --park
            --park is not in this build yet: park idle KV on disk (usage.not_yet)
              hint: leave it out; --help lists what this build takes
            $ superfluid serve m --no-tui
            --no-tui is not in this build yet: show the dashboard (usage.not_yet)
              hint: leave it out; --help lists what this build takes
            $ superfluid serve m --pull-token x
            --pull-token is not in this build yet: passed to the puller of a model given by id (usage.not_yet)
              hint: leave it out; --help lists what this build takes
            $ superfluid run m --speculate auto
            --speculate is not in this build yet: draft tokens (usage.not_yet)
              hint: leave it out; --help lists what this build takes
        "#]],
    );
}

#[test]
fn variables_are_refused_under_their_own_name() {
    let refusal =
        |name: &str, value: &str| parse_in(&["serve", "m"], &[(name, value)]).unwrap_err().to_string();
    let text = [
        refusal("SUPERFLUID_PORT", "eighty"),
        refusal("SUPERFLUID_OFFLINE", "maybe"),
        refusal("SUPERFLUID_SESSIONS", "/x"),
    ]
    .join("\n");
    expect![[r#"
        SUPERFLUID_PORT is "eighty"; accepted is a whole number from 0 to 65535 (usage.bad_value)
        SUPERFLUID_OFFLINE is "maybe"; accepted is on or off (usage.bad_value)
        SUPERFLUID_SESSIONS is not in this build yet: directory of durable sessions (usage.not_yet)
          hint: leave it out; --help lists what this build takes"#]]
    .assert_eq(&text);
}

#[test]
fn a_refused_key_is_not_shown() {
    for value in ["two words", "", "umläut"] {
        let refusal = parse_in(&["serve", "m", "--api-key", value], &[]).unwrap_err();
        assert!(value.is_empty() || !format!("{refusal} {refusal:?}").contains(value));
    }
    let refusal = parse_in(&["serve", "m", "--api-key", "hunter2", "--api-key", "hunter3"], &[]).unwrap_err();
    expect!["--api-key is given twice (usage.given_twice)"].assert_eq(&refusal.to_string());
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf8_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let args = [std::ffi::OsString::from("serve"), std::ffi::OsString::from_vec(vec![b'a', 0xff])];
    let refusal = sf_settings::parse(&args, &|_| None, &common::options()).unwrap_err();
    expect![[r#"argument "a�" is not UTF-8 (usage.not_utf8)"#]].assert_eq(&refusal.to_string());
}

#[test]
fn scheduling() {
    check(
        &[
            "serve m --tick-decode-budget 7",
            "serve m --max-batch 4 --tick-decode-budget 3",
            "serve m --tick-target-ms 0",
            "serve m --prefill-budget 63",
            "serve m --prefill-budget 4097",
            "serve m --starvation-ticks 0",
            "serve m --class-lanes background",
            "serve m --class-lanes nobody=1",
            "serve m --class-lanes agent=0",
            "serve m --max-batch 4 --class-lanes agent=2,background=5",
            "serve m --class-lanes agent=2,2=3",
            "serve m --class-lanes agent=2,",
            "serve m --http-default-qos urgent",
            "serve m --no-http --http-default-qos agent",
            "serve m --http-allow-batch-invariant",
            "serve m --pin-budget-pct 101",
            "serve m --pressure-high 60 --pressure-low 61",
            "serve m --os-pressure --no-os-pressure",
            "serve m --prefix-blob-budget-mb -1",
        ],
        &expect![[r#"
            $ superfluid serve m --tick-decode-budget 7
            --tick-decode-budget is "7"; accepted is a whole number from 8 (--max-batch) on (usage.bad_value)
            $ superfluid serve m --max-batch 4 --tick-decode-budget 3
            --tick-decode-budget is "3"; accepted is a whole number from 4 (--max-batch) on (usage.bad_value)
            $ superfluid serve m --tick-target-ms 0
            --tick-target-ms is "0"; accepted is a whole number from 1 to 10000 (usage.bad_value)
            $ superfluid serve m --prefill-budget 63
            --prefill-budget is "63"; accepted is a whole number from 64 to 4096, or 0 (usage.bad_value)
            $ superfluid serve m --prefill-budget 4097
            --prefill-budget is "4097"; accepted is a whole number from 0 to 4096 (usage.bad_value)
            $ superfluid serve m --starvation-ticks 0
            --starvation-ticks is "0"; accepted is a whole number from 1 to 65535 (usage.bad_value)
            $ superfluid serve m --class-lanes background
            --class-lanes is "background"; accepted is class=N,...; "background" has no = (usage.bad_value)
            $ superfluid serve m --class-lanes nobody=1
            --class-lanes is "nobody=1"; accepted is interactive (0), completion (1), agent (2) or background (3) before each =; "nobody" is none (usage.bad_value)
            $ superfluid serve m --class-lanes agent=0
            --class-lanes is "agent=0"; accepted is 1 to 8 (--max-batch) for each class; agent has "0" (usage.bad_value)
            $ superfluid serve m --max-batch 4 --class-lanes agent=2,background=5
            --class-lanes is "agent=2,background=5"; accepted is 1 to 4 (--max-batch) for each class; background has "5" (usage.bad_value)
            $ superfluid serve m --class-lanes agent=2,2=3
            --class-lanes is "agent=2,2=3"; accepted is each class once; agent is named twice (usage.bad_value)
            $ superfluid serve m --class-lanes agent=2,
            --class-lanes is "agent=2,"; accepted is class=N,...; "" has no = (usage.bad_value)
            $ superfluid serve m --http-default-qos urgent
            --http-default-qos is "urgent"; accepted is interactive (0), completion (1), agent (2) or background (3) (usage.bad_value)
            $ superfluid serve m --no-http --http-default-qos agent
            --no-http contradicts --http-default-qos: there is nothing to listen on (usage.contradiction)
            $ superfluid serve m --http-allow-batch-invariant
            --http-allow-batch-invariant is not in this build yet: let clients ask for batch-invariant answers (usage.not_yet)
              hint: leave it out; --help lists what this build takes
            $ superfluid serve m --pin-budget-pct 101
            --pin-budget-pct is "101"; accepted is a whole number from 0 to 100 (usage.bad_value)
            $ superfluid serve m --pressure-high 60 --pressure-low 61
            --pressure-low 61 contradicts --pressure-high 60: dropping cannot end above the share at which it begins (usage.contradiction)
            $ superfluid serve m --os-pressure --no-os-pressure
            --os-pressure contradicts --no-os-pressure: they are opposites (usage.contradiction)
            $ superfluid serve m --prefix-blob-budget-mb -1
            --prefix-blob-budget-mb is "-1"; accepted is a whole number from 0 to 1048576 (usage.bad_value)
        "#]],
    );
}

#[test]
fn a_conversion_needs_a_model_and_a_directory() {
    check(
        &[
            "convert",
            "convert smol.gguf",
            "convert smol.gguf smol other",
            "convert smol.gguf smol --bits 7",
            "convert smol.gguf smol --group 16 --bits 4",
            "convert smol.gguf smol --plain f64",
            "convert smol.gguf smol --bits",
            "convert smol.gguf smol --bit 4",
            "convert smol.gguf smol --port 80",
        ],
        &expect![[r#"
            $ superfluid convert
            superfluid convert needs a model and a directory (usage.missing)
              hint: for example: superfluid convert smol.gguf ~/models/smol --bits 4
            $ superfluid convert smol.gguf
            superfluid convert needs a directory for the result (usage.missing)
              hint: for example: superfluid convert smol.gguf ~/models/smol --bits 4
            $ superfluid convert smol.gguf smol other
            superfluid convert takes no argument "other" (usage.extra_argument)
            $ superfluid convert smol.gguf smol --bits 7
            --bits is "7"; accepted is one of 2, 3, 4, 5, 6, 8 (usage.bad_value)
            $ superfluid convert smol.gguf smol --group 16 --bits 4
            --group is "16"; accepted is one of 32, 64, 128 (usage.bad_value)
            $ superfluid convert smol.gguf smol --plain f64
            --plain is "f64"; accepted is one of f32, f16, bf16 (usage.bad_value)
            $ superfluid convert smol.gguf smol --bits
            --bits needs a value: one of 2, 3, 4, 5, 6, 8 (usage.no_value)
            $ superfluid convert smol.gguf smol --bit 4
            --bit is not a flag of superfluid convert (usage.unknown_flag)
              hint: did you mean --bits?
            $ superfluid convert smol.gguf smol --port 80
            --port is not a flag of superfluid convert (usage.unknown_flag)
              hint: it is a flag of superfluid serve
        "#]],
    );
}

#[test]
fn a_bundle_needs_a_model() {
    check(
        &[
            "pack",
            "pack smol.gguf smol.base",
            "pack smol.gguf -o",
            "pack smol.gguf --profile q5",
            "pack smol.gguf --bits 4",
            "inspect",
            "inspect a.base b.base",
            "inspect a.base --tensor",
        ],
        &expect![[r#"
            $ superfluid pack
            superfluid pack needs a model (usage.missing)
              hint: for example: superfluid pack smol.gguf -o smol.base; the bundle's file follows -o
            $ superfluid pack smol.gguf smol.base
            superfluid pack takes no argument "smol.base" (usage.extra_argument)
              hint: for example: superfluid pack smol.gguf -o smol.base; the bundle's file follows -o
            $ superfluid pack smol.gguf -o
            -o needs a value: a path (usage.no_value)
            $ superfluid pack smol.gguf --profile q5
            --profile is "q5"; accepted is one of keep, q4, q8, f16 (usage.bad_value)
            $ superfluid pack smol.gguf --bits 4
            --bits is not a flag of superfluid pack (usage.unknown_flag)
              hint: it is a flag of superfluid convert
            $ superfluid inspect
            superfluid inspect needs a model (usage.missing)
              hint: for example: superfluid inspect smol.gguf
            $ superfluid inspect a.base b.base
            superfluid inspect takes no argument "b.base" (usage.extra_argument)
              hint: for example: superfluid inspect smol.gguf
            $ superfluid inspect a.base --tensor
            --tensor is not a flag of superfluid inspect (usage.unknown_flag)
              hint: did you mean --tensors?
        "#]],
    );
}
