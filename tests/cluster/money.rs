//! Budgets that gateways share: many streams at once through two of them, one of which is killed. The
//! provider never bills more than a limit.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::members::KEY;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::spending::{Gateways, Spending, Unit, assert_nothing_reserved, used};
use egret_tests::wait::{far_from_now, until_true};

/// Starts the gateway with this number.
fn member(number: usize, spending: Spending, provider: &BuiltIn, store: &RedisServer) -> Egret {
    let keys = format!("store: redis, renews: {{ time: '{}' }}", far_from_now());
    let cluster = format!(
        "cluster: {{ name: money, member: member-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {} }}\n",
        store.config()
    );
    let config = Config::default()
        .provider_with("llm", format!("http://{}/llm/openai", provider.address()), "preset: openai")
        .flows(cluster + &spending.flows(&keys, "50ms", "queue: { quota: team, max_wait: 5s }"));
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", KEY);
    })
}

/// Spends through two gateways. The second one is killed when half of the calls have ended.
fn spend(unit: Unit) {
    let spending = Spending { unit, seed: 1, streams: 40, calls: 10 };
    let (provider, store) = (BuiltIn::start(&[]), RedisServer::start(Flavor::Redis7));
    let members = [0, 1].map(|number| member(number, spending, &provider, &store));
    let addresses = members.each_ref().map(Egret::address).to_vec();
    let gateways = Gateways::new(addresses.clone());
    gateways.until_served();
    let [first, second] = members;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gateways.until_ended(spending.count() / 2);
            second.process().signal("KILL");
            gateways.set(vec![addresses[0]]);
        });
        spending.spend(&gateways);
    });
    let bills = spending.bills(&provider);
    spending.assert_within(&bills, &gateways);
    assert_nothing_reserved(&first);
    // What the killed one held counts as used, so the other one charges at least what was billed.
    until_true("all that was billed is charged", || {
        used(&first)
            .iter()
            .all(|(team, used)| bills.get(team.as_str()).is_none_or(|bill| *used >= bill.billed))
    });
}

#[test]
fn money_of_two_gateways_is_never_exceeded() {
    spend(Unit::Money);
}

#[test]
fn tokens_of_two_gateways_are_never_exceeded() {
    spend(Unit::Tokens);
}
