//! The outcomes of calls, as they count for an account.

/// The outcome of a call with an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Any response except those below.
    Responded,
    /// Status 401: the provider does not accept the credential.
    Unauthorized,
    /// Status 403: the provider knows the credential and refuses the call.
    Forbidden,
    /// Status 429: the account has sent too many calls.
    Throttled,
    /// No response.
    Failed,
}

impl Ending {
    /// All outcomes.
    pub const ALL: [Self; 5] =
        [Self::Responded, Self::Unauthorized, Self::Forbidden, Self::Throttled, Self::Failed];

    /// The name in metrics and in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Responded => "answered",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::Throttled => "429",
            Self::Failed => "failed",
        }
    }

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
