//! Plants secrets of every kind in every part of an exchange that can hold a value, and checks that
//! recordings contain none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

mod exchanges;

use egret_har::observed::{Captured, Notes};
use egret_har::{Recorder, RecordingConfig, scan};
use egret_tests::secrets::{PlantedSecret, planted, secrets, texts};
use serde_json::Value;

/// Returns the recorded entry of an exchange with the secret in both messages.
fn written(planted: &PlantedSecret, recorder: &mut Recorder) -> Value {
    let body = Captured { bytes: &planted.body, is_whole: !planted.is_cut, is_wanted: true };
    let consumer = planted.fields.first().map_or("", |(_, value)| value).as_bytes();
    let notes = Notes { consumer, ..Notes::default() };
    exchanges::recorded(recorder, &planted.target, &planted.fields, body, notes)
}

/// Returns the places where secrets remain.
fn remaining(config: &RecordingConfig) -> Vec<String> {
    let mut recorder = exchanges::recorder(config);
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
