//! The figures that a load client measures.

use egret_measure::statistics::{mean, percentile};
use serde::{Deserialize, Serialize};

/// The figures measured by a client.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct Figures {
    /// Number of completed requests.
    pub requests: u64,
    /// Number of failed requests, as the client counts them: not connected, connection broken, not 2xx.
    pub failed: u64,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Mean response time, if the client reports it.
    pub mean_ms: Option<f64>,
    /// Response times in milliseconds, one for each whole percentile from 0 to 100; empty if the client
    /// reports none.
    pub percentiles_ms: Vec<f64>,
    /// 99.9th percentile, if the client reports it.
    pub p99_9_ms: Option<f64>,
    /// 99th percentile of responses with a status of 2xx alone, if the client reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_p99_ms: Option<f64>,
    /// Bytes of the bodies of responses, if the client reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_body: Option<u64>,
    /// Delays of the events of streams, if the client measures them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_delays: Option<EventDelays>,
    /// Number of connections that resumed a TLS session, if the client reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
    /// `true` if the client was the bottleneck, if the client reports it.
    pub client_saturated: Option<bool>,
}

/// Delays of the events of streams, from the provider's sending to the client's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct EventDelays {
    /// Number of events.
    pub events: u64,
    /// Median, in microseconds.
    pub p50_us: u64,
    /// 99th percentile, in microseconds.
    pub p99_us: u64,
}

impl Figures {
    /// The figures of these response times in milliseconds, which the client has listed.
    pub(crate) fn of_times(mut times_ms: Vec<f64>) -> Self {
        times_ms.sort_by(f64::total_cmp);
        let percents = 0..=100_u8;
        Self {
            requests: times_ms.len() as u64,
            mean_ms: mean(&times_ms),
            percentiles_ms: percents.filter_map(|percent| percentile(&times_ms, percent.into())).collect(),
            p99_9_ms: percentile(&times_ms, 99.9),
            ..Self::default()
        }
    }
}
