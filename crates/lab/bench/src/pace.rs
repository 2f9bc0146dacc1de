//! The start times of exchanges: as soon as a connection is free, or at times fixed by the clock alone.

use std::time::Duration;

/// The rule that decides when the next exchange starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Closed model: each connection starts its next exchange when the last one has ended. A slow provider
    /// receives fewer requests, so a stall affects only as many exchanges as there are connections, and hides
    /// from the percentiles (coordinated omission).
    Closed {
        /// Time over which the connections' first exchanges are spread.
        ramp_up: Duration,
    },
    /// Open model: exchanges are due at times fixed beforehand and are measured from then, so a stall shows
    /// in every exchange that was due during it.
    Open(Rate),
}

/// A rate of exchanges, constant or changing linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// Exchanges per second at the start, above 0.
    pub from: f64,
    /// Exchanges per second after [`Rate::over`], above 0.
    pub to: f64,
    /// Duration of the change; irrelevant for a constant rate.
    pub over: Duration,
}

impl Rate {
    /// Creates a constant rate.
    pub fn constant(per_second: f64) -> Self {
        Self { from: per_second, to: per_second, over: Duration::ZERO }
    }

    /// Time from the start of the run at which exchange `number`, counted from 0, is due.
    ///
    /// By time `t`, `from * t + slope * t² / 2` exchanges are due. This solves that for `t`, in the form that
    /// stays exact if the slope is small.
    #[expect(clippy::cast_precision_loss, reason = "2^53 exchanges are some thousand years at any rate here")]
    pub fn due(&self, number: u64) -> Duration {
        let number = number as f64;
        let over = self.over.as_secs_f64();
        let while_changing = f64::midpoint(self.from, self.to) * over;
        let seconds = if number >= while_changing {
            over + (number - while_changing) / self.to
        } else {
            let slope = (self.to - self.from) / over;
            2.0 * number / (self.from + (self.from * self.from + 2.0 * slope * number).sqrt())
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use egret_measure::statistics::real;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_constant_rate_is_due_at_even_steps() {
        let rate = Rate::constant(500.0);
        assert_eq!(rate.due(0), Duration::ZERO);
        assert_eq!(rate.due(1), Duration::from_millis(2));
        assert_eq!(rate.due(500_000), Duration::from_secs(1_000));
    }

    #[test]
    fn a_ramp_has_as_many_due_as_the_area_under_it() {
        let rate = Rate { from: 100.0, to: 300.0, over: Duration::from_secs(10) };
        // 100 * 5 + 20 * 25 / 2 = 750 in the first half, 2000 in the whole; 300 a second from then on.
        for (number, seconds) in [(0, 0.0), (750, 5.0), (2_000, 10.0), (2_300, 11.0)] {
            assert!((rate.due(number).as_secs_f64() - seconds).abs() < 1e-6, "{number}");
        }
    }

    #[test]
    fn a_ramp_downwards_is_as_exact() {
        let rate = Rate { from: 300.0, to: 100.0, over: Duration::from_secs(10) };
        // 300 * 5 - 20 * 25 / 2 = 1250.
        assert!((rate.due(1_250).as_secs_f64() - 5.0).abs() < 1e-6);
        assert!((rate.due(2_100).as_secs_f64() - 11.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn due_times_never_decrease_and_match_the_area_under_the_rate(
            from in 0.5..5_000.0_f64,
            to in 0.5..5_000.0_f64,
            over_ms in 1_u64..60_000,
            number in 0_u64..100_000,
        ) {
            let rate = Rate { from, to, over: Duration::from_millis(over_ms) };
            let (due, next) = (rate.due(number).as_secs_f64(), rate.due(number + 1).as_secs_f64());
            prop_assert!(next >= due);
            let over = rate.over.as_secs_f64();
            let changing = due.min(over);
            let area = from * changing + (to - from) / over * changing * changing / 2.0 + (due - changing) * to;
            prop_assert!((area - real(number)).abs() < 1e-3 * real(number).max(1.0), "{area} for {number}");
        }
    }

    #[test]
    fn a_rate_that_hardly_changes_is_as_good_as_constant() {
        let changing = Rate { from: 1_000.0, to: 1_000.000_001, over: Duration::from_secs(100) };
        for number in [0, 1, 1_000, 99_999] {
            let apart = changing.due(number).abs_diff(Rate::constant(1_000.0).due(number));
            assert!(apart < Duration::from_micros(1), "{number}: {apart:?}");
        }
    }
}
