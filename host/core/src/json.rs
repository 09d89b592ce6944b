//! A JSON value as a client gave it, free of any parser: tool schemas, arguments of calls, template arguments.

/// One value. Objects keep the client's order, and no name stands twice in one.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, written without fraction or exponent.
    Integer(i128),
    /// Any other number; finite.
    Float(f64),
    /// Text.
    String(String),
    /// Values in order.
    Array(Vec<Json>),
    /// Names and values in the client's order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// Calls `see` with every string in it, names included.
    pub fn for_each_text<'a>(&'a self, see: &mut dyn FnMut(&'a str)) {
        match self {
            Json::String(text) => see(text),
            Json::Array(values) => values.iter().for_each(|value| value.for_each_text(see)),
            Json::Object(members) => {
                for (name, value) in members {
                    see(name);
                    value.for_each_text(see);
                }
            }
            Json::Null | Json::Bool(_) | Json::Integer(_) | Json::Float(_) => {}
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::String(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn every_text_is_seen_and_members_are_found() {
        let inner = Json::Object(vec![("k".to_owned(), "v".into()), ("n".to_owned(), Json::Integer(1))]);
        let value = Json::Object(vec![("list".to_owned(), Json::Array(vec![Json::Null, "a".into(), inner]))]);
        let mut seen = Vec::new();
        value.for_each_text(&mut |text| seen.push(text));
        assert_eq!(seen, ["list", "a", "k", "v", "n"]);
        assert!(matches!(value.get("list"), Some(Json::Array(_))));
        assert_eq!(value.get("other"), None);
        assert_eq!((value.as_str(), Json::from("x").as_str()), (None, Some("x")));
    }
}
