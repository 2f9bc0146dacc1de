//! Dates of cookies, in any order and shape that RFC 6265 §5.1.1 reads.

use std::time::{Duration, SystemTime};

use crate::calendar::{MONTHS, days_until};

/// Reads the date of a cookie, with its parts in any order (RFC 6265 §5.1.1). `None` if a part is missing or
/// out of range.
pub fn read(text: &str) -> Option<SystemTime> {
    let is_delimiter = |letter: char| !letter.is_ascii_alphanumeric() && letter != ':';
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        let number = || token.parse::<i64>().ok().filter(|_| is_number(token) && token.len() <= 4);
        if time.is_none() && token.contains(':') {
            time = Some(clock(token)?);
        } else if day.is_none() && token.len() <= 2 && number().is_some() {
            day = number();
        } else if month.is_none() && month_of(token).is_some() {
            month = month_of(token);
        } else if year.is_none() && token.len() >= 2 {
            year = number().map(|year| match year {
                0..70 => year + 2000,
                70..100 => year + 1900,
                _ => year,
            });
        }
    }
    let (seconds, day, month, year) = (time?, day?, month?, year?);
    let seconds = u64::try_from(days_until(year, month, day)? * 86_400 + seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Number of the month whose English name begins as the token does.
fn month_of(token: &str) -> Option<i64> {
    let start = token.get(..3)?;
    MONTHS.iter().zip(1..).find(|(name, _)| name.eq_ignore_ascii_case(start)).map(|(_, month)| month)
}

/// Seconds of a day: `07:28:00`, with one digit or two each.
fn clock(token: &str) -> Option<i64> {
    let mut parts = token.split(':');
    let mut next = |max: i64| {
        let part = parts.next().filter(|part| part.len() <= 2 && is_number(part))?;
        part.parse::<i64>().ok().filter(|number| *number <= max)
    };
    let seconds = next(23)? * 3_600 + next(59)? * 60 + next(59)?;
    parts.next().is_none().then_some(seconds)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rfc3339;

    #[test]
    fn dates_of_cookies_are_read_in_their_three_shapes() {
        let expected = rfc3339::read("2026-10-21T07:28:00Z");
        for text in [
            "Wed, 21 Oct 2026 07:28:00 GMT",
            "Wednesday, 21-Oct-26 07:28:00 GMT",
            "Wed Oct 21 7:28:0 2026",
            "21 october 2026 07:28:00",
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for text in
            ["", "Wed, 31 Feb 2026 07:28:00 GMT", "21 Oct 2026", "21 Oct 2026 25:00:00", "21 Oct 07:28:00"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9a-zA-Z:, -]{0,40}") {
            read(&text);
        }
    }
}
