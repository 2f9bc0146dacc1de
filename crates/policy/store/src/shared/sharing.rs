//! Max–min fairness: how many units each member should hold.

/// The level up to which every member gets its want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    /// Every member gets its want up to this.
    pub floor: u64,
    /// Number of members that may hold one unit more.
    pub extra: u64,
    /// `true` if the wants exceed the units.
    pub is_contended: bool,
}

impl Level {
    /// Shares `units` among members with these wants, which are sorted here.
    pub(super) fn of(units: u64, wants: &mut [u64]) -> Self {
        wants.sort_unstable();
        let mut left = units;
        let mut count = u64::try_from(wants.len()).unwrap_or(u64::MAX);
        for want in wants {
            if left / count < *want {
                return Self { floor: left / count, extra: left % count, is_contended: true };
            }
            left -= *want;
            count -= 1;
        }
        Self { floor: u64::MAX, extra: 0, is_contended: false }
    }

    /// Returns the units that a member with this want should hold at least.
    pub(super) fn least(&self, want: u64) -> u64 {
        want.min(self.floor)
    }

    /// Returns the units that a member with this want may hold at most.
    pub(super) fn most(&self, want: u64) -> u64 {
        want.min(self.floor.saturating_add(u64::from(self.extra > 0)))
    }
}

/// Units that a member with this limit and divisor may keep when it is cut off.
pub(super) fn kept(limit: u64, divisor: u64) -> u64 {
    limit.checked_div(divisor).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(units: u64, wants: &[u64]) -> (u64, u64, bool) {
        let level = Level::of(units, &mut wants.to_vec());
        (level.floor, level.extra, level.is_contended)
    }

    #[test]
    fn small_wants_are_met_and_the_others_share_the_rest() {
        assert_eq!(level(100, &[100; 8]), (12, 4, true));
        assert_eq!(level(100, &[100, 10, 100, 0]), (45, 0, true));
        assert_eq!(level(100, &[60, 40]), (u64::MAX, 0, false));
        assert_eq!(level(5, &[5; 8]), (0, 5, true));
        assert_eq!(level(5, &[]), (u64::MAX, 0, false));
        assert_eq!(level(0, &[1, 0]), (0, 0, true));
    }
}
