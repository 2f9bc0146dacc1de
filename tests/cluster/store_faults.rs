//! The store dies, forgets everything, or cannot be reached: the provider never counts more than the limit,
//! and units move again once the store has learnt who holds them.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, until_lent, until_lent_to};
use egret_tests::redis::{Flavor, RedisServer, Reply};
use egret_tests::relay::{Relay, RelayMode};
use egret_tests::timeline::{Timeline, pass};

pub const MEMBERS: usize = 8;
pub const CLIENTS: usize = 100;
/// The member whose clients come after each loss: they get units only from others.
pub const NEWCOMER: usize = MEMBERS - 1;
/// Time until the holds have settled, and time for which the store cannot be reached.
pub const SETTLED: Duration = Duration::from_secs(4);
const AWAY: Duration = Duration::from_secs(5);
/// Longest time until units move again: that of learning, and five seconds.
pub const LENT_AGAIN_MAX: Duration = Duration::from_secs(11 + 5);

#[test]
fn a_store_that_dies_or_forgets_lends_nothing_twice() {
    let line = Timeline::new("a store that forgets");
    let (mut store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let allowances = Allowance::each_short();
    let members = Members::start(&MembersConfig::new(store.config()).queues(&allowances), &provider, MEMBERS);
    let _clients: Vec<_> =
        (0..NEWCOMER).map(|number| members.clients(number, &allowances, CLIENTS)).collect();
    until_lent(&provider, &allowances);
    pass(SETTLED);

    line.say("killed");
    store.kill();
    pass(AWAY);
    store.restart();
    line.say("started again, empty");
    let clients = members.clients(NEWCOMER, &allowances, CLIENTS);
    let time = until_lent_to(NEWCOMER, &provider, &allowances);
    line.claim(time <= LENT_AGAIN_MAX, format!("lends again after {:.1} s", time.as_secs_f64()));
    drop(clients);
    pass(SETTLED);

    assert_eq!(store.command(&["FLUSHALL"]), Reply::Text("OK".to_owned()));
    line.say("flushed");
    let _newcomers = members.clients(NEWCOMER, &allowances, CLIENTS);
    let time = until_lent_to(NEWCOMER, &provider, &allowances);
    line.claim(time <= LENT_AGAIN_MAX, format!("lends again after {:.1} s", time.as_secs_f64()));
    pass(SETTLED);
    for each in &allowances {
        each.claim_kept(&provider, &line);
    }
}

#[test]
fn a_store_that_is_slow_or_cut_off_lends_nothing_twice() {
    let line = Timeline::new("a bad network");
    let (store, provider) = (RedisServer::start(Flavor::Valkey9), Counted::start());
    let allowances = Allowance::each_short();
    // Half of the members reach the store over the relay.
    let relay = Relay::to(store.address());
    let config = MembersConfig::new(relay.config()).queues(&allowances);
    let behind = Members::start(&config, &provider, MEMBERS / 2);
    let config = MembersConfig::new(store.config()).named("direct").queues(&allowances);
    let direct = Members::start(&config, &provider, MEMBERS / 2);
    let _clients = [behind.all_clients(&allowances, CLIENTS), direct.all_clients(&allowances, CLIENTS)];
    until_lent(&provider, &allowances);
    pass(SETTLED);
    for mode in [RelayMode::Delay(Duration::from_millis(400)), RelayMode::Stall, RelayMode::Cut] {
        relay.set(mode);
        line.say(format!("{mode:?}"));
        pass(AWAY);
        relay.set(RelayMode::Pass);
        pass(SETTLED);
    }
    for each in &allowances {
        each.claim_kept(&provider, &line);
    }
}
