//! Slots of concurrent calls, shared among gateways: calls that last for long hold theirs to the end, and the
//! slots of a gateway that is killed come back.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::clients::Clients;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, target, until_lent};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};

use super::store_faults::MEMBERS;

const SLOTS: usize = 10;
const CLIENTS: usize = 5;
/// Length of each stream, longer than a lease and all that follows it.
const STREAM_MS: u64 = 15_000;
/// Time for the streams of each gateway: two, one after the other, and some more.
const MEASURED: Duration = Duration::from_secs(32);

#[test]
fn long_streams_hold_their_slots() {
    let line = Timeline::new("long streams");
    let (store, provider) = (RedisServer::start(Flavor::Valkey9), Counted::start());
    let each = Allowance::concurrent(SLOTS, 0);
    let config =
        MembersConfig::new(store.config()).cluster("keep_for: 1s").queues(std::slice::from_ref(&each));
    let mut members = Members::start(&config, &provider, MEMBERS);
    let clients = |members: &Members, number: usize| {
        let targets = [target(number, &format!("{}?stream={STREAM_MS}", each.name()))];
        Clients::start(members.gateway(number).address(), &targets, CLIENTS)
    };
    let mut clients: Vec<_> = (0..MEMBERS).map(|number| Some(clients(&members, number))).collect();
    until_lent(&provider, std::slice::from_ref(&each));
    line.say("lent");
    let from = provider.now();
    pass(Duration::from_secs(5));
    members.kill(0);
    clients[0] = None;
    line.say("a gateway is killed");
    pass(MEASURED);
    each.claim_kept(&provider, &line);
    each.claim_used(&provider, from, provider.now(), 0.80, &line);
    let lost: u64 = clients.iter().flatten().map(|clients| clients.counts().lost).sum();
    line.claim(lost == 0, format!("{lost} streams of other gateways were cut"));
}
