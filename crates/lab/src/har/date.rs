//! Dates and times as HAR writes them: ISO 8601 with a zone, in the profile of RFC 3339.

use std::time::{Duration, SystemTime};

/// `2026-01-02T03:04:05.250+01:00`; `None` where the text is anything else, or before 1970.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-')?;
    let time = time.strip_prefix(['T', 't', ' '])?;
    let (time, zone_minutes) = split_zone(time)?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':')?;
    let valid = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let minutes = days_since_epoch(year, month, day) * 1_440 + hour * 60 + minute - zone_minutes;
    let seconds = u64::try_from(minutes * 60 + second).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos(fraction)?))
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(number);
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

fn number(digits: &str) -> Option<i64> {
    let plain = !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The time without its zone, and the zone in minutes ahead of UTC.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (time, zone) = text.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits: String = zone[1..].chars().filter(|letter| *letter != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    Some((time, sign * (number(hours)? * 60 + number(minutes).unwrap_or(0))))
}

/// The first nine digits; what is finer is dropped.
fn nanos(fraction: &str) -> Option<u32> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
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

/// Days from the first of March of the year 0 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Days from 1970-01-01 in the Gregorian calendar. Years are counted from March, so that a leap day is a year's last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days_before_month = (153 * month + 2) / 5;
    year * 365 + leap_days + days_before_month + day - 1 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_every_zone() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00.5Z", 951_825_600_500),
            ("2026-11-22T00:31:16.123456789+00:00", 1_795_307_476_123),
            ("2026-11-22T01:31:16+01:00", 1_795_307_476_000),
            ("2026-11-21T19:01:16-0530", 1_795_307_476_000),
            ("2026-12-31T23:59:60Z", 1_798_761_600_000),
        ] {
            let parsed =
                parse(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis());
            assert_eq!(parsed, Some(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_with_a_zone_is_refused() {
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-13-02T03:04:05Z",
            "2026-02-29T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:04Z",
            "2026-01-02T03:04:05.Z",
            "1960-01-01T00:00:00Z",
            "2026-01-02T03:04:05+xx:00",
            "ä026-01-02T03:04:05Z",
            "+026-01-02T03:04:05Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
