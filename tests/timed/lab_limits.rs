//! `egret lab run` shows that limits hold: the provider's count is a figure, and figures can be held to a
//! limit.

use std::path::{Path, PathBuf};

use egret_tests::lab::{held, scenario};
use egret_tests::process::Directory;
use serde_json::Value;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name)
}

#[test]
fn limit_and_queue_prevent_refusals_and_use_the_allowance() {
    let (code, stderr, summary) =
        held(&shipped("limits.yaml"), &["--quick", "--rounds", "1", "--seconds", "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(summary["held"].as_array().unwrap().len(), 9, "{stderr}");
    for name in ["limit", "queue", "queue-fixed"] {
        let counted = &scenario(&summary, name)["counted"];
        assert_eq!(counted["refused"]["value"], 0.0, "{name}: {stderr}");
        assert!(counted["allowance_used"]["value"].as_f64().unwrap() >= 0.98, "{name}: {stderr}");
    }
    let refused = |name: &str| scenario(&summary, name)["counted"]["refused"]["value"].as_f64().unwrap();
    assert!(refused("direct") > 1_000.0 && refused("no-flow") > 1_000.0, "{stderr}");
    assert!(stderr.contains("`limit`: ") && stderr.contains(" and rejected 0; "), "{stderr}");
}

#[test]
fn gateways_keep_a_shared_limit_in_every_window() {
    let directory = Directory::default();
    let config = shipped("configs/cluster.yaml");
    let text = format!(
        "title: Two gateways\nprovider: {{ path: /rate-limit/100/1s }}\nrounds: 1\n\
         client: {{ duration: 2s, concurrency: 50, keep_alive: true, warm_up_requests: 200 }}\n\
         services: {{ redis: {{ kind: redis }} }}\n\
         scenarios: [{{ name: shared, egret: {}, instances: 2, services: [redis] }}]\n\
         hold:\n  - {{ scenario: shared, figures: [busiest_window], at_most: 1 }}\n\
         \x20 - {{ scenario: shared, figures: [provider_refused, failed_share], at_most: 0 }}\n\
         \x20 - {{ scenario: shared, figures: [store_calls_per_request], at_most: 0.5 }}\n",
        config.display()
    );
    let (code, stderr, summary) = held(&directory.write("two.yaml", text), &[]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(summary["held"].as_array().unwrap().len(), 4, "{stderr}");
    let shared = scenario(&summary, "shared");
    let value = |figure: &Value| figure["value"].as_f64().unwrap();
    assert!(value(&shared["counted"]["busiest_window"]) > 0.5, "{stderr}");
    assert!(value(&shared["store_calls_per_request"]) > 0.0, "{stderr}");
    assert!(value(&shared["services_cpu_us_per_request"]["redis"]) > 0.0, "{stderr}");
}

#[test]
fn a_client_sees_few_of_the_failures_that_a_retry_has_seen() {
    let (code, stderr, summary) =
        held(&shipped("failing.yaml"), &["--quick", "--rounds", "1", "--seconds", "2"]);
    assert_eq!(code, 0, "{stderr}");
    let failed = |name: &str| scenario(&summary, name)["failed_share"]["value"].as_f64().unwrap();
    assert!(failed("no-flow") > 0.25 && failed("with-retry") < 0.01, "{stderr}");
    let calls = &scenario(&summary, "with-retry")["counted"]["calls_per_request"]["value"];
    assert!((1.3..=1.5).contains(&calls.as_f64().unwrap()), "{stderr}");
}
