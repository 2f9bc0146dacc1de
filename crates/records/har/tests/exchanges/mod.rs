//! Exchanges with something planted in both messages, and what is recorded of them.

use egret_har::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use egret_har::{Key, Recorder, Recording, RecordingConfig};
use serde_json::Value;

/// Returns a recorder that keeps bodies of every type.
pub fn recorder(config: &RecordingConfig) -> Recorder {
    let config = RecordingConfig {
        bodies: "64KiB".parse().unwrap(),
        media_types: vec!["*/*".to_owned()],
        ..config.clone()
    };
    Recorder::new(Key::new(&[7; 32]), &Recording::compile(&config).unwrap())
}

/// Returns the entry of an exchange whose messages both have these fields and this body.
pub fn recorded(
    recorder: &mut Recorder,
    target: &str,
    fields: &[(impl AsRef<str>, String)],
    body: Captured<'_>,
    notes: Notes<'_>,
) -> Value {
    let (version, body_bytes) = (HttpVersion::Http11, body.bytes.len() as u64);
    let fields: Vec<ObservedField<'_>> = fields
        .iter()
        .map(|(name, value)| ObservedField { name: name.as_ref().as_bytes(), value: value.as_bytes() })
        .collect();
    let exchange = Observed {
        started_unix_us: 0,
        request: ObservedRequest {
            method: b"POST",
            tls: true,
            host: "api.example.com",
            port: 443,
            target: target.as_bytes(),
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
        notes,
    };
    let mut out = Vec::new();
    recorder.write(&exchange, &mut out);
    serde_json::from_slice(&out).unwrap()
}
