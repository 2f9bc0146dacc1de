//! Many concurrent requests for the same response, many clients that must not share responses, and many keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use egret_tests::cached::{figure, flow, ok_response};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::permits;
use egret_tests::process::raise_open_files;
use egret_tests::provider::{Provider, Request};
use egret_tests::wait::{Watched, until_true};

/// A cache whose requests wait for each other however busy the machine is.
const PATIENT: &str = "{ collapse: { max_wait: 10m } }";

fn clients(egret: &Egret, size: usize) -> Vec<Client> {
    raise_open_files();
    (0..size).map(|_| egret.client()).collect()
}

/// Calls in progress at the provider, and a flag that releases them.
#[derive(Debug, Default)]
struct UnderWay {
    now: usize,
    seen: usize,
    is_released: bool,
}

/// Starts a provider that holds every response back until it is released.
fn holding(fields: &'static str) -> (Provider, Arc<Watched<UnderWay>>) {
    let under_way = Arc::new(Watched::<UnderWay>::default());
    let calls = Arc::clone(&under_way);
    let origin = Provider::with_responses(move |_| {
        calls.change(|calls| {
            calls.now += 1;
            calls.seen += 1;
        });
        calls.until("the call may end", |calls| calls.is_released.then_some(()));
        calls.change(|calls| calls.now -= 1);
        ok_response(fields, "the same for all")
    });
    (origin, under_way)
}

#[test]
fn a_thousand_who_ask_for_the_same_at_once_make_one_call() {
    let (origin, calls) = holding("Cache-Control: max-age=60");
    let egret = Config::with_origin(origin.url()).gateway("workers: 2").flows(flow(PATIENT)).start();
    let mut clients = clients(&egret, 1_000);
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    calls.until("one is there", |calls| (calls.now == 1).then_some(()));
    calls.change(|calls| calls.is_released = true);
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.assert_forwarded(200).text(), "the same for all");
        assert!(response.field("cache-status").is_some(), "{response:?}");
    }
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(figure(&egret, "counts/stored"), 1);
    assert_eq!(figure(&egret, "counts/hit"), 999);
}

#[test]
fn waiters_for_a_private_response_continue_together() {
    const CLIENTS: usize = 200;
    let (origin, calls) = holding("Cache-Control: no-store");
    let egret = Config::with_origin(origin.url()).flows(flow(PATIENT)).start();
    let mut clients = clients(&egret, CLIENTS);
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    calls.until("the first is there", |calls| (calls.seen == 1).then_some(()));
    // The first response releases all other calls. Each of them is held until all have arrived, so sequential
    // calls would never end.
    let release = Arc::clone(&calls);
    let first = thread::spawn(move || {
        release.change(|calls| calls.is_released = true);
        release.until("the first has its answer", |calls| (calls.seen > 1).then_some(()));
        release.change(|calls| calls.is_released = false);
    });
    first.join().unwrap();
    calls.until("all others are there", |calls| (calls.seen == CLIENTS).then_some(()));
    calls.change(|calls| calls.is_released = true);
    for client in &mut clients {
        let response = client.response();
        response.assert_forwarded(200);
        assert!(response.field("cache-status").unwrap().contains("detail=no-store"), "{response:?}");
    }
    // From now on no call is held back.
    calls.change(|calls| (calls.is_released, calls.seen) = (false, 0));
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    calls.until("all are there", |calls| (calls.now == CLIENTS).then_some(()));
    calls.change(|calls| calls.is_released = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
}

#[test]
fn where_the_first_leaves_alone_another_takes_its_place() {
    let (origin, calls) = holding("Cache-Control: max-age=60");
    let egret = Config::with_origin(origin.url()).flows(flow(PATIENT)).start();
    let mut first = egret.client();
    first.get(egret.address(), "/origin/a");
    calls.until("the first is there", |calls| (calls.seen == 1).then_some(()));
    first.reset();
    until_true("the first is gone", || egret.stat("/clients/open") == 0);
    let mut others = clients(&egret, 20);
    for client in &mut others {
        client.get(egret.address(), "/origin/a");
    }
    calls.until("another is there", |calls| (calls.seen == 2).then_some(()));
    calls.change(|calls| calls.is_released = true);
    for client in &mut others {
        client.response().assert_forwarded(200);
    }
    assert_eq!(origin.requests().len(), 2);
}

/// Returns the caller and target of a request, which the provider's response contains.
fn received(request: &Request) -> String {
    format!("{} {}", request.target(), request.values("authorization").join(","))
}

#[test]
fn responses_are_not_shared_between_credentials() {
    const CREDENTIALS: u64 = 50;
    const REQUESTS: u64 = 10_000;
    const THREADS: u64 = 4;
    let origin = Provider::with_responses(|request| {
        let freshness = if request.target().ends_with('0') { "max-age=0" } else { "max-age=600" };
        let fields = format!("Cache-Control: public, {freshness}\r\nETag: \"{}\"", request.target());
        ok_response(&fields, &received(request))
    });
    let egret = Config::with_origin(origin.url()).gateway("workers: 2").flows(flow("{}")).start();
    let _permit = permits::busy();
    let address = egret.address();
    let sending = (0..THREADS).map(|number| {
        thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut state = number + 1;
            for _ in 0..REQUESTS / THREADS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (who, what) = ((state >> 33) % CREDENTIALS, (state >> 45) % 20);
                let credential = if who == 0 { String::new() } else { format!("Bearer {who}") };
                let field = if who == 0 { String::new() } else { format!("Authorization: {credential}\r\n") };
                client.send(format!("GET /origin/{what} HTTP/1.1\r\nHost: {address}\r\n{field}\r\n"));
                assert_eq!(client.response().text(), format!("/{what} {credential}"));
            }
        })
    });
    let sending: Vec<_> = sending.collect();
    for thread in sending {
        thread.join().unwrap();
    }
    let hits = figure(&egret, "counts/hit");
    assert!(hits > REQUESTS / 2, "{hits}: it was tested");
    // About one call per caller for responses that stay fresh.
    let mut calls: HashMap<String, usize> = HashMap::new();
    for request in origin.requests() {
        *calls.entry(received(&request)).or_default() += 1;
    }
    assert!(
        calls.iter().all(|(what, count)| what.starts_with("/0") || what.starts_with("/10") || *count == 1)
    );
}

#[test]
fn responses_are_not_shared_between_field_values() {
    const NAMES: u64 = 300;
    let origin = Provider::with_responses(|request| {
        let fields = request.fields.iter().filter(|(name, _)| name.starts_with("X-F"));
        let received: Vec<String> = fields.map(|(name, value)| format!("{name}={value};")).collect();
        ok_response("Cache-Control: public, max-age=600", &received.concat())
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    let mut client = egret.client();
    let mut state = 7_u64;
    for _ in 0..NAMES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let letters =
            (0..=state % 20).map(|at| char::from(b'a' + u8::try_from((state >> (at + 8)) % 26).unwrap()));
        let name = format!("X-F{}", letters.collect::<String>());
        for value in ["one", "two", "", "one"] {
            client.send(format!(
                "GET /origin/a HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer a\r\n{name}: {value}\r\n\r\n",
                egret.address()
            ));
            assert_eq!(client.response().text(), format!("{name}={value};"));
        }
    }
    assert!(figure(&egret, "counts/hit") >= NAMES, "equal requests get the same response");
    // Fields that do not identify the caller are shared, with and without a credential.
    for credential in ["", "Authorization: Bearer b\r\n"] {
        let before = origin.requests().len();
        for (name, value) in
            [("User-Agent", "a"), ("User-Agent", "b"), ("traceparent", "00-1-1-00"), ("X-Request-Id", "1")]
        {
            client.send(format!(
                "GET /origin/b HTTP/1.1\r\nHost: {}\r\n{credential}{name}: {value}\r\n\r\n",
                egret.address()
            ));
            client.response().assert_forwarded(200);
        }
        assert_eq!(origin.requests().len(), before + 1, "{credential}");
    }
}

#[test]
fn a_flood_of_keys_takes_no_more_memory_than_there_is() {
    const KEYS: usize = 4_000;
    let origin = Provider::responding(ok_response("Cache-Control: max-age=600", &"x".repeat(2_000)));
    let cache = "{ memory: 1MiB, max_entry: 64KiB }";
    let egret = Config::with_origin(origin.url()).flows(flow(cache)).start();
    let mut client = egret.client();
    for number in 0..KEYS {
        client.get(egret.address(), &format!("/origin/{number}"));
        client.response().assert_forwarded(200);
    }
    let (entries, bytes) = (figure(&egret, "entries"), figure(&egret, "bytes"));
    assert!(bytes <= 1 << 20, "{bytes}");
    assert!(entries > 100 && entries < KEYS as u64 / 4, "{entries}");
    assert_eq!(figure(&egret, "evicted") + entries, KEYS as u64);
}
