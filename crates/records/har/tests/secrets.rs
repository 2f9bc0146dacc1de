//! Plants secrets of every kind in every part of an exchange that can hold a value, and checks that
//! recordings contain none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

use egret_har::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use egret_har::{Key, Recorder, Recording, RecordingConfig, scan};
use egret_tests::secrets::{PlantedSecret, planted, secrets, texts};
use serde_json::Value;

/// Returns the recorded entry of an exchange with the secret in both messages.
fn written(planted: &PlantedSecret, recorder: &mut Recorder) -> Value {
    let fields: Vec<ObservedField<'_>> = planted
        .fields
        .iter()
        .map(|(name, value)| ObservedField { name: name.as_bytes(), value: value.as_bytes() })
        .collect();
    let body = Captured { bytes: &planted.body, is_whole: !planted.is_cut, is_wanted: true };
    let (version, body_bytes) = (HttpVersion::Http11, planted.body.len() as u64);
    let exchange = Observed {
        started_unix_us: 0,
        request: ObservedRequest {
            method: b"POST",
            tls: true,
            host: "api.example.com",
            port: 443,
            target: planted.target.as_bytes(),
            version,
            fields: fields.clone(),
            head_bytes: 1,
            body_bytes,
            body,
        },
        response: Some(ObservedResponse {
            status: 200,
            reason: b"OK",
            version,
            fields,
            head_bytes: 1,
            body_bytes,
            body,
        }),
        phases: Phases::default(),
        server: None,
        connection: None,
        notes: Notes {
            consumer: planted.fields.first().map_or(b"", |(_, value)| value.as_bytes()),
            ..Notes::default()
        },
    };
    let mut out = Vec::new();
    recorder.write(&exchange, &mut out);
    serde_json::from_slice(&out).unwrap()
}

/// Returns the places where secrets remain.
fn remaining(config: &RecordingConfig) -> Vec<String> {
    let config = RecordingConfig {
        bodies: "64KiB".parse().unwrap(),
        media_types: vec!["*/*".to_owned()],
        ..config.clone()
    };
    let mut recorder = Recorder::new(Key::new(&[7; 32]), &Recording::compile(&config).unwrap());
    let mut remaining = Vec::new();
    for (secret, core) in secrets() {
        for planted in planted(&secret) {
            let entry = written(&planted, &mut recorder);
            let mut all = Vec::new();
            texts(&entry, &mut all);
            // Secrets in Base64 are found by the scanner for HAR files.
            let found = scan::scan(&entry);
            if all.iter().any(|text| text.contains(&core)) || !found.is_empty() {
                let locations: Vec<String> = found.iter().map(ToString::to_string).collect();
                remaining.push(format!("{secret:?} in {}: {locations:?} {entry}", planted.position));
            }
        }
    }
    assert!(!format!("{recorder:?}").contains("planted"));
    remaining
}

#[test]
fn no_secret_is_left_where_everything_is_obfuscated() {
    assert_eq!(remaining(&RecordingConfig::default()), [""; 0]);
}

#[test]
fn detectable_secrets_are_hidden_without_obfuscation() {
    assert_eq!(remaining(&RecordingConfig { obfuscate: false, ..RecordingConfig::default() }), [""; 0]);
}

#[test]
fn each_is_there_where_nobody_looks_for_it() {
    let config = RecordingConfig { obfuscate: false, detect_secrets: false, ..RecordingConfig::default() };
    assert_eq!(remaining(&config).len(), secrets().len() * planted("").len());
}
