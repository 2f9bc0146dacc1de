//! The quotas of the cluster's scenarios, each with the judge that the provider would be.

use std::time::Duration;

use crate::counted::{Counted, CountedCall, between, most_at_once, most_in_any, most_in_fixed, most_lacking};
use crate::timeline::{Timeline, pass};
use crate::wait::far_from_now;

/// The time that all windows last.
const WINDOW: Duration = Duration::from_secs(1);

/// A quota and its judge.
#[derive(Debug, Clone)]
pub struct Allowance {
    name: String,
    kind: Kind,
    limit: usize,
    response_ms: u64,
}

/// The way in which the provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sliding,
    Fixed(Duration),
    /// A day that does not end while the scenario runs.
    Calendar,
    Bucket,
    Concurrent,
}

impl Allowance {
    /// So many calls in any second.
    pub fn sliding(limit: usize) -> Self {
        Self { name: format!("sliding-{limit}"), kind: Kind::Sliding, limit, response_ms: 10 }
    }

    /// So many calls in each second of the clock.
    pub fn fixed(limit: usize) -> Self {
        Self::fixed_for(limit, WINDOW)
    }

    /// So many calls in each window of this length, by the clock.
    pub fn fixed_for(limit: usize, window: Duration) -> Self {
        let name = format!("fixed-{limit}-{}s", window.as_secs());
        Self { name, kind: Kind::Fixed(window), limit, response_ms: 10 }
    }

    /// So many calls in a day that ends hours from now.
    pub fn calendar(limit: usize) -> Self {
        Self { name: format!("calendar-{limit}"), kind: Kind::Calendar, limit, response_ms: 10 }
    }

    /// A bucket of so many tokens that fills in a second.
    pub fn bucket(limit: usize) -> Self {
        Self { name: format!("bucket-{limit}"), kind: Kind::Bucket, limit, response_ms: 10 }
    }

    /// So many calls at the same time. Each one lasts for `response_ms`.
    pub fn concurrent(limit: usize, response_ms: u64) -> Self {
        Self { name: format!("concurrent-{limit}"), kind: Kind::Concurrent, limit, response_ms }
    }

    /// The same allowance, whose calls take so long.
    #[must_use]
    pub fn responding_in(&self, response_ms: u64) -> Self {
        Self { response_ms, ..self.clone() }
    }

    /// The same allowance with another limit.
    #[must_use]
    pub fn limited_to(&self, limit: usize) -> Self {
        Self { limit, ..self.clone() }
    }

    /// The kinds that are lent while a lease lasts.
    pub fn each_short() -> Vec<Self> {
        vec![Self::sliding(100), Self::fixed(100), Self::bucket(100), Self::concurrent(20, 200)]
    }

    /// The name of the quota, and of its group at the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The target of its calls.
    pub fn target(&self) -> String {
        format!("{}?ms={}", self.name, self.response_ms)
    }

    /// The keys of the quota in the config.
    pub fn keys(&self) -> String {
        let Self { kind, limit, .. } = self;
        match kind {
            Kind::Sliding => format!("limit: {limit}, window: 1s"),
            Kind::Fixed(window) => format!("kind: fixed, limit: {limit}, window: {}s", window.as_secs()),
            Kind::Calendar => {
                let time = far_from_now();
                format!("kind: calendar, limit: {limit}, period: day, renews: {{ time: '{time}' }}")
            }
            Kind::Bucket => format!("kind: token-bucket, limit: {limit}, window: 1s"),
            Kind::Concurrent => format!("kind: concurrency, limit: {limit}"),
        }
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The most that the provider counted, to be compared with the limit.
    fn most(&self, calls: &[CountedCall]) -> usize {
        match self.kind {
            Kind::Sliding => most_in_any(calls, WINDOW),
            Kind::Fixed(window) => most_in_fixed(calls, window),
            Kind::Calendar => calls.len(),
            Kind::Concurrent => most_at_once(calls),
            Kind::Bucket => {
                let limit = u64::try_from(self.limit).unwrap();
                self.limit + usize::try_from(most_lacking(calls, limit, WINDOW, limit)).unwrap()
            }
        }
    }

    /// Claims that the provider has never counted more than the limit.
    pub fn claim_kept(&self, provider: &Counted, line: &Timeline) {
        self.claim_kept_but(0, provider, 0, line);
    }

    /// Claims that the provider has not counted more than the limit, and so many calls, since this time.
    pub fn claim_kept_but(&self, extra: usize, provider: &Counted, since: u64, line: &Timeline) {
        let calls = provider.calls(&self.name);
        let calls = between(&calls, since, u64::MAX);
        let max = self.most(calls);
        let figure = format!("{}: worst {max} of {}, {} calls", self.name, self.limit, calls.len());
        line.claim(!calls.is_empty() && max <= self.limit + extra, figure);
    }

    /// The part of the allowance that was used between these times.
    #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
    pub fn used(&self, provider: &Counted, from: u64, to: u64) -> f64 {
        let calls = provider.calls(&self.name);
        let used = match self.kind {
            Kind::Concurrent => {
                let within =
                    |call: &CountedCall| call.ended.unwrap_or(to).min(to).saturating_sub(call.came.max(from));
                calls.iter().map(within).sum::<u64>() as f64 / (to - from) as f64
            }
            Kind::Fixed(window) => {
                let length = window.as_nanos() as f64;
                between(&calls, from, to).len() as f64 * length / (to - from) as f64
            }
            Kind::Calendar => between(&calls, from, to).len() as f64,
            Kind::Sliding | Kind::Bucket => between(&calls, from, to).len() as f64 * 1e9 / (to - from) as f64,
        };
        used / self.limit as f64
    }

    /// Claims that at least this part was used between these times.
    pub fn claim_used(&self, provider: &Counted, from: u64, to: u64, least: f64, line: &Timeline) {
        let used = self.used(provider, from, to);
        line.claim(used >= least, format!("{}: {:.1} % used", self.name, used * 100.0));
    }

    /// Waits for the next window of a fixed one, and returns its begin.
    pub fn until_window(&self, provider: &Counted) -> u64 {
        let Kind::Fixed(window) = self.kind else { panic!("{} has no windows by the clock", self.name) };
        let window = u64::try_from(window.as_nanos()).unwrap();
        let begin = (provider.now() / window + 1) * window;
        pass(Duration::from_nanos(begin.saturating_sub(provider.now())));
        begin
    }

    /// Claims that at most one unit for each member is unused since this time, the begin of a window.
    pub fn claim_used_up(&self, provider: &Counted, begin: u64, members: usize, line: &Timeline) {
        let used = provider.count_between(&self.name, begin, u64::MAX);
        let figure = format!("{}: {used} of {} used at the end", self.name, self.limit);
        line.claim(used <= self.limit && used + members >= self.limit, figure);
    }
}
