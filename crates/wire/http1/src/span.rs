//! A range of bytes in a buffer, half the size of a `Range<usize>` and `Copy`.

use std::ops::Range;

/// Offsets `start..end` into a buffer that is held elsewhere.
///
/// Offsets are 32 bits wide: heads are at most [`MAX_HEAD`](crate::MAX_HEAD) bytes and a body is read in
/// pieces.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Creates a span from `start` to `end`. Offsets beyond 32 bits saturate; [`of`](Self::of) then returns
    /// an empty slice.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: u32::try_from(start).unwrap_or(u32::MAX), end: u32::try_from(end).unwrap_or(u32::MAX) }
    }

    /// Returns the bytes of this span in `buffer`, or an empty slice if the span lies outside it.
    #[inline]
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        buffer.get(self.range()).unwrap_or_default()
    }

    /// Returns the span as a range of `usize`, for slicing.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Returns `true` if the span is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// Converts an offset into a head to 32 bits, without a check.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a head is at most MAX_HEAD bytes long")]
pub(crate) fn to_u32(offset: usize) -> u32 {
    offset as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_its_bytes() {
        let span = Span::new(1, 3);
        assert_eq!(span.of(b"abcd"), b"bc");
        assert_eq!((span.len(), span.is_empty(), span.range()), (2, false, 1..3));
    }

    #[test]
    fn a_span_outside_of_the_buffer_is_empty() {
        assert_eq!(Span::new(2, 9).of(b"abcd"), b"");
        assert_eq!(Span::new(3, 2).of(b"abcd"), b"");
        assert!(Span::new(usize::MAX, usize::MAX).is_empty());
    }
}
