//! A quota of a long sliding window that gateways share: a first start serves soon, and a restart after which
//! the store has forgotten everything does not serve what was already used.

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait;

/// Seconds of learning that only the window explains.
const LONG_S: f64 = 3_000.0;

fn status(egret: &Egret) -> u16 {
    egret.client().get(egret.address(), "/origin/").response().status
}

/// Remaining time in which the store lends nothing, in seconds.
fn learning_s(egret: &Egret) -> f64 {
    let metrics = egret.control_get("/metrics");
    let line = metrics.text().lines().find_map(|line| line.strip_prefix("egret_cluster_learning_seconds "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_long_sliding_window_serves_at_first_and_never_twice() {
    let (mut store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let flows = format!(
        "cluster: {{ name: tests, member: one, redis: {} }}\n\
         quotas: {{ hourly: {{ limit: 5, window: 1h, store: redis }} }}\n\
         flows: [{{ name: all, match: {{ provider: origin }}, remedies: [limit: hourly] }}]\n",
        store.config()
    );
    let config = Config::with_origin(origin.url()).flows(flows);
    let mut egret = config.start();
    wait::until_value("a call is served", || status(&egret), |status| *status == 200);

    egret.terminate();
    egret.until_ended();
    store.kill();
    store.restart();
    egret.start_again(&config, |_| {});
    let learning = || {
        assert_ne!(status(&egret), 200, "the store lends units that may be used");
        learning_s(&egret)
    };
    wait::until_value("the store learns for the window", learning, |seconds| *seconds > LONG_S);
}
