//! Imported `policies.yaml`: each strategy does what it did in Lunar, counted at the provider.

use std::time::{Duration, Instant};

use egret_tests::http::Client;
use egret_tests::imported::{Imported, holding};
use egret_tests::metered::{Metered, by_window, now_us};
use egret_tests::provider::Provider;
use egret_tests::recorded::{entries, files};
use egret_tests::wait::{until, until_true};

fn status(status: u16, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Said So\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
}

#[test]
fn a_fixed_window_lets_through_what_it_allows_with_its_own_status() {
    let provider = Provider::plain();
    let imported = Imported::start("throttling", "api.payments.example", provider.address());
    let charge = || imported.send("POST", "/charges", "", "{}").status;
    assert_eq!([charge(), charge(), charge(), charge()], [200, 200, 420, 420]);
    assert_eq!(provider.requests().len(), 2);
}

#[test]
fn groups_have_their_shares_and_others_are_blocked() {
    let provider = Provider::plain();
    let imported = Imported::start("throttling", "api.payments.example", provider.address());
    assert_eq!(imported.statuses(2, "/teams/1", "X-Team: small\r\n"), [200, 429]);
    assert_eq!(imported.statuses(4, "/teams/2", "X-Team: large\r\n"), [200, 200, 200, 429]);
    assert_eq!(imported.statuses(1, "/teams/3", "X-Team: other\r\n"), [429]);
    assert_eq!(provider.requests().len(), 4);
}

#[test]
fn unused_units_are_carried_over() {
    let provider = Provider::plain();
    let imported = Imported::start("throttling", "api.payments.example", provider.address());
    assert_eq!(imported.statuses(1, "/saved", ""), [200]);
    // A window in which nothing is used lies between the first call and the others.
    let end = now_us() / 1_000_000 + 2;
    until_true("a window has passed", || now_us() / 1_000_000 >= end);
    assert_eq!(imported.statuses(4, "/saved", ""), [200; 4]);
    assert_eq!(provider.requests().len(), 5);
}

#[test]
fn a_pause_that_the_provider_asks_for_is_kept() {
    let provider = Provider::responding(status(429, "Retry-After: 60\r\n"));
    let imported = Imported::start("throttling", "api.payments.example", provider.address());
    assert_eq!(imported.statuses(3, "/rates/eur", ""), [429; 3]);
    assert_eq!(provider.requests().len(), 1);
}

#[test]
fn a_queue_keeps_its_rate_and_size() {
    let provider = Metered::start(Duration::ZERO);
    let address = provider.url().strip_prefix("http://").unwrap().parse().unwrap();
    let imported = Imported::start("queueing", "api.reports.example", address);
    let egret = &imported.egret;
    let host = egret.address();
    let request = format!("GET /run/a HTTP/1.1\r\nHost: {host}\r\nx-lunar-host: {address}\r\n\r\n");
    // The gateway stands still until all calls are there, so few windows begin while it takes them.
    egret.process().signal("STOP");
    let mut clients: Vec<Client> = (0..12).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.send(&request);
    }
    egret.process().signal("CONT");
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    // Two at once and three who wait; two more for each window that begins meanwhile.
    assert!((5..=9).contains(&served), "{statuses:?}");
    let calls = provider.calls();
    assert_eq!(calls.len(), served);
    let windows = by_window(calls.iter().map(|call| call.came), Duration::from_secs(1));
    assert!(windows.values().all(|count| *count <= 2), "{windows:?}");
}

#[test]
fn a_concurrency_limit_refuses_the_second_call_at_once() {
    let provider = holding();
    let imported = Imported::start("queueing", "api.reports.example", provider.address());
    let held = imported.hold("/slots");
    provider.until_requested(1);
    assert_eq!(imported.get("/slots").status, 503);
    held.reset();
    until_true("the slot is free", || imported.get("/slots").status == 200);
}

#[test]
fn a_response_is_stored_for_its_time_under_its_path() {
    let provider = Provider::plain();
    let imported = Imported::start("caching", "api.shop.example", provider.address());
    let mut skus = 0..;
    let (path, calls) = until("three calls are made within the time of the response", || {
        let (path, before) = (format!("/prices/{}", skus.next()?), provider.requests().len());
        let begun = Instant::now();
        assert_eq!(imported.statuses(3, &path, ""), [200; 3]);
        (begun.elapsed() < Duration::from_millis(1_400)).then(|| (path, provider.requests().len() - before))
    });
    assert_eq!(calls, 1);
    let before = provider.requests().len();
    assert_eq!(imported.get("/prices/b").status, 200);
    assert_eq!(provider.requests().len(), before + 1);
    until_true("the response has expired", || {
        imported.get(&path);
        provider.requests().len() == before + 2
    });
}

#[test]
fn a_failed_call_is_repeated_as_often_as_lunars_client_would_have() {
    let provider = Provider::responding(status(503, ""));
    let imported = Imported::start("caching", "api.shop.example", provider.address());
    assert_eq!(imported.get("/orders/1").status, 503);
    // One call, and two attempts after it.
    assert_eq!(provider.requests().len(), 3);
}

#[test]
fn a_fixed_response_is_sent_only_to_who_asks_for_it() {
    let provider = Provider::plain();
    let imported = Imported::start("caching", "api.shop.example", provider.address());
    let early = imported.send("GET", "/health", "early-response: true\r\n", "");
    assert_eq!((early.status, early.json()["message"].as_str()), (418, Some("GO Lunar")));
    assert_eq!(imported.get("/health").status, 200);
    assert_eq!(provider.requests().len(), 1);
}

#[test]
fn accounts_take_turns_and_the_clients_own_credential_is_replaced() {
    let provider = Provider::plain();
    let imported = Imported::start("accounts", "api.mail.example", provider.address());
    for _ in 0..4 {
        assert_eq!(imported.send("POST", "/send", "Authorization: Bearer mine\r\n", "{}").status, 200);
    }
    assert_eq!(imported.get("/inbox").status, 200);
    let seen: Vec<String> =
        provider.requests().iter().map(|request| request.values("authorization").join("+")).collect();
    let (first, second) = ("Bearer token-of-the-first", "Bearer token-of-the-second");
    assert_eq!(seen, [first, second, first, second, "Basic cmVhZGVyOnBhc3N3b3JkLW9mLXRoZS1yZWFkZXI="]);
}

#[test]
fn a_key_is_added_below_its_url_alone() {
    let provider = Provider::plain();
    let imported = Imported::start("accounts", "api.maps.example", provider.address());
    imported.get("/tiles/1/2");
    imported.get("/styles");
    let keys: Vec<Vec<String>> = provider
        .requests()
        .iter()
        .map(|request| request.values("x-api-key").into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(keys, [vec!["key-of-the-maps".to_owned()], Vec::new()]);
}

#[test]
fn exchanges_are_archived_with_their_exemptions_and_counted() {
    let provider = Provider::responding(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-units: 5\r\nContent-Length: 33\r\n\r\n{\"state\":\"open\",\"name\":\"Kim Doe\"}",
    );
    let imported = Imported::start("records", "api.crm.example", provider.address());
    assert_eq!(imported.statuses(2, "/users/77?page=2&mail=kim", ""), [200, 200]);
    let metrics = until("the calls are counted", || {
        let metrics = imported.egret.control_get("/metrics").text().to_owned();
        metrics.contains("egret_custom_units_total").then_some(metrics).filter(|text| text.contains("} 10\n"))
    });
    assert!(metrics.contains("egret_flow_exchange_seconds_bucket"), "{metrics}");
    let directory = imported.egret.directory().join("har");
    let entry = until("the entry is written", || entries(&files(&directory)).into_iter().next());
    let text = entry.to_string();
    for shown in ["/users/77", "\"value\":\"2\"", "open"] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    for hidden in ["Kim Doe", "=kim", "\"kim\""] {
        assert!(!text.contains(hidden), "{hidden} is in\n{text}");
    }
}

#[test]
fn a_blocked_domain_is_refused() {
    let provider = Provider::plain();
    let imported = Imported::start("records", "api.crm.example", provider.address());
    for host in ["evil.example", "a.tracker.example"] {
        let request =
            format!("GET / HTTP/1.1\r\nHost: {}\r\nx-lunar-host: {host}\r\n\r\n", imported.egret.address());
        imported.egret.client().send(request).response().assert_generated(403, "egress-denied");
    }
}
