//! Counters of the built-in provider during a turn: calls received, and calls admitted by its rate limits.
//!
//! They are read at `/counters`, which does not count as a call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ready::ask;
use super::results::real;

/// Path to read and reset the counters.
const COUNTERS: &str = "/counters";

/// The provider's counters.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Counted {
    /// Calls received.
    pub calls: u64,
    /// Totals over all rate limits; `None` if the provider has none, or no call reached one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimited>,
}

/// Counters of the rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct RateLimited {
    /// Calls admitted.
    pub admitted: u64,
    /// Calls rejected.
    pub refused: u64,
    /// Calls that the limits allow per second, averaged over time.
    pub allowed_per_second: f64,
}

/// The relevant part of the response from `/counters`.
#[derive(Deserialize)]
struct Told {
    requests: u64,
    rate_limit: Option<Tally>,
    rate_limits: BTreeMap<String, Tally>,
}

#[derive(Deserialize)]
struct Tally {
    limit: u64,
    window_ms: u64,
    admitted: u64,
    refused: u64,
}

/// Resets the counters of the provider on this port, and the windows of its rate limits.
pub fn begin(port: u16) -> Result<(), String> {
    match ask(port, "DELETE", COUNTERS) {
        Some((200..=299, _)) => Ok(()),
        answer => Err(untold(answer.map(|(status, _)| status))),
    }
}

/// Reads the counters of the provider on this port.
pub fn read(port: u16) -> Result<Counted, String> {
    match ask(port, "GET", COUNTERS) {
        Some((200, content)) => parse(&content),
        answer => Err(untold(answer.map(|(status, _)| status))),
    }
}

fn untold(status: Option<u16>) -> String {
    let status = status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
    format!("cannot read the provider's counters: {COUNTERS} returned {status}")
}

fn parse(content: &[u8]) -> Result<Counted, String> {
    let told: Told = serde_json::from_slice(content)
        .map_err(|error| format!("cannot read the provider's counters: {COUNTERS}: {error}"))?;
    let tallies = || told.rate_limit.iter().chain(told.rate_limits.values());
    let rate_limit = tallies().next().is_some().then(|| RateLimited {
        admitted: tallies().map(|tally| tally.admitted).sum(),
        refused: tallies().map(|tally| tally.refused).sum(),
        allowed_per_second: tallies()
            .map(|tally| real(tally.limit) * 1e3 / real(tally.window_ms.max(1)))
            .sum(),
    });
    Ok(Counted { calls: told.requests, rate_limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rate_limits_are_counted_together() {
        let none = br#"{"requests":7,"faults":{},"rate_limit":null,"rate_limits":{},"failures":{}}"#;
        assert_eq!(parse(none), Ok(Counted { calls: 7, rate_limit: None }));
        let two = br#"{"requests":9,"rate_limit":{"limit":100,"window_ms":1000,"admitted":4,"refused":1},
            "rate_limits":{"k":{"limit":5,"window_ms":10000,"admitted":3,"refused":2}}}"#;
        let rate_limit = RateLimited { admitted: 7, refused: 3, allowed_per_second: 100.5 };
        assert_eq!(parse(two), Ok(Counted { calls: 9, rate_limit: Some(rate_limit) }));
        assert!(parse(b"<html>").unwrap_err().contains("/counters"));
    }
}
