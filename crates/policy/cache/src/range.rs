//! Ranges of a stored body (RFC 9110 §14).

use egret_http1::{decimal, list};

/// Maximum number of ranges in one request; with more, the whole body is sent (RFC 9110 §14.2).
const RANGES_MAX: usize = 16;

/// A range of bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl ByteRange {
    /// Length of the range, in bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns `true` if the range is empty. No such range is ever created.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The part of a body that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selected {
    /// The whole body: `Range` does not ask for bytes, or asks for too many ranges.
    Whole,
    /// These ranges, in the order of the request.
    Ranges(Vec<ByteRange>),
    /// Nothing: none of the ranges lies within the body.
    Unsatisfiable,
}

/// Evaluates the `Range` field `value` for a body of `len` bytes.
pub(super) fn select(value: &[u8], len: u64) -> Selected {
    let Some(ranges) =
        value.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes=")).map(|_| &value[6..])
    else {
        return Selected::Whole;
    };
    let mut selected: Vec<ByteRange> = Vec::new();
    let mut is_any = false;
    for (number, range) in list(ranges).filter(|range| !range.is_empty()).enumerate() {
        let Some(range) = read(range, len) else { return Selected::Whole };
        is_any = true;
        if number == RANGES_MAX {
            return Selected::Whole;
        }
        selected.extend(range.filter(|range| range.start < range.end));
    }
    // Overlapping ranges would make the response longer than the body.
    let overlap = |at: usize| {
        selected[..at].iter().any(|other| other.start < selected[at].end && selected[at].start < other.end)
    };
    if !is_any || (1..selected.len()).any(overlap) {
        Selected::Whole
    } else if selected.is_empty() {
        Selected::Unsatisfiable
    } else {
        Selected::Ranges(selected)
    }
}

/// Parses `0-499`, `500-` or `-500`. Returns `None` for other syntax, and `Some(None)` for a range outside
/// the body.
#[expect(clippy::option_option, reason = "invalid syntax and an unsatisfiable range differ")]
fn read(range: &[u8], len: u64) -> Option<Option<ByteRange>> {
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    if first.is_empty() {
        let suffix = decimal(last)?;
        return Some((suffix > 0).then_some(ByteRange { start: len.saturating_sub(suffix), end: len }));
    }
    let start = decimal(first)?;
    let end = if last.is_empty() {
        len
    } else {
        decimal(last).filter(|last| *last >= start)?.saturating_add(1).min(len)
    };
    Some((start < len).then_some(ByteRange { start, end }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(value: &str) -> Selected {
        select(value.as_bytes(), 10)
    }

    fn ranges(ranges: &[(u64, u64)]) -> Selected {
        Selected::Ranges(ranges.iter().map(|(start, end)| ByteRange { start: *start, end: *end }).collect())
    }

    #[test]
    fn ranges_are_what_there_is_of_them() {
        assert_eq!(of("bytes=0-0"), ranges(&[(0, 1)]));
        assert_eq!(of("Bytes=2-4"), ranges(&[(2, 5)]));
        assert_eq!(of("bytes=2-"), ranges(&[(2, 10)]));
        assert_eq!(of("bytes=-3"), ranges(&[(7, 10)]));
        assert_eq!(of("bytes=-30"), ranges(&[(0, 10)]));
        assert_eq!(of("bytes=8-9999999999999999999"), ranges(&[(8, 10)]));
        assert_eq!(of("bytes=7-8, ,0-1"), ranges(&[(7, 9), (0, 2)]));
        assert_eq!(of("bytes=20-, 0-1"), ranges(&[(0, 2)]));
        for nothing in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=10-,-0"] {
            assert_eq!(of(nothing), Selected::Unsatisfiable, "{nothing}");
        }
        assert_eq!(select(b"bytes=-1", 0), Selected::Unsatisfiable);
    }

    #[test]
    fn an_invalid_or_excessive_range_selects_everything() {
        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "items=0-1",
            "bytes=1",
            "bytes=2-1",
            "bytes=a-",
            "bytes=--1",
            "bytes=0-1,x",
            "bytes= 0 - 1",
            "bytes=0-1,1-2",
            "bytes=0-,-1",
        ] {
            assert_eq!(of(whole), Selected::Whole, "{whole}");
        }
        let many = format!("bytes={}", "20-21,".repeat(17));
        assert_eq!(of(&many), Selected::Whole);
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_body_and_none_meets_another(value in "bytes=([0-9]{0,2}-[0-9]{0,3}[, ]{0,2}){0,5}", len in 0_u64..100) {
            if let Selected::Ranges(ranges) = select(value.as_bytes(), len) {
                prop_assert!(ranges.iter().all(|range| !range.is_empty() && range.end <= len));
                prop_assert!(ranges.iter().map(|range| range.len()).sum::<u64>() <= len);
            }
        }
    }
}
