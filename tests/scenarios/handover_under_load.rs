//! Restarts by hand-over under load: no client sees an error, and the provider never counts above the limit.

use std::time::Duration;

use egret_tests::counted::{Counted, most_in_any};
use egret_tests::egret::Config;
use egret_tests::load::Load;
use egret_tests::wait;

const LIMIT: usize = 200;
const RESTARTS: usize = 3;

#[test]
fn restarts_under_load_lose_no_request_and_keep_the_quota() {
    let provider = Counted::start();
    let flows = format!(
        "quotas: {{ q: {{ limit: {LIMIT}, window: 1s }} }}\n\
         flows: [{{ name: all, remedies: [queue: {{ quota: q, max_wait: 1h }}] }}]\n"
    );
    let mut egret = Config::with_origin(provider.url()).flows(flows).start();
    let loads = [true, false].map(|kept| Load::start(egret.address(), "/origin/q", 8, kept));
    for _ in 0..RESTARTS {
        let seen = provider.count("q");
        wait::until_true("the load goes on", || provider.count("q") > seen + LIMIT);
        let mut old = egret.take_over();
        assert!(old.until_ended().success(), "{}", old.stderr());
    }
    for tally in loads.map(Load::finish) {
        assert!(tally.failures.is_empty() && tally.refused == 0, "{tally:?}");
        assert!(tally.completed == tally.sent && tally.completed > 0, "{tally:?}");
    }
    let most = most_in_any(&provider.calls("q"), Duration::from_secs(1));
    assert!(most <= LIMIT, "{most} of {LIMIT}");
}
