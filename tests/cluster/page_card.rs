//! The page's card about the cluster: its gateways, the store, and what this gateway holds of a shared quota.

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};
use egret_tests::members::KEY;
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};

fn start(store: &RedisServer, origin: &Provider, member: &str) -> Egret {
    let config = Config::with_origin(origin.url()).flows(format!(
        "cluster: {{ name: payments, member: {member}, key: '${{env:EGRET_TEST_KEY}}', redis: {{ url: 'redis://{}' }} }}\n\
         quotas: {{ hourly: {{ kind: fixed, limit: 100, window: 1h, store: redis }} }}\n\
         flows: [{{ name: all, remedies: [{{ queue: {{ quota: hourly, max_wait: 1m }} }}] }}]\n",
        store.address()
    ));
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", KEY);
    })
}

#[test]
fn the_card_shows_gateways_store_and_quota() {
    let (mut store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let (one, _other) = (start(&store, &origin, "one"), start(&store, &origin, "other"));
    for _ in 0..3 {
        one.get("/").assert_forwarded(200);
    }
    let card = r#"
        await open("overview", "Cluster payments");
        const card = `[...document.querySelectorAll(".card")].find((card) => card.innerText.startsWith("Cluster"))?.innerText`;
        const until_card = (text) => page.until(`(${card}).includes(${JSON.stringify(text)}) && ${card}`);
        "#;
    let seen = browse(
        &one,
        &format!(
            r#"{card}
        await until_card("2 gateways");
        await until_card("of 100");
        return [await until_card("the store responds"), await page.axe()];"#
        ),
    );
    let text = seen[0].as_str().unwrap();
    for expected in ["this gateway is one", "hourly", "of 100", "up"] {
        assert!(text.contains(expected), "{expected} is missing: {text}");
    }
    assert_eq!(seen[1], serde_json::json!([]));
    store.kill();
    // The lease of the units lasts for another moment.
    let seen = browse(&one, &format!(r#"{card} return until_card("cut off");"#));
    assert!(seen.as_str().unwrap().contains("the store does not respond"), "{seen}");
}
