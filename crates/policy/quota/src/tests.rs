//! Tests of the guarantees of quotas, in simulated time against simulated providers, and from many threads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use egret_clock::Timestamp;
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_790_000_000 * SECOND + micros)
}

fn micros(time: Timestamp) -> u64 {
    time.as_micros() - at(0).as_micros()
}

fn sliding(limit: u64) -> QuotaConfig {
    QuotaConfig { limit, ..QuotaConfig::default() }
}

fn fixed(limit: u64) -> QuotaConfig {
    QuotaConfig { limit, kind: QuotaKind::Fixed, ..QuotaConfig::default() }
}

fn bucket(limit: u64, burst: u64) -> QuotaConfig {
    QuotaConfig { limit, kind: QuotaKind::TokenBucket, burst: Some(burst), ..QuotaConfig::default() }
}

fn slots(limit: u64) -> QuotaConfig {
    QuotaConfig { limit, kind: QuotaKind::Concurrency, window: None, ..QuotaConfig::default() }
}

fn grouped(config: QuotaConfig) -> QuotaConfig {
    QuotaConfig { group_by: Some(GroupBy::Account), ..config }
}

fn quotas<const N: usize>(configs: [(&str, QuotaConfig); N]) -> Quotas {
    reloaded(configs, None)
}

fn reloaded<const N: usize>(configs: [(&str, QuotaConfig); N], previous: Option<&Quotas>) -> Quotas {
    let configs = configs.map(|(name, config)| (name.to_owned(), config)).into();
    let mut problems = Vec::new();
    let quotas = Quotas::compile(&configs, previous, Stores::default(), &[], &mut problems);
    assert_eq!(problems, Vec::new());
    quotas
}

fn quota(config: QuotaConfig) -> Arc<Quota> {
    quotas([("q", config)]).get("q").unwrap().clone()
}

fn used(quota: &Quota, now: Timestamp) -> u64 {
    quota.snapshot(now, 10).groups[0].used
}

/// Takes one unit at a time, each with an immediate response, until none is left.
fn drain(quota: &Quota, now: Timestamp, name: &[u8]) -> u64 {
    let take = || quota.take(now, &[name], 1).map(|mut grant| grant.responded(now));
    (0..100_000).take_while(|_| take().is_ok()).count().try_into().unwrap()
}

/// One simulated call: the time since the previous attempt, the delay until the provider counts it, and the
/// delay until it ends.
#[derive(Debug, Clone, Copy)]
struct Call {
    after: u64,
    travels: u64,
    works: u64,
    cost: u64,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Answered,
    Dropped,
    NotMade,
}

/// Calls that arrive faster than allowed, over a network that is sometimes slow.
fn calls() -> impl Strategy<Value = Vec<Call>> {
    let mostly = |low: u64, high: u64| prop_oneof![8 => 0..low, 1 => 0..high];
    let end = prop_oneof![8 => Just(End::Answered), 1 => Just(End::Dropped), 1 => Just(End::NotMade)];
    let cost = prop_oneof![6 => Just(1_u64), 1 => 0..4_u64];
    let call =
        (mostly(30_000, 2 * SECOND), mostly(20_000, 3 * SECOND), mostly(20_000, 3 * SECOND), cost, end)
            .prop_map(|(after, travels, works, cost, end)| Call { after, travels, works, cost, end });
    prop::collection::vec(call, 1..300)
}

/// Removes the call that ended first, if one has ended at `now`. Returns when, and its number.
pub(super) fn next_ended(
    under_way: &mut BinaryHeap<Reverse<(u64, usize)>>,
    now: u64,
) -> Option<(u64, usize)> {
    let Reverse((ends, _)) = *under_way.peek()?;
    if ends > now { None } else { under_way.pop().map(|Reverse(call)| call) }
}

/// Returns the calls as the provider counted them: when, how much, and when it had responded. In order of
/// time.
fn counted(quota: &Quota, calls: &[Call]) -> Vec<(u64, u64, u64)> {
    let mut now = 0;
    let mut under_way: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut grants = HashMap::new();
    let mut counted = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        now += call.after;
        while let Some((ends, ended)) = next_ended(&mut under_way, now) {
            let mut grant: Grant = grants.remove(&ended).unwrap();
            match calls[ended].end {
                End::Answered => grant.responded(at(ends)),
                End::Dropped => {}
                End::NotMade => {
                    grant.cancel(at(ends));
                    continue;
                }
            }
            drop(grant);
        }
        let Ok(grant) = quota.take(at(now), &[], call.cost) else { continue };
        let counts = now + call.travels;
        let ends = counts + call.works;
        under_way.push(Reverse((ends, index)));
        grants.insert(index, grant);
        if call.end != End::NotMade {
            counted.push((counts, call.cost, ends));
        }
    }
    counted.sort_unstable();
    counted
}

proptest! {
    #[test]
    fn a_sliding_quota_never_exceeds_the_limit_in_any_window(limit in 3_u64..20, calls in calls()) {
        let counted = counted(&quota(sliding(limit)), &calls);
        for (first, (begin, ..)) in counted.iter().enumerate() {
            let within = counted[first..].iter().take_while(|(time, ..)| *time < begin + SECOND);
            prop_assert!(within.map(|(_, cost, _)| cost).sum::<u64>() <= limit);
        }
    }

    #[test]
    fn a_sliding_quota_never_empties_a_token_bucket_of_its_size(limit in 3_u64..20, calls in calls()) {
        let (mut debt, mut last) = (0, 0);
        for (time, cost, _) in counted(&quota(sliding(limit)), &calls) {
            debt = u64::saturating_sub(debt, (time - last) * limit) + cost * SECOND;
            last = time;
            prop_assert!(debt <= limit * SECOND);
        }
    }

    #[test]
    fn a_fixed_quota_never_exceeds_the_limit_per_window(limit in 3_u64..20, calls in calls()) {
        let mut windows = BTreeMap::new();
        for (time, cost, _) in counted(&quota(fixed(limit)), &calls) {
            *windows.entry(time / SECOND).or_insert(0) += cost;
        }
        prop_assert!(windows.values().all(|used| *used <= limit), "{:?}", windows);
    }

    #[test]
    fn a_token_bucket_never_empties_that_of_the_provider(limit in 1_u64..50, burst in 3_u64..20, calls in calls()) {
        let (mut debt, mut last) = (0, 0);
        for (time, cost, _) in counted(&quota(bucket(limit, burst)), &calls) {
            debt = u64::saturating_sub(debt, (time - last) * limit) + cost * SECOND;
            last = time;
            prop_assert!(debt <= burst * SECOND);
        }
    }

    #[test]
    fn a_concurrency_quota_never_has_more_calls_under_way(limit in 3_u64..20, calls in calls()) {
        let counted = counted(&quota(slots(limit)), &calls);
        for (begin, ..) in &counted {
            let under_way = counted.iter().filter(|(time, _, ends)| time <= begin && begin < ends);
            prop_assert!(under_way.map(|(_, cost, _)| cost).sum::<u64>() <= limit);
        }
    }

    #[test]
    fn a_token_bucket_decides_as_governor_does(
        burst in 1_u32..20,
        limit in prop::sample::select(vec![1_u64, 2, 5, 10, 100, 1000]),
        steps in prop::collection::vec((0_u64..400_000, 1_u32..3), 1..200),
    ) {
        let clock = governor::clock::FakeRelativeClock::default();
        let rate = governor::Quota::with_period(Duration::from_micros(SECOND / limit)).unwrap();
        let rate = rate.allow_burst(burst.try_into().unwrap());
        let oracle = governor::RateLimiter::direct_with_clock(rate, clock.clone());
        let quota = quota(bucket(limit, burst.into()));
        let mut now = 0;
        for (after, cost) in steps {
            now += after;
            clock.advance(Duration::from_micros(after));
            let theirs = oracle.check_n(cost.try_into().unwrap()).is_ok_and(|decision| decision.is_ok());
            let ours = quota.take(at(now), &[], cost.into()).map(|mut grant| grant.responded(at(now)));
            prop_assert_eq!(ours.is_ok(), theirs, "at {}", now);
        }
    }

    #[test]
    fn a_call_is_granted_at_the_reported_time(
        kind in 0..4,
        limit in 1_u64..10,
        takes in prop::collection::vec((0_u64..200_000, 1_u64..4), 1..60),
    ) {
        let quota = quota(match kind {
            0 => sliding(limit),
            1 => fixed(limit),
            2 => bucket(limit, limit),
            _ => QuotaConfig { starts: WindowStart::First, ..fixed(limit) },
        });
        let mut now = 0;
        for (after, cost) in takes {
            now += after;
            let refusal = match quota.take(at(now), &[], cost) {
                Ok(mut grant) => { grant.responded(at(now)); continue }
                Err(refusal) => refusal,
            };
            if cost > limit {
                prop_assert_eq!(refusal.why, Why::CostAboveLimit);
                continue;
            }
            let retry_at = refusal.retry_at.unwrap();
            prop_assert_eq!(quota.forecast(at(now), &[], cost, 0).map(|turn| turn.at), Some(retry_at));
            let before = at(micros(retry_at) - 1);
            prop_assert!(before < at(now) || quota.take(before, &[], cost).is_err());
            let mut grant = quota.take(retry_at, &[], cost).unwrap();
            grant.responded(retry_at);
            now = micros(retry_at);
        }
    }

    #[test]
    fn whoever_asks_again_when_told_uses_the_allowance(
        kind in 0..4,
        limit in 1_u64..10,
        phase in 0..SECOND,
        response in 0_u64..900_000,
    ) {
        let quota = quota(match kind {
            0 => sliding(limit),
            1 => fixed(limit),
            2 => bucket(limit, limit),
            _ => QuotaConfig { starts: WindowStart::First, ..fixed(limit) },
        });
        let (begin, end) = (phase, phase + 20 * SECOND);
        let (mut now, mut granted) = (begin, 0);
        let mut under_way: std::collections::VecDeque<(u64, Grant)> = std::collections::VecDeque::new();
        while now < end {
            while let Some((ends, mut grant)) = under_way.pop_front_if(|(ends, _)| *ends <= now) {
                grant.responded(at(ends));
            }
            match quota.take(at(now), &[], 1) {
                Ok(grant) => {
                    granted += 1;
                    under_way.push_back((now + response, grant));
                }
                // It waits only for the reported time; responses until then are known.
                Err(refusal) => now = micros(refusal.retry_at.unwrap()).max(now + 1),
            }
        }
        let windows = match kind {
            0 => 20 * SECOND / (SECOND + response),
            // The calls before the first full window may be counted in it.
            1 => 18,
            2 => 20.min(20 * limit * SECOND / (limit * response + SECOND)),
            _ => 20,
        };
        prop_assert!(granted * 100 >= windows * limit * 95, "{} of {}", granted, windows * limit);
    }

    #[test]
    fn a_call_is_granted_at_the_foreseen_time(
        kind in 0..4,
        limit in 1_u64..6,
        phase in 0..SECOND,
        response in 1_u64..900_000,
        ahead in 0_u64..30,
    ) {
        let quota = quota(match kind {
            0 => sliding(limit),
            1 => fixed(limit),
            2 => bucket(limit, limit),
            _ => QuotaConfig { starts: WindowStart::First, ..fixed(limit) },
        });
        let mut known = quota.take(at(0), &[], 1).unwrap();
        known.responded(at(response));
        let begin = 10 * SECOND + phase;
        let mut under_way = std::collections::VecDeque::new();
        let (mut now, mut granted, mut foreseen) = (begin, 0, None);
        while granted <= limit + ahead {
            while let Some((ends, mut grant)) = under_way.pop_front_if(|(ends, _): &mut (u64, Grant)| *ends <= now) {
                grant.responded(at(ends));
            }
            match quota.take(at(now), &[], 1) {
                Ok(grant) => {
                    granted += 1;
                    under_way.push_back((now + response, grant));
                }
                Err(refusal) => {
                    foreseen = foreseen.or_else(|| Some(micros(quota.forecast(at(now), &[], 1, ahead).map(|turn| turn.at).unwrap())));
                    now = micros(refusal.retry_at.unwrap()).max(now + 1);
                }
            }
        }
        // The tolerance is one refill, the cost of a wrong estimate, plus the rounding of a sliding window.
        let off = foreseen.unwrap().abs_diff(now);
        let max = match kind {
            0 => SECOND / 100 + ahead * 2_000,
            2 => SECOND / limit + response + 1_000 + (now - begin) / 4,
            _ => 0,
        };
        prop_assert!(off <= max, "foreseen {} and granted {} after {}", foreseen.unwrap(), now, begin);
    }

    #[test]
    fn spillover_never_gives_more_than_its_cap_nor_more_than_was_left(
        limit in 1_u64..10,
        max in 1_u64..20,
        wanted in prop::collection::vec(0_u64..40, 1..30),
    ) {
        let quota = quota(QuotaConfig { spillover: Some(SpilloverConfig { max }), ..fixed(limit) });
        let mut spilled = 0;
        for (now, wanted) in (0..).step_by(1_000_000).zip(wanted) {
            prop_assert_eq!(quota.status(at(now), &[]).unwrap().limit, limit + spilled);
            let take = || quota.take(at(now), &[], 1).map(|mut grant| grant.responded(at(now)));
            let granted = (0..wanted).map_while(|_| take().ok().map(|()| 1)).sum::<u64>();
            prop_assert_eq!(granted, wanted.min(limit + spilled));
            spilled = (limit + spilled - granted).min(max);
        }
    }

    #[test]
    fn parent_and_child_count_the_same_whichever_refuses(
        child_limit in 1_u64..10,
        parent_limit in 1_u64..10,
        steps in prop::collection::vec((0_u64..400_000, 0_u64..3, 0..4), 1..100),
    ) {
        let child = |limit| QuotaConfig { parent: Some("parent".to_owned()), ..fixed(limit) };
        let quotas = quotas([("a", child(child_limit)), ("b", child(child_limit)), ("parent", fixed(parent_limit))]);
        let [a, b, parent] = ["a", "b", "parent"].map(|name| quotas.get(name).unwrap());
        let mut now = 0;
        for (after, cost, which) in steps {
            now += after;
            let now = at(now);
            let (quota, before) = if which % 2 == 0 { (a, used(a, now)) } else { (b, used(b, now)) };
            let fits = before + cost <= child_limit && used(parent, now) + cost <= parent_limit;
            let granted = quota.take(now, &[], cost);
            prop_assert_eq!(granted.is_ok(), fits);
            match granted {
                Ok(grant) if which < 2 => grant.cancel(now),
                Ok(mut grant) => grant.responded(now),
                Err(_) => {}
            }
            prop_assert_eq!(used(a, now) + used(b, now), used(parent, now));
        }
    }

    #[test]
    fn a_clock_set_back_neither_frees_nor_holds_units(
        kind in 0..4,
        limit in 1_u64..10,
        back in 0_u64..3_600 * SECOND,
    ) {
        let quota = quota(match kind {
            0 => sliding(limit),
            1 => fixed(limit),
            2 => bucket(limit, limit),
            _ => QuotaConfig { starts: WindowStart::First, ..fixed(limit) },
        });
        let now = 4_000 * SECOND;
        prop_assert_eq!(drain(&quota, at(now), b""), limit);
        prop_assert_eq!(drain(&quota, at(now - back), b""), 0);
        let until = now - back.max(SECOND) + 2 * SECOND + SECOND / 100;
        prop_assert_eq!(drain(&quota, at(until.max(now - back + 2 * SECOND)), b""), limit);
    }
}

#[test]
fn a_sliding_quota_uses_98_percent_when_responses_take_10_ms() {
    let quota = quota(sliding(100));
    let (mut now, mut granted) = (0, 0);
    let mut under_way: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut grants = HashMap::new();
    while now < 30 * SECOND {
        match quota.take(at(now), &[], 1) {
            Ok(grant) => {
                let ends = now + 10_000;
                granted += 1;
                grants.entry(ends).or_insert_with(Vec::new).push(grant);
                under_way.push(Reverse(ends));
            }
            Err(refusal) => {
                let retry = micros(refusal.retry_at.unwrap());
                let ends = under_way.peek().map_or(u64::MAX, |Reverse(ends)| *ends);
                now = retry.min(ends).max(now + 1);
                while under_way.peek().is_some_and(|Reverse(ends)| *ends <= now) {
                    let Reverse(ends) = under_way.pop().unwrap();
                    for mut grant in grants.remove(&ends).unwrap_or_default() {
                        grant.responded(at(now));
                    }
                }
            }
        }
    }
    assert!((2_940..=3_000).contains(&granted), "{granted} of 3000");
}

#[test]
fn a_thousand_takers_on_threads_are_never_granted_one_above_the_limit() {
    let child = |config| QuotaConfig { parent: Some("parent".to_owned()), ..config };
    for (config, limit) in [
        (sliding(700), 700),
        (fixed(700), 700),
        (QuotaConfig { starts: WindowStart::First, ..fixed(700) }, 700),
        (bucket(1, 700), 700),
        (slots(700), 700),
        (grouped(sliding(700)), 700),
        (child(sliding(900)), 800),
    ] {
        let quotas = quotas([("parent", fixed(800)), ("q", config)]);
        let quota = quotas.get("q").unwrap();
        let granted: Vec<_> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let take = |_| quota.take(at(0), &[b"group"], 1).ok();
                        (0..125).filter_map(take).collect::<Vec<_>>()
                    })
                })
                .collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        assert_eq!(granted.len(), limit, "{:?}", quota.config().kind);
    }
}

#[test]
fn shares_hold_to_the_unit_and_the_rest_goes_to_the_others() {
    let shares = |default| {
        let groups = [("gold", "50%"), ("silver", "25%")];
        let groups = groups.map(|(name, share)| (name.to_owned(), share.parse().unwrap())).into();
        grouped(QuotaConfig { shares: Some(SharesConfig { groups, default }), ..sliding(100) })
    };
    let allow = quota(shares(ShareDefault::Allow));
    assert_eq!(
        [b"tin".as_slice(), b"gold", b"silver", b"lead"].map(|name| drain(&allow, at(0), name)),
        [25, 50, 25, 0]
    );

    let share = quota(shares(ShareDefault::Share("10%".parse().unwrap())));
    let names = [b"a".as_slice(), b"b", b"c", b"gold"];
    assert_eq!(names.map(|name| drain(&share, at(0), name)), [10, 10, 5, 50]);

    let block = quota(shares(ShareDefault::Block));
    assert_eq!(block.take(at(0), &[b"tin"], 1).unwrap_err().why, Why::ShareBlocked);
    assert_eq!(drain(&block, at(0), b"silver"), 25);
}

#[test]
fn the_settled_cost_is_charged_or_returned() {
    for config in [sliding(10), fixed(10), bucket(10, 10)] {
        let quota = quota(config);
        let mut cheap = quota.take(at(0), &[], 6).unwrap();
        cheap.settle(at(1_000), 2);
        assert_eq!(used(&quota, at(1_000)), 2);
        let mut dear = quota.take(at(1_000), &[], 8).unwrap();
        dear.settle(at(1_000), u64::MAX);
        assert_eq!(used(&quota, at(1_000)), 12, "a cost above the limit is reduced to the limit");
        assert_eq!(quota.take(at(1_000), &[], 1).unwrap_err().why, Why::Exhausted);
        let later = quota.forecast(at(1_000), &[], 1, 0).map(|turn| turn.at).unwrap();
        assert!(quota.take(later, &[], 1).is_ok());
    }
}

#[test]
fn calls_in_transit_delay_by_one_window_at_most() {
    for starts in [WindowStart::Clock, WindowStart::First] {
        let quota = quota(QuotaConfig { starts, ..fixed(1) });
        let mut first = quota.take(at(0), &[], 1).unwrap();
        let refusal = quota.take(at(1_000), &[], 1).unwrap_err();
        assert_eq!(refusal.retry_at, Some(at(SECOND)), "{starts:?}");
        first.responded(at(300_000));
        assert!(quota.take(at(SECOND), &[], 1).is_ok(), "{starts:?}");
    }
}

#[test]
fn a_call_across_two_windows_counts_in_both() {
    let quota = quota(fixed(1));
    let woken = Arc::new(Woken::default());
    let mut first = quota.take(at(900_000), &[], 1).unwrap();
    assert!(quota.take(at(900_000), &[], 1).is_err());
    let delays = quota.watch(at(900_000), &[], 1, &Waker::from(woken.clone()));
    assert_eq!(
        quota.forecast(at(900_000), &[], 1, 0).map(|turn| turn.at),
        Some(at(SECOND)),
        "the duration of calls is unknown"
    );
    first.responded(at(1_200_000));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_ne!(quota.watch(at(1_200_000), &[], 1, Waker::noop()), delays);
    assert_eq!(quota.take(at(1_200_000), &[], 1).unwrap_err().retry_at, Some(at(2 * SECOND)));
    // From now on it is estimated.
    let _second = quota.take(at(2_800_000), &[], 1).unwrap();
    assert_eq!(
        quota.take(at(2_800_000), &[], 1).unwrap_err().retry_at,
        Some(at(3 * SECOND)),
        "at the earliest"
    );
    assert_eq!(quota.forecast(at(2_800_000), &[], 1, 0).map(|turn| turn.at), Some(at(4 * SECOND)));
}

#[test]
fn a_call_abandoned_before_a_window_ends_counts_twice() {
    let quota = quota(fixed(2));
    drop(quota.take(at(900_000), &[], 1).unwrap());
    assert_eq!(used(&quota, at(900_000)), 1);
    assert_eq!(used(&quota, at(SECOND)), 1, "its request may still be on the way");
    assert_eq!(used(&quota, at(2 * SECOND)), 0);
}

#[test]
fn a_second_call_takes_as_much_as_the_first_or_nothing() {
    let all = quotas([
        ("parent", fixed(100)),
        ("q", QuotaConfig { parent: Some("parent".to_owned()), ..fixed(70) }),
    ]);
    let quota = all.get("q").unwrap();
    let used = || all.get("parent").unwrap().snapshot(at(0), 1).groups[0].used;
    let first = quota.take(at(0), &[], 30).unwrap();
    let redraw = first.redraw();
    let second = redraw.take(at(0)).unwrap();
    assert!(redraw.take(at(0)).is_none(), "the child has 10 left");
    assert_eq!(used(), 60);
    second.cancel(at(0));
    assert_eq!(used(), 30);
    drop(redraw.take(at(0)));
    assert_eq!(used(), 60, "a call that was given up counts");
}

#[test]
fn a_provider_that_takes_back_what_it_said_wakes_who_waits() {
    let quota = quota(QuotaConfig { learn: Some(LearnConfig::default()), ..sliding(10) });
    let woken = Arc::new(Woken::default());
    let learn = |now: Timestamp, reset: &'static [u8]| {
        let mut grant = quota.take(now, &[], 1).unwrap();
        grant.responded(now);
        let fields = [
            (b"x-ratelimit-remaining".as_slice(), b"5".as_slice()),
            (b"x-ratelimit-reset".as_slice(), reset),
        ];
        grant.learn(now, &quota, 200, &fields.into_iter(), || None);
    };
    learn(at(0), b"60");
    quota.watch(at(0), &[], 1, &Waker::from(woken.clone()));
    learn(at(0), b"5");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // The same for a provider that blocks all calls: calls that cannot be served in time must learn it.
    let delays = quota.watch(at(0), &[], 1, &Waker::from(woken.clone()));
    let mut grant = quota.take(at(0), &[], 1).unwrap();
    grant.responded(at(0));
    grant.learn(at(0), &quota, 429, &[(b"retry-after".as_slice(), b"30".as_slice())].into_iter(), || None);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_ne!(quota.watch(at(0), &[], 1, Waker::noop()), delays);
}

#[test]
fn an_unanswered_call_is_counted_from_its_abandonment() {
    let quota = quota(sliding(1));
    let grant = quota.take(at(0), &[], 1).unwrap();
    assert!(quota.take(at(60 * SECOND), &[], 1).is_err(), "it is still in flight");
    drop(grant);
    assert!(quota.take(at(61 * SECOND), &[], 1).is_err());
    assert!(quota.take(at(62 * SECOND), &[], 1).is_err());
    assert!(quota.take(at(63 * SECOND + 10_000), &[], 1).is_ok());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_watcher_is_woken_once_when_a_slot_comes_free() {
    let quota = quota(slots(1));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let held = quota.take(at(0), &[], 1).unwrap();
    assert_eq!(quota.take(at(0), &[], 1).unwrap_err().retry_at, None);
    quota.watch(at(0), &[], 1, &waker);
    quota.watch(at(0), &[], 1, &waker);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    drop(held);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    drop(quota.take(at(0), &[], 1).unwrap());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
}

#[test]
fn units_ahead_delay_the_foreseen_time_by_windows() {
    for (config, expected) in [
        (fixed(10), [SECOND, SECOND, 2 * SECOND, 10 * SECOND]),
        (bucket(10, 10), [100_000, SECOND, SECOND + 100_000, 9 * SECOND + 100_000]),
    ] {
        let quota = quota(config);
        assert_eq!(drain(&quota, at(0), b""), 10);
        let when = [0, 9, 10, 90]
            .map(|ahead| micros(quota.forecast(at(0), &[], 1, ahead).map(|turn| turn.at).unwrap()));
        assert_eq!(when, expected);
    }
}

#[test]
fn groups_are_bounded_and_inventing_names_gives_nothing() {
    let quota = quota(QuotaConfig { groups_max: 3, ..grouped(sliding(5)) });
    for name in [b"a", b"b", b"c"] {
        assert_eq!(drain(&quota, at(0), name), 5);
    }
    let invented =
        (0..100).map(|name| drain(&quota, at(1_000), format!("name {name}").as_bytes())).sum::<u64>();
    assert_eq!(invented, 5, "the overflow group has the allowance of one group");
    let snapshot = quota.snapshot(at(1_000), 10);
    assert_eq!((snapshot.groups_count, snapshot.groups.len()), (3, 4));
    // `a` is in use again when the others are back at their full allowance: they are replaced by new groups,
    // not `a`.
    assert_eq!(drain(&quota, at(3 * SECOND), b"a"), 5);
    assert_eq!(drain(&quota, at(3 * SECOND), b"d"), 5);
    assert_eq!(drain(&quota, at(3 * SECOND), b"e"), 5);
    assert_eq!(drain(&quota, at(3 * SECOND), b"a"), 0);
    assert_eq!(drain(&quota, at(3 * SECOND), b"f"), 5);
    assert_eq!(drain(&quota, at(3 * SECOND), b"g"), 0);
}

#[test]
fn a_group_that_is_held_is_not_forgotten() {
    let quota = quota(QuotaConfig { groups_max: 1, ..grouped(slots(1)) });
    let held = quota.take(at(0), &[b"a"], 1).unwrap();
    let overflowing = quota.take(at(0), &[b"b"], 1).unwrap();
    assert!(quota.take(at(0), &[b"a"], 1).is_err());
    drop((held, overflowing));
    let held = quota.take(at(0), &[b"b"], 1).unwrap();
    assert!(quota.take(at(0), &[b"b"], 1).is_err());
    drop(held);
}

#[test]
fn secret_and_long_group_names_are_hidden() {
    let by_header =
        |name: &str| QuotaConfig { group_by: Some(GroupBy::Header(name.to_owned())), ..sliding(5) };
    let name = |quota: &Quota| quota.snapshot(at(0), 10).groups[0].name.clone();
    let secret = quota(by_header("x-api-key"));
    assert_eq!(drain(&secret, at(0), b"hunter2"), 5);
    assert!(name(&secret).starts_with('#') && !name(&secret).contains("hunter2"));
    let open = quota(by_header("x-team"));
    assert_eq!(drain(&open, at(0), b"blue\x1b"), 5);
    assert_eq!(name(&open), "blue\\x1b");
    let posing = quota(by_header("x-team"));
    assert_eq!(drain(&posing, at(0), b"(more)"), 5);
    assert_eq!(name(&posing), "\\(more)", "no name is mistaken for the overflow group");
    let long = quota(by_header("x-team"));
    assert_eq!(drain(&long, at(0), &b"x".repeat(100_000)), 5);
    assert_eq!(drain(&long, at(0), &b"x".repeat(100_000)), 0);
    assert_eq!(drain(&long, at(0), &b"x".repeat(100_001)), 5);
    assert!(name(&long).len() < 100);
}

#[test]
fn a_reload_carries_over_as_the_new_config_allows() {
    let spilling = |max: u64| QuotaConfig { spillover: Some(SpilloverConfig { max }), ..fixed(10) };
    let first = reloaded([("q", spilling(8))], None);
    let limit = |quotas: &Quotas, now: u64| quotas.get("q").unwrap().status(at(now), &[]).unwrap().limit;
    first.get("q").unwrap().take(at(0), &[], 1).unwrap().responded(at(0));
    assert_eq!(limit(&first, SECOND), 18);
    let less = reloaded([("q", spilling(3))], Some(&first));
    assert_eq!(limit(&less, SECOND), 13);
    let nothing = reloaded([("q", fixed(10))], Some(&less));
    assert_eq!(limit(&nothing, SECOND), 10);
}

#[test]
fn a_reload_keeps_counts_and_obeys_the_new_limit() {
    let first = quotas([("q", sliding(10)), ("other", fixed(5))]);
    assert_eq!(drain(first.get("q").unwrap(), at(0), b""), 10);
    let woken = Arc::new(Woken::default());
    first.get("q").unwrap().watch(at(0), &[], 1, &Waker::from(woken.clone()));

    let more = reloaded([("q", sliding(12))], Some(&first));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "waiters are woken for the new limit");
    assert_eq!(drain(more.get("q").unwrap(), at(0), b""), 2);
    assert_eq!(
        drain(first.get("q").unwrap(), at(0), b""),
        0,
        "calls under the old plan count in the same place"
    );

    let less = reloaded([("q", sliding(3))], Some(&more));
    assert_eq!(drain(less.get("q").unwrap(), at(SECOND / 2), b""), 0);
    assert_eq!(drain(less.get("q").unwrap(), at(SECOND + SECOND / 100), b""), 3);

    let other = reloaded([("q", fixed(3))], Some(&less));
    assert_eq!(
        drain(other.get("q").unwrap(), at(SECOND + SECOND / 100), b""),
        3,
        "another kind starts from zero"
    );
}

#[test]
fn a_month_is_counted_by_its_calendar() {
    let month = QuotaConfig {
        kind: QuotaKind::Calendar,
        window: None,
        period: Some(Period::Month),
        renews: RenewalConfig { time_zone: "Europe/Berlin".to_owned(), ..RenewalConfig::default() },
        ..sliding(5)
    };
    let quota = quota(month);
    let time = |text: &str| {
        Timestamp::from_secs(u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap())
    };
    assert_eq!(drain(&quota, time("2026-10-31T22:59:59Z"), b""), 5);
    assert_eq!(
        quota.take(time("2026-10-31T22:59:59Z"), &[], 1).unwrap_err().retry_at,
        Some(time("2026-10-31T23:00:00Z"))
    );
    assert_eq!(drain(&quota, time("2026-10-31T23:00:00Z"), b""), 5);
    assert_eq!(
        quota.forecast(time("2026-11-05T00:00:00Z"), &[], 1, 5).map(|turn| turn.at),
        Some(time("2026-12-31T23:00:00Z"))
    );
}

/// A quota whose calls hold an estimate, in each kind of windows.
fn estimated() -> [QuotaConfig; 4] {
    let month =
        QuotaConfig { kind: QuotaKind::Calendar, period: Some(Period::Month), window: None, ..sliding(10) };
    [month, fixed(10), sliding(10), bucket(10, 10)].map(|config| QuotaConfig {
        cost: CostConfig {
            request: Some("1".to_owned()),
            usage: Some(UsageCost::Tokens),
            ..CostConfig::default()
        },
        ..config
    })
}

#[test]
fn units_of_estimates_are_held_until_the_calls_end() {
    for config in estimated() {
        let kind = config.kind;
        let quota = quota(config);
        let mut first = quota.take(at(0), &[], 6).unwrap();
        let refusal = quota.take(at(0), &[], 5).unwrap_err();
        assert_eq!((refusal.why, refusal.retry_at), (Why::Held, Some(at(SECOND))), "{kind}");
        let forecast = |units, ahead| quota.forecast(at(0), &[], units, ahead).unwrap();
        assert!(forecast(5, 0).is_held && forecast(4, 5).is_held && !forecast(4, 0).is_held, "{kind}");
        assert!(!forecast(5, 5).is_after(at(0)), "{kind}");
        first.settle(at(0), 5);
        let mut second = quota.take(at(0), &[], 5).unwrap();
        second.settle(at(0), 5);
        let refusal = quota.take(at(0), &[], 1).unwrap_err();
        assert!(refusal.why == Why::Exhausted && refusal.retry_at > Some(at(0)), "{kind}: {refusal:?}");
        assert!(forecast(1, 0).is_after(at(0)), "{kind}");
    }
}

#[test]
fn a_providers_higher_count_is_believed() {
    let learn = || Some(LearnConfig::default());
    let quota = quota(QuotaConfig {
        learn: learn(),
        window: Some(egret_config::Duration::from_secs(60)),
        ..fixed(100)
    });
    let hear = |now, remaining: u64, reset: u64| {
        let mut grant = quota.take(at(now), &[], 1).unwrap();
        grant.responded(at(now));
        let (remaining, reset) = (remaining.to_string(), at(reset).as_secs().to_string());
        let fields = [("x-ratelimit-remaining", &remaining), ("x-ratelimit-reset", &reset)];
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        grant.learn(at(now), &quota, 200, &fields, || None);
    };
    let left = |now| quota.status(at(now), &[]).unwrap().remaining;
    hear(0, 1_000, 30 * SECOND);
    assert_eq!(left(0), 99, "a report of more units is not accepted");
    hear(1, 40, 30 * SECOND);
    assert_eq!(left(1), 40);
    hear(2, 70, 30 * SECOND);
    assert_eq!(left(2), 39, "the response to an earlier call arrived later");
    hear(3, 0, 30 * SECOND);
    assert_eq!(left(3), 0);
    let refusal = quota.take(at(4), &[], 1).unwrap_err();
    assert_eq!((refusal.why, refusal.retry_at), (Why::Exhausted, Some(at(30 * SECOND))));
    assert_eq!(left(30 * SECOND), 96, "when the provider's window is over, its count is too");

    let now = at(31 * SECOND);
    let mut grant = quota.take(now, &[], 1).unwrap();
    let fields = std::iter::once((b"Retry-After".as_slice(), b"999999999".as_slice()));
    grant.learn(now, &quota, 429, &fields, || None);
    let until = quota.take(now, &[], 1).unwrap_err().retry_at;
    assert_eq!(until, Some(now + Duration::from_hours(1)), "an absurd time is limited to `wait_max`");
}

fn problems_of<const N: usize>(configs: [(&str, QuotaConfig); N]) -> Vec<String> {
    let configs = configs.map(|(name, config)| (name.to_owned(), config)).into();
    validate(&configs, &["id"])
        .into_iter()
        .map(|problem| format!("{}: {}", problem.path, problem.message))
        .collect()
}

#[test]
fn contradictions_are_refused_with_their_place() {
    let parent = |config, parent: &str| QuotaConfig { parent: Some(parent.to_owned()), ..config };
    let shares = |groups: &[(&str, &str)], default| {
        let groups =
            groups.iter().map(|(name, share)| ((*name).to_owned(), share.parse().unwrap())).collect();
        grouped(QuotaConfig { shares: Some(SharesConfig { groups, default }), ..sliding(100) })
    };
    let window = |window| Some(egret_config::Duration::from_secs(window));
    let by_usage =
        |response| CostConfig { response, usage: Some(UsageCost::Tokens), ..CostConfig::default() };
    for (config, expected) in [
        (sliding(0), "quotas.q.limit: expected a whole number from 1 to 1000000000000, found `0`"),
        (
            QuotaConfig { window: None, ..sliding(1) },
            "quotas.q: the key `window` is missing: a sliding quota requires it",
        ),
        (
            QuotaConfig { window: window(0), ..sliding(1) },
            "quotas.q.window: expected 1ms to 366d, found `0s`",
        ),
        (
            QuotaConfig { window: window(400 * 86_400), ..sliding(1) },
            "quotas.q.window: expected 1ms to 366d, found `400d`",
        ),
        (
            QuotaConfig { window: window(1), ..slots(1) },
            "quotas.q.window: a concurrency quota has no `window`",
        ),
        (
            QuotaConfig { burst: Some(1), ..sliding(1) },
            "quotas.q.burst: only a token-bucket has a `burst`; this quota is sliding",
        ),
        (
            QuotaConfig { spillover: Some(SpilloverConfig { max: 1 }), ..sliding(1) },
            "quotas.q.spillover: requires consecutive windows: `kind: calendar`, or `kind: fixed` with `starts: clock`",
        ),
        (
            QuotaConfig { kind: QuotaKind::Calendar, window: None, ..sliding(1) },
            "quotas.q: the key `period` is missing: a calendar quota requires `day` or `month`",
        ),
        (
            QuotaConfig {
                cost: CostConfig { report: UsageReport::Ask, ..CostConfig::default() },
                ..sliding(1)
            },
            "quotas.q.cost.report: nothing is read from the response: add `usage` or `response`",
        ),
        (
            QuotaConfig { store: StoreKind::File, ..sliding(1) },
            "quotas.q.store: a file requires windows that begin by the clock: `kind: calendar`, or `kind: fixed` with `starts: clock`",
        ),
        (
            shares(&[("a", "60%"), ("b", "40.01%")], ShareDefault::Block),
            "quotas.q.shares.groups: the shares exceed 100% in total",
        ),
        (
            shares(&[("a", "0.5%")], ShareDefault::Block),
            "quotas.q.shares.groups.a: 0.5% of 100 units is less than one unit",
        ),
        (
            shares(&[("a", "100%")], ShareDefault::Allow),
            "quotas.q.shares.default: the listed groups leave nothing for others: set `default: block`",
        ),
        (
            shares(&[("a", "80%")], ShareDefault::Share("30%".parse().unwrap())),
            "quotas.q.shares.default: `30%` exceeds the 20% that the listed groups leave",
        ),
        (
            QuotaConfig { shares: Some(SharesConfig::default()), ..sliding(1) },
            "quotas.q.shares: requires `group_by`, which defines the groups",
        ),
        (
            QuotaConfig { cost: by_usage(None), ..slots(1) },
            "quotas.q.cost.usage: a concurrency quota counts calls: use another `kind` for tokens",
        ),
        (
            QuotaConfig { cost: by_usage(Some("1".to_owned())), ..sliding(1) },
            "quotas.q.cost.usage: the cost is either `usage` or `response`: remove one of them",
        ),
        (parent(sliding(1), "p"), "quotas.q.parent: there is no quota `p`"),
        (parent(sliding(1), "q"), "quotas.q.parent: a quota cannot be its own parent"),
    ] {
        assert_eq!(problems_of([("q", config)]), [expected]);
    }
    assert_eq!(
        problems_of([
            ("a", parent(sliding(1), "b")),
            ("b", parent(sliding(1), "c")),
            ("c", parent(sliding(1), "a"))
        ]),
        ["quotas.a.parent: forms a cycle: a → b → c → a"]
    );
    assert_eq!(
        problems_of([("a b", sliding(1))]),
        ["quotas.a b: a quota's name must consist of 1 to 64 letters, digits, `-` and `_`"]
    );
}

#[test]
fn invalid_quotas_and_their_children_are_left_out() {
    let child = |parent: &str| QuotaConfig { parent: Some(parent.to_owned()), ..sliding(1) };
    let configs =
        [("a", child("b")), ("b", child("a")), ("c", child("b")), ("d", child("none")), ("good", sliding(1))];
    let configs = configs.map(|(name, config)| (name.to_owned(), config)).into();
    let mut problems = Vec::new();
    let quotas = Quotas::compile(&configs, None, Stores::default(), &[], &mut problems);
    assert_eq!(problems.len(), 2);
    assert_eq!(quotas.iter().map(|quota| quota.name()).collect::<Vec<_>>(), ["good"]);
}

#[test]
fn quotas_are_read_as_people_write_them() {
    #[derive(Debug, Default, serde::Deserialize)]
    struct Root {
        quotas: QuotaConfigs,
    }
    let load =
        |text: &str| egret_config::load::<Root>("egret.yaml", text, |root| validate(&root.quotas, &[]));
    let text = "quotas:
  stripe-live: { limit: 100, window: 1s, group_by: header:X-Account }
  github: { limit: 5000, window: 1h, kind: fixed, learn: {} }
  maps: { limit: 50, window: 1s, kind: token-bucket, burst: 10, parent: maps-month }
  maps-month:
    limit: 100000
    kind: calendar
    period: month
    renews: { day: 15, time: \"06:00\", time_zone: Europe/Berlin }
    spillover: { max: 5000 }
    store: file
    on_store_error: open
  model:
    limit: 30000
    window: 1m
    group_by: consumer
    shares: { groups: { gold: 75%, silver: 12.5% }, default: block }
    cost: { request: \"size(string(request.body)) / 4\", response: \"response.body.usage.total_tokens\" }
    learn: { from: [retry-after], headers: [{ remaining: x-left, reset: x-back }], wait_max: 10m }
  slots: { limit: 8, kind: concurrency, group_by: account }
";
    let root = load(text).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(root.quotas.len(), 6);
    assert_eq!(root.quotas["stripe-live"].group_by, Some(GroupBy::Header("x-account".to_owned())));
    let written = serde_json::to_string(&serde_json::json!({ "quotas": root.quotas })).unwrap();
    assert_eq!(load(&written).unwrap().quotas, root.quotas, "the written config reads back");
    for (text, expected) in [
        ("quotas:\n  a: { limt: 5 }\n", "egret.yaml:2:8: quotas.a.limt: unknown key `limt`"),
        ("quotas:\n  a: { window: 1s }\n", "egret.yaml:2:3: quotas.a: the key `limit` is missing"),
        (
            "quotas:\n  a: { limit: 0, window: 1s }\n",
            "egret.yaml:2:15: quotas.a.limit: expected a whole number from 1",
        ),
        (
            "quotas:\n  a: { limit: 1, window: 1s, group_by: headr:x }\n",
            "egret.yaml:2:40: quotas.a.group_by: expected `header:NAME`",
        ),
        (
            "quotas:\n  a: { limit: 1, window: 1s, cost: { request: \"1 +\" } }\n",
            "egret.yaml:2:51: quotas.a.cost.request: this is not valid CEL: a value is missing after `+`",
        ),
        (
            "quotas:\n  a: { limit: 1, window: 1s, cost: { request: \"'one'\" } }\n",
            "egret.yaml:2:47: quotas.a.cost.request: this evaluates to",
        ),
        (
            "quotas:\n  a: { limit: 1, window: 1s, cost: { request: response.status } }\n",
            "egret.yaml:2:47: quotas.a.cost.request: ",
        ),
    ] {
        let report = load(text).unwrap_err().to_string();
        assert!(report.starts_with(expected), "{report}");
    }
}

#[test]
fn amounts_of_money_are_written_in_dollars() {
    let written = |unit: QuotaUnit, units| (unit.amount(units), unit.words(units));
    assert_eq!(written(QuotaUnit::Units, 8), ("8".to_owned(), "8 units".to_owned()));
    assert_eq!(written(QuotaUnit::Usd, 1_234_567_890).0, "$1.2345");
    assert_eq!(written(QuotaUnit::Usd, 99_999).1, "$0.0000");
}
