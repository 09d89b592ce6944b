//! What accepted command lines mean.

mod common;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use common::{invocation, parse_in, run, serve, serve_in};
use sf_core::QosClass;
use sf_settings::{
    Dialect, Invocation, KvBits, ListenAddress, Placement, RuntimeFlag, RuntimeRef, Verb, Window,
    explicit_runtimes,
};

#[test]
fn defaults_are_those_of_the_specification() {
    let settings = serve("serve m.gguf");
    assert_eq!(settings.models, ["m.gguf"]);
    assert_eq!(settings.http.listen, Some(ListenAddress { host: "127.0.0.1".into(), port: 8453 }));
    assert_eq!(settings.http.drain_timeout, Duration::from_secs(60));
    assert_eq!(settings.http.request_timeout, None);
    assert_eq!((settings.engine.max_batch, settings.engine.max_context), (8, Window::Default));
    assert_eq!((settings.engine.placement, settings.engine.kv_bits), (Placement::Default, KvBits::Default));
    assert_eq!(settings.text.dialect, Dialect::Auto);
    assert!(settings.notices.is_empty() && !settings.offline);
}

#[test]
fn models_are_bare_arguments_and_model_flags_in_the_order_given() {
    check_models(
        "serve a.gguf --model b.gguf c.gguf --model=d.gguf",
        &["a.gguf", "b.gguf", "c.gguf", "d.gguf"],
    );
    check_models("serve -- --odd.gguf", &["--odd.gguf"]);
    check_models("serve --port 1 a", &["a"]);
}

fn check_models(line: &str, models: &[&str]) {
    assert_eq!(serve(line).models, models, "{line}");
}

#[test]
fn flags_win_over_variables_and_variables_over_defaults() {
    let env = [("SUPERFLUID_PORT", "9"), ("SUPERFLUID_MAX_BATCH", "3"), ("SUPERFLUID_HOST", "")];
    let settings = serve_in("serve m --port=10", &env);
    assert_eq!(settings.http.listen.unwrap().to_string(), "127.0.0.1:10");
    assert_eq!(settings.engine.max_batch, 3);
    let opposite = serve_in("serve m --no-worker-process", &[("SUPERFLUID_WORKER_PROCESS", "on")]);
    assert_eq!(opposite.engine.placement, Placement::InProcess);
    let overruled = serve_in("serve m --http [::1]:7", &[("SUPERFLUID_PORT", "9")]);
    assert_eq!(overruled.http.listen.unwrap().to_string(), "[::1]:7");
    assert_eq!(serve_in("serve a", &[("SUPERFLUID_MODEL", "b")]).models, ["a"]);
    assert_eq!(serve_in("serve", &[("SUPERFLUID_MODEL", "b")]).models, ["b"]);
}

#[test]
fn runtime_options_are_collected_with_their_runtime() {
    let flag = |key: &str, value: &str| RuntimeFlag {
        runtime: "llamacpp".into(),
        key: key.into(),
        value: value.into(),
    };
    let given = |line: &str| serve(line).engine.runtime_options;
    assert_eq!(given("serve m --llamacpp-ubatch-size 512"), [flag("ubatch-size", "512")]);
    assert_eq!(given("serve m --llamacpp-ubatch-size=-1"), [flag("ubatch-size", "-1")]);
    assert_eq!(given("serve --llamacpp-flash-attn m"), [flag("flash-attn", "on")]);
    assert_eq!(given("serve --llamacpp-flash-attn off m"), [flag("flash-attn", "off")]);
    let by_env = serve_in("serve m", &[("SUPERFLUID_ACME_FLASH_MODE", "fast")]).engine.runtime_options;
    assert_eq!(
        by_env,
        [RuntimeFlag { runtime: "acme.flash".into(), key: "mode".into(), value: "fast".into() }]
    );
}

#[test]
fn a_runtime_is_named_by_id_or_path_for_all_models_or_one() {
    let engine = serve("serve a.gguf b.gguf --runtime llamacpp --runtime b.gguf=./libacme.so").engine;
    assert_eq!(engine.runtime_for("a.gguf"), Some(&RuntimeRef::Id("llamacpp".into())));
    assert_eq!(engine.runtime_for("b.gguf"), Some(&RuntimeRef::Path("./libacme.so".into())));
    assert_eq!(serve("serve a.gguf").engine.runtime_for("a.gguf"), None);
}

#[test]
fn explicit_runtimes_are_found_before_anything_is_judged() {
    let find = |words: &[&str], env: Option<&str>| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let env = env.map(str::to_owned);
        explicit_runtimes(&words, &|name| env.clone().filter(|_| name == "SUPERFLUID_RUNTIME"))
            .into_iter()
            .map(|choice| choice.runtime)
            .collect::<Vec<_>>()
    };
    let paths =
        find(&["serve", "--bogus", "--runtime", "/x/libacme.so", "--runtime=m=llamacpp", "--runtimes"], None);
    assert_eq!(paths, [RuntimeRef::Path("/x/libacme.so".into()), RuntimeRef::Id("llamacpp".into())]);
    assert_eq!(find(&["serve", "m"], Some("/y/runtime.json")), [RuntimeRef::Path("/y/runtime.json".into())]);
    assert_eq!(find(&["serve", "--", "--runtime", "/x"], None), []);
}

#[test]
fn several_models_turn_the_worker_on_and_say_so() {
    let settings = serve("serve a b --no-worker-process");
    assert_eq!(settings.engine.placement, Placement::Worker);
    assert_eq!(
        settings.notices,
        ["several models: each gets its own worker process, despite --no-worker-process"]
    );
}

#[test]
fn edges_of_sampling_have_a_meaning() {
    let sampling =
        run("run m hi --temperature 0 --top-p 0 --repeat-penalty 0 --top-k 0 --max-tokens 5").sampling;
    assert_eq!(sampling.params.temperature, Some(0.0));
    assert_eq!(sampling.params.top_p, Some(f32::MIN_POSITIVE));
    assert_eq!(sampling.params.repeat_penalty, Some(1.0));
    assert_eq!((sampling.params.top_k, sampling.max_tokens), (Some(0), Some(5)));
}

#[test]
fn v_counts() {
    let verbosity = |line: &str| serve(line).logs.verbosity;
    assert_eq!(verbosity("serve m"), 0);
    assert_eq!(verbosity("serve m -v"), 1);
    assert_eq!(verbosity("serve m -vv --verbose"), 3);
    assert_eq!(verbosity("serve m -vvvvvvvvvvvvvv"), 9);
}

#[test]
fn kv_bits_name_their_wire_types() {
    let types = |line: &str| serve(line).engine.kv_bits.types();
    assert_eq!(types("serve m --kv-bits 84"), Some(("q8_0", "q4_0")));
    assert_eq!(types("serve m --kv-bits 8"), Some(("q8_0", "q8_0")));
    assert_eq!(types("serve m --kv-bits 0"), None);
}

#[test]
fn run_takes_a_prompt_and_one_lane() {
    let settings = match parse_in(&["run", "m.gguf", "two words"], &[]).unwrap() {
        Invocation::Run(settings) => *settings,
        other => panic!("{other:?}"),
    };
    assert_eq!((settings.prompt.as_deref(), settings.engine.max_batch), (Some("two words"), 1));
    assert_eq!(run("run m.gguf").prompt, None);
}

#[test]
fn verbs_of_two_words_and_help_are_told_apart() {
    assert!(matches!(invocation("runtimes"), Ok(Invocation::Runtimes(s)) if s.model.is_none()));
    let models = invocation("models a b.gguf --model-dir c --model-dir d --check");
    let Ok(Invocation::Models(models)) = models else { panic!("{models:?}") };
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(&models.paths).join(" "), names(&models.model_dirs).join(" ")),
        ("a b.gguf".into(), "c d".into())
    );
    assert!(models.check && !models.json);
    assert!(matches!(invocation("runtimes m.gguf --json"), Ok(Invocation::Runtimes(s)) if s.json));
    assert!(matches!(invocation("runtimes verify x.so --quick"), Ok(Invocation::Verify(s)) if s.quick));
    for (line, topic) in [
        ("--help", None),
        ("help", None),
        ("help runtimes verify", Some(Verb::Verify)),
        ("serve --bogus --help", Some(Verb::Serve)),
        ("run -h", Some(Verb::Run)),
    ] {
        assert_eq!(invocation(line), Ok(Invocation::Help(topic)), "{line}");
    }
    assert_eq!(invocation("--version"), Ok(Invocation::Version));
    assert_eq!(invocation("version"), Ok(Invocation::Version));
}

#[test]
fn a_key_never_shows_in_debug_output() {
    let settings = serve("serve m --api-key hunter2");
    assert_eq!(settings.http.api_key.as_ref().unwrap().reveal(), "hunter2");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn loopback_is_told_from_reachable_addresses() {
    for (host, loopback) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("localhost", true),
        ("::1", true),
        ("0.0.0.0", false),
        ("box", false),
    ] {
        assert_eq!(ListenAddress { host: host.into(), port: 1 }.is_loopback(), loopback, "{host}");
    }
}

#[test]
fn scheduling_has_the_defaults_of_the_specification() {
    let settings = serve("serve m --max-batch 4");
    let scheduling = settings.scheduling;
    assert_eq!((scheduling.tick_decode_budget, scheduling.tick_target), (128, Duration::from_millis(250)));
    assert_eq!((scheduling.prefill_budget, scheduling.starvation_ticks), (None, 8));
    assert_eq!((scheduling.class_lanes, scheduling.pin_budget_pct), ([4; 4], 50));
    assert_eq!((scheduling.pressure_low_pct, scheduling.pressure_high_pct), (70, 85));
    assert_eq!((scheduling.os_pressure, scheduling.prefix_blob_budget_mb), (None, 1024));
    assert_eq!((settings.http.default_class, settings.http.qos_header), (QosClass::Agent, true));
}

#[test]
fn scheduling_flags_mean_what_they_say() {
    let settings = serve(
        "serve m --tick-decode-budget 64 --tick-target-ms 20 --prefill-budget 64 --starvation-ticks 3 \
         --class-lanes background=2,Agent-Loop=6 --http-default-qos 1 --no-http-qos-header --pin-budget-pct 0 \
         --no-os-pressure --prefix-blob-budget-mb 0",
    );
    let scheduling = settings.scheduling;
    assert_eq!((scheduling.tick_decode_budget, scheduling.tick_target), (64, Duration::from_millis(20)));
    assert_eq!((scheduling.prefill_budget, scheduling.starvation_ticks), (Some(64), 3));
    assert_eq!((scheduling.class_lanes, scheduling.pin_budget_pct), ([8, 8, 6, 2], 0));
    assert_eq!((scheduling.os_pressure, scheduling.prefix_blob_budget_mb), (Some(false), 0));
    assert_eq!((settings.http.default_class, settings.http.qos_header), (QosClass::Completion, false));
}

#[test]
fn a_watermark_that_is_not_given_gives_way() {
    let check = |line: &str, expect: (u32, u32)| {
        let scheduling = serve(line).scheduling;
        assert_eq!((scheduling.pressure_low_pct, scheduling.pressure_high_pct), expect, "{line}");
    };
    check("serve m --pressure-high 40", (40, 40));
    check("serve m --pressure-low 95", (95, 95));
    check("serve m --pressure-low 0 --pressure-high 100", (0, 100));
}

#[test]
fn a_conversion_is_a_model_a_directory_and_what_becomes_of_it() {
    let check = |line: &str, expect: (Option<u32>, Option<u32>, Option<&str>, bool, bool)| {
        let Ok(Invocation::Convert(settings)) = invocation(line) else { panic!("{line}") };
        assert_eq!((settings.source, settings.directory), ("smol.gguf".into(), "out/smol".into()), "{line}");
        let rest = (settings.bits, settings.group, settings.plain, settings.force, settings.json);
        assert_eq!(rest, expect, "{line}");
    };
    check("convert smol.gguf out/smol", (None, None, None, false, false));
    check("convert --bits 4 smol.gguf --group=128 out/smol --force", (Some(4), Some(128), None, true, false));
    check("convert smol.gguf --plain bf16 --json -- out/smol", (None, None, Some("bf16"), false, true));
}

#[test]
fn packing_takes_a_model_and_inspecting_too() {
    let check = |line: &str, expect: (Option<&str>, &str, bool, bool)| {
        let Ok(Invocation::Pack(settings)) = invocation(line) else { panic!("{line}") };
        let output = settings.output.as_deref().map(|path| path.to_str().expect("it was text"));
        assert_eq!(settings.source, PathBuf::from("smol.gguf"), "{line}");
        assert_eq!((output, settings.profile, settings.force, settings.json), expect, "{line}");
    };
    check("pack smol.gguf", (None, "keep", false, false));
    check("pack -o out/smol.base smol.gguf --profile q4 --force", (Some("out/smol.base"), "q4", true, false));
    check("pack smol.gguf --output=a.base --json", (Some("a.base"), "keep", false, true));
    let check = |line: &str, expect: (bool, bool, bool)| {
        let Ok(Invocation::Inspect(settings)) = invocation(line) else { panic!("{line}") };
        assert_eq!(settings.model, PathBuf::from("smol.base"), "{line}");
        assert_eq!((settings.tensors, settings.verify, settings.json), expect, "{line}");
    };
    check("inspect smol.base", (false, false, false));
    check("inspect smol.base --tensors --verify --json", (true, true, true));
}
