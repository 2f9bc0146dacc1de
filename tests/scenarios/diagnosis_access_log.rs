//! The diagnosis `access-log`: a line for each exchange, in a file or on standard output, without secrets.

use std::fmt::Write as _;
use std::fs::File;

use egret_tests::egret::{Config, Egret};
use egret_tests::process::Directory;
use egret_tests::provider::Provider;
use egret_tests::recorded::{content, diagnosed, files, until_exporter, until_recorded};
use egret_tests::secrets::{encoded, planted, secrets};
use egret_tests::wait;
use serde_json::Value;

const LINES: &str = "exporters: { access: { type: lines, directory: ./access } }\n";

/// Stops Egret and returns the lines that it has written.
fn lines(mut egret: Egret) -> Vec<String> {
    egret.terminate();
    assert!(egret.until_ended().success());
    let files = files(&egret.directory().join("access"));
    let text: Vec<u8> = files.iter().flat_map(|file| content(file)).collect();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_exchange_has_a_line_of_json() {
    let origin = Provider::plain();
    let flows = "flows:\n\
        - { name: users, match: { path: '/users/{id}' }, diagnoses: [access-log: { export: access }] }\n\
        - { name: tea, match: { path: /users/tea }, remedies: [fixed-response: { status: 418, body: tea }] }\n";
    let egret = Config::with_origin(origin.url()).flows(LINES.to_owned() + flows).start();
    egret.get("/users/7?page=2").assert_forwarded(200);
    egret.get("/elsewhere").assert_forwarded(200);
    assert_eq!(egret.get("/users/tea").status, 418);
    until_recorded(&egret, 2);
    let mut lines: Vec<Value> = lines(egret).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["status"].as_u64());
    let [forwarded, answered] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&forwarded["status"], &forwarded["attempts"]), (&200.into(), &1.into()));
    assert_eq!((&forwarded["provider"], &forwarded["method"]), (&"origin".into(), &"GET".into()));
    let target = forwarded["target"].as_str().unwrap();
    assert!(target.starts_with("/users/egr_") && target.contains("?page=egr_"), "{target}");
    assert!(forwarded["duration_us"].as_u64() >= forwarded["provider_us"].as_u64(), "{forwarded}");
    assert_eq!((&answered["status"], &answered["attempts"]), (&418.into(), &0.into()));
    assert_eq!(answered["remedies"], "tea/fixed-response=answer");
}

#[test]
fn a_template_writes_to_standard_output() {
    let origin = Provider::plain();
    let flows = "exporters: { out: { type: stdout } }\n\
        flows:\n\
        - name: all\n\
        \x20 diagnoses:\n\
        \x20   - access-log: { export: out, template: 'seen ${method} ${path} ${status} \"${request.headers.x-id}\"', exclude: ['request.path[0]'] }\n";
    let directory = Directory::default();
    let out = directory.join("out");
    let mut egret = Egret::start_with(&Config::with_origin(origin.url()).flows(flows), |command| {
        command.stdout(File::create(&out).unwrap());
    });
    let host = egret.address();
    egret.client().send(format!("GET /origin/a HTTP/1.1\r\nHost: {host}\r\nX-Id: 1\"2\r\n\r\n")).response();
    until_exporter(&egret, "out", "the line is written", |out| out["written"] == 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    let printed = std::fs::read_to_string(&out).unwrap();
    assert!(printed.starts_with("seen GET /a 200 \"egr_") && printed.ends_with("\"\n"), "{printed}");
    assert_eq!(printed.lines().count(), 1);
}

/// Sends every secret in every part of a head. Returns the lines that contain one.
fn leaks(keys: &str) -> (Vec<String>, usize) {
    let origin = Provider::plain();
    let every_field = ["x-custom", "authorization", "cookie", "location", "content-type"]
        .map(|name| format!("request.headers.{name}, response.headers.{name}"))
        .join(", ");
    let flows = format!(
        "flows:\n- {{ name: all, diagnoses: [access-log: {{ export: access, fields: [target, path, method, consumer, {every_field}]{keys} }}] }}\n"
    );
    let egret = Config::with_origin(origin.url()).flows(LINES.to_owned() + &flows).start();
    let mut sent = 0;
    for (secret, _) in secrets() {
        for row in planted(&secret).into_iter().filter(|row| row.body.is_empty()) {
            let target = if row.target.is_empty() { "/" } else { &row.target };
            let mut fields = String::new();
            for (name, value) in &row.fields {
                let _ = write!(fields, "{name}: {value}\r\n");
            }
            let host = egret.address();
            egret
                .client()
                .send(format!("GET /origin{target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
                .response();
            sent += 1;
        }
    }
    wait::until_true("all are recorded", || {
        diagnosed(&egret, "recorded") == sent && diagnosed(&egret, "queued") == 0
    });
    let lines = lines(egret);
    assert_eq!(lines.len() as u64, sent);
    let mut found = Vec::new();
    for line in &lines {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
        for (secret, core) in secrets() {
            if line.contains(&core) || line.contains(&encoded(&core)) {
                found.push(format!("{secret:?} in {line}"));
            }
        }
    }
    (found, lines.len())
}

#[test]
fn no_secret_is_left_in_a_line() {
    assert_eq!(leaks("").0, [""; 0]);
    assert_eq!(leaks(", obfuscate: false").0, [""; 0]);
    let (in_the_clear, lines) = leaks(", obfuscate: false, detect_secrets: false");
    assert!(in_the_clear.len() > lines / 2, "too few secrets were found: {}", in_the_clear.len());
}
