//! Questions about a gateway that runs, in steps: which calls, which endpoints, what is wrong, and the fate
//! of a call that failed before anybody looked.

use std::process::Command;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::found::until_found;
use egret_tests::provider::{Provider, ok};
use egret_tests::steps::{Steps, judge};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::Value;

#[test]
fn questions_about_a_gateway_take_no_more_steps_than_documented() {
    judge(
        "make test ONLY=steps_at_night",
        &[
            ("Watch calls in the terminal", watch_calls),
            ("List what is called, with flows proposed for it", list_endpoints),
            ("Learn what is wrong now", learn_what_is_wrong),
            ("See what a call that failed earlier sent and got", see_a_failed_call),
        ],
    );
}

/// Starts a gateway before a provider whose path `/fails` does.
fn start(flows: &str) -> (Provider, Egret) {
    let origin = Provider::with_responses(|request| match request.target() {
        "/fails" => {
            b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nsold out!".to_vec()
        }
        _ => ok("fine"),
    });
    let gateway = Config::with_origin(origin.url()).flows(flows).start();
    (origin, gateway)
}

/// A command about the gateway, in its directory.
fn about<const N: usize>(gateway: &Egret, arguments: [&str; N]) -> Command {
    let mut command = egret(arguments);
    command.args(["--control", &gateway.control().to_string()]).current_dir(gateway.directory().path());
    command
}

fn watch_calls(steps: &mut Steps) {
    let (_origin, gateway) = start("");
    let traffic = LiveTraffic::open(&gateway);
    let tail = steps.starts(&mut about(&gateway, ["tail"]));
    wait::until_true("the command reads", || traffic.list("limit=0")["status"]["readers"] == 1);
    gateway.get("/watched").assert_forwarded(200);
    tail.until_printed("the call", |lines| lines.iter().any(|line| line.contains("/watched")).then_some(()));
}

fn list_endpoints(steps: &mut Steps) {
    let (_origin, gateway) = start("");
    for _ in 0..5 {
        gateway.get("/orders").assert_forwarded(200);
        gateway.get("/fails").assert_forwarded(503);
    }
    let is_known = || gateway.control_get("/api/v1/discovery").text().contains("/fails");
    wait::until_true("the calls are known", is_known);
    let proposed = steps.runs(&mut about(&gateway, ["discover", "--flows"]));
    assert!(proposed.contains("/fails") && proposed.contains("retry"), "{proposed}");
}

fn learn_what_is_wrong(steps: &mut Steps) {
    let (_origin, gateway) = start("");
    until_found(&gateway, "provider-failing: origin", || {
        gateway.get("/fails").assert_forwarded(503);
    });
    let told = steps.ends(&mut about(&gateway, ["doctor"]), 1);
    assert!(told.contains("calls to origin fail") && told.contains("status 503"), "{told}");
}

fn see_a_failed_call(steps: &mut Steps) {
    let flows =
        "flows: [{ name: again, remedies: [retry: { attempts: 2, backoff: { base: 1ms, max: 1ms } }] }]\n";
    let (origin, gateway) = start(flows);
    gateway.get("/fails").assert_forwarded(503);
    let api = ConfigApi::of(&gateway);
    wait::until_true("the failure is kept", || {
        api.call("GET /api/v1/failures", "", "").text().contains("/fails")
    });
    let told = steps.runs(&mut about(&gateway, ["tail", "--failed", "--json", "-v"]));
    let failed: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    let calls = failed["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{failed}");
    for call in calls {
        assert_eq!(call["request"]["url"], format!("{}/fails", origin.url()), "{call}");
        assert_eq!(call["response"]["content"]["text"], "sold out!", "{call}");
    }
}
