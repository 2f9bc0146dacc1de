//! The config keys of `exporters:`, and what their types cannot say.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use egret_config::{Duration, Problem, Size};
use egret_har::sink::Content;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::alf::AlfConfig;
use crate::otlp::OtlpConfig;
use crate::s3::S3Config;

/// Exporters by name, as the config gives them.
pub type ExporterConfigs = BTreeMap<String, ExporterConfig>;

/// The longest name of an exporter, which is part of file names.
const NAME_BYTES_MAX: usize = 64;
/// A smaller file would be all beginning and end.
const ROTATE_MIN: Size = Size::from_kib(4);

/// From one line for each type of exporter: its word in the config, what it is, and its keys.
macro_rules! exporters {
    ($($word:literal: $about:literal => $Kind:ident($Config:ty);)*) => {
        /// Where diagnoses send what they made.
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
                /// Its name asks the config's reader to find the variant under the key `type`.
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
                let types = [$(tagged($word, $about, <$Config>::json_schema(generator))),*];
                json_schema!({ "description": "An exporter; `type` says which keys it has.", "oneOf": types })
            }
        }

        impl ExporterConfig {
            /// Its `type`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $word,)* }
            }
        }
    };
}

exporters! {
    "har": "Writes HAR files, which are valid at every moment." => Har(FilesConfig);
    "ndjson": "Writes files with a HAR entry a line." => Ndjson(FilesConfig);
    "lines": "Writes files of text, such as access logs." => Lines(FilesConfig);
    "stdout": "Writes lines to standard output." => Stdout(StdoutConfig);
    "otlp": "Sends spans and metrics to a collector of OpenTelemetry." => Otlp(OtlpConfig);
    "alf": "Sends documents of ALF to a collector, over ZeroMQ or HTTP." => Alf(AlfConfig);
    "s3": "Puts HAR files into a bucket of any store that speaks S3." => S3(S3Config);
}

impl ExporterConfig {
    /// Whether an exporter of the kind can do anything with that.
    pub fn takes(&self, content: Content) -> bool {
        match self {
            Self::Lines(_) => content == Content::Lines,
            Self::Otlp(_) => content == Content::Telemetry,
            Self::Stdout(_) => matches!(content, Content::Lines | Content::Entries),
            Self::Har(_) | Self::Ndjson(_) | Self::Alf(_) | Self::S3(_) => content == Content::Entries,
        }
    }
}

/// The schema of one type's keys, with `type` before them.
fn tagged(word: &str, about: &str, schema: Schema) -> Schema {
    let mut schema = schema.to_value();
    let mut properties = serde_json::Map::new();
    properties.insert("type".to_owned(), serde_json::json!({ "const": word, "description": about }));
    if let Some(serde_json::Value::Object(others)) = schema.get_mut("properties").map(std::mem::take) {
        properties.extend(others);
    }
    schema["properties"] = properties.into();
    schema["description"] = format!("`type: {word}`: {}{}", about[..1].to_lowercase(), &about[1..]).into();
    match schema.get_mut("required").and_then(serde_json::Value::as_array_mut) {
        Some(required) => required.insert(0, "type".into()),
        None => schema["required"] = serde_json::json!(["type"]),
    }
    Schema::try_from(schema).unwrap_or_default()
}

/// Files in a directory of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Where the files are. It is made when first needed, for its owner alone. Several exporters may share one.
    pub directory: PathBuf,
    /// How long a file may get before another is begun; up to one batch longer. From `4KiB` on.
    #[serde(default = "rotate_default")]
    pub rotate: Size,
    /// How old a file may get before another is begun; `0s` is without end.
    #[serde(default = "rotate_after_default")]
    pub rotate_after: Duration,
    /// What all files of this exporter may take together; the oldest are deleted. At least twice `rotate`; `0B` keeps all.
    #[serde(default = "keep_default")]
    pub keep: Size,
    /// Whether files are compressed once they are closed.
    #[serde(default)]
    pub gzip: bool,
}

/// Standard output. What reads it may be slow or gone: a megabyte waits, what comes then is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdoutConfig {}

fn rotate_default() -> Size {
    Size::from_kib(64 << 10)
}

fn rotate_after_default() -> Duration {
    Duration::from_secs(3_600)
}

fn keep_default() -> Size {
    Size::from_kib(1 << 20)
}

/// What is wrong with `exporters` that their types cannot say.
pub fn problems(exporters: &ExporterConfigs) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, exporter) in exporters {
        let at = format!("exporters.{name}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            let message = format!(
                "an exporter's name is 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`: files are named after it"
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
        }
    }
    problems
}

impl FilesConfig {
    fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        if self.directory == Path::new("") {
            problems.push(Problem::new(format!("{at}.directory"), "a directory has a name; `.` is this one"));
        }
        rotation_problems(at, self.rotate, ("keep", self.keep), problems);
    }
}

/// A bound on all files has to leave room for one that is being written beside a closed one.
pub(crate) fn rotation_problems(
    at: &str,
    rotate: Size,
    (key, keep): (&str, Size),
    problems: &mut Vec<Problem>,
) {
    if rotate < ROTATE_MIN {
        problems.push(Problem::new(format!("{at}.rotate"), format!("at least `{ROTATE_MIN}`")));
    }
    if keep.bytes() > 0 && keep.bytes() < rotate.bytes().saturating_mul(2) {
        let message = format!("`{keep}` is less than twice `rotate`, `{rotate}`: nothing could be kept");
        problems.push(Problem::new(format!("{at}.{key}"), message));
    }
}
