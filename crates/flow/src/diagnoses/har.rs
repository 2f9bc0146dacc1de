//! `har`: has exchanges archived as HAR 1.2, obfuscated before they leave.

use std::sync::{Arc, Mutex, PoisonError};

use egret_har::recording::Bodies;
use egret_har::sink::{Content, Exported, Sink};
use egret_har::{Key, Recorder, Recording, RecordingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::diagnosis::{Diagnosis, Site};
use crate::finished::Finished;

/// What of an entry's memory is kept for the next.
const SPARE_ENTRY_BYTES: usize = 256 * 1024;

/// Archives exchanges.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HarConfig {
    /// The exporter that they go to, by its name under `exporters`.
    pub export: String,
    /// Whether every value becomes a pseudonym, made with a key that only this installation has. Names, hosts, times and sizes stay.
    #[serde(default = "yes")]
    pub obfuscate: bool,
    /// Values that are not obfuscated, as exact paths: `request.headers.accept`, `request.query.page`, `request.path[0]`,
    /// `response.body.$.items[*].id`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether what looks like a secret, such as a token, a key, a card number or an e-mail address, becomes a pseudonym where
    /// nothing else does.
    #[serde(default = "yes")]
    pub detect_secrets: bool,
    /// What is kept of bodies.
    #[serde(default)]
    pub bodies: Bodies,
    /// Media types of which bodies are kept, as `application/json`, `text/*` or `*/*`. `*/*+json` is anything built on JSON.
    #[serde(default = "media_types")]
    pub media_types: Vec<String>,
}

fn yes() -> bool {
    true
}

fn media_types() -> Vec<String> {
    RecordingConfig::default().media_types
}

impl HarConfig {
    fn recording(&self) -> RecordingConfig {
        let Self { obfuscate, exclude, detect_secrets, bodies, media_types, .. } = self;
        RecordingConfig {
            obfuscate: *obfuscate,
            exclude: exclude.clone(),
            detect_secrets: *detect_secrets,
            bodies: *bodies,
            media_types: media_types.clone(),
        }
    }
}

/// Archives exchanges.
#[derive(Debug)]
pub struct Har {
    config: HarConfig,
    recording: Recording,
    sink: Arc<dyn Sink>,
    /// None where the config is only checked.
    writer: Option<Arc<Writer>>,
}

/// Makes entries. It remembers pseudonyms, so that it is kept where nothing about them has changed.
#[derive(Debug)]
struct Writer {
    recording: RecordingConfig,
    key: Arc<Key>,
    /// One thread alone makes diagnoses: the lock is never waited for.
    parts: Mutex<WriterParts>,
}

#[derive(Debug)]
struct WriterParts {
    recorder: Recorder,
    entry: Vec<u8>,
}

impl Diagnosis for Har {
    type Config = HarConfig;

    fn compile(config: &HarConfig, site: &mut Site<'_>) -> Option<Self> {
        let sink = site.sink("export", &config.export, Content::Entries);
        let recording = match Recording::compile(&config.recording()) {
            Ok(recording) => recording,
            Err(errors) => {
                for error in errors {
                    site.problem(&error.path, error.message);
                }
                return None;
            }
        };
        let key = site.exports.key.as_ref().map(Arc::clone);
        let writer = key.map(|key| {
            let fits =
                |known: &Writer| known.recording == config.recording() && Arc::ptr_eq(&known.key, &key);
            site.keep(fits, || Writer {
                recording: config.recording(),
                key: Arc::clone(&key),
                parts: Mutex::new(WriterParts {
                    recorder: Recorder::new((*key).clone(), &recording),
                    entry: Vec::new(),
                }),
            })
        });
        Some(Self { config: config.clone(), recording, sink: sink?, writer })
    }

    fn describe(&self) -> String {
        let HarConfig { export, obfuscate, bodies, .. } = &self.config;
        let how = if *obfuscate { "obfuscated" } else { "in the clear" };
        let bodies = match bodies {
            Bodies::None => "without bodies".to_owned(),
            Bodies::Sizes => "with the sizes of bodies".to_owned(),
            Bodies::UpTo(size) => format!("with up to {size} of a body"),
        };
        format!("archives exchanges to {export}, {how}, {bodies}")
    }

    fn wants_bodies(&self) -> bool {
        matches!(self.config.bodies, Bodies::UpTo(_))
    }

    fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        usize::try_from(self.recording.wanted_bytes(media_type)).unwrap_or(usize::MAX)
    }

    fn see(&self, exchange: &Finished<'_>) {
        let Some(writer) = &self.writer else { return };
        let mut parts = writer.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let WriterParts { recorder, entry } = &mut *parts;
        entry.clear();
        entry.shrink_to(SPARE_ENTRY_BYTES);
        recorder.write(&exchange.observed(), entry);
        let client = exchange.facts().client.map(|address| address.ip());
        self.sink.put(Exported { entry, client, service_token: "", environment: "" });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::fixture::{Archive, hand_over};

    #[test]
    fn an_exchange_is_archived_without_its_secrets() {
        let archive = Archive::with(&json!([{ "har": { "export": "kept" } }]));
        let record =
            archive.record("GET https://one.example/users/7?token=s3cr3t\nauthorization: Bearer abc", "200");
        hand_over(&record);
        let [entry] = &archive.entries()[..] else { panic!("one entry") };
        let entry: Value = serde_json::from_str(entry).unwrap();
        assert_eq!(entry["request"]["method"], "GET");
        assert_eq!(entry["response"]["status"], 200);
        assert_eq!(entry["_flow"], "f");
        let text = entry.to_string();
        assert!(!text.contains("s3cr3t") && !text.contains("Bearer abc"), "{text}");
    }

    #[test]
    fn what_cannot_be_obeyed_is_told_with_its_place() {
        let problems = Archive::problems(&json!([
            { "har": { "export": "keptt", "exclude": ["query.page"], "media_types": ["json"] } },
            {},
        ]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            "flows[0].diagnoses[0].har.export",
            "flows[0].diagnoses[0].har.exclude[0]",
            "flows[0].diagnoses[0].har.media_types[0]",
            "flows[0].diagnoses[1]",
        ];
        assert_eq!(places, expected, "{problems:?}");
        assert!(problems[0].contains("`keptt`"), "{problems:?}");
    }

    #[test]
    fn bodies_are_wanted_by_their_media_types() {
        let archive = Archive::with(
            &json!([{ "har": { "export": "kept", "bodies": "4KiB", "media_types": ["text/*"] } }]),
        );
        let record = archive.record("GET https://one.example/", "200");
        assert_eq!((record.wanted_bytes(b"text/html"), record.wanted_bytes(b"image/png")), (4096, 0));
    }
}
