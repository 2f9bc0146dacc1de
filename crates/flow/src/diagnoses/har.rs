//! `har`: has exchanges archived as HAR 1.2, obfuscated before they leave.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egret_har::recorder::End;
use egret_har::recording::Bodies;
use egret_har::sink::{Content, Exported, Sink};
use egret_har::{Key, Recorder, Recording, RecordingConfig};
use egret_store::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::diagnosis::{Diagnosis, Family, FamilyKind, Figure, Sample, Site, Tick};
use crate::finished::Finished;

/// What of an entry's memory is kept for the next.
const SPARE_ENTRY_BYTES: usize = 256 * 1024;

/// From one line in the log on damaged bodies to the next.
const LINES_INTERVAL: Duration = Duration::from_mins(1);

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
    flow: String,
    recording: RecordingConfig,
    key: Arc<Key>,
    /// One thread alone makes diagnoses: the lock is never waited for.
    parts: Mutex<WriterParts>,
    /// Bodies of which something was written, for each of [`End::ALL`].
    bodies: [AtomicU64; End::ALL.len()],
}

#[derive(Debug)]
struct WriterParts {
    recorder: Recorder,
    entry: Vec<u8>,
    /// As many bodies have been told of in the log.
    told: [u64; End::ALL.len()],
    /// When.
    told_at: Option<Timestamp>,
}

impl Writer {
    fn new(flow: String, recording: RecordingConfig, key: &Arc<Key>, compiled: &Recording) -> Self {
        let recorder = Recorder::new((**key).clone(), compiled);
        let (entry, told) = Default::default();
        let parts = Mutex::new(WriterParts { recorder, entry, told, told_at: None });
        Self { flow, recording, key: Arc::clone(key), parts, bodies: Default::default() }
    }
}

/// What is to be said of bodies that an entry does not have as they are; nothing where there are none. That bodies are cut is said once:
/// `bodies` asks for it.
fn damage(told: &[u64], bodies: &[u64]) -> Option<String> {
    let mut text = String::new();
    for ((end, told), now) in End::ALL.iter().zip(told).zip(bodies) {
        let is_worth_a_line = match end {
            End::Whole => false,
            End::Truncated => *told == 0,
            End::Corrupt | End::Coded | End::Malformed => true,
        };
        if is_worth_a_line && now > told {
            let _ = write!(text, "{}{} {}", if text.is_empty() { "" } else { ", " }, now - told, end.word());
        }
    }
    (!text.is_empty()).then_some(text)
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
            let flow = site.flow().to_owned();
            site.keep(fits, || Writer::new(flow, config.recording(), &key, &recording))
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
        let WriterParts { recorder, entry, .. } = &mut *parts;
        entry.clear();
        entry.shrink_to(SPARE_ENTRY_BYTES);
        recorder.write(&exchange.observed(), entry);
        for (shown, count) in writer.bodies.iter().zip(recorder.bodies()) {
            shown.store(*count, Relaxed);
        }
        let client = exchange.facts().client.map(|address| address.ip());
        self.sink.put(Exported { entry, client, service_token: "", environment: "" });
    }

    fn tick(&self, tick: Tick) {
        let Some(writer) = &self.writer else { return };
        let mut parts = writer.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.told_at.is_some_and(|at| tick.now < at + LINES_INTERVAL) && !tick.is_last {
            return;
        }
        let bodies = *parts.recorder.bodies();
        if let Some(damage) = damage(&parts.told, &bodies) {
            warn!(
                flow = writer.flow,
                "bodies were not archived as they are: {damage}; each is marked in its entry"
            );
            parts.told = bodies;
            parts.told_at = Some(tick.now);
        }
    }

    fn figures(&self) -> Vec<Family> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let sample = |(end, count): (&End, &AtomicU64)| Sample {
            labels: vec![("result", end.word().to_owned())],
            #[expect(clippy::cast_precision_loss, reason = "no count gets beyond 2^53")]
            value: Figure::Number(count.load(Relaxed) as f64),
        };
        vec![Family {
            name: "egret_har_bodies_total".to_owned(),
            help: "Bodies of which something was archived, by what was found of them.".to_owned(),
            kind: FamilyKind::Counter,
            samples: End::ALL.iter().zip(&writer.bodies).map(sample).collect(),
        }]
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
    fn what_is_wrong_with_bodies_is_said_and_that_they_are_cut_once() {
        assert_eq!(super::damage(&[0; 5], &[9, 0, 0, 0, 0]), None);
        assert_eq!(super::damage(&[0; 5], &[9, 7, 0, 0, 1]).unwrap(), "7 truncated, 1 malformed");
        assert_eq!(super::damage(&[9, 7, 1, 0, 1], &[9, 9, 3, 1, 1]).unwrap(), "2 corrupt, 1 coded");
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
