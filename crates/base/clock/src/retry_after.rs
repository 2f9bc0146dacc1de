//! Parses points in time as providers write them in `Retry-After`, `RateLimit-Reset` and related fields:
//! seconds from now, dates, seconds or milliseconds since 1970, durations like `6m0s`.
//!
//! The values are untrusted hints. An unreadable value is ignored, a past time becomes now, and the caller
//! must limit times far in the future.

use std::time::{Duration, SystemTime};

use crate::http_date::{date, full_year, second_of_day};
use crate::rfc3339;
use crate::timestamp::Timestamp;

/// Maximum length of a value.
const BYTES_MAX: usize = 64;
/// A number from here on (2001) is seconds since 1970; as seconds from now it would be 31 years.
const EPOCH_SECONDS_MIN: u64 = 1_000_000_000;
/// A number from here on (1973) is milliseconds since 1970; as seconds it would be the year 5138.
const EPOCH_MILLIS_MIN: u64 = 100_000_000_000;
/// Larger numbers are rejected.
const NUMBER_MAX: u64 = 100_000_000_000_000;

const MICROS: u64 = 1_000_000;
const UNITS: [(&str, u64); 8] = [
    ("ns", 0),
    ("us", 1),
    ("µs", 1),
    ("ms", 1_000),
    ("s", MICROS),
    ("m", 60 * MICROS),
    ("h", 3_600 * MICROS),
    ("d", 86_400 * MICROS),
];

/// Parses the value of a field to a time not before `now`: that of `Retry-After` (RFC 9110 §10.2.3), which is
/// seconds or a date, or any other of the forms above. Returns `None` for other text.
pub fn read(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= BYTES_MAX)?.trim();
    let time = if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        number(text, now)
    } else if text.starts_with(|first: char| first.is_ascii_digit()) {
        duration(text).map(|duration| now + duration).or_else(|| iso_date(text))
    } else {
        http_date(text, now)
    };
    time.map(|time| time.max(now))
}

/// Parses a number with an optional fraction. Its magnitude determines the unit.
fn number(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (whole, micros) = decimal(text)?;
    if whole >= EPOCH_MILLIS_MIN {
        return Some(Timestamp::from_micros(whole * 1_000));
    }
    let seconds = Duration::from_secs(whole) + Duration::from_micros(micros);
    let from = if whole >= EPOCH_SECONDS_MIN { Timestamp::default() } else { now };
    Some(from + seconds)
}

/// Parses `12` or `12.5` to its integer part and millionths.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let millionths = fraction.bytes().chain(std::iter::repeat(b'0')).take(6);
    let millionths = millionths.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some((whole.parse().ok().filter(|whole| *whole < NUMBER_MAX)?, millionths))
}

/// Parses `6m0s`, `1s`, `60ms`, `1h2m3.5s`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut micros = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, from_unit) = rest.split_at(digits);
        let letters = from_unit.find(|c: char| c.is_ascii_digit()).unwrap_or(from_unit.len());
        let (unit, after) = from_unit.split_at(letters);
        let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let (whole, millionths) = decimal(number)?;
        let part = whole.saturating_mul(factor).saturating_add(millionths.saturating_mul(factor) / MICROS);
        micros = micros.saturating_add(part);
        rest = after;
    }
    Some(Duration::from_micros(micros))
}

/// Parses `2026-11-22T00:31:16Z` (RFC 3339).
fn iso_date(text: &str) -> Option<Timestamp> {
    let since = rfc3339::read(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(u64::try_from(since.as_micros()).ok()?))
}

/// Parses the three forms of RFC 9110 §5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`,
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov 6 08:49:37 1994`. The day of the week is ignored.
fn http_date(text: &str, now: Timestamp) -> Option<Timestamp> {
    let mut words = text.split([' ', ',', '-', ':']).filter(|word| !word.is_empty()).skip(1);
    let mut next = || words.next();
    let (first, second) = (next()?, next()?);
    let (day, month, year, time) = if first.starts_with(|c: char| c.is_ascii_digit()) {
        let year = next()?;
        (first, second, year, [next()?, next()?, next()?])
    } else {
        let time = [next()?, next()?, next()?];
        (second, first, next()?, time)
    };
    if !words.next().is_none_or(|zone| zone == "GMT" || zone == "UTC") || words.next().is_some() {
        return None;
    }
    let number = |digits: &str| digits.parse::<i64>().ok();
    let year = if year.len() == 2 { full_year(number(year)?, now) } else { number(year)? };
    let days = date(year, month, number(day)?)?;
    let [hour, minute, second] = time.map(number);
    // Seconds above 59 are tolerated, as those of a leap second are.
    let second = second_of_day(hour?, minute?, second?.min(59))?;
    Some(Timestamp::from_secs(u64::try_from(days * 86_400 + second).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 22 Nov 2026 00:31:16 GMT.
    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

    fn after(text: &str) -> Option<u64> {
        read(text.as_bytes(), NOW).map(|time| u64::try_from(time.since(NOW).as_micros()).unwrap())
    }

    #[test]
    fn every_form_that_providers_write_is_read() {
        for (text, micros) in [
            ("0", 0),
            ("120", 120 * MICROS),
            (" 64.57 ", 64_570_000),
            ("1795307500", 24 * MICROS),
            ("1795307500.25", 24_250_000),
            ("1795307500250", 24_250_000),
            ("6m0s", 360 * MICROS),
            ("1s", MICROS),
            ("60ms", 60_000),
            ("1h2m3.5s", 3_723_500_000),
            ("1d", 86_400 * MICROS),
            ("250µs", 250),
            ("Sun, 22 Nov 2026 00:31:26 GMT", 10 * MICROS),
            ("Sunday, 22-Nov-26 00:31:26 GMT", 10 * MICROS),
            ("Sun Nov 22 00:31:26 2026", 10 * MICROS),
            ("2026-11-22T00:31:26Z", 10 * MICROS),
            ("2026-11-22T01:31:26.5+01:00", 10_500_000),
            // A past time becomes now.
            ("1500000000", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ] {
            assert_eq!(after(text), Some(micros), "{text}");
        }
    }

    #[test]
    fn a_value_without_a_time_is_refused() {
        for text in [
            "",
            " ",
            ".",
            "1.",
            ".5",
            "1.2.3",
            "-1",
            "+1",
            "1e3",
            "0x10",
            "soon",
            "1 s",
            "s",
            "5x",
            "5ss",
            "m5",
            "99999999999999999999",
            "170000000000000000",
            "Sun, 31 Feb 2026 00:00:00 GMT",
            "Sun, 22 Nov 2026 00:31 GMT",
            "Sun, 22 Nov 2026 24:00:00 GMT",
            "Sun, 22 Nov 2026 00:31:26 CET",
            "2026-13-01T00:00:00Z",
            "2026-11-22",
        ] {
            assert_eq!(after(text), None, "{text}");
        }
        assert_eq!(after(&"1".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn a_time_read_never_lies_in_the_past(value: Vec<u8>, now: u64) {
            let now = Timestamp::from_micros(now);
            prop_assert!(read(&value, now).is_none_or(|time| time >= now));
        }

        #[test]
        fn a_malformed_time_is_read_without_a_panic(text in "[0-9]{0,20}[.]?[0-9]{0,9}(ns|us|ms|s|m|h|d| |:|-|T|Z|GMT|Nov){0,8}[0-9]{0,6}") {
            read(text.as_bytes(), NOW);
        }

        #[test]
        fn every_second_is_read_back_from_its_date(seconds in 1_795_307_476_i64..250_000_000_000) {
            let date = jiff::Timestamp::from_second(seconds).unwrap().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            prop_assert_eq!(read(date.as_bytes(), NOW), Some(Timestamp::from_secs(seconds.try_into().unwrap())));
        }
    }
}
