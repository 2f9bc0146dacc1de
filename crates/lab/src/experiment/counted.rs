//! What the built-in provider counted during a turn: calls, and what its rate limits let through. It is asked at `/counters`, which
//! counts nothing itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ready::ask;
use super::results::real;

/// Where the provider tells what it counted, and is told to begin anew.
const COUNTERS: &str = "/counters";

/// What the provider counted.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Counted {
    /// Calls that it got.
    pub calls: u64,
    /// What became of them at its rate limits, all together; `None` where it has none, or none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimited>,
}

/// What rate limits let through.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct RateLimited {
    /// Calls that were let through.
    pub admitted: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Calls that would be let through in a second, over time.
    pub allowed_per_second: f64,
}

/// What `/counters` says, as far as it matters here.
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

/// Has the provider on this port count from nothing, its rate limits' windows included.
pub fn begin(port: u16) -> Result<(), String> {
    match ask(port, "DELETE", COUNTERS) {
        Some((200..=299, _)) => Ok(()),
        answer => Err(untold(answer.map(|(status, _)| status))),
    }
}

/// What the provider on this port has counted.
pub fn read(port: u16) -> Result<Counted, String> {
    match ask(port, "GET", COUNTERS) {
        Some((200, content)) => parse(&content),
        answer => Err(untold(answer.map(|(status, _)| status))),
    }
}

fn untold(status: Option<u16>) -> String {
    let status = status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
    format!("the provider does not tell what it counted: it answers {COUNTERS} with {status}")
}

fn parse(content: &[u8]) -> Result<Counted, String> {
    let told: Told = serde_json::from_slice(content)
        .map_err(|error| format!("the provider does not tell what it counted: {COUNTERS}: {error}"))?;
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
