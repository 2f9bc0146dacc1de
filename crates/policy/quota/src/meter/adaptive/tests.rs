//! Tests of the adaptive limit against simulated providers, in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const RULE: Adaptation = Adaptation { min: 1, max: 1_000, tolerance: 1.5 };

/// A provider that serves `servers` calls at a time, each for `service` microseconds, while others wait in
/// line. Its client makes every call that the limit allows.
struct Simulation {
    limit: AdaptiveLimit,
    now: u64,
    service: u64,
    /// Time at which each server is free.
    servers: BinaryHeap<Reverse<u64>>,
    /// End and beginning of each call under way.
    under_way: BinaryHeap<Reverse<(u64, u64)>>,
    /// Calls that the client makes at most at once.
    demand: usize,
    lowest: u64,
    served: u64,
    slowest: u64,
}

impl Simulation {
    fn new(rule: Adaptation, servers: usize, service: u64) -> Self {
        let mut new = Self {
            limit: AdaptiveLimit::new(rule),
            now: 1_790_000_000 * SECOND,
            service,
            servers: BinaryHeap::new(),
            under_way: BinaryHeap::new(),
            demand: usize::MAX,
            lowest: u64::MAX,
            served: 0,
            slowest: 0,
        };
        new.set_servers(servers);
        new
    }

    fn set_servers(&mut self, servers: usize) {
        self.servers = (0..servers).map(|_| Reverse(self.now)).collect();
    }

    /// Runs for a time, and counts from its start.
    fn run(&mut self, micros: u64) -> &mut Self {
        (self.lowest, self.served, self.slowest) = (u64::MAX, 0, 0);
        let end = self.now + micros;
        while self.now < end {
            while self.under_way.len() < self.demand.min(self.limit.limit().try_into().unwrap()) {
                let Reverse(free) = self.servers.pop().unwrap();
                let done = free.max(self.now) + self.service;
                self.servers.push(Reverse(done));
                self.under_way.push(Reverse((done, self.now)));
                self.limit.taken(self.under_way.len().try_into().unwrap());
            }
            let Reverse((done, made)) = self.under_way.pop().unwrap();
            self.now = done;
            self.served += 1;
            self.slowest = self.slowest.max(done - made);
            self.limit.ended(LoadSign::Served, made, done);
            self.lowest = self.lowest.min(self.limit.limit());
        }
        self
    }

    fn limit(&self) -> u64 {
        self.limit.limit()
    }
}

#[test]
fn the_limit_settles_where_the_provider_is_full() {
    for (servers, service) in [(12, 20 * MS), (40, 20 * MS), (40, 200 * MS), (100, 5 * MS)] {
        let mut provider = Simulation::new(RULE, servers, service);
        provider.run(20 * SECOND).run(30 * SECOND);
        let full = 30 * SECOND / service * u64::try_from(servers).unwrap();
        assert!(provider.served * 100 >= full * 95, "{servers}: {} of {full}", provider.served);
        assert!(provider.slowest <= service * 3, "{servers}: {} µs for {service}", provider.slowest);
    }
}

#[test]
fn the_limit_falls_with_the_capacity_and_recovers_with_it() {
    let mut provider = Simulation::new(RULE, 40, 20 * MS);
    provider.run(5 * SECOND);
    assert!(provider.limit() >= 40, "{}", provider.limit());
    provider.set_servers(10);
    provider.run(5 * SECOND);
    assert!(provider.limit() <= 25, "{}", provider.limit());
    provider.set_servers(40);
    provider.run(5 * SECOND);
    assert!(provider.limit() >= 40, "{}", provider.limit());
}

#[test]
fn a_latency_with_another_cause_becomes_normal() {
    let mut provider = Simulation::new(Adaptation { max: 60, ..RULE }, 100, 20 * MS);
    provider.demand = 50;
    provider.run(5 * SECOND);
    provider.service = 60 * MS;
    provider.run(2 * SECOND);
    assert!(provider.lowest < 20, "{}", provider.lowest);
    assert!(provider.limit() >= 30, "{}", provider.limit());
    provider.run(10 * SECOND);
    assert!(provider.served * 100 >= 50 * 10 * 1_000 / 60 * 95, "{}", provider.served);
}

#[test]
fn a_start_under_overload_is_corrected_by_probes() {
    let mut provider = Simulation::new(RULE, 2, 20 * MS);
    provider.run(5 * SECOND);
    assert!(provider.limit() >= 7, "{}", provider.limit());
    provider.run(90 * SECOND);
    assert!(provider.limit() <= 6, "{}", provider.limit());
}

#[test]
fn refusals_lower_the_limit_and_quick_ones_do_not_raise_it() {
    let rule = Adaptation { min: 3, ..RULE };
    let mut limit = AdaptiveLimit::new(rule);
    let mut now = SECOND;
    for _ in 0..10_000 {
        limit.taken(limit.limit());
        assert!(!limit.ended(LoadSign::Refused, now, now + MS));
        now += MS;
    }
    assert_eq!(limit.limit(), 3);
}

#[test]
fn a_few_refusals_among_many_calls_do_not_lower_the_limit() {
    let mut limit = AdaptiveLimit::new(RULE);
    let mut now = SECOND;
    for call in 0..10_000 {
        limit.taken(limit.limit());
        let sign = if call % 50 == 0 { LoadSign::Refused } else { LoadSign::Served };
        limit.ended(sign, now, now + MS);
        now += MS;
    }
    assert!(limit.limit() > 100, "{}", limit.limit());
}

#[test]
fn the_limit_leaves_its_minimum_after_an_idle_hour() {
    let mut provider = Simulation::new(RULE, 40, 20 * MS);
    provider.run(SECOND);
    for call in 0..10_000 {
        let made = provider.now + call * MS;
        provider.limit.taken(1);
        provider.limit.ended(LoadSign::Refused, made, made + MS);
    }
    assert_eq!(provider.limit(), 1);
    provider.now += 3_600 * SECOND;
    provider.under_way.clear();
    provider.set_servers(40);
    provider.run(10 * SECOND);
    assert!(provider.limit() >= 40, "{}", provider.limit());
}

#[test]
fn the_limit_stays_where_it_is_while_half_of_it_suffices() {
    let mut provider = Simulation::new(RULE, 1_000, 20 * MS);
    provider.run(2 * SECOND);
    let limit = provider.limit();
    provider.demand = 5;
    provider.run(20 * SECOND);
    provider.service = 500 * MS;
    provider.run(20 * SECOND);
    assert_eq!(provider.limit(), limit);
    assert_eq!(provider.limit.latencies().unwrap()[1], 500 * MS);
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_it() {
    let mut provider = Simulation::new(RULE, 40, 20 * MS);
    provider.run(200 * MS);
    let before = provider.limit();
    provider.now -= 3_600 * SECOND;
    provider.limit.shift_back(3_600 * SECOND);
    provider.under_way.clear();
    provider.set_servers(40);
    provider.run(5 * SECOND);
    assert!(provider.limit() > before, "{} after {before}", provider.limit());
}

#[test]
fn the_next_process_goes_on_with_the_limit() {
    let mut provider = Simulation::new(RULE, 40, 20 * MS);
    provider.run(5 * SECOND);
    let state = provider.limit.state().unwrap();
    let mut next = AdaptiveLimit::new(RULE);
    next.inherit(state);
    assert_eq!((next.limit(), next.state()), (provider.limit(), Some(state)));
    let mut narrow = AdaptiveLimit::new(Adaptation { max: 7, ..RULE });
    narrow.inherit(state);
    assert_eq!(narrow.limit(), 7);
}

proptest! {
    #[test]
    fn the_limit_keeps_within_its_bounds(
        min in 1_u64..50,
        more in 0_u64..500,
        tolerance in 1.1_f64..10.0,
        calls in prop::collection::vec((0..200 * MS, 0..10 * SECOND, 0..600_u64, 0..4_u8), 1..2_000),
    ) {
        let mut limit = AdaptiveLimit::new(Adaptation { min, max: min + more, tolerance });
        let mut now = SECOND;
        for (after, took, in_flight, sign) in calls {
            now += after;
            limit.taken(in_flight);
            let sign = if sign == 0 { LoadSign::Refused } else { LoadSign::Served };
            let before = limit.limit();
            let rises = limit.ended(sign, now, now + took);
            prop_assert!((min..=min + more).contains(&limit.limit()), "{limit:?}");
            prop_assert_eq!(rises, limit.limit() > before);
            prop_assert!(!(rises && limit.latencies().is_none()), "only served calls raise it");
        }
    }
}
