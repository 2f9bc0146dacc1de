//! Marks: facts that all gateways of a cluster share, and that end by themselves. A provider's throttle is
//! one, and the cool-down of an account.
//!
//! A mark has an end, which merging only moves later. A success ends it early, if the call that succeeded
//! began late enough to prove it. Marks travel as durations, so no two clocks are compared.
//!
//! Each part that acts on marks keeps its own, as a [`MarkHolder`], and decides by them. The [`MarkSink`]
//! tells the other gateways, and never blocks. Without the store each gateway goes on by its own knowledge.

mod probe;
mod script;
mod table;

use std::fmt;
use std::str::FromStr;
use std::sync::Weak;

use egret_clock::Timestamp;

pub use probe::{ProbeAnswer, ProbeQuestion, ProbeTicket};
pub use script::{MARK_SCRIPT, PROBE_SCRIPT, RELEASE_SCRIPT, mark_news};
pub use table::{MarkChange, MarkTable};

/// Maximum duration of a mark: 31 days.
const LEFT_MAX_MS: u64 = 31 * 24 * 3_600 * 1_000;

/// The name of a mark in the store. Both parts are keyed digests, so they reveal nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MarkKey {
    /// Stands for the part of the config that the mark belongs to.
    pub scope: u128,
    /// Stands for a group within it.
    pub name: u128,
}

/// A mark, as seen at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Time until it ends.
    pub left_ms: u64,
    /// Time until a call has to begin, or since one had to begin if negative, for its success to end the
    /// mark.
    pub proof_ms: i64,
    /// A number for its holders. That of the mark that ends last counts.
    pub note: u64,
}

/// News of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkNews {
    /// It holds.
    Marked(Mark),
    /// A call that began so many milliseconds ago has ended it by its success.
    Ended(u64),
    /// The probe that was out has no result.
    Freed,
}

impl MarkNews {
    /// The news after they were under way for so long.
    #[must_use]
    pub fn aged(self, age_ms: u64) -> Self {
        match self {
            Self::Marked(mark) => Self::Marked(Mark {
                left_ms: mark.left_ms.saturating_sub(age_ms),
                proof_ms: mark.proof_ms.saturating_sub_unsigned(age_ms),
                ..mark
            }),
            Self::Ended(began_ago_ms) => Self::Ended(began_ago_ms.saturating_add(age_ms)),
            Self::Freed => Self::Freed,
        }
    }
}

/// Keeps the marks of one scope, for those who act on them.
pub trait MarkHolder: Send + Sync + fmt::Debug {
    /// Handles news of the mark with that name.
    fn told(&self, name: u128, news: MarkNews, now: Timestamp);
}

/// Tells the other gateways about marks. No method blocks. What finds no room is not told, as if the store
/// were away.
pub trait MarkSink: Send + Sync + fmt::Debug {
    /// A number that stands for a name in the store. It is equal in all gateways, and does not show the name.
    fn digest(&self, name: &[u8]) -> u128;
    /// Returns `true` if only those who know the cluster's key can make such numbers. Otherwise readers of
    /// the store could guess names.
    fn is_keyed(&self) -> bool;
    /// Delivers the news of `scope` to this holder, beginning with all marks that are known.
    fn watch(&self, scope: u128, holder: Weak<dyn MarkHolder>);
    /// Tells a mark, or a later end of one.
    fn mark(&self, key: MarkKey, mark: Mark);
    /// Tells that a call which began so many milliseconds ago has ended a mark.
    fn end(&self, key: MarkKey, began_ago_ms: u64);
    /// Asks for the only probe in the cluster.
    fn probe(&self, key: MarkKey) -> ProbeTicket;
    /// Ends the probe of a ticket, so that another one may follow at once.
    fn release(&self, key: MarkKey, owner: u64);
}

impl Mark {
    /// The mark without more than any config allows.
    fn bounded(self) -> Self {
        let left_ms = self.left_ms.min(LEFT_MAX_MS);
        let bound = LEFT_MAX_MS.cast_signed();
        Self { left_ms, proof_ms: self.proof_ms.clamp(-bound, bound), ..self }
    }
}

impl fmt::Display for MarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}:{:032x}", self.scope, self.name)
    }
}

/// The text is not the name of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a mark")]
pub struct MarkKeyError;

impl FromStr for MarkKey {
    type Err = MarkKeyError;

    fn from_str(text: &str) -> Result<Self, MarkKeyError> {
        let digest = |text: &str| u128::from_str_radix(text, 16).map_err(|_| MarkKeyError);
        let (scope, name) = text.split_once(':').ok_or(MarkKeyError)?;
        Ok(Self { scope: digest(scope)?, name: digest(name)? })
    }
}
