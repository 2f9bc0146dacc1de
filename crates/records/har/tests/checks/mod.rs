//! Properties of every recording and of every file read as HAR. The fuzz targets and the corpus test share
//! them.

use egret_har::archive::{Stats, merge, split};
use egret_har::har::{Creator, HarEntry};
use egret_har::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use egret_har::scan::scan;
use egret_har::validate::validate;
use egret_har::{Exclusions, Har, Key, Obfuscator, Recorder, Recording, RecordingConfig};
use serde_json::{Value, json};

/// Checks the recorder. The input has four parts separated by NUL: head and body, twice. A head is lines, the
/// first of which has a blank. The output must be one valid line, the same each time, and obfuscated it must
/// equal the result of the obfuscator. Without obfuscation, with or without masks, it has no secrets. Returns
/// `true` if there was a response.
pub fn recorder(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(4, |byte| *byte == 0);
    let [request, request_body, response, response_body] = std::array::from_fn(|_| parts.next());
    let request = request.unwrap_or_default();
    let (method, target) = split_once(line(request), b' ');
    let exchange = Observed {
        started_unix_us: bytes.len() as u64,
        request: ObservedRequest {
            method,
            tls: bytes.len().is_multiple_of(3),
            host: std::str::from_utf8(method).unwrap_or("api.example.com"),
            port: 80,
            target,
            version: HttpVersion::Http10,
            fields: fields(request),
            head_bytes: request.len() as u64,
            body_bytes: request_body.unwrap_or_default().len() as u64,
            body: captured(request_body),
        },
        response: response.map(|response| {
            let (status, reason) = split_once(line(response), b' ');
            ObservedResponse {
                status: std::str::from_utf8(status)
                    .ok()
                    .and_then(|status| status.parse().ok())
                    .unwrap_or(200),
                reason,
                version: HttpVersion::Http11,
                fields: fields(response),
                head_bytes: response.len() as u64,
                body_bytes: response_body.unwrap_or_default().len() as u64,
                body: captured(response_body),
            }
        }),
        phases: Phases { wait_us: bytes.len() as u64, tls_us: Some(7), ..Phases::default() },
        server: None,
        connection: None,
        notes: Notes { consumer: consumer_of(target), ..Notes::default() },
    };
    let plain = RecordingConfig { obfuscate: false, detect_secrets: false, ..RecordingConfig::default() };
    let guarded = RecordingConfig { obfuscate: false, ..RecordingConfig::default() };
    let mask = ["a", "iban", "phone", "ip", "ssn"].map(str::to_owned).into();
    let masked = RecordingConfig { mask, ..guarded.clone() };
    let mut entry = written(plain, &exchange);
    for guarded in [written(guarded, &exchange), written(masked, &exchange)] {
        assert_eq!(scan(&serde_json::to_value(&guarded).unwrap()), [], "{guarded:?}");
    }
    Obfuscator::new(key(), Exclusions::default()).entry(&mut entry);
    assert_eq!(written(RecordingConfig::default(), &exchange), entry);
    response.is_some()
}

/// Checks a HAR file, as `egret har` reads it. An accepted file must be the same after writing and reading;
/// complete after splitting and merging; and after sanitizing free of new HAR problems and of findings of
/// `verify`. Returns `true` if the file was accepted.
pub fn archive(bytes: &[u8]) -> bool {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)) {
        let reported: Vec<String> = scan(&value).iter().map(ToString::to_string).collect();
        assert!(reported.iter().all(|line| line.contains(" at bytes ")));
    }
    let Ok(mut har) = Har::read(bytes) else { return false };
    let mut out = Vec::new();
    har.write(&mut out).unwrap();
    assert_eq!(Har::read(&out).unwrap(), har);
    let count = har.log.entries.len();
    let merged = merge(vec![har.clone(), har.clone()], Creator::default());
    assert_eq!(merged.log.entries.len(), 2 * count);
    let parts = split(har.clone(), 2);
    assert_eq!(parts.iter().map(|part| part.log.entries.len()).sum::<usize>(), count);
    let mut stats = Stats::default();
    stats.add(&merged);
    assert!(stats.to_string().contains("entries"));
    let before = validate(&serde_json::to_value(&har).unwrap()).len();
    Obfuscator::new(key(), Exclusions::default()).har(&mut har);
    let value = serde_json::to_value(&har).unwrap();
    assert_eq!(scan(&value), [], "{value:#}");
    assert!(validate(&value).len() <= before, "{:?}", validate(&value));
    true
}

/// Returns the part of the target that is used as the consumer.
fn consumer_of(target: &[u8]) -> &[u8] {
    target.get(1..).unwrap_or_default()
}

fn key() -> Key {
    Key::new(&[7; 32])
}

fn written(config: RecordingConfig, exchange: &Observed<'_>) -> HarEntry {
    let config =
        RecordingConfig { bodies: "1KiB".parse().unwrap(), media_types: vec!["*/*".to_owned()], ..config };
    let mut recorder = Recorder::new(key(), &Recording::compile(&config).unwrap());
    let (mut out, mut again) = (Vec::new(), Vec::new());
    recorder.write(exchange, &mut out);
    recorder.write(exchange, &mut again);
    assert!(out == again && !out.contains(&b'\n'), "one line, the same each time");
    let value: Value = serde_json::from_slice(&out).unwrap();
    let har =
        json!({"log": {"version": "1.2", "creator": {"name": "a", "version": "b"}, "entries": [value]}});
    assert_eq!(validate(&har), []);
    serde_json::from_slice(&out).unwrap()
}

fn captured(body: Option<&[u8]>) -> Captured<'_> {
    let bytes = body.unwrap_or_default();
    Captured { bytes, is_whole: bytes.len().is_multiple_of(2), is_wanted: true }
}

fn line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

fn fields(head: &[u8]) -> Vec<ObservedField<'_>> {
    let lines = head.split(|byte| *byte == b'\n').skip(1).map(|line| split_once(line, b':'));
    lines.map(|(name, value)| ObservedField { name, value: value.trim_ascii() }).collect()
}

fn split_once(text: &[u8], separator: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}
