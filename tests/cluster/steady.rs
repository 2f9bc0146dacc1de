//! Eight gateways with a thousand clients each, who all wait: the provider never counts more than the limit,
//! nearly all of it is used, every gateway has its share, and the store is seldom called.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, until_lent};
use egret_tests::process::raise_open_files;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass, per_second};

/// Number of gateways, and clients of each.
const MEMBERS: usize = 8;
const CLIENTS: usize = 1_000;
/// Time after the first calls in which the holds settle, and time that is measured.
const SETTLED: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(15);
/// Time over which holds are averaged, and number of samples.
const AVERAGED: Duration = Duration::from_secs(2);
const SAMPLES: u32 = 20;
/// Calls to the store per member and second.
const STORE_CALLS_MAX: f64 = 1.5;

#[test]
fn limits_of_any_size_hold_and_are_used() {
    for flavor in Flavor::ALL {
        let line = Timeline::new(format!("steady, {flavor:?}"));
        hold(flavor, &[5, 20, 100, 1_000].map(Allowance::sliding), &line);
    }
}

#[test]
fn limits_of_any_kind_hold_and_are_used() {
    let line = Timeline::new("steady, each kind");
    hold(Flavor::Redis7, &Allowance::each_short(), &line);
}

fn hold(flavor: Flavor, allowances: &[Allowance], line: &Timeline) {
    raise_open_files();
    let (store, provider) = (RedisServer::start(flavor), Counted::start());
    let config = MembersConfig::new(store.config()).queues(allowances);
    let members = Members::start(&config, &provider, MEMBERS);
    let _clients = members.all_clients(allowances, CLIENTS);
    until_lent(&provider, allowances);
    line.say("lent");
    pass(SETTLED);
    let (from, calls) = (provider.now(), store.calls_of("evalsha"));
    pass(MEASURED);
    let (to, calls) = (provider.now(), store.calls_of("evalsha") - calls);
    for each in allowances {
        each.claim_kept(&provider, line);
        each.claim_used(&provider, from, to, 0.95, line);
    }
    for each in allowances {
        members.claim_shared(each, AVERAGED, SAMPLES, line);
    }
    let member_time = Duration::from_nanos(to - from) * u32::try_from(MEMBERS).unwrap();
    let rate = per_second(calls, member_time);
    line.claim(rate <= STORE_CALLS_MAX, format!("{rate:.2} calls to the store per member and second"));
}
