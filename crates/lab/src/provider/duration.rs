//! Durations in the two ways that httpbin takes them: as Go writes them (`150ms`, `1m30s`) and as a number of seconds (`0.15`).

use std::time::Duration;

use super::DURATION_MAX;
use super::error::ProviderError;

/// Go's units, in seconds. A unit that begins another stands behind it.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];

/// A duration of at most [`DURATION_MAX`].
pub fn parse(text: &str) -> Result<Duration, ProviderError> {
    let refuse = |why: String| ProviderError::bad_request(format!("invalid duration: {why}"));
    let seconds = go_seconds(text)
        .or_else(|| text.parse().ok())
        .filter(|seconds: &f64| seconds.is_finite())
        .ok_or_else(|| refuse("write seconds like 0.15 or a duration like 150ms".into()))?;
    if seconds < 0.0 {
        return Err(refuse("shorter than 0s".into()));
    }
    if seconds > DURATION_MAX.as_secs_f64() {
        return Err(refuse(format!("longer than {}s", DURATION_MAX.as_secs())));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| refuse(error.to_string()))
}

/// One or more of number and unit; `None` where the text is anything else.
fn go_seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, behind) = rest.split_at(digits);
        let (unit, factor) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = &behind[unit.len()..];
    }
    Some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_go_durations_are_read_alike() {
        for (text, millis) in [
            ("0.15", 150),
            ("150ms", 150),
            ("1.5", 1_500),
            ("1500ms", 1_500),
            (".5", 500),
            ("1e-1", 100),
            ("0", 0),
            ("10", 10_000),
            ("10s", 10_000),
            ("1s500ms", 1_500),
            ("1.5s", 1_500),
            ("2000us", 2),
            ("2000µs", 2),
            ("3000000ns", 3),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_or_beyond_the_limit_is_refused() {
        for text in [
            "", "-", "ms", "1x", "1 s", "1_0", "NaN", "inf", "-1", "-1s", "10.001", "11", "1m", "1h",
            "1e300", "1.2.3s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
