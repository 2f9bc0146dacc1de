//! Tests exporters with real peers: a ZeroMQ PULL socket, an HTTP collector, and an S3-compatible store.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and stops")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;

use egret_export::{ExporterConfigs, ExporterContext, ExporterSnapshot, Exporters};
use egret_har::sink::{Exported, Sink};
use egret_har::validate::validate;
use egret_tests::closed_port::ClosedPort;
use egret_tests::peers::{Collector, S3, free_port};
use egret_tests::process::{Directory, run_checked};
use egret_tests::wait::until;
use serde_json::Value;

/// An exporter named `out`.
struct Out {
    exporters: Exporters,
    sink: Arc<dyn Sink>,
}

impl Out {
    fn open(keys: &str, directory: &Directory) -> Self {
        let configs: ExporterConfigs =
            egret_config::load("exporters", &format!("out: {keys}"), egret_export::problems)
                .unwrap_or_else(|report| panic!("{report}"));
        let context = ExporterContext { version: "1.2.3", data_dir: directory.path(), upstream_proxy: None };
        let exporters = Exporters::default().open(&configs, context).unwrap();
        let sink = exporters.sinks().remove("out").unwrap();
        Self { exporters, sink }
    }

    fn put(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let entry = entry(&format!("http://a/{number}"));
            let client = Some(IpAddr::from([10, 0, 0, 1]));
            self.sink.put(Exported { entry: &entry, client, service_token: "", environment: "" });
        }
        self.sink.tick();
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.exporters.snapshot().remove(0)
    }

    fn until(&self, what: &str, probe: impl Fn(&ExporterSnapshot) -> bool) -> ExporterSnapshot {
        until(what, || Some(self.snapshot()).filter(&probe))
    }

    fn close(&self) -> ExporterSnapshot {
        self.exporters.close();
        self.snapshot()
    }

    /// Closes it. A close has five seconds: what a slow store has not taken by then is stored after the next
    /// start.
    fn assert_stored_after_close(self, config: &str, directory: &Directory) {
        let closed = self.close();
        assert!(closed.up && closed.last_error.is_none(), "{closed:?}");
        drop(self);
        let next = Self::open(config, directory);
        next.until("the store has all", |snapshot| snapshot.spooled_bytes == 0);
        next.close();
    }
}

fn entry(url: &str) -> Vec<u8> {
    format!(
        r#"{{"startedDateTime":"2026-01-02T03:04:05.250Z","time":1,"request":{{"method":"GET","url":"{url}","httpVersion":"HTTP/1.1","cookies":[],"headers":[],"queryString":[],"headersSize":9,"bodySize":0}},"response":{{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","cookies":[],"headers":[],"content":{{"size":0,"mimeType":""}},"redirectURL":"","headersSize":9,"bodySize":0}},"cache":{{}},"timings":{{"send":0,"wait":1,"receive":0}}}}"#
    )
    .into_bytes()
}

/// Returns the number of the exchange in an entry.
fn number(entry: &Value) -> u32 {
    entry["request"]["url"].as_str().unwrap()["http://a/".len()..].parse().unwrap()
}

/// Returns the numbers of the exchanges in ALF 1 documents.
fn numbers(documents: &[String]) -> Vec<u32> {
    let entry =
        |text: &String| serde_json::from_str::<Value>(text).unwrap()["har"]["log"]["entries"][0].clone();
    documents.iter().map(|text| number(&entry(text))).collect()
}

/// Returns the value of the environment variable that the config names: one that every test has.
fn token() -> String {
    std::env::var("CARGO_PKG_NAME").unwrap()
}

fn alf(transport: &str, keys: &str) -> String {
    format!(
        "{{ type: alf, transport: {{ {transport} }}, service_token: '${{env:CARGO_PKG_NAME}}', environment: test, \
         flush_after: 20ms{keys} }}"
    )
}

#[test]
fn a_pull_socket_gets_every_document_once() {
    for version in ["1.0.0", "1.1.0"] {
        let (collector, directory) = (Collector::start("pull.py", &["0"]), Directory::default());
        let transport = format!("zeromq: '{}'", collector.address());
        let out = Out::open(&alf(&transport, &format!(", version: {version}")), &directory);
        out.put(0..3);
        out.put(3..2_503);
        let documents = collector.received(&format!("alf_{version} "), 2_503);
        assert_eq!(numbers(&documents), (0..2_503).collect::<Vec<_>>());
        let first: Value = serde_json::from_str(&documents[0]).unwrap();
        assert_eq!((&first["serviceToken"], &first["environment"]), (&token().into(), &"test".into()));
        let snapshot = out.until("all are counted", |snapshot| snapshot.written == 2_503);
        assert!(snapshot.up && snapshot.retries == 0 && snapshot.spooled_bytes == 0, "{snapshot:?}");
        out.close();
    }
}

#[test]
fn records_reach_a_returned_collector_in_order() {
    let port = free_port().to_string();
    let (collector, directory) = (Collector::start("pull.py", &[&port]), Directory::default());
    let address = collector.address().to_owned();
    let keys = alf(&format!("zeromq: '{address}'"), "");
    let out = Out::open(&keys, &directory);
    out.put(0..5);
    collector.received("alf_1.0.0 ", 5);
    out.until("the first ones are counted", |snapshot| snapshot.written == 5);
    drop(collector);
    out.put(5..10);
    let snapshot =
        out.until("the collector is missed", |snapshot| !snapshot.up && snapshot.spooled_bytes > 0);
    assert!(snapshot.last_error.unwrap().contains(&address["tcp://".len()..]));
    out.put(10..1_000);
    let snapshot = out.close();
    assert_eq!(snapshot.dropped.values().sum::<u64>(), 0, "{snapshot:?}");

    let mut cat = Command::new("sh");
    cat.args(["-c", "cat \"$0\"/spool/out/*.segment | tr -cd '[:print:]'"]).arg(directory.path());
    let spooled = run_checked(&mut cat);
    assert!(spooled.contains("http://a/999") && !spooled.contains(&token()), "the token is not on the disk");

    let out = Out::open(&keys, &directory);
    out.put(1_000..1_010);
    let collector = Collector::start("pull.py", &[&port]);
    let documents = collector.received("alf_1.0.0 ", 1_005);
    assert_eq!(numbers(&documents), (5..1_010).collect::<Vec<_>>());
    out.until("nothing waits", |snapshot| snapshot.up && snapshot.spooled_bytes == 0);
    out.close();
}

#[test]
fn records_of_a_replaced_exporter_precede_those_of_the_next() {
    let (collector, closed, directory) =
        (Collector::start("pull.py", &["0"]), ClosedPort::take(), Directory::default());
    let old = Out::open(&alf(&format!("zeromq: 'tcp://{}'", closed.address()), ""), &directory);
    old.put(0..5);
    old.until("the collector is missed", |snapshot| snapshot.spooled_bytes > 0);
    // As after a change of the config: the new exporter is open before the old one is closed.
    let new = Out::open(&alf(&format!("zeromq: '{}'", collector.address()), ""), &directory);
    new.put(10..15);
    old.put(5..10);
    old.close();
    let documents = collector.received("alf_1.0.0 ", 15);
    assert_eq!(numbers(&documents), (0..15).collect::<Vec<_>>());
    new.until("nothing waits", |snapshot| snapshot.up && snapshot.spooled_bytes == 0);
    new.close();
}

#[test]
fn a_collector_that_fails_at_first_gets_all_of_it_then() {
    let (collector, directory) =
        (Collector::start("collector.py", &["--failures", "2"]), Directory::default());
    let keys = alf(&format!("http: '{}/v/'", collector.address()), ", gzip: true, batch: 7");
    // A whole batch is sent at once. On a busy machine a part of it may wait for longer than 20 ms.
    let out = Out::open(&keys.replace("20ms", "1h"), &directory);
    out.put(0..7);
    let documents = collector.received("saved ", 7);
    assert_eq!(numbers(&documents), [0, 1, 2, 3, 4, 5, 6]);
    assert!(collector.received("asked ", 3).iter().all(|asked| asked == "/v/1.0.0/batch gzip 7"));
    let snapshot = out.until("all are counted", |snapshot| snapshot.written == 7 && snapshot.up);
    assert!(snapshot.retries == 2 && snapshot.spooled_bytes == 0, "{snapshot:?}");
    assert_eq!(snapshot.dropped.values().sum::<u64>(), 0);
    out.close();
}

#[test]
fn large_batches_are_split_and_refusals_counted() {
    let arguments = ["--most", "3", "--refuse", "http://a/4"];
    let (collector, directory) = (Collector::start("collector.py", &arguments), Directory::default());
    let out = Out::open(&alf(&format!("http: '{}'", collector.address()), ", batch: 10"), &directory);
    out.put(0..10);
    let documents = collector.received("saved ", 9);
    assert_eq!(numbers(&documents), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let snapshot = out.until("all are counted", |snapshot| snapshot.written == 9 && snapshot.up);
    assert_eq!(snapshot.dropped["rejected"], 1);
    assert!(snapshot.last_error.unwrap().contains("207"));
    out.close();
}

#[test]
fn single_documents_go_out_one_by_one() {
    let (collector, directory) = (Collector::start("collector.py", &[]), Directory::default());
    let transport = format!("http: '{}'", collector.address());
    let out = Out::open(&alf(&transport, ", mode: single, version: 2.0.0"), &directory);
    out.put(0..3);
    assert!(collector.received("asked ", 3).iter().all(|asked| asked == "/2.0.0/single None 1"));
    let first: Value = serde_json::from_str(&collector.received("saved ", 3)[0]).unwrap();
    assert_eq!((&first["version"], &first["service"]["token"]), (&"2.0.0".into(), &token().into()));
    out.close();
}

#[test]
fn a_collector_that_takes_connections_and_says_nothing_holds_nobody_up() {
    let (listener, directory) = (TcpListener::bind("127.0.0.1:0").unwrap(), Directory::default());
    let out = Out::open(&alf(&format!("http: 'http://{}'", listener.local_addr().unwrap()), ""), &directory);
    out.put(0..1);
    let (_connection, _) = listener.accept().unwrap();
    // 40 MiB, far more than the limit in memory.
    let long = entry(&format!("http://a/{}", "1".repeat(64 << 10)));
    for _ in 0..640 {
        out.sink.put(Exported { entry: &long, client: None, service_token: "", environment: "" });
    }
    let snapshot = out.close();
    let lost: u64 = snapshot.dropped.values().sum();
    assert!(!snapshot.up && snapshot.written == 0, "{snapshot:?}");
    let kept = snapshot.put - lost;
    let bytes = snapshot.spooled_bytes;
    assert!(kept > 20 && bytes > (kept - 1) * (64 << 10) && bytes < kept * (65 << 10), "{snapshot:?}");
}

/// Returns the config of an exporter to the store, with files of this size.
fn s3(store: &S3, directory: &Directory, rotate: &str) -> String {
    format!(
        "{{ type: s3, endpoint: '{}', bucket: bucket, prefix: har/, access_key: '${{file:{}}}', \
         secret_key: '${{file:{}}}', rotate: {rotate} }}",
        store.url(),
        directory.join("id").display(),
        directory.join("key").display(),
    )
}

#[test]
fn a_store_gets_objects_that_are_valid_har() {
    let (store, directory) = (S3::start(), Directory::default());
    let [id, key] = S3::KEYS;
    directory.write("id", id);
    directory.write("key", key);
    let config = s3(&store, &directory, "64KiB");
    let out = Out::open(&config, &directory);
    for start in (0..1_000).step_by(100) {
        out.put(start..start + 100);
    }
    out.put(1_000..1_020);
    out.assert_stored_after_close(&config, &directory);

    let (objects, mut numbers) = (store.objects(), Vec::new());
    assert!(objects.len() > 3, "{objects:?}");
    for (key, path) in objects {
        assert!(
            key.starts_with("har/20") && key.ends_with(".har.gz") && key.matches('/').count() == 4,
            "{key}"
        );
        let text = run_checked(Command::new("gzip").arg("-dc").arg(path));
        let har: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(validate(&har), []);
        numbers.extend(har["log"]["entries"].as_array().unwrap().iter().map(number));
    }
    assert_eq!(numbers, (0..1_020).collect::<Vec<_>>());
}

#[test]
fn a_store_gets_lines_as_they_were_put() {
    let (store, directory) = (S3::start(), Directory::default());
    let [id, key] = S3::KEYS;
    directory.write("id", id);
    directory.write("key", key);
    let config = s3(&store, &directory, "4KiB").replace("type: s3", "type: s3, format: lines");
    let out = Out::open(&config, &directory);
    out.put(0..20);
    out.assert_stored_after_close(&config, &directory);
    let mut numbers = Vec::new();
    for (key, path) in store.objects() {
        assert!(key.starts_with("har/20") && key.ends_with(".log.gz"), "{key}");
        let text = run_checked(Command::new("gzip").arg("-dc").arg(path));
        numbers.extend(text.lines().map(|line| number(&serde_json::from_str(line).unwrap())));
    }
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn refused_objects_are_stored_after_the_next_start() {
    let (store, directory) = (S3::start(), Directory::default());
    let [id, key] = S3::KEYS;
    directory.write("id", id);
    directory.write("key", "another-key");
    let out = Out::open(&s3(&store, &directory, "4KiB"), &directory);
    out.put(0..100);
    let snapshot = out.until("the store refuses", |snapshot| !snapshot.up);
    let error = snapshot.last_error.unwrap();
    assert!(error.contains("403 (SignatureDoesNotMatch)") && !error.contains("another-key"), "{error}");
    out.close();
    assert_eq!(store.objects(), []);

    directory.write("key", key);
    let out = Out::open(&s3(&store, &directory, "4KiB"), &directory);
    out.until("what waited is there", |snapshot| snapshot.written == 100 && snapshot.spooled_bytes == 0);
    out.close();
}

#[test]
fn an_exporter_sends_no_record_without_tls() {
    let (listener, directory) = (TcpListener::bind("127.0.0.1:0").unwrap(), Directory::default());
    let transport = format!("http: 'https://{}'", listener.local_addr().unwrap());
    let out = Out::open(&alf(&transport, ""), &directory);
    out.put(0..1);
    let (mut connection, _) = listener.accept().unwrap();
    let mut hello = [0; 3];
    connection.read_exact(&mut hello).unwrap();
    assert_eq!(hello, [0x16, 3, 1], "the record of a TLS handshake");
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    let snapshot = out.until("that is refused", |snapshot| !snapshot.up);
    assert_eq!(snapshot.written, 0);
    drop(listener);
    out.close();
}
