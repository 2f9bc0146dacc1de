//! Formats times for people: UTC dates, and durations.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_clock::CivilTime;

/// Formats a date and time: `2026-11-22T00:31:15Z`.
pub(crate) fn iso(time: SystemTime) -> String {
    let CivilTime { year, month, day, hour, minute, second, .. } = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats a sortable time for file names: `2026-11-22-0031`.
pub(crate) fn stamp(time: SystemTime) -> String {
    let CivilTime { year, month, day, hour, minute, .. } = parts(time);
    format!("{year:04}-{month:02}-{day:02}-{hour:02}{minute:02}")
}

fn parts(time: SystemTime) -> CivilTime {
    CivilTime::from_unix_seconds(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Formats a duration: `45 s` or `3m05s`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{}m{:02}s", seconds / 60, seconds % 60) }
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
