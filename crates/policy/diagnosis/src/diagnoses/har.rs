//! `har`: archives exchanges as HAR 1.2, obfuscated before they leave the process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Timestamp;
use egret_har::observed::ObservedField;
use egret_har::recorder::Completeness as End;
use egret_har::recording::Bodies;
use egret_har::sink::{Content, Exported, Sink};
use egret_har::{Key, Recorder, Recording, RecordingConfig};
use egret_message::ClientAddress;
use parking_lot::Mutex;
use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::CompileContext;
use crate::diagnosis::{Diagnosis, Tick};
use crate::family::{Family, FamilyKind, Sample, SampleValue};
use crate::finished::Finished;

/// Capacity that is kept for the next entry.
const SPARE_ENTRY_BYTES: usize = 256 * 1024;

/// Minimum interval between log lines about damaged bodies.
const LINES_INTERVAL: Duration = Duration::from_mins(1);

/// Archives exchanges as HAR. A text alone is its `export`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename = "short form: export")]
#[schemars(rename = "HarConfig", transform = egret_config::or_text)]
pub struct HarConfig {
    /// Name of the exporter, under `exporters`.
    #[schemars(extend("x-tier" = "everyday"))]
    pub export: String,
    /// Replaces every value by a pseudonym, made with a key that only this installation has. Names, hosts,
    /// times and sizes stay.
    #[serde(default = "egret_config::yes")]
    pub obfuscate: bool,
    /// Values that are not obfuscated, as exact paths: `request.headers.accept`, `request.query.page`,
    /// `request.path[0]`, `response.body.$.items[*].id`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Replaces secrets by pseudonyms even where `obfuscate` does not: values that look like a token, a key,
    /// a card number or an e-mail address, and values with names such as `authorization` or `password`.
    #[serde(default = "egret_config::yes")]
    pub detect_secrets: bool,
    /// Names whose values are replaced like secrets, at any depth: of members, fields, parameters and
    /// cookies. Case, `-` and `_` do not matter. `iban`, `phone`, `ip`, `ipv4`, `ipv6` and `ssn` also replace
    /// values that look like one. At most 256, for `obfuscate: false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
    /// Part of bodies that is archived.
    #[serde(default)]
    pub bodies: Bodies,
    /// Media types whose bodies are archived, as `application/json`, `text/*` or `*/*`. `*/*+json` matches
    /// every type based on JSON.
    #[serde(default = "media_types")]
    pub media_types: Vec<String>,
    /// Exchanges to skip: those in which one of these request fields contains a match of its regular
    /// expression, as in `{ user-agent: "(?i)bot|crawler" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skip: BTreeMap<String, String>,
    /// Request fields that are not recorded at all, not even their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave_out: Vec<String>,
    /// Request fields with the service token of the exchange, for exporters of ALF. The first one present is
    /// used. They are left out of the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_token_fields: Vec<String>,
    /// Request fields with the environment of the exchange, for exporters of ALF. The first one present is
    /// used. They are left out of the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_fields: Vec<String>,
    /// Request fields that are trusted to contain the client's address, such as `x-real-ip`, or
    /// `x-forwarded-for`, whose first address is used. The first valid one is used. Default: the address of
    /// the connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_address_fields: Vec<String>,
}

fn media_types() -> Vec<String> {
    RecordingConfig::default().media_types
}

impl HarConfig {
    fn recording(&self) -> RecordingConfig {
        let Self { obfuscate, exclude, detect_secrets, mask, bodies, media_types, .. } = self;
        RecordingConfig {
            obfuscate: *obfuscate,
            exclude: exclude.clone(),
            detect_secrets: *detect_secrets,
            mask: mask.clone(),
            bodies: *bodies,
            media_types: media_types.clone(),
        }
    }
}

/// Archives exchanges as HAR.
#[derive(Debug)]
pub struct Har {
    config: Box<HarConfig>,
    recording: Recording,
    sink: Arc<dyn Sink>,
    fields: Box<FieldNames>,
    skip: Vec<(Box<[u8]>, Regex)>,
    /// `None` while the config is only checked.
    writer: Option<Arc<Writer>>,
}

/// Names of header fields, in lower case.
#[derive(Debug, Default)]
struct FieldNames {
    left_out: Vec<Box<[u8]>>,
    service_token: Vec<Box<[u8]>>,
    environment: Vec<Box<[u8]>>,
    client: Vec<Box<[u8]>>,
}

impl FieldNames {
    fn compile(config: &HarConfig, context: &mut CompileContext<'_>) -> Self {
        let [mut left_out, service_token, environment, client] = [
            ("leave_out", &config.leave_out),
            ("service_token_fields", &config.service_token_fields),
            ("environment_fields", &config.environment_fields),
            ("client_address_fields", &config.client_address_fields),
        ]
        .map(|(key, names)| {
            let names = names.iter().enumerate();
            names.map(|(index, name)| lower(&format!("{key}[{index}]"), name, context)).collect::<Vec<_>>()
        });
        left_out.extend([&service_token[..], &environment[..]].concat());
        Self { left_out, service_token, environment, client }
    }

    fn leave_out(&self, fields: &mut Vec<ObservedField<'_>>) {
        if !self.left_out.is_empty() {
            fields.retain(|field| !self.left_out.iter().any(|name| field.name.eq_ignore_ascii_case(name)));
        }
    }

    /// Returns the client's address: from the first trusted field that has one, otherwise from the
    /// connection.
    fn client(&self, exchange: &Finished<'_>) -> Option<IpAddr> {
        let mut named = self.client.iter().filter_map(|name| address(exchange.request_field(name)?));
        named.next().or_else(|| exchange.client().and_then(ClientAddress::ip))
    }
}

/// Returns the name of a field in lower case. Adds a problem at `key` if it is not a valid name.
fn lower(key: &str, name: &str, context: &mut CompileContext<'_>) -> Box<[u8]> {
    if !egret_http1::is_token(name.as_bytes()) {
        context.problem(key, format!("`{name}` is not a valid header field name"));
    }
    name.to_ascii_lowercase().into_bytes().into()
}

fn skipped(config: &HarConfig, context: &mut CompileContext<'_>) -> Vec<(Box<[u8]>, Regex)> {
    let compiled = config.skip.iter().filter_map(|(name, pattern)| {
        let key = format!("skip.{name}");
        let name = lower(&key, name, context);
        match Regex::new(pattern) {
            Ok(regex) => Some((name, regex)),
            Err(error) => {
                context.problem(&key, format!("not a regular expression: {error}"));
                None
            }
        }
    });
    compiled.collect()
}

/// Returns the value of the first field present, if it is UTF-8.
fn first<'a>(names: &[Box<[u8]>], exchange: &Finished<'a>) -> &'a str {
    let value = names.iter().find_map(|name| exchange.request_field(name));
    value.and_then(|value| str::from_utf8(value).ok()).unwrap_or_default()
}

/// Returns the first address of a list, which may have ports.
fn address(value: &[u8]) -> Option<IpAddr> {
    let first = str::from_utf8(value.split(|byte| *byte == b',').next()?).ok()?.trim();
    let with_port = || first.parse::<SocketAddr>().ok().map(|address| address.ip());
    first.parse().ok().or_else(with_port)
}

/// Writes entries. It caches pseudonyms, so it is kept across a reload unless a setting that affects them
/// changes.
#[derive(Debug)]
struct Writer {
    flow: String,
    recording: RecordingConfig,
    secret_names: Arc<[Box<str>]>,
    key: Arc<Key>,
    /// Only the diagnosis thread uses it, so the lock is never contended.
    parts: Mutex<WriterParts>,
    /// Number of bodies archived at least in part, for each of [`End::ALL`].
    bodies: [AtomicU64; End::ALL.len()],
}

#[derive(Debug)]
struct WriterParts {
    recorder: Recorder,
    entry: Vec<u8>,
    /// Number of bodies covered by earlier log lines.
    last_reported: [u64; End::ALL.len()],
    /// Time of the last log line.
    last_reported_at: Option<Timestamp>,
}

impl Writer {
    fn new(
        flow: String,
        recording: RecordingConfig,
        secret_names: Arc<[Box<str>]>,
        key: &Arc<Key>,
        compiled: &Recording,
    ) -> Self {
        let recorder = Recorder::new((**key).clone(), compiled);
        let (entry, last_reported) = Default::default();
        let parts = Mutex::new(WriterParts { recorder, entry, last_reported, last_reported_at: None });
        Self { flow, recording, secret_names, key: Arc::clone(key), parts, bodies: Default::default() }
    }
}

/// Returns the text of a log line about bodies that were not archived as sent, or `None` if there are no new
/// ones. Truncation is reported once, because `bodies` asks for it.
fn damage(last_reported: &[u64], bodies: &[u64]) -> Option<String> {
    let mut text = String::new();
    for ((end, before), now) in End::ALL.iter().zip(last_reported).zip(bodies) {
        let is_worth_a_line = match end {
            End::Whole => false,
            End::Truncated => *before == 0,
            End::Corrupt | End::Coded | End::Malformed => true,
        };
        if is_worth_a_line && now > before {
            let _ =
                write!(text, "{}{} {}", if text.is_empty() { "" } else { ", " }, now - before, end.word());
        }
    }
    (!text.is_empty()).then_some(text)
}

impl Diagnosis for Har {
    type Config = HarConfig;

    fn exporter(config: &HarConfig) -> Option<&str> {
        Some(&config.export)
    }

    fn compile(config: &HarConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let sink = context.sink("export", &config.export, Content::Entries);
        let (fields, skip) = (FieldNames::compile(config, context), skipped(config, context));
        let recording = match Recording::compile(&config.recording()) {
            Ok(recording) => recording.with_secret_names(context.secret_names),
            Err(errors) => {
                for error in errors {
                    context.problem(&error.path, error.message);
                }
                return None;
            }
        };
        let key = context.exports.key.as_ref().map(Arc::clone);
        let writer = key.map(|key| {
            let (flow, names) = (context.flow().to_owned(), Arc::clone(context.secret_names));
            let fits = |known: &Writer| {
                known.recording == config.recording()
                    && known.secret_names == names
                    && Arc::ptr_eq(&known.key, &key)
            };
            context
                .states
                .keep(fits, || Writer::new(flow, config.recording(), Arc::clone(&names), &key, &recording))
        });
        let (config, fields) = (Box::new(config.clone()), Box::new(fields));
        Some(Self { config, recording, sink: sink?, fields, skip, writer })
    }

    fn describe(&self) -> String {
        let HarConfig { export, bodies, .. } = &*self.config;
        let how = self.config.recording().manner();
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
        if self.is_skipped(exchange) {
            return;
        }
        let mut parts = writer.parts.lock();
        let WriterParts { recorder, entry, .. } = &mut *parts;
        entry.clear();
        entry.shrink_to(SPARE_ENTRY_BYTES);
        let mut observed = exchange.observed();
        self.fields.leave_out(&mut observed.request.fields);
        recorder.write(&observed, entry);
        for (shown, count) in writer.bodies.iter().zip(recorder.bodies()) {
            shown.store(*count, Relaxed);
        }
        self.sink.put(Exported {
            entry,
            client: self.fields.client(exchange),
            service_token: first(&self.fields.service_token, exchange),
            environment: first(&self.fields.environment, exchange),
        });
    }

    fn tick(&self, tick: Tick) {
        let Some(writer) = &self.writer else { return };
        let mut parts = writer.parts.lock();
        if parts.last_reported_at.is_some_and(|at| tick.now < at + LINES_INTERVAL) && !tick.is_last {
            return;
        }
        let bodies = *parts.recorder.bodies();
        if let Some(damage) = damage(&parts.last_reported, &bodies) {
            warn!(
                flow = writer.flow,
                "some bodies were not archived as sent: {damage}; each is marked in its entry"
            );
            parts.last_reported = bodies;
            parts.last_reported_at = Some(tick.now);
        }
    }

    fn metrics(&self) -> Vec<Family> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let sample = |(end, count): (&End, &AtomicU64)| Sample {
            labels: vec![("result".into(), end.word().to_owned())],
            #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
            value: SampleValue::Number(count.load(Relaxed) as f64),
        };
        vec![Family {
            name: "egret_har_bodies_total".to_owned(),
            help: "Bodies archived at least in part, by result.".to_owned(),
            kind: FamilyKind::Counter,
            samples: End::ALL.iter().zip(&writer.bodies).map(sample).collect(),
        }]
    }
}

impl Har {
    fn is_skipped(&self, exchange: &Finished<'_>) -> bool {
        let fits = |(name, regex): &(Box<[u8]>, Regex)| {
            let value = exchange.request_field(name).map(String::from_utf8_lossy);
            value.is_some_and(|value| regex.is_match(&value))
        };
        self.skip.iter().any(fits)
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
    fn invalid_settings_are_reported_at_their_keys() {
        let problems = Archive::problems(&json!([
            { "har": {
                "export": "keptt", "exclude": ["query.page"], "media_types": ["json"], "skip": { "a": "(" }, "leave_out": ["a b"],
                "mask": ["name"],
            } },
            {},
        ]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            "flows[0].diagnoses[0].har.export",
            "flows[0].diagnoses[0].har.leave_out[0]",
            "flows[0].diagnoses[0].har.skip.a",
            "flows[0].diagnoses[0].har.exclude[0]",
            "flows[0].diagnoses[0].har.mask",
            "flows[0].diagnoses[0].har.media_types[0]",
            "flows[0].diagnoses[1]",
        ];
        assert_eq!(places, expected, "{problems:?}");
        assert!(problems[0].contains("`keptt`"), "{problems:?}");
    }

    #[test]
    fn damaged_bodies_are_reported_and_truncation_once() {
        assert_eq!(super::damage(&[0; 5], &[9, 0, 0, 0, 0]), None);
        assert_eq!(super::damage(&[0; 5], &[9, 7, 0, 0, 1]).unwrap(), "7 truncated, 1 malformed");
        assert_eq!(super::damage(&[9, 7, 1, 0, 1], &[9, 9, 3, 1, 1]).unwrap(), "2 corrupt, 1 coded");
    }

    #[test]
    fn matching_exchanges_are_skipped_and_private_fields_left_out() {
        let archive = Archive::with(&json!([{ "har": {
            "export": "kept", "obfuscate": false, "detect_secrets": false, "skip": { "User-Agent": "(?i)bot" },
            "leave_out": ["X-Private"], "service_token_fields": ["new-token", "Service-Token"], "environment_fields": ["env"],
        } }]));
        for agent in ["a bot", "Bot/1", "browser", ""] {
            let fields = "x-private: p1\nservice-token: t1\nenv: e1\nx-kept: k1";
            let agent = if agent.is_empty() { String::new() } else { format!("\nuser-agent: {agent}") };
            hand_over(&archive.record(&format!("GET https://one.example/\n{fields}{agent}"), "200"));
        }
        let entries = archive.entries();
        assert_eq!(entries.len(), 2, "{entries:?}");
        assert_eq!(
            archive.origins(),
            [("t1".to_owned(), "e1".to_owned()), ("t1".to_owned(), "e1".to_owned())]
        );
        for entry in entries {
            assert!(entry.contains("k1"), "{entry}");
            for left_out in ["p1", "t1", "e1", "x-private", "service-token", "env"] {
                assert!(!entry.contains(&format!("\"{left_out}\"")), "{left_out} in {entry}");
            }
        }
    }

    #[test]
    fn the_clients_address_is_told_by_fields_that_are_believed() {
        for (value, address) in [
            ("1.2.3.4", Some("1.2.3.4")),
            ("1.2.3.4:80, 5.6.7.8", Some("1.2.3.4")),
            ("[::1]:80", Some("::1")),
            ("::1", Some("::1")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(
                super::address(value.as_bytes()),
                address.map(|text| text.parse().unwrap()),
                "{value}"
            );
        }
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
