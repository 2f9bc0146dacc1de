//! Progress of parsing a head that is received in pieces.

/// Outcome of a call of `parse`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The head is complete and its fields are set.
    Complete,
    /// More bytes are needed: call again with the same bytes and those received after them.
    Partial,
}
