//! Runtime options: typed, in range, refused by name.

mod common;

use common::{Fixture, descriptor};
use expect_test::expect;
use sf_catalog::{Catalog, Source, check_owners};
use sf_core::{EngineOption, OptionValue};

fn catalog() -> Catalog {
    let fixture = Fixture::new();
    let options = concat!(
        r#""options":[{"key":"ubatch-size","type":"int","default":512,"min":1,"max":4096},"#,
        r#"{"key":"flash-attn","type":"bool"},{"key":"scale","type":"float","min":0.5},"#,
        r#"{"key":"mode","type":"str","values":["slow","fast"]},{"key":"note","type":"str"}]"#
    );
    fixture.runtime("all/acme", &descriptor("acme", "1", options));
    fixture.runtime("all/bare", &descriptor("bare", "1", ""));
    fixture.catalog(&[(Source::User, "all")])
}

fn option(key: &str, value: OptionValue) -> EngineOption {
    EngineOption { key: format!("x.acme.{key}"), value, must: true }
}

#[test]
fn values_are_typed_and_every_option_is_a_must() {
    let catalog = catalog();
    let given = [
        ("ubatch-size", "4096"),
        ("flash-attn", "off"),
        ("scale", "0.5"),
        ("mode", "fast"),
        ("note", "any text"),
    ];
    let typed = catalog.entries()[0].options(&given).unwrap();
    assert_eq!(
        typed,
        [
            option("ubatch-size", OptionValue::Int(4096)),
            option("flash-attn", OptionValue::Bool(false)),
            option("scale", OptionValue::Float(0.5)),
            option("mode", OptionValue::Str("fast".into())),
            option("note", OptionValue::Str("any text".into())),
        ]
    );
}

#[test]
fn refusals_name_the_option_the_value_and_what_is_accepted() {
    let catalog = catalog();
    let refusal = |entry: usize, given: &[(&str, &str)]| {
        catalog.entries()[entry].options(given).unwrap_err().to_string()
    };
    let text = [
        refusal(0, &[("ubatch-size", "0")]),
        refusal(0, &[("ubatch-size", "4097")]),
        refusal(0, &[("ubatch-size", "1.5")]),
        refusal(0, &[("flash-attn", "maybe")]),
        refusal(0, &[("scale", "0.4")]),
        refusal(0, &[("scale", "inf")]),
        refusal(0, &[("mode", "medium")]),
        refusal(0, &[("ubatch", "1")]),
        refusal(0, &[("ubatchsize", "1")]),
        refusal(0, &[("mode", "slow"), ("mode", "fast")]),
        refusal(1, &[("x", "1")]),
    ]
    .join("\n");
    expect![[r#"
        --acme-ubatch-size is "0"; accepted is a whole number from 1 to 4096 (option.bad_value)
        --acme-ubatch-size is "4097"; accepted is a whole number from 1 to 4096 (option.bad_value)
        --acme-ubatch-size is "1.5"; accepted is a whole number from 1 to 4096 (option.bad_value)
        --acme-flash-attn is "maybe"; accepted is on or off (option.bad_value)
        --acme-scale is "0.4"; accepted is a number from 0.5 on (option.bad_value)
        --acme-scale is "inf"; accepted is a number from 0.5 on (option.bad_value)
        --acme-mode is "medium"; accepted is one of slow, fast (option.bad_value)
        --acme-ubatch: runtime acme declares no option ubatch; it has ubatch-size, flash-attn, scale, mode, note (option.unknown)
        --acme-ubatchsize: runtime acme declares no option ubatchsize; did you mean ubatch-size? (option.unknown)
        --acme-mode is given twice (option.given_twice)
        --bare-x: runtime bare declares no option x; it has none (option.unknown)"#]].assert_eq(&text);
}

#[test]
fn options_of_a_runtime_that_serves_nothing_are_refused() {
    let catalog = catalog();
    let [acme, bare] = catalog.entries() else { panic!("{catalog:?}") };
    assert!(check_owners(&[acme, bare], [("acme", "mode")]).is_ok());
    let refusal = check_owners(&[bare], [("bare", "x"), ("acme", "mode")]).unwrap_err();
    expect!["--acme-mode is an option of runtime acme, and no model is served by it; chosen: bare (option.other_runtime)"].assert_eq(&refusal.to_string());
}

#[test]
fn help_of_options_is_in_words() {
    let lines: Vec<String> = catalog()
        .option_help()
        .iter()
        .map(|option| format!("{} {}: {} [{}]", option.runtime, option.key, option.accepts, option.default))
        .collect();
    expect![[r#"
        acme ubatch-size: a whole number from 1 to 4096 [512]
        acme flash-attn: on or off []
        acme scale: a number from 0.5 on []
        acme mode: one of slow, fast []
        acme note: any text []"#]]
    .assert_eq(&lines.join("\n"));
}
