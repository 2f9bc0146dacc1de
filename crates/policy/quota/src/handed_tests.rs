//! Tests of the guarantees of quotas while one process hands its counts over to the next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use egret_clock::Timestamp;
use proptest::prelude::*;

use super::group_kind::GroupKind;
use super::handed_state::{CorrectionState, GaugeState, GroupState, MeterState, WindowsState};
use super::tests::next_ended;
use super::*;

const SECOND: u64 = 1_000_000;
/// Interval between two reports.
const REPORT: u64 = 20_000;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_790_000_000 * SECOND + micros)
}

fn quotas(config: &QuotaConfig) -> Quotas {
    let configs = [("q".to_owned(), config.clone())].into();
    let mut problems = Vec::new();
    let quotas = Quotas::compile(&configs, None, Stores::default(), &[], &mut problems);
    assert_eq!(problems, Vec::new());
    quotas
}

fn of_kind(kind: QuotaKind, limit: u64) -> QuotaConfig {
    let window = QuotaConfig::default().window.filter(|_| kind != QuotaKind::Concurrency);
    QuotaConfig { limit, kind, window, ..QuotaConfig::default() }
}

/// Returns what arrives of a message.
fn sent<T: serde::Serialize + serde::de::DeserializeOwned>(message: &T) -> T {
    serde_json::from_str(&serde_json::to_string(message).unwrap()).unwrap()
}

/// Two processes.
struct Pair {
    old: Quotas,
    new: Quotas,
    inheritance: Option<Inheritance>,
}

impl Pair {
    fn start(config: &QuotaConfig) -> Self {
        Self { old: quotas(config), new: quotas(config), inheritance: None }
    }

    fn hand_over(&mut self, now: u64, calls: u64) {
        let handed = sent(&self.old.hand_over(at(now), calls));
        self.inheritance = Some(self.new.inherit(at(now), &handed));
    }

    fn report(&mut self, now: u64, calls: u64) {
        let Some(inheritance) = &mut self.inheritance else { return };
        let lendings = inheritance.settle(&self.new, at(now), &sent(&self.old.report(at(now), calls)));
        self.old.lend(at(now), &sent(&lendings));
    }

    fn used(&self, now: u64) -> u64 {
        let quota = self.new.get("q").unwrap();
        quota.snapshot(at(now), 10).groups.iter().map(|group| group.used).sum()
    }
}

/// One simulated call: the time since the previous attempt, the delay until the provider counts it, the delay
/// until it ends, and whether the old process makes it after the hand-over.
#[derive(Debug, Clone, Copy)]
struct Call {
    after: u64,
    travels: u64,
    works: u64,
    is_old: bool,
    is_dropped: bool,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let mostly = |low: u64, high: u64| prop_oneof![8 => 0..low, 1 => 0..high];
    let parts = (
        mostly(30_000, SECOND),
        mostly(20_000, 2 * SECOND),
        mostly(20_000, 2 * SECOND),
        any::<bool>(),
        prop::bool::weighted(0.1),
    );
    let call = parts.prop_map(|(after, travels, works, is_old, is_dropped)| Call {
        after,
        travels,
        works,
        is_old,
        is_dropped,
    });
    prop::collection::vec(call, 1..300)
}

/// Returns the calls as the provider counted them: when, and when it had responded. The counts are handed
/// over before call number `handed`; the old process is cut off before call number `cut`.
fn counted(config: &QuotaConfig, calls: &[Call], handed: usize, cut: usize) -> Vec<(u64, u64)> {
    let mut pair = Pair::start(config);
    let (mut now, mut reported) = (0, 0);
    let mut under_way: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut grants: HashMap<usize, Grant> = HashMap::new();
    let mut counted = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        now += call.after;
        while let Some((ends, ended)) = next_ended(&mut under_way, now) {
            let Some(mut grant) = grants.remove(&ended) else { continue };
            if !calls[ended].is_dropped {
                grant.responded(at(ends));
            }
        }
        if index == handed {
            pair.hand_over(now, 2);
        }
        if now >= reported + REPORT && index < cut {
            reported = now;
            pair.report(now, 1);
        }
        if index == cut
            && let Some(inheritance) = pair.inheritance.take()
        {
            inheritance.end(at(now));
        }
        let is_old = index < handed || (call.is_old && index < cut);
        let quotas = if is_old { &pair.old } else { &pair.new };
        let Ok(grant) = quotas.get("q").unwrap().take(at(now), &[], 1) else { continue };
        let counts = now + call.travels;
        let ends = counts + call.works;
        under_way.push(Reverse((ends, index)));
        grants.insert(index, grant);
        counted.push((counts, ends));
    }
    counted.sort_unstable();
    counted
}

#[test]
fn a_call_settled_after_a_handover_gives_back_the_rest() {
    let mut pair = Pair::start(&of_kind(QuotaKind::Fixed, 100));
    let take = |now: u64| pair.old.get("q").unwrap().take(at(now), &[], 40).unwrap();
    let mut grants = [take(0), take(0)];
    pair.hand_over(1, 0);
    assert_eq!(pair.used(2), 80);
    grants[0].settle(at(3), 10);
    pair.report(20_000, 0);
    assert_eq!(pair.used(20_001), 50);
    grants[1].settle(at(20_002), 50);
    pair.report(40_000, 0);
    assert_eq!(pair.used(40_001), 60);
}

proptest! {
    #[test]
    fn two_processes_together_never_exceed_a_sliding_window(
        limit in 3_u64..20, calls in calls(), handed in 0_usize..200,
    ) {
        let counted = counted(&of_kind(QuotaKind::Sliding, limit), &calls, handed, usize::MAX);
        for (first, (begin, _)) in counted.iter().enumerate() {
            let within = counted[first..].iter().take_while(|(time, _)| *time < begin + SECOND);
            prop_assert!(within.count() as u64 <= limit);
        }
    }

    #[test]
    fn two_processes_together_never_exceed_a_fixed_window(
        limit in 3_u64..20, calls in calls(), handed in 0_usize..200,
    ) {
        let mut windows = BTreeMap::new();
        for (time, _) in counted(&of_kind(QuotaKind::Fixed, limit), &calls, handed, usize::MAX) {
            *windows.entry(time / SECOND).or_insert(0) += 1;
        }
        prop_assert!(windows.values().all(|used| *used <= limit), "{:?}", windows);
    }

    #[test]
    fn two_processes_together_never_empty_a_token_bucket(
        limit in 3_u64..20, calls in calls(), handed in 0_usize..200,
    ) {
        let (mut debt, mut last) = (0, 0);
        for (time, _) in counted(&of_kind(QuotaKind::TokenBucket, limit), &calls, handed, usize::MAX) {
            debt = u64::saturating_sub(debt, (time - last) * limit) + SECOND;
            last = time;
            prop_assert!(debt <= limit * SECOND);
        }
    }

    #[test]
    fn two_processes_together_never_have_more_calls_under_way(
        limit in 3_u64..20, calls in calls(), handed in 0_usize..200,
    ) {
        let counted = counted(&of_kind(QuotaKind::Concurrency, limit), &calls, handed, usize::MAX);
        for (begin, _) in &counted {
            let under_way = counted.iter().filter(|(time, ends)| time <= begin && begin < ends);
            prop_assert!(under_way.count() as u64 <= limit);
        }
    }

    #[test]
    fn the_limit_is_kept_when_the_old_process_is_lost(
        limit in 3_u64..20, mut calls in calls(), handed in 0_usize..100, lasts in 0_usize..100,
    ) {
        // What a lost process has sent arrives within a second.
        for call in &mut calls {
            call.travels %= SECOND;
        }
        let counted = counted(&of_kind(QuotaKind::Sliding, limit), &calls, handed, handed + lasts);
        for (first, (begin, _)) in counted.iter().enumerate() {
            let within = counted[first..].iter().take_while(|(time, _)| *time < begin + SECOND);
            prop_assert!(within.count() as u64 <= limit);
        }
    }

    #[test]
    fn the_next_process_decides_as_the_same_one_would(
        kind in prop::sample::select(vec![QuotaKind::Sliding, QuotaKind::Fixed, QuotaKind::TokenBucket]),
        limit in 1_u64..10,
        steps in prop::collection::vec((0_u64..300_000, 1_u64..3), 2..60),
        handed in 0_usize..60,
    ) {
        let config = of_kind(kind, limit);
        let (mut pair, twin) = (Pair::start(&config), quotas(&config));
        let mut now = 0;
        for (index, (after, cost)) in steps.into_iter().enumerate() {
            now += after;
            if index == handed {
                pair.hand_over(now, 0);
            }
            let take = |quotas: &Quotas| {
                let grant = quotas.get("q").unwrap().take(at(now), &[], cost);
                grant.map(|mut grant| grant.responded(at(now)))
            };
            let quotas = if index < handed { &pair.old } else { &pair.new };
            prop_assert_eq!(take(quotas), take(&twin));
        }
    }

    #[test]
    fn no_counts_make_the_next_process_panic(
        gauge in gauges(), held: u64, latest: u64, response: u64,
        withheld: u64, withheld_until: u64, blocked_until: u64,
        reports in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..5),
    ) {
        let kinds = [QuotaKind::Sliding, QuotaKind::Fixed, QuotaKind::TokenBucket, QuotaKind::Concurrency];
        for kind in kinds {
            let config = of_kind(kind, 5);
            let mut handed = quotas(&config);
            handed.get("q").unwrap().take(at(0), &[], 1).unwrap().responded(at(0));
            let mut states = std::mem::take(&mut handed).hand_over(at(0), 1);
            for state in &mut states {
                let meter = MeterState { held, latest, response, gauge: gauge.clone(), adaptive: None };
                let correction = CorrectionState { withheld, withheld_until, blocked_until };
                state.groups = vec![GroupState { kind: GroupKind::Whole, name: Vec::new(), meter, correction }];
            }
            let new = quotas(&config);
            let mut inheritance = new.inherit(at(1), &sent(&states));
            let group = || GroupId { quota: "q".to_owned(), kind: GroupKind::Whole, name: Vec::new() };
            for (number, (counted, abandoned, returned, wanted)) in (0..).zip(&reports) {
                let balance = Balance {
                    group: group(),
                    counted: *counted,
                    abandoned: *abandoned,
                    returned: *returned,
                    wanted: *wanted,
                };
                inheritance.settle(&new, at(number * SECOND), &[balance]);
                let quota = new.get("q").unwrap();
                drop(quota.take(at(number * SECOND), &[], 1));
                quota.forecast(at(number * SECOND), &[], 3, 9).map(|turn| turn.at);
                quota.snapshot(at(number * SECOND), 10);
            }
            inheritance.end(at(9 * SECOND));
        }
    }
}

fn gauges() -> impl Strategy<Value = GaugeState> {
    let sliding = prop::collection::vec(any::<(u64, u64)>(), 0..5).prop_map(GaugeState::Sliding);
    let windows =
        any::<(Option<u64>, u64, u64, u64, u64)>().prop_map(|(end, used, spilled, late, late_until)| {
            GaugeState::Windows(WindowsState { end, used, spilled, late, late_until })
        });
    let bucket = any::<([u64; 2], u64)>().prop_map(|(debt, at)| GaugeState::Bucket(debt, at));
    prop_oneof![sliding, windows, bucket, Just(GaugeState::Slots)]
}

#[test]
fn a_replaced_process_uses_reserved_and_lent_units() {
    let mut pair = Pair::start(&of_kind(QuotaKind::Sliding, 10));
    let old = |pair: &Pair, now: u64| pair.old.get("q").unwrap().take(at(now), &[], 1);
    let mut first = old(&pair, 0).unwrap();
    pair.hand_over(1, 2);
    assert_eq!(pair.used(1), 3, "one in transit, two in reserve");
    first.responded(at(2));
    let held: Vec<Grant> = (0..2).map(|_| old(&pair, 2).unwrap()).collect();
    let refused = old(&pair, 2).unwrap_err();
    assert_eq!(refused.why, Why::Fetching, "the next process may lend more");
    pair.report(3, 0);
    assert_eq!(pair.used(3), 4);
    let lent = old(&pair, 3).unwrap();
    for mut grant in held.into_iter().chain([lent]) {
        grant.responded(at(4));
    }
    pair.report(5, 0);
    assert_eq!(pair.used(5), 4);
    assert_eq!(pair.used(2 * SECOND), 0, "all have come back");
}

#[test]
fn units_that_are_not_needed_are_returned_and_missing_ones_come_first() {
    let mut pair = Pair::start(&of_kind(QuotaKind::Sliding, 4));
    let take = |quotas: &Quotas, now: u64| quotas.get("q").unwrap().take(at(now), &[], 1);
    take(&pair.old, 0).unwrap().responded(at(0));
    pair.hand_over(0, 2);
    assert_eq!(pair.used(0), 3);
    pair.report(1, 0);
    assert_eq!(pair.used(1), 1, "no client is connected any more");
    let mut new: Vec<Grant> = (0..3).map(|_| take(&pair.new, 2).unwrap()).collect();
    assert_eq!(take(&pair.old, 3).unwrap_err().why, Why::Fetching);
    pair.report(3, 0);
    assert_eq!(take(&pair.old, 3).unwrap_err().why, Why::Exhausted);
    new.pop().unwrap().cancel(at(4));
    assert!(take(&pair.new, 4).is_err(), "the free unit is promised to the old process");
    pair.report(5, 0);
    drop(take(&pair.old, 5).unwrap());
}

#[test]
fn groups_keep_their_counts_and_new_ones_are_lent() {
    let config = QuotaConfig { group_by: Some(GroupBy::Account), ..of_kind(QuotaKind::Sliding, 2) };
    let mut pair = Pair::start(&config);
    let long = [b'x'; 300];
    let take = |quotas: &Quotas, name: &[u8]| quotas.get("q").unwrap().take(at(0), &[name], 1);
    for name in [b"one".as_slice(), &long] {
        for _ in 0..2 {
            take(&pair.old, name).unwrap().responded(at(0));
        }
    }
    pair.hand_over(0, 1);
    for name in [b"one".as_slice(), &long] {
        assert!(take(&pair.new, name).is_err(), "{}", name.escape_ascii());
    }
    assert_eq!(take(&pair.old, b"new").unwrap_err().why, Why::Fetching);
    pair.report(0, 1);
    take(&pair.old, b"new").unwrap().responded(at(0));
    pair.report(0, 1);
    take(&pair.new, b"new").unwrap().responded(at(0));
    assert!(take(&pair.new, b"new").is_err());
}

#[test]
fn a_quota_that_counts_in_another_way_starts_anew() {
    let old = quotas(&of_kind(QuotaKind::Sliding, 1));
    old.get("q").unwrap().take(at(0), &[], 1).unwrap().responded(at(0));
    let handed = old.hand_over(at(0), 0);
    let take = |config: &QuotaConfig| {
        let new = quotas(config);
        new.inherit(at(0), &handed);
        new.get("q").unwrap().take(at(0), &[], 1).map(drop)
    };
    assert!(take(&of_kind(QuotaKind::Sliding, 1)).is_err());
    assert!(take(&of_kind(QuotaKind::Sliding, 2)).is_ok(), "the limit may change");
    assert!(take(&of_kind(QuotaKind::Fixed, 1)).is_ok());
}
