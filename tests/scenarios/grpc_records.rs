//! Records of gRPC calls: their status is in logs, live traffic, metrics, findings and the list of failed
//! calls, wherever the provider has sent it.

use std::fs;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::grpc::{call_with, echo, response, trailers_only};
use egret_tests::provider::{Provider, Request};
use egret_tests::wait;
use serde_json::{Value, json};

/// Fails as the field `x-fail` asks for.
fn provider() -> Provider {
    Provider::with_responses(|request: &Request| match request.values("x-fail").first() {
        Some(&"head") => trailers_only(14, "gone"),
        Some(&"trailers") => response(&["one"], "grpc-status: 13\r\ngrpc-message: broken\r\n"),
        Some(&"caller") => trailers_only(5, "no%20such"),
        _ => echo(request),
    })
}

fn before(origin: &Provider) -> Config {
    Config::default().provider_with("origin", origin.url(), "http: 1").gateway("workers: 1")
}

fn call_all(egret: &Egret) {
    for fields in [
        json!({}),
        json!({ "x-fail": "head" }),
        json!({ "x-fail": "trailers" }),
        json!({ "x-fail": "caller" }),
    ] {
        call_with(egret, &fields);
    }
}

/// Returns the metrics once they are as `probe` wants them.
fn metrics_with(egret: &Egret, probe: impl Fn(&str) -> bool) -> String {
    let metrics = || egret.control_get("/metrics").text().to_owned();
    wait::until_value("the calls are counted", metrics, |metrics: &String| probe(metrics))
}

#[test]
fn a_log_has_the_status_of_head_and_trailers() {
    let origin = provider();
    let egret = before(&origin).gateway("access_log: { output: access.log, format: json }").start();
    call_all(&egret);
    egret.get("/");
    let file = egret.directory().path().join("access.log");
    let lines = wait::until_value(
        "all lines are written",
        || fs::read_to_string(&file).unwrap_or_default(),
        |text: &String| text.lines().count() == 5,
    );
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["grpc_status"].as_str().unwrap_or("-")).collect();
    assert_eq!(statuses, ["ok", "unavailable", "internal", "not-found", "-"]);
    assert!(lines.iter().all(|line| line["status"] == 200 && line["error"].is_null()));
}

#[test]
fn a_call_that_fails_in_its_trailers_is_kept() {
    let origin = provider();
    let egret = before(&origin).start();
    call_all(&egret);
    let get = |path: &str| ConfigApi::of(&egret).call(&format!("GET {path}"), "", "").json();
    let list = || get("/api/v1/failures")["exchanges"].as_array().unwrap().clone();
    let kept = wait::until_value("the failures are kept", list, |list| list.len() == 2);
    // The newest first. A status that the caller is to blame for is no failure.
    let statuses: Vec<_> = kept.iter().map(|exchange| exchange["grpc_status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["internal", "unavailable"]);
    let details = get(&format!("/api/v1/failures/{}", kept[0]["id"]));
    assert!(details.to_string().contains("application/grpc"), "{details}");
    let errors = egret.stats()["providers"].to_string();
    for error in ["grpc-unavailable", "grpc-internal"] {
        assert!(errors.contains(error), "{errors}");
    }
    assert!(!errors.contains("grpc-not-found"), "{errors}");
}

#[test]
fn metrics_count_by_the_status_if_that_is_asked_for() {
    let origin = provider();
    let flows = "flows: [{ name: greetings, match: { grpc: { service: 'helloworld.*' } }, \
                 diagnoses: [metrics: { labels: [grpc_status] }] }]\n";
    let egret = before(&origin).flows(flows).start();
    call_all(&egret);
    egret.get("/");
    let count = |status: &str| {
        format!("egret_flow_exchange_seconds_count{{flow=\"greetings\",grpc_status=\"{status}\"}} 1\n")
    };
    let statuses = ["ok", "unavailable", "internal", "not-found"];
    let metrics =
        metrics_with(&egret, |metrics| statuses.iter().all(|status| metrics.contains(&count(status))));
    assert!(!metrics.contains("grpc_status=\"none\""), "{metrics}");
}

#[test]
fn a_condition_of_diagnoses_reads_the_status() {
    let origin = provider();
    let flows = "flows: [{ name: failed, when_response: \"grpc.method == 'SayHello' && grpc.status == 'internal'\", \
                 diagnoses: [metrics: { labels: [grpc_status] }] }]\n";
    let egret = before(&origin).flows(flows).start();
    call_all(&egret);
    let counted = "egret_flow_exchange_seconds_count{flow=\"failed\",grpc_status=\"internal\"} 1\n";
    let metrics = metrics_with(&egret, |metrics| metrics.contains(counted));
    assert_eq!(metrics.matches("exchange_seconds_count{flow=\"failed\"").count(), 1, "{metrics}");
}
