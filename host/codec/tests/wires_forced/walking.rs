//! Walks at random through the answers that a grammar of calls lets through, and reads them with the wire's parser.

use std::sync::Arc;

use serde_json::{Value, json};
use sf_codec::wire::{Answer, CallForm, Callable, Input, NotHeld, Parser, Thought, ToolSchema, Wire};
use sf_core::{Grammar, Json, Token, Tool, Vocabulary};
use sf_kit::Grammars;

/// What a vocabulary makes of the wire's marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Control tokens, which are no text.
    Control,
    /// Tokens of their own that are text as well.
    Shown,
    /// Only what needs to be a token is one.
    Spelled,
}

pub(crate) struct Asked<'a> {
    pub(crate) wire: &'static Wire,
    pub(crate) tools: &'a [Tool],
    pub(crate) strict: bool,
    pub(crate) must: bool,
    pub(crate) several: bool,
    pub(crate) reasoning: Thought,
    pub(crate) tokens: Tokens,
}

pub(crate) struct Walks {
    wire: &'static Wire,
    tools: Vec<Tool>,
    schemas: Vec<ToolSchema>,
    strict: bool,
    reasoning: Thought,
    grammars: Grammars,
    grammar: Grammar,
    words: Vec<Vec<u8>>,
    special: Vec<(Token, &'static str)>,
    end: Token,
}

impl Asked<'_> {
    pub(crate) fn walks(&self) -> Result<Walks, NotHeld> {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let common = [
            "the", " a", "\": \"", "\", \"", "\"}", "\": ", "</", ">\n", "Oslo", "true", "null", "12", "\n\n",
        ];
        words.extend(common.iter().chain(&self.wire.marks()).map(|word| word.as_bytes().to_vec()));
        let alone = self.wire.token_marks();
        let mut special = Vec::new();
        for text in self.wire.tokens() {
            let only = alone.contains(&text);
            if self.tokens == Tokens::Spelled && !only {
                continue;
            }
            special.push((Token(words.len() as u32), text));
            let shown = self.tokens == Tokens::Shown && !only;
            words.push(if shown { text.as_bytes().to_vec() } else { Vec::new() });
        }
        let end = Token(words.len() as u32);
        words.push(Vec::new());
        let tools = self.tools.iter().enumerate();
        let form = CallForm {
            tools: tools.map(|(index, tool)| Callable { tool, index, strict: self.strict }).collect(),
            must: self.must,
            several: self.several,
            reasoning: self.reasoning,
        };
        let token = |text: &str| special.iter().find(|(_, known)| *known == text).map(|(token, _)| *token);
        let text = self.wire.call_grammar(&form, &token)?;
        let vocabulary = Vocabulary::new(words.iter().map(Vec::as_slice), &[end]);
        let grammars = Grammars::new(Arc::new(vocabulary));
        let grammar = Grammar::Lark(text.as_str().into());
        grammars.check(&grammar).unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.wire.name()));
        Ok(Walks {
            wire: self.wire,
            tools: self.tools.to_vec(),
            schemas: self.tools.iter().map(|tool| ToolSchema::of(tool).unwrap()).collect(),
            strict: self.strict,
            reasoning: self.reasoning,
            grammars,
            grammar,
            words,
            special,
            end,
        })
    }
}

impl Walks {
    /// An answer as the parser reads it; `None` where it came to no end.
    pub(crate) fn answer(&self, seed: u64) -> Option<Answer> {
        let mut random = Random(seed, 0);
        let mut walk = self.grammars.walk(&self.grammar).unwrap();
        let mut tokens = Vec::new();
        loop {
            if tokens.len() > 900 {
                return None;
            }
            let allowed = walk.allowed().unwrap_or_else(|why| panic!("{why}: {:?}", self.spell(&tokens)));
            assert!(
                !allowed.is_empty(),
                "{}: nothing may follow {:?}",
                self.wire.name(),
                self.spell(&tokens)
            );
            let next = self.choose(&allowed, tokens.len(), &mut random);
            if next == self.end {
                break;
            }
            walk.take(next);
            tokens.push(next);
        }
        Some(self.read(&tokens))
    }

    /// The answer of a grammar that leaves no choice, spelled out.
    pub(crate) fn only(&self) -> String {
        let mut walk = self.grammars.walk(&self.grammar).unwrap();
        let mut tokens = Vec::new();
        loop {
            let allowed = walk.allowed().unwrap();
            if allowed.contains(&self.end) {
                return self.spell(&tokens);
            }
            // A mark ends what else could go on; any other tokens are ways of spelling one text.
            let mark = allowed.iter().find(|token| self.special.iter().any(|(known, _)| known == *token));
            let next = *mark.unwrap_or(&allowed[0]);
            walk.take(next);
            tokens.push(next);
            assert!(tokens.len() < 1000, "{}: no end of {:?}", self.wire.name(), self.spell(&tokens));
        }
    }

    fn choose(&self, allowed: &[Token], so_far: usize, random: &mut Random) -> Token {
        // Long answers hurry to their ends: marks and closing characters first.
        let hurry = so_far > 150;
        if allowed.contains(&self.end) && random.below(if hurry { 1 } else { 3 }) == 0 {
            return self.end;
        }
        let long = |token: &&Token| self.words[token.0 as usize].len() != 1;
        let closing = |token: &&Token| {
            matches!(self.words[token.0 as usize][..], [b'"' | b'}' | b']' | b')' | b'\n'] | [])
        };
        // Text that goes on for long opens few calls.
        let opens = |token: &&Token| {
            let word = &self.words[token.0 as usize];
            word.is_empty() || (word.len() > 4 && word.contains(&b'<'))
        };
        let early: Vec<Token> = if so_far < 6 && random.below(2) == 0 {
            allowed.iter().filter(opens).copied().collect()
        } else {
            Vec::new()
        };
        let some: Vec<Token> = match random.below(if hurry { 2 } else { 5 }) {
            0 => allowed.iter().filter(long).copied().collect(),
            1 => allowed.iter().filter(closing).copied().collect(),
            _ => Vec::new(),
        };
        let from = [&early, &some].into_iter().find(|list| !list.is_empty()).map_or(allowed, Vec::as_slice);
        from[random.below(from.len() as u64) as usize]
    }

    fn spell(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|token| match self.special.iter().find(|(known, _)| known == token) {
                Some((_, text)) => text.as_bytes().to_vec(),
                None => self.words[token.0 as usize].clone(),
            })
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn read(&self, tokens: &[Token]) -> Answer {
        let mut parser = match self.reasoning {
            Thought::Open => Parser::in_reasoning(self.wire, &self.schemas),
            _ => Parser::new(self.wire, &self.schemas),
        }
        .held();
        let (mut deltas, mut bytes) = (Vec::new(), Vec::new());
        for token in tokens {
            let mark =
                self.special.iter().find(|(known, text)| known == token && self.wire.marks().contains(text));
            if let Some((_, text)) = mark {
                parser.feed(Input::Marker(text), &mut deltas);
                continue;
            }
            match self.special.iter().find(|(known, _)| known == token) {
                Some((_, text)) => bytes.extend_from_slice(text.as_bytes()),
                None => bytes.extend_from_slice(&self.words[token.0 as usize]),
            }
            if let Ok(text) = std::str::from_utf8(&bytes) {
                parser.feed(Input::Text(text), &mut deltas);
                bytes.clear();
            }
        }
        assert!(bytes.is_empty(), "{bytes:?}");
        parser.finish(&mut deltas);
        let mut answer = Answer::default();
        deltas.iter().for_each(|delta| answer.take(delta));
        let ends_whole = answer.calls.iter().all(|call| call.whole);
        assert!(
            ends_whole && answer.failures.is_empty(),
            "{}: {:?} is {answer:?}",
            self.wire.name(),
            self.spell(tokens)
        );
        answer
    }

    /// Every call is one of the tools, with arguments that its schema accepts.
    pub(crate) fn holds(&self, answer: &Answer) {
        for call in &answer.calls {
            let tool = self.tools.iter().find(|tool| tool.name == call.name);
            let tool = tool.unwrap_or_else(|| panic!("{}: no such tool: {call:?}", self.wire.name()));
            let value: Value = match serde_json::from_str(&call.arguments) {
                Ok(value) => value,
                // JSON knows numbers that are larger than any float.
                Err(error) if error.to_string().starts_with("number out of range") => continue,
                Err(error) => panic!("{}: {error}: {call:?}", self.wire.name()),
            };
            assert!(value.is_object(), "{call:?}");
            let schema = sf_codec::wire::parameters_text(tool);
            if self.strict {
                let schema: Value = serde_json::from_str(&schema).unwrap();
                let valid = jsonschema::validate(&schema, &value);
                assert!(valid.is_ok(), "{}: {call:?}: {valid:?}", self.wire.name());
            }
        }
    }
}

/// Numbers by seed and place.
struct Random(u64, u32);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.1 += 1;
        (sf_kit::sampler::philox::uniform(self.0, self.1) * count as f64) as u64
    }
}

pub(crate) fn tool(name: &str, parameters: &Value) -> Tool {
    let function = json!({"name": name, "parameters": parameters});
    Tool { name: name.to_owned(), json: core(&json!({"type": "function", "function": function})) }
}

fn core(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Json::Integer(whole.into()),
            None => Json::Float(number.as_f64().unwrap()),
        },
        Value::String(text) => Json::String(text.clone()),
        Value::Array(values) => Json::Array(values.iter().map(core).collect()),
        Value::Object(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.clone(), core(value))).collect())
        }
    }
}

/// Tools with what schemas have in the wild.
pub(crate) fn tools() -> Vec<Tool> {
    vec![
        tool("ping", &json!({"type": "object", "properties": {}})),
        tool("nothing", &Value::Null),
        tool(
            "get_weather",
            &json!({"type": "object", "additionalProperties": false, "required": ["city", "days"],
            "properties": {
                "city": {"type": "string", "minLength": 2, "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
                "units": {"enum": ["celsius", "fahrenheit"]},
                "metric": {"type": "boolean"}}}),
        ),
        tool(
            "note",
            &json!({"type": "object", "required": ["text"], "properties": {
            "text": {"type": "string", "description": "Free."},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
            "meta": {"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"type": "number"}},
                "required": ["ok"], "additionalProperties": false},
            "score": {"type": ["number", "null"]}}}),
        ),
        tool(
            "find",
            &json!({"required": ["kind", "node"], "properties": {
            "kind": {"$ref": "#/$defs/kind"},
            "node": {"$ref": "#/$defs/node"},
            "when": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
            "label": {"type": ["string", "null"]},
            "level": {"enum": [1, 2, "max", null]}},
            "$defs": {"kind": {"type": "string", "enum": ["a", "b c", "d\"e"]},
                "node": {"type": "object", "required": ["v"], "additionalProperties": false, "properties": {
                    "v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}}}),
        ),
    ]
}
