//! Caches of a cluster: what one gateway removes, all remove, and nobody reads it in the store.

use std::time::{Duration, Instant};

use egret_tests::cached::{figure, ok_response, purge};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::members::KEY;
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait;
use serde_json::json;

/// Number of gateways.
const MEMBERS: usize = 8;
/// Time in which a purge reaches all gateways.
const REACHED: Duration = Duration::from_millis(100);

/// Starts the gateways, with `keys` of the cluster.
fn start(store: &RedisServer, origin: &Provider, keys: &str, count: usize) -> Vec<Egret> {
    let gateway = |member| {
        let config = Config::with_origin(origin.url()).flows(format!(
            "cluster: {{ name: tests, member: member-{member}{keys}, redis: {{ url: 'redis://{}' }} }}\n\
             flows: [{{ name: all, remedies: [{{ cache: {{ tags: [users] }} }}] }}]\n",
            store.address()
        ));
        Egret::start_with(&config, |command| {
            command.env("EGRET_TEST_KEY", KEY);
        })
    };
    let gateways: Vec<_> = (0..count).map(gateway).collect();
    for gateway in &gateways {
        // Joining a stream removes everything, so nothing is stored before.
        wait::until_true("the cache is shared", || purge(gateway, "tag=none")["told"] == json!(true));
    }
    gateways
}

const WITH_KEY: &str = ", key: '${env:EGRET_TEST_KEY}'";

fn provider() -> Provider {
    Provider::responding(ok_response("Cache-Control: max-age=3600", "stored"))
}

fn entries(gateway: &Egret) -> u64 {
    figure(gateway, "entries")
}

/// Stores this many responses in each gateway. Removals from before may still arrive.
fn fill(gateways: &[Egret], count: u64) {
    wait::until_true("the responses are stored", || {
        for gateway in gateways {
            for number in 0..count {
                assert_eq!(gateway.get(&format!("/secret-path/{number}")).status, 200);
            }
        }
        gateways.iter().all(|gateway| entries(gateway) == count)
    });
}

fn until_entries(gateways: &[Egret], count: u64) {
    for gateway in gateways {
        wait::until_true("the responses are removed", || entries(gateway) == count);
    }
}

#[test]
fn a_purge_reaches_eight_gateways_at_once_and_says_so() {
    let (store, origin) = (RedisServer::start(Flavor::Redis7), provider());
    let gateways = start(&store, &origin, WITH_KEY, MEMBERS);
    fill(&gateways, 3);
    let url = format!("{}/secret-path/1", origin.url());
    for (query, left) in [(format!("url={url}"), 2), ("tag=users".to_owned(), 0)] {
        let before = entries(&gateways[0]);
        let told = purge(&gateways[0], &query);
        let began = Instant::now();
        until_entries(&gateways, left);
        let reached = began.elapsed();
        assert_eq!(told, json!({ "purged": before - left, "told": true }), "{query}");
        assert!(reached <= REACHED, "{query} took {reached:?}");
    }
    let text = store.command(&["XRANGE", &stream(&store), "-", "+"]).words().join(" ");
    assert!(!text.contains("secret-path") && !text.contains("users"), "{text}");
}

/// The key of the only stream. It ends by itself.
fn stream(store: &RedisServer) -> String {
    let keys = store.command(&["KEYS", "egret:{tests:0}:g:*"]).words();
    let [key] = &keys[..] else { panic!("{keys:?}") };
    assert!(!store.command(&["PTTL", key]).words()[0].starts_with('-'), "{key} stays for ever");
    key.clone()
}

#[test]
fn a_change_through_one_gateway_invalidates_what_the_others_have() {
    let (store, origin) = (RedisServer::start(Flavor::Redis7), provider());
    let gateways = start(&store, &origin, WITH_KEY, 3);
    fill(&gateways, 2);
    let post = format!(
        "POST /origin/secret-path/1 HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
        gateways[0].address()
    );
    Client::connect(gateways[0].address()).send(post).response().assert_forwarded(200);
    until_entries(&gateways, 1);
    for gateway in &gateways {
        let response = gateway.get("/secret-path/0");
        assert!(response.field("cache-status").is_some_and(|status| status.contains("hit")), "{response:?}");
    }
}

#[test]
fn a_replaced_store_empties_the_caches() {
    let (mut store, origin) = (RedisServer::start(Flavor::Redis7), provider());
    let gateways = start(&store, &origin, WITH_KEY, 3);
    fill(&gateways, 2);
    store.kill();
    let told = wait::until("the loss is noticed", || {
        let told = purge(&gateways[0], "tag=none");
        (told["told"] == json!(false)).then_some(told)
    });
    let reason = "the store of the cluster cannot be used; the other gateways are told as soon as it can";
    assert_eq!(told["reason"], reason);
    store.restart();
    until_entries(&gateways, 0);
}

#[test]
fn without_a_key_a_purge_removes_everything_elsewhere_and_shows_nothing() {
    let (store, origin) = (RedisServer::start(Flavor::Redis7), provider());
    let gateways = start(&store, &origin, "", 2);
    fill(&gateways, 3);
    let url = format!("{}/secret-path/1", origin.url());
    assert_eq!(purge(&gateways[0], &format!("url={url}")), json!({ "purged": 1, "told": true }));
    until_entries(&gateways[..1], 2);
    until_entries(&gateways[1..], 0);
    let text = store.command(&["XRANGE", &stream(&store), "-", "+"]).words().join(" ");
    assert!(!text.contains("secret-path"), "{text}");
}
