//! JSON with one form for one value.

use serde_json::Value;

/// Keys sorted by their bytes, no white space, numbers in their shortest form: the same value has the same bytes.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (number, (key, value)) in sorted.into_iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_has_one_form() {
        let check = |value: Value, expect: &str| assert_eq!(canonical(&value), expect);
        check(
            json!({"b": 1, "a": [true, null, "x\"\n"], "aa": {}}),
            r#"{"a":[true,null,"x\"\n"],"aa":{},"b":1}"#,
        );
        check(json!([0.1, 1e-5, 10000.0, -3]), "[0.1,0.00001,10000.0,-3]");
    }
}
