//! What the `post_processor` of a `tokenizer.json` puts around a text.

use serde_json::Value;

/// Tokens before a text and behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    pub before: Vec<u32>,
    pub behind: Vec<u32>,
}

impl Surroundings {
    /// `Err` says what is wrong.
    pub(crate) fn read(processor: &Value) -> Result<Surroundings, String> {
        let mut around = Surroundings::default();
        around.add(processor)?;
        Ok(around)
    }

    fn add(&mut self, processor: &Value) -> Result<(), String> {
        let name = match processor {
            Value::Null => return Ok(()),
            _ => processor.get("type").and_then(Value::as_str).ok_or("it has no type")?,
        };
        match name {
            // It only moves the places of tokens.
            "ByteLevel" => Ok(()),
            "Sequence" => {
                let list = processor.get("processors").and_then(Value::as_array);
                list.ok_or("Sequence has no processors")?.iter().try_for_each(|processor| self.add(processor))
            }
            "BertProcessing" | "RobertaProcessing" => {
                let id = |key: &str| {
                    let id = processor.get(key).and_then(|pair| pair.get(1)).and_then(number);
                    id.ok_or_else(|| format!("{name} has no {key}"))
                };
                self.before.insert(0, id("cls")?);
                self.behind.push(id("sep")?);
                Ok(())
            }
            "TemplateProcessing" => self.add_template(processor),
            _ => Err(format!("{name} is not supported")),
        }
    }

    fn add_template(&mut self, processor: &Value) -> Result<(), String> {
        let pieces = processor.get("single").and_then(Value::as_array).ok_or("the template has no pieces")?;
        let (mut before, mut behind) = (Vec::new(), None);
        for piece in pieces {
            if piece.get("Sequence").is_some() {
                if behind.replace(Vec::new()).is_some() {
                    return Err("the template holds the text twice".to_owned());
                }
                continue;
            }
            let name = piece.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str);
            let name = name.ok_or("a piece of the template is neither text nor a token")?;
            let ids =
                processor.get("special_tokens").and_then(|tokens| tokens.get(name)?.get("ids")?.as_array());
            let ids: Option<Vec<u32>> = ids.and_then(|ids| ids.iter().map(number).collect());
            let ids = ids.ok_or_else(|| format!("token {name:?} of the template has no numbers"))?;
            behind.as_mut().unwrap_or(&mut before).extend(ids);
        }
        let behind = behind.ok_or("the template has no place for the text")?;
        self.before.splice(0..0, before);
        self.behind.extend(behind);
        Ok(())
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| number.try_into().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(single: &Value) -> Value {
        let tokens = json!({"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
            "<e>": {"id": "<e>", "ids": [2, 3], "tokens": ["<e>", "<f>"]}});
        json!({"type": "TemplateProcessing", "single": single, "special_tokens": tokens})
    }

    fn token(name: &str) -> Value {
        json!({"SpecialToken": {"id": name, "type_id": 0}})
    }

    #[test]
    fn tokens_go_before_and_behind_the_text() {
        let check = |processor: &Value, before: &[u32], behind: &[u32]| {
            let expect = Surroundings { before: before.to_vec(), behind: behind.to_vec() };
            assert_eq!(Surroundings::read(processor), Ok(expect), "{processor}");
        };
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        check(&Value::Null, &[], &[]);
        check(&json!({"type": "ByteLevel"}), &[], &[]);
        check(
            &json!({"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}),
            &[101],
            &[102],
        );
        check(&template(&json!([text])), &[], &[]);
        let inner = template(&json!([token("<s>"), text, token("<e>")]));
        check(&inner, &[1], &[2, 3]);
        let outer = json!({"type": "RobertaProcessing", "sep": ["</s>", 5], "cls": ["<s>", 4]});
        check(
            &json!({"type": "Sequence", "processors": [inner, {"type": "ByteLevel"}, outer]}),
            &[4, 1],
            &[2, 3, 5],
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |processor: &Value, reason: &str| {
            let fault = Surroundings::read(processor).expect_err(reason);
            assert!(fault.contains(reason), "{fault:?}");
        };
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        check(&json!({}), "no type");
        check(&json!({"type": "Magic"}), "Magic is not supported");
        check(&template(&json!([token("<s>")])), "no place for the text");
        check(&template(&json!([text, text])), "the text twice");
        check(&template(&json!([token("<x>"), text])), "\"<x>\" of the template has no numbers");
        check(&json!({"type": "BertProcessing", "sep": ["[SEP]", 102]}), "BertProcessing has no cls");
    }
}
