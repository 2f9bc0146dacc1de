//! Reads and writes HAR timestamps: ISO 8601 with a time zone, in the profile of RFC 3339.

use std::time::{Duration, SystemTime};

use crate::calendar::{CivilTime, days_until};

/// The last time that can be written, in microseconds: the end of the year 9999.
const UNIX_US_MAX: u64 = 253_402_300_799_999_999;
/// Length of a timestamp up to its fraction.
const SECOND_LEN: usize = "2026-01-02T03:04:05.".len();

/// Formats a time in UTC to the millisecond, as `2026-01-02T03:04:05.250Z`. A time before 1970 is written as
/// 1970.
pub fn write(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut text, us) = (Vec::new(), u64::try_from(since.as_micros()).unwrap_or(UNIX_US_MAX));
    write_unix_us(us, &mut text);
    // Drop the microseconds.
    text.truncate("2026-01-02T03:04:05.250".len());
    text.push(b'Z');
    String::from_utf8(text).unwrap_or_default()
}

/// Appends a time given in microseconds since 1970, in UTC, as `2026-01-02T03:04:05.250125Z`. Times after the
/// year 9999 are written as its end.
pub fn write_unix_us(us: u64, out: &mut Vec<u8>) {
    let us = us.min(UNIX_US_MAX);
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let time = CivilTime::from_unix_seconds(seconds);
    let pair = |number: u64| {
        let number = (number % 100) as u8;
        [b'0' + number / 10, b'0' + number % 10]
    };
    let [[y0, y1], [y2, y3]] = [time.year / 100, time.year].map(pair);
    let [[m0, m1], [d0, d1], [h0, h1], [n0, n1], [s0, s1]] =
        [time.month, time.day, time.hour, time.minute, time.second].map(|part| pair(part.into()));
    let [[u0, u1], [u2, u3], [u4, u5]] = [us / 10_000, us / 100, us].map(pair);
    out.extend_from_slice(&[
        y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1, b'.', u0, u1,
        u2, u3, u4, u5, b'Z',
    ]);
}

/// Writes times as [`write_unix_us`] does, and keeps the text of the last second.
#[derive(Debug, Default)]
pub struct SecondWriter {
    second: u64,
    /// The text up to the microseconds; empty before the first use.
    text: Vec<u8>,
}

impl SecondWriter {
    /// Appends a time given in microseconds since 1970.
    pub fn write_unix_us(&mut self, us: u64, out: &mut Vec<u8>) {
        let (second, us) = (us / 1_000_000, us % 1_000_000);
        if second != self.second || self.text.is_empty() || second > UNIX_US_MAX / 1_000_000 {
            self.second = second;
            self.text.clear();
            let start = out.len();
            write_unix_us(second.saturating_mul(1_000_000) + us, out);
            return self.text.extend_from_slice(&out[start..start + SECOND_LEN]);
        }
        out.extend_from_slice(&self.text);
        let digit = |divisor: u64| b'0' + (us / divisor % 10) as u8;
        let [u0, u1, u2, u3, u4, u5] = [100_000, 10_000, 1_000, 100, 10, 1].map(digit);
        out.extend_from_slice(&[u0, u1, u2, u3, u4, u5, b'Z']);
    }
}

/// Parses a timestamp. Returns `None` if it is not a date and time with a zone, or is before 1970. A leap
/// second counts as the second after it.
pub fn read(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't'])?;
    let (time, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days_until(year, month, day)? * 24 + hour) * 60 + minute) * 60 + second;
    let seconds = u64::try_from(seconds - offset_minutes(zone)? * 60).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos(fraction)?))
}

/// Parses three numbers that have exactly the given numbers of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && is_digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a zone and returns its offset from UTC in minutes. Accepts `+0100` too, which is valid ISO 8601 and
/// in use.
fn offset_minutes(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, zone) = zone.split_at_checked(1)?;
    let (hours, minutes) = zone.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    if !is_digits(hours) || minutes.len() != 2 || !is_digits(minutes) {
        return None;
    }
    let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = hours * 60 + minutes;
    Some(if sign == "-" { -ahead } else { ahead })
}

/// Parses a fraction of a second to nanoseconds. Digits after the ninth are dropped.
fn nanos(fraction: &str) -> Option<u32> {
    if !is_digits(fraction) {
        return None;
    }
    format!("{fraction:0<9}").get(..9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(text: &str) -> Option<u128> {
        Some(read(text)?.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis())
    }

    #[test]
    fn zones_and_fractions_are_read() {
        assert_eq!(millis("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(millis("2024-02-29T23:59:59.125+01:00"), Some(1_709_247_599_125));
        assert_eq!(millis("2024-02-29T23:59:59.125+0100"), Some(1_709_247_599_125));
        assert_eq!(millis("2009-04-16T12:07:25.123456789123-05:30"), Some(1_239_903_445_123));
    }

    #[test]
    fn a_time_without_a_valid_zone_is_refused() {
        for text in [
            "",
            "2024-02-29",
            "2024-02-29T10:00:00",
            "2023-02-29T10:00:00Z",
            "2024-13-01T10:00:00Z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T10:00:00.Z",
            "2024-02-29T10:00:00+1:00",
            "2024-02-29T10:00:00+01:60",
            "2024-02-29T10:00:00Zulu",
            "2024-2-29T10:00:00Z",
            "1969-12-31T23:59:59Z",
            "2024-02-2äT10:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn microseconds_are_written(us in 0_u64..=UNIX_US_MAX) {
            let mut text = Vec::new();
            write_unix_us(us, &mut text);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(text.len(), 27);
            prop_assert_eq!(read(&text), Some(SystemTime::UNIX_EPOCH + Duration::from_micros(us)));
        }

        #[test]
        fn a_written_time_is_read_again(ms in 0_u64..253_402_300_800_000) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
            prop_assert_eq!(read(&write(time)), Some(time));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9T:.+Zz-]{0,40}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn times_within_a_second_are_written_like_others() {
        let mut writer = SecondWriter::default();
        let second = 1_767_323_045_000_000;
        let around = [second - 1, second, second + 1, second + 250_125, second + 999_999, second + 1_000_000];
        for us in around.into_iter().chain([0, 1, UNIX_US_MAX, UNIX_US_MAX + 2, u64::MAX, second]) {
            let (mut written, mut expected) = (Vec::new(), Vec::new());
            writer.write_unix_us(us, &mut written);
            write_unix_us(us, &mut expected);
            assert_eq!(written, expected, "{us}");
        }
    }
}
