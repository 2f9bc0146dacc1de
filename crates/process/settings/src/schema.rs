//! The JSON Schema of the config.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::Config;

/// The JSON Schema (draft 2020-12) of the config.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    schema["title"] = "Egret config".into();
    schema
}

/// The schema as text without line breaks, for programs.
pub fn compact_schema() -> &'static str {
    static SCHEMA: LazyLock<String> = LazyLock::new(|| schema().to_string());
    &SCHEMA
}
