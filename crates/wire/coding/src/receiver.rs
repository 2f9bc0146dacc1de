//! The receiver of decoded bytes, and the reasons to stop.

/// The reason why decoding has stopped. Nothing may be pushed afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are not valid in the coding.
    Corrupt,
    /// The receiver wants no more.
    Stopped,
}

/// Receives a decoded piece, which is never empty. An error stops the decoder.
pub(crate) type Receiver<'r> = dyn FnMut(&[u8]) -> Result<(), DecodeError> + 'r;
