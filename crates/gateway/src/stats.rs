//! Counters and histograms: written by one worker each without contention, summed when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// A counter or gauge with one writer. An update is a plain load and store; readers on other threads see it soon.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the worker that owns it may.
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Takes from it, for gauges. Only the worker that owns it may.
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(amount), Relaxed);
    }

    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the histogram buckets, in microseconds; a last bucket takes the rest.
///
/// Fine where a gateway's footprint lies (tens of microseconds), coarse where providers' times lie.
pub const BOUNDS_US: [u64; 26] = [
    10,
    20,
    30,
    50,
    75,
    100,
    150,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    150_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// A histogram of microseconds with fixed buckets and one writer.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value_us: u64) {
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < value_us)].add(1);
        self.sum_us.add(value_us);
    }

    /// Adds what is counted here to `total`.
    pub fn add_to(&self, total: &mut HistogramSnapshot) {
        for (bucket, counter) in total.buckets.iter_mut().zip(&self.buckets) {
            *bucket += counter.get();
        }
        total.sum_us += self.sum_us.get();
    }
}

/// A histogram as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Values per bucket of [`BOUNDS_US`] and, last, above all of them; not cumulative.
    pub buckets: Vec<u64>,
    /// Sum of all values, in microseconds.
    pub sum_us: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { buckets: vec![0; BOUNDS_US.len() + 1], sum_us: 0 }
    }
}

impl HistogramSnapshot {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The upper bound, in microseconds, of the bucket in which the `quantile` (0 to 1) of the values lies; `None` while empty
    /// or above the last bound.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of exchanges fits"
        )]
        let rank = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        BOUNDS_US.get(bucket).copied()
    }
}

/// Everything that is counted, summed over all workers at one moment. What the control port shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StatsSnapshot {
    /// Seconds since the gateway started.
    pub uptime_s: u64,
    /// Configured providers and, under the name `-`, all other hosts together.
    pub providers: Vec<ProviderSnapshot>,
    /// Client connections.
    pub clients: ClientsSnapshot,
    /// Answers made by the gateway itself, by slug of the error.
    pub generated: Vec<Count>,
    /// Look-ups of host names.
    pub dns: DnsSnapshot,
    /// Targets denied (or, in report mode, that would have been), by reason.
    pub denials: Vec<Count>,
    /// Whether diagnoses are given up for now, since they cannot keep up.
    pub diagnoses_shedding: bool,
    /// How often they have been.
    pub diagnoses_sheds: u64,
    /// Configurations applied since start.
    pub reloads: u64,
    /// Configurations refused since start.
    pub reloads_refused: u64,
    /// Access-log lines dropped because the log could not keep up.
    pub access_log_dropped: u64,
    /// Bytes of memory that gathered bodies take now, of `gateway.limits.gathered`.
    pub gathered_bytes: u64,
}

/// A number of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Of what.
    pub name: &'static str,
    /// How many since start.
    pub count: u64,
}

/// One provider's share.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProviderSnapshot {
    /// As configured; `-` for hosts without a configured provider.
    pub name: String,
    /// Finished exchanges by method and status class.
    pub exchanges: Vec<ExchangeCount>,
    /// From the end of the client's request head to the last byte of the response handed to the client.
    pub latency: HistogramSnapshot,
    /// The part of the latency spent in the gateway and not waiting for the provider or the bodies.
    pub footprint: HistogramSnapshot,
    /// Bytes sent to the provider, heads and framing included.
    pub sent_bytes: u64,
    /// Bytes received from the provider, heads and framing included.
    pub received_bytes: u64,
    /// Connections opened.
    pub connects: u64,
    /// Connections that could not be opened.
    pub connect_failures: u64,
    /// TLS handshakes done.
    pub tls_handshakes: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Exchanges that used an idle connection.
    pub pool_hits: u64,
    /// Idle connections taken over from another worker.
    pub pool_steals: u64,
    /// Requests silently repeated since a reused connection had died.
    pub repeats: u64,
    /// Connections open now, idle or in use.
    pub connections_open: u64,
    /// Idle connections now.
    pub connections_idle: u64,
    /// Tunnels opened by CONNECT or Upgrade.
    pub tunnels: u64,
}

/// Exchanges of one method and status class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExchangeCount {
    /// A method of RFC 9110 or PATCH; `other` for the rest.
    pub method: &'static str,
    /// `1xx` to `5xx`; `none` where the client left or the gateway gave up before an answer.
    pub status: &'static str,
    /// How many since start.
    pub count: u64,
}

/// Client connections.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ClientsSnapshot {
    /// Accepted since start.
    pub accepted: u64,
    /// Turned away since `limits.connections` were open.
    pub refused: u64,
    /// Closed since their TLS handshake failed or took too long.
    pub tls_failures: u64,
    /// Open now.
    pub open: u64,
    /// Open now and waiting for a request.
    pub idle: u64,
    /// Tunnels open now.
    pub tunnels: u64,
    /// Bytes received from clients.
    pub received_bytes: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
}

/// Look-ups of host names.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DnsSnapshot {
    /// Look-ups asked for.
    pub lookups: u64,
    /// Answered from the cache.
    pub hits: u64,
    /// Joined to a look-up already under way.
    pub coalesced: u64,
    /// Failed, cached failures included.
    pub failures: u64,
    /// Names in the cache now.
    pub entries: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lands_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for value_us in [0, 10, 11, 300_000_000, 300_000_001] {
            histogram.record(value_us);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        assert_eq!((snapshot.buckets[0], snapshot.buckets[1]), (2, 1));
        assert_eq!((snapshot.buckets[25], snapshot.buckets[26]), (1, 1));
        assert_eq!((snapshot.count(), snapshot.sum_us), (5, 600_000_022));
        assert_eq!(snapshot.quantile_us(0.5), Some(20));
        assert_eq!(snapshot.quantile_us(1.0), None);
    }
}
