//! Secrets of every kind, in every part of an exchange: live traffic shows none of them, in the list, the
//! details, the stream and `egret tail`, and no filter finds one.

use std::fmt::Write as _;

use egret_tests::egret::{Config, egret as egret_command};
use egret_tests::process::Process;
use egret_tests::provider::{Provider, Request};
use egret_tests::secrets::{PlantedSecret, planted, secrets, texts};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::Value;

/// Names the message that an exchange belongs to.
const ROW: &str = "X-Row";

/// All messages, with the part of their secret that must not be found.
fn rows() -> Vec<(String, PlantedSecret)> {
    let all = secrets();
    let rows = all
        .iter()
        .flat_map(|(secret, core)| planted(secret).into_iter().map(move |planted| (core.clone(), planted)));
    rows.filter(|(_, planted)| !planted.is_cut).collect()
}

fn lines(planted: &PlantedSecret) -> String {
    planted.fields.iter().fold(String::new(), |mut lines, (name, value)| {
        let _ = write!(lines, "{name}: {value}\r\n");
        lines
    })
}

fn message(start: &str, planted: &PlantedSecret) -> Vec<u8> {
    let head = format!("{start}\r\n{}Content-Length: {}\r\n\r\n", lines(planted), planted.body.len());
    [head.as_bytes(), &planted.body].concat()
}

fn provider() -> Provider {
    let rows = rows();
    Provider::with_responses(move |request: &Request| {
        let row: usize = request.values(ROW)[0].parse().unwrap();
        message("HTTP/1.1 200 OK", &rows[row].1)
    })
}

/// Asserts that no text of the value has a secret.
fn assert_hidden(place: &str, value: &Value, cores: &[String]) {
    let mut found = Vec::new();
    texts(value, &mut found);
    for core in cores {
        assert!(!found.iter().any(|text| text.contains(core)), "{place} shows {core}: {value}");
    }
}

/// Number of exchanges that are sent before they are looked at: the stream brings them in turns.
const GROUP: usize = 10;

#[test]
fn no_part_of_live_traffic_shows_a_secret() {
    let rows = rows();
    let origin = provider();
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let traffic = LiveTraffic::open(&egret);
    let mut command = egret_command(["tail", "-v", "--provider", "origin", "--color", "always"]);
    command.current_dir(egret.directory().path()).arg("--control").arg(egret.control().to_string());
    let mut tail = Process::printing(&mut command);
    let mut stream = traffic.stream("provider=origin");
    wait::until_true("both read the stream", || traffic.list("")["status"]["readers"] == 2);
    let cores: Vec<String> = secrets().into_iter().map(|(_, core)| core).collect();
    let numbered: Vec<_> = rows.iter().enumerate().collect();
    for group in numbered.chunks(GROUP) {
        for (number, (_, planted)) in group {
            let target = if planted.target.is_empty() { "/" } else { &planted.target };
            let start =
                format!("POST /origin{target} HTTP/1.1\r\nHost: {}\r\n{ROW}: {number}", egret.address());
            egret.client().send(message(&start, planted)).response_to("POST").assert_forwarded(200);
        }
        for _ in group {
            let line = stream.until("exchange");
            assert_hidden("the stream", &line, &cores);
            let details = traffic.details(&line);
            assert_hidden("the details", &details, &cores);
        }
        let listed = traffic.exchanges(&format!("provider=origin&limit={}", group.len()));
        assert_eq!(listed.len(), group.len());
        assert_hidden("the list", &Value::from(listed), &cores);
    }
    let calls = |lines: &[String]| lines.iter().filter(|line| line.contains(" POST ")).count();
    tail.until_printed("every call", |lines| (calls(lines) == rows.len()).then_some(()));
    drop(egret);
    assert_eq!(tail.until_ended().code(), Some(1));
    let shown = tail.until_printed("all of it", |lines| Some(lines.join("\n")));
    assert!(shown.contains("    < "), "{shown}");
    for core in &cores {
        assert!(!shown.contains(core.as_str()), "the tail shows {core}");
    }
}

#[test]
fn a_filter_is_no_way_to_find_a_secret_out() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
    egret
        .client()
        .send(format!(
            "GET /origin/v1/{secret}?token={secret} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\n\
             X-Egret-Consumer: {secret}\r\n\r\n",
            egret.address()
        ))
        .response()
        .assert_forwarded(200);
    traffic.until("provider=origin", 1);
    for query in [
        "header.authorization=*ghp_a1*",
        "query.token=ghp_a1*",
        "path=regex:.*ghp_a1.*",
        "consumer=ghp_a1*",
        &format!("path=/v1/{secret}"),
    ] {
        assert_eq!(traffic.exchanges(&format!("provider=origin&{query}")).len(), 0, "{query}");
    }
    assert_eq!(traffic.exchanges("provider=origin&path=/*&header.authorization=Bearer%20egr_*").len(), 1);
}

#[test]
fn redaction_hides_secrets_or_all_values() {
    let origin = Provider::plain();
    for (redact, shown) in [("off", "token=s3cr3t"), ("secrets", "token=egr_"), ("all", "token=egr_")] {
        let egret =
            Config::with_origin(origin.url()).control(format!("traffic: {{ redact: {redact} }}")).start();
        let traffic = LiveTraffic::open(&egret);
        egret.get("/users/ada?token=s3cr3t-of-the-tests");
        let exchange = &traffic.until("provider=origin", 1)[0];
        let url = exchange["url"].as_str().unwrap();
        assert!(url.contains(shown), "{redact}: {url}");
        assert_eq!(url.contains("/users/ada"), redact != "all", "{redact}: {url}");
    }
}
