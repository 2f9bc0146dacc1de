//! Dates as HTTP writes them (RFC 9110 §5.6.7), read as a cache has to: what is none of the three forms is no date.

use egret_store::Timestamp;

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The moment that `value` names; one before 1970 is that year's beginning. The day of the week has to be one, and is not looked at
/// further; case does not matter, and a zone other than GMT makes it no date (RFC 9111 §4.2).
pub fn read(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?.trim_matches([' ', '\t']);
    let (date, time) = match text.split_once(", ") {
        Some((day, rest)) if is_day(day, true) => imf(rest)?,
        Some((day, rest)) if is_day(day, false) => rfc850(rest, now)?,
        Some(_) => return None,
        None => asctime(text)?,
    };
    // Counted here, since the library's moments end a day before HTTP's.
    let days = jiff::civil::date(1970, 1, 1).until(date).ok()?.get_days();
    let of_day = i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    Some(Timestamp::from_secs(u64::try_from(i64::from(days) * 86_400 + of_day).unwrap_or_default()))
}

/// `at` as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn write(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

type Moment = (jiff::civil::Date, jiff::civil::Time);

/// `06 Nov 1994 08:49:37 GMT`
fn imf(text: &str) -> Option<Moment> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let (day, month, year, clock, zone) = (next()?, next()?, next()?, next()?, next()?);
    let is_whole = zone.eq_ignore_ascii_case("GMT") && next().is_none();
    is_whole.then_some(())?;
    Some((date(digits(year, 4)?, month, digits(day, 2)?)?, time(clock)?))
}

/// `06-Nov-94 08:49:37 GMT`: a year that would be more than 50 years ahead is one of the last century.
fn rfc850(text: &str, now: Timestamp) -> Option<Moment> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let (day, clock, zone) = (next()?, next()?, next()?);
    let is_whole = zone.eq_ignore_ascii_case("GMT") && next().is_none();
    is_whole.then_some(())?;
    let mut parts = day.split('-');
    let mut next = || parts.next();
    let (day, month, year) = (next()?, next()?, next()?);
    next().is_none().then_some(())?;
    let this_year = jiff::Timestamp::from_second(i64::try_from(now.as_secs()).ok()?).ok()?;
    let this_year = jiff::tz::TimeZone::UTC.to_datetime(this_year).year();
    let year = this_year - this_year % 100 + digits(year, 2)?;
    let year = if year > this_year + 50 { year - 100 } else { year };
    Some((date(year, month, digits(day, 2)?)?, time(clock)?))
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<Moment> {
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

fn digits(text: &str, len: usize) -> Option<i16> {
    let is_plain = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn date(year: i16, month: &str, day: i16) -> Option<jiff::civil::Date> {
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? + 1;
    jiff::civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// `08:49:37`; a leap second is taken as the one before it.
fn time(text: &str) -> Option<jiff::civil::Time> {
    let mut parts = text.split(':').map(|part| digits(part, 2).and_then(|part| i8::try_from(part).ok()));
    let mut next = || parts.next().flatten();
    let (hour, minute, second) = (next()?, next()?, next()?);
    parts.next().is_none().then_some(())?;
    jiff::civil::Time::new(hour, minute, if second == 60 { 59 } else { second }, 0).ok()
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
    fn what_is_none_of_them_is_no_date() {
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
        fn nothing_panics(value: Vec<u8>, text in "[A-Z][a-z]{2,8}[, ]{1,2}[0-9 -]{1,4}(Nov|Feb)[ -][0-9: ]{0,16}(GMT)?", now: u64) {
            read(&value, Timestamp::from_micros(now));
            read(text.as_bytes(), Timestamp::from_micros(now));
        }
    }
}
