//! The remedy `trace` and the diagnosis `traces`: the client's trace continues at the provider, and an
//! OpenTelemetry receiver gets a span for the exchange and one for each call, even after an outage. Metrics
//! are exported there as well.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Collector, free_port};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::recorded::{exporter, lost, until_exporter, until_recorded};
use egret_tests::secrets::{encoded, secrets};
use egret_tests::wait;
use serde_json::Value;

const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn receiver(arguments: &[&str]) -> Collector {
    Collector::start("otlp.py", arguments)
}

fn config(url: &str, address: &str, flow: &str) -> Config {
    let keys = "flush_after: 50ms, headers: { x-key: '${env:OTLP_KEY}' }";
    Config::with_origin(url).flows(format!(
        "exporters: {{ otel: {{ type: otlp, endpoint: '{address}', {keys} }} }}\nflows:\n- {{ name: api, {flow} }}\n"
    ))
}

fn start(config: &Config) -> Egret {
    Egret::start_with(config, |command| {
        command.env("OTLP_KEY", "the-key-of-the-tests");
    })
}

/// Returns the receiver's lines with this word, once there are `count` of them.
fn received(receiver: &Collector, word: &str, count: usize) -> Vec<Value> {
    receiver.received(word, count).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn get(egret: &Egret, path: &str, fields: &str) -> u16 {
    egret.get_with(&format!("/origin{path}"), fields).status
}

/// Starts a provider that fails the first `failures` calls.
fn flaky(failures: usize) -> Provider {
    let left = AtomicUsize::new(failures);
    Provider::with_responses(move |_| {
        let fails = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if fails { b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec() } else { ok("hello") }
    })
}

fn parent(request: &Request) -> String {
    let [value] = &request.values("traceparent")[..] else { panic!("{request:?}") };
    (*value).to_owned()
}

#[test]
fn a_trace_goes_on_through_egret_with_a_span_for_each_call() {
    let (origin, receiver) = (flaky(2), receiver(&[]));
    let flow = "match: { path: '/users/{id}' }, \
        remedies: [retry: { attempts: 3, on: [503], backoff: { base: 1ms, max: 1ms } }, trace: {}], diagnoses: [traces: { export: otel }]";
    let egret = start(&config(&origin.url(), receiver.address(), flow));
    let fields = format!("traceparent: {CLIENT}\r\ntracestate: vendor=1\r\nX-Egret-Consumer: shop\r\n");
    assert_eq!(get(&egret, "/users/ada?token=s3cr3t", &fields), 200);
    let parents: Vec<String> = origin.requests().iter().map(parent).collect();
    assert_eq!(parents.len(), 3);
    assert!(origin.requests().iter().all(|request| request.values("tracestate") == ["vendor=1"]));

    let spans = received(&receiver, "span", 4);
    let text = serde_json::to_string(&spans).unwrap();
    // With the slash, since a random id may have the three letters.
    assert!(!text.contains("/ada") && !text.contains("s3cr3t"), "{text}");
    let (exchange, calls) = spans.split_first().unwrap();
    assert_eq!((&exchange["kind"], &exchange["parent"]), (&2.into(), &CLIENT[36..52].into()));
    assert_eq!((&exchange["name"], &exchange["error"]), (&"GET /users/{id}".into(), &false.into()));
    let attributes = &exchange["attributes"];
    assert_eq!(attributes["http.response.status_code"], 200);
    assert_eq!((&attributes["egret.attempts"], &attributes["egret.consumer"]), (&3.into(), &"shop".into()));
    assert_eq!(attributes["http.route"], "/users/{id}");
    assert_eq!(exchange["resource"]["service.name"], "egret");
    let time = |span: &Value, name: &str| span[name].as_u64().unwrap();
    let mut before = time(exchange, "start");
    for (number, (call, parent)) in calls.iter().zip(&parents).enumerate() {
        assert_eq!((&call["trace"], &call["state"]), (&CLIENT[3..35].into(), &"vendor=1".into()));
        assert_eq!((&call["kind"], &call["parent"]), (&3.into(), &exchange["id"]));
        // The provider got the span of that very call.
        assert_eq!(*parent, format!("00-{}-{}-01", &CLIENT[3..35], call["id"].as_str().unwrap()));
        let status = call["attributes"]["http.response.status_code"].as_u64();
        assert_eq!(
            (status, call["error"].as_bool()),
            (Some(if number < 2 { 503 } else { 200 }), Some(number < 2))
        );
        assert!(before <= time(call, "start") && time(call, "start") <= time(call, "end"), "{spans:#?}");
        before = time(call, "end");
    }
    assert!(before <= time(exchange, "end"), "{spans:#?}");
    let asked = receiver.received("asked", 1);
    assert!(
        asked.iter().all(|asked| asked == "/v1/traces application/x-protobuf None the-key-of-the-tests"),
        "{asked:?}"
    );
}

#[test]
fn unsampled_traces_are_not_recorded_and_malformed_ones_restart() {
    let (origin, receiver) = (Provider::plain(), receiver(&[]));
    let flow = "remedies: [trace: {}], diagnoses: [traces: { export: otel }]";
    let egret = start(&config(&origin.url(), receiver.address(), flow));
    let unsampled = CLIENT.replace("-01", "-00");
    get(&egret, "/", &format!("traceparent: {unsampled}\r\n"));
    get(&egret, "/", "traceparent: nonsense\r\ntracestate: a=b\r\n");
    until_recorded(&egret, 2);
    let [first, second] = &origin.requests()[..] else { panic!("two") };
    assert!(parent(first).starts_with(&CLIENT[..36]) && parent(first).ends_with("-00"), "{first:?}");
    assert!(second.values("tracestate").is_empty());
    let spans = received(&receiver, "span", 2);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    assert_eq!((&spans[0]["parent"], &spans[0]["trace"]), (&"".into(), &parent(second)[3..35].into()));
}

#[test]
fn spans_wait_for_the_receiver_and_hold_no_secret() {
    let origin = Provider::plain();
    // A port without a listener until the receiver starts.
    let port = free_port();
    let flow = "diagnoses: [traces: { export: otel }]";
    let mut egret = start(&config(&origin.url(), &format!("http://127.0.0.1:{port}"), flow));
    let mut sent = 0;
    for (secret, _) in secrets() {
        let line = secret.replace('\n', " ");
        get(
            &egret,
            &format!("/{}?a={0}", encoded(&secret)),
            &format!("authorization: {line}\r\nx-egret-consumer: {line}\r\n"),
        );
        sent += 1;
    }
    until_recorded(&egret, sent);
    until_exporter(&egret, "otel", "spans are spooled", |otel| otel["spooled_bytes"].as_u64().unwrap() > 0);
    let receiver = receiver(&["--port", &port.to_string(), "--failures", "1"]);
    let count = usize::try_from(sent).unwrap() * 2;
    let spans = received(&receiver, "span", count);
    let text = serde_json::to_string(&spans).unwrap();
    for (secret, core) in secrets() {
        assert!(!text.contains(&core) && !text.contains(&encoded(&core)), "{secret} is in {text}");
    }
    let otel =
        until_exporter(&egret, "otel", "all are there", |otel| otel["written"].as_u64() == Some(sent * 2));
    assert_eq!(lost(&otel), 0);
    egret.terminate();
    assert!(egret.until_ended().success());
}

#[test]
fn spans_rejected_by_the_receiver_are_counted() {
    let (origin, receiver) = (Provider::plain(), receiver(&["--reject", "1"]));
    let flow = "diagnoses: [traces: { export: otel }]";
    let egret = start(&config(&origin.url(), receiver.address(), flow));
    get(&egret, "/", "");
    let otel = until_exporter(&egret, "otel", "one is rejected", |otel| otel["dropped"]["rejected"] == 1);
    assert_eq!(otel["written"], 1);
    assert!(exporter(&egret, "otel")["last_error"].as_str().unwrap().contains("enough"));
}

#[test]
fn metrics_go_there_too() {
    let (origin, receiver) = (Provider::plain(), receiver(&[]));
    let flow = "diagnoses: [metrics: { export: otel, interval: 1s, labels: [status], gauges: { length: { header: content-length } } }]";
    let mut egret = start(&config(&origin.url(), receiver.address(), flow));
    for _ in 0..3 {
        assert_eq!(get(&egret, "/", ""), 200);
    }
    until_recorded(&egret, 3);
    // Counts are exported at shutdown at the latest.
    egret.terminate();
    assert!(egret.until_ended().success());
    let all = wait::until("all counts are exported", || {
        let all = received(&receiver, "metric", 1);
        let is_last = |metric: &Value| {
            metric["name"] == "egret_flow_exchange_seconds" && metric["points"][0]["count"] == 3
        };
        let at = all.iter().position(is_last)?;
        // This metric is the first of those exported together.
        (all.len() >= at + 5).then_some(all)
    });
    let last = |name: &str| {
        let found = all.iter().rev().find(|metric| metric["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:#?}"))
    };
    let histogram = last("egret_flow_exchange_seconds");
    assert_eq!((&histogram["kind"], &histogram["unit"]), (&"histogram".into(), &"s".into()));
    assert_eq!(histogram["cumulative"], true);
    let [point] = &histogram["points"].as_array().unwrap()[..] else { panic!("{histogram}") };
    assert_eq!((&point["count"], &point["attributes"]["status"]), (&3.into(), &"2xx".into()));
    assert_eq!(point["attributes"]["flow"], "api");
    assert!(
        point["start"].as_u64() <= point["time"].as_u64() && point["sum"].as_f64() > Some(0.0),
        "{point}"
    );
    assert_eq!(last("egret_custom_length")["kind"], "gauge");
    let failures = last("egret_custom_failures");
    assert_eq!((&failures["kind"], &failures["monotonic"]), (&"sum".into(), &true.into()));
}
