//! Imported flows and quotas: each processor does what it did in Lunar, counted at the provider.

use std::thread;
use std::time::Duration;

use egret_tests::imported::{Imported, holding};
use egret_tests::metered::{Metered, now_us};
use egret_tests::provider::Provider;
use egret_tests::recorded::{entries, files};
use egret_tests::wait::{until, until_true};

#[test]
fn limits_within_a_quota_refuse_with_the_response_of_their_branch() {
    let provider = Provider::plain();
    let imported = Imported::start("limits", "api.orders.example", provider.address());
    let of =
        |tenant: &str| imported.send("GET", "/orders", &format!("x-lunar-consumer-tag: {tenant}\r\n"), "");
    assert_eq!([of("a").status, of("a").status], [200, 200]);
    let refused = of("a");
    assert_eq!(
        (refused.status, refused.text(), refused.field("x-reason")),
        (420, "slow down", Some("tenant"))
    );
    assert_eq!([of("b").status, of("b").status, of("c").status], [200; 3]);
    // A quarter of the parent's twenty is used.
    let refused = of("d");
    assert_eq!((refused.status, refused.text()), (429, "too many"));
    assert_eq!(provider.requests().len(), 5);
    assert!(provider.requests().iter().all(|request| request.values("x-lunar-consumer-tag").is_empty()));
}

#[test]
fn a_queue_lets_calls_wait_for_the_next_window() {
    let provider = Metered::start(Duration::ZERO);
    let address = provider.url().strip_prefix("http://").unwrap().parse().unwrap();
    let imported = Imported::start("queues", "api.search.example", address);
    let begun = now_us();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| imported.get("/find").status)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 200);
        }
    });
    let mut came: Vec<u64> = provider.calls().iter().map(|call| call.came).collect();
    came.sort_unstable();
    assert_eq!(came.len(), 4);
    // The window begins with the first call, which may come late, and the other two wait for its end.
    assert!(came[2] - begun >= 990_000, "{begun}: {came:?}");
}

#[test]
fn a_concurrency_quota_refuses_with_the_response_of_its_branch() {
    let provider = holding();
    let imported = Imported::start("queues", "api.exports.example", provider.address());
    let held = imported.hold("/all");
    provider.until_requested(1);
    let refused = imported.get("/all");
    assert_eq!((refused.status, refused.text()), (409, "one at a time"));
    held.reset();
    until_true("the slot is free", || imported.get("/all").status == 200);
}

#[test]
fn a_filter_sends_some_to_an_answer_and_changes_the_others() {
    let provider = Provider::plain();
    let imported = Imported::start("filters", "api.gate.example", provider.address());
    let refused = imported.send("GET", "/x", "X-Env: staging\r\n", "");
    assert_eq!((refused.status, refused.text()), (403, "not from staging"));
    let fields = "X-Env: production\r\nX-Internal: secret\r\nContent-Type: application/json\r\n";
    assert_eq!(imported.send("POST", "/x", fields, "{\"a\": 1.10}").status, 200);
    let request = provider.only_request();
    assert_eq!((request.values("x-marked"), request.values("x-internal")), (vec!["yes"], Vec::new()));
    assert_eq!(String::from_utf8(request.body).unwrap(), "{\"a\": 1.10,\"source\":\"gateway\"}");
}

#[test]
fn a_cache_is_keyed_by_path_and_field() {
    let provider = Provider::plain();
    let imported = Imported::start("filters", "api.gate.example", provider.address());
    let get = |path: &str, language: &str| {
        imported.send("GET", path, &format!("Accept-Language: {language}\r\n"), "");
        provider.requests().len()
    };
    assert_eq!([get("/items/1?kind=book", "de"), get("/items/1?kind=book", "de")], [1, 1]);
    assert_eq!([get("/items/1?kind=book", "en"), get("/items/2?kind=book", "de")], [2, 3]);
    assert_eq!([get("/items/1?kind=film", "de"), get("/items/1?kind=film", "de")], [4, 5]);
}

#[test]
fn tokens_are_counted_from_the_response_and_end_the_quota() {
    let provider = Provider::with_responses(|_| {
        let body = "{\"usage\":{\"total_tokens\":60}}";
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let imported = Imported::start("responses", "api.llm.example", provider.address());
    let ask = || imported.send("POST", "/chat", "Content-Type: application/json\r\n", "{}");
    assert_eq!([ask().status, ask().status], [200, 200]);
    // A call is charged once its response has been sent.
    until_true("both calls are charged", || {
        let quotas = imported.egret.control_get("/api/v1/quotas").json();
        let groups =
            quotas["quotas"].as_array().unwrap().iter().filter_map(|quota| quota["groups"].as_array());
        groups.flatten().any(|group| group["used"] == 120)
    });
    let refused = ask();
    assert_eq!((refused.status, refused.text()), (429, "out of tokens"));
    assert_eq!(provider.requests().len(), 2);
    until_true("the tokens are counted", || {
        let metrics = imported.egret.control_get("/metrics").text().to_owned();
        metrics
            .lines()
            .any(|line| line.starts_with("egret_custom_llm_tokens_total") && line.ends_with(" 120"))
    });
}

#[test]
fn failed_calls_are_repeated_and_every_exchange_is_archived() {
    let provider = Provider::responding("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let imported = Imported::start("responses", "api.flaky.example", provider.address());
    assert_eq!(imported.get("/things/1").status, 503);
    assert_eq!(provider.requests().len(), 3);
    let directory = imported.egret.directory().join("har");
    let entry = until("the entry is written", || entries(&files(&directory)).into_iter().next());
    assert_eq!(entry["response"]["status"], 503);
    let url = entry["request"]["url"].as_str().unwrap();
    assert!(url.contains("/things/") && !url.contains("/things/1"), "{url}");
}

#[test]
fn a_quota_of_the_providers_own_fields_works() {
    let provider =
        Provider::responding("HTTP/1.1 200 OK\r\nx-left: 0\r\nx-back: 60\r\nContent-Length: 0\r\n\r\n");
    let imported = Imported::start("everything", "api.batch.example", provider.address());
    let statuses = imported.statuses(3, "/jobs/1", "x-priority: 7\r\n");
    assert_eq!(statuses, [200, 429, 429]);
    // The filter asks for a number of at least five.
    assert_eq!(imported.statuses(1, "/jobs/1", "x-priority: 4\r\n"), [200]);
    assert_eq!(provider.requests().len(), 2);
    assert_eq!(provider.requests()[0].values("traceparent").len(), 1);
}
