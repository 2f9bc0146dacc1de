//! The findings of a gateway: all that it says is wrong now, for the commands that show it.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_clock::{Timestamp, rfc3339};
use egret_service::control_client::{ControlClient, ControlClientError};
use serde::{Deserialize, Serialize};

/// The path of the findings.
const PATH: &str = "/api/v1/findings";

/// A finding of `/api/v1/findings`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Finding {
    /// The kind, by its slug.
    pub kind: String,
    /// `error` or `warning`.
    pub severity: String,
    /// Its begin, in microseconds since the epoch.
    pub since_us: u64,
    /// The trouble in one sentence.
    pub summary: String,
    /// The figures that show it.
    pub evidence: String,
    /// The remedy, in words.
    pub advice: String,
}

/// The response of the path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FindingsResponse {
    findings: Vec<Finding>,
}

/// Reads the findings of a gateway, the worst first.
pub fn read(client: &ControlClient) -> Result<Vec<Finding>, ControlClientError> {
    let response: FindingsResponse = serde_json::from_slice(&client.get(PATH)?).unwrap_or_default();
    Ok(response.findings)
}

/// Returns the current time.
pub fn now() -> Timestamp {
    Timestamp::default() + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the findings as text: four lines for each.
pub fn render(findings: &[Finding], now: Timestamp) -> String {
    let mut text = String::new();
    for Finding { severity, since_us, summary, evidence, advice, .. } in findings {
        let since = Timestamp::from_micros(*since_us);
        let age = duration(now.since(since).as_secs());
        let _ = writeln!(
            text,
            "  {severity}: {}\n    since {}, for {age}\n    {}\n    → {}",
            printable(summary),
            in_utc(since),
            printable(evidence),
            printable(advice)
        );
    }
    text
}

/// Returns a time in UTC, in whole seconds.
fn in_utc(time: Timestamp) -> String {
    rfc3339::write(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

/// Returns a time in its two largest units.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Replaces control characters, which could change what a terminal shows.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_its_begin_its_evidence_and_advice() {
        let finding = Finding {
            severity: "error".to_owned(),
            since_us: 1_795_867_200_500_000,
            summary: "calls to shop fail".to_owned(),
            evidence: "4 of 9 calls\u{1b}[2J".to_owned(),
            advice: "check it".to_owned(),
            ..Finding::default()
        };
        let now = Timestamp::from_secs(1_795_867_200 + 185);
        let expected = "  error: calls to shop fail\n    since 2026-11-28T12:00:00.000Z, for 3 min\n    4 of 9 calls [2J\n    → check it\n";
        assert_eq!(render(&[finding], now), expected);
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!([5, 65, 3_700, 90_000].map(duration), ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }
}
