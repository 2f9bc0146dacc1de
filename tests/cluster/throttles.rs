//! A provider refuses one gateway: all gateways of the cluster stop at once, one of them finds out when the
//! pause is over, and an account that is refused cools down for all who have its credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait::{self, Watched};

const MEMBERS: usize = 8;
/// Longest time from a refusal to the last call of any gateway.
const STOP_MAX: Duration = Duration::from_millis(100);
/// Pause that the provider asks for.
const PAUSE: Duration = Duration::from_secs(2);
const TOKEN: &str = "the-token-of-an-account";

/// A provider that refuses when it is told to, and notes when calls arrive.
#[derive(Default)]
struct Throttling {
    refuses: AtomicBool,
    holds: AtomicBool,
    refused: Watched<Option<Instant>>,
    calls: AtomicUsize,
    last: Watched<Option<Instant>>,
}

impl Throttling {
    fn start() -> (Arc<Self>, Provider) {
        let throttling = Arc::new(Self::default());
        let shared = Arc::clone(&throttling);
        let provider = Provider::with_responses(move |_| shared.respond());
        (throttling, provider)
    }

    fn respond(&self) -> Vec<u8> {
        let now = Instant::now();
        self.last.change(|last| *last = Some(now));
        self.calls.fetch_add(1, SeqCst);
        if self.refuses.swap(false, SeqCst) {
            self.refused.change(|refused| *refused = Some(Instant::now()));
            return refusal(429, &format!("Retry-After: {}\r\n", PAUSE.as_secs()));
        }
        if self.holds.load(SeqCst) {
            wait::until_true("the provider may respond", || !self.holds.load(SeqCst));
        }
        ok("served")
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

fn refusal(status: u16, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} No\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
}

/// Starts a member whose account has this token.
fn member(number: usize, store: &RedisServer, provider: &Provider, flows: &str, token: &str) -> Egret {
    let cluster = format!(
        "{{ name: tests, member: member-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {} }}",
        store.config()
    );
    let config = Config::with_origin(provider.url()).flows(format!("cluster: {cluster}\n{flows}"));
    let gateway = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", "0123456789abcdef0123456789abcdef").env("EGRET_TEST_TOKEN", token);
    });
    gateway.until_logged("gateway listening");
    gateway
}

/// Waits until all members receive the news of the cluster.
fn until_subscribed(store: &RedisServer, members: usize) {
    wait::until_true("all members listen", || {
        store.command(&["PUBSUB", "NUMSUB", "egret:{tests:0}:t"]).words().last() == Some(&members.to_string())
    });
}

fn assert_throttled(response: &Response) {
    response.assert_generated(429, "provider-throttled");
}

#[test]
fn one_refusal_stops_eight_gateways_and_one_call_finds_out() {
    const FLOWS: &str = "flows:\n  - { name: f, remedies: [{ provider-throttle: {} }] }\n";
    let (store, (throttling, provider)) = (RedisServer::start(Flavor::Redis7), Throttling::start());
    let gateways: Vec<Egret> =
        (0..MEMBERS).map(|number| member(number, &store, &provider, FLOWS, TOKEN)).collect();
    until_subscribed(&store, MEMBERS);

    thread::scope(|scope| {
        for gateway in &gateways {
            scope.spawn(|| {
                let mut client = gateway.client();
                wait::until_true("the gateway stops calling", || {
                    let response = client.get(gateway.address(), "/origin/f").response();
                    response.field("x-egret-error") == Some("provider-throttled")
                });
            });
        }
        wait::until_true("all are at work", || throttling.calls() >= 20 * MEMBERS);
        throttling.refuses.store(true, SeqCst);
    });
    let refused = throttling.refused.read(|refused| refused.unwrap());
    let stopped = throttling.last.read(|last| last.unwrap()).saturating_duration_since(refused);
    println!(
        "the last call of {MEMBERS} gateways arrives {:.1} ms after the refusal",
        stopped.as_secs_f64() * 1e3
    );
    assert!(stopped <= STOP_MAX, "{stopped:?}");

    // The first call after the pause is the probe. Until its response, no other one is sent.
    throttling.holds.store(true, SeqCst);
    let before = throttling.calls();
    thread::scope(|scope| {
        let probe = scope.spawn(|| {
            wait::until("the pause ends", || {
                let response = gateways[0].get("/origin/f");
                (response.field("x-egret-error") != Some("provider-throttled")).then_some(response)
            })
        });
        wait::until_true("the probe arrives", || throttling.calls() > before);
        assert!(refused.elapsed() >= PAUSE);
        for gateway in &gateways {
            assert_throttled(&gateway.get("/origin/f"));
        }
        assert_eq!(throttling.calls(), before + 1, "one probe");
        throttling.holds.store(false, SeqCst);
        probe.join().unwrap().assert_forwarded(200);
    });
    for gateway in &gateways {
        wait::until_true("calls go out again", || gateway.get("/origin/f").status == 200);
    }
}

const ACCOUNT: &str = "accounts:\n  a: { provider: origin, bearer: { token: '${env:EGRET_TEST_TOKEN}' } }\n\
                       flows:\n  - { name: f, remedies: [{ accounts: { use: [a] } }] }\n";

/// A provider that accepts all tokens but one.
fn refusing() -> Provider {
    Provider::with_responses(|request: &Request| {
        if request.values("authorization") == [format!("Bearer {TOKEN}")] {
            refusal(401, "")
        } else {
            ok("served")
        }
    })
}

fn until_cooling(gateway: &Egret) {
    wait::until_true("the gateway knows of the refusal", || {
        let accounts = gateway.control_get("/api/v1/accounts").json();
        accounts["accounts"][0]["state"] == "cooling"
    });
    gateway.get("/origin/f").assert_generated(503, "account-unavailable");
}

#[test]
fn a_refused_account_cools_down_for_all_who_have_its_credential() {
    let (store, provider) = (RedisServer::start(Flavor::Redis7), refusing());
    let [one, two] = [0, 1].map(|number| member(number, &store, &provider, ACCOUNT, TOKEN));
    let renewed = member(2, &store, &provider, ACCOUNT, "another-token");
    until_subscribed(&store, 3);
    one.get("/origin/f").assert_forwarded(401);
    until_cooling(&two);
    until_cooling(&member(3, &store, &provider, ACCOUNT, TOKEN));
    assert_eq!(provider.requests().len(), 1);
    renewed.get("/origin/f").assert_forwarded(200);

    let marks = store.command(&["HGETALL", "egret:{tests:0}:t:m"]).words();
    assert_eq!(marks.len(), 2, "{marks:?}");
    let seen = [store.command(&["KEYS", "*"]).words(), marks].concat().join(" ");
    for name in [TOKEN, "origin", "account"] {
        assert!(!seen.contains(name), "{name} is in {seen}");
    }
}

#[test]
fn a_throttle_learned_without_the_store_is_shared_later() {
    let (mut store, provider) = (RedisServer::start(Flavor::Redis7), refusing());
    let [one, two] = [0, 1].map(|number| member(number, &store, &provider, ACCOUNT, TOKEN));
    until_subscribed(&store, 2);
    store.kill();
    one.get("/origin/f").assert_forwarded(401);
    until_cooling(&one);
    store.restart();
    until_cooling(&two);
    assert_eq!(provider.requests().len(), 1);
}
