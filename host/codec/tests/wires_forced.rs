//! Whatever a grammar of calls lets through is read by its own wire as exactly such calls, with arguments that are valid.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests, and counts")]

#[path = "wires_forced/walking.rs"]
mod walking;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sf_codec::wire::{Answer, CallForm, Callable, Input, NotHeld, Parser, Thought, ToolSchema, Wire};
use walking::{Asked, Tokens, tools};

/// Answers per wire, vocabulary and way of asking.
const ANSWERS: u64 = 24;

fn wires() -> impl Iterator<Item = &'static Wire> {
    Wire::all().filter(|wire| wire.name() != "think")
}

/// Reads answers of all wires in all vocabularies, each in these modes: several calls, strict tools, reasoning. Counts
/// answers and calls by wire.
fn read_all(
    must: bool,
    modes: [(bool, bool, Thought); 3],
    see: impl Fn(&str, &Answer),
) -> BTreeMap<&'static str, (u64, u64)> {
    let tools = tools();
    let mut whole: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for wire in wires() {
        for tokens in [Tokens::Control, Tokens::Shown, Tokens::Spelled] {
            for (several, strict, reasoning) in modes {
                let asked = Asked { wire, tools: &tools, strict, must, several, reasoning, tokens };
                let walks = match asked.walks() {
                    Ok(walks) => walks,
                    Err(NotHeld::NoToken { .. }) if tokens == Tokens::Spelled => continue,
                    Err(NotHeld::NoMark { .. }) if !must => continue,
                    Err(why) => panic!("{}: {why}", wire.name()),
                };
                for answer in (0..ANSWERS).filter_map(|seed| walks.answer(seed)) {
                    let counts = whole.entry(wire.name()).or_default();
                    counts.0 += 1;
                    counts.1 += answer.calls.len() as u64;
                    assert!(several || answer.calls.len() <= 1, "{}: {answer:?}", wire.name());
                    see(wire.name(), &answer);
                    walks.holds(&answer);
                }
            }
        }
    }
    eprintln!("answers and calls: {whole:?}");
    whole
}

#[test]
fn every_call_that_must_be_made_is_made_and_its_arguments_fit() {
    let modes = [(false, true, Thought::No), (true, true, Thought::Possible), (true, true, Thought::Open)];
    let whole = read_all(true, modes, |wire, answer| {
        assert!(!answer.calls.is_empty() && answer.text.trim().is_empty(), "{wire}: {answer:?}");
    });
    for wire in wires() {
        let (answers, _) = whole.get(wire.name()).copied().unwrap_or_default();
        assert!(answers >= ANSWERS * 4, "{}: only {answers} answers came to an end", wire.name());
    }
}

#[test]
fn calls_in_text_are_calls_and_text_is_text() {
    let modes = [(false, true, Thought::No), (true, true, Thought::Possible), (true, false, Thought::Open)];
    let whole = read_all(false, modes, |_, _| {});
    let unheld: Vec<&str> = wires().map(Wire::name).filter(|name| !whole.contains_key(name)).collect();
    assert_eq!(
        unheld,
        ["functionary", "llama4_pythonic", "llama3_json", "pythonic"],
        "no mark opens their calls"
    );
    for (name, (answers, calls)) in whole {
        assert!(answers > 50 && calls >= 3, "{name}: {answers} answers, {calls} calls");
    }
}

#[test]
fn a_call_is_written_as_its_family_writes_it() {
    let properties = json!({"city": {"const": "Paris"}, "days": {"const": 3}});
    let fixed =
        json!({"properties": properties, "required": ["city", "days"], "additionalProperties": false});
    let tools = [walking::tool("weather", &fixed)];
    let mut checked = Vec::new();
    let mut check = |name: &'static str, expect: &str| {
        let wire = Wire::by_name(name).unwrap();
        let (must, several, strict, reasoning) = (true, false, true, Thought::No);
        let asked = Asked { wire, tools: &tools, strict, must, several, reasoning, tokens: Tokens::Control };
        assert_eq!(asked.walks().unwrap().only(), expect, "{name}");
        checked.push(name);
    };
    let json = r#"{"city": "Paris", "days": 3}"#;
    let object = format!(r#"{{"name": "weather", "arguments": {json}}}"#);
    let tags = |open: &str, close: &str| {
        format!(
            "<function=weather>\n<parameter=city>{open}Paris{close}</parameter>\n<parameter=days>{open}3{close}</parameter>\n</function>"
        )
    };
    check("hermes", &format!("<tool_call>\n{object}\n</tool_call>"));
    check("qwen3_coder", &format!("<tool_call>\n{}\n</tool_call>", tags("\n", "\n")));
    check("seed_oss", &format!("<seed:tool_call>\n{}\n</seed:tool_call>", tags("", "")));
    check("llama3_json", &format!(r#"{{"name": "weather", "parameters": {json}}}"#));
    check("llama4_pythonic", &format!(r#"{{"name": "weather", "parameters": {json}}}"#));
    check("pythonic", r#"[weather(city="Paris", days=3)]"#);
    check("lfm2", r#"<|tool_call_start|>[weather(city="Paris", days=3)]<|tool_call_end|>"#);
    check("mistral", &format!("[TOOL_CALLS]weather[ARGS]{json}"));
    check("nemotron", &format!("<TOOLCALL>[{object}]</TOOLCALL>"));
    check("granite", &format!("<|tool_call|>[{object}]"));
    check("phi4_mini_json", &format!("<|tool_call|>[{object}]<|/tool_call|>"));
    check("minimax", &format!("<tool_calls>\n{object}\n</tool_calls>"));
    check(
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Paris</parameter>\n\
         <parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
    );
    check(
        "deepseek_v3",
        &format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{json}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    );
    check(
        "deepseek_v31",
        &format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{json}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    );
    check(
        "deepseek_v32",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n\
         <｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n\
         <｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n\
         </｜DSML｜invoke>\n</｜DSML｜function_calls>",
    );
    check(
        "glm45",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n\
         <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    );
    check(
        "kimi_k2",
        &format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{json}<|tool_call_end|><|tool_calls_section_end|>"
        ),
    );
    check("functionary", &format!("weather\n{json}"));
    check("functionary_v3_1", &format!("<function=weather>{json}</function>"));
    check("gemma", "<start_function_call>call:weather{city:<escape>Paris<escape>,days:3}<end_function_call>");
    check("gemma4", "<|tool_call>call:weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>");
    check(
        "harmony",
        &format!("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{json}"),
    );
    let unchecked: Vec<&str> = wires().map(Wire::name).filter(|name| !checked.contains(name)).collect();
    assert!(unchecked.is_empty(), "{unchecked:?}");
}

#[test]
fn a_mark_in_a_string_of_json_ends_nothing_where_json_is_held() {
    let parameters = json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}});
    let schemas = vec![ToolSchema::of(&walking::tool("note", &parameters)).unwrap()];
    let text = "<tool_call>\n<function=note>\n<parameter=tags>\n[\"a\\\"</parameter>\", \"</function>\"]\n</parameter>\n</function>\n</tool_call>";
    let read = |mut parser: Parser| {
        let mut deltas = Vec::new();
        text.chars().for_each(|c| parser.feed(Input::Text(&c.to_string()), &mut deltas));
        parser.finish(&mut deltas);
        let mut answer = Answer::default();
        deltas.iter().for_each(|delta| answer.take(delta));
        answer
    };
    let wire = Wire::by_name("qwen3_coder").unwrap();
    let held = read(Parser::new(wire, &schemas).held());
    assert_eq!(held.calls.len(), 1, "{held:?}");
    assert_eq!(held.calls[0].arguments, r#"{"tags":["a\"</parameter>","</function>"]}"#);
    // Where nothing is held, a quote that is never closed must not swallow the rest.
    assert_ne!(read(Parser::new(wire, &schemas)).calls.first(), held.calls.first());
}

#[test]
fn alternatives_that_multiply_are_refused() {
    let mut definitions = serde_json::Map::new();
    for level in 0..7 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"anyOf": vec![next; 50]}));
    }
    definitions.insert("d7".to_owned(), json!({"type": "string"}));
    let parameters = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
    let tools = [walking::tool("many", &parameters)];
    let wire = Wire::by_name("qwen3_coder").unwrap();
    let callable = Callable { tool: &tools[0], index: 0, strict: true };
    let form = CallForm { tools: vec![callable], must: true, several: false, reasoning: Thought::No };
    let refused = wire.call_grammar(&form, &|_| None).unwrap_err().to_string();
    assert!(refused.contains("more than 1000 alternatives"), "{refused}");
}

#[test]
fn what_a_wire_cannot_spell_is_refused_with_its_place() {
    let check = |wire: &str, name: &str, parameters: Value, expect: Result<(), &str>| {
        let tools = [walking::tool("fine", &json!({})), walking::tool(name, &parameters)];
        let wire = Wire::by_name(wire).unwrap();
        let asked = Asked {
            wire,
            tools: &tools,
            strict: true,
            must: true,
            several: true,
            reasoning: Thought::No,
            tokens: Tokens::Control,
        };
        let got = asked.walks().map(drop).map_err(|why| match why {
            NotHeld::Schema { tool: 1, at, .. } => at,
            NotHeld::Name { tool: 1, .. } => "name".to_owned(),
            other => panic!("{other}"),
        });
        assert_eq!(got, expect.map_err(str::to_owned), "{name}");
    };
    let of = |schema: Value| json!({"properties": {"a": schema}});
    check("hermes", "any name \"at\" all", of(json!({"anyOf": [{"type": "null"}]})), Ok(()));
    check("qwen3_coder", "get weather", json!({}), Err("name"));
    check("functionary", "all", json!({}), Err("name"));
    check("pythonic", "f", json!({"properties": {"no-go!": {}}}), Err("/properties/no-go!"));
    check("glm45", "f", json!({"properties": {"a>b": {}}}), Err("/properties/a>b"));
    check("glm45", "f", json!({"anyOf": [{"required": ["a"]}]}), Err("/anyOf"));
    check("qwen3_coder", "f", of(json!({"type": "string", "format": "regex"})), Err("/properties/a/format"));
    check(
        "qwen3_coder",
        "f",
        of(json!({"type": "string", "pattern": "^a|b$"})),
        Err("/properties/a/pattern"),
    );
    check("qwen3_coder", "f", of(json!({"enum": ["</parameter>"]})), Err("/properties/a/enum"));
    check(
        "qwen3_coder",
        "f",
        of(json!({"type": "string", "anyOf": [{"minLength": 1}]})),
        Err("/properties/a/anyOf"),
    );
}
