//! The page's view of flows: circuits, queues, quotas, caches and remedies that only report.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::provider::{Provider, ok};
use serde_json::json;

const CACHEABLE: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 2\r\n\r\nhi";
const FAILING: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

#[test]
fn an_open_circuit_is_shown_with_the_time_until_its_next_probe() {
    let failing = Provider::responding(FAILING);
    let flow = "flows: [{ name: guarded, match: { provider: origin }, remedies: [{ circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h } }] }]\n";
    let egret = Config::with_origin(failing.url()).flows(flow).start();
    let seen = browse(
        &egret,
        r#"
        await open("flows", "closed");
        for (let call = 0; call < 3; call++) await fetch(`${gateway}/origin/`);
        const item = `document.querySelector(".remedies li").innerText`;
        return page.until(`${item}.includes("open for 5") && ${item}`);
        "#,
    );
    let item = seen.as_str().unwrap();
    assert!(
        item.contains("passed on 2") && item.contains("refused 1") && item.contains("1 in the last minute"),
        "{item}"
    );
}

#[test]
fn the_changes_of_a_circuit_are_listed_with_their_reasons() {
    let calls = AtomicUsize::new(0);
    let origin = Provider::with_responses(move |_| match calls.fetch_add(1, Relaxed) {
        0 | 1 => FAILING.into(),
        _ => ok("well again"),
    });
    let flow = "flows: [{ name: guarded, match: { provider: origin }, remedies: [{ circuit-breaker: { consecutive: 2, open: 300ms } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flow).start();
    let seen = browse(
        &egret,
        r#"
        await open("flows", "guarded");
        for (let call = 0; call < 3; call++) await fetch(`${gateway}/origin/`);
        await until(`document.body.innerText.includes("Changes: 3")`, () => fetch(`${gateway}/origin/`));
        await page.click(".history summary");
        return page.until(`(([...found]) => found.length === 3 && found.map((item) => item.innerText))(document.querySelectorAll(".transitions li"))`);
        "#,
    );
    let changes: Vec<_> = seen.as_array().unwrap().iter().map(|change| change.as_str().unwrap()).collect();
    for (change, expected) in changes.iter().zip([
        "closed origin: a probe succeeded (200)",
        "half-open origin: the pause was over, so a probe was sent",
        "open origin: 2 calls in a row failed (503), for 300 ms",
    ]) {
        assert!(change.ends_with(expected), "{change}");
    }
}

#[test]
fn second_calls_and_calls_to_a_fallback_are_counted() {
    // The first connection has the first call, however late its thread runs.
    let slow_once = Provider::scripted(|peer| {
        while peer.request().is_some() {
            if peer.number == 0 {
                return peer.stall();
            }
            peer.send(ok("second"));
        }
    });
    let failing = Provider::responding(FAILING);
    let flows = "flows:\n  - { name: twice, match: { provider: origin }, remedies: [{ hedge: { after: 20ms } }] }\n\
        \x20 - { name: elsewhere, match: { provider: failing }, remedies: [{ fallback: { provider: origin } }] }\n";
    let egret = Config::with_origin(slow_once.url()).provider("failing", failing.url()).flows(flows).start();
    let seen = browse(
        &egret,
        r#"
        await open("flows", "elsewhere");
        await fetch(`${gateway}/origin/`);
        await fetch(`${gateway}/failing/`);
        const card = (name) => `[...document.querySelectorAll(".flow")].find((card) => card.innerText.startsWith("${name}"))?.innerText`;
        return [
          await page.until(`(${card("twice")}).includes("hedged 1\\nwon 1") && ${card("twice")}`),
          await page.until(`(${card("elsewhere")}).includes("called another target instead 1") && ${card("elsewhere")}`),
        ];
        "#,
    );
    assert!(seen[0].as_str().unwrap().contains("skipped (budget) 0"), "{seen}");
}

#[test]
fn a_breaker_in_report_mode_says_when_it_would_have_opened() {
    let failing = Provider::responding(FAILING);
    let flow = "flows: [{ name: on-trial, match: { provider: origin }, remedies: [{ circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h }, mode: report }] }]\n";
    let egret = Config::with_origin(failing.url()).flows(flow).start();
    for _ in 0..4 {
        assert_eq!(egret.get("/").status, 503);
    }
    assert_eq!(failing.requests().len(), 4, "all calls pass");
    let seen = browse(
        &egret,
        r#"
        await open("flows", "would be open for 5");
        await page.shows("would refuse 2");
        await page.click(".history summary", "Changes that it would have made: 1");
        return page.until(`document.querySelector(".transitions li")?.innerText`);
        "#,
    );
    assert!(seen.as_str().unwrap().contains("2 calls in a row failed (503)"), "{seen}");
}

#[test]
fn a_purge_removes_what_the_cache_of_the_flow_has_stored() {
    let origin = Provider::responding(CACHEABLE);
    let flow = "flows: [{ name: stored, match: { provider: origin }, remedies: [{ cache: {} }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flow).start();
    for _ in 0..4 {
        egret.get("/a").assert_forwarded(200);
    }
    assert_eq!(origin.requests().len(), 1);
    let seen = browse(
        &egret,
        r#"
        await open("flows", "75 %");
        await page.click("button", "Purge");
        await page.click("button", "No");
        await page.shows("1 response in memory");
        await page.click("button", "Purge");
        await page.click("button", "Yes");
        await page.shows("1 response removed.");
        return page.until(`document.body.innerText.includes("0 responses in memory")`);
        "#,
    );
    assert_eq!(seen, true);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.requests().len(), 2, "the response had to be asked for again");
}

#[test]
fn a_fault_is_switched_on_and_off() {
    let origin = Provider::plain();
    let flow = "flows: [{ name: trouble, match: { provider: origin }, remedies: [{ fault: { abort: 503, enabled: false } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flow).start();
    let seen = browse(
        &egret,
        r#"
        const called = async () => (await fetch(`${gateway}/origin/`)).status;
        const statuses = [];
        await open("flows", "Switch on");
        statuses.push(await called());
        await page.click("button", "Switch on for 10 minutes");
        await page.click("button", "Yes");
        await page.shows("on for 9");
        statuses.push(await called());
        await page.shows("abort 1");
        await page.click("button", "Switch off");
        await page.shows("Switch on");
        statuses.push(await called());
        return statuses;
        "#,
    );
    assert_eq!(seen, json!([200, 503, 200]));
}

#[test]
fn a_full_queue_is_shown_with_number_and_age() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&gate);
    let origin = Provider::with_responses(move |_| {
        let (is_open, changed) = &*held;
        let is_open = is_open.lock().unwrap();
        drop(changed.wait_timeout_while(is_open, Duration::from_mins(10), |is_open| !*is_open).unwrap());
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let rest = "quotas: { one: { kind: concurrency, limit: 1 } }\n\
        flows: [{ name: lined-up, match: { provider: origin }, remedies: [{ queue: { quota: one, size: 2, max_wait: 10m } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(rest).start();
    let seen = browse(
        &egret,
        r#"
        await open("flows", "lined-up");
        const calls = [0, 1, 2].map(() => fetch(`${gateway}/origin/`).catch(() => {}));
        const item = `document.querySelector(".remedies li").innerText`;
        const queue = await page.until(`/2 of 2, the oldest for/.test(${item}) && ${item}`);
        const quota = await page.until(`/1 of 1/.test(document.querySelector(".quota").innerText) && document.querySelector(".quota").innerText`);
        const refused = await fetch(`${gateway}/origin/`);
        return [queue, quota, refused.headers.get("x-egret-error")];
        "#,
    );
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert_eq!(seen[2], "queue-full", "{seen}");
}

#[test]
fn a_remedy_in_report_mode_says_what_it_would_have_done() {
    let origin = Provider::plain();
    let rest = "quotas: { few: { limit: 2, window: 1h } }\n\
        flows: [{ name: on-trial, match: { provider: origin }, remedies: [{ limit: { quota: few }, mode: report }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(rest).start();
    for _ in 0..5 {
        egret.get("/").assert_forwarded(200);
    }
    let seen = browse(
        &egret,
        r#"
        await open("flows", "would refuse 3");
        return page.evaluate(`document.querySelector(".flow").innerText`);
        "#,
    );
    let card = seen.as_str().unwrap();
    assert!(card.contains("report mode") && card.contains("would pass on 2"), "{card}");
}

#[test]
fn exporters_and_endpoints_have_a_view_with_a_config_for_them() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/users/17").assert_forwarded(200);
    egret.get("/users/18").assert_forwarded(200);
    let seen = browse(
        &egret,
        r#"
        await open("records", "GET /users/{user_id}");
        await page.shows("No exporter is configured.");
        await page.click("button", "Show");
        return page.until(`document.querySelector("pre").innerText.includes("flows:")`);
        "#,
    );
    assert_eq!(seen, json!(true));
}
