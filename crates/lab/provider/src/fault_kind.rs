//! The kinds of connection faults, by the names that options and paths give them.

use std::str::FromStr;

/// A fault applied to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Resets the connection instead of responding.
    Reset,
    /// Closes the connection instead of responding.
    Close,
    /// Sends the complete response, then closes the provider's side and continues reading.
    HalfClose,
    /// Sends half of the content, then closes the connection.
    Truncate,
    /// Sends half of the content, pauses, then closes the connection.
    Stall,
    /// Declares half of the length in Content-Length, so the rest looks like the next response.
    WrongLength,
    /// Sends a second chunk whose size is not a number.
    BadChunk,
    /// Sends informational responses (103 Early Hints) before the final one.
    Informational,
    /// Sends a header field twice with different values.
    DuplicateField,
    /// Sends the head byte by byte.
    SlowHead,
    /// Sends bytes that are not HTTP.
    Garbage,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 11] = [
        Self::Reset,
        Self::Close,
        Self::HalfClose,
        Self::Truncate,
        Self::Stall,
        Self::WrongLength,
        Self::BadChunk,
        Self::Informational,
        Self::DuplicateField,
        Self::SlowHead,
        Self::Garbage,
    ];

    /// Name of the fault in options and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Close => "close",
            Self::HalfClose => "half-close",
            Self::Truncate => "truncate",
            Self::Stall => "stall",
            Self::WrongLength => "wrong-length",
            Self::BadChunk => "bad-chunk",
            Self::Informational => "informational",
            Self::DuplicateField => "duplicate-field",
            Self::SlowHead => "slow-head",
            Self::Garbage => "garbage",
        }
    }

    /// Index in [`Fault::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The error for a text that is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown fault {0:?}: expected {known}", known = Fault::ALL.map(Fault::name).join(", "))]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        Self::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_known_by_its_name() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault.name().parse(), Ok(fault));
            assert_eq!(fault.index(), index);
        }
        let message = "resett".parse::<Fault>().unwrap_err().to_string();
        assert!(message.contains("\"resett\"") && message.contains("half-close"), "{message}");
    }
}
