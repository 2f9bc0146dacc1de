//! The rules by which units are counted and come back.

use super::adaptive::Adaptation;
use super::schedule::Schedule;

/// The allowance of one group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// Units in a window, or slots.
    pub limit: u64,
    /// The way in which units come back.
    pub refill: Refill,
    /// `true` if a call in transit holds an estimate of its cost, and gives back the rest at its end.
    pub is_estimated: bool,
    /// The way in which the number of slots follows the provider's latency.
    pub adaptation: Option<Adaptation>,
}

/// The way in which units come back. Times in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refill {
    /// One `window` after the response.
    Sliding { window: u64 },
    /// All at once when the next window begins, plus up to `spillover` unused units.
    Windows { schedule: Schedule, spillover: u64 },
    /// `limit` units evenly per `window`, up to `burst`.
    Bucket { window: u64, burst: u64 },
    /// When the call is over.
    Slots,
}

impl Rule {
    /// Maximum number of units that are ever available at once.
    pub(crate) fn max_units(&self) -> u64 {
        match &self.refill {
            Refill::Sliding { .. } | Refill::Slots => self.limit,
            Refill::Windows { spillover, .. } => self.limit.saturating_add(*spillover),
            Refill::Bucket { burst, .. } => *burst,
        }
    }
}
