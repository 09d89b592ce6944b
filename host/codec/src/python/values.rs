//! A client's values as templates see them: every string guarded, and looked up by what the client wrote.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use sf_core::Json;

use super::repr::write_repr;
use crate::guard::Guard;

/// A dict. Its keys are guarded where the template gets hold of them and plain where it looks one up.
#[derive(Debug)]
struct Dict {
    keys: Vec<Value>,
    values: Vec<Value>,
    /// Places by plain key.
    places: HashMap<String, usize>,
    sentinel: char,
}

/// A list: as any other, but written as Python does wherever it stands.
#[derive(Debug)]
struct List {
    items: Vec<Value>,
    sentinel: char,
}

/// The value that a template gets for `json`.
pub(crate) fn value_of(json: &Json, guard: &Guard, sentinel: char) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Integer(value) => i64::try_from(*value).map_or_else(|_| Value::from(*value), Value::from),
        Json::Float(value) => Value::from(*value),
        Json::String(text) => Value::from(guard.content(text, sentinel)),
        Json::Array(values) => {
            let items = values.iter().map(|value| value_of(value, guard, sentinel)).collect();
            Value::from_object(List { items, sentinel })
        }
        Json::Object(members) => {
            let keys = members.iter().map(|(name, _)| Value::from(guard.content(name, sentinel)));
            let values = members.iter().map(|(_, value)| value_of(value, guard, sentinel));
            let places = members.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
            Value::from_object(Dict {
                keys: keys.collect(),
                values: values.collect(),
                places: places.collect(),
                sentinel,
            })
        }
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_as_python(&Value::from_dyn_object(Arc::clone(self)), self.sentinel, f)
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let place = if key.contains(self.sentinel) {
            self.places.get(&key.replace(self.sentinel, ""))
        } else {
            self.places.get(key)
        };
        place.map(|&at| self.values[at].clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.keys.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.keys.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_as_python(&Value::from_dyn_object(Arc::clone(self)), self.sentinel, f)
    }
}

fn write_as_python(value: &Value, sentinel: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = String::new();
    write_repr(value, Some(sentinel), 0, &mut text);
    f.write_str(&text)
}
