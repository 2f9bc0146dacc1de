//! A replica takes over: whatever it has not heard of, and whatever its clock shows, the provider never
//! counts more than the limit.

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, until_lent, until_lent_to};
use egret_tests::redis::Flavor;
use egret_tests::redis_sets::{RedisCluster, Sentinels};
use egret_tests::timeline::{Timeline, pass};
use egret_tests::wait;

use super::store_faults::{CLIENTS, LENT_AGAIN_MAX, MEMBERS, NEWCOMER, SETTLED};

/// Lets a set of servers lose its master by `kill`, which returns once a replica has taken over.
fn lose_the_master(store: &str, allowances: &[Allowance], line: &Timeline, kill: impl FnOnce()) {
    let provider = Counted::start();
    let members = Members::start(&MembersConfig::new(store).queues(allowances), &provider, MEMBERS);
    let _clients: Vec<_> = (0..NEWCOMER).map(|number| members.clients(number, allowances, CLIENTS)).collect();
    until_lent(&provider, allowances);
    line.say("lent");
    pass(SETTLED);
    kill();
    line.say("a replica has taken over");
    let _newcomers = members.clients(NEWCOMER, allowances, CLIENTS);
    let time = until_lent_to(NEWCOMER, &provider, allowances);
    line.claim(time <= LENT_AGAIN_MAX, format!("lends again after {:.1} s", time.as_secs_f64()));
    pass(SETTLED);
    for each in allowances {
        each.claim_kept(&provider, line);
    }
}

#[test]
fn a_sentinel_promotes_a_replica() {
    let line = Timeline::new("Sentinel");
    let mut set = Sentinels::start(Flavor::Redis7);
    lose_the_master(&set.config(), &Allowance::each_short(), &line, || {
        set.kill_master();
        wait::until_true("a replica has taken over", || set.master().is_some_and(|master| master != 0));
    });
}

#[test]
fn the_clock_of_a_promoted_replica_is_half_a_minute_ahead() {
    let line = Timeline::new("a clock 30 s ahead");
    let prefix = ["faketime", "-f", "+30s", "setpriv", "--pdeathsig", "KILL"];
    let mut set = Sentinels::start_behind(Flavor::Valkey9, &prefix);
    let [here, there] = [&set.servers[0], &set.servers[1]]
        .map(|server| server.command(&["TIME"]).words()[0].parse::<u64>().unwrap());
    line.claim(there >= here + 29, format!("a replica's clock is {} s ahead", there - here));
    // A fixed window is one of the store's clock, which is another one afterwards.
    let allowances = [Allowance::sliding(100), Allowance::bucket(100), Allowance::concurrent(20, 200)];
    lose_the_master(&set.config(), &allowances, &line, || {
        set.kill_master();
        wait::until_true("a replica has taken over", || set.master().is_some_and(|master| master != 0));
    });
}

#[test]
fn a_redis_cluster_promotes_a_replica() {
    let line = Timeline::new("Redis Cluster");
    let mut set = RedisCluster::start(Flavor::Redis7);
    lose_the_master(&set.config(), &Allowance::each_short(), &line, || {
        let masters = set.masters_with_keys();
        assert!(!masters.is_empty());
        masters.into_iter().for_each(|master| set.fail_over(master));
    });
}
