//! Keeps secrets out of a report, by two independent rules: the values of all references in the config are
//! replaced wherever they occur, and so are literal texts under keys that sound secret.

use egret_config::Secret;
use serde_json::Value;

/// Shown in the place of a secret.
const REDACTED: &str = "[redacted]";

/// Secrets shorter than this would make most of a report unreadable, and are no secrets.
const SECRET_BYTES_MIN: usize = 4;

/// Parts of key names whose texts may be secret.
const SECRET_WORDS: [&str; 8] =
    ["token", "secret", "password", "passwd", "api-key", "apikey", "credential", "authorization"];

/// The secrets to keep out.
#[derive(Default)]
pub struct Redactor(Vec<Secret>);

impl Redactor {
    /// Adds every secret that a config refers to, as far as this process can read it.
    pub fn add_references(&mut self, config: &Value) {
        match config {
            Value::String(text) => {
                self.0.extend(references(text).filter_map(|text| Secret::resolve(text).ok()));
            }
            Value::Array(list) => list.iter().for_each(|value| self.add_references(value)),
            Value::Object(map) => map.values().for_each(|value| self.add_references(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts everything in a report.
    pub fn redact(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.without_secrets(text),
            Value::Array(list) => list.iter_mut().for_each(|value| self.redact(value)),
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    match value {
                        Value::String(text) if sounds_secret(key) && !text.starts_with("${") => {
                            REDACTED.clone_into(text);
                        }
                        value => self.redact(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the text with every secret replaced.
    fn without_secrets(&self, text: &str) -> String {
        let secrets = self.0.iter().map(Secret::expose).flat_map(|secret| [secret, secret.trim()]);
        let secrets = secrets.filter(|secret| secret.len() >= SECRET_BYTES_MIN);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }
}

/// Returns the references in a text, such as `${env:NAME}` and `${file:PATH}`, without a default.
pub fn references(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("${").filter_map(|(at, _)| {
        let rest = &text[at..];
        rest.find('}').map(|end| &rest[..=end])
    })
}

fn sounds_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('_', "-");
    // Addresses and names of secrets are needed to find mistakes.
    let is_name = ["-url", "-file", "-fields", "-path"].iter().any(|end| key.ends_with(end));
    !is_name && SECRET_WORDS.iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neither_referenced_nor_literal_secrets_stay() {
        let path = std::env::var("PATH").unwrap();
        let mut redactor = Redactor::default();
        redactor
            .add_references(&json!({ "a": [{ "b": "Bearer ${env:PATH}" }], "c": "${env:EGRET_NO_SUCH}" }));
        let mut report = json!({
            "error": format!("cannot read {path}."),
            "token": "${env:PATH}",
            "Authorization": "Bearer abc",
            "token_url": "https://id.example",
            "headers": [{ "x-api-key": "abc" }],
        });
        redactor.redact(&mut report);
        let expected = json!({
            "error": "cannot read [redacted].",
            "token": "${env:PATH}",
            "Authorization": REDACTED,
            "token_url": "https://id.example",
            "headers": [{ "x-api-key": REDACTED }],
        });
        assert_eq!(report, expected);
    }
}
