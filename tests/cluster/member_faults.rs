//! Gateways are killed, stopped for a while, and restarted with another limit: the provider never counts more
//! than the limit.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::clients::Clients;
use egret_tests::counted::{Counted, between, most_in_any};
use egret_tests::members::{Members, MembersConfig, until_lent, until_lent_to};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};

use super::store_faults::{CLIENTS, MEMBERS, SETTLED};

/// Time for which members go on when they are cut off; the store counts their units for longer.
const KEEP: &str = "keep_for: 1s";
/// Time until the units of a dead member are lent again: its lease, what it keeps, the time for the last
/// calls to arrive, the window, and the two seconds for a step of the clock; and a second to be asked for.
const LENT_AGAIN_MAX: Duration = Duration::from_secs(3 + 1 + 5 + 1 + 2 + 1);
/// Time until the units that a member had in use when it left are lent again.
const LEFT_MAX: Duration = Duration::from_secs(5 + 1 + 2 + 1);
/// The longest stop after which a lease may still be in force, and one after which none is.
const SHORT_STOP: Duration = Duration::from_secs(2);
const LONG_STOP: Duration = Duration::from_secs(20);
/// Calls that one turn of a worker's loop can have in hand.
const TURN_CALLS_MAX: usize = 16;

struct Scene {
    line: Timeline,
    provider: Counted,
    allowances: Vec<Allowance>,
    config: MembersConfig,
    members: Members,
    clients: Vec<Option<Clients>>,
    _store: RedisServer,
}

impl Scene {
    fn start(name: &str, allowances: Vec<Allowance>) -> Self {
        let (line, store, provider) =
            (Timeline::new(name), RedisServer::start(Flavor::Redis7), Counted::start());
        let config = MembersConfig::new(store.config()).cluster(KEEP);
        let members = Members::start(&config.clone().queues(&allowances), &provider, MEMBERS);
        let clients = members.all_clients(&allowances, CLIENTS).into_iter().map(Some).collect();
        until_lent(&provider, &allowances);
        line.say("lent");
        pass(SETTLED);
        Self { line, provider, allowances, config, members, clients, _store: store }
    }

    fn signal(&self, number: usize, signal: &str) {
        self.members.gateway(number).process().signal(signal);
    }

    fn claim_kept(&self) {
        for each in &self.allowances {
            each.claim_kept(&self.provider, &self.line);
        }
    }
}

#[test]
fn two_gateways_are_killed_and_their_units_come_back() {
    let mut scene = Scene::start("two killed", Allowance::each_short());
    for number in [0, 1] {
        scene.members.kill(number);
        scene.clients[number] = None;
    }
    scene.line.say("killed");
    pass(LENT_AGAIN_MAX);
    let from = scene.provider.now();
    pass(SETTLED);
    let to = scene.provider.now();
    scene.claim_kept();
    for each in &scene.allowances {
        each.claim_used(&scene.provider, from, to, 0.95, &scene.line);
    }
    // Restarted, they have their share again.
    for number in [0, 1] {
        scene.members.restart(number);
        scene.clients[number] = Some(scene.members.clients(number, &scene.allowances, CLIENTS));
        let time = until_lent_to(number, &scene.provider, &scene.allowances);
        scene.line.say(format!("member {number} is lent units after {:.1} s", time.as_secs_f64()));
    }
    pass(SETTLED);
    scene.claim_kept();
}

#[test]
fn each_gateway_stands_still_for_two_seconds() {
    let scene = Scene::start("stopped for 2 s", Allowance::each_short());
    for number in 0..MEMBERS {
        scene.signal(number, "STOP");
        pass(SHORT_STOP);
        scene.signal(number, "CONT");
    }
    pass(SETTLED);
    scene.claim_kept();
}

#[test]
fn a_paused_gateway_sends_only_its_leased_units() {
    let scene = Scene::start("stopped for 20 s", Allowance::each_short());
    scene.signal(0, "STOP");
    pass(LONG_STOP);
    scene.signal(0, "CONT");
    pass(SETTLED);
    for each in &scene.allowances {
        each.claim_kept_but(TURN_CALLS_MAX, &scene.provider, 0, &scene.line);
    }
    let time = until_lent_to(0, &scene.provider, &scene.allowances);
    scene.line.say(format!("its next calls arrive within {:.1} s", time.as_secs_f64()));
}

#[test]
fn a_rolling_restart_lowers_the_limit() {
    let mut scene = Scene::start("rolling restart", vec![Allowance::sliding(100)]);
    let lowered: Vec<_> = scene.allowances.iter().map(|each| each.limited_to(60)).collect();
    scene.members.reconfigure(&scene.config.clone().queues(&lowered));
    let mut first = None;
    for number in 0..MEMBERS {
        scene.clients[number] = None;
        scene.members.stop(number);
        scene.members.restart(number);
        scene.clients[number] = Some(scene.members.clients(number, &lowered, CLIENTS));
        until_lent_to(number, &scene.provider, &lowered);
        first.get_or_insert(scene.provider.now());
        scene.line.say(format!("member {number} has the limit of 60"));
    }
    pass(LEFT_MAX);
    let from = scene.provider.now();
    pass(2 * SETTLED);
    scene.claim_kept();
    let calls = scene.provider.calls(scene.allowances[0].name());
    let since_first = most_in_any(between(&calls, first.unwrap(), u64::MAX), Duration::from_secs(1));
    scene.line.say(format!("worst {since_first} since the first member had it"));
    lowered[0].claim_kept_but(0, &scene.provider, from, &scene.line);
    lowered[0].claim_used(&scene.provider, from, scene.provider.now(), 0.95, &scene.line);
}
