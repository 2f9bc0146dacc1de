//! Rewrites JSON while it is read: names and structure stay, and in the place of each leaf comes its pseudonym.
//!
//! `true`, `false`, `null` and the empty text stay: there is nothing else of their kind that could stand for them, and a pseudonym
//! would tell no less. What must not be told by a bit must not be recorded. White space is dropped.

use crate::exclusions::{BodyPaths, Place};
use crate::json::{Sink, write_escaped};
use crate::key::Key;
use crate::names;
use crate::pseudonym::TextDigest;

/// What becomes of the text that is read.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
enum Text {
    /// It stays.
    Kept,
    /// Its digest, and whether anything was in it.
    Hidden(TextDigest, bool),
}

/// Takes a text from the tokenizer, and holds what becomes of it.
pub(crate) struct Rewriter<'a> {
    key: &'a Key,
    place: Place<'a>,
    text: Text,
    /// The JSON written so far.
    pub(crate) out: Vec<u8>,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(key: &'a Key, paths: &'a BodyPaths) -> Self {
        Self { key, place: Place::new(paths), text: Text::Kept, out: Vec::new() }
    }
}

impl Sink for Rewriter<'_> {
    fn open(&mut self, is_object: bool) {
        self.place.enter(is_object);
        self.out.push(if is_object { b'{' } else { b'[' });
    }

    fn close(&mut self, is_object: bool) {
        self.place.leave();
        self.out.push(if is_object { b'}' } else { b']' });
    }

    fn comma(&mut self) {
        // In an object the name that follows says where.
        self.place.element();
        self.out.push(b',');
    }

    fn name(&mut self, name: &str) {
        self.place.member(name);
        self.out.push(b'"');
        if names::is_telling(name) {
            self.out.extend_from_slice(self.key.text(name.as_bytes()).as_bytes());
        } else {
            write_escaped(name.as_bytes(), &mut self.out);
        }
        self.out.extend_from_slice(b"\":");
    }

    fn begin_text(&mut self) {
        self.out.push(b'"');
        self.text =
            if self.place.is_named() { Text::Kept } else { Text::Hidden(self.key.text_digest(), false) };
    }

    fn text(&mut self, piece: &[u8]) {
        match &mut self.text {
            Text::Kept => write_escaped(piece, &mut self.out),
            Text::Hidden(digest, has_any) => {
                digest.push(piece);
                *has_any = true;
            }
        }
    }

    fn end_text(&mut self) {
        if let Text::Hidden(digest, true) = std::mem::replace(&mut self.text, Text::Kept) {
            self.out.extend_from_slice(digest.finish().as_bytes());
        }
        self.out.push(b'"');
    }

    fn number(&mut self, number: &[u8]) {
        if self.place.is_named() {
            self.out.extend_from_slice(number);
        } else {
            self.out.extend_from_slice(self.key.number(number).to_string().as_bytes());
        }
    }

    fn word(&mut self, word: &'static str) {
        self.out.extend_from_slice(word.as_bytes());
    }
}
