//! Recorded exchanges are delivered: every version of ALF to a PULL socket and to an HTTP collector, HAR to
//! an S3-compatible store.

use egret_tests::egret::{Config, Egret};
use egret_tests::node::assert_fits_schema;
use egret_tests::peers::{Collector, S3};
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{assert_verified, content, entries, lost, until_exporter};
use serde_json::Value;

const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];
const TOKEN: &str = "token-of-the-service";
/// Number of exchanges of each test.
const EXCHANGES: usize = 50;

/// Records everything with an exporter named `out`.
fn start(exporter: &str, origin: &Provider) -> Egret {
    let yaml = format!(
        "exporters: {{ out: {exporter} }}\n\
         flows: [{{ name: all, diagnoses: [har: {{ export: out, bodies: 1KiB, media_types: ['*/*'] }}] }}]\n"
    );
    let [id, key] = S3::KEYS;
    Egret::start_with(&Config::with_origin(origin.url()).flows(yaml), |command| {
        command.env("TOKEN", TOKEN).env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", key);
    })
}

fn provider() -> Provider {
    Provider::with_responses(|request| match request.target() {
        "/none" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/bytes" => {
            b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\n\xff\x00".to_vec()
        }
        _ => ok("hello"),
    })
}

/// Makes exchanges of several kinds.
fn exchange(egret: &Egret) {
    let mut client = egret.client();
    let host = egret.address();
    for number in 0..EXCHANGES {
        let (method, target, body) = [
            ("GET", "/origin/?a=1&b", ""),
            ("POST", "/origin/", "{\"a\":1}"),
            ("GET", "/origin/none", ""),
            ("GET", "/origin/bytes", ""),
            ("HEAD", "/nowhere", ""),
        ][number % 5];
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nCookie: a=b\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.response_to(method);
    }
}

fn until_written(egret: &Egret) {
    let out = until_exporter(egret, "out", "all are written", |out| out["written"] == EXCHANGES);
    assert_eq!(
        (out["put"].as_u64(), lost(&out), &out["up"]),
        (Some(EXCHANGES as u64), 0, &true.into()),
        "{out}"
    );
}

fn assert_fit(version: &str, documents: &[String]) {
    assert_eq!(documents.len(), EXCHANGES);
    let directory = Directory::default();
    let files: Vec<_> = documents
        .iter()
        .enumerate()
        .map(|(number, text)| directory.write(&format!("{number}.json"), text))
        .collect();
    assert_fits_schema(version, &files);
    for document in documents {
        let document: Value = serde_json::from_str(document).unwrap();
        let token =
            if version == "2.0.0" { &document["service"]["token"] } else { &document["serviceToken"] };
        assert_eq!((&document["version"], token), (&version.into(), &TOKEN.into()));
    }
}

#[test]
fn a_pull_socket_gets_documents_of_every_version() {
    let origin = provider();
    for version in VERSIONS {
        let collector = Collector::start("pull.py", &["0"]);
        let egret = start(
            &format!(
                "{{ type: alf, version: {version}, transport: {{ zeromq: '{}' }}, service_token: '${{env:TOKEN}}', flush_after: 50ms }}",
                collector.address()
            ),
            &origin,
        );
        exchange(&egret);
        assert_fit(version, &collector.received(&format!("alf_{version} "), EXCHANGES));
        until_written(&egret);
    }
}

#[test]
fn a_collector_behind_http_gets_documents_of_every_version() {
    let origin = provider();
    for (version, mode) in VERSIONS.into_iter().zip(["batch", "single", "batch"]) {
        let collector = Collector::start("collector.py", &[]);
        let egret = start(
            &format!(
                "{{ type: alf, version: {version}, mode: {mode}, gzip: true, transport: {{ http: '{}' }}, service_token: '${{env:TOKEN}}', flush_after: 50ms }}",
                collector.address()
            ),
            &origin,
        );
        exchange(&egret);
        assert_fit(version, &collector.received("saved ", EXCHANGES));
        let asked = collector.received("asked ", 1);
        assert!(
            asked.iter().all(|asked| asked.starts_with(&format!("/{version}/{mode} gzip "))),
            "{asked:?}"
        );
        until_written(&egret);
    }
}

#[test]
fn a_store_gets_objects_that_are_whole_archives() {
    let (origin, store) = (provider(), S3::start());
    let mut egret = start(
        &format!("{{ type: s3, endpoint: '{}', bucket: bucket, prefix: har/, rotate: 4KiB }}", store.url()),
        &origin,
    );
    exchange(&egret);
    // Few are left for the shutdown, whose time is bounded.
    let most = EXCHANGES as u64 * 3 / 4;
    until_exporter(&egret, "out", "most are there", |out| out["written"].as_u64() > Some(most));
    // A batch too small to be sent alone is sent at shutdown.
    egret.terminate();
    assert!(egret.until_ended().success());
    let (directory, objects) = (Directory::default(), store.objects());
    assert!(!objects.is_empty());
    let files: Vec<_> = objects
        .iter()
        .enumerate()
        .map(|(number, (key, path))| {
            assert!(key.starts_with("har/20") && key.ends_with(".har.gz"), "{key}");
            directory.write(&format!("{number}.har"), content(path))
        })
        .collect();
    assert_eq!(entries(&files).len(), EXCHANGES);
    assert_verified(&files);
    assert_fits_schema("har", &files);
}
