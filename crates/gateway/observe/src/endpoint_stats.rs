//! The counters of one endpoint of a provider that has several.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_clock::Moment;
use egret_net::counter::Counter;
use serde::Serialize;

/// The counters of one endpoint, one set per worker.
#[derive(Debug)]
pub struct EndpointStats {
    url: String,
    workers: Box<[EndpointCounters]>,
}

/// One worker's counters for one endpoint. Aligned, so two workers never write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EndpointCounters {
    /// Calls that went to the endpoint.
    pub calls: Counter,
    /// Calls among them that failed: no response, or a status of 429 or from 500 on that asks for no pause.
    pub failures: Counter,
    /// End of the time for which the worker leaves the endpoint out, in nanoseconds of [`Moment`].
    excluded_until_nanos: AtomicU64,
}

/// The counters of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointSnapshot {
    /// The URL.
    pub url: String,
    /// Calls that went to it.
    pub calls: u64,
    /// Calls among them that failed: no response, or a status of 429 or from 500 on that asks for no pause.
    pub failures: u64,
    /// Workers that leave it out now.
    pub excluded: u64,
}

impl EndpointCounters {
    /// Notes that the worker leaves the endpoint out until then.
    pub fn exclude(&self, until: Moment) {
        self.excluded_until_nanos.store(until.as_nanos(), Relaxed);
    }
}

impl EndpointStats {
    /// Creates counters that are zero, of the endpoint at `url`.
    pub fn new(url: String, workers: usize) -> Arc<Self> {
        Arc::new(Self { url, workers: (0..workers).map(|_| EndpointCounters::default()).collect() })
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the counters that worker `worker` writes to.
    pub fn of(&self, worker: usize) -> &EndpointCounters {
        &self.workers[worker]
    }

    /// Returns the sum over all workers at `now`.
    pub fn snapshot(&self, now: Moment) -> EndpointSnapshot {
        let sum = |of: fn(&EndpointCounters) -> u64| self.workers.iter().map(of).sum();
        let is_excluded =
            |counters: &&EndpointCounters| counters.excluded_until_nanos.load(Relaxed) > now.as_nanos();
        EndpointSnapshot {
            url: self.url.clone(),
            calls: sum(|counters| counters.calls.get()),
            failures: sum(|counters| counters.failures.get()),
            excluded: self.workers.iter().filter(is_excluded).count() as u64,
        }
    }
}
