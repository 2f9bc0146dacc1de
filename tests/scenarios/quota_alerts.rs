//! Alerts of quotas: each percentage is told once per window and group, in the log, as a metric and to a
//! webhook, whatever happens to the process and to the receiver.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait::{far_from_now, until_true, until_value};
use serde_json::{Value, json};

const SECRET: &str = "a key of 32 bytes, as it is meant";

/// The directory of the file with the secret.
fn secret() -> Directory {
    let directory = Directory::default();
    directory.write_secret("secret", SECRET);
    directory
}

/// A gateway with a quota of ten calls a day and these keys of it, whose alerts go to `receiver`.
fn config(origin: &Provider, receiver: &Provider, secret: &Directory, keys: &str) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "exporters: {{ pager: {{ type: webhook, url: '{}/hook', secret: '${{file:{}}}' }} }}\n\
         alerts: {{ export: pager }}\n\
         quotas: {{ daily: {{ kind: calendar, period: day, limit: 10, renews: {{ time: '{}' }}, \
         alerts: [100%, 80%], {keys} }} }}\n\
         flows: [{{ name: all, remedies: [limit: {{ quota: daily }}] }}]\n",
        receiver.url(),
        secret.join("secret").display(),
        far_from_now(),
    ))
}

fn call(egret: &Egret, count: usize) {
    for _ in 0..count {
        egret.get("/").assert_forwarded(200);
    }
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The percentages told to the receiver, in order.
fn told(receiver: &Provider) -> Vec<String> {
    let percent = |request: &Request| body(request)["data"]["percent"].as_str().unwrap().to_owned();
    receiver.requests().iter().map(percent).collect()
}

/// Waits until the receiver was told these.
fn until_told<const N: usize>(receiver: &Provider, percents: [&str; N]) {
    until_value("the receiver was told", || told(receiver), |told| *told == percents);
}

/// The signature of a message, made by another implementation.
fn signature(request: &Request) -> String {
    let fields = ["webhook-id", "webhook-timestamp"].map(|name| request.values(name)[0].to_owned());
    let signed = format!("{}.{}.{}", fields[0], fields[1], String::from_utf8_lossy(&request.body));
    let directory = Directory::default();
    let file = directory.write("signed", signed);
    let script = "openssl dgst -sha256 -hmac \"$KEY\" -binary \"$0\" | openssl base64 -A";
    let output = run(Command::new("sh").args(["-c", script]).arg(file).env("KEY", SECRET));
    format!("v1,{}", String::from_utf8(output.stdout).unwrap())
}

#[test]
fn an_alert_is_logged_counted_and_sent_with_a_signature() {
    let (origin, receiver) = (Provider::plain(), Provider::plain());
    let secret = secret();
    let egret = config(&origin, &receiver, &secret, "").start();
    call(&egret, 7);
    assert!(!egret.log().contains("has reached"));
    assert!(egret.control_get("/metrics").text().contains("percent=\"80%\"} 0\n"));
    call(&egret, 3);
    until_told(&receiver, ["80%", "100%"]);
    let requests = receiver.requests();
    let first = &requests[0];
    assert_eq!(
        (&*first.line, first.values("content-type")),
        ("POST /hook HTTP/1.1", vec!["application/json"])
    );
    assert_eq!(first.values("webhook-signature"), [signature(first)]);
    let message = body(first);
    assert_eq!(message["id"], first.values("webhook-id")[0]);
    assert_eq!(message["type"], "quota.alert");
    let data = &message["data"];
    assert_eq!(
        (&data["quota"], &data["group"], &data["unit"]),
        (&json!("daily"), &json!(""), &json!("units"))
    );
    assert_eq!((&data["used"], &data["limit"]), (&json!(8), &json!(10)));
    let end = data["window_end"].as_str().unwrap();
    assert!(end.ends_with(&format!("T{}:00.000Z", far_from_now())), "{end}");
    let text = format!("quota daily has reached 80%: 8 of 10 units are used until {end}");
    assert_eq!(message["text"], text);
    egret.until_logged(&text);
    egret.until_logged("quota daily has reached 100%");
    let metrics = egret.control_get("/metrics");
    let metrics = metrics.text();
    for percent in ["80%", "100%"] {
        let line = format!("egret_quota_alerts_total{{quota=\"daily\",percent=\"{percent}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert!(!egret.log().contains(SECRET) && !metrics.contains(SECRET));
}

#[test]
fn a_restart_repeats_no_alert() {
    for signal in ["TERM", "KILL"] {
        let (origin, receiver) = (Provider::plain(), Provider::plain());
        let secret = secret();
        let config = config(&origin, &receiver, &secret, "store: file");
        let egret = config.start();
        call(&egret, 8);
        until_told(&receiver, ["80%"]);
        let egret = egret.restart(signal, &config);
        // A killed process may lose a unit that it has borrowed.
        until_true("the quota is used up", || egret.get("/").status == 429);
        until_told(&receiver, ["80%", "100%"]);
    }
}

#[test]
fn a_hand_over_and_a_reload_repeat_no_alert() {
    let (origin, receiver) = (Provider::plain(), Provider::plain());
    let secret = secret();
    let config = config(&origin, &receiver, &secret, "");
    let mut egret = config.start();
    call(&egret, 8);
    until_told(&receiver, ["80%"]);
    egret.change_config(config.yaml().replace("[100%, 80%]", "[100%, 90%, 80%]"));
    let mut old = egret.take_over();
    assert!(old.until_ended().success(), "{}", old.stderr());
    call(&egret, 1);
    until_told(&receiver, ["80%", "90%"]);
    call(&egret, 1);
    until_told(&receiver, ["80%", "90%", "100%"]);
}

#[test]
fn each_group_raises_its_own_alerts() {
    let (origin, receiver) = (Provider::plain(), Provider::plain());
    let secret = secret();
    let egret = config(&origin, &receiver, &secret, "group_by: 'header:x-team'").start();
    for team in ["red", "blue"] {
        let request = format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\nX-Team: {team}\r\n\r\n", egret.address());
        let mut client = egret.client();
        for _ in 0..8 {
            client.send(&request).response().assert_forwarded(200);
        }
    }
    until_told(&receiver, ["80%", "80%"]);
    let groups: Vec<Value> =
        receiver.requests().iter().map(|request| body(request)["data"]["group"].clone()).collect();
    assert_eq!(groups, ["red", "blue"]);
    let ids: Vec<Value> = receiver.requests().iter().map(|request| body(request)["id"].clone()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn calls_that_are_given_up_raise_alerts_too() {
    let origin = Provider::scripted(|peer| while peer.request().is_some() {});
    let flows = format!(
        "quotas: {{ daily: {{ kind: calendar, period: day, limit: 3, renews: {{ time: '{}' }}, alerts: [100%] }} }}\n\
         flows: [{{ name: all, remedies: [limit: {{ quota: daily }}] }}]\n",
        far_from_now(),
    );
    let timeouts = "timeouts: { first_byte: 100ms }";
    let egret = Config::default().provider_with("origin", origin.url(), timeouts).flows(flows).start();
    for _ in 0..3 {
        egret.get("/").assert_generated(504, "first-byte-timeout");
    }
    egret.get("/").assert_generated(429, "quota-exceeded");
    egret.until_logged("quota daily has reached 100%: 3 of 3 units are used");
}

#[test]
fn an_alert_is_sent_until_it_is_accepted() {
    let origin = Provider::plain();
    let tries = AtomicUsize::new(0);
    let receiver = Provider::with_responses(move |_| match tries.fetch_add(1, Relaxed) {
        0 | 1 => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(""),
    });
    let secret = secret();
    let egret = config(&origin, &receiver, &secret, "").start();
    call(&egret, 8);
    until_told(&receiver, ["80%", "80%", "80%"]);
    let requests = receiver.requests();
    let ids: Vec<_> = requests.iter().map(|request| request.values("webhook-id")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let written = || egret.control_get("/api/v1/exporters").json()["exporters"][0]["written"].clone();
    until_value("the alert was accepted", written, |written| *written == 1);
}

#[test]
fn money_that_calls_hold_raises_no_alert() {
    let provider = BuiltIn::start(&[]);
    let egret = Config::default()
        .provider_with("llm", format!("http://{}/llm/openai", provider.address()), "preset: openai")
        .flows(
            "prices: { overrides: { m-1: { input: 1000, output: 10000 } } }\n\
             quotas: { budget: { limit: 1, unit: usd, cost: { usage: usd }, kind: calendar, period: month, \
             overshoot: never, alerts: [25%] } }\n\
             flows: [{ name: all, remedies: [limit: { quota: budget }] }]\n",
        )
        .start();
    // Each call holds about $0.7, and costs $0.2.
    let body = r#"{"model":"m-1","max_tokens":60,"messages":[{"role":"user","content":"hi"}]}"#;
    let call = || {
        let target = "/llm/v1/chat/completions?input=100&output=10";
        let head =
            format!("POST {target} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json", egret.address());
        let mut client = egret.client();
        client.send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        client.any_response_to("POST").assert_forwarded(200);
    };
    call();
    let used = || egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].clone();
    until_value("the call is settled", used, |used| *used == 200_000_000);
    call();
    egret.until_logged("quota budget has reached 25%: $0.4000 of $1.0000 are used");
    assert_eq!(egret.log().matches("has reached").count(), 1);
}

#[test]
fn a_receiver_that_cannot_be_is_refused() {
    let directory = Directory::default();
    let quota = "quotas: { q: { kind: calendar, period: day, limit: 10, alerts: [80%] } }\n";
    let exporters =
        "exporters: { pager: { type: webhook, url: 'http://a/' }, files: { type: har, directory: ./har } }\n";
    for (yaml, expected) in [
        (
            format!("{exporters}{quota}alerts: {{ export: paper }}\n"),
            "alerts.export: no exporter is called `paper`; did you mean `pager`?",
        ),
        (
            format!("{exporters}{quota}alerts: {{ export: files }}\n"),
            "alerts.export: the exporter `files` does not accept alerts: use one of the type `webhook`",
        ),
        (quota.replace("80%", "80%, 80%"), "quotas.q.alerts: each percentage is allowed once"),
        (quota.replace("80%", "0%"), "quotas.q.alerts: an alert at `0%` would tell nothing"),
        (
            quota.replace("kind: calendar, period: day", "kind: fixed, window: 10s"),
            "quotas.q.alerts: an alert needs a `window` of at least 1m",
        ),
        (
            quota.replace("kind: calendar, period: day", "window: 1h"),
            "quotas.q.alerts: an alert is raised once per window: use `kind: calendar`, or `kind: fixed`",
        ),
    ] {
        let file = directory.write("egret.yaml", &yaml);
        let output = run(egret(["check"]).arg(&file));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(expected), "{yaml}\n{stderr}");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
    }
}
