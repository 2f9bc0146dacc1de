//! Errors of the decoder.

use thiserror::Error as ThisError;

/// Error: a block of fields is refused. Each is an error of the connection, because the tables of both ends
/// may differ from here on: `COMPRESSION_ERROR` (RFC 9113 §4.3), except for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub(crate) enum Error {
    /// An integer is longer than any that makes sense (RFC 7541 §5.1).
    #[error("an integer in a block of fields is too large")]
    Integer,
    /// An index is 0, or of no field in the tables (RFC 7541 §2.3.3).
    #[error("an index in a block of fields is of no field")]
    Index,
    /// A string has a wrong end, or the code that no string may have (RFC 7541 §5.2).
    #[error("a string in a block of fields has a wrong Huffman code")]
    Huffman,
    /// A change of the table's size is too large, or not at the beginning of a block (RFC 7541 §4.2).
    #[error("a change of the size of the table of fields is too large or misplaced")]
    TableSize,
    /// A block ends within a field.
    #[error("a block of fields is truncated")]
    Truncated,
    /// The fields are several times as large as the list may be: `ENHANCE_YOUR_CALM` (RFC 9113 §10.5.1).
    #[error("a block has far more fields than allowed")]
    ListTooLarge,
}
