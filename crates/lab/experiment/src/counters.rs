//! Counters of the built-in provider during a turn: calls received, and calls admitted by its rate limits.
//!
//! They are read at `/counters`, which does not count as a call.

use std::collections::BTreeMap;

use egret_measure::statistics::real;
use serde::{Deserialize, Serialize};

use crate::host::{Host, HostError};
use crate::http::Server;

/// Path to read and reset the counters.
const COUNTERS: &str = "/counters";

/// The provider's counters.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct ProviderCounters {
    /// Calls received.
    pub calls: u64,
    /// Totals over all rate limits; `None` if the provider has none, or no call reached one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimitCounters>,
}

/// Counters of the rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct RateLimitCounters {
    /// Calls admitted.
    pub admitted: u64,
    /// Calls rejected.
    pub refused: u64,
    /// Calls that the limits allow per second, averaged over time.
    pub allowed_per_second: f64,
    /// Calls in the busiest window of a limit, wherever it begins, as a multiple of the limit; `None` if the
    /// provider has not recorded them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_window: Option<f64>,
}

/// The relevant part of the response from `/counters`.
#[derive(Deserialize)]
struct CountersDocument {
    requests: u64,
    rate_limit: Option<RateLimitTotals>,
    rate_limits: BTreeMap<String, RateLimitTotals>,
}

#[derive(Deserialize)]
struct RateLimitTotals {
    limit: u64,
    window_ms: u64,
    admitted: u64,
    refused: u64,
    busiest: Option<u64>,
}

/// Resets the counters of the provider on this host, and the windows of its rate limits.
pub(crate) fn reset(host: &Host, provider: &Server) -> Result<(), CountersError> {
    match host.request(provider, "DELETE", COUNTERS)? {
        Some((200..=299, _)) => Ok(()),
        response => Err(CountersError::Status(response.map(|(status, _)| status))),
    }
}

/// Reads the counters of the provider on this host.
pub(crate) fn read(host: &Host, provider: &Server) -> Result<ProviderCounters, CountersError> {
    match host.request(provider, "GET", COUNTERS)? {
        Some((200, content)) => parse(&content),
        response => Err(CountersError::Status(response.map(|(status, _)| status))),
    }
}

/// The reason why the counters cannot be reset or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountersError {
    /// The provider's machine did not send the request.
    #[error("cannot read the provider's counters: {0}")]
    Host(#[from] HostError),
    /// The provider returned this status code, or no response.
    #[error("cannot read the provider's counters: {COUNTERS} returned {}", status(*.0))]
    Status(Option<u16>),
    /// The response is not the document of the counters.
    #[error("cannot read the provider's counters: {COUNTERS}: {0}")]
    Malformed(serde_json::Error),
}

fn status(status: Option<u16>) -> String {
    status.map_or_else(|| "no response".to_owned(), |status| status.to_string())
}

fn parse(content: &[u8]) -> Result<ProviderCounters, CountersError> {
    let document: CountersDocument = serde_json::from_slice(content).map_err(CountersError::Malformed)?;
    let tallies = || document.rate_limit.iter().chain(document.rate_limits.values());
    let rate_limit = tallies().next().is_some().then(|| RateLimitCounters {
        admitted: tallies().map(|tally| tally.admitted).sum(),
        refused: tallies().map(|tally| tally.refused).sum(),
        allowed_per_second: tallies()
            .map(|tally| real(tally.limit) * 1e3 / real(tally.window_ms.max(1)))
            .sum(),
        busiest_window: tallies()
            .filter_map(|tally| Some(real(tally.busiest?) / real(tally.limit.max(1))))
            .reduce(f64::max),
    });
    Ok(ProviderCounters { calls: document.requests, rate_limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rate_limits_are_counted_together() {
        let none = br#"{"requests":7,"faults":{},"rate_limit":null,"rate_limits":{},"failures":{}}"#;
        assert_eq!(parse(none).unwrap(), ProviderCounters { calls: 7, rate_limit: None });
        let two = br#"{"requests":9,"rate_limit":{"limit":100,"window_ms":1000,"admitted":4,"refused":1,"busiest":150},
            "rate_limits":{"k":{"limit":5,"window_ms":10000,"admitted":3,"refused":2}}}"#;
        let busiest_window = Some(1.5);
        let rate_limit =
            RateLimitCounters { admitted: 7, refused: 3, allowed_per_second: 100.5, busiest_window };
        assert_eq!(parse(two).unwrap(), ProviderCounters { calls: 9, rate_limit: Some(rate_limit) });
        assert!(parse(b"<html>").unwrap_err().to_string().contains("/counters"));
    }
}
