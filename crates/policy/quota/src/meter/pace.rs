//! Estimates the duration of calls, to predict when units in transit come back.

/// A rise by less than this, and by less than a quarter, is not reported.
const RISE_MIN_MICROS: u64 = 1_000;

/// Longest estimate that an earlier process may report: a day.
const RESPONSE_MAX_MICROS: u64 = 86_400_000_000;

/// The duration of the calls of one group, in microseconds. While it is unknown, calls are assumed to take no
/// time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Estimated time in transit: near the recent minimum, so no predicted time is too late.
    response: u64,
    /// Value of `response` at the last reported rise, or less if it has fallen since.
    last_reported: u64,
    /// Time of the first call of the latest burst, and the units of the whole burst.
    burst_at: u64,
    burst_units: u64,
}

impl Pace {
    /// Estimated time in transit.
    pub(super) fn response(&self) -> u64 {
        self.response
    }

    /// Takes over the estimate of an earlier process.
    pub(super) fn inherit(&mut self, response: u64) {
        let response = response.min(RESPONSE_MAX_MICROS);
        (self.response, self.last_reported) = (response, response);
    }

    /// Notes a call of that many units at `now`.
    pub(super) fn made(&mut self, units: u64, now: u64) {
        let together = self.response / 4 + RISE_MIN_MICROS;
        if now.saturating_sub(self.burst_at) > together {
            self.burst_at = now;
            self.burst_units = 0;
        }
        self.burst_units = self.burst_units.saturating_add(units);
    }

    /// Notes the duration of a call. Returns `true` if calls take markedly longer than reported before.
    pub(super) fn took(&mut self, micros: u64) -> bool {
        let is_first = self.response == 0;
        self.response = match micros.checked_sub(self.response) {
            Some(more) if !is_first => self.response + more / 8,
            _ => micros,
        };
        self.last_reported = self.last_reported.min(self.response);
        let is_slower = self.response > self.last_reported + self.last_reported / 4 + RISE_MIN_MICROS;
        if is_slower {
            self.last_reported = self.response;
        }
        is_slower
    }

    /// Estimates how many of the units in transit will still be in transit at `at`.
    pub(super) fn in_transit_at(&self, at: u64, transit: u64) -> u64 {
        if self.ends() >= at { self.burst_units.min(transit) } else { 0 }
    }

    /// Estimated time at which the calls of the latest burst will be complete.
    pub(super) fn ends(&self) -> u64 {
        if self.response == 0 { 0 } else { self.burst_at.saturating_add(self.response) }
    }

    /// Units of the latest burst.
    pub(super) fn burst_units(&self) -> u64 {
        self.burst_units
    }

    pub(super) fn shift_back(&mut self, micros: u64) {
        self.burst_at = self.burst_at.saturating_sub(micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_at_once_rises_slowly_and_tells_each_marked_rise_once() {
        let mut pace = Pace::default();
        assert!(pace.took(300_000), "the first rise is reported");
        assert!(!pace.took(310_000));
        assert!(!pace.took(20_000));
        assert_eq!(pace.response(), 20_000);
        let rises = (0..100).filter(|_| pace.took(300_000)).count();
        assert!((5..20).contains(&rises), "{rises}");
        assert!((290_000..=300_000).contains(&pace.response()));
        assert!(!pace.took(300_000));
    }

    #[test]
    fn calls_made_together_are_answered_together() {
        let mut pace = Pace::default();
        pace.took(300_000);
        pace.made(3, 1_000_000);
        pace.made(2, 1_000_500);
        assert_eq!((pace.in_transit_at(1_300_000, 9), pace.in_transit_at(1_300_001, 9)), (5, 0));
        assert_eq!(pace.in_transit_at(1_200_000, 4), 4, "some have been answered already");
        pace.made(1, 1_200_000);
        assert_eq!(pace.in_transit_at(1_400_000, 9), 1, "earlier calls are not estimated to take longer");
    }
}
