//! Calls of different costs, which the response settles: the provider never counts more units than the limit,
//! from all gateways together.

use std::time::Duration;

use egret_tests::clients::Clients;
use egret_tests::counted::{Counted, CountedCall, between};
use egret_tests::members::{Members, MembersConfig, target};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};
use egret_tests::wait;

use super::store_faults::MEMBERS;

const CLIENTS: usize = 60;
/// Units in any second, and the most that a call costs, which is charged in advance.
const LIMIT: u64 = 2_000;
const COST_MAX: u64 = 10;
const WINDOW_NS: u64 = 1_000_000_000;
const MEASURED: Duration = Duration::from_secs(15);

/// The most units in any second.
fn most_units(calls: &[CountedCall]) -> u64 {
    let (mut begin, mut units, mut max) = (0, 0, 0);
    for call in calls {
        units += call.cost;
        while calls[begin].came + WINDOW_NS <= call.came {
            units -= calls[begin].cost;
            begin += 1;
        }
        max = max.max(units);
    }
    max
}

#[test]
fn costs_are_settled_by_the_response() {
    let line = Timeline::new("costs");
    let (store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let config = MembersConfig::new(store.config()).queue(
        "costs",
        &format!(
            "limit: {LIMIT}, window: 1s, cost: {{ request: '{COST_MAX}', response: 'int(response.body.cost)' }}"
        ),
    );
    let members = Members::start(&config, &provider, MEMBERS);
    let clients = |number: usize| {
        let targets = [1, 4, COST_MAX].map(|cost| target(number, &format!("costs?ms=10&cost={cost}")));
        Clients::start(members.gateway(number).address(), &targets, CLIENTS)
    };
    let _clients: Vec<_> = (0..MEMBERS).map(clients).collect();
    wait::until_true("calls arrive", || provider.count("costs") > 0);
    pass(Duration::from_secs(4));
    let from = provider.now();
    pass(MEASURED);
    let calls = provider.calls("costs");
    let max = most_units(&calls);
    line.claim(max <= LIMIT, format!("worst {max} of {LIMIT} units, {} calls", calls.len()));
    let used: u64 = between(&calls, from, u64::MAX).iter().map(|call| call.cost).sum();
    let percent = used * 100 / (LIMIT * MEASURED.as_secs());
    line.claim(percent >= 90, format!("{percent} % used"));
}
