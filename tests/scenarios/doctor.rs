//! `egret doctor` and `egret health`: what they say about a gateway, and what they keep to themselves.

use std::process::Output;

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{self, Directory};
use egret_tests::provider::Provider;
use serde_json::Value;

const SECRETS: [&str; 3] =
    ["control-s3cr3t-of-the-tests", "key-s3cr3t-in-a-file", "literal-s3cr3t-in-a-flow"];

/// Starts a gateway with secrets of every kind: in the environment, in a file, and in the config itself.
fn start(origin: &Provider) -> Egret {
    let directory = Directory::default();
    let file = directory.write_secret("key", SECRETS[1]);
    let flows = format!(
        "accounts: {{ live: {{ provider: origin, bearer: {{ token: '${{file:{}}}' }} }} }}\n\
         quotas: {{ live: {{ limit: 5, window: 1h }} }}\n\
         flows:\n\
         - name: f\n  match: {{ provider: origin }}\n  remedies:\n  - limit: {{ quota: live }}\n\
         \x20 - transform: {{ request: {{ headers: {{ set: {{ x-api-key: {} }} }} }} }}\n",
        file.display(),
        SECRETS[2]
    );
    let config = Config::with_origin(origin.url()).control("token: '${env:EGRET_TEST_TOKEN}'").flows(flows);
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_TOKEN", SECRETS[0]);
    });
    // The file of the secret lives as long as the gateway.
    std::mem::forget(directory);
    egret
}

/// Runs a command about the gateway, with its config.
fn run<const N: usize>(gateway: &Egret, arguments: [&str; N]) -> Output {
    let mut command = egret(arguments);
    command.arg("--config").arg(gateway.directory().join("egret.yaml"));
    command.arg("--control").arg(gateway.control().to_string());
    process::run(command.env("EGRET_TEST_TOKEN", SECRETS[0]))
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap()).concat()
}

fn assert_no_secrets(report: &str) {
    for secret in SECRETS {
        assert!(!report.contains(secret), "{secret} is in\n{report}");
    }
}

#[test]
fn a_report_has_the_state_of_the_gateway_and_no_secret() {
    let origin = Provider::plain();
    let mut gateway = start(&origin);
    gateway.get("/").assert_forwarded(200);
    let output = run(&gateway, ["doctor", "--json", "--probe"]);
    let shown = text(&output);
    assert_no_secrets(&shown);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["wrong"].as_array().map(Vec::len), Some(0));
    assert_eq!((&report["control"]["ready"], &report["config_file"]["valid"]), (&true.into(), &true.into()));
    assert_eq!(report["config"]["control"]["token"], "${env:EGRET_TEST_TOKEN}");
    assert_eq!(report["remedies"][0], "f / limit: 1 decisions next 100.0 %");
    assert_eq!(report["accounts"][0]["name"], "live");
    assert!(report["probes"]["origin"]["connected_after_ms"].is_u64(), "{report}");
    assert!(report["machine"]["cores"].as_u64() > Some(0) && report["stats"]["uptime_s"].is_u64());
    let as_text = text(&run(&gateway, ["doctor", "--full"]));
    assert_no_secrets(&as_text);
    assert!(as_text.starts_with("wrong: none\n"), "{as_text}");
    let screen = text(&run(&gateway, ["doctor"]));
    assert!(screen.contains("\nnothing is wrong\n") && screen.lines().count() < 10, "{screen}");

    gateway.terminate();
    gateway.until_ended();
    let output = run(&gateway, ["doctor", "--full"]);
    let shown = text(&output);
    assert_no_secrets(&shown);
    assert_eq!(output.status.code(), Some(1));
    assert!(shown.contains("gateway: not ready at") && shown.contains("machine:"), "{shown}");
    let screen = text(&run(&gateway, ["doctor"]));
    assert!(screen.contains("\nwrong:\n  error: gateway: not ready at"), "{screen}");
}

#[test]
fn a_bad_config_and_a_gateway_with_another_key_are_reported() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    let other = Directory::default();
    std::fs::create_dir(other.join("egret-data")).unwrap();
    other.write_secret("egret-data/control.key", [7; 32]);
    let file = other.write("bad.yaml", "gatway: {}\n");
    let mut command = egret(["doctor"]);
    command.arg("--config").arg(file).arg("--control").arg(gateway.control().to_string());
    let output = process::run(&mut command);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown.contains("unknown key `gatway`") && shown.contains("not the gateway of this data directory"),
        "{shown}"
    );
}

#[test]
fn health_is_an_exit_code() {
    let mut gateway = Config::default().start();
    let address = gateway.control().to_string();
    let health = || process::run(&mut egret(["health", "--control", &address]));
    assert_eq!(health().status.code(), Some(0));
    gateway.terminate();
    gateway.until_ended();
    assert_eq!(health().status.code(), Some(1));
    assert_eq!(process::run(&mut egret(["health", "--control", "nonsense"])).status.code(), Some(2));
}
