//! What it takes to compile a grammar for a real vocabulary: once per schema that a server has not seen lately.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use sf_codec::wire::{CallForm, Callable, Thought, Wire};
use sf_codec::{Codec, CodecOptions};
use sf_core::{Grammar, Json, Token, Tool};
use sf_kit::{Grammars, Walk};

use crate::error::BenchError;
use crate::serve::write_json;
use crate::stats::{median, ms, percentile};
use crate::sysinfo;

/// Each grammar is compiled so often, in turn with the others.
const ROUNDS: usize = 21;
/// Whose tokens they are compiled for.
const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Most a compilation may take, milliseconds.
const LIMIT_MS: f64 = 50.0;

#[derive(Debug, Serialize)]
struct Cost {
    grammar: &'static str,
    bytes: usize,
    median_ms: f64,
    worst_ms: f64,
    limit_ms: f64,
}

pub(crate) fn run(json: Option<&Path>) -> Result<(), BenchError> {
    let model = sysinfo::model_dir().join(MODEL);
    let failed =
        |how: String| BenchError::Command { command: format!("compile for {}", model.display()), how };
    let artifact = sf_artifact::open(&model).map_err(|error| failed(error.to_string()))?;
    let codec = Codec::open(&artifact, CodecOptions::default()).map_err(|error| failed(error.to_string()))?;
    let vocabulary = Arc::new(codec.vocabulary());
    let load = sysinfo::load_average();
    let grammars = Grammars::new(Arc::clone(&vocabulary));
    let begun = Instant::now();
    grammars.prepare();
    let shared_ms = ms(begun.elapsed());
    let mut took = vec![Vec::new(); CASES.len()];
    for round in 0..ROUNDS {
        for ((_, make), took) in CASES.iter().zip(&mut took) {
            // Never seen before: each is another text.
            let grammar = make(round);
            let begun = Instant::now();
            grammars.check(&grammar).map_err(|error| failed(error.to_string()))?;
            took.push(ms(begun.elapsed()));
        }
    }
    let costs: Vec<Cost> = CASES
        .iter()
        .zip(&took)
        .map(|((grammar, make), took)| Cost {
            grammar,
            bytes: make(0).source().len(),
            median_ms: median(took),
            worst_ms: percentile(took, 100.0),
            limit_ms: LIMIT_MS,
        })
        .collect();
    println!(
        "compiling grammars for {} tokens, {ROUNDS} rounds, {}, load {load:.2}; what all share: {shared_ms:.0} ms, once",
        vocabulary.len(),
        sysinfo::cpu_name()
    );
    println!("{:<44}{:>10}{:>14}{:>12}{:>12}", "grammar", "bytes", "median, ms", "worst, ms", "limit, ms");
    for Cost { grammar, bytes, median_ms, worst_ms, limit_ms } in &costs {
        println!("{grammar:<44}{bytes:>10}{median_ms:>14.2}{worst_ms:>12.2}{limit_ms:>12.0}");
    }
    let mut walk = grammars.walk(&calls("hermes", false, 0)).map_err(|error| failed(error.to_string()))?;
    let encode = |text: &str| codec.encode(text, false).map_err(|error| failed(error.to_string()));
    let masks = [("free text", encode(&PROSE.repeat(4))?), ("a call in it", encode(CALL)?)];
    println!("\n{:<44}{:>10}{:>14}{:>12}", "one mask, 34 tools", "tokens", "median, us", "p99, us");
    for (place, tokens) in masks {
        let took = follow(&mut walk, &tokens).map_err(failed)?;
        println!("{place:<44}{:>10}{:>14.1}{:>12.1}", took.len(), median(&took), percentile(&took, 99.0));
    }
    write_json(&costs, json)
}

/// What makes a grammar that differs from that of every other round in words only.
type Make = fn(usize) -> Grammar;

const CASES: [(&str, Make); 7] = [
    ("an object of three members", |round| {
        schema(
            round,
            json!({"type": "object", "properties": {
            "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        }, "required": ["name"], "additionalProperties": false}),
        )
    }),
    ("a string of up to 65,536 characters", |round| {
        schema(round, json!({"type": "string", "maxLength": 65_536}))
    }),
    ("a member of up to 65,536 characters", |round| {
        let text = json!({"type": "string", "maxLength": 65_536});
        schema(round, json!({"type": "object", "properties": {"a": text, "b": text}, "required": ["a", "b"]}))
    }),
    ("a tree by recursive $ref", |round| {
        let children = json!({"type": "array", "items": {"$ref": "#/$defs/node"}});
        let node = json!({"type": "object", "properties": {"value": {"type": "integer"}, "children": children},
            "required": ["value"], "additionalProperties": false});
        schema(round, json!({"$ref": "#/$defs/node", "$defs": {"node": node}}))
    }),
    ("a call of one of 34 tools, in Hermes' tags", |round| calls("hermes", true, round)),
    ("free text with calls of 34 tools", |round| calls("hermes", false, round)),
    ("a call of one of 34 tools, as bare JSON", |round| calls("llama3_json", true, round)),
];

fn schema(round: usize, mut schema: Value) -> Grammar {
    schema["description"] = json!(format!("round {round}"));
    Grammar::JsonSchema(schema.to_string().into())
}

/// Tools as agents have them: a handful of parameters of all kinds each.
fn tools(round: usize) -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": format!("round {round}")},
            "mode": {"enum": ["read", "write", "append"]},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10_000},
            "recursive": {"type": "boolean"},
            "filters": {"type": "array", "items": {"type": "object", "properties": {
                "field": {"type": "string"}, "value": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            }, "required": ["field", "value"], "additionalProperties": false}},
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let tool = |at: usize| {
        let name = format!("tool_{at}");
        let json = plain(&json!({"function": {"name": name, "parameters": parameters}}));
        Tool { name, json }
    };
    (0..34).map(tool).collect()
}

/// Calls in this wire: that must be made, or that may open anywhere in free text.
fn calls(wire: &str, must: bool, round: usize) -> Grammar {
    let tools = tools(round);
    let callable = |(index, tool)| Callable { tool, index, strict: true };
    let tools = tools.iter().enumerate().map(callable).collect();
    let form = CallForm { tools, must, several: true, reasoning: Thought::No };
    let text = Wire::by_name(wire).map(|wire| wire.call_grammar(&form, &|_| None));
    let text = text.and_then(Result::ok).expect("the wire's calls can be held");
    Grammar::Lark(format!("{text}// round {round}\n").into())
}

/// Text that an answer goes through, and a call.
const PROSE: &str = "The weather in Oslo changes fast, so here is a table (in degrees): 3, 4 and \"5\". Let me look it up.\n\n\
    First of all, a < b means that <b>bold</b> text and [lists] stand for themselves, as in any other answer. ";
const CALL: &str = "<tool_call>\n{\"name\": \"tool_0\", \"arguments\": {\"path\": \"/etc/some longer path/of words\", \"mode\": \"read\", \
    \"limit\": 12}}\n</tool_call>";

/// The time of the mask before each token, microseconds.
fn follow(walk: &mut Walk, tokens: &[Token]) -> Result<Vec<f64>, String> {
    let mut times = Vec::new();
    for token in tokens {
        walk.allowed()?;
        times.push(ms(walk.took()) * 1e3);
        walk.take(*token);
    }
    Ok(times)
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Integer(number.as_i64().expect("small whole numbers").into()),
        Value::String(text) => Json::from(text.as_str()),
        Value::Array(values) => Json::Array(values.iter().map(plain).collect()),
        Value::Object(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
        }
    }
}
