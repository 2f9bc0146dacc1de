//! The roles of the control port: a token that only reads, and users whom a trusted proxy names.

use std::fs;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::exec::Place;
use egret_tests::http::{Client, Response};
use egret_tests::process::{Process, run, run_checked};
use egret_tests::provider::Provider;
use egret_tests::wait;
use serde_json::Value;

const READER: &str = "Authorization: Bearer token-that-only-reads\r\n";

/// Starts a gateway with something to change: a config file, a cache and a fault.
fn start(origin: &Provider) -> Egret {
    let flows = "flows: [{ name: f, remedies: [{ cache: { ttl: { 200: 1h } } }, { fault: { abort: 503, enabled: false } }] }]\n";
    let config = Config::with_origin(origin.url())
        .control("token: '${env:EGRET_TEST_TOKEN}'")
        .control("read_token: '${env:EGRET_TEST_READ_TOKEN}'")
        .flows(flows);
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_TOKEN", "token-that-changes");
        command.env("EGRET_TEST_READ_TOKEN", "token-that-only-reads");
    })
}

fn call(egret: &Egret, line: &str, fields: &str) -> Response {
    let (host, mut client) = (egret.control(), Client::connect(egret.control()));
    client.offer(format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{fields}\r\n"
    ));
    client.response()
}

#[test]
fn a_reader_sees_every_path_and_changes_nothing() {
    let origin = Provider::plain();
    let egret = start(&origin);
    let file = || fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    let before = file();
    let versions = || call(&egret, "GET /api/v1/config/versions", READER).json();
    let first = versions();
    egret.get("/kept").assert_forwarded(200);
    let unknown = call(&egret, "GET /nothing-here", READER).json();
    for path in unknown["paths"].as_array().unwrap() {
        let path = path.as_str().unwrap().replace("{name}", "egret.yaml").replace("{number}", "1");
        // The stream would not end.
        let path = path.replace("{id}", "1").replace("/stream", "/stream?sample=none");
        let read = call(&egret, &format!("GET {path}"), READER).status;
        assert!(![401, 403].contains(&read), "{path}: {read}");
        for method in ["POST", "PUT"] {
            let changed = call(&egret, &format!("{method} {path}"), READER).status;
            assert!([403, 405].contains(&changed), "{method} {path}: {changed}");
            assert!(read != 405 || method != "POST" || changed == 403, "{path}");
        }
    }
    for change in ["config/rollback?version=1", "cache/purge?all=true", "faults/on?flow=f", "config/reload"] {
        let refused = call(&egret, &format!("POST /api/v1/{change}"), READER);
        assert_eq!((refused.status, refused.json()["status"].as_u64()), (403, Some(403)), "{change}");
        assert!(refused.text().contains("this token only reads"), "{}", refused.text());
    }
    assert_eq!((file(), versions()), (before, first));
    assert_eq!(call(&egret, "GET /api/v1/faults", READER).json()["faults"][0]["state"], "off");
    egret.get("/kept");
    assert_eq!(origin.requests().len(), 1, "the response is still in the cache");
    let writer = "Authorization: Bearer token-that-changes\r\n";
    assert_eq!(call(&egret, "POST /api/v1/faults/on?flow=f", writer).status, 200);
}

#[test]
fn commands_work_with_the_token_that_only_reads() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    let (elsewhere, control) = (Place::new(), gateway.control().to_string());
    let command = |name: &str, arguments: &[&str]| {
        let mut command = egret([name, "--control", &control, "--token", "${env:LOOK}"]);
        elsewhere.prepare(command.args(arguments).env("LOOK", "token-that-only-reads"));
        command
    };
    run_checked(&mut command("status", &[]));
    run_checked(&mut command("discover", &["--json"]));
    let report: Value = serde_json::from_slice(&run(&mut command("doctor", &["--json"])).stdout).unwrap();
    assert!(report["config"].is_object() && !report["wrong"].to_string().contains("/api/"), "{report}");
    let _tail = Process::printing(&mut command("tail", &[]));
    wait::until_true("the command reads", || {
        call(&gateway, "GET /api/v1/traffic?limit=0", READER).json()["status"]["readers"] == 1
    });
    let refused = run(&mut command("reload", &[]));
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("this token only reads"), "{refused:?}");
}

/// Trusts a proxy at this address.
fn behind_proxy(from: &str) -> Config {
    Config::default()
        .control(format!("trusted_proxy: {{ from: [{from}], writers: [alice@example.com] }}"))
        .flows("quotas: { live: { limit: 5, window: 1h } }\n")
}

#[test]
fn a_user_of_the_proxy_stands_in_versions_and_log() {
    let config = behind_proxy("127.0.0.1");
    let egret = config.start();
    let api = ConfigApi::of(&egret);
    let text = config.yaml().replace("limit: 5", "limit: 6");
    let put = |user: &str| {
        let fields = format!("If-Match: {}\r\n{user}", api.etag());
        api.call("PUT /api/v1/config/files/egret.yaml", &fields, &text).status
    };
    let bob = "X-Forwarded-User: bob@example.com\r\n";
    // The token of the same request does not count.
    assert_eq!(put(bob), 403);
    assert_eq!(call(&egret, "GET /api/v1/config/files", bob).status, 200);
    for wrong in [
        "X-Forwarded-User: alice@example.com, bob@example.com\r\n",
        "X-Forwarded-User: alice@example.com\r\nX-Forwarded-User: bob@example.com\r\n",
        "X-Forwarded-User:\r\n",
    ] {
        assert_eq!(put(wrong), 401, "{wrong}");
    }
    assert_eq!(put("X-Forwarded-User: alice@example.com\r\n"), 200);
    let users: Vec<_> = api.versions().iter().map(|version| version["user"].clone()).collect();
    assert_eq!(users, ["alice@example.com".into(), Value::Null]);
    let line = |text: &str| {
        let log = egret.log_with(text);
        log.lines().find(|line| line.contains(text)).unwrap().to_owned()
    };
    assert!(line("the config was changed over the API").contains("alice@example.com"));
    assert!(line("a user asked for a change").contains("bob@example.com"), "the refused one is first");
}

#[test]
fn a_user_from_another_address_is_ignored() {
    let egret = behind_proxy("127.0.0.2").start();
    let alice = "X-Forwarded-User: alice@example.com\r\n";
    for line in ["GET /api/v1/stats", "GET /api/v1/config/files", "POST /api/v1/config/reload"] {
        assert_eq!(call(&egret, line, alice).status, 401, "{line}");
    }
    let api = ConfigApi::of(&egret);
    assert_eq!(api.call("POST /api/v1/config/reload", alice, "").status, 200, "its token counts");
    assert!(!egret.log().contains("a user asked for a change"));
}
