//! Alerts of quotas that gateways share: one of the gateways tells each.

use egret_tests::egret::{Config, Egret};
use egret_tests::members::KEY;
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait::far_from_now;

/// Starts the gateway with this number.
fn member(number: usize, origin: &Provider, receiver: &Provider, store: &RedisServer) -> Egret {
    let config = Config::with_origin(origin.url()).flows(format!(
        "cluster: {{ name: alerts, member: member-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {} }}\n\
         exporters: {{ pager: {{ type: webhook, url: '{}/hook' }} }}\n\
         alerts: {{ export: pager }}\n\
         quotas: {{ daily: {{ kind: calendar, period: day, limit: 40, store: redis, renews: {{ time: '{}' }}, \
         alerts: [50%, 100%] }} }}\n\
         flows: [{{ name: all, remedies: [queue: {{ quota: daily, max_wait: 20s }}] }}]\n",
        store.config(),
        receiver.url(),
        far_from_now(),
    ));
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", KEY);
    })
}

#[test]
fn one_of_two_gateways_tells_each_alert() {
    let (origin, receiver, store) =
        (Provider::plain(), Provider::plain(), RedisServer::start(Flavor::Redis7));
    let members = [0, 1].map(|number| member(number, &origin, &receiver, &store));
    for _ in 0..20 {
        for member in &members {
            member.get("/").assert_forwarded(200);
        }
    }
    // Both notice that nothing is left, and tell what waits before they end.
    for mut member in members {
        member.get("/").assert_generated(429, "queue-timeout");
        member.terminate();
        assert!(member.until_ended().success());
    }
    let requests = receiver.requests();
    let texts: Vec<_> = requests.iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
    let count = |percent: &str| texts.iter().filter(|text| text.contains(percent)).count();
    assert_eq!((texts.len(), count("reached 50%"), count("reached 100%")), (2, 1, 1), "{texts:?}");
}
