//! Counts the instructions for writing an exchange as HAR, with a limit for each case. Every exchange is
//! recorded at full load, and 10,000 instructions take about 2.5 µs. The benchmark needs valgrind and a
//! `gungraun-runner` of the same version as `gungraun`.
//!
//! The limits are about 7 % above the measured counts. Valgrind does not support SHA-256 instructions, so a
//! digest counts as several times its real cost. Raise a limit only with a reason in the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use egret_config::Size;
use egret_har::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use egret_har::recording::Bodies;
use egret_har::{Key, Recorder, Recording, RecordingConfig};
use gungraun::prelude::*;

use limits::at_most;

const REQUEST: [(&str, &str); 6] = [
    ("Host", "api.provider.example"),
    ("User-Agent", "consumer/4.2 (linux; x86_64)"),
    ("Accept", "application/json"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Authorization", "Bearer 0123456789abcdef0123456789abcdef"),
    ("X-Tenant", "acme"),
];

const RESPONSE: [(&str, &str); 10] = [
    ("Date", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ("Content-Type", "application/json; charset=utf-8"),
    ("Content-Length", "1532"),
    ("Connection", "keep-alive"),
    ("Cache-Control", "no-cache, no-store, must-revalidate"),
    ("Strict-Transport-Security", "max-age=31536000; includeSubDomains; preload"),
    ("Vary", "Origin, Accept-Encoding"),
    ("X-RateLimit-Limit", "1000"),
    ("X-Request-Id", "req_00000000"),
    ("Server", "nginx"),
];

/// A body of 1.1 KiB of JSON with 48 leaves.
const BODY: &str = concat!(
    r#"{"object":"list","has_more":false,"url":"/v1/charges","data":["#,
    r#"{"id":"ch_1","object":"charge","amount":1099,"currency":"eur","captured":true,"created":1767323045,"customer":"cus_81","description":"Order 4711 of the winter catalogue","status":"succeeded","metadata":{"order":"4711","shop":"berlin"}},"#,
    r#"{"id":"ch_2","object":"charge","amount":2099,"currency":"eur","captured":true,"created":1767323046,"customer":"cus_82","description":"Order 4712 of the winter catalogue","status":"succeeded","metadata":{"order":"4712","shop":"berlin"}},"#,
    r#"{"id":"ch_3","object":"charge","amount":3099,"currency":"eur","captured":true,"created":1767323047,"customer":"cus_83","description":"Order 4713 of the winter catalogue","status":"succeeded","metadata":{"order":"4713","shop":"berlin"}},"#,
    r#"{"id":"ch_4","object":"charge","amount":4099,"currency":"eur","captured":true,"created":1767323048,"customer":"cus_84","description":"Order 4714 of the winter catalogue","status":"succeeded","metadata":{"order":"4714","shop":"berlin"}}]}"#,
);

/// The state of a recording thread.
struct Case {
    recorder: Recorder,
    exchange: Observed<'static>,
    out: Vec<u8>,
}

fn fields(fields: &[(&'static str, &'static str)]) -> Vec<ObservedField<'static>> {
    fields
        .iter()
        .map(|(name, value)| ObservedField { name: name.as_bytes(), value: value.as_bytes() })
        .collect()
}

/// Returns an exchange with `new` values that differ from those of `observed(0)`.
fn observed(new: usize) -> Observed<'static> {
    let target =
        ["/v1/charges/ch_42?limit=10&expand=customer", "/v1/charges/ch_43?limit=10&expand=customer"][new / 3];
    let id = ["req_00000001", "req_00000002"][new.min(1)];
    let date = ["Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:01 GMT"][new / 3];
    let body = Captured::default();
    let version = HttpVersion::Http11;
    let mut response = RESPONSE;
    (response[0].1, response[8].1) = (date, id);
    Observed {
        started_unix_us: 1_767_323_045_250_125,
        request: ObservedRequest {
            method: b"GET",
            tls: true,
            host: "api.provider.example",
            port: 443,
            target: target.as_bytes(),
            version,
            fields: fields(&REQUEST),
            head_bytes: 280,
            body_bytes: 0,
            body,
        },
        response: Some(ObservedResponse {
            status: 200,
            reason: b"OK",
            version,
            fields: fields(&response),
            head_bytes: 420,
            body_bytes: BODY.len() as u64,
            body: Captured { bytes: BODY.as_bytes(), is_whole: true, is_wanted: true },
        }),
        phases: Phases { send_us: 41, wait_us: 2_123, receive_us: 77, ..Phases::default() },
        server: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
        connection: Some(1_234),
        notes: Notes { provider: "provider", flow: "record", attempts: 1, ..Notes::default() },
    }
}

fn write(mut case: Case) -> Case {
    case.out.clear();
    case.recorder.write(black_box(&case.exchange), &mut case.out);
    case
}

fn case(obfuscate: bool, new: usize) -> Case {
    recording(&RecordingConfig { obfuscate, ..RecordingConfig::default() }, new)
}

fn with_body(obfuscate: bool) -> Case {
    let bodies = Bodies::UpTo(Size::from_kib(64));
    recording(&RecordingConfig { obfuscate, bodies, ..RecordingConfig::default() }, 0)
}

fn recording(config: &RecordingConfig, new: usize) -> Case {
    let Ok(recording) = Recording::compile(config) else { unreachable!("the config is good") };
    let recorder = Recorder::new(Key::new(&[7; 32]), &recording);
    let case = write(Case { recorder, exchange: observed(0), out: Vec::new() });
    Case { exchange: observed(new), ..case }
}

#[library_benchmark(config = at_most(9_300, 12_700))]
#[bench::obfuscated(case(true, 0))]
#[bench::guarded(case(false, 0))]
fn again(case: Case) -> Case {
    write(case)
}

#[library_benchmark(config = at_most(20_800, 24_500))]
#[bench::obfuscated(case(true, 1))]
#[bench::guarded(case(false, 1))]
fn one_new_value(case: Case) -> Case {
    write(case)
}

#[library_benchmark(config = at_most(43_400, 52_000))]
#[bench::obfuscated(case(true, 3))]
#[bench::guarded(case(false, 3))]
fn three_new_values(case: Case) -> Case {
    write(case)
}

#[library_benchmark(config = at_most(124_000, 164_000))]
#[bench::obfuscated(with_body(true))]
fn json_obfuscated(case: Case) -> Case {
    write(case)
}

#[library_benchmark(config = at_most(190_000, 196_000))]
#[bench::guarded(with_body(false))]
fn json_guarded(case: Case) -> Case {
    write(case)
}

library_benchmark_group!(
    name = recorder,
    benchmarks = [again, one_new_value, three_new_values, json_obfuscated, json_guarded]
);

main!(library_benchmark_groups = recorder);
