//! The kinds of connection faults, by the names that options and paths give them.

use std::str::FromStr;

use egret_items::words;

words! {
    /// A fault applied to a response. Its name is that in options and paths.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Fault: name {
        /// Resets the connection instead of responding.
        Reset => "reset",
        /// Closes the connection instead of responding.
        Close => "close",
        /// Sends the complete response, then closes the provider's side and continues reading.
        HalfClose => "half-close",
        /// Sends half of the content, then closes the connection.
        Truncate => "truncate",
        /// Sends half of the content, pauses, then closes the connection.
        Stall => "stall",
        /// Declares half of the length in Content-Length, so the rest looks like the next response.
        WrongLength => "wrong-length",
        /// Sends a second chunk whose size is not a number.
        BadChunk => "bad-chunk",
        /// Sends informational responses (103 Early Hints) before the final one.
        Informational => "informational",
        /// Sends a header field twice with different values.
        DuplicateField => "duplicate-field",
        /// Sends the head byte by byte.
        SlowHead => "slow-head",
        /// Sends bytes that are not HTTP.
        Garbage => "garbage",
    }
}

impl Fault {
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
