//! A provider fails, throttles, rejects, and recovers: findings begin and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use egret_tests::egret::{Config, Egret};
use egret_tests::found::{findings, names, until_found, until_over};
use egret_tests::provider::Provider;

/// A gateway, and its provider, which responds with a status that can be changed.
fn start(flows: &str) -> (Egret, Arc<AtomicU16>, Provider) {
    let status = Arc::new(AtomicU16::new(200));
    let told = Arc::clone(&status);
    let origin = Provider::with_responses(move |_| {
        let status = told.load(Ordering::Relaxed);
        format!("HTTP/1.1 {status} Told\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    (Config::with_origin(origin.url()).flows(flows).start(), status, origin)
}

fn call(egret: &Egret) {
    for _ in 0..10 {
        egret.get("/a");
    }
}

#[test]
fn a_provider_that_fails_is_found_until_it_recovers() {
    let (egret, status, _origin) = start("");
    call(&egret);
    assert_eq!(names(&egret), [""; 0]);
    for (told, name) in [
        (503, "provider-failing: origin"),
        (429, "provider-throttling: origin"),
        (401, "credentials-rejected: origin"),
    ] {
        status.store(told, Ordering::Relaxed);
        let found = until_found(&egret, name, || call(&egret));
        assert!(found["since_us"].as_u64().unwrap() > 0);
        status.store(200, Ordering::Relaxed);
        until_over(&egret, name, || call(&egret));
    }
    let events = egret.control_get("/api/v1/findings").json();
    // The newest is the first. One may have begun again while its share of the calls was near the limit, and
    // on a busy machine the provider may also be slow for a while.
    let mut told = events["events"].as_array().unwrap().iter().rev();
    for (what, text) in [
        ("started", "the gateway has started"),
        ("began", "calls to origin fail"),
        ("ended", "no longer: calls to origin fail"),
        ("began", "origin throttles"),
        ("ended", "no longer: origin throttles"),
        ("began", "origin rejects the credentials"),
        ("ended", "no longer: origin rejects the credentials"),
    ] {
        let is_told =
            told.any(|event| event["what"] == what && event["text"].as_str().unwrap().starts_with(text));
        assert!(is_told, "{what}, {text}: {events:#}");
    }
}

#[test]
fn a_quota_near_its_end_is_found_before_calls_are_refused() {
    let flows = "quotas: { monthly: { limit: 100, window: 10h, kind: fixed, starts: first } }\n\
                 flows: [{ name: all, remedies: [limit: monthly] }]\n";
    let (egret, _status, _origin) = start(flows);
    for _ in 0..92 {
        egret.get("/a").assert_forwarded(200);
    }
    let found = until_found(&egret, "quota-near-end: monthly", || {});
    assert_eq!(found["severity"], "warning");
    assert!(found["evidence"].as_str().unwrap().starts_with("8 of 100 units are left"), "{found}");
    assert!(findings(&egret).iter().all(|finding| finding["kind"] != "calls-refused"));
    call(&egret);
    let refused = until_found(&egret, "calls-refused: origin: quota-exceeded", || call(&egret));
    assert!(refused["evidence"].as_str().unwrap().contains("`monthly`"), "{refused}");
}
