//! The completeness of a recorded body, which its entry and the metrics of a recording show.

/// Completeness of a recorded body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// The body is complete.
    Whole,
    /// The rest of the body was not kept, or its decoded size exceeds the limit.
    Truncated,
    /// The content coding is invalid after this part.
    Corrupt,
    /// The content coding is unknown, so the body is still encoded.
    Coded,
    /// The body is complete, but is not JSON although its media type says so.
    Malformed,
}

impl Completeness {
    /// All variants, in the order in which they are counted.
    pub const ALL: [Self; 5] = [Self::Whole, Self::Truncated, Self::Corrupt, Self::Coded, Self::Malformed];

    /// Returns the name used in metrics and logs, and in entries with a leading `_`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Truncated => "truncated",
            Self::Corrupt => "corrupt",
            Self::Coded => "coded",
            Self::Malformed => "malformed",
        }
    }
}
