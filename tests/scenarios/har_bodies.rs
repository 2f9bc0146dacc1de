//! Bodies that are too long, endless, or not what they claim: they are forwarded unchanged, and their entries
//! stay small and report it.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::permits;
use egret_tests::process::run;
use egret_tests::provider::{Peer, Provider};
use egret_tests::recorded::{assert_verified, diagnosed, entries, files, until_recorded};
use serde_json::Value;

const GIB: u64 = 1 << 30;
const PIECE: usize = 256 << 10;
/// Maximum additional memory of one exchange, in bytes: far less than its body. A body that is decoded up to
/// 1 MiB may be six times as long in JSON, and exists several times during recording.
const GROWTH_MAX: u64 = 96 << 20;

fn start(origin: &Provider, keys: &str) -> Egret {
    let flows = format!(
        "exporters: {{ archive: {{ type: har, directory: ./har }} }}\n\
         flows: [{{ name: all, diagnoses: [har: {{ export: archive, bodies: 64KiB, media_types: ['*/*']{keys} }}] }}]\n"
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    // One-time allocations are made now.
    egret.get("/first").assert_forwarded(200);
    until_recorded(&egret, 1);
    egret
}

/// Responds to small requests, to compare memory, and to others with `long`.
fn provider(long: impl Fn(&mut Peer, &str) + Send + Sync + 'static) -> Provider {
    Provider::scripted(move |peer| {
        while let Some(request) = peer.request_head() {
            match request.target() {
                "/first" => {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
                }
                target => long(peer, target),
            }
        }
    })
}

/// Stops Egret and returns the last entry of a provider's response from the valid archive.
fn last_entry(mut egret: Egret) -> Value {
    egret.terminate();
    assert!(egret.until_ended().success());
    let files = files(&egret.directory().join("har"));
    assert_verified(&files);
    entries(&files).into_iter().rfind(|entry| entry["_error"].is_null()).unwrap()
}

/// Asserts that the exchange did not grow Egret's memory by its body.
fn assert_bounded(egret: &Egret, before: u64) {
    let grown = egret.process().resident_bytes_max().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    egret.assert_well();
}

/// Asserts that `count` bodies have this result, and that the log reports the first.
fn assert_told(egret: &Egret, result: &str, count: u64) {
    let metrics = egret.control_get("/metrics").text().to_owned();
    let sample = format!("egret_har_bodies_total{{flow=\"all\",result=\"{result}\"}} {count}\n");
    assert!(metrics.contains(&sample), "{sample} is not in {metrics}");
    if count > 0 && result != "whole" {
        egret.until_logged(&format!("some bodies were not archived as sent: {count} {result}"));
    }
}

/// Receives and discards this number of bytes.
fn receive(client: &Client, mut bytes: u64) {
    let mut piece = vec![0; PIECE];
    while bytes > 0 {
        let max = usize::try_from(bytes).unwrap_or(PIECE).min(PIECE);
        let count = client.stream().read(&mut piece[..max]).unwrap();
        assert!(count > 0, "closed {bytes} bytes early");
        bytes -= count as u64;
    }
}

#[test]
fn a_gibibyte_either_way_is_streamed_and_its_beginning_kept() {
    let _permit = permits::busy();
    let origin = provider(|peer, target| {
        let mut piece = vec![b'x'; PIECE];
        if target == "/up" {
            let mut left = GIB;
            while left > 0 {
                let count = peer.read(&mut piece) as u64;
                assert!(count > 0);
                left -= count;
            }
            peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        } else {
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {GIB}\r\n\r\n"
            ));
            for _ in 0..GIB / PIECE as u64 {
                peer.send(&piece);
            }
        }
    });
    let down = start(&origin, "");
    let before = down.process().resident_bytes();
    let mut client = down.client();
    client.get(down.address(), "/origin/down");
    client.head().assert_forwarded(200);
    receive(&client, GIB - client.pending().len() as u64);
    until_recorded(&down, 2);
    assert_bounded(&down, before);
    assert_told(&down, "truncated", 1);
    let entry = last_entry(down);
    let content = &entry["response"]["content"];
    assert_eq!(
        (&entry["response"]["bodySize"], &content["size"], &content["_truncated"]),
        (&GIB.into(), &GIB.into(), &true.into())
    );
    assert!(content["text"].as_str().unwrap().len() <= 64 << 10);

    let up = start(&origin, "");
    let before = up.process().resident_bytes();
    let mut client = up.client();
    client.request(
        up.address(),
        "POST /origin/up",
        &format!("Content-Type: text/plain\r\nContent-Length: {GIB}\r\n"),
        "",
    );
    let piece = vec![b'x'; PIECE];
    for _ in 0..GIB / PIECE as u64 {
        client.stream().write_all(&piece).unwrap();
    }
    client.response().assert_forwarded(204);
    until_recorded(&up, 2);
    assert_bounded(&up, before);
    let entry = last_entry(up);
    assert_eq!(
        (&entry["request"]["bodySize"], &entry["request"]["postData"]["_truncated"]),
        (&GIB.into(), &true.into())
    );
}

#[test]
fn a_response_that_never_ends_is_recorded_once_its_client_has_left() {
    let origin = provider(|peer, _| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [format!("{PIECE:x}\r\n").into_bytes(), vec![b'x'; PIECE], b"\r\n".to_vec()].concat();
        while !peer.stopped() && peer.send(&chunk) {}
    });
    let egret = start(&origin, "");
    let before = egret.process().resident_bytes();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/events").head().assert_forwarded(200);
    receive(&client, 256 << 20);
    assert_eq!(diagnosed(&egret, "recorded"), 1, "it is not over");
    assert_bounded(&egret, before);
    client.reset();
    until_recorded(&egret, 3);
    assert_told(&egret, "truncated", 1);
    let entry = last_entry(egret);
    assert_eq!(entry["_cutShort"], true, "{entry}");
    assert!(entry["response"]["bodySize"].as_u64().unwrap() >= 256 << 20, "{entry}");
    assert_eq!(entry["response"]["content"]["_truncated"], true);
}

#[test]
fn a_bomb_of_gzip_passes_and_is_not_unpacked_beyond_its_bound() {
    let _permit = permits::busy();
    let packed = run(Command::new("sh").args(["-c", "head -c 268435456 /dev/zero | gzip -9"])).stdout;
    assert!(packed.len() > 200_000, "{} bytes", packed.len());
    let sent = packed.clone();
    let origin = provider(move |peer, _| {
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", sent.len()));
        peer.send(&sent);
    });
    for keys in ["", ", obfuscate: false", ", obfuscate: false, detect_secrets: false"] {
        let egret = start(&origin, keys);
        let before = egret.process().resident_bytes();
        let response = egret.get("/bomb");
        response.assert_forwarded(200);
        assert_eq!(response.body, packed);
        until_recorded(&egret, 2);
        assert_bounded(&egret, before);
        assert_told(&egret, "truncated", 1);
        let content = &last_entry(egret)["response"]["content"];
        assert_eq!(content["_truncated"], true, "{keys}");
        assert!(content["text"].as_str().unwrap().len() <= 2 << 20, "{keys}");
    }
}

#[test]
fn malformed_json_passes_and_counts_as_one_value() {
    for body in [
        "{\"token\": \"ghp_secret\"",
        "{'a': 1}",
        "\u{feff}{\"a\":1}",
        "[1,2,]",
        "{\"a\":1}{\"a\":2}",
        "",
        "nul",
    ] {
        let origin = provider(move |peer, _| {
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        });
        let egret = start(&origin, "");
        let response = egret.get("/json");
        response.assert_forwarded(200);
        assert_eq!(response.text(), body);
        until_recorded(&egret, 2);
        assert_told(&egret, "malformed", u64::from(!body.is_empty()));
        let entry = last_entry(egret);
        let text = entry["response"]["content"]["text"].as_str().unwrap_or_default();
        assert_eq!(entry["response"]["content"]["size"], body.len(), "{entry}");
        assert!(
            body.is_empty() || (text.starts_with("egr_") && text.len() == 28),
            "{body:?} became {text:?}"
        );
    }
}

#[test]
fn malformed_gzip_passes_and_is_recorded_as_corrupt() {
    let origin = provider(|peer, _| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n{\"a\": 12}");
    });
    let egret = start(&origin, "");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/gzip").response().assert_forwarded(200);
    client.assert_silent(Duration::from_millis(50));
    until_recorded(&egret, 2);
    assert_told(&egret, "corrupt", 1);
    let entry = last_entry(egret);
    assert_eq!(entry["response"]["content"]["_corrupt"], true, "{entry}");
}
