//! Reads the body of `/v1/embeddings`.

use serde_json::Value;
use sf_core::limits::EMBED_INPUTS_MAX;
use sf_core::{EmbedOrder, Fault, Input};

use super::chat::model;
use super::refused;
use super::text::inputs;
use crate::fields::{Fields, unknown_word};

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorFormat {
    /// Arrays of numbers.
    Float,
    /// The base64 of their bytes: floats of 32 bits, little-endian.
    Base64,
}

/// Texts to become vectors.
#[derive(Debug, PartialEq)]
pub(crate) struct ToEmbed {
    pub(crate) order: EmbedOrder,
    pub(crate) format: VectorFormat,
    /// Fields that nobody knows.
    pub(crate) ignored: Vec<String>,
}

/// The order in an embeddings request's body.
pub(crate) fn embeddings(body: Value) -> Result<ToEmbed, Fault> {
    let mut fields = Fields::root(body)?;
    refused::check(&fields, refused::EMBEDDINGS)?;
    let model = model(&mut fields)?;
    let given = fields.require("input")?;
    let path = fields.path("input");
    if let Value::Array(values) = &given
        && values.len() > EMBED_INPUTS_MAX
        && !values[0].is_number()
    {
        let message = format!("`{path}` has {} entries, accepted are {EMBED_INPUTS_MAX}", values.len());
        return Err(Fault::invalid("too_many", path, message).hint("send several requests"));
    }
    let is_list = given.as_array().is_some_and(|values| !values.first().is_some_and(Value::is_number));
    let inputs = inputs(given, &path)?;
    for (at, input) in inputs.iter().enumerate() {
        if matches!(input, Input::Text(text) if text.is_empty()) {
            let place = if is_list { format!("{path}[{at}]") } else { path };
            return Err(Fault::invalid("invalid_value", place.clone(), format!("`{place}` is empty")));
        }
    }
    let format_path = fields.path("encoding_format");
    let format = match fields.string("encoding_format")?.as_deref() {
        None | Some("float") => VectorFormat::Float,
        Some("base64") => VectorFormat::Base64,
        Some(word) => return Err(unknown_word(&format_path, word, "float or base64")),
    };
    let dimensions = fields.integer("dimensions", 1..=u32::MAX)?;
    // All requests are served alike.
    fields.string("user")?;
    let order = EmbedOrder { model, inputs, is_list, dimensions };
    Ok(ToEmbed { order, format, ignored: refused::unknown(fields, &[refused::EMBEDDINGS]) })
}

#[cfg(test)]
mod tests {
    use super::{VectorFormat, embeddings};
    use serde_json::{Value, json};
    use sf_core::{Input, Token};

    #[test]
    fn input_is_a_text_or_tokens_or_lists_of_them() {
        let check = |input: Value, expect: &[Input], is_list: bool| {
            let asked = embeddings(json!({"input": input})).unwrap();
            assert_eq!((asked.order.inputs.as_slice(), asked.order.is_list), (expect, is_list), "{input}");
        };
        let text = |text: &str| Input::Text(text.to_owned());
        let ids = |ids: &[u32]| Input::Tokens(ids.iter().copied().map(Token).collect());
        check(json!("a"), &[text("a")], false);
        check(json!(["a", "b"]), &[text("a"), text("b")], true);
        check(json!([5, 6]), &[ids(&[5, 6])], false);
        check(json!([[5, 6], [7]]), &[ids(&[5, 6]), ids(&[7])], true);
        check(json!(vec!["x"; 2048]), &vec![text("x"); 2048], true);
        check(json!(vec![1; 4000]), &[ids(&[1; 4000])], false);
    }

    #[test]
    fn a_complaint_names_the_field() {
        let check = |body: Value, code: &str, param: &str| {
            let fault = embeddings(body.clone()).unwrap_err();
            assert_eq!((fault.code, fault.param.as_deref()), (code, Some(param)), "{body}");
        };
        check(json!({}), "missing_required_parameter", "input");
        check(json!({"input": []}), "invalid_value", "input");
        check(json!({"input": ""}), "invalid_value", "input");
        check(json!({"input": ["a", ""]}), "invalid_value", "input[1]");
        check(json!({"input": ["a", 5]}), "invalid_type", "input[1]");
        check(json!({"input": [[1], []]}), "invalid_value", "input[1]");
        check(json!({"input": [[1], [2, "x"]]}), "invalid_type", "input[1][1]");
        check(json!({"input": {"text": "a"}}), "invalid_type", "input");
        check(json!({"input": vec!["x"; 2049]}), "too_many", "input");
        check(json!({"input": "a", "encoding_format": "int8"}), "invalid_value", "encoding_format");
        check(json!({"input": "a", "dimensions": 0}), "out_of_range", "dimensions");
        check(json!({"input": "a", "user": 5}), "invalid_type", "user");
        check(json!({"input": "a", "truncate": true}), "unsupported_parameter", "truncate");
        check(
            json!({"input": "a", "truncate_prompt_tokens": 9}),
            "unsupported_parameter",
            "truncate_prompt_tokens",
        );
        check(json!({"input": "a", "messages": [{}]}), "unsupported_parameter", "messages");
    }

    #[test]
    fn what_asks_for_nothing_is_accepted_and_what_nobody_knows_is_named() {
        let body = json!({
            "input": "a", "encoding_format": "base64", "dimensions": 384, "user": "me", "truncate": false,
            "input_type": "query",
        });
        let asked = embeddings(body).unwrap();
        assert_eq!((asked.format, asked.order.dimensions), (VectorFormat::Base64, Some(384)));
        assert_eq!(asked.ignored, ["input_type"]);
    }
}
