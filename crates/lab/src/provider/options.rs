//! What a provider can be told at its start.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::delay::Delay;
use super::duration;
use super::fault::Fault;

/// How a provider behaves. By default as httpbin for Go does, on one thread.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that serve; each connection stays on one. At least 1.
    pub threads: usize,
    /// The largest content that is taken or made, in bytes.
    pub body_bytes_max: usize,
    /// The longest time that an answer may be asked to take.
    pub duration_max: Duration,
    /// What every path begins with: empty, or with a slash at its front and none at its end.
    pub prefix: String,
    /// Header fields that are not shown; `*` stands for anything.
    pub hidden_fields: Vec<String>,
    /// Hosts that `/redirect-to` may name; any where there are none.
    pub redirect_hosts: Vec<String>,
    /// How long every answer waits.
    pub delay: Option<Delay>,
    /// How many calls are served at a time, the rest waiting in line; any number where there is none. With a constant delay it makes a
    /// provider of known capacity.
    pub parallel: Option<usize>,
    /// The seed of all that is random and was not given a seed of its own. Without one nothing is the same twice.
    pub seed: Option<u64>,
    /// Bytes per second and direction that a connection carries; unlimited where there is none.
    pub bandwidth: Option<u64>,
    /// How far away the provider seems to be, there and back.
    pub rtt: Duration,
    /// Faults, each with the probability that an answer has it.
    pub faults: Vec<(Fault, f64)>,
    /// How many calls are admitted; all where there is none.
    pub rate_limit: Option<RateLimit>,
    /// A recording whose answers are given again.
    pub playback: Option<Playback>,
    /// TLS with a certificate made at the start, whose authority is written to this file.
    pub tls: Option<PathBuf>,
    /// How long a client may take to send a head, its waiting beforehand on a kept connection included.
    pub head_timeout: Duration,
    /// What `/env` shows.
    pub environment: Vec<(String, String)>,
}

/// A recording to play back.
#[derive(Debug, Clone)]
pub struct Playback {
    /// The HAR file.
    pub file: PathBuf,
    /// Whether an answer takes as long as it took when it was recorded.
    pub paced: bool,
}

/// A number of calls admitted in a window of time, written `100/1s`, or `100/1s@clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// How many.
    pub limit: u64,
    /// In how long.
    pub window: Duration,
    /// Whether windows begin by the clock, at multiples of their length since 1970 (UTC), and not with the
    /// first call.
    pub by_clock: bool,
}

/// A text that is not `LIMIT/WINDOW`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitError;

/// The longest window of a rate limit.
const WINDOW_MAX: Duration = Duration::from_hours(24);

impl fmt::Display for RateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write LIMIT/WINDOW like 100/1s, with a window from 1ms to 24h, and `@clock` after it where windows begin by the clock",
        )
    }
}

impl std::error::Error for RateLimitError {}

impl RateLimit {
    /// From its two parts.
    pub(super) fn parse(limit: &str, window: &str) -> Result<Self, RateLimitError> {
        let limit = limit.parse().map_err(|_| RateLimitError)?;
        let window = duration::parse(window, WINDOW_MAX).map_err(|_| RateLimitError)?;
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
        match window.split_once('@') {
            Some((window, "clock")) => Ok(Self { by_clock: true, ..Self::parse(limit, window)? }),
            Some(_) => Err(RateLimitError),
            None => Self::parse(limit, window),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            body_bytes_max: super::BODY_BYTES_MAX,
            duration_max: super::DURATION_MAX,
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
            head_timeout: super::HEAD_TIMEOUT,
            environment: Vec::new(),
        }
    }
}

impl Options {
    /// Whether a header field of that name is not shown.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.hidden_fields
            .iter()
            .any(|pattern| matches(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase()))
    }
}

/// Whether the text is the pattern, in which `*` stands for anything.
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
        assert_eq!("100/0.5".parse(), Ok(expected));
        assert_eq!("100/500ms@clock".parse(), Ok(RateLimit { by_clock: true, ..expected }));
        for text in ["100/1s@", "100/1s@wall", "100@clock/1s", "100", "x/1s", "-1/1s", "1/0", "1/", "1/25h"] {
            assert_eq!(text.parse::<RateLimit>(), Err(RateLimitError), "{text}");
        }
    }
}
