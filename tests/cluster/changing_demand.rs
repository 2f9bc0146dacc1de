//! Demand moves from gateway to gateway, and calls are refused: nearly all of the allowance is used, and the
//! store is not called more often for it.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::clients::Clients;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, target, until_lent};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass, per_second};

use super::store_faults::MEMBERS;

/// Clients of the gateway that has work. They need a tenth of a second for all that the limit allows in one.
const CLIENTS: usize = 40;
/// Time for which one gateway has all the work.
const TURN: Duration = Duration::from_secs(5);
/// Clients that are refused at each gateway, and the times after which they try again.
const REFUSED: usize = 20;
const CALM: Duration = Duration::from_secs(1);
const HASTY: Duration = Duration::from_millis(100);
/// Time for which calls to the store are counted.
const COUNTED: Duration = Duration::from_secs(8);
/// Calls to the store per member and second, wherever demand lies.
const STORE_CALLS_MAX: f64 = 11.0;

#[test]
fn units_follow_the_demand() {
    let line = Timeline::new("rotating demand");
    let (store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let allowances = [Allowance::sliding(100)];
    let members = Members::start(&MembersConfig::new(store.config()).queues(&allowances), &provider, MEMBERS);
    let clients = members.all_clients(&allowances, CLIENTS);
    clients.iter().skip(1).for_each(|clients| clients.allow(0));
    until_lent(&provider, &allowances);
    pass(TURN);
    let from = provider.now();
    for number in 1..MEMBERS {
        clients[number - 1].allow(0);
        clients[number].allow(CLIENTS);
        pass(TURN);
    }
    allowances[0].claim_kept(&provider, &line);
    allowances[0].claim_used(&provider, from, provider.now(), 0.90, &line);
}

#[test]
fn refused_calls_do_not_reach_the_store() {
    let line = Timeline::new("refused calls");
    let (store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let each = Allowance::sliding(20);
    let config = MembersConfig::new(store.config()).quota(
        each.name(),
        &each.keys(),
        &format!("limit: {{ quota: {} }}", each.name()),
    );
    let members = Members::start(&config, &provider, MEMBERS);
    let rate = |pause: Duration| {
        let clients: Vec<_> = (0..MEMBERS)
            .map(|number| {
                let targets = [target(number, &each.target())];
                Clients::start_with(members.gateway(number).address(), &targets, REFUSED, pause)
            })
            .collect();
        until_lent(&provider, std::slice::from_ref(&each));
        pass(Duration::from_secs(2));
        let refused = || clients.iter().map(|clients| clients.counts().refused).sum::<u64>();
        let (calls, before) = (store.calls_of("evalsha"), refused());
        pass(COUNTED);
        let (calls, refused) = (store.calls_of("evalsha") - calls, refused() - before);
        let (calls, refused) =
            (per_second(calls, COUNTED * u32::try_from(MEMBERS).unwrap()), per_second(refused, COUNTED));
        line.say(format!(
            "{refused:.0} calls refused per second: {calls:.2} to the store per member and second"
        ));
        calls
    };
    let (calm, hasty) = (rate(CALM), rate(HASTY));
    each.claim_kept(&provider, &line);
    line.claim(calm.max(hasty) <= STORE_CALLS_MAX, "at most 11 calls to the store");
    let figure = format!("ten times the load: {hasty:.2} calls instead of {calm:.2}");
    line.claim(hasty <= calm * 1.25 + 0.5, figure);
}
