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
    use std::fs;

    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::config::Config;

    /// The variable with which the test writes the file.
    const WRITE: &str = "EGRET_WRITE_SCHEMA";

    #[test]
    fn the_committed_schema_is_that_of_the_config() {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut generated = generator.into_root_schema_for::<Config>().to_value();
        generated["title"] = "Egret config".into();
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
