//! The memory budget for all gathered bodies of the process.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::AtomicUsize;

use egret_clock::planted;

/// The limit and the current use, in bytes. Accessed only when memory for a body is allocated or freed. A
/// body's buffer doubles when it grows, so this happens a handful of times per body.
#[derive(Debug)]
pub struct Budget {
    max: AtomicUsize,
    taken: AtomicUsize,
}

impl Default for Budget {
    /// Returns an unlimited budget.
    fn default() -> Self {
        Self { max: AtomicUsize::new(usize::MAX), taken: AtomicUsize::new(0) }
    }
}

/// Error: the remaining budget is smaller than the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl Budget {
    /// Changes the limit, in bytes. Memory already taken stays.
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Relaxed);
    }

    /// Returns the number of bytes in use.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let max = self.max.load(Relaxed);
        // In one step: what is refused must not stand in the way of others for a moment.
        let more = |taken: usize| taken.checked_add(bytes).filter(|after| *after <= max);
        self.taken.fetch_update(Relaxed, Relaxed, more).map_or(Err(Exhausted), |_| Ok(()))
    }
}

/// A share taken from a budget, released on drop.
#[derive(Debug, Default)]
pub struct Share {
    budget: Option<Arc<Budget>>,
    bytes: usize,
}

impl Share {
    /// Takes as many bytes as needed to hold `bytes` in total. Never releases any.
    pub fn cover(&mut self, budget: &Arc<Budget>, bytes: usize) -> Result<(), Exhausted> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            budget.take(more)?;
            self.budget.get_or_insert_with(|| Arc::clone(budget));
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Does the same for memory that is already allocated, even if the budget is exhausted.
    pub fn cover_anyway(&mut self, budget: &Arc<Budget>, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            budget.taken.fetch_add(more, Relaxed);
            self.budget.get_or_insert_with(|| Arc::clone(budget));
            self.bytes = bytes;
        }
    }

    /// Releases the whole share.
    pub fn release(&mut self) {
        if let Some(budget) = self.budget.take()
            && !planted!(MemoryKept)
        {
            budget.taken.fetch_sub(self.bytes, Relaxed);
            self.bytes = 0;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(max: usize) -> Arc<Budget> {
        let budget = Arc::new(Budget::default());
        budget.set_max(max);
        budget
    }

    #[test]
    fn a_share_is_returned_once() {
        let budget = of(100);
        let (mut one, mut other) = (Share::default(), Share::default());
        assert_eq!(one.cover(&budget, 60), Ok(()));
        assert_eq!(one.cover(&budget, 40), Ok(()), "it has that already");
        assert_eq!(other.cover(&budget, 41), Err(Exhausted));
        assert_eq!(other.cover(&budget, 40), Ok(()));
        assert_eq!(budget.taken(), 100);
        one.release();
        one.release();
        drop(one);
        assert_eq!(budget.taken(), 40);
        assert_eq!(other.cover(&budget, usize::MAX), Err(Exhausted), "nothing overflows");
        drop(other);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn memory_already_in_use_counts_beyond_the_limit() {
        let (budget, mut share) = (of(100), Share::default());
        share.cover_anyway(&budget, 150);
        share.cover_anyway(&budget, 120);
        assert_eq!((budget.taken(), Share::default().cover(&budget, 1)), (150, Err(Exhausted)));
        drop(share);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_smaller_budget_takes_nothing_away() {
        let (budget, mut share) = (of(100), Share::default());
        assert_eq!(share.cover(&budget, 100), Ok(()));
        budget.set_max(10);
        assert_eq!((budget.taken(), Share::default().cover(&budget, 1)), (100, Err(Exhausted)));
        share.release();
        assert_eq!(share.cover(&budget, 10), Ok(()));
    }

    proptest! {
        /// The budget in use is the sum of the shares, and never exceeds the limit.
        #[test]
        fn shares_add_up(steps in prop::collection::vec((0_usize..8, 0_usize..60), 0..60)) {
            let budget = of(200);
            let mut shares: Vec<Share> = (0..8).map(|_| Share::default()).collect();
            for (number, bytes) in steps {
                let share = &mut shares[number];
                if bytes == 0 {
                    share.release();
                } else if share.cover(&budget, bytes).is_ok() {
                    prop_assert!(share.bytes >= bytes);
                }
                let sum: usize = shares.iter().map(|share| share.bytes).sum();
                prop_assert_eq!(budget.taken(), sum);
                prop_assert!(sum <= 200);
            }
        }
    }
}
