//! The outcomes of calls, as they count for an account.

use egret_items::words;

words! {
    /// The outcome of a call with an account.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Ending: word {
        /// Any response except those below.
        Responded => "answered",
        /// Status 401: the provider does not accept the credential.
        Unauthorized => "401",
        /// Status 403: the provider knows the credential and refuses the call.
        Forbidden => "403",
        /// Status 429: the account has sent too many calls.
        Throttled => "429",
        /// No response.
        Failed => "failed",
    }
}

impl Ending {
    /// Returns `true` if the provider has refused the call because of the account, and so has not acted on
    /// it.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::Throttled)
    }

    /// Returns the outcome for a response with `status`.
    pub const fn of(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            429 => Self::Throttled,
            _ => Self::Responded,
        }
    }
}
