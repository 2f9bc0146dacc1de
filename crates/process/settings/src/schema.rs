//! The JSON Schema of the config.

use std::sync::LazyLock;

use serde_json::Value;

/// The schema as a test generates it from the structs. The binary does not have the code that generates it.
const TEXT: &str = include_str!("schema.json");

/// The JSON Schema (draft 2020-12) of the config.
pub fn schema() -> Value {
    serde_json::from_str(TEXT).unwrap_or_default()
}

/// The schema as text without line breaks, for programs.
pub fn compact_schema() -> &'static str {
    static SCHEMA: LazyLock<String> = LazyLock::new(|| schema().to_string());
    &SCHEMA
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::config::Config;

    /// The variable with which the test writes the file.
    const WRITE: &str = "EGRET_WRITE_SCHEMA";

    /// The types that a schema names itself.
    fn types(schema: &Value) -> Vec<String> {
        match &schema["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// The types of the plain values that a schema accepts.
    fn plain_types(schema: &Value, whole: &Value) -> BTreeSet<String> {
        let referenced = schema["$ref"].as_str().and_then(|path| whole.pointer(path.trim_start_matches('#')));
        let choices =
            ["anyOf", "oneOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten());
        let others = referenced.into_iter().chain(choices).flat_map(|other| plain_types(other, whole));
        let is_plain = |name: &String| !["array", "object", "null"].contains(&name.as_str());
        types(schema).into_iter().chain(others).filter(is_plain).collect()
    }

    /// Lets a plain value stand for a list of it, as the reader of the config does. A list among other
    /// choices stays: the value alone is another choice there.
    fn accept_one_item(schema: &mut Value, whole: &Value, is_choice: bool) {
        let mut accepted = types(schema);
        if !is_choice && accepted.iter().any(|name| name == "array") {
            accepted.extend(plain_types(&schema["items"], whole));
            schema["type"] = if accepted.len() > 1 { accepted.into() } else { "array".into() };
        }
        match schema {
            Value::Object(members) => {
                for (name, inner) in members {
                    accept_one_item(inner, whole, ["anyOf", "oneOf"].contains(&name.as_str()));
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|inner| accept_one_item(inner, whole, is_choice)),
            _ => {}
        }
    }

    #[test]
    fn the_committed_schema_is_that_of_the_config() {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut generated = generator.into_root_schema_for::<Config>().to_value();
        generated["title"] = "Egret config".into();
        let whole = generated.clone();
        accept_one_item(&mut generated, &whole, false);
        if std::env::var_os(WRITE).is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema.json");
            return fs::write(file, format!("{generated:#}\n")).unwrap();
        }
        let advice =
            "run `EGRET_WRITE_SCHEMA=1 cargo test -p egret-settings schema` and commit src/schema.json";
        assert!(schema() == generated, "{advice}");
        assert_eq!(TEXT, format!("{generated:#}\n"), "{advice}");
    }
}
