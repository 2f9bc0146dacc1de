//! Parses durations in the two forms that httpbin accepts: Go's notation (`150ms`, `1m30s`) and, in paths and
//! queries alone, a number of seconds (`0.15`).

use std::time::Duration;

/// Go's units, in seconds. A unit that is a prefix of another comes after it.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("h", 3_600.0),
    ("m", 60.0),
    ("s", 1.0),
];

/// The reason why a text is not an acceptable duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is neither a number of seconds nor in Go's notation.
    #[error("write seconds like 0.15 or a duration like 150ms")]
    Unreadable,
    /// It has no unit where one is needed: elsewhere, a number would be one of milliseconds.
    #[error("{}", without_unit(.0))]
    NoUnit(String),
    /// It is negative, or zero where it must be positive.
    #[error("too short")]
    TooShort,
    /// It exceeds this maximum.
    #[error("longer than {0:?}")]
    TooLong(Duration),
}

/// Parses a duration of at most `max`. Seconds without a unit are truncated to whole milliseconds, as in
/// httpbin.
pub(crate) fn parse(text: &str, max: Duration) -> Result<Duration, DurationError> {
    let seconds = match go_seconds(text) {
        Some(seconds) => seconds,
        None => (plain_seconds(text).ok_or(DurationError::Unreadable)? * 1e3).trunc() / 1e3,
    };
    if seconds < 0.0 {
        return Err(DurationError::TooShort);
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| DurationError::TooLong(max))?;
    if duration > max { Err(DurationError::TooLong(max)) } else { Ok(duration) }
}

/// Parses a duration of at most `max` in Go's notation alone: outside of httpbin's own paths nobody knows
/// that a number counts seconds.
pub(crate) fn parse_with_unit(text: &str, max: Duration) -> Result<Duration, DurationError> {
    let is_zero = || plain_seconds(text).is_some_and(|seconds| seconds == 0.0);
    if go_seconds(text).is_none() && !is_zero() {
        return Err(DurationError::NoUnit(text.to_owned()));
    }
    parse(text, max)
}

/// Says what to write instead of a text without a unit.
fn without_unit(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain && text.parse::<f64>().is_ok() {
        format!("`{text}` has no unit: write `{text}ms` or `{text}s`")
    } else {
        format!("`{text}` is not a duration: write a number and a unit, like `150ms`")
    }
}

/// Parses a finite number. As in Go, digits may be separated by underscores.
fn plain_seconds(text: &str) -> Option<f64> {
    let parted = text.split('_').all(|part| part.starts_with(|first: char| first.is_ascii_digit()));
    let number = if parted { text.replace('_', "") } else { text.to_owned() };
    number.parse().ok().filter(|seconds: &f64| seconds.is_finite())
}

/// Parses one or more numbers with units, or `0`. Returns `None` for any other text.
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
    use proptest::prelude::*;

    use super::*;

    const MAX: Duration = Duration::from_secs(10);

    #[test]
    fn seconds_and_go_durations_are_read_alike() {
        for (text, micros) in [
            ("0.15", 150_000),
            ("150ms", 150_000),
            ("1.5", 1_500_000),
            ("1500ms", 1_500_000),
            (".5", 500_000),
            ("1e-1", 100_000),
            ("0", 0),
            ("0.0005", 0),
            ("10", 10_000_000),
            ("10.0009", 10_000_000),
            ("10s", 10_000_000),
            ("1s500ms", 1_500_000),
            ("1.5s", 1_500_000),
            ("2000us", 2_000),
            ("2000µs", 2_000),
            ("3000000ns", 3_000),
            ("250us", 250),
            ("1_0", 10_000_000),
        ] {
            assert_eq!(parse(text, MAX), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn a_malformed_or_too_long_duration_is_refused() {
        for text in ["", "-", "ms", "1x", "1 s", "_1", "1_", "NaN", "inf", "1.2.3s"] {
            assert_eq!(parse(text, MAX), Err(DurationError::Unreadable), "{text}");
        }
        for text in ["-1", "-1s"] {
            assert_eq!(parse(text, MAX), Err(DurationError::TooShort), "{text}");
        }
        for text in ["10.001", "11", "1m", "1h", "1e300", "99999999999999999999h"] {
            assert_eq!(parse(text, MAX), Err(DurationError::TooLong(MAX)), "{text}");
        }
    }

    #[test]
    fn a_unit_is_required_outside_of_the_paths_of_httpbin() {
        for (text, duration) in [("150ms", 150), ("0.5s", 500), ("0", 0), ("1s500ms", 1_500)] {
            assert_eq!(parse_with_unit(text, MAX), Ok(Duration::from_millis(duration)), "{text}");
        }
        let refused = |text: &str| parse_with_unit(text, MAX).unwrap_err().to_string();
        assert_eq!(refused("100"), "`100` has no unit: write `100ms` or `100s`");
        assert_eq!(refused("0.15"), "`0.15` has no unit: write `0.15ms` or `0.15s`");
        for text in ["soon", "-1", "", "_1", "NaN", "1 s", "1e3", "1.2.3"] {
            let expected = format!("`{text}` is not a duration: write a number and a unit, like `150ms`");
            assert_eq!(refused(text), expected);
        }
        assert_eq!(parse_with_unit("-1s", MAX), Err(DurationError::TooShort));
        assert_eq!(parse_with_unit("1h", MAX), Err(DurationError::TooLong(MAX)));
    }

    proptest! {
        #[test]
        fn a_sum_of_units_is_their_sum(hours in 0_u64..20, minutes in 0_u64..60, seconds in 0_u64..60, millis in 0_u64..1_000) {
            let text = format!("{hours}h{minutes}m{seconds}s{millis}ms");
            let expected = Duration::from_millis(((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis);
            let parsed = parse(&text, Duration::from_hours(24)).unwrap();
            prop_assert!(parsed.abs_diff(expected) < Duration::from_micros(1), "{text}: {parsed:?}");
        }

        #[test]
        fn seconds_are_cut_to_milliseconds(millis in 0_u32..10_000, rest in 1_u32..1_000) {
            let text = format!("{}.{:03}{rest:03}", millis / 1_000, millis % 1_000);
            let parsed = parse(&text, MAX).unwrap();
            prop_assert_eq!(parsed.as_micros().div_ceil(1_000), u128::from(millis), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused_within_the_maximum(text in "[0-9a-zµ._+-]{0,12}") {
            if let Ok(duration) = parse(&text, MAX) {
                prop_assert!(duration <= MAX);
            }
        }
    }
}
