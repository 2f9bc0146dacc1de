//! The rejection of a charge, and its reason.

use std::fmt;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_items::words;

/// A rejected charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The quota that rejects the call: the one asked, or an ancestor.
    pub quota: Arc<str>,
    /// The reason.
    pub why: Why,
    /// Time for the next attempt; `None` if unknown.
    pub retry_at: Option<Timestamp>,
}

words! {
    /// The reason for which a quota rejects a call, in ascending order of importance: if several quotas
    /// reject it, the greatest reason is reported. Its text is the name in metrics and logs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Why: as_str {
        /// The store is being asked for units, which takes milliseconds.
        /// [`Quota::watch`](crate::Quota::watch) reports when they arrive; if they have not by the time to
        /// retry, the store has failed.
        Fetching => "fetching",
        /// Calls under way hold the units, and may give some of them back at their end.
        Held => "held",
        /// The units are used up.
        Exhausted => "exhausted",
        /// The store does not respond, and the quota is configured to reject calls then.
        StoreDown => "store-down",
        /// The shares leave nothing for the call's group.
        ShareBlocked => "share-blocked",
        /// The call costs more than is ever available at once.
        CostAboveLimit => "cost-above-limit",
        /// There is no bound for the cost of the call, and the quota must not be exceeded.
        Unbounded => "unbounded",
        /// The model of the call is not known or has no price, and such calls are refused.
        Unpriced => "unpriced",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quota = &self.quota;
        match self.why {
            Why::Fetching => write!(f, "quota `{quota}` is being read from its store"),
            Why::Held => write!(f, "calls under way hold all that is left of quota `{quota}`"),
            Why::Exhausted => write!(f, "quota `{quota}` is used up"),
            Why::StoreDown => write!(f, "the store of quota `{quota}` does not respond"),
            Why::ShareBlocked => write!(f, "quota `{quota}` has no share for this group"),
            Why::CostAboveLimit => write!(f, "the cost of this call exceeds the limit of quota `{quota}`"),
            Why::Unbounded => write!(
                f,
                "nothing bounds the cost of this call, and quota `{quota}` must not be exceeded: declare a \
                 maximum of output tokens, and send text only, or import prices, which have the model's maximum"
            ),
            Why::Unpriced => {
                write!(
                    f,
                    "quota `{quota}` needs the price of a call, and this one's model is not known or has none: \
                     import prices with `egret prices import`, or set it in `prices.overrides`"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}
