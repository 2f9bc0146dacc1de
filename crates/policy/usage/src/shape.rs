//! The shape of an event or a line: its bytes without the last texts of its document and without the number
//! that counts events. Most events of a stream have the shape of the one before, and differ in a word.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use egret_items::bytes::{below, equal, find};

use crate::fast_path::{SHORT_TEXT_BYTES, text_end};

/// Number of texts that may differ: the word, and one of random length that OpenAI sends with it.
const TEXTS: usize = 2;
/// Number of places that may differ: the texts, and a number.
const GAPS: usize = TEXTS + 1;

/// Random numbers of this process, so nobody can make two parts with one hash.
static SEEDS: LazyLock<[u64; 2]> = LazyLock::new(|| [0, 1].map(|number| RandomState::new().hash_one(number)));

/// The shape of an event or a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    /// The parts before the gaps, each with the kind of its gap.
    parts: [(FixedPart, GapKind); GAPS],
    gaps: u8,
    /// The part behind the last gap.
    last: FixedPart,
}

/// A part of an event or a line. Behind a text it begins with the closing quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FixedPart {
    len: usize,
    hash: u64,
}

impl FixedPart {
    fn of(bytes: &[u8]) -> Self {
        Self { len: bytes.len(), hash: hash(bytes) }
    }

    /// Returns what is behind this part at the start of `bytes`.
    fn rest_behind(self, bytes: &[u8]) -> Option<&[u8]> {
        let (bytes, rest) = bytes.split_at_checked(self.len)?;
        (hash(bytes) == self.hash).then_some(rest)
    }
}

/// The bytes that may stand in a gap.
#[derive(Debug, Clone, Copy, Default)]
enum GapKind {
    #[default]
    Text,
    Digits,
}

impl GapKind {
    /// Returns the length of what stands at the start of `bytes`. `None` if that is of another kind, or has
    /// a control character: a line may end with it.
    fn len(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Text => plain_text_len(bytes),
            Self::Digits => bytes.iter().position(|byte| !byte.is_ascii_digit()).filter(|len| *len > 0),
        }
    }
}

impl Shape {
    /// Returns the shape of an event or a line that has these gaps.
    pub fn of(whole: &[u8], gaps: &Gaps) -> Self {
        let (mut shape, mut start) = (Self::default(), 0);
        for Gap { first, end, kind } in gaps.in_order() {
            shape.parts[usize::from(shape.gaps)] = (FixedPart::of(&whole[start..first]), kind);
            (shape.gaps, start) = (shape.gaps + 1, end);
        }
        shape.last = FixedPart::of(&whole[start..]);
        shape
    }

    /// Returns what is behind an event or a line of this shape at the start of `bytes`.
    pub fn rest_behind<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let mut rest = bytes;
        for (part, gap) in &self.parts[..usize::from(self.gaps)] {
            rest = part.rest_behind(rest)?;
            rest = &rest[gap.len(rest)?..];
        }
        self.last.rest_behind(rest)
    }
}

/// The places in a document that may differ: its last texts, and the digits of the number that counts events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gaps {
    texts: [Option<Gap>; TEXTS],
    count: usize,
    digits: Option<Gap>,
}

/// A place in a document: of the first byte, and of the first one behind it.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: usize,
    end: usize,
    kind: GapKind,
}

impl Gaps {
    /// Notes a text behind the others.
    pub fn note_text(&mut self, first: usize, end: usize) {
        self.texts[self.count % TEXTS] = Some(Gap { first, end, kind: GapKind::Text });
        self.count += 1;
    }

    /// Notes the digits of the number that counts events.
    pub fn note_digits(&mut self, first: usize, end: usize) {
        self.digits = Some(Gap { first, end, kind: GapKind::Digits });
    }

    /// Returns the same gaps of a document that begins at `first`.
    pub fn behind(mut self, first: usize) -> Self {
        for gap in self.texts.iter_mut().chain([&mut self.digits]).flatten() {
            (gap.first, gap.end) = (gap.first + first, gap.end + first);
        }
        self
    }

    fn in_order(&self) -> impl Iterator<Item = Gap> {
        let [one, other] = self.texts;
        let mut gaps = [one, other, self.digits];
        gaps.sort_unstable_by_key(|gap| gap.map(|gap| gap.first));
        gaps.into_iter().flatten()
    }
}

/// Returns the hash of `bytes`: each block of 16, and the last 16 bytes, are multiplied into it, and the
/// halves of the product are joined.
fn hash(bytes: &[u8]) -> u64 {
    let [first, second] = *SEEDS;
    let (blocks, _) = bytes.as_chunks::<16>();
    let last = bytes.last_chunk().copied().unwrap_or_else(|| padded(bytes));
    let joined = |hash: u64, block: &[u8; 16]| {
        let number = u128::from_le_bytes(*block) ^ (u128::from(second) << 64) ^ u128::from(hash);
        let product = (number & u128::from(u64::MAX)) * (number >> 64);
        low(product ^ (product >> 64))
    };
    joined(blocks.iter().fold(first ^ bytes.len() as u64, joined), &last)
}

/// Returns fewer than 16 bytes as a block. Blocks of different bytes of one length differ.
fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        block[..8].copy_from_slice(first);
        block[8..].copy_from_slice(last);
    } else {
        block.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
    block
}

/// Returns the length of the text whose opening quote is before `bytes`. `None` if it has a control
/// character.
#[inline]
fn plain_text_len(bytes: &[u8]) -> Option<usize> {
    let (short, _) = bytes.split_at(bytes.len().min(SHORT_TEXT_BYTES));
    let word_marks = |word| equal(word, b'"') | equal(word, b'\\') | below(word, b' ');
    match find(short, word_marks, |byte| matches!(byte, b'"' | b'\\') || byte < b' ') {
        Some(end) if short[end] == b'"' => Some(end),
        Some(end) if short[end] != b'\\' => None,
        _ => text_end(bytes).filter(|end| bytes[..*end].iter().all(|byte| *byte >= b' ')),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the other half is joined already")]
fn low(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(document: &str, texts: &[&str]) -> Shape {
        let mut places = Gaps::default();
        for text in texts {
            let first = document.find(text).unwrap();
            places.note_text(first, first + text.len());
        }
        Shape::of(document.as_bytes(), &places)
    }

    fn fits_whole(shape: &Shape, document: &str) -> bool {
        shape.rest_behind(document.as_bytes()).is_some_and(<[u8]>::is_empty)
    }

    #[test]
    fn documents_that_differ_in_the_last_texts_have_one_shape() {
        let shape = shape(r#"{"id":"a","word":"The ","pad":"xyz","n":1}"#, &["a", "The ", "xyz"]);
        for (document, fits) in [
            (r#"{"id":"a","word":"The ","pad":"xyz","n":1}"#, true),
            (r#"{"id":"a","word":"","pad":"\"\\","n":1}"#, true),
            (r#"{"id":"b","word":"The ","pad":"xyz","n":1}"#, false),
            (r#"{"id":"a","word":"The ","pad":"xyz","n":2}"#, false),
            (r#"{"id":"a","word":"The ","pad":"xyz","n":1} "#, false),
            (r#"{"id":"a","word":"The ","more":"","pad":"xyz","n":1}"#, false),
            (r#"{"id":"a","word":"The ","pad":"xyz\","n":1}"#, false),
            ("{\"id\":\"a\",\"word\":\"\n\",\"pad\":\"xyz\",\"n\":1}", false),
            ("{\"id\":\"a\",\"word\":\"\\\r\",\"pad\":\"xyz\",\"n\":1}", false),
            (r#"{"id":"a","word":"The "#, false),
            ("", false),
        ] {
            assert_eq!(fits_whole(&shape, document), fits, "{document}");
        }
    }

    #[test]
    fn the_number_that_counts_events_may_differ() {
        let document = r#"{"type":"a","sequence_number":9,"delta":"The "}"#;
        let (mut gaps, place) = (Gaps::default(), |part: &str| document.find(part).unwrap());
        gaps.note_text(place("a\""), place("a\"") + 1);
        gaps.note_digits(place("9"), place("9") + 1);
        gaps.note_text(place("The "), place("The ") + 4);
        let shape = Shape::of(document.as_bytes(), &gaps);
        for (document, fits) in [
            (r#"{"type":"a","sequence_number":10,"delta":"word"}"#, true),
            (r#"{"type":"a","sequence_number":,"delta":"word"}"#, false),
            (r#"{"type":"a","sequence_number":1.5,"delta":"word"}"#, false),
            (r#"{"type":"a","sequence_number":{"usage":1},"delta":"word"}"#, false),
            (r#"{"type":"a","sequence_number":10"#, false),
        ] {
            assert_eq!(fits_whole(&shape, document), fits, "{document}");
        }
    }

    #[test]
    fn documents_without_texts_have_to_be_equal() {
        let shape = shape("{}", &[]);
        assert!(fits_whole(&shape, "{}") && !fits_whole(&shape, "{} ") && !fits_whole(&shape, "[]"));
    }

    #[test]
    fn hashes_of_like_parts_differ() {
        let part = b"{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\"}";
        let mut seen = vec![hash(b""), hash(&[0]), hash(&[0; 16]), hash(&[0; 32])];
        for place in 0..part.len() {
            let mut other = part.to_vec();
            other[place] ^= 1;
            seen.extend([hash(&other), hash(&part[..place.max(1)])]);
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() >= count - 1, "{} of {count}", seen.len());
    }
}
