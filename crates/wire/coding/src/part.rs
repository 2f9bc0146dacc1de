//! A part of coded data that must be whole before it is read, such as a header.

/// A part, as far as it has been received.
#[derive(Debug, Default)]
pub(crate) struct Part(pub(crate) Vec<u8>);

impl Part {
    /// Takes from `bytes` what the part lacks of `len` bytes. Returns `true` if it has them now.
    pub(crate) fn fill(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.0.len());
        let (more, rest) = bytes.split_at(missing.min(bytes.len()));
        self.0.extend_from_slice(more);
        *bytes = rest;
        more.len() == missing
    }
}
