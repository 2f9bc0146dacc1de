//! The config keys under `exporters:`, and the rules that their types cannot express.

use std::borrow::Cow;
use std::collections::BTreeMap;

use egret_config::Problem;
use egret_har::sink::Content;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::alf::AlfConfig;
use crate::files::config::FilesConfig;
use crate::otlp_exporter::OtlpConfig;
use crate::s3::S3Config;
use crate::webhook::WebhookConfig;

/// Exporters by name, as in the config.
pub type ExporterConfigs = BTreeMap<String, ExporterConfig>;

/// Maximum length of an exporter's name, which is part of file names.
const NAME_BYTES_MAX: usize = 64;

/// Defines the types of exporters. Each has one line: its `type` in the config, its description, its keys,
/// and those of them that are everyday keys.
macro_rules! exporters {
    ($($word:literal: $about:literal => $Kind:ident($Config:ty) $([everyday: $($everyday:literal),*])?;)*) => {
        /// A destination of the output of diagnoses.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "type")]
        pub enum ExporterConfig {
            $(
                #[doc = $about]
                #[serde(rename = $word)]
                $Kind($Config),
            )*
        }

        impl<'de> Deserialize<'de> for ExporterConfig {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                /// Its serde name makes the config reader look for the variant under the key `type`.
                #[derive(Deserialize)]
                #[serde(rename = "type")]
                enum Tagged {
                    $(#[serde(rename = $word)] $Kind($Config),)*
                }
                Ok(match Tagged::deserialize(deserializer)? {
                    $(Tagged::$Kind(config) => Self::$Kind(config),)*
                })
            }
        }

        impl JsonSchema for ExporterConfig {
            fn schema_name() -> Cow<'static, str> {
                "ExporterConfig".into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let types = [$(
                    tagged($word, $about, &[$($($everyday),*)?], <$Config>::json_schema(generator))
                ),*];
                json_schema!({ "description": "An exporter. `type` determines its other keys.", "oneOf": types })
            }
        }

        impl ExporterConfig {
            /// Returns its `type`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $word,)* }
            }

            /// Returns `true` if it sends what it gets to a server.
            pub fn calls_server(&self) -> bool {
                matches!(self, Self::Otlp(_) | Self::Alf(_) | Self::S3(_) | Self::Webhook(_))
            }
        }
    };
}

exporters! {
    "har": "Writes HAR files, which are valid at every moment." => Har(FilesConfig) [everyday: "type", "directory"];
    "ndjson": "Writes files with one HAR entry per line." => Ndjson(FilesConfig);
    "lines": "Writes text files, such as access logs." => Lines(FilesConfig);
    "stdout": "Writes lines to standard output." => Stdout(StdoutConfig);
    "otlp": "Sends spans and metrics to an OpenTelemetry collector." => Otlp(OtlpConfig);
    "alf": "Sends ALF documents to a collector, over ZeroMQ or HTTP." => Alf(AlfConfig);
    "s3": "Uploads files to a bucket of any S3-compatible store." => S3(S3Config);
    "webhook": "Posts alerts of quotas to a URL." => Webhook(WebhookConfig);
}

impl ExporterConfig {
    /// Returns `true` if this type of exporter accepts the content.
    pub fn takes(&self, content: Content) -> bool {
        match self {
            Self::Lines(_) => content == Content::Lines,
            Self::Otlp(_) => content == Content::Telemetry,
            Self::Webhook(_) => content == Content::Alerts,
            Self::Stdout(_) => matches!(content, Content::Lines | Content::Entries),
            Self::S3(s3) => content == s3.format.content(),
            Self::Har(_) | Self::Ndjson(_) | Self::Alf(_) => content == Content::Entries,
        }
    }
}

/// Returns the schema of one type's keys, with `type` as the first. `everyday` are the everyday ones.
fn tagged(word: &str, about: &str, everyday: &[&str], schema: Schema) -> Schema {
    let mut schema = schema.to_value();
    let mut properties = serde_json::Map::new();
    properties.insert("type".to_owned(), serde_json::json!({ "const": word, "description": about }));
    if let Some(serde_json::Value::Object(others)) = schema.get_mut("properties").map(std::mem::take) {
        properties.extend(others);
    }
    for key in everyday {
        if let Some(value) = properties.get_mut(*key) {
            value["x-tier"] = "everyday".into();
        }
    }
    schema["properties"] = properties.into();
    schema["description"] = format!("`type: {word}`: {}{}", about[..1].to_lowercase(), &about[1..]).into();
    match schema.get_mut("required").and_then(serde_json::Value::as_array_mut) {
        Some(required) => required.insert(0, "type".into()),
        None => schema["required"] = serde_json::json!(["type"]),
    }
    Schema::try_from(schema).unwrap_or_default()
}

/// Standard output. If its reader is slow or gone, up to 1 MiB of lines waits and further lines are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdoutConfig {}

/// Returns a sentence for each exporter without an access key in this environment. Another one may have it.
pub fn advise(exporters: &ExporterConfigs) -> Vec<String> {
    let lack = |(name, exporter): (&String, &ExporterConfig)| {
        let ExporterConfig::S3(s3) = exporter else { return None };
        let error = s3.access_key().err()?;
        Some(format!("exporters.{name}: `egret run` needs what this environment lacks: {error}"))
    };
    exporters.iter().filter_map(lack).collect()
}

/// Returns the problems of `exporters` that the types cannot express.
pub fn problems(exporters: &ExporterConfigs) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, exporter) in exporters {
        let at = format!("exporters.{name}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            let message = format!(
                "an exporter's name must have 1 to {NAME_BYTES_MAX} letters, digits, `-` or `_`: it is part of file names"
            );
            problems.push(Problem::new(at.as_str(), message));
        }
        match exporter {
            ExporterConfig::Har(files) | ExporterConfig::Ndjson(files) | ExporterConfig::Lines(files) => {
                files.problems(&at, &mut problems);
            }
            ExporterConfig::Stdout(_) => {}
            ExporterConfig::Otlp(otlp) => otlp.problems(&at, &mut problems),
            ExporterConfig::Alf(alf) => alf.problems(&at, &mut problems),
            ExporterConfig::S3(s3) => s3.problems(&at, &mut problems),
            ExporterConfig::Webhook(webhook) => webhook.problems(&at, &mut problems),
        }
    }
    problems
}
