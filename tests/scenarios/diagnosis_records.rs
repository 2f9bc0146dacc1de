//! Every exchange of a flow with a diagnosis is recorded once, however it ends, with the times that its
//! client measures; exchanges that are not recorded are counted.

use std::fs;
use std::time::Instant;

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::load::Load;
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::wait;
use serde_json::Value;

const EXPORTERS: &str = "exporters: { kept: { type: ndjson, directory: ./kept } }\n";

/// Returns a config whose flow `all` matches everything and archives without obfuscation. The provider
/// `hasty` is the same as `origin`, with a short timeout.
fn config(url: &str, keys: &str) -> Config {
    let flows = format!(
        "flows:\n\
         - {{ name: all, diagnoses: [har: {{ export: kept, obfuscate: false, detect_secrets: false{keys} }}] }}\n\
         - {{ name: local, match: {{ path: /local }}, remedies: [fixed-response: {{ status: 418, body: tea }}] }}\n"
    );
    Config::with_origin(url)
        .provider_with("hasty", url, "timeouts: { first_byte: 2s }")
        .flows(EXPORTERS.to_owned() + &flows)
}

/// Returns a counter of the exchanges of the flow `all`.
fn count(egret: &Egret, what: &str) -> u64 {
    let flows = egret.control_get("/api/v1/flows").json();
    flows["flows"][0]["diagnoses"][0][what].as_u64().unwrap()
}

fn until_recorded(egret: &Egret, expected: u64) {
    wait::until_true(&format!("{expected} exchanges are recorded"), || count(egret, "recorded") == expected);
}

/// Stops Egret and reads its archive, oldest entry first.
fn entries(mut egret: Egret) -> Vec<Value> {
    egret.terminate();
    assert!(egret.until_ended().success());
    let directory = egret.directory().path().join("kept");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // With two workers the order in the file may differ.
    entries.sort_by_key(|entry| entry["startedDateTime"].as_str().unwrap().to_owned());
    entries
}

/// Returns the sum of an entry's phases in milliseconds, which is its total time.
fn sum_ms(entry: &Value) -> f64 {
    let phases = ["blocked", "dns", "connect", "send", "wait", "receive"];
    phases.iter().map(|phase| entry["timings"][phase].as_f64().unwrap_or(-1.0).max(0.0)).sum()
}

#[test]
fn times_are_those_that_the_client_has_seen() {
    let provider = BuiltIn::start(&[]);
    // With one worker, each client finds the connection that the one before it has left.
    let config = config(&format!("http://{}", provider.address()), "").gateway("workers: 1");
    let egret = config.start();
    let mut measured = Vec::new();
    for target in ["/delay/0.1", "/drip?numbytes=10&duration=0.2&delay=0", "/get"] {
        let mut client = egret.client();
        for _ in 0..5 {
            let start = Instant::now();
            client.get(egret.address(), &format!("/origin{target}")).response().assert_forwarded(200);
            measured.push((target, start.elapsed().as_secs_f64() * 1_000.0));
        }
    }
    let entries = entries(egret);
    assert_eq!(entries.len(), measured.len());
    for (target, phase, least_ms) in
        [("/delay", "wait", 100.0), ("/drip", "receive", 150.0), ("/get", "wait", 0.0)]
    {
        let pairs = entries.iter().zip(&measured).filter(|(_, (other, _))| other.starts_with(target));
        let (mut is_within, mut longest_ms) = (false, 0.0_f64);
        for (entry, (_, measured_ms)) in pairs {
            let time_ms = entry["time"].as_f64().unwrap();
            assert!((sum_ms(entry) - time_ms).abs() < 0.002, "{entry}");
            assert!(time_ms >= least_ms, "{entry}");
            longest_ms = longest_ms.max(entry["timings"][phase].as_f64().unwrap());
            is_within |= time_ms <= *measured_ms;
        }
        // A gateway that gets the processor late counts a part of one phase in the one before.
        assert!(longest_ms >= least_ms / 2.0, "{phase} of {target} is short: {entries:?}");
        // The client begins before the gateway. It ends after it, except if the gateway has just lost the
        // processor.
        assert!(is_within, "{target} took longer than the client has measured: {entries:?}");
    }
    let connects =
        entries.iter().filter(|entry| entry["timings"]["connect"].as_f64().is_some_and(|ms| ms >= 0.0));
    assert_eq!(connects.count(), 1, "one connection serves all");
}

/// Ends an exchange as its path says.
fn by_path(peer: &mut Peer) {
    while let Some(request) = peer.request() {
        match request.target() {
            "/reset" => return peer.reset(),
            "/slow" => return peer.stall(),
            "/cut" => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
                return;
            }
            "/upgrade" => {
                peer.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                return;
            }
            "/early" => {
                peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                peer.send(ok("hello"));
            }
            _ => {
                peer.send(ok("hello"));
            }
        }
    }
}

#[test]
fn an_exchange_is_recorded_once_however_it_ends() {
    let origin = Provider::scripted(by_path);
    let egret = config(&origin.url(), ", bodies: 1KiB, media_types: [\"*/*\"]").start();
    let host = egret.address();
    let ask = |target: &str, fields: &str| {
        let mut client = egret.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/plain\r\n{fields}Content-Length: 3\r\n\r\na=b"));
        client
    };
    ask("/origin/ok?q=1", "").response().assert_forwarded(200);
    ask("/origin/reset", "").response().assert_generated(502, "provider-closed");
    ask("/hasty/slow", "").response().assert_generated(504, "first-byte-timeout");
    let mut cut = ask("/origin/cut", "");
    cut.head();
    cut.rest();
    egret
        .client()
        .request(host, "GET /origin/upgrade", "Connection: upgrade\r\nUpgrade: websocket\r\n", "")
        .head();
    let mut early = egret.client();
    early.send(format!("GET /origin/early HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!((early.head().status, early.response().status), (103, 200));
    assert_eq!(ask("/origin/local", "").response().status, 418);
    ask("/nowhere", "").response().assert_generated(404, "unknown-provider");
    egret.client().send(format!("CONNECT {} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address())).head();
    until_recorded(&egret, 9);
    let seen = origin.requests().len();
    let gone = ask("/origin/slow", "");
    origin.until_requested(seen + 1);
    gone.reset();
    until_recorded(&egret, 10);
    let lost: u64 = ["dropped", "shed", "failed", "queued"].iter().map(|what| count(&egret, what)).sum();
    assert_eq!(lost, 0);
    let entries = entries(egret);
    let received: Vec<_> = entries
        .iter()
        .map(|entry| {
            let url = entry["request"]["url"].as_str().unwrap();
            let path = url.split('/').skip(3).collect::<Vec<_>>().join("/");
            (
                path,
                entry["response"]["status"].as_u64().unwrap(),
                entry["_error"].as_str().unwrap_or("").to_owned(),
            )
        })
        .collect();
    let expected = [
        ("ok?q=1", 200, ""),
        ("reset", 502, "provider-closed"),
        ("slow", 504, "first-byte-timeout"),
        ("cut", 200, ""),
        ("upgrade", 101, ""),
        ("early", 200, ""),
        ("local", 418, ""),
        ("nowhere", 404, "unknown-provider"),
        ("", 200, ""),
        ("slow", 0, ""),
    ];
    assert_eq!(received, expected.map(|(path, status, error)| (path.to_owned(), status, error.to_owned())));
    for entry in &entries {
        assert!((sum_ms(entry) - entry["time"].as_f64().unwrap()).abs() < 0.002, "{entry}");
    }
    let [first, reset, slow, cut, ..] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(first["request"]["postData"]["text"], "a=b");
    assert_eq!(first["request"]["bodySize"], 3);
    assert_eq!(first["response"]["content"]["text"], "hello");
    assert_eq!(first["serverIPAddress"], "127.0.0.1");
    assert_eq!(reset["request"]["bodySize"], 3);
    assert!(reset["response"]["content"]["text"].as_str().unwrap().contains("provider-closed"), "{reset}");
    assert!(slow["timings"]["wait"].as_f64().unwrap() >= 2_000.0, "{slow}");
    assert_eq!(
        (cut["response"]["bodySize"].as_u64(), first["response"]["bodySize"].as_u64()),
        (Some(10), Some(5))
    );
}

#[test]
fn under_load_and_through_reloads_each_exchange_is_recorded_once() {
    let origin = Provider::plain();
    let before = config(&origin.url(), "");
    let egret = before.start();
    let load = Load::start(egret.address(), "/origin/", 8, true);
    for turn in 1..=4 {
        let keys = if turn % 2 == 1 { ", bodies: 1KiB" } else { "" };
        egret.rewrite(config(&origin.url(), keys).yaml());
        wait::until_true("the config is reloaded", || egret.stat("/reloads") >= turn);
    }
    let tally = load.finish();
    assert_eq!((tally.failures, tally.refused), (Vec::new(), 0));
    let answered = tally.completed as u64;
    let all = || ["recorded", "dropped", "shed", "failed"].map(|what| count(&egret, what));
    // A record is handed over after the response.
    wait::until_true("all are handed over, and none waits any more", || {
        count(&egret, "queued") == 0 && all().iter().sum::<u64>() >= answered
    });
    let [recorded, dropped, shed, failed] = all();
    assert_eq!(recorded + dropped + shed, answered, "{recorded} recorded, {dropped} dropped, {shed} shed");
    assert_eq!(failed, 0);
    assert_eq!(entries(egret).len() as u64, recorded);
}

#[test]
fn a_drain_writes_what_waits() {
    let origin = Provider::plain();
    let egret = config(&origin.url(), "").start();
    let mut client = egret.client();
    for _ in 0..200 {
        client.get(egret.address(), "/origin/").response().assert_forwarded(200);
    }
    // Sent at once: most exchanges have not been processed yet.
    assert_eq!(entries(egret).len(), 200);
}

#[test]
fn required_records_wait_and_other_losses_are_counted() {
    let origin = Provider::plain();
    let flows = "flows: [{ name: all, diagnoses: [{ har: { export: kept }, on_pressure: wait }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(EXPORTERS.to_owned() + flows).start();
    let load = Load::start(egret.address(), "/origin/", 4, true);
    wait::until_true("some have been served", || count(&egret, "recorded") > 1_000);
    let tally = load.finish();
    until_recorded(&egret, tally.completed as u64);
    assert_eq!((count(&egret, "dropped"), count(&egret, "shed")), (0, 0));
}
