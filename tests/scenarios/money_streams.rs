//! Many streams at once under nested budgets, whatever happens to the calls and to the gateway: the provider
//! never bills more than a limit, and nothing stays held.
//!
//! `make ledger ONLY=money_streams` does so with 1,000 streams and twenty seeds.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::permits::busy;
use egret_tests::spending::{Gateways, Spending, Unit, assert_nothing_reserved};
use egret_tests::wait::far_from_now;

/// Streams at once, calls of each, and seeds, unless the environment asks for others.
const STREAMS: usize = 100;
const CALLS: usize = 3;
const SEEDS: u64 = 1;

/// Events in the life of the gateway meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// A reload, and a hand-over to another process.
    Replaced,
    /// A reload, a hand-over, and SIGKILL.
    Killed,
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

fn config(spending: Spending, provider: &BuiltIn, hedge_after: &str) -> Config {
    let keys = format!("store: file, renews: {{ time: '{}' }}", far_from_now());
    Config::default()
        .provider_with("llm", format!("http://{}/llm/openai", provider.address()), "preset: openai")
        .flows(spending.flows(&keys, hedge_after, "limit: team"))
}

/// Reloads and replaces the gateway while the calls are made. Returns the one that runs at the end, and the
/// log of the first one.
fn trouble(
    mut egret: Egret,
    spending: Spending,
    provider: &BuiltIn,
    gateways: &Gateways,
    trouble: Trouble,
) -> (Egret, String) {
    let part = |quarter: usize| gateways.until_ended(spending.count() * quarter / 5);
    part(1);
    egret.change_config(config(spending, provider, "60ms").yaml());
    part(2);
    let mut old = egret.take_over();
    assert!(old.until_ended().success(), "{}", old.stderr());
    let log = old.stderr();
    if trouble == Trouble::Killed {
        part(3);
        egret = egret.restart("KILL", &config(spending, provider, "50ms"));
        gateways.set(vec![egret.address()]);
    }
    (egret, log)
}

/// Spends with each seed.
fn spend(unit: Unit, what: Trouble) {
    let _busy = busy();
    for seed in 1..=number("EGRET_SEEDS", SEEDS.try_into().unwrap()) {
        let (streams, calls) = (number("EGRET_STREAMS", STREAMS), CALLS);
        let spending = Spending { unit, seed: seed.try_into().unwrap(), streams, calls };
        let provider = BuiltIn::start(&[]);
        let egret = config(spending, &provider, "50ms").start();
        let gateways = Gateways::new(vec![egret.address()]);
        let (egret, log) = std::thread::scope(|scope| {
            let disturbed = scope.spawn(|| trouble(egret, spending, &provider, &gateways, what));
            spending.spend(&gateways);
            disturbed.join().unwrap()
        });
        let bills = spending.bills(&provider);
        spending.assert_within(&bills, &gateways);
        assert_nothing_reserved(&egret);
        // A process that is killed leaves what it was lent: that counts as used, and nobody can tell how
        // much.
        if what == Trouble::Replaced {
            // A thread writes the log, so lines of the calls may come after their responses.
            egret.hang_up();
            let log = log + &egret.log_with("config reloaded");
            let second = log.matches("a second call is made").count();
            spending.assert_nothing_held(&egret, &bills, second);
        }
    }
}

#[test]
fn money_is_never_exceeded_and_nothing_stays_held() {
    spend(Unit::Money, Trouble::Replaced);
}

#[test]
fn tokens_are_never_exceeded_and_nothing_stays_held() {
    spend(Unit::Tokens, Trouble::Replaced);
}

#[test]
fn money_is_never_exceeded_by_a_gateway_that_is_killed() {
    spend(Unit::Money, Trouble::Killed);
}

#[test]
fn tokens_are_never_exceeded_by_a_gateway_that_is_killed() {
    spend(Unit::Tokens, Trouble::Killed);
}
