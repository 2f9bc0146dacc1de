//! The names of groups may be credentials: nothing that a gateway sends to the store, or stores there, shows
//! one.

use std::collections::BTreeSet;

use egret_tests::counted::Counted;
use egret_tests::members::{KEY, Members, MembersConfig, target};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::Timeline;

const TOKENS: [&str; 3] = ["sk_live_4eC39HqLyjWDarjtT1zdp7dc", "Bearer-of-alice", "x"];
const PASSWORD: &str = "the-password-of-the-store";

#[test]
fn the_store_is_shown_no_name_of_a_group_and_no_secret() {
    let line = Timeline::new("secret names");
    let rights = ["--user", "egret", "on", &format!(">{PASSWORD}"), "~egret:*", "&egret:*", "+@all"];
    let (store, provider) = (RedisServer::start_with(Flavor::Redis7, &rights), Counted::start());
    let monitor = store.monitor();
    let redis = format!(
        "{{ url: 'redis://{}', username: egret, password: '${{env:EGRET_TEST_PASSWORD}}' }}",
        store.address()
    );
    let config = MembersConfig::new(redis).environment("EGRET_TEST_PASSWORD", PASSWORD).quota(
        "per-key",
        "limit: 100, window: 1s, group_by: 'header:authorization'",
        "queue: { quota: per-key, max_wait: 1h }",
    );
    let members = Members::start(&config, &provider, 2);
    std::thread::scope(|scope| {
        for number in 0..2 {
            for token in TOKENS {
                let gateway = members.gateway(number);
                scope.spawn(move || {
                    let fields = format!("Host: {}\r\nAuthorization: {token}\r\n", gateway.address());
                    let request = format!("GET {} HTTP/1.1\r\n{fields}\r\n", target(number, "per-key"));
                    let response = gateway.client().send(&request).response();
                    assert_eq!(response.status, 200, "{response:?}");
                });
            }
        }
    });
    let keys: BTreeSet<String> = store.command(&["KEYS", "*"]).words().into_iter().collect();
    line.say(format!("keys: {keys:?}"));
    let groups = keys.iter().filter(|key| key.contains(":q:per-key:")).count();
    assert_eq!(groups, TOKENS.len());
    let seen = monitor.seen() + &store.dump();
    line.say(format!("{} bytes of commands and values searched", seen.len()));
    assert!(seen.contains("EVALSHA"), "{seen}");
    for secret in [TOKENS[0], TOKENS[1], PASSWORD, KEY] {
        assert!(!seen.contains(secret), "{secret} is in {seen}");
    }
}
