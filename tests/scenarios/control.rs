//! The control port: its content and its access rules.

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::python;
use egret_tests::provider::Provider;
use egret_tests::wait;

const SECRET: &str = "s3cr3t-token-of-the-tests";

fn with_token() -> Egret {
    let config = Config::default().control("token: \"${env:EGRET_TEST_TOKEN}\"");
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_TOKEN", SECRET);
    })
}

#[test]
fn health_and_readiness_are_plain_responses() {
    let egret = Config::default().start();
    assert_eq!(egret.control_get("/healthz").status, 200);
    assert_eq!(egret.control_get("/readyz").status, 200);
    assert_eq!(egret.control_get("/nothing-here").status, 404);
}

#[test]
fn metrics_parse_and_count_what_happened() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    for _ in 0..3 {
        egret.get("/").assert_forwarded(200);
    }
    egret.client().get(egret.address(), "/nobody/").response().assert_generated(404, "unknown-provider");
    egret.client().offer("nonsense\r\n\r\n").response().assert_generated(400, "bad-request");
    let script = r#"
import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
text = opener.open(sys.argv[1]).read().decode()
for family in text_string_to_metric_families(text):
    assert family.documentation and family.type != "unknown", family
    for sample in family.samples:
        labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}} {float(sample.value)}")
"#;
    wait::until_true("all is counted", || egret.generated("bad-request") == 1);
    let samples = python(script, &[&format!("http://{}/metrics", egret.control())]);
    for expected in [
        "egret_exchanges_total{method=GET,provider=origin,status=2xx} 3.0",
        "egret_provider_connects_total{provider=origin} 1.0",
        "egret_provider_pool_hits_total{provider=origin} 2.0",
        "egret_exchange_latency_seconds_count{provider=origin} 3.0",
        "egret_exchange_footprint_seconds_count{provider=origin} 3.0",
        "egret_generated_answers_total{error=unknown-provider} 1.0",
        "egret_generated_answers_total{error=bad-request} 1.0",
        "egret_ready{} 1.0",
    ] {
        assert!(samples.lines().any(|sample| sample == expected), "{expected} is not in\n{samples}");
    }
}

#[test]
fn the_footprint_is_a_part_of_the_latency() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    for _ in 0..10 {
        egret.get("/").assert_forwarded(200);
    }
    // An exchange is counted after its response.
    wait::until_true("all exchanges have ended", || egret.stat("/clients/open") == 0);
    let stats = egret.stats();
    let origin =
        stats["providers"].as_array().unwrap().iter().find(|provider| provider["name"] == "origin").unwrap();
    let sum = |histogram: &str| origin[histogram]["sum_us"].as_u64().unwrap();
    assert!(sum("footprint") <= sum("latency"), "{origin}");
    assert!(
        sum("footprint") > 0
            && origin["sent_bytes"].as_u64() > Some(0)
            && origin["received_bytes"].as_u64() > Some(0)
    );
}

#[test]
fn a_request_for_another_host_is_refused() {
    let egret = Config::default().control("allowed_hosts: [egret.internal]").start();
    let port = egret.control().port();
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("egret.internal:{port}"),
        "localhost".to_owned(),
    ] {
        assert_eq!(
            egret.control_get_with("/api/v1/stats", &format!("Host: {host}\r\n")).status,
            200,
            "{host}"
        );
    }
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", ""] {
        assert_eq!(
            egret.control_get_with("/api/v1/stats", &format!("Host: {host}\r\n")).status / 100,
            4,
            "{host}"
        );
    }
    let page = egret.control_get_with(
        "/api/v1/stats",
        &format!("Host: localhost:{port}\r\nOrigin: http://evil.example\r\n"),
    );
    assert_eq!(page.field("access-control-allow-origin"), None);
}

#[test]
fn a_token_guards_all_but_the_probes() {
    let egret = with_token();
    let host = format!("Host: {}\r\n", egret.control());
    for path in ["/metrics", "/api/v1/config", "/api/v1/stats"] {
        assert_eq!(egret.control_get(path).status, 401, "{path}");
        let wrong = format!("{host}Authorization: Bearer {SECRET}x\r\n");
        assert_eq!(egret.control_get_with(path, &wrong).status, 401, "{path}");
        let right = format!("{host}Authorization: Bearer {SECRET}\r\n");
        assert_eq!(egret.control_get_with(path, &right).status, 200, "{path}");
    }
    assert_eq!(egret.control_get("/healthz").status, 200);
    assert_eq!(egret.control_get("/readyz").status, 200);
}

#[test]
fn the_config_is_shown_without_its_secrets() {
    let egret = with_token();
    let fields = format!("Host: {}\r\nAuthorization: Bearer {SECRET}\r\n", egret.control());
    let shown = egret.control_get_with("/api/v1/config", &fields);
    assert_eq!(shown.status, 200);
    assert!(shown.json()["gateway"].is_object(), "{}", shown.text());
    assert!(!shown.text().contains(SECRET), "{}", shown.text());
    assert!(!egret.log().contains(SECRET), "{}", egret.log());
}

#[test]
fn the_control_port_cannot_be_reached_through_the_gateway() {
    let egret = Config::default().start();
    let request = format!("GET http://{}/api/v1/config HTTP/1.1\r\nHost: a\r\n\r\n", egret.control());
    egret.client().send(request).response().assert_generated(403, "egress-denied");
}

#[test]
fn an_access_log_has_a_line_for_every_exchange() {
    let origin = Provider::plain();
    let egret =
        Config::with_origin(origin.url()).gateway("access_log: { output: access.log, format: json }").start();
    egret.get("/a?secret=1").assert_forwarded(200);
    egret.client().get(egret.address(), "/nobody/").response().assert_generated(404, "unknown-provider");
    let file = egret.directory().join("access.log");
    let lines = wait::until("both exchanges are logged", || {
        let text = std::fs::read_to_string(&file).ok()?;
        (text.ends_with('\n') && text.lines().count() == 2).then_some(text)
    });
    let mut lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Two workers may have logged them.
    lines.sort_by_key(|line| line["status"].as_u64());
    for (line, status) in lines.iter().zip([200, 404]) {
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["method"], "GET", "{line}");
    }
}
