//! Tests of quotas that gateways share, with a fake of Redis that runs the script, and a clock that the tests
//! move.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use egret_clock::Timestamp;
use egret_fake_redis::FakeRedis;
use egret_store::shared::{
    AllocatorReply, CALL_SCRIPT, GroupKey, GroupSink, LeaveMessage, Member, Shard, SharedGroup, SharedLease,
    Terms,
};

use super::*;

mod blocks;
mod groups;

const TERMS: Terms = Terms {
    ttl_ms: 3_000,
    renewal_ms: 1_000,
    gap_ms: 100,
    settle_time_ms: 1_000,
    recovery_ms: 1_000,
    fallback_ms: 20_000,
    turn_ms: 1_000,
};
/// Time after which a new cluster lends, for windows of a second.
const LEARNED_MS: u64 = 8_000;
const START_MS: u64 = 1_800_000_000_000;

/// A sink whose groups the test delivers.
#[derive(Debug)]
struct HeldSink {
    now_ms: Arc<AtomicU64>,
    lease: Arc<SharedLease>,
    asked: Mutex<Vec<Queued>>,
    leaving: Mutex<Vec<LeaveMessage>>,
}

struct Queued(Arc<dyn SharedGroup>);

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queued")
    }
}

impl GroupSink for HeldSink {
    fn now_us(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed) * 1_000
    }

    fn digest(&self, name: &[u8]) -> String {
        format!("#{}", name.escape_ascii())
    }

    fn members_min(&self) -> u64 {
        2
    }

    fn lease(&self, _: &GroupKey) -> Arc<SharedLease> {
        self.lease.clone()
    }

    fn ask(&self, group: Arc<dyn SharedGroup>) -> bool {
        self.asked.lock().unwrap().push(Queued(group));
        true
    }

    fn leave(&self, message: LeaveMessage) {
        self.leaving.lock().unwrap().push(message);
    }
}

struct Gateway {
    member: Member,
    sink: Arc<HeldSink>,
    quotas: Quotas,
}

struct Cluster {
    now_ms: Arc<AtomicU64>,
    redis: FakeRedis,
    shard: Shard,
    gateways: Vec<Gateway>,
    is_store_away: bool,
    calls: u64,
}

impl Cluster {
    /// Starts gateways with a quota `q`.
    fn start(count: u64, config: &QuotaConfig) -> Self {
        Self::with(count, &[("q".to_owned(), config.clone())].into())
    }

    fn with(count: u64, configs: &QuotaConfigs) -> Self {
        let now_ms = Arc::new(AtomicU64::new(1_000_000));
        let gateway = |number: u64| {
            let member = Member::new(TERMS, format!("gateway-{number}").into(), number + 1);
            let sink = Arc::new(HeldSink {
                now_ms: now_ms.clone(),
                lease: member.lease().clone(),
                asked: Mutex::default(),
                leaving: Mutex::default(),
            });
            let dynamic: Arc<dyn GroupSink> = sink.clone();
            let mut problems = Vec::new();
            let stores = Stores { cluster: Some(&dynamic), ..Stores::default() };
            let quotas = Quotas::compile(configs, None, stores, &[], &mut problems);
            assert_eq!(problems, Vec::new());
            Gateway { member, sink, quotas }
        };
        let gateways = (0..count).map(gateway).collect();
        Self {
            now_ms: now_ms.clone(),
            redis: FakeRedis::new(CALL_SCRIPT),
            shard: Shard::new("test", 0),
            gateways,
            is_store_away: false,
            calls: 0,
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// The gateways' wall clock, and that of the store.
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros((START_MS + self.now_ms()) * 1_000)
    }

    fn quota(&self, gateway: usize) -> &Quota {
        self.gateways[gateway].quotas.get("q").unwrap()
    }

    fn take(&self, gateway: usize, group: &[u8]) -> Result<Grant, Refusal> {
        self.quota(gateway).take(self.wall(), &[group], 1)
    }

    /// The units of the cluster in the quota's only group, as a gateway sees them.
    fn shared(&self, gateway: usize) -> SharedSnapshot {
        self.quota(gateway).snapshot(self.wall(), 1).groups[0].shared.unwrap()
    }

    /// Waits until a gateway holds so many units that a call of this cost is granted, which is not made.
    fn lend(&mut self, gateway: usize, names: &[&[u8]], units: u64) {
        for _ in 0..6_000 {
            self.step();
            match self.quota(gateway).take(self.wall(), names, units) {
                Ok(grant) => return grant.cancel(self.wall()),
                Err(refusal) => assert_ne!(refusal.why, Why::CostAboveLimit),
            }
        }
        panic!("{units} units were never granted");
    }

    /// Lets a millisecond pass, in which the members call the store.
    fn step(&mut self) {
        let now_ms = self.now_ms.fetch_add(1, Ordering::Relaxed) + 1;
        let mut hints = Vec::new();
        for gateway in &mut self.gateways {
            for Queued(group) in gateway.sink.asked.lock().unwrap().drain(..) {
                gateway.member.ask(&group);
            }
            for message in gateway.sink.leaving.lock().unwrap().drain(..) {
                gateway.member.leave_group(message);
            }
            if !gateway.member.is_due(now_ms) {
                continue;
            }
            self.calls += 1;
            let call = gateway.member.call("run".into(), now_ms, 100, now_ms);
            if self.is_store_away {
                continue;
            }
            let script = self.shard.call(&call, &TERMS);
            let reply = self.redis.run(&script.keys, &script.arguments, START_MS + now_ms);
            let reply = AllocatorReply::from_script(&reply, call.groups.len()).unwrap();
            gateway.member.answered(call.seq, &reply, now_ms);
            let AllocatorReply::Applied(reply) = reply else { panic!("stale") };
            hints.extend(reply.hints.iter().map(|&(index, hint)| (call.groups[index].key.clone(), hint)));
        }
        for (key, hint) in hints {
            for gateway in &mut self.gateways {
                gateway.member.hinted(&key, hint);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    /// All gateways take all they can for a time, each call with an answer after 20 ms. Returns the numbers
    /// of calls of each gateway, and the most in any second.
    fn load(&mut self, ms: u64) -> (Vec<u64>, u64) {
        let mut in_transit: VecDeque<(u64, Grant)> = VecDeque::new();
        let mut times: Vec<u64> = Vec::new();
        let mut served = vec![0; self.gateways.len()];
        for _ in 0..ms {
            self.step();
            let now_ms = self.now_ms();
            while in_transit.front().is_some_and(|(at, _)| *at <= now_ms) {
                let (_, mut grant) = in_transit.pop_front().unwrap();
                grant.responded(self.wall());
            }
            for (gateway, served) in served.iter_mut().enumerate() {
                while let Ok(grant) = self.take(gateway, b"") {
                    *served += 1;
                    times.push(now_ms);
                    in_transit.push_back((now_ms + 20, grant));
                }
            }
        }
        let worst = |at: &u64| times.iter().filter(|time| (*at..at + 1_000).contains(time)).count();
        (served, times.iter().map(worst).max().unwrap_or(0) as u64)
    }
}

fn sliding(limit: u64) -> QuotaConfig {
    QuotaConfig { limit, store: StoreKind::Redis, ..QuotaConfig::default() }
}

#[test]
fn gateways_share_a_limit_and_use_nearly_all_of_it() {
    for (config, least) in [
        (sliding(100), 93),
        (QuotaConfig { kind: QuotaKind::Fixed, ..sliding(100) }, 93),
        (QuotaConfig { kind: QuotaKind::TokenBucket, burst: Some(50), ..sliding(100) }, 93),
    ] {
        let mut cluster = Cluster::start(4, &config);
        cluster.load(LEARNED_MS + 4_000);
        let (served, worst) = cluster.load(10_000);
        let burst = if config.kind == QuotaKind::TokenBucket { 50 } else { 0 };
        // Two fixed windows may be touched by one second that begins in the middle of the first.
        let max = if config.kind == QuotaKind::Fixed { 200 } else { 100 + burst };
        assert!(worst <= max, "{:?}: {worst}", config.kind);
        let used: u64 = served.iter().sum();
        assert!((least * 10..=1_000 + max).contains(&used), "{:?}: {served:?}", config.kind);
        assert!(served.iter().all(|&served| served > 150), "{:?}: {served:?}", config.kind);
    }
}

#[test]
fn slots_are_shared_and_move_to_those_who_want_them() {
    let mut cluster =
        Cluster::start(2, &QuotaConfig { kind: QuotaKind::Concurrency, window: None, ..sliding(8) });
    cluster.load(LEARNED_MS);
    let mut held = Vec::new();
    for _ in 0..3_000 {
        cluster.step();
        held.extend(cluster.take(0, b""));
    }
    assert_eq!(held.len(), 8);
    assert!(cluster.take(1, b"").is_err());
    held.truncate(2);
    let mut others = Vec::new();
    for _ in 0..3_000 {
        cluster.step();
        others.extend(cluster.take(1, b""));
    }
    assert_eq!((held.len(), others.len()), (2, 6));
}

#[test]
fn units_move_to_the_gateway_whose_queue_waits() {
    let mut cluster = Cluster::start(2, &sliding(100));
    cluster.pass(LEARNED_MS);
    cluster.lend(0, &[], 100);
    // Calls waited at the first gateway. None is left to note them again.
    cluster.quota(0).watch(cluster.wall(), &[], 100, Waker::noop());
    for _ in 0..1_500 {
        cluster.step();
        cluster.quota(1).watch(cluster.wall(), &[], 100, Waker::noop());
        // A queue asks for its units until it has them.
        if let Ok(grant) = cluster.take(1, b"") {
            grant.cancel(cluster.wall());
        }
    }
    assert_eq!((cluster.shared(0).hold, cluster.shared(1).hold), (0, 100));
}

#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_answer_of_the_store_wakes_who_waits() {
    let mut cluster = Cluster::start(2, &sliding(10));
    cluster.pass(LEARNED_MS);
    let woken = [Arc::new(Woken::default()), Arc::new(Woken::default())];
    let mut wait = |ms: u64| {
        let before = woken[0].0.load(Ordering::Relaxed);
        for _ in 0..ms {
            for (gateway, woken) in woken.iter().enumerate() {
                cluster.quota(gateway).watch(cluster.wall(), &[], 10, &woken.clone().into());
                let _ = cluster.take(gateway, b"").map(|mut grant| grant.responded(cluster.wall()));
            }
            cluster.step();
        }
        woken[0].0.load(Ordering::Relaxed) - before
    };
    // The holds become even. From then on each renewal, one per second, has an answer that changes nothing.
    wait(5_000);
    let woken = wait(10_000);
    assert!((9..=20).contains(&woken), "woken {woken} times in 10 s");
}

#[test]
fn a_gateway_without_the_store_keeps_its_part_for_a_while() {
    let mut cluster = Cluster::start(2, &sliding(10));
    cluster.load(LEARNED_MS + 4_000);
    cluster.is_store_away = true;
    cluster.load(5_000);
    let (served, worst) = cluster.load(5_000);
    assert!(worst <= 10 && served.iter().all(|&served| (20..=25).contains(&served)), "{served:?}, {worst}");
    cluster.load(20_000);
    let (served, _) = cluster.load(2_000);
    assert_eq!(served, [0, 0]);
    let refusal = cluster.take(0, b"").unwrap_err();
    assert_eq!(refusal.why, Why::StoreDown);
}

#[test]
fn a_bucket_without_the_store_continues_within_two_windows() {
    let mut cluster =
        Cluster::start(8, &QuotaConfig { kind: QuotaKind::TokenBucket, burst: Some(100), ..sliding(100) });
    cluster.pass(LEARNED_MS);
    cluster.lend(0, &[], 100);
    let take_all = |cluster: &Cluster| {
        let grants: Vec<Grant> = std::iter::from_fn(|| cluster.take(0, b"").ok()).collect();
        let count = grants.len();
        for mut grant in grants {
            grant.responded(cluster.wall());
        }
        count
    };
    assert_eq!(take_all(&cluster), 100);
    cluster.is_store_away = true;
    let mut served = Vec::new();
    for _ in 0..20 {
        let mut count = 0;
        for _ in 0..500 {
            cluster.step();
            count += take_all(&cluster);
        }
        served.push(count);
    }
    // The lease ends within 3 s. The debt of 100 units is below the part, 12 units, within another second.
    assert!(served[9..].iter().all(|count| (5..=7).contains(count)), "{served:?}");
}

#[test]
fn without_the_store_at_the_start_the_policy_applies_with_nothing_held() {
    for kind in [QuotaKind::Sliding, QuotaKind::TokenBucket] {
        let served = |policy: OnStoreError| {
            let config = QuotaConfig { kind, on_store_error: Some(policy), ..sliding(10) };
            let mut cluster = Cluster::start(2, &config);
            cluster.is_store_away = true;
            cluster.load(2_000);
            cluster.load(10_000).0[0] / 10
        };
        assert_eq!(served(OnStoreError::Keep), 0);
        assert_eq!(served(OnStoreError::Closed), 0);
        assert!((4..=5).contains(&served(OnStoreError::Share)), "{kind:?}");
        assert!((9..=10).contains(&served(OnStoreError::Open)), "{kind:?}");
    }
}

#[test]
fn a_group_is_asked_for_once_however_many_calls_are_refused() {
    let mut cluster = Cluster::start(1, &QuotaConfig { group_by: Some(GroupBy::Consumer), ..sliding(10) });
    cluster.pass(20_000);
    for _ in 0..1_000 {
        assert_eq!(cluster.take(0, b"shop").unwrap_err().why, Why::Fetching);
    }
    assert_eq!(cluster.gateways[0].sink.asked.lock().unwrap().len(), 1);
    cluster.step();
    cluster.step();
    assert!(cluster.take(0, b"shop").is_ok());
    let calls = cluster.calls;
    for _ in 0..10_000 {
        cluster.step();
        for _ in 0..20 {
            let _ = cluster.take(0, b"shop");
        }
    }
    assert!(cluster.calls - calls <= 20, "{}", cluster.calls - calls);
}

#[test]
fn a_permit_lasts_as_its_lease_or_policy_allows() {
    for (policy, units, expected) in [
        (OnStoreError::Keep, 5, true),
        (OnStoreError::Keep, 6, false),
        (OnStoreError::Closed, 1, false),
        (OnStoreError::Share, 5, true),
        (OnStoreError::Open, 6, true),
    ] {
        let mut cluster = Cluster::start(2, &QuotaConfig { on_store_error: Some(policy), ..sliding(10) });
        // The second gateway is known, and uses nothing.
        cluster.pass(LEARNED_MS);
        cluster.lend(0, &[], units);
        let grants: Vec<Grant> = (0..units).map(|_| cluster.take(0, b"").unwrap()).collect();
        let are_valid = || grants.iter().flat_map(Grant::permits).all(|permit| permit.is_valid());
        assert!(are_valid());
        cluster.is_store_away = true;
        cluster.pass(2_000);
        assert!(are_valid(), "the lease lasts");
        cluster.pass(2_000);
        assert_eq!(are_valid(), expected, "{policy:?} with {units}");
        cluster.is_store_away = false;
        cluster.pass(2_000);
        assert!(are_valid(), "the lease was renewed");
    }
}

#[test]
fn a_resumed_thread_does_not_set_back_the_clock() {
    let mut cluster = Cluster::start(1, &sliding(10));
    cluster.pass(LEARNED_MS);
    cluster.lend(0, &[], 10);
    let mut grants: Vec<Grant> = (0..10).map(|_| cluster.take(0, b"").unwrap()).collect();
    for grant in &mut grants {
        grant.responded(cluster.wall());
    }
    let now_ms = cluster.now_ms();
    for ms in [now_ms - 20_000, now_ms + 500] {
        cluster.now_ms.store(ms, Ordering::Relaxed);
        assert!(cluster.take(0, b"").is_err());
    }
}

#[test]
fn outside_use_is_lent_to_no_gateway() {
    let learn = Some(LearnConfig::default());
    let mut cluster = Cluster::start(2, &QuotaConfig { learn, ..sliding(10) });
    cluster.load(LEARNED_MS + 4_000);
    let (served, _) = cluster.load(4_000);
    assert!(served.iter().sum::<u64>() > 35, "{served:?}");
    cluster.pass(2_000);
    // The provider has counted a call of this gateway, which it forgets after a second, and six from outside.
    cluster.lend(0, &[], 1);
    let mut grant = cluster.take(0, b"").unwrap();
    grant.responded(cluster.wall());
    let fields: [(&[u8], &[u8]); 2] = [(b"x-ratelimit-remaining", b"3"), (b"x-ratelimit-reset", b"60")];
    grant.learn(cluster.wall(), cluster.quota(0), 200, &fields.into_iter(), || None);
    cluster.pass(2_000);
    cluster.load(2_000);
    let (served, _) = cluster.load(10_000);
    assert!((25..=40).contains(&served.iter().sum::<u64>()), "{served:?}");
    cluster.load(50_000);
    let (served, _) = cluster.load(10_000);
    assert!(served.iter().sum::<u64>() > 90, "{served:?}");
}

#[test]
fn a_refusal_of_the_provider_blocks_a_gateway_at_once() {
    let learn = Some(LearnConfig::default());
    let mut cluster = Cluster::start(1, &QuotaConfig { learn, ..sliding(10) });
    cluster.pass(LEARNED_MS);
    cluster.lend(0, &[], 2);
    let mut grant = cluster.take(0, b"").unwrap();
    grant.responded(cluster.wall());
    let fields: [(&[u8], &[u8]); 1] = [(b"retry-after", b"5")];
    grant.learn(cluster.wall(), cluster.quota(0), 429, &fields.into_iter(), || None);
    let refusal = cluster.take(0, b"").unwrap_err();
    assert_eq!(refusal.retry_at, Some(cluster.wall() + Duration::from_secs(5)));
    cluster.pass(4_900);
    assert!(cluster.take(0, b"").is_err());
    cluster.lend(0, &[], 1);
}

#[test]
fn limits_that_differ_are_shown_and_the_lowest_holds() {
    let mut cluster = Cluster::start(2, &sliding(10));
    cluster.load(LEARNED_MS + 4_000);
    assert!(!cluster.shared(0).config_differs && cluster.shared(0).hold == 5);
    let gateway = &mut cluster.gateways[1];
    let dynamic: Arc<dyn GroupSink> = gateway.sink.clone();
    let stores = Stores { cluster: Some(&dynamic), ..Stores::default() };
    let configs = [("q".to_owned(), sliding(6))].into();
    gateway.quotas = Quotas::compile(&configs, Some(&gateway.quotas), stores, &[], &mut Vec::new());
    cluster.load(4_000);
    let (served, worst) = cluster.load(5_000);
    assert!(worst <= 6 && served.iter().sum::<u64>() > 25, "{served:?}, {worst}");
    assert!(cluster.shared(0).config_differs && cluster.shared(1).config_differs);
}

/// Makes a call of the first gateway, which is answered at once. Returns `false` if it has to wait for the
/// store.
fn call_or_wait(cluster: &Cluster) -> bool {
    match cluster.take(0, b"") {
        Ok(mut grant) => {
            grant.responded(cluster.wall());
            true
        }
        Err(refusal) => {
            assert_eq!(refusal.why, Why::Fetching);
            false
        }
    }
}

#[test]
fn a_rising_load_within_the_limit_is_never_refused_and_seldom_waits() {
    let mut cluster = Cluster::start(4, &sliding(1_000));
    cluster.load(LEARNED_MS);
    cluster.pass(5_000);
    let (mut calls, mut waits_ms) = (0, 0);
    for ms in 0..4_000 {
        cluster.step();
        // 400 calls, 200 of them in the last second or so.
        while calls < ms * ms / 40_000 {
            if !call_or_wait(&cluster) {
                waits_ms += 1;
                break;
            }
            calls += 1;
        }
    }
    assert!(calls >= 399 && waits_ms <= 5, "{calls} calls, which waited for {waits_ms} ms");
}

#[test]
fn a_gateway_gives_up_its_reserve_when_others_are_short() {
    let mut cluster = Cluster::start(2, &sliding(100));
    cluster.load(LEARNED_MS);
    cluster.pass(5_000);
    for ms in 0..4_000 {
        cluster.step();
        if ms % 100 == 0 {
            call_or_wait(&cluster);
        }
    }
    let reserved = cluster.shared(0).hold;
    assert!((15..40).contains(&reserved), "{reserved} held for 10 calls a second");
    let mut others = 0;
    for ms in 0..4_000 {
        cluster.step();
        // Its units are free again a little more than a second after a response.
        if ms % 100 == 0
            && let Ok(mut grant) = cluster.take(0, b"")
        {
            grant.responded(cluster.wall());
        }
        while let Ok(mut grant) = cluster.take(1, b"") {
            grant.responded(cluster.wall());
            others += 1;
        }
    }
    let holds = [cluster.shared(0).hold, cluster.shared(1).hold];
    assert!(holds[0] <= 12 && holds[1] >= 86 && others > 300, "{holds:?}, {others} calls");
}
