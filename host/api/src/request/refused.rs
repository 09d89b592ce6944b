//! The fields that change an answer and are not honoured in this build, and those that are known to change nothing.

use serde_json::Value;
use sf_core::{Fault, FaultKind};

use crate::body::clipped;
use crate::fields::Fields;

/// A field that is refused unless its value asks for nothing.
pub(super) struct Refused {
    name: &'static str,
    nothing: Nothing,
    hint: &'static str,
}

/// Which values ask for nothing; `null` always does.
enum Nothing {
    /// `[]`, `{}` and `""`.
    Empty,
    False,
    True,
    Number(f64),
    Word(&'static str),
    /// `["text"]`.
    TextOnly,
}

impl Nothing {
    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Nothing::Empty, Value::Array(values)) => values.is_empty(),
            (Nothing::Empty, Value::Object(map)) => map.is_empty(),
            (Nothing::Empty, Value::String(text)) => text.is_empty(),
            (Nothing::False, Value::Bool(value)) => !value,
            (Nothing::True, Value::Bool(value)) => *value,
            (Nothing::Number(nothing), Value::Number(value)) => value.as_f64() == Some(*nothing),
            (Nothing::Word(nothing), Value::String(word)) => word == nothing,
            (Nothing::TextOnly, Value::Array(values)) => values.iter().all(|v| v == "text"),
            _ => false,
        }
    }
}

const fn row(name: &'static str, nothing: Nothing) -> Refused {
    Refused { name, nothing, hint: "leave it out" }
}

const fn hinted(name: &'static str, nothing: Nothing, hint: &'static str) -> Refused {
    Refused { name, nothing, hint }
}

/// Refused on every endpoint that generates.
pub(super) const GENERATION: &[Refused] = &[
    hinted("grammar", Nothing::Empty, "GBNF is not read; use `guided_grammar` with a Lark grammar"),
    row("bad_words", Nothing::Empty),
    row("allowed_token_ids", Nothing::Empty),
    hinted("n_predict", Nothing::Number(-1.0), "use `max_tokens`"),
    hinted("max_new_tokens", Nothing::Empty, "use `max_tokens`"),
    hinted("max_output_tokens", Nothing::Empty, "use `max_tokens`"),
    hinted("stop_sequences", Nothing::Empty, "use `stop`"),
    row("use_beam_search", Nothing::False),
    row("length_penalty", Nothing::Number(1.0)),
    row("prompt_logprobs", Nothing::Empty),
    row("include_stop_str_in_output", Nothing::False),
    row("skip_special_tokens", Nothing::True),
    row("return_token_ids", Nothing::False),
    row("samplers", Nothing::Empty),
    row("mirostat", Nothing::Number(0.0)),
    row("typical_p", Nothing::Number(1.0)),
    row("top_n_sigma", Nothing::Number(-1.0)),
    row("top_a", Nothing::Number(0.0)),
    row("tfs_z", Nothing::Number(1.0)),
    row("xtc_probability", Nothing::Number(0.0)),
    row("dry_multiplier", Nothing::Number(0.0)),
    row("dynatemp_range", Nothing::Number(0.0)),
    row("repeat_last_n", Nothing::Number(64.0)),
    row("no_repeat_ngram_size", Nothing::Number(0.0)),
    row("lora", Nothing::Empty),
    row("t_max_predict_ms", Nothing::Number(0.0)),
];

/// Refused on `/v1/chat/completions` besides.
pub(super) const CHAT: &[Refused] = &[
    row("functions", Nothing::Empty),
    row("function_call", Nothing::Word("none")),
    row("modalities", Nothing::TextOnly),
    row("audio", Nothing::Empty),
    row("web_search_options", Nothing::Empty),
    row("chat_template", Nothing::Empty),
    row("add_generation_prompt", Nothing::True),
    row("continue_final_message", Nothing::False),
    row("documents", Nothing::Empty),
    row("echo", Nothing::False),
    hinted("suffix", Nothing::Empty, "use /v1/completions"),
    hinted("prompt", Nothing::Empty, "use `messages`, or /v1/completions"),
    row("best_of", Nothing::Number(1.0)),
];

/// Refused on `/v1/completions` besides.
pub(super) const TEXT: &[Refused] = &[
    hinted("messages", Nothing::Empty, "use `prompt`, or /v1/chat/completions"),
    hinted("top_logprobs", Nothing::Empty, "use `logprobs` with a number"),
    row("add_special_tokens", Nothing::True),
    row("prompt_embeds", Nothing::Empty),
    row("tools", Nothing::Empty),
];

/// Refused on `/v1/embeddings`.
pub(super) const EMBEDDINGS: &[Refused] = &[
    hinted("truncate", Nothing::False, "shorten what is too long: nothing is cut off in silence"),
    hinted(
        "truncate_prompt_tokens",
        Nothing::Empty,
        "shorten what is too long: nothing is cut off in silence",
    ),
    row("add_special_tokens", Nothing::True),
    hinted("messages", Nothing::Empty, "use `input`"),
    hinted("prompt", Nothing::Empty, "use `input`"),
];

/// Refused in a message.
pub(super) const MESSAGE: &[Refused] = &[
    row("function_call", Nothing::Empty),
    row("audio", Nothing::Empty),
    row("prefix", Nothing::False),
    row("partial", Nothing::False),
];

/// Refused in `stream_options`.
pub(super) const STREAM_OPTIONS: &[Refused] = &[row("continuous_usage_stats", Nothing::False)];

/// Known to change nothing about the answer's text.
const HARMLESS: &[&str] = &[
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "store",
    "verbosity",
];

/// Refuses what `table` lists and the client gave a meaning.
pub(super) fn check(fields: &Fields, table: &[Refused]) -> Result<(), Fault> {
    for refused in table {
        let Some(value) = fields.peek(refused.name) else { continue };
        if !refused.nothing.is(value) {
            let path = fields.path(refused.name);
            let message = format!("`{path}` is not in this build yet");
            let fault = Fault::new(FaultKind::Unsupported, "unsupported_parameter", message);
            return Err(fault.param(path).hint(refused.hint));
        }
    }
    Ok(())
}

/// The names of fields that stand in no table.
pub(super) fn unknown(fields: Fields, tables: &[&[Refused]]) -> Vec<String> {
    let listed = |name: &str| {
        HARMLESS.contains(&name) || tables.iter().any(|table| table.iter().any(|row| row.name == name))
    };
    let names = fields.rest().into_iter().filter(|(name, value)| !value.is_null() && !listed(name));
    names.map(|(name, _)| clipped(&name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{CHAT, GENERATION, TEXT, check};
    use crate::fields::Fields;
    use serde_json::{Value, json};

    fn refused(body: Value) -> Option<String> {
        let fields = Fields::root(body).unwrap();
        [GENERATION, CHAT].iter().find_map(|table| check(&fields, table).err()).and_then(|fault| fault.param)
    }

    #[test]
    fn a_value_that_asks_for_nothing_is_not_refused() {
        for nothing in [
            json!({"functions": null}),
            json!({"functions": []}),
            json!({"tool_choice": "none"}),
            json!({"tool_choice": "required"}),
            json!({"modalities": ["text"]}),
            json!({"mirostat": 0}),
            json!({"typical_p": 1.0}),
            json!({"skip_special_tokens": true}),
        ] {
            assert_eq!(refused(nothing.clone()), None, "{nothing}");
        }
    }

    #[test]
    fn a_value_with_a_meaning_is_refused() {
        for (body, param) in [
            (json!({"functions": [{}]}), "functions"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"mirostat": 2}), "mirostat"),
            (json!({"skip_special_tokens": false}), "skip_special_tokens"),
            (json!({"grammar": "root ::= x"}), "grammar"),
        ] {
            assert_eq!(refused(body), Some(param.to_owned()));
        }
    }

    #[test]
    fn no_name_stands_twice_for_one_endpoint() {
        for table in [CHAT, TEXT] {
            let mut names: Vec<_> = GENERATION.iter().chain(table).map(|row| row.name).collect();
            names.extend(super::HARMLESS);
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
