//! The variables of a config that are not set where `egret doctor` runs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::redact::references;

/// Returns the variable that a problem of the config is about, if it is that the variable is not set.
pub fn variable_of(problem: &str) -> Option<&str> {
    let (_, rest) = problem.split_once("environment variable ")?;
    let (name, _) = rest.split_once(" is not set")?;
    (!name.contains(char::is_whitespace)).then_some(name)
}

/// Adds the variables whose secrets a config refers to, and which are not set.
pub fn add(config: &Value, names: &mut BTreeSet<String>) {
    match config {
        Value::String(text) => {
            let name =
                |reference| Some(str::strip_prefix(reference, "${env:")?.strip_suffix('}')?.to_owned());
            let is_unset = |name: &String| std::env::var_os(name).is_none();
            names.extend(references(text).filter_map(name).filter(is_unset));
        }
        Value::Array(list) => list.iter().for_each(|value| add(value, names)),
        Value::Object(map) => map.values().for_each(|value| add(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_told_apart_from_mistakes() {
        let problem =
            "a.yaml:1:2: data_dir: the environment variable SK_A is not set: set it, or write a default";
        assert_eq!(variable_of(problem), Some("SK_A"));
        assert_eq!(variable_of("a.yaml:1:2: unknown key `a`"), None);
        let mut names = BTreeSet::new();
        add(&json!({ "a": ["${env:EGRET_NO_SUCH}", "${env:PATH}"], "b": "${file:/x}" }), &mut names);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["EGRET_NO_SUCH"]);
    }
}
