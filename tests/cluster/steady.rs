//! Eight gateways with a thousand clients each: the provider never counts more than the limit, and nearly all of
//! it is used.

use std::time::Duration;

use egret_tests::counted::{Counted, most_in_any};
use egret_tests::members::{Members, MembersConfig, Timeline, pass, until_lent};
use egret_tests::process::raise_open_files;
use egret_tests::redis::{Flavor, RedisServer};

/// Number of gateways.
const MEMBERS: usize = 8;
/// Clients of each gateway.
const CLIENTS: usize = 1_000;
/// Time after the first calls in which the holds settle, and time that is measured.
const SETTLED: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(20);

#[test]
fn a_limit_of_any_size_holds_and_is_used() {
    raise_open_files();
    for flavor in Flavor::ALL {
        sliding(flavor);
    }
}

fn sliding(flavor: Flavor) {
    let line = Timeline::new(format!("steady, sliding, {flavor:?}"));
    let (store, provider) = (RedisServer::start(flavor), Counted::start());
    let limits = [5, 20, 100, 1_000];
    let names = limits.map(|limit| format!("sliding-{limit}"));
    let mut config = MembersConfig::new(store.config());
    for (limit, name) in limits.iter().zip(&names) {
        config = config.queue(name, &format!("limit: {limit}, window: 1s"));
    }
    let members = Members::start(&config, &provider, MEMBERS);
    let targets = names.each_ref().map(|name| format!("{name}?ms=10"));
    let _crowds = members.crowds(&targets.each_ref().map(String::as_str), CLIENTS);
    until_lent(&provider, &names.each_ref().map(String::as_str));
    line.say("all groups are lent");
    pass(SETTLED);
    let (from, calls) = (provider.now(), store.calls_of("evalsha"));
    pass(MEASURED);
    let (to, calls) = (provider.now(), store.calls_of("evalsha") - calls);
    let elapsed = Duration::from_nanos(to - from).as_secs_f64();
    for (limit, name) in limits.into_iter().zip(&names) {
        let worst = most_in_any(&provider.calls(name), Duration::from_secs(1));
        let used = provider.count_between(name, from, to) as f64 / (limit as f64 * elapsed);
        line.say(format!("limit {limit}: worst second {worst}, {:.1} % used", used * 100.0));
        assert!(worst <= limit, "{worst} calls in a second");
        assert!(used >= 0.95, "{used}");
    }
    let rate = calls as f64 / (elapsed * MEMBERS as f64);
    line.say(format!("{rate:.2} calls to the store per member and second"));
    assert!(rate <= 1.5, "{rate}");
}
