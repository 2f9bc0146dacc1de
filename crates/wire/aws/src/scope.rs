//! The time of a signature, and its scope: a day, a region and a service.

use egret_clock::{CivilTime, Timestamp};

/// Last second with a year of four digits.
const LATEST_SECOND: u64 = 253_402_300_799;
const SECONDS_OF_DAY: u64 = 86_400;

/// Returns `true` if a text may be a part of the scope of a signature: the id of a key, a region or a
/// service. Slashes and commas separate the parts.
pub fn is_scope_part(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

/// The time of a signature, as its parts write it.
pub(crate) struct SigningTime {
    /// `20150830T123600Z`
    pub time: String,
    /// `20150830`
    pub date: String,
    /// Number of the day since 1970.
    pub day: u64,
}

impl SigningTime {
    pub fn new(at: Timestamp) -> Self {
        let seconds = at.as_secs().min(LATEST_SECOND);
        let CivilTime { year, month, day, hour, minute, second, .. } = CivilTime::from_unix_seconds(seconds);
        let date = format!("{year:04}{month:02}{day:02}");
        Self { time: format!("{date}T{hour:02}{minute:02}{second:02}Z"), date, day: seconds / SECONDS_OF_DAY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_year_of_four_digits() {
        for (at, time, day) in [
            (Timestamp::from_secs(1_440_938_160), "20150830T123600Z", 16_677),
            (Timestamp::default(), "19700101T000000Z", 0),
            (Timestamp::NEVER, "99991231T235959Z", 2_932_896),
        ] {
            let SigningTime { time: written, date, day: number } = SigningTime::new(at);
            assert_eq!((written.as_str(), date.as_str(), number), (time, &time[..8], day));
        }
    }
}
