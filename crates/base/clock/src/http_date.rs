//! HTTP dates (RFC 9110 §5.6.7). Only the three defined forms are accepted, as a cache requires.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::SystemTime;

use crate::calendar::{CivilTime, MONTHS, days_until};
use crate::timestamp::{Timestamp, system_time};

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Parses a date; one before 1970 becomes the beginning of 1970. The day of the week must be a valid name,
/// but is not checked against the date. Case does not matter. A zone other than GMT is rejected (RFC 9111
/// §4.2).
pub fn read(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?.trim_matches([' ', '\t']);
    let (days, second) = match text.split_once(", ") {
        Some((day, rest)) if is_day(day, true) => imf(rest)?,
        Some((day, rest)) if is_day(day, false) => rfc850(rest, now)?,
        Some(_) => return None,
        None => asctime(text)?,
    };
    Some(Timestamp::from_secs(u64::try_from(days * 86_400 + second).unwrap_or_default()))
}

/// The current time, for a `Date` field (RFC 9110 §6.6.1). A thread writes each second once.
pub fn now() -> Rc<str> {
    thread_local! {
        static LAST: RefCell<(Timestamp, Rc<str>)> = RefCell::new((Timestamp::default(), Rc::from("")));
    }
    let second = Timestamp::from_secs(system_time().as_secs());
    LAST.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            (*of, *text) = (second, write(second).into());
        }
        Rc::clone(text)
    })
}

/// The time as [`write()`] has it; one before 1970 is written as 1970.
pub fn write_system_time(time: SystemTime) -> String {
    write(second_of(time))
}

fn second_of(time: SystemTime) -> Timestamp {
    Timestamp::from_secs(time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Formats `at` as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn write(at: Timestamp) -> String {
    let time = CivilTime::from_unix_seconds(at.as_secs());
    let (weekday, month) = (time.weekday, time.month_name());
    let CivilTime { year, day, hour, minute, second, .. } = time;
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Days since 1970, and seconds of the day.
type DateParts = (i64, i64);

/// Parses `06 Nov 1994 08:49:37 GMT`.
fn imf(text: &str) -> Option<DateParts> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let (day, month, year, clock, zone) = (next()?, next()?, next()?, next()?, next()?);
    let is_whole = zone.eq_ignore_ascii_case("GMT") && next().is_none();
    is_whole.then_some(())?;
    Some((date(digits(year, 4)?, month, digits(day, 2)?)?, time(clock)?))
}

/// Parses `06-Nov-94 08:49:37 GMT`. A year more than 50 years in the future belongs to the previous century.
fn rfc850(text: &str, now: Timestamp) -> Option<DateParts> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let (day, clock, zone) = (next()?, next()?, next()?);
    let is_whole = zone.eq_ignore_ascii_case("GMT") && next().is_none();
    is_whole.then_some(())?;
    let mut parts = day.split('-');
    let mut next = || parts.next();
    let (day, month, year) = (next()?, next()?, next()?);
    next().is_none().then_some(())?;
    let year = full_year(digits(year, 2)?, now);
    Some((date(year, month, digits(day, 2)?)?, time(clock)?))
}

/// Parses `Sun Nov 6 08:49:37 1994`.
fn asctime(text: &str) -> Option<DateParts> {
    let bytes = text.as_bytes();
    let is_spaced = bytes.len() == 24 && [3, 7, 10, 19].iter().all(|at| bytes[*at] == b' ');
    (is_spaced && is_day(&text[..3], true)).then_some(())?;
    let day = &text[8..10];
    let day = day.strip_prefix(' ').map_or_else(|| digits(day, 2), |day| digits(day, 1))?;
    Some((date(digits(&text[20..], 4)?, &text[4..7], day)?, time(&text[11..19])?))
}

fn is_day(text: &str, is_short: bool) -> bool {
    DAYS.iter().any(|day| text.eq_ignore_ascii_case(if is_short { &day[..3] } else { day }))
}

/// The year of two digits: one of this century, unless that is more than 50 years ahead (RFC 9110 §5.6.7).
pub(crate) fn full_year(two_digits: i64, now: Timestamp) -> i64 {
    let this_year = CivilTime::from_unix_seconds(now.as_secs()).year.cast_signed();
    let year = this_year - this_year % 100 + two_digits;
    if year > this_year + 50 { year - 100 } else { year }
}

fn digits(text: &str, len: usize) -> Option<i64> {
    let is_plain = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Days since 1970.
pub(crate) fn date(year: i64, month: &str, day: i64) -> Option<i64> {
    let month = MONTHS.iter().zip(1..).find(|(name, _)| name.eq_ignore_ascii_case(month))?.1;
    days_until(year, month, day)
}

/// Parses `08:49:37`. A leap second is read as the second before it.
fn time(text: &str) -> Option<i64> {
    let mut parts = text.split(':').map(|part| digits(part, 2));
    let mut next = || parts.next().flatten();
    let (hour, minute, second) = (next()?, next()?, next()?);
    parts.next().is_none().then_some(())?;
    second_of_day(hour, minute, second)
}

/// Seconds since midnight; a leap second is taken as the one before it.
pub(crate) fn second_of_day(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    is_time.then(|| hour * 3_600 + minute * 60 + second.min(59))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sun, 22 Nov 2026 00:31:16 GMT.
    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

    #[test]
    fn the_three_forms_are_read_in_any_case() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sUN, 06 nOV 1994 08:49:37 gmt",
            " Sun, 06 Nov 1994 08:49:37 GMT\t",
        ] {
            assert_eq!(read(text.as_bytes(), NOW), Some(Timestamp::from_secs(784_111_777)), "{text}");
        }
        let last = read(b"Fri, 31 Dec 9999 23:59:59 GMT", NOW);
        assert_eq!(last, Some(Timestamp::from_secs(253_402_300_799)));
        assert_eq!(read(b"Thu, 01 Jan 1900 00:00:00 GMT", NOW), Some(Timestamp::default()));
        let two_digits = |year: &str| read(format!("Sunday, 06-Nov-{year} 08:49:37 GMT").as_bytes(), NOW);
        assert!(two_digits("76") > Some(NOW) && two_digits("77") < Some(NOW));
    }

    #[test]
    fn other_formats_are_no_date() {
        for text in [
            "",
            "0",
            "-1",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 8 Aug 2050 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug 2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Xyz, 18 Aug 2050 02:01:18 GMT",
            "Thu, 31 Feb 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 20500 02:01:18 GMT",
            "2050-08-18T02:01:18Z",
        ] {
            assert_eq!(read(text.as_bytes(), NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_second_is_read_back_as_it_was_written(seconds in 0_u64..250_000_000_000) {
            let at = Timestamp::from_secs(seconds);
            let text = write(at);
            prop_assert_eq!(text.len(), 29);
            prop_assert_eq!(read(text.as_bytes(), NOW), Some(at));
        }

        #[test]
        fn any_value_is_read_without_a_panic(value: Vec<u8>, text in "[A-Z][a-z]{2,8}[, ]{1,2}[0-9 -]{1,4}(Nov|Feb)[ -][0-9: ]{0,16}(GMT)?", now: u64) {
            read(&value, Timestamp::from_micros(now));
            read(text.as_bytes(), Timestamp::from_micros(now));
        }
    }
}
