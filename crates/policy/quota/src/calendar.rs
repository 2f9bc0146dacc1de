//! Windows of a day or a month in the calendar of a time zone.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp as Moment, ToSpan};

use super::config::{Period, RenewalConfig};

/// The times at which calendar windows begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Calendar {
    period: Period,
    day: i8,
    time: Time,
    zone: TimeZone,
}

/// The mistake in a [`RenewalConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenewalError {
    /// There is no such day of the month.
    #[error("expected a day from 1 to 31, found `{0}`")]
    Day(u8),
    /// A period of a day has a day of the month.
    #[error("`period: day` has no day of the month")]
    DayOfDay,
    /// There is no such time of day.
    #[error("expected a time of day like `00:00`, found `{0}`")]
    Time(String),
    /// There is no such time zone.
    #[error("unknown time zone `{0}`: expected one like `Europe/Berlin` or `UTC`")]
    TimeZone(String),
}

impl RenewalError {
    /// The wrong key below `renews`.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Day(_) | Self::DayOfDay => "day",
            Self::Time(_) => "time",
            Self::TimeZone(_) => "time_zone",
        }
    }
}

impl Calendar {
    /// Compiles the calendar of a config.
    pub(super) fn new(period: Period, renews: &RenewalConfig) -> Result<Self, RenewalError> {
        let day = i8::try_from(renews.day)
            .ok()
            .filter(|day| (1..=31).contains(day))
            .ok_or(RenewalError::Day(renews.day))?;
        if period == Period::Day && day != 1 {
            return Err(RenewalError::DayOfDay);
        }
        let time = time_of_day(&renews.time).ok_or_else(|| RenewalError::Time(renews.time.clone()))?;
        let zone =
            TimeZone::get(&renews.time_zone).map_err(|_| RenewalError::TimeZone(renews.time_zone.clone()))?;
        Ok(Self { period, day, time, zone })
    }

    /// Returns begin and end of the window at `now`, in microseconds since the epoch. After the end of the
    /// calendar (the year 9999) the window has no end.
    pub(super) fn window(&self, now: u64) -> (u64, u64) {
        self.window_checked(now).unwrap_or((now, u64::MAX))
    }

    fn window_checked(&self, now: u64) -> Option<(u64, u64)> {
        let moment = Moment::from_microsecond(i64::try_from(now).ok()?).ok()?;
        let today = moment.to_zoned(self.zone.clone()).date();
        // The window may have begun in the previous period, and changes of the zone move its ends. So all
        // window ends near `now` are computed, and the two around it are selected.
        let mut begin = 0;
        for offset in -2..=2 {
            let end = self.begin_near(today, offset)?;
            if end > now {
                return Some((begin, end));
            }
            begin = end;
        }
        None
    }

    /// Returns the beginning in the period that is `offset` periods after that of `date`.
    fn begin_near(&self, date: Date, offset: i32) -> Option<u64> {
        let date = match self.period {
            Period::Day => date.checked_add(offset.days()).ok()?,
            Period::Month => {
                let month = date.first_of_month().checked_add(offset.months()).ok()?;
                let day = self.day.min(month.days_in_month());
                Date::new(month.year(), month.month(), day).ok()?
            }
        };
        let begin = self.zone.to_zoned(date.to_datetime(self.time)).ok()?;
        u64::try_from(begin.timestamp().as_microsecond().max(0)).ok()
    }
}

fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<i8>().ok())?
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calendar(period: Period, day: u8, time: &str, zone: &str) -> Calendar {
        let renews = RenewalConfig { day, time: time.to_owned(), time_zone: zone.to_owned() };
        Calendar::new(period, &renews).unwrap()
    }

    fn at(text: &str) -> u64 {
        u64::try_from(text.parse::<Moment>().unwrap().as_microsecond()).unwrap()
    }

    #[test]
    fn a_window_lies_between_two_renewals_of_its_zone() {
        for (period, day, time, zone, now, begin, end) in [
            (
                Period::Day,
                1,
                "00:00",
                "UTC",
                "2026-11-22T03:00:00Z",
                "2026-11-22T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                Period::Day,
                1,
                "06:00",
                "UTC",
                "2026-11-22T03:00:00Z",
                "2026-11-21T06:00:00Z",
                "2026-11-22T06:00:00Z",
            ),
            // In Berlin, the day on which summer time ends has 25 hours, the day on which it begins 23.
            (
                Period::Day,
                1,
                "00:00",
                "Europe/Berlin",
                "2026-10-25T12:00:00Z",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            (
                Period::Day,
                1,
                "00:00",
                "Europe/Berlin",
                "2026-03-29T12:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            // 02:30 is skipped then, and becomes 03:30 summer time; in autumn it occurs twice, and the first
            // one counts.
            (
                Period::Day,
                1,
                "02:30",
                "Europe/Berlin",
                "2026-03-29T01:30:00Z",
                "2026-03-29T01:30:00Z",
                "2026-03-30T00:30:00Z",
            ),
            (
                Period::Day,
                1,
                "02:30",
                "Europe/Berlin",
                "2026-10-25T01:00:00Z",
                "2026-10-25T00:30:00Z",
                "2026-10-26T01:30:00Z",
            ),
            (
                Period::Month,
                31,
                "00:00",
                "UTC",
                "2027-02-28T00:00:00Z",
                "2027-02-28T00:00:00Z",
                "2027-03-31T00:00:00Z",
            ),
            (
                Period::Month,
                15,
                "00:00",
                "America/New_York",
                "2026-11-01T00:00:00Z",
                "2026-10-15T04:00:00Z",
                "2026-11-15T05:00:00Z",
            ),
            (
                Period::Month,
                1,
                "00:00",
                "UTC",
                "2026-12-31T23:59:59Z",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            // Samoa skipped 2011-12-30.
            (
                Period::Day,
                1,
                "00:00",
                "Pacific/Apia",
                "2011-12-30T12:00:00Z",
                "2011-12-30T10:00:00Z",
                "2011-12-31T10:00:00Z",
            ),
        ] {
            let window = calendar(period, day, time, zone).window(at(now));
            assert_eq!(window, (at(begin), at(end)), "{period:?} {day} {time} {zone} {now}");
        }
    }

    #[test]
    fn an_invalid_renewal_is_refused_by_its_key() {
        for (period, day, time, zone, key) in [
            (Period::Month, 0, "00:00", "UTC", "day"),
            (Period::Month, 32, "00:00", "UTC", "day"),
            (Period::Day, 2, "00:00", "UTC", "day"),
            (Period::Day, 1, "24:00", "UTC", "time"),
            (Period::Day, 1, "0:00", "UTC", "time"),
            (Period::Day, 1, "noon", "UTC", "time"),
            (Period::Day, 1, "00:00", "Europe/Atlantis", "time_zone"),
        ] {
            let renews = RenewalConfig { day, time: time.to_owned(), time_zone: zone.to_owned() };
            assert_eq!(Calendar::new(period, &renews).unwrap_err().key(), key);
        }
    }

    proptest! {
        #[test]
        fn windows_follow_each_other_without_gap(
            now in 86_400_000_000_u64 * 40..4_000_000_000_000_000,
            monthly: bool,
            day in 1_u8..=31,
            hour in 0..24,
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu"]),
        ) {
            let (period, day) = if monthly { (Period::Month, day) } else { (Period::Day, 1) };
            let calendar = calendar(period, day, &format!("{hour:02}:00"), zone);
            let (begin, end) = calendar.window(now);
            prop_assert!(begin <= now && now < end);
            prop_assert_eq!(calendar.window(begin), (begin, end));
            prop_assert_eq!(calendar.window(end - 1), (begin, end));
            prop_assert_eq!(calendar.window(end).0, end);
        }
    }
}
