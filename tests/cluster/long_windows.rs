//! Quotas with long windows, whose units the store lends in blocks: the work moves from some gateways to the
//! others, and at the end of a window at most one unit per gateway is unused.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, until_lent};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};

/// Number of gateways, and of those that have work at first.
const MEMBERS: usize = 8;
const FIRST: usize = 3;
/// Clients of each gateway. The first gateways' clients make about a hundred calls a second together.
const CLIENTS: usize = 4;
const RESPONSE_MS: u64 = 100;
/// Time for which the first gateways have all the work. They use a part of the limit in it.
const TURN: Duration = Duration::from_secs(2);
/// Units of each window.
const LIMIT: usize = 1_000;
const WINDOW: Duration = Duration::from_secs(60);
/// Time in which the others use the rest, if it is lent to them.
const REST: Duration = Duration::from_secs(15);

#[test]
fn long_windows_are_used_up() {
    let line = Timeline::new("long windows");
    let (store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let (calendar, fixed) = (Allowance::calendar(LIMIT), Allowance::fixed_for(LIMIT, WINDOW));
    let allowances = [calendar.responding_in(RESPONSE_MS), fixed.responding_in(RESPONSE_MS)];
    let members = Members::start(&MembersConfig::new(store.config()).queues(&allowances), &provider, MEMBERS);
    let clients = members.all_clients(&allowances, CLIENTS);
    let work = |first: usize, others: usize| {
        clients.iter().take(FIRST).for_each(|clients| clients.allow(first));
        clients.iter().skip(FIRST).for_each(|clients| clients.allow(others));
    };
    work(CLIENTS, 0);
    until_lent(&provider, &allowances);
    pass(TURN);
    work(0, CLIENTS);
    pass(REST);
    allowances[0].claim_used_up(&provider, 0, MEMBERS, &line);

    work(0, 0);
    let begin = allowances[1].until_window(&provider);
    work(CLIENTS, 0);
    pass(TURN);
    work(0, CLIENTS);
    pass(REST);
    allowances[1].claim_used_up(&provider, begin, MEMBERS, &line);
    allowances.iter().for_each(|each| each.claim_kept(&provider, &line));
}
