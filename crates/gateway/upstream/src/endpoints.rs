//! The endpoints of one provider, as one worker sees them: the choice of the one for a call.
//!
//! Each worker judges them by its own calls, so nothing is shared. The time to the response decides, times
//! the calls that wait for one; those that are about as fast share the calls. An endpoint that fails, or that
//! asks for a pause, is left out for a while. One that gets no calls because it is slow gets one now and
//! then, which shows whether it still is.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Moment;
use egret_observe::endpoint_stats::EndpointCounters;

use crate::Upstream;

/// Number of calls to other endpoints after which one gets a call although it is slow: 3 of 100 calls.
const PROBE_AFTER: u32 = 32;
/// Number of failed calls in a row after which an endpoint is left out.
const FAILURES_MAX: u32 = 3;
/// Time for which it is left out at first. Each further failure doubles it.
const EXCLUDED_FIRST: Duration = Duration::from_secs(1);
/// Number of times that it doubles: up to 32 s.
const DOUBLINGS_MAX: u32 = 5;
/// Maximum time for which an endpoint is left out because it has asked for a pause.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The state of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointHealth {
    /// Time to the response of recent calls, in nanoseconds. 0 before the first.
    latency_nanos: Cell<u64>,
    /// Number of calls that wait for a response.
    waiting: Cell<u32>,
    /// Number of failed calls since the last one that has not failed.
    failures: Cell<u32>,
    /// End of the time for which it is left out.
    excluded_until: Cell<Moment>,
    /// Number of calls to the other endpoints since its last one.
    passed_over: Cell<u32>,
}

impl Default for EndpointHealth {
    fn default() -> Self {
        Self {
            latency_nanos: Cell::default(),
            waiting: Cell::default(),
            failures: Cell::default(),
            excluded_until: Cell::new(Moment::from_nanos(0)),
            passed_over: Cell::default(),
        }
    }
}

impl EndpointHealth {
    /// Returns `true` if it may be called. After failures, one call at a time shows whether it is well again.
    fn is_available(&self, now: Moment) -> bool {
        self.excluded_until.get() <= now && (self.failures.get() < FAILURES_MAX || self.waiting.get() == 0)
    }

    /// Returns the time that a further call would have to wait for its response, by experience.
    fn cost(&self) -> u64 {
        match (self.latency_nanos.get(), self.waiting.get()) {
            // One call finds out how long it takes.
            (0, 1..) => u64::MAX,
            (latency, waiting) => latency.saturating_mul(u64::from(waiting) + 1),
        }
    }

    fn is_due_for_probe(&self) -> bool {
        self.passed_over.get() >= PROBE_AFTER && self.waiting.get() == 0
    }

    /// Learns the time to a response. More is believed sooner than less, so a stall shows at once; after a
    /// time without calls, the first one counts alone.
    fn learn(&self, sample: Duration, is_alone: bool) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        let known = self.latency_nanos.get();
        self.latency_nanos.set(match known {
            _ if is_alone || known == 0 => sample,
            _ if sample > known => known + (sample - known) / 2,
            _ => known - (known - sample) / 8,
        });
    }

    /// Counts a failure. After several in a row, or if it `is_unreachable`, the endpoint is left out. Returns
    /// the end of that time.
    fn fail(&self, is_unreachable: bool, now: Moment) -> Option<Moment> {
        let least = if is_unreachable { FAILURES_MAX - 1 } else { 0 };
        let failures = self.failures.get().max(least).saturating_add(1);
        self.failures.set(failures);
        let doublings = failures.checked_sub(FAILURES_MAX)?.min(DOUBLINGS_MAX);
        let until = self.excluded_until.get().max(now + EXCLUDED_FIRST * (1 << doublings));
        self.excluded_until.set(until);
        Some(until)
    }
}

/// A call to one endpoint of a provider, until its response begins. Dropped without an outcome, it says
/// nothing about the endpoint.
#[derive(Debug)]
#[must_use = "the call counts as waiting until it is dropped"]
pub struct EndpointCall {
    upstream: Rc<Upstream>,
    /// `true` if the endpoint had none for a time.
    is_alone: bool,
    /// `true` if the request can go to an endpoint that was not tried, if this one fails.
    has_other: bool,
    begun: Moment,
}

impl EndpointCall {
    /// Chooses the endpoint of a call: one that is not among those `tried` for the same request, if one of
    /// these is well. `roll` decides among those that are about as fast. Returns `None` if the provider has
    /// one endpoint alone.
    pub fn choose(upstream: &Rc<Upstream>, tried: &[Rc<Upstream>], roll: u64, now: Moment) -> Option<Self> {
        if !upstream.has_endpoints() {
            return None;
        }
        let is_untried = |endpoint: &&Rc<Upstream>| !tried.iter().any(|tried| Rc::ptr_eq(tried, endpoint));
        let (mut left, tried): (Vec<&Rc<Upstream>>, Vec<_>) =
            upstream.at_all_endpoints().partition(is_untried);
        let mut has_other = left.len() > 1;
        let is_well = |endpoint: &&Rc<Upstream>| endpoint.health.is_available(now);
        // One that was tried and is well is better than one that is left out.
        if left.is_empty() || (!left.iter().any(is_well) && tried.iter().any(is_well)) {
            (left, has_other) = (tried, false);
        }
        let healths: Vec<&EndpointHealth> = left.iter().map(|endpoint| &endpoint.health).collect();
        let chosen = Rc::clone(left.get(choose(&healths, roll, now)?)?);
        for other in upstream.at_all_endpoints().filter(|other| !Rc::ptr_eq(other, &chosen)) {
            let passed_over = &other.health.passed_over;
            passed_over.set(passed_over.get().saturating_add(1));
        }
        Some(Self::new(chosen, has_other, now))
    }

    fn new(upstream: Rc<Upstream>, has_other: bool, begun: Moment) -> Self {
        let health = &upstream.health;
        let is_alone = health.passed_over.replace(0) >= PROBE_AFTER;
        health.waiting.set(health.waiting.get() + 1);
        if let Some(counters) = counters_of(&upstream) {
            counters.calls.add(1);
        }
        Self { upstream, is_alone, has_other, begun }
    }

    /// Returns the endpoint.
    pub fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    /// Returns `true` if the request can go to an endpoint that was not tried, if this one fails.
    pub fn has_other(&self) -> bool {
        self.has_other
    }

    /// Notes a response that began after `latency`. `pause` is the time for which the endpoint wants no
    /// further calls: it has asked for it, or its allowance is spent. Refusals do not make an endpoint
    /// faster: they come at once.
    pub fn note_response(self, status: u16, latency: Duration, pause: Option<Duration>, now: Moment) {
        match pause {
            Some(pause) if matches!(status, 429 | 503) => {
                self.exclude(now + pause.clamp(EXCLUDED_FIRST, PAUSE_MAX));
            }
            _ if status == 429 || status >= 500 => self.note_failure(false, Duration::ZERO, now),
            _ => {
                let health = &self.upstream.health;
                let known = health.latency_nanos.get();
                if status < 400 || known == 0 || latency.as_nanos() > u128::from(known) {
                    health.learn(latency, self.is_alone);
                }
                health.failures.set(0);
                if let Some(pause) = pause {
                    self.exclude(now + pause.min(PAUSE_MAX));
                }
            }
        }
    }

    /// Notes that there was no response for as long as the call has `waited`. The endpoint `is_unreachable`
    /// if there was no connection.
    pub fn note_failure(self, is_unreachable: bool, waited: Duration, now: Moment) {
        if let Some(counters) = counters_of(&self.upstream) {
            counters.failures.add(1);
        }
        self.learn_wait(waited);
        if let Some(until) = self.upstream.health.fail(is_unreachable, now) {
            self.exclude(until);
        }
    }

    /// Notes that the call was given up, and not by the endpoint. It was `asked` at this time, if that was
    /// later than the choice. The wait tells how long a response takes at least.
    pub fn note_given_up(self, asked: Moment, now: Moment) {
        self.learn_wait(now.since(asked.max(self.begun)));
    }

    fn learn_wait(&self, waited: Duration) {
        let health = &self.upstream.health;
        if waited.as_nanos() > u128::from(health.latency_nanos.get()) {
            health.learn(waited, self.is_alone);
        }
    }

    fn exclude(&self, until: Moment) {
        let until = self.upstream.health.excluded_until.get().max(until);
        self.upstream.health.excluded_until.set(until);
        if let Some(counters) = counters_of(&self.upstream) {
            counters.exclude(until);
        }
    }
}

impl Drop for EndpointCall {
    fn drop(&mut self) {
        let waiting = &self.upstream.health.waiting;
        debug_assert!(waiting.get() > 0);
        waiting.set(waiting.get() - 1);
    }
}

/// Returns the counters of the endpoint, if its provider has several.
fn counters_of(upstream: &Upstream) -> Option<&EndpointCounters> {
    Some(upstream.plan.endpoint_stats.as_ref()?.of(upstream.worker))
}

/// Chooses among the endpoints that are `left`, and returns the number of the chosen one. If all of them are
/// left out, it is the one whose time ends first: a call that may fail is better than none.
fn choose(left: &[&EndpointHealth], roll: u64, now: Moment) -> Option<usize> {
    let available = || left.iter().enumerate().filter(|(_, health)| health.is_available(now));
    let Some(cheapest) = available().map(|(_, health)| health.cost()).min() else {
        let (number, _) = left.iter().enumerate().min_by_key(|(_, health)| health.excluded_until.get())?;
        return Some(number);
    };
    if let Some((probed, _)) = available().find(|(_, health)| health.is_due_for_probe()) {
        return Some(probed);
    }
    // About as fast: not slower by more than a quarter.
    let fast = || available().filter(|(_, health)| health.cost() <= cheapest.saturating_add(cheapest / 4));
    let drawn = roll % fast().count().max(1) as u64;
    let (number, _) = fast().nth(usize::try_from(drawn).ok()?)?;
    Some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    /// A world with endpoints that respond after as many milliseconds. Calls follow each other.
    struct World {
        endpoints: Vec<EndpointHealth>,
        now: Moment,
        roll: u64,
    }

    impl World {
        fn new(count: usize) -> Self {
            let endpoints = (0..count).map(|_| EndpointHealth::default()).collect();
            Self { endpoints, now: START, roll: 0 }
        }

        /// Chooses as [`EndpointCall::choose`] does.
        fn choose(&mut self) -> (usize, bool) {
            self.roll += 1;
            let healths: Vec<_> = self.endpoints.iter().collect();
            let chosen = choose(&healths, self.roll, self.now).unwrap();
            for (_, health) in self.endpoints.iter().enumerate().filter(|(number, _)| *number != chosen) {
                health.passed_over.set(health.passed_over.get() + 1);
            }
            let is_alone = self.endpoints[chosen].passed_over.replace(0) >= PROBE_AFTER;
            (chosen, is_alone)
        }

        /// Makes `calls`, and returns the number of calls that went to each endpoint.
        fn calls(&mut self, calls: usize, latencies_ms: &[u64]) -> Vec<usize> {
            let mut counts = vec![0; self.endpoints.len()];
            for _ in 0..calls {
                let (chosen, is_alone) = self.choose();
                counts[chosen] += 1;
                let latency = Duration::from_millis(latencies_ms[chosen]);
                self.now = self.now + latency;
                self.endpoints[chosen].learn(latency, is_alone);
                self.endpoints[chosen].failures.set(0);
            }
            counts
        }
    }

    #[test]
    fn a_slow_endpoint_keeps_few_calls_and_gets_its_share_back() {
        let mut world = World::new(2);
        let counts = world.calls(2_000, &[10, 200]);
        assert!((1..=100).contains(&counts[1]), "{counts:?}");
        let counts = world.calls(2_000, &[10, 10]);
        assert!(counts[1] > 800, "{counts:?}");
    }

    #[test]
    fn endpoints_that_are_about_as_fast_share_the_calls() {
        let counts = World::new(3).calls(3_000, &[100, 110, 120]);
        assert!(counts.iter().all(|count| *count > 700), "{counts:?}");
    }

    #[test]
    fn calls_that_wait_make_an_endpoint_dearer() {
        let mut world = World::new(2);
        world.calls(10, &[10, 15]);
        world.endpoints[0].waiting.set(3);
        assert_eq!(world.choose().0, 1);
    }

    #[test]
    fn a_failing_endpoint_is_left_out_longer_and_probed_once() {
        let mut world = World::new(2);
        world.calls(4, &[10, 10]);
        for failure in 0..FAILURES_MAX {
            let until = world.endpoints[0].fail(false, world.now);
            assert_eq!(until.is_some(), failure == FAILURES_MAX - 1);
        }
        assert_eq!(world.calls(20, &[10, 1]), [0, 20]);
        world.now = world.now + EXCLUDED_FIRST;
        world.endpoints[0].waiting.set(1);
        assert_eq!(world.calls(20, &[10, 10])[0], 0, "one call is there already");
        world.endpoints[0].waiting.set(0);
        assert_eq!(world.endpoints[0].fail(false, world.now), Some(world.now + EXCLUDED_FIRST * 2));
        for _ in 0..20 {
            world.endpoints[0].fail(false, world.now);
        }
        assert_eq!(world.endpoints[0].excluded_until.get(), world.now + EXCLUDED_FIRST * 32);
    }

    #[test]
    fn an_endpoint_that_cannot_be_reached_is_left_out_at_once() {
        let world = World::new(1);
        assert_eq!(world.endpoints[0].fail(true, world.now), Some(world.now + EXCLUDED_FIRST));
    }

    proptest! {
        /// There is always an endpoint to call, and never one that is left out while another one is not.
        #[test]
        fn a_call_always_has_the_best_endpoint_there_is(
            states in prop::collection::vec((0_u64..4, 0_u32..3, 0_u32..6, 0_u64..4, 0_u32..70), 1..6),
            roll: u64,
        ) {
            let healths: Vec<_> = states.iter().map(|(latency_nanos, waiting, failures, until, passed_over)| {
                EndpointHealth {
                    latency_nanos: Cell::new(*latency_nanos),
                    waiting: Cell::new(*waiting),
                    failures: Cell::new(*failures),
                    excluded_until: Cell::new(Moment::from_nanos(*until)),
                    passed_over: Cell::new(*passed_over),
                }
            }).collect();
            let now = Moment::from_nanos(2);
            let chosen = choose(&healths.iter().collect::<Vec<_>>(), roll, now).unwrap();
            let is_one_well = healths.iter().any(|health| health.is_available(now));
            prop_assert_eq!(healths[chosen].is_available(now), is_one_well);
        }
    }
}
