//! The diagnosis `metrics`: its counts equal the traffic, as read by an independent parser from the control
//! port, and its size is bounded.

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::python;
use egret_tests::provider::Provider;
use egret_tests::recorded::until_recorded;
use egret_tests::secrets::secrets;
use egret_tests::wait;

/// Prints every sample of the diagnosis, parsed by the reference parser of Prometheus' text format.
/// Histograms must be cumulative, and end with the total count.
const SCRAPE: &str = r#"
import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
text = opener.open(sys.argv[1]).read().decode()
seen = set()
for family in text_string_to_metric_families(text):
    assert family.documentation and family.type != "unknown", family
    assert family.name not in seen, family.name
    seen.add(family.name)
    if not family.name.startswith(("egret_flow_", "egret_custom_")):
        continue
    last, samples = {}, set()
    for sample in family.samples:
        labels = {k: v for k, v in sample.labels.items() if k != "le"}
        key = (sample.name, tuple(sorted(labels.items())))
        if sample.name.endswith("_bucket"):
            assert sample.value >= last.get(key, 0), sample
            last[key] = sample.value
        else:
            assert key not in samples, sample
            samples.add(key)
        if sample.name.endswith("_count"):
            assert last[(sample.name[:-6] + "_bucket", key[1])] == sample.value, sample
        text = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
        print(f"{sample.name}{{{text}}} {float(sample.value)}")
"#;

fn scrape(egret: &Egret) -> String {
    python(SCRAPE, &[&format!("http://{}/metrics", egret.control())])
}

fn assert_has(samples: &str, expected: &str) {
    assert!(samples.lines().any(|sample| sample == expected), "{expected} is not in\n{samples}");
}

/// Responds as the path says: with a number of tokens, in JSON, or with an error.
fn provider() -> Provider {
    Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            let body = r#"{"usage":{"total_tokens":35}}"#;
            let response = match request.target() {
                "/broken" => "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_owned(),
                _ => format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Remaining: 7\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
            };
            if !peer.send(response) {
                return;
            }
        }
    })
}

fn ask(egret: &Egret, path: &str, consumer: &str) {
    egret.get_with(&format!("/origin{path}"), &format!("X-Egret-Consumer: {consumer}\r\n"));
}

#[test]
fn metrics_count_the_traffic_that_was_sent() {
    let origin = provider();
    let flows = "flows:\n\
        - name: api\n\
        \x20 match: { path: ['/users/{id}', '/*'] }\n\
        \x20 diagnoses:\n\
        \x20   - metrics:\n\
        \x20       counters: { tokens: { cel: 'response.body.usage.total_tokens' } }\n\
        \x20       gauges: { remaining: { header: X-Remaining, help: What is left. } }\n\
        - { name: other, diagnoses: [metrics: { labels: [status] }] }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for id in 1..=3 {
        ask(&egret, &format!("/users/{id}"), "web");
    }
    ask(&egret, "/broken", "batch");
    until_recorded(&egret, 4);
    wait::until_true("the other flow has recorded them", || {
        egret.control_get("/api/v1/flows").json()["flows"][1]["diagnoses"][0]["recorded"] == 4
    });
    let samples = scrape(&egret);
    let of_users = "consumer=web,endpoint=/users/{id},flow=api,method=GET,provider=origin,status=2xx";
    let of_broken = "consumer=batch,endpoint=/*,flow=api,method=GET,provider=origin,status=5xx";
    for family in ["exchange", "provider", "footprint"] {
        assert_has(&samples, &format!("egret_flow_{family}_seconds_count{{{of_users}}} 3.0"));
        assert_has(&samples, &format!("egret_flow_{family}_seconds_count{{{of_broken}}} 1.0"));
    }
    assert_has(&samples, "egret_flow_exchange_seconds_count{flow=other,status=2xx} 3.0");
    assert_has(&samples, &format!("egret_custom_tokens_total{{{of_users}}} 105.0"));
    assert_has(&samples, &format!("egret_custom_remaining{{{of_users}}} 7.0"));
    // A response that is not JSON has no tokens.
    assert_has(&samples, "egret_custom_failures_total{flow=api,metric=tokens} 1.0");
}

#[test]
fn labels_are_bounded_and_hold_no_secret() {
    let origin = Provider::plain();
    let flows = "flows:\n- { name: api, diagnoses: [metrics: { labels: [consumer], series_max: 10 }] }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let secrets: Vec<(String, String)> =
        secrets().into_iter().filter(|(secret, _)| !secret.contains('\n')).collect();
    for (secret, _) in &secrets {
        ask(&egret, "/", secret);
    }
    assert!(secrets.len() > 10);
    until_recorded(&egret, secrets.len() as u64);
    let samples = scrape(&egret);
    let beyond = secrets.len() - 10;
    assert_has(&samples, &format!("egret_flow_exchange_seconds_count{{flow=api,overflow=true}} {beyond}.0"));
    let series = samples.lines().filter(|line| line.starts_with("egret_flow_exchange_seconds_count"));
    assert_eq!(series.count(), 11);
    for (secret, core) in &secrets {
        assert!(!samples.contains(core.as_str()), "{secret} is in\n{samples}");
    }
}

#[test]
fn custom_histograms_and_labels_are_read_by_the_reference_parser() {
    let origin = provider();
    let flows = "flows:\n\
        - name: api\n\
        \x20 diagnoses:\n\
        \x20   - metrics:\n\
        \x20       labels: [status]\n\
        \x20       custom_labels: { tenant: { request_header: x-egret-consumer } }\n\
        \x20       histograms:\n\
        \x20         tokens: { cel: response.body.usage.total_tokens, buckets: [10, 35, 100], help: Paid for. }\n\
        \x20       up_down_counters: { balance: { cel: 'response.status < 400 ? 1 : -1' } }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for (path, tenant) in [("/a", "acme"), ("/b", "acme"), ("/c", "nobody"), ("/broken", "acme")] {
        ask(&egret, path, tenant);
    }
    until_recorded(&egret, 4);
    let samples = scrape(&egret);
    for (bound, count) in [("10", "0.0"), ("35", "2.0"), ("100", "2.0"), ("+Inf", "2.0")] {
        assert_has(
            &samples,
            &format!("egret_custom_tokens_bucket{{flow=api,le={bound},status=2xx,tenant=acme}} {count}"),
        );
    }
    assert_has(&samples, "egret_custom_tokens_sum{flow=api,status=2xx,tenant=acme} 70.0");
    assert_has(&samples, "egret_custom_tokens_count{flow=api,status=2xx,tenant=nobody} 1.0");
    assert_has(&samples, "egret_custom_balance{flow=api,status=5xx,tenant=acme} -1.0");
    assert_has(&samples, "egret_flow_exchange_seconds_count{flow=api,status=2xx,tenant=acme} 2.0");
    assert_has(&samples, "egret_custom_failures_total{flow=api,metric=tokens} 1.0");
}
