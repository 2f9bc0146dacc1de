//! Size limits of a head.

/// Upper bound of [`HeadLimits::head`], in bytes.
pub const MAX_HEAD: usize = 256 * 1024;
/// Upper bound of [`HeadLimits::fields`].
pub const MAX_FIELDS: usize = 256;
/// Longest method name, in bytes. The longest registered one has 17.
pub const MAX_METHOD: usize = 32;

/// Limits on a head. Values above the hard maxima are reduced to them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum length of the start line in bytes, without its line end. Default 8 KiB.
    pub start_line: usize,
    /// Maximum length of the head in bytes, including the empty line that ends it. Default 32 KiB, at most
    /// [`MAX_HEAD`].
    pub head: usize,
    /// Maximum number of field lines. Default 128, at most [`MAX_FIELDS`].
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { start_line: 8 * 1024, head: 32 * 1024, fields: 128 }
    }
}

impl HeadLimits {
    /// The part of `buffer` that a head may fill.
    pub(super) fn window<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        &buffer[..buffer.len().min(self.head).min(MAX_HEAD)]
    }

    /// The maximum number of field lines, with the hard maximum applied.
    pub(super) fn max_fields(&self) -> usize {
        self.fields.min(MAX_FIELDS)
    }
}
