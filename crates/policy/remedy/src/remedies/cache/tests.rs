//! Tests of the cache remedy, with a simulated clock and provider.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use egret_clock::Moment;
use egret_fixture::{TestExchange, TestFlows, TestStep, problems};
use egret_message::FailureKind;
use egret_store::entries::Stop;
use serde_json::{Value, json};

use super::DISK_WAIT_MAX;
use super::held::BODY_WAIT_MAX;

const GET: &str = "GET https://one.example/a";

/// A harness with another remedy around the cache that changes the request, so a test sees that only the
/// cache's own changes are undone.
fn harness(cache: &Value) -> TestFlows {
    TestFlows::with(
        &json!([{ "transform": { "request": { "headers": { "set": { "x-out": "1" } } } } }, { "cache": cache }]),
    )
}

fn store(harness: &TestFlows, request: &str, response: &str) {
    let mut exchange = harness.send(request);
    assert_eq!(exchange.poll(harness), TestStep::Call);
    assert!(matches!(exchange.response_with(harness, response, Some(b"body")), TestStep::Response(200)));
    exchange.end(harness);
}

fn is_hit(harness: &TestFlows, request: &str) -> bool {
    let mut exchange = harness.send(request);
    let step = exchange.poll(harness);
    exchange.end(harness);
    matches!(step, TestStep::Stored(_))
}

fn sent(exchange: &mut TestExchange, harness: &TestFlows, name: &str) -> Option<String> {
    let (_, fields, _) = exchange.sent(harness);
    let prefix = format!("{name}: ");
    fields.iter().find_map(|field| field.strip_prefix(&prefix).map(str::to_owned))
}

#[test]
fn a_stored_response_is_served_fresh_or_on_failure() {
    let mut harness = harness(&json!({ "stale_if_error": "1h" }));
    store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
    assert!(is_hit(&harness, GET) && !is_hit(&harness, &format!("{GET}\nauthorization: Bearer a")));
    harness.pass_ms(61_000);
    for kind in [FailureKind::Connect, FailureKind::Timeout] {
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(sent(&mut exchange, &harness, "if-none-match").as_deref(), Some("\"1\""));
        assert!(matches!(exchange.failure(&harness, kind), TestStep::Stored(_)));
        exchange.end(&harness);
    }
    harness.pass_ms(3_600_000);
    let mut exchange = harness.send(GET);
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert_eq!(exchange.failure(&harness, FailureKind::Timeout), TestStep::Failure(FailureKind::Timeout));
    assert_eq!(exchange.added(), [("cache-status".to_owned(), "egret; fwd=stale".to_owned())]);
}

#[test]
fn a_304_about_something_else_has_the_provider_asked_without_conditions() {
    let mut harness = harness(&json!({}));
    store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
    harness.pass_ms(61_000);
    let mut exchange = harness.send(GET);
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert!(matches!(exchange.response(&harness, "304\netag: \"2\""), TestStep::Repeat(_)));
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert_eq!(sent(&mut exchange, &harness, "if-none-match"), None);
    assert_eq!(sent(&mut exchange, &harness, "x-out").as_deref(), Some("1"));
    let step = exchange.response_with(&harness, "200\ncache-control: max-age=60", Some(b"new"));
    assert_eq!(step, TestStep::Response(200));
    exchange.end(&harness);
    assert!(is_hit(&harness, GET));
}

#[test]
fn report_mode_stores_and_serves_no_response() {
    let harness = TestFlows::with(&json!([{ "cache": {}, "mode": "report" }]));
    for _ in 0..2 {
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, "200\ncache-control: max-age=60"), TestStep::Response(200));
        assert_eq!(exchange.added(), []);
        exchange.end(&harness);
    }
}

#[test]
fn responses_of_fallbacks_and_inner_remedies_are_not_stored() {
    let fallback = json!({ "fallback": { "on": ["5xx"], "provider": "two" } });
    let harness = TestFlows::with(&json!([{ "cache": {} }, fallback]));
    let mut exchange = harness.send(GET);
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert!(matches!(exchange.response(&harness, "503"), TestStep::Repeat(_)));
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    let step = exchange.response_with(&harness, "200\ncache-control: max-age=60", Some(b"two"));
    assert_eq!(step, TestStep::Response(200));
    exchange.end(&harness);
    assert!(!is_hit(&harness, GET));
    let fixed = json!({ "fixed-response": { "headers": { "cache-control": "max-age=60" } } });
    let harness = TestFlows::with(&json!([{ "cache": {} }, fixed]));
    for _ in 0..2 {
        assert!(matches!(harness.exchange(GET, "200"), TestStep::Fixed(_)));
    }
}

#[test]
fn a_response_of_unknown_length_is_awaited_briefly() {
    let mut harness = harness(&json!({ "max_entry": "1KiB" }));
    let coming = |harness: &TestFlows, fields: &str| {
        let mut first = harness.send(GET);
        assert_eq!(first.poll(harness), TestStep::Call);
        let response = format!("200\ncache-control: max-age=60{fields}");
        assert_eq!(first.response(harness, &response), TestStep::Response(200));
        let mut filling = first.body_writer().unwrap();
        filling.push(b"some").unwrap();
        (first, filling)
    };
    // The response is complete within a second.
    let (first, filling) = coming(&harness, "");
    let mut second = harness.send(GET);
    let until = harness.now + BODY_WAIT_MAX;
    assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
    harness.pass_ms(500);
    assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
    filling.finish();
    let TestStep::Stored(served) = second.poll(&harness) else { panic!("it is stored") };
    assert_eq!(served.body().len(), Some(4));
    drop((first, second));
    // The response takes longer.
    harness.pass_ms(60_000);
    let (first, mut filling) = coming(&harness, "");
    let mut second = harness.send(GET);
    assert!(matches!(second.poll(&harness), TestStep::Wait(_)));
    harness.pass_ms(1_000);
    assert!(matches!(second.poll(&harness), TestStep::Stored(_)));
    // The response is too large: waiting requests go on without coalescing, and so does the next one.
    let mut third = harness.send(GET);
    assert!(matches!(third.poll(&harness), TestStep::Wait(_)));
    assert!(filling.push(&[0; 2_000]).is_err());
    drop(filling.give_up(&[0; 2_000]));
    let mut fourth = harness.send(GET);
    assert_eq!((third.poll(&harness), fourth.poll(&harness)), (TestStep::Call, TestStep::Call));
    drop((first, second, third, fourth));
    // One that waited for such a response does not stream the next one, which is too large too.
    harness.pass_ms(31_000);
    let (first, filling) = coming(&harness, "");
    let mut second = harness.send(GET);
    let until = harness.now + BODY_WAIT_MAX;
    assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
    drop(filling.give_up(&[0; 2_000]));
    let (next, filling) = coming(&harness, "");
    harness.pass_ms(500);
    assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
    drop(filling.give_up(&[0; 2_000]));
    assert_eq!(second.poll(&harness), TestStep::Call);
    drop((first, second, next));
    // The response is aborted: one request goes to the provider, the others wait for it.
    harness.pass_ms(31_000);
    let (first, filling) = coming(&harness, "");
    let (mut second, mut third) = (harness.send(GET), harness.send(GET));
    assert!(matches!((second.poll(&harness), third.poll(&harness)), (TestStep::Wait(_), TestStep::Wait(_))));
    drop(filling);
    assert_eq!(second.poll(&harness), TestStep::Call);
    assert!(matches!(third.poll(&harness), TestStep::Wait(_)));
    drop((first, second, third));
    // A response with a length is served at once, and so is a response without a body.
    harness.pass_ms(31_000);
    let (first, filling) = coming(&harness, "\ncontent-length: 9\netag: \"1\"");
    assert!(is_hit(&harness, GET));
    drop((first, filling));
    let (_first, _filling) = coming(&harness, "\netag: \"1\"");
    assert!(is_hit(&harness, &format!("{GET}\nif-none-match: \"1\"")));
}

#[test]
fn stale_responses_replace_missing_responses_and_no_refusals() {
    for (cache, is_served) in [(json!({}), true), (json!({ "stale_if_error": "0s" }), false)] {
        let mut harness = harness(&cache);
        store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
        harness.pass_ms(359_000);
        for (kind, is_silent) in [
            (FailureKind::Connect, true),
            (FailureKind::Timeout, true),
            (FailureKind::Reset, true),
            (FailureKind::BadResponse, false),
            (FailureKind::Refused, false),
        ] {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            let step = exchange.failure(&harness, kind);
            assert_eq!(matches!(step, TestStep::Stored(_)), is_served && is_silent, "{kind:?}");
        }
        harness.pass_ms(2_000);
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.failure(&harness, FailureKind::Reset), TestStep::Failure(FailureKind::Reset));
    }
}

/// Creates a harness whose disk is in `directory`.
fn stage_with_disk(directory: &Path) -> TestFlows {
    TestFlows::new(json!({
        "data_dir": directory,
        "flows": [{ "name": "f", "remedies": [{ "cache": { "disk": {} } }] }],
    }))
}

/// The thread of a disk. It loads its index and then does nothing until it is released.
struct Serving {
    thread: JoinHandle<()>,
    go: SyncSender<()>,
}

impl Serving {
    fn start(harness: &TestFlows) -> Self {
        let disk = harness.flows.cache_disks().remove(0);
        let ((open, is_open), (go, may_go)) = (sync_channel(1), sync_channel(1));
        let thread = std::thread::spawn(move || {
            let tell = |_| {
                open.send(()).unwrap();
                may_go.recv().unwrap();
            };
            disk.serve(&tell).unwrap();
        });
        is_open.recv().unwrap();
        Self { thread, go }
    }

    /// Releases the thread and ends it.
    fn end(self, harness: &TestFlows) {
        self.go.send(()).unwrap();
        harness.flows.cache_disks()[0].stop(Stop::Keep(Moment::NEVER));
        self.thread.join().unwrap();
    }
}

/// Creates a directory in which the response to `GET` is stored.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let harness = stage_with_disk(directory.path());
    let serving = Serving::start(&harness);
    store(&harness, GET, "200\ncache-control: max-age=60");
    serving.end(&harness);
    directory
}

#[test]
fn a_request_waits_for_the_disk_and_is_answered_from_it() {
    let directory = directory();
    for request in [GET.to_owned(), format!("{GET}\ncache-control: only-if-cached")] {
        let mut harness = stage_with_disk(directory.path());
        let mut serving = Some(Serving::start(&harness));
        let mut exchange = harness.send(&request);
        let until = harness.now + DISK_WAIT_MAX;
        assert_eq!(exchange.poll(&harness), TestStep::Wait(Some(until)));
        harness.pass_ms(999);
        assert_eq!(exchange.poll(&harness), TestStep::Wait(Some(until)));
        serving.as_ref().unwrap().go.send(()).unwrap();
        let step = std::iter::repeat_with(|| exchange.poll(&harness))
            .find(|step| !matches!(step, TestStep::Wait(_)));
        let Some(TestStep::Stored(served)) = step else { panic!("{step:?}") };
        let mut fields = Vec::new();
        served.write_fields(&mut fields);
        assert!(String::from_utf8(fields).unwrap().contains("cache-status: egret; hit; ttl=60; detail=disk"));
        exchange.end(&harness);
        assert!(is_hit(&harness, GET));
        let Serving { thread, .. } = serving.take().unwrap();
        harness.flows.cache_disks()[0].stop(Stop::Keep(Moment::NEVER));
        thread.join().unwrap();
    }
}

#[test]
fn a_slow_look_up_on_disk_is_abandoned() {
    for (said, is_there) in
        [("200\ncache-control: no-store", false), ("404", false), ("503", true), ("403", true)]
    {
        let directory = directory();
        let mut harness = stage_with_disk(directory.path());
        let serving = Serving::start(&harness);
        let mut exchange = harness.send(GET);
        assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
        harness.pass_ms(1_000);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert!(matches!(exchange.response(&harness, said), TestStep::Response(_)));
        exchange.end(&harness);
        serving.end(&harness);
        let harness = stage_with_disk(directory.path());
        let serving = Serving::start(&harness);
        let mut exchange = harness.send(GET);
        assert_eq!(matches!(exchange.poll(&harness), TestStep::Wait(_)), is_there, "{said}");
        drop(exchange);
        serving.end(&harness);
    }
}

#[test]
fn a_request_does_not_wait_for_an_empty_disk() {
    let directory = directory();
    let harness = stage_with_disk(directory.path());
    assert_eq!(harness.send(GET).poll(&harness), TestStep::Call, "it is not open");
    let serving = Serving::start(&harness);
    assert_eq!(harness.send("GET https://one.example/b").poll(&harness), TestStep::Call);
    assert_eq!(harness.send(&format!("{GET}\nauthorization: Bearer a")).poll(&harness), TestStep::Call);
    serving.end(&harness);
    assert_eq!(harness.send(GET).poll(&harness), TestStep::Call, "it is closed");
}

#[test]
fn only_an_enforcing_cache_has_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let config = |cache: Value, mode: &str| {
        let remedy = json!({ "cache": cache, "mode": mode });
        json!({ "data_dir": directory.path(), "flows": [{ "name": "f", "remedies": [remedy] }] })
    };
    let mut harness = TestFlows::new(config(json!({ "disk": {} }), "report"));
    assert!(harness.flows.cache_disks().is_empty());
    let mut reload = |cache: Value| {
        harness.reload(config(cache, "enforce"));
        harness.flows.cache_disks().pop()
    };
    let first = reload(json!({ "disk": {} })).unwrap();
    assert!(reload(json!({ "disk": { "size": "2GiB" }, "stale_if_error": "1h" })).unwrap().is(&first));
    let other = reload(json!({ "disk": {}, "memory": "8MiB" })).unwrap();
    assert!(!other.is(&first) && other.directory() == first.directory());
    assert!(reload(json!({})).is_none());
}

#[test]
fn a_config_is_refused_by_its_key() {
    let of = |cache: &Value| problems(&json!([{ "cache": cache }]));
    let override_alone = of(&json!({ "override": true }));
    assert_eq!(override_alone, ["flows[0].remedies[0].cache.override: requires a `ttl`"]);
    for named in ["428", "429", "431", "511", "511-511"] {
        let told = of(&json!({ "ttl": { named: "5s" } })).concat();
        assert!(told.starts_with("flows[0].remedies[0].cache.ttl: no cache may store 428"), "{told}");
    }
    assert!(of(&json!({ "ttl": { "4xx": "5s", "428-431": "5s", "503": "5s" } })).is_empty());
}
