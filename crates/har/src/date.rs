//! Dates and times as HAR has them: ISO 8601 with a zone, in the profile of RFC 3339.

use std::time::{Duration, SystemTime};

const DAY_SECS: u64 = 86_400;

/// `2026-01-02T03:04:05.250Z`: UTC, to the millisecond. A time before 1970 is written as 1970.
pub fn write(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY_SECS, since.as_secs() % DAY_SECS);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// What a text says; `None` where it is no date and time with a zone, or one before 1970. A leap second counts as the one after it.
pub fn read(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't'])?;
    let (time, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days_since_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    let seconds = u64::try_from(seconds - offset_minutes(zone)? * 60).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos(fraction)?))
}

/// Numbers of so many digits each.
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

/// Minutes ahead of UTC. `+0100` is read as well: it is ISO 8601, and written by some.
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

/// The first nine digits; what is finer is dropped.
fn nanos(fraction: &str) -> Option<u32> {
    if !is_digits(fraction) {
        return None;
    }
    format!("{fraction:0<9}").get(..9)?.parse().ok()
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Of the proleptic Gregorian calendar, counted in years that begin in March, so that the leap day is the last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The other way round: year, month and day.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_year - (153 * march + 2) / 5 + 1)
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
    fn what_is_no_time_with_a_zone_is_refused() {
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
        fn what_is_written_is_read_again(ms in 0_u64..253_402_300_800_000) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
            prop_assert_eq!(read(&write(time)), Some(time));
        }

        #[test]
        fn nothing_panics(text in "[0-9T:.+Zz-]{0,40}") {
            let _ = read(&text);
        }
    }
}
