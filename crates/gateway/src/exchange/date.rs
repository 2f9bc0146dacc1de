//! The `Date` field (RFC 9110 §6.6.1) of answers made by the gateway.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time now as an IMF-fixdate (RFC 9110 §5.6.7).
pub(crate) fn now() -> String {
    imf_fixdate(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn imf_fixdate(epoch_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (epoch_s / 86_400, epoch_s % 86_400);
    let (year, month, day) = civil(days);
    let weekday = DAYS[usize::try_from(days % 7).unwrap_or_default()];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or_default()];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Year, month (1 to 12) and day (1 to 31) of the Gregorian calendar, so many days after 1970-01-01.
pub(crate) fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    // Whole cycles of 400 years have 146,097 days; what remains is at most 400 steps.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_print_as_rfc_9110_has_them() {
        for (epoch_s, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_827_696, "Tue, 29 Feb 2000 12:34:56 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(imf_fixdate(epoch_s), text);
        }
    }
}
