//! The shape of a document: its bytes without its last texts. Most events of a stream have the shape of the
//! one before, and differ in a word.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use crate::fast_path::text_end;

/// Number of texts that may differ: the word, and one of random length that OpenAI sends with it.
pub(crate) const TEXTS: usize = 2;

/// Random numbers of this process, so nobody can make two parts with one hash.
static SEEDS: LazyLock<[u64; 2]> = LazyLock::new(|| [0, 1].map(|number| RandomState::new().hash_one(number)));

/// The shape of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// The parts before, between and behind the texts. A part behind a text begins with the closing quote.
    parts: [FixedPart; TEXTS + 1],
    texts: usize,
}

/// A part of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FixedPart {
    len: usize,
    hash: u64,
}

impl FixedPart {
    fn of(bytes: &[u8]) -> Self {
        Self { len: bytes.len(), hash: hash(bytes) }
    }
}

impl Shape {
    /// Returns the shape of `document`. `texts` are the places of texts in it, in order, of which the last
    /// ones may differ.
    pub fn of(document: &[u8], texts: &Texts) -> Self {
        let (mut shape, mut start) = (Self { parts: Default::default(), texts: 0 }, 0);
        for [first, end] in texts.in_order() {
            shape.parts[shape.texts] = FixedPart::of(&document[start..first]);
            (shape.texts, start) = (shape.texts + 1, end);
        }
        shape.parts[shape.texts] = FixedPart::of(&document[start..]);
        shape
    }

    /// Returns `true` if `document` has this shape.
    pub fn fits(&self, document: &[u8]) -> bool {
        let mut rest = document;
        for part in &self.parts[..self.texts] {
            let Some((bytes, after)) = rest.split_at_checked(part.len) else { return false };
            let Some(end) = text_end(after) else { return false };
            if hash(bytes) != part.hash {
                return false;
            }
            rest = &after[end..];
        }
        let last = self.parts[self.texts];
        rest.len() == last.len && hash(rest) == last.hash
    }
}

/// The places of the last texts of a document: of the first byte, and of the closing quote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Texts {
    places: [[usize; 2]; TEXTS],
    count: usize,
}

impl Texts {
    /// Notes a text behind the others.
    pub fn note(&mut self, first: usize, end: usize) {
        self.places[self.count % TEXTS] = [first, end];
        self.count += 1;
    }

    fn in_order(&self) -> impl Iterator<Item = [usize; 2]> {
        (self.count.saturating_sub(TEXTS)..self.count).map(|number| self.places[number % TEXTS])
    }
}

/// Returns the hash of `bytes`: each block of 16 is multiplied into it, and the halves of the product are
/// joined.
fn hash(bytes: &[u8]) -> u64 {
    let [first, second] = *SEEDS;
    let (blocks, rest) = bytes.as_chunks::<16>();
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let joined = |hash: u64, block: &[u8; 16]| {
        let number = u128::from_le_bytes(*block) ^ (u128::from(second) << 64) ^ u128::from(hash);
        let product = (number & u128::from(u64::MAX)) * (number >> 64);
        low(product ^ (product >> 64))
    };
    joined(blocks.iter().fold(first ^ bytes.len() as u64, joined), &last)
}

#[expect(clippy::cast_possible_truncation, reason = "the other half is joined already")]
fn low(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(document: &str, texts: &[&str]) -> Shape {
        let mut places = Texts::default();
        for text in texts {
            let first = document.find(text).unwrap();
            places.note(first, first + text.len());
        }
        Shape::of(document.as_bytes(), &places)
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
            (r#"{"id":"a","word":"The "#, false),
            ("", false),
        ] {
            assert_eq!(shape.fits(document.as_bytes()), fits, "{document}");
        }
    }

    #[test]
    fn documents_without_texts_have_to_be_equal() {
        let shape = shape("{}", &[]);
        assert!(shape.fits(b"{}") && !shape.fits(b"{} ") && !shape.fits(b"[]"));
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
