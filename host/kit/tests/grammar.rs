//! Answers of a runtime that knows nothing keep to their grammar, whatever is drawn, cut, forked or built again.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod forms;

use std::sync::Arc;

use common::{Plan, executor, token};
use forms::{END, WORDS, grammars, vocabulary};
use sf_core::{Grammar, LaneId, LaneOp, LaneSpec, SamplerSpec, Token, Vocabulary};
use sf_kit::{Executor, GrammarError, Grammars};

fn taught() -> Executor {
    let mut executor = executor(vec![]);
    executor.teach(vocabulary());
    executor
}

fn spec(grammar: &Grammar, seed: u64) -> LaneSpec {
    // Everything is about as likely as everything else, ends a little less so.
    let sampler =
        SamplerSpec { temperature: 8.0, seed, grammar: Some(grammar.clone()), ..SamplerSpec::default() };
    LaneSpec { sampler, ends: Arc::from([Token(END)]), prompt_len: 2 }
}

fn schema(text: &str) -> Grammar {
    Grammar::JsonSchema(text.into())
}

/// Tokens of one answer up to its end or `most`, drawn in ticks of several steps.
fn tokens(executor: &mut Executor, grammar: &Grammar, seed: u64, most: usize) -> Vec<u32> {
    let open = LaneOp::Open { lane: LaneId(0), spec: spec(grammar, seed) };
    let first = Plan::new().op(open).feed(0, 0, &[30, 31], true).drawn(executor);
    let mut drawn: Vec<u32> = vec![token(&first[0])];
    while drawn.len() < most && drawn.last() != Some(&END) {
        let last = *drawn.last().unwrap();
        let plan = Plan::new().feed(0, drawn.len() as u32 + 1, &[last], true);
        for out in plan.more(7).steps(8).tick(executor) {
            drawn.extend(out.lanes.iter().map(token));
        }
    }
    Plan::new().op(LaneOp::Close { lane: LaneId(0) }).run(executor);
    drawn
}

fn text(tokens: &[u32]) -> String {
    tokens.iter().map(|token| WORDS[*token as usize]).collect()
}

/// A complete answer, or `None` when it was not over after 600 tokens.
fn answer(executor: &mut Executor, grammar: &Grammar, seed: u64) -> Option<String> {
    let drawn = tokens(executor, grammar, seed, 600);
    (drawn.last() == Some(&END)).then(|| text(&drawn))
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let mut executor = taught();
    let mut check = |grammar: Grammar, good: &dyn Fn(&str) -> bool| {
        let mut complete = 0;
        for seed in 0..40 {
            let Some(answer) = answer(&mut executor, &grammar, seed) else { continue };
            assert!(good(&answer), "{grammar:?}: {answer:?}");
            complete += 1;
        }
        assert!(complete >= 10, "{grammar:?}: only {complete} of 40 came to an end");
    };
    // Read as syntax only: a number may be larger than any float.
    let json = |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok();
    check(Grammar::json_object(), &|text| json(text) && text.starts_with('{'));
    check(schema("true"), &json);
    check(Grammar::Regex("[a-c]{2,5}".into()), &|text| {
        (2..=5).contains(&text.len()) && text.bytes().all(|byte| (b'a'..=b'c').contains(&byte))
    });
    check(Grammar::Regex("true|é\\n|\\{\\}".into()), &|text| ["true", "é\n", "{}"].contains(&text));
    let sums = "start: term (\"+\" term)*\nterm: /[0-9]{1,3}/ | \"[\" start \"]\"\n";
    check(Grammar::Lark(sums.into()), &|text| {
        text.bytes().all(|byte| b"0123456789+[]".contains(&byte))
            && text.matches('[').count() == text.matches(']').count()
    });
}

#[test]
fn runs_of_whitespace_are_bounded() {
    let mut executor = taught();
    for seed in 0..40 {
        let drawn = tokens(&mut executor, &Grammar::json_object(), seed, 200);
        let text = text(&drawn);
        // Outside of strings: a line break, and at most 16 characters behind it.
        let outside: String = text.split('"').step_by(2).collect::<Vec<_>>().join("\"");
        let longest = outside.split(|c: char| !c.is_whitespace()).map(str::len).max();
        assert!(longest <= Some(17), "{text:?}");
    }
}

#[test]
fn a_lane_that_is_built_again_goes_on_as_if_nothing_had_been() {
    let grammar = schema(r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#);
    for seed in 0..20 {
        let whole = tokens(&mut taught(), &grammar, seed, 40);
        for cut in 1..whole.len() {
            let mut executor = taught();
            let spec = spec(&grammar, seed);
            let mut run = vec![30, 31];
            run.extend_from_slice(&whole[..cut]);
            // In two pieces, of which only the last one asks for a token.
            let (first, rest) = run.split_at(run.len() / 2);
            let plan = Plan::new().op(LaneOp::Open { lane: LaneId(0), spec });
            plan.feed(0, 0, first, false).run(&mut executor);
            let out = Plan::new().feed(0, first.len() as u32, rest, true).drawn(&mut executor);
            assert_eq!(token(&out[0]), whole[cut], "seed {seed}, cut after {cut}");
        }
    }
}

#[test]
fn a_lane_that_changes_hands_begins_its_new_grammar() {
    let mut executor = taught();
    let letters = Grammar::Regex("[a-d]{30}".into());
    let digits = Grammar::Regex("[0-9]{30}".into());
    let open = LaneOp::Open { lane: LaneId(0), spec: spec(&letters, 1) };
    let first = token(&Plan::new().op(open).feed(0, 0, &[30, 31], true).drawn(&mut executor)[0]);
    Plan::new().feed(0, 2, &[first], true).run(&mut executor);
    let fork = LaneOp::Fork { from: LaneId(0), upto: 1, lane: LaneId(1), spec: spec(&digits, 2) };
    let adopt = LaneOp::Adopt { lane: LaneId(0), upto: 1, spec: spec(&digits, 3) };
    let out =
        Plan::new().op(fork).op(adopt).feed(0, 1, &[31], true).feed(1, 1, &[31], true).drawn(&mut executor);
    for told in &out {
        let word = WORDS[token(told) as usize];
        assert!(word.bytes().all(|byte| byte.is_ascii_digit()), "{word:?}");
    }
    // Cut back and fed something else: what was followed is forgotten.
    let plan = Plan::new().op(LaneOp::Truncate { lane: LaneId(0), len: 2 });
    let out = plan.feed(0, 2, &[9], true).run(&mut executor);
    assert!(WORDS[token(&out[0]) as usize].bytes().all(|byte| byte.is_ascii_digit()));
}

#[test]
fn what_a_grammar_does_not_allow_fails_its_own_lane() {
    let mut executor = taught();
    let plan = Plan::new().op(LaneOp::Open { lane: LaneId(0), spec: spec(&Grammar::Regex("a+".into()), 1) });
    let other = LaneOp::Open { lane: LaneId(1), spec: spec(&Grammar::Regex("b+".into()), 1) };
    // A token behind the prompt that the grammar would never have given.
    let out = plan.op(other).feed(0, 0, &[30, 31, 9], true).feed(1, 0, &[30, 31], true).drawn(&mut executor);
    let fault = out[0].result.as_ref().unwrap_err();
    assert!(fault.message.contains("(grammar.lost)"), "{fault:?}");
    assert_eq!(WORDS[token(&out[1]) as usize], "b");

    let mut untaught = common::executor(vec![]);
    let open = LaneOp::Open { lane: LaneId(0), spec: spec(&Grammar::json_object(), 1) };
    let out = Plan::new().op(open).feed(0, 0, &[30, 31], true).run(&mut untaught);
    assert!(out[0].result.as_ref().unwrap_err().message.contains("was not told"));
}

#[test]
fn log_probabilities_are_of_the_row_as_it_was() {
    let mut executor = taught();
    let mut spec = spec(&Grammar::Regex("a+".into()), 1);
    spec.sampler.logprobs = Some(3);
    let plan = Plan::new().op(LaneOp::Open { lane: LaneId(0), spec });
    let out = plan.feed(0, 0, &[30, 31], true).drawn(&mut executor);
    let Ok(Some(sampled)) = &out[0].result else { panic!("{out:?}") };
    assert_eq!(WORDS[sampled.token.0 as usize], "a");
    let best = sampled.top[0].1;
    assert!(sampled.logprob.unwrap() <= best && sampled.top[0].0 != sampled.token, "{sampled:?}");
}

#[test]
fn what_cannot_be_compiled_is_refused_with_its_place() {
    let check = |grammar: Grammar, expect: &str| {
        let error = grammars().check(&grammar).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}\n  expected: {expect}");
    };
    check(schema("{"), "the schema is not one: EOF");
    check(schema("7"), "it is a number, expected an object");
    check(schema("false"), "it is false");
    check(schema(r#"{"not":{"type":"string"}}"#), "the schema is refused: ");
    check(schema(r#"{"not":{"type":"string"}}"#), "the keyword `not` is not supported, use enum");
    let deep = r#"{"type":"object","properties":{"x/y":{"anyOf":[{"type":"null"},{"type":"array","items":
        {"type":"string","uniqueItems":true,"if":{}}}]}}}"#;
    check(schema(deep), "at /properties/x~1y/anyOf/1/items: ");
    check(schema(r##"{"$ref":"#/$defs/no"}"##), "refused");
    check(schema(r#"{"type":"string","pattern":"(?<=a)b"}"#), "refused");
    check(schema(r#"{"type":"string","format":"no-such"}"#), "no-such");
    check(Grammar::Regex("a(".into()), "the regular expression is refused: ");
    check(Grammar::Lark("start: nothing".into()), "the grammar is refused: ");
    check(Grammar::Lark(String::new().into()), "the grammar is refused");
    check(Grammar::Regex("a".repeat(300_000).into()), "accepted are 262144");
    let endless = Grammars::new(Arc::new(Vocabulary::new(WORDS.iter().map(|word| word.as_bytes()), &[])));
    assert_eq!(endless.check(&Grammar::json_object()), Err(GrammarError::NoEnd));
}

/// What becomes of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Answers keep to it.
    Held,
    /// It says nothing about values.
    Silent,
    /// It is passed over, and the client is told.
    Told,
    /// The schema is refused for it.
    Refused,
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_keyword_of_json_schema_has_its_fate() {
    use Fate::{Held, Refused, Silent, Told};
    let check = |text: &str, expect: Fate| {
        let text = format!("{{{text}}}");
        let (told, compiled) = (sf_kit::ignored_keywords(&text), grammars().check(&schema(&text)));
        let fate = match (&told, &compiled) {
            (Ok(told), Ok(())) if !told.is_empty() => Told,
            (Ok(_), Ok(())) => expect,
            (Err(GrammarError::Keyword { .. }), Err(GrammarError::Keyword { .. })) => Refused,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(fate, expect, "{text}");
        // What is silent bounds no answer.
        assert!(expect == Held || fitting(&text) == [true; 4], "{text}");
    };
    let held = [
        r##""$ref":"#/$defs/a","$defs":{"a":{"type":"null"}}"##,
        r#""type":"integer""#,
        r#""const":1"#,
        r#""enum":[1]"#,
        r#""anyOf":[{"type":"null"}]"#,
        r#""oneOf":[{"type":"null"}]"#,
        r#""allOf":[{"type":"null"}]"#,
        r#""type":"array","items":{"type":"null"}"#,
        r#""type":"array","prefixItems":[{"type":"null"}]"#,
        r#""$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"null"}],"additionalItems":false"#,
        r#""type":"array","minItems":3"#,
        r#""type":"array","maxItems":0"#,
        r#""type":"object","properties":{"a":{"type":"null"}}"#,
        r#""type":"object","required":["b"]"#,
        r#""type":"object","additionalProperties":false"#,
        r#""type":"object","patternProperties":{"^a":{"type":"null"}}"#,
        r#""type":"object","minProperties":2"#,
        r#""type":"object","maxProperties":0"#,
        r#""type":"string","minLength":2"#,
        r#""type":"string","maxLength":0"#,
        r#""type":"string","pattern":"^b$""#,
        r#""type":"string","format":"date""#,
        r#""type":"number","minimum":2"#,
        r#""type":"number","maximum":0"#,
        r#""type":"number","exclusiveMinimum":1"#,
        r#""type":"number","exclusiveMaximum":1"#,
        r#""type":"number","multipleOf":2"#,
    ];
    for text in held {
        check(text, Held);
        // What is held bounds answers more than the type alone does.
        let alone = text.split_once("\",\"").filter(|_| text.starts_with(r#""type""#));
        let alone = alone.map_or("{}".to_owned(), |(kind, _)| format!("{{{kind}\"}}"));
        let (without, with) = (fitting(&alone), fitting(&format!("{{{text}}}")));
        assert!((0..4).any(|at| without[at] && !with[at]), "{text}: {without:?} {with:?}");
    }
    for name in [
        "title",
        "description",
        "$comment",
        "$id",
        "$anchor",
        "id",
        "contentEncoding",
        "contentMediaType",
        "$schema",
    ] {
        let value = if name == "$schema" { "https://json-schema.org/draft/2020-12/schema" } else { "x" };
        check(&format!(r#""{name}":"{value}""#), Silent);
    }
    for text in [
        r#""default":7"#,
        r#""examples":[7]"#,
        r#""deprecated":true"#,
        r#""readOnly":true"#,
        r#""writeOnly":true"#,
        r#""$defs":{"a":{"not":{}}}"#,
        r#""definitions":{"a":{"not":{}}}"#,
        r#""x-order":3"#,
    ] {
        check(text, Silent);
    }
    for text in [r#""nullable":true"#, r#""discriminator":{}"#, r#""example":1"#, r#""minlength":3"#] {
        check(text, Told);
    }
    let refused = [
        "$dynamicRef",
        "$recursiveRef",
        "contains",
        "contentSchema",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    ];
    for name in refused {
        let text = format!(r#"{{"{name}":{{}}}}"#);
        let error = grammars().check(&schema(&text)).unwrap_err();
        assert!(matches!(&error, GrammarError::Keyword { keyword, .. } if keyword == name), "{error}");
        assert!(error.to_string().contains(name) && sf_kit::ignored_keywords(&text).is_err(), "{error}");
    }
}

/// Whether a schema lets each of these through: `1`, `"a"`, `[1]`, `{"a":1}`.
fn fitting(text: &str) -> [bool; 4] {
    let fits = |answer: &[&str]| {
        let Ok(mut walk) = grammars().walk(&schema(text)) else { return false };
        let whole = answer.iter().all(|word| {
            let token = Token(WORDS.iter().position(|known| known == word).unwrap() as u32);
            let may = walk.allowed().is_ok_and(|allowed| allowed.contains(&token));
            walk.take(token);
            may
        });
        whole && walk.allowed().is_ok_and(|allowed| allowed.contains(&Token(END)))
    };
    let answers: [&[&str]; 4] =
        [&["1"], &["\"", "a", "\""], &["[", "1", "]"], &["{\"", "a", "\":", "1", "}"]];
    answers.map(fits)
}

#[test]
fn large_and_recursive_schemas_compile() {
    let check = |text: String| grammars().check(&schema(&text)).unwrap();
    check(r#"{"type":"string","maxLength":65536}"#.to_owned());
    let tree = r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":
        {"value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},
        "required":["value"],"additionalProperties":false}}}"##;
    check(tree.to_owned());
    // 34 tools of four parameters.
    let tool = |at: usize| {
        format!(
            r#"{{"type":"object","properties":{{"name":{{"const":"tool_{at}"}},"arguments":{{"type":"object","properties":
            {{"path":{{"type":"string"}},"count":{{"type":"integer"}},"deep":{{"type":"array","items":{{"enum":["a","b"]}}}},
            "flag":{{"type":"boolean"}}}},"required":["path"],"additionalProperties":false}}}},"required":["name","arguments"]}}"#
        )
    };
    check(format!(r#"{{"anyOf":[{}]}}"#, (0..34).map(tool).collect::<Vec<_>>().join(",")));
}

#[test]
fn chains_as_long_as_a_grammar_may_be_are_compiled_or_refused() {
    let links = 7000;
    let mut definitions: Vec<String> =
        (1..links).map(|at| format!(r##""a{}":{{"$ref":"#/$defs/a{at}"}}"##, at - 1)).collect();
    definitions.push(format!(r#""a{}":{{"type":"null"}}"#, links - 1));
    let text = format!(r##"{{"$ref":"#/$defs/a0","$defs":{{{}}}}}"##, definitions.join(","));
    assert!(text.len() < sf_core::limits::GRAMMAR_BYTES_MAX);
    let _ = grammars().check(&schema(&text));
    let mut rules: Vec<String> = (1..links).map(|at| format!("a{}: a{at}", at - 1)).collect();
    rules.push(format!("a{}: \"x\"", links - 1));
    let _ = grammars().check(&Grammar::Lark(format!("start: a0\n{}\n", rules.join("\n")).into()));
}

#[test]
fn what_the_fuzzer_found_stays_found() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/grammar");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 8, "the corpus is part of the tree");
    files.iter().for_each(|file| forms::input(&std::fs::read(file).unwrap()));
}

/// Random schemas of what the automaton supports.
struct Schemas(u64);

impl Schemas {
    fn below(&mut self, count: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % count
    }

    fn any(&mut self, depth: u32) -> serde_json::Value {
        use serde_json::json;
        let kinds = if depth == 0 { 8 } else { 12 };
        match self.below(kinds) {
            0 => json!({"type": "boolean"}),
            1 => json!({"type": "null"}),
            2 => {
                let low = self.below(40) as i64 - 20;
                json!({"type": "integer", "minimum": low, "maximum": low + self.below(300) as i64})
            }
            3 => {
                json!({"type": "integer", "exclusiveMinimum": self.below(10), "maximum": 20 + self.below(9)})
            }
            4 => {
                let least = self.below(3);
                json!({"type": "string", "minLength": least, "maxLength": least + self.below(5)})
            }
            5 => {
                let pattern = ["^[ab]{2,3}$", "^(true|x)y?$", "^[0-9]+z$"][self.below(3) as usize];
                json!({"type": "string", "pattern": pattern})
            }
            6 => json!({"enum": if self.below(2) == 0 { ["a", "b", "cd"] } else { ["x", "10", "é"] }}),
            7 => {
                let fixed = [json!(1), json!("ab"), json!([true, null]), json!({"a": 2})];
                json!({"const": fixed[self.below(4) as usize]})
            }
            8 => {
                let least = self.below(3);
                json!({"type": "array", "items": self.any(depth - 1), "minItems": least, "maxItems": least + self.below(3)})
            }
            9 => {
                json!({"type": "array", "prefixItems": [self.any(depth - 1), self.any(0)], "items": false, "minItems": 2})
            }
            10 => json!({"anyOf": [self.any(depth - 1), self.any(0)]}),
            _ => {
                let mut properties = serde_json::Map::new();
                let mut required = Vec::new();
                for name in ["a", "b", "cd", "ef"].into_iter().take(1 + self.below(4) as usize) {
                    properties.insert(name.to_owned(), self.any(depth - 1));
                    if self.below(2) == 0 {
                        required.push(name);
                    }
                }
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }
        }
    }
}

#[test]
fn what_comes_out_of_a_thousand_schemas_is_valid() {
    let mut executor = taught();
    let (mut schemas, mut complete) = (Schemas(7), 0);
    for seed in 0..1000 {
        let wanted = schemas.any(3);
        let grammar = schema(&wanted.to_string());
        grammars_take(&grammar);
        let Some(text) = answer(&mut executor, &grammar, seed) else { continue };
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{wanted}: {text:?}: {error}"));
        let valid = jsonschema::validate(&wanted, &value);
        assert!(valid.is_ok(), "{wanted}: {text}: {valid:?}");
        complete += 1;
    }
    eprintln!("{complete} of 1000 answers came to an end, all of them valid");
    assert!(complete >= 900, "only {complete} of 1000 came to an end");
}

#[test]
fn the_likeliest_token_is_the_likeliest_allowed_one_with_and_without_a_mask() {
    let mut executor = taught();
    let mut schemas = Schemas(3);
    let (mut steps, mut kept) = (0, 0);
    for round in 0..300 {
        let grammar = schema(&schemas.any(3).to_string());
        let mut run = |sampler: SamplerSpec| {
            let sampler = SamplerSpec { grammar: Some(grammar.clone()), ..sampler };
            let spec = LaneSpec { sampler, ends: Arc::from([Token(END)]), prompt_len: 2 };
            let prompt = [30 + round % 7, 31];
            let plan = Plan::new().op(LaneOp::Open { lane: LaneId(0), spec }).feed(0, 0, &prompt, true);
            let mut run = vec![token(&plan.drawn(&mut executor)[0])];
            if run[0] != END {
                let outs = Plan::new().feed(0, 2, &run, true).more(79).steps(80).tick(&mut executor);
                run.extend(outs.iter().map(|out| token(&out.lanes[0])));
            }
            Plan::new().op(LaneOp::Close { lane: LaneId(0) }).run(&mut executor);
            run
        };
        // Drawing among one token needs the mask at every step, the likeliest one only where it is forbidden.
        let masked = run(SamplerSpec { temperature: 1.0, top_k: 1, ..SamplerSpec::default() });
        let greedy = run(SamplerSpec::default());
        assert_eq!(greedy, masked, "{grammar:?}");
        steps += greedy.len();
        let free = |(at, pair): (usize, &[u32])| common::greedy(pair[0], at as u32 + 2) == pair[1];
        kept += greedy.windows(2).enumerate().filter(|pair| free(*pair)).count();
    }
    assert!(kept > 100 && kept + 100 < steps, "{kept} of {steps} tokens were the likeliest of all");
}

#[test]
fn nobody_waits_for_the_grammar_of_another() {
    let mut executor = taught();
    // Never compiled before, and slow: the first step comes long before it.
    let slow: Vec<String> = (0..8000).map(|at| format!("\"{at}x\"")).collect();
    let slow = schema(&format!(
        r#"{{"oneOf":[{}]}}"#,
        slow.iter().map(|text| format!(r#"{{"const":{text}}}"#)).collect::<Vec<_>>().join(",")
    ));
    let open = LaneOp::Open { lane: LaneId(0), spec: spec(&slow, 1) };
    let free = LaneOp::Open { lane: LaneId(1), spec: LaneSpec { prompt_len: 2, ..LaneSpec::default() } };
    let plan = Plan::new().op(open).op(free).feed(0, 0, &[30, 31], true).feed(1, 0, &[30, 31], true);
    let out = plan.run(&mut executor);
    assert_eq!((out[0].consumed, &out[0].result), (1, &Ok(None)), "its last token stays behind");
    assert!(matches!(out[1].result, Ok(Some(_))), "{out:?}");
    let drawn = Plan::new().feed(0, 1, &[31], true).drawn(&mut executor);
    assert!(WORDS[token(&drawn[0]) as usize].starts_with('"'), "{drawn:?}");
}

#[test]
fn a_grammar_that_cannot_be_compiled_fails_its_lane_and_one_that_nobody_waits_for_is_dropped() {
    let mut executor = taught();
    let open = |lane, grammar: &Grammar| LaneOp::Open { lane: LaneId(lane), spec: spec(grammar, 1) };
    let (bad, good) = (Grammar::Regex("a(".into()), Grammar::Regex("b+".into()));
    let plan = Plan::new().op(open(0, &bad)).op(open(1, &good)).op(open(2, &Grammar::Regex("c+".into())));
    let plan = plan.op(LaneOp::Close { lane: LaneId(2) }).op(open(2, &good));
    let prompt = [30, 31];
    let plan = plan.feed(0, 0, &prompt, true).feed(1, 0, &prompt, true).feed(2, 0, &prompt, true);
    let out = plan.drawn(&mut executor);
    let fault = out[0].result.as_ref().unwrap_err();
    assert!(fault.message.contains("the regular expression is refused: "), "{fault:?}");
    assert_eq!([1, 2].map(|lane: usize| WORDS[token(&out[lane]) as usize]), ["b", "b"]);
    // The lane itself is whole, and so is its number.
    let plan = Plan::new().op(LaneOp::Close { lane: LaneId(0) }).op(open(0, &good));
    assert_eq!(WORDS[token(&plan.feed(0, 0, &prompt, true).drawn(&mut executor)[0]) as usize], "b");
}

/// The generator only makes what is supported.
fn grammars_take(grammar: &Grammar) {
    thread_local! { static GRAMMARS: Grammars = grammars(); }
    GRAMMARS.with(|grammars| grammars.check(grammar).unwrap_or_else(|error| panic!("{grammar:?}: {error}")));
}
