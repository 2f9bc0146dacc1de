//! The options of a provider.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::delay::Delay;
use crate::duration::{self, DurationError};
use crate::fault_kind::Fault;
use crate::limits::{CONTENT_BYTES_MAX, DURATION_MAX, HEAD_TIMEOUT};

/// The options of a provider. The defaults match httpbin for Go on one thread.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of serving threads, at least 1. Each connection stays on one thread.
    pub threads: usize,
    /// Maximum size of request and response content, in bytes.
    pub body_bytes_max: usize,
    /// Maximum duration that a client may request for a response.
    pub duration_max: Duration,
    /// Prefix of every path: empty, or with a leading slash and no trailing slash.
    pub prefix: String,
    /// Names of header fields that are not shown; `*` matches any text.
    pub hidden_fields: Vec<String>,
    /// Hosts that `/redirect-to` may name; any host if empty.
    pub redirect_hosts: Vec<String>,
    /// Delay of every response.
    pub delay: Option<Delay>,
    /// Maximum number of calls served concurrently; further calls wait in line. Unlimited if `None`. Together
    /// with a constant delay it gives the provider a known capacity.
    pub parallel: Option<usize>,
    /// Seed of all random sequences without their own seed. Without it no run is repeatable.
    pub seed: Option<u64>,
    /// Bandwidth of a connection in bytes per second and direction; unlimited if `None`.
    pub bandwidth: Option<u64>,
    /// Simulated round-trip time.
    pub rtt: Duration,
    /// Faults with their probabilities.
    pub faults: Vec<(Fault, f64)>,
    /// Rate limit of all calls; unlimited if `None`.
    pub rate_limit: Option<RateLimit>,
    /// Recording to play back.
    pub playback: Option<Playback>,
    /// Uses TLS with a certificate made at start. The certificate of its authority is written to this file.
    pub tls: Option<PathBuf>,
    /// Maximum time for a client to send a head, including idle time before it on a kept connection.
    pub head_timeout: Duration,
    /// Variables shown by `/env`.
    pub environment: Vec<(String, String)>,
}

/// A recording to play back.
#[derive(Debug, Clone)]
pub struct Playback {
    /// The HAR file.
    pub file: PathBuf,
    /// Delays each response by its recorded time.
    pub paced: bool,
}

/// A number of calls per window, written as `100/1s` or `100/1s@clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of calls.
    pub limit: u64,
    /// Length of the window.
    pub window: Duration,
    /// Aligns windows with the clock, at multiples of their length since 1970 (UTC), instead of the first
    /// call.
    pub by_clock: bool,
}

/// The error for a text that is not of the form `LIMIT/WINDOW`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write LIMIT/WINDOW like 100/1s, with a window from 1ms to 24h, and `@clock` after it to align windows with the clock"
)]
pub struct RateLimitError;

/// Maximum length of a window.
const WINDOW_MAX: Duration = Duration::from_hours(24);

impl RateLimit {
    /// Parses a rate limit from its two parts, as a path has them: the window may be a number of seconds.
    pub(crate) fn parse(limit: &str, window: &str) -> Result<Self, RateLimitError> {
        Self::of(limit, duration::parse(window, WINDOW_MAX))
    }

    fn of(limit: &str, window: Result<Duration, DurationError>) -> Result<Self, RateLimitError> {
        let limit = limit.parse().map_err(|_| RateLimitError)?;
        let window = window.map_err(|_| RateLimitError)?;
        if window < Duration::from_millis(1) {
            return Err(RateLimitError);
        }
        Ok(Self { limit, window, by_clock: false })
    }
}

impl FromStr for RateLimit {
    type Err = RateLimitError;

    fn from_str(text: &str) -> Result<Self, RateLimitError> {
        let (limit, window) = text.split_once('/').ok_or(RateLimitError)?;
        let (window, by_clock) = match window.split_once('@') {
            Some((window, "clock")) => (window, true),
            Some(_) => return Err(RateLimitError),
            None => (window, false),
        };
        Ok(Self { by_clock, ..Self::of(limit, duration::parse_with_unit(window, WINDOW_MAX))? })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            body_bytes_max: CONTENT_BYTES_MAX,
            duration_max: DURATION_MAX,
            prefix: String::new(),
            hidden_fields: Vec::new(),
            redirect_hosts: Vec::new(),
            delay: None,
            parallel: None,
            seed: None,
            bandwidth: None,
            rtt: Duration::ZERO,
            faults: Vec::new(),
            rate_limit: None,
            playback: None,
            tls: None,
            head_timeout: HEAD_TIMEOUT,
            environment: Vec::new(),
        }
    }
}

impl Options {
    /// Returns `true` if a header field of this name is hidden.
    pub(crate) fn hides(&self, name: &str) -> bool {
        self.hidden_fields
            .iter()
            .any(|pattern| matches(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase()))
    }
}

/// Returns `true` if the text matches the pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_hidden_by_name_or_pattern_in_any_case() {
        let options = Options {
            hidden_fields: vec!["x-secret".into(), "X-*-Id".into(), "cf-*".into()],
            ..Options::default()
        };
        for name in ["X-Secret", "X-Request-Id", "X--id", "Cf-Ray"] {
            assert!(options.hides(name), "{name}");
        }
        for name in ["X-Secrets", "X-Id", "X-Request-Ids", "Accept"] {
            assert!(!options.hides(name), "{name}");
        }
    }

    #[test]
    fn a_rate_limit_is_a_number_and_a_window() {
        let expected = RateLimit { limit: 100, window: Duration::from_millis(500), by_clock: false };
        assert_eq!("100/500ms".parse(), Ok(expected));
        assert_eq!("100/0.5s".parse(), Ok(expected));
        assert_eq!("100/500ms@clock".parse(), Ok(RateLimit { by_clock: true, ..expected }));
        for text in
            ["100/1s@", "100/1s@wall", "100@clock/1s", "100", "x/1s", "-1/1s", "1/0", "1/60", "1/", "1/25h"]
        {
            assert_eq!(text.parse::<RateLimit>(), Err(RateLimitError), "{text}");
        }
    }
}
