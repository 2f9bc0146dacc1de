//! Policies of a newcomer, in steps: limits and retries, records, stored responses, changes on the page, and
//! a config of another product.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, binary, egret};
use egret_tests::imported::{fixture, with_secrets};
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{files, until_exporter};
use egret_tests::steps::{Steps, judge};

const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";

/// Opens the editor with a text in it, on which the steps act.
const EDITOR: &str = r#"
const text = `[...document.querySelectorAll(".cm-line")].map((line) => line.textContent).join("\\n")`;
const opened = async () => {
  await open("config", "egret.yaml");
  return page.until(`(${text}).includes("limit: 5") && ${text}`);
};
"#;

#[test]
fn policies_take_no_more_steps_than_documented() {
    judge(
        "make test ONLY=steps_of_policies",
        &[
            ("Limit and retry calls", limit_and_retry),
            ("Record calls as a HAR archive", record),
            ("Serve stored responses while a provider is down", serve_stored_responses),
            ("Record failures only", record_failures),
            ("Change a limit on the page", change_a_limit),
            ("Roll a change back on the page", roll_back),
            ("Move a config of Lunar's", move_from_lunar),
        ],
    );
}

/// Returns the config of a gateway that runs, with these flows.
fn with_flows(origin: &Provider, flows: &str) -> Config {
    Config::with_origin(origin.url()).flows(flows)
}

fn limit_and_retry(steps: &mut Steps) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let origin =
        Provider::with_responses(
            move |_| {
                if counted.fetch_add(1, SeqCst) == 1 { BUSY.to_vec() } else { ok("fine") }
            },
        );
    let gateway = with_flows(&origin, "").start();
    gateway.get("/").assert_forwarded(200);
    let flows = "quotas: { calls: { limit: 3, window: 1h } }\n\
                 flows: [{ name: calls, remedies: [retry: 3, limit: calls] }]\n";
    steps.edits(&gateway, &with_flows(&origin, flows).yaml());
    gateway.get("/").assert_forwarded(200);
    assert_eq!(calls.load(SeqCst), 3, "the second call failed, and was repeated");
    gateway.get("/").assert_forwarded(200);
    gateway.get("/").assert_generated(429, "quota-exceeded");
}

/// Waits until the archive has so many entries, and reads it with one command. Returns its summary.
fn summary(steps: &mut Steps, gateway: &Egret, entries: u64) -> String {
    until_exporter(gateway, "archive", "the entry is written", |archive| archive["written"] == entries);
    let archive = files(&gateway.directory().join("har"));
    steps.runs(egret(["har", "stats"]).args(archive))
}

fn record(steps: &mut Steps) {
    let origin = Provider::plain();
    let gateway = with_flows(&origin, "").start();
    let flows = "exporters: { archive: { type: har, directory: ./har } }\n\
                 flows: [{ name: record, diagnoses: [har: { export: archive }] }]\n";
    steps.edits(&gateway, &with_flows(&origin, flows).yaml());
    gateway.get("/recorded").assert_forwarded(200);
    let told = summary(steps, &gateway, 1);
    assert!(told.contains("GET") && told.contains("200"), "{told}");
}

fn record_failures(steps: &mut Steps) {
    let origin = Provider::with_responses(|request| match request.target() {
        "/fails" => BUSY.to_vec(),
        _ => ok("fine"),
    });
    let gateway = with_flows(&origin, "").start();
    let flows = "exporters: { archive: { type: har, directory: ./har } }\n\
                 flows: [{ name: record, when_response: response.status >= 500, diagnoses: [har: { export: archive }] }]\n";
    steps.edits(&gateway, &with_flows(&origin, flows).yaml());
    gateway.get("/").assert_forwarded(200);
    gateway.get("/fails").assert_forwarded(503);
    until_exporter(&gateway, "archive", "the failure is written", |archive| archive["put"] == 1);
}

fn serve_stored_responses(steps: &mut Steps) {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let origin = Provider::with_responses(move |_| {
        if down.load(SeqCst) {
            return BUSY.to_vec();
        }
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=10\r\nAge: 20\r\nContent-Length: 5\r\n\r\nstock".to_vec()
    });
    let gateway = with_flows(&origin, "").start();
    let flows = "flows: [{ name: stock, remedies: [cache: { stale_if_error: 24h }] }]\n";
    steps.edits(&gateway, &with_flows(&origin, flows).yaml());
    gateway.get("/stock").assert_forwarded(200);
    is_down.store(true, SeqCst);
    let stored = gateway.get("/stock");
    assert_eq!((stored.status, stored.text()), (200, "stock"), "{stored:?}");
    assert!(stored.field("cache-status").unwrap().contains("stale-if-error"), "{stored:?}");
}

fn editable(limit: u32) -> Config {
    Config::default()
        .control("config_changes: all")
        .flows(format!("quotas:\n  live: {{ limit: {limit}, window: 1h }}\n"))
}

/// Returns the limit in effect.
fn limit(gateway: &Egret) -> u64 {
    gateway.control_get("/api/v1/config").json()["quotas"]["live"]["limit"].as_u64().unwrap()
}

fn change_a_limit(steps: &mut Steps) {
    let gateway = editable(5).start();
    let acts = [
        "const before = await opened();",
        r#"await page.write(before.replace("limit: 5", "limit: 6"));"#,
        r#"await page.click("button", "Apply");"#,
    ];
    steps.acts(&gateway, EDITOR, &acts, r#"await page.shows("Applied: quotas.")"#);
    assert_eq!(limit(&gateway), 6);
}

fn roll_back(steps: &mut Steps) {
    let gateway = editable(5).start();
    let changed = ConfigApi::of(&gateway).put(&editable(6).yaml());
    assert_eq!((changed.status, limit(&gateway)), (200, 6), "{changed:?}");
    let acts = [r#"await page.click(".acts button", "Roll back");"#, r#"await page.click("button", "Yes");"#];
    steps.acts(
        &gateway,
        r#"await open("config", "egret.yaml");"#,
        &acts,
        r#"await page.shows("rolled back")"#,
    );
    assert_eq!(limit(&gateway), 5);
}

fn move_from_lunar(steps: &mut Steps) {
    let directory = Directory::default();
    let mut import = Command::new("sh");
    import.args(["-c", "\"$0\" import lunar \"$1\" > egret.yaml"]);
    import.arg(binary().canonicalize().unwrap()).arg(fixture("limits")).current_dir(directory.path());
    let report = steps.runs(with_secrets(&mut import));
    assert!(report.contains("translated with a difference"), "{report}");
    run_checked(with_secrets(egret(["check"]).current_dir(directory.path())));
}
