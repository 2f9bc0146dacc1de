//! The texts of a serialized config, with their paths.

use serde_json::Value;

/// Calls `act` with the path and the content of each text below `written`, which is at the path `at`.
pub fn for_each_text(written: &Value, at: &str, act: &mut dyn FnMut(&str, &str)) {
    match written {
        Value::String(text) => act(at, text),
        Value::Array(list) => {
            for (number, entry) in list.iter().enumerate() {
                for_each_text(entry, &format!("{at}[{number}]"), act);
            }
        }
        Value::Object(map) => {
            for (key, entry) in map {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                for_each_text(entry, &at, act);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
