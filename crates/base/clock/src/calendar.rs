//! The Gregorian calendar in UTC, for the years 1970 to 9999. Time zones are the business of the `jiff`
//! crate.

/// Names of the months, January first, as HTTP and `asctime` abbreviate them.
pub(crate) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

const DAY_SECONDS: u64 = 86_400;
/// Days of 400 years, after which the calendar repeats itself.
const ERA_DAYS: u64 = 146_097;
/// Days from 1 March of the year 0, where eras begin, to 1 January 1970.
const EPOCH_DAY: u64 = 719_468;

/// A second as people write it, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// The year, 1970 or later.
    pub year: u64,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 59: Unix time has no leap seconds.
    pub second: u8,
    /// Abbreviated English name of the day of the week.
    pub weekday: &'static str,
}

impl CivilTime {
    /// Converts seconds since 1970.
    #[expect(clippy::cast_possible_truncation, reason = "each part is below 100")]
    pub fn from_unix_seconds(seconds: u64) -> Self {
        let (days, second) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
        let (year, month, day) = date_of(days);
        Self {
            year,
            month: month as u8,
            day: day as u8,
            hour: (second / 3_600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            weekday: WEEKDAYS[(days % 7) as usize],
        }
    }

    /// Abbreviated English name of the month.
    pub fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1)]
    }
}

/// Year, month and day, from days since 1970. Years are counted from March, so that a leap day is a year's
/// last.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAY;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Days from 1970 to a date, negative before; `None` if the calendar has no such date. Years are 0 to 9999.
pub(crate) fn days_until(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_date =
        (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    is_date.then_some(())?;
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * ERA_DAYS.cast_signed() + day_of_era - EPOCH_DAY.cast_signed())
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_seconds_are_known_dates() {
        for (seconds, weekday, year, month, day, time) in [
            (0, "Thu", 1970, "Jan", 1, (0, 0, 0)),
            (784_111_777, "Sun", 1994, "Nov", 6, (8, 49, 37)),
            (951_827_696, "Tue", 2000, "Feb", 29, (12, 34, 56)),
            (1_795_307_476, "Sun", 2026, "Nov", 22, (0, 31, 16)),
            (4_107_542_400, "Mon", 2100, "Mar", 1, (0, 0, 0)),
        ] {
            let civil = CivilTime::from_unix_seconds(seconds);
            assert_eq!(
                (civil.weekday, civil.year, civil.month_name(), civil.day),
                (weekday, year, month, day)
            );
            assert_eq!((civil.hour, civil.minute, civil.second), time);
        }
    }

    #[test]
    fn dates_that_the_calendar_lacks_are_refused() {
        for (year, month, day) in [(2023, 2, 29), (2100, 2, 29), (2024, 13, 1), (2024, 0, 1), (2024, 4, 31)] {
            assert_eq!(days_until(year, month, day), None, "{year}-{month}-{day}");
        }
        assert_eq!(days_until(1969, 12, 31), Some(-1));
    }

    proptest! {
        #[test]
        fn every_day_up_to_the_year_9999_agrees_with_another_calendar(days in 0_i64..2_932_897) {
            let date = jiff::civil::date(1970, 1, 1) + jiff::Span::new().days(days);
            let civil = CivilTime::from_unix_seconds(days.unsigned_abs() * DAY_SECONDS);
            prop_assert_eq!(
                (i64::try_from(civil.year).unwrap(), i64::from(civil.month), i64::from(civil.day)),
                (i64::from(date.year()), i64::from(date.month()), i64::from(date.day()))
            );
            prop_assert_eq!(days_until(date.year().into(), date.month().into(), date.day().into()), Some(days));
        }
    }
}
