//! Times as people read them: UTC dates, and spans.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

/// `2026-11-22T00:31:15Z`
pub fn iso(time: SystemTime) -> String {
    let (year, month, day, second) = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// `2026-11-22-0031`: sorts by time and suits a file's name.
pub fn stamp(time: SystemTime) -> String {
    let (year, month, day, second) = parts(time);
    format!("{year:04}-{month:02}-{day:02}-{:02}{:02}", second / 3600, second / 60 % 60)
}

/// `45 s` or `3m05s`
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{}m{:02}s", seconds / 60, seconds % 60) }
}

/// Year, month, day, and second of the day, in UTC. Days are counted in eras of 400 years that start in March, so that the
/// leap day comes last (after Howard Hinnant's `civil_from_days`).
fn parts(time: SystemTime) -> (u64, u64, u64, u64) {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let days = seconds / DAY_S + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day, seconds % DAY_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_307_475, "2026-11-22T00:31:15Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(iso(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(1_795_307_475)), "2026-11-22-0031");
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(Duration::from_millis(45_900)), "45 s");
        assert_eq!(span(Duration::from_secs(185)), "3m05s");
    }
}
