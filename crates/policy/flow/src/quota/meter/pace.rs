//! How long calls take, so that it can be foretold when units come back that are still in transit.

/// A rise by less than this, and by less than a quarter, is not told.
const RISE_MIN_MICROS: u64 = 1_000;

/// How long the calls of one group take. Times in microseconds. Where it is not known, nothing is foreseen:
/// no call takes any time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// How long a call is in transit: near the least that was seen of late, so that nobody is told too late a
    /// time.
    response: u64,
    /// What `response` was when a rise was told last, or less if it has fallen since.
    told: u64,
    /// When the first of the latest calls was made that were made together, and the units of them all.
    burst_at: u64,
    burst_units: u64,
}

impl Pace {
    /// How long a call is in transit.
    pub(super) fn response(&self) -> u64 {
        self.response
    }

    /// A call of so many units is made at `now`.
    pub(super) fn made(&mut self, units: u64, now: u64) {
        let together = self.response / 4 + RISE_MIN_MICROS;
        if now.saturating_sub(self.burst_at) > together {
            self.burst_at = now;
            self.burst_units = 0;
        }
        self.burst_units = self.burst_units.saturating_add(units);
    }

    /// A call took so long. Says whether calls take markedly longer than was told before.
    pub(super) fn took(&mut self, micros: u64) -> bool {
        let is_first = self.response == 0;
        self.response = match micros.checked_sub(self.response) {
            Some(more) if !is_first => self.response + more / 8,
            _ => micros,
        };
        self.told = self.told.min(self.response);
        let is_slower = self.response > self.told + self.told / 4 + RISE_MIN_MICROS;
        if is_slower {
            self.told = self.response;
        }
        is_slower
    }

    /// How many units of those in transit will still be so at `at`, as far as can be foreseen.
    pub(super) fn in_transit_at(&self, at: u64, transit: u64) -> u64 {
        if self.ends() >= at { self.burst_units.min(transit) } else { 0 }
    }

    /// When the last calls that were made will have been answered.
    pub(super) fn ends(&self) -> u64 {
        if self.response == 0 { 0 } else { self.burst_at.saturating_add(self.response) }
    }

    /// Units of the last calls that were made.
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
        assert!(pace.took(300_000), "the first is told");
        assert!(!pace.took(310_000));
        assert!(!pace.took(20_000));
        assert_eq!(pace.response(), 20_000);
        let rises = (0..100).filter(|_| pace.took(300_000)).count();
        assert!((5..20).contains(&rises), "{rises}");
        assert!((290_000..=300_000).contains(&pace.response()));
        assert!(!pace.took(300_000));
    }

    #[test]
    fn what_was_made_together_is_answered_together() {
        let mut pace = Pace::default();
        pace.took(300_000);
        pace.made(3, 1_000_000);
        pace.made(2, 1_000_500);
        assert_eq!((pace.in_transit_at(1_300_000, 9), pace.in_transit_at(1_300_001, 9)), (5, 0));
        assert_eq!(pace.in_transit_at(1_200_000, 4), 4, "some have been answered already");
        pace.made(1, 1_200_000);
        assert_eq!(pace.in_transit_at(1_400_000, 9), 1, "those made before are not foreseen to take longer");
    }
}
