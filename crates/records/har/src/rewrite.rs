//! Rewrites JSON while it is read: names and structure are kept, and each leaf is replaced by its pseudonym.
//!
//! `true`, `false`, `null` and the empty string are kept: there are too few values of their kind for a
//! pseudonym to hide anything. Data where even a boolean is sensitive should not be recorded. White space is
//! dropped.

use egret_json::tokenizer::Sink;
use egret_json::write_escaped;
use zeroize::Zeroize as _;

use crate::exclusions::{BodyPaths, PathCursor};
use crate::memo::{HELD_BYTES_MAX, Pseudonymizer};
use crate::pseudonym::TextDigest;

/// State of the string that is being read.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
enum StringState {
    /// It is kept.
    Kept,
    /// It is buffered so far.
    Held,
    /// Its digest, because it is too long to be buffered.
    Hidden(TextDigest),
}

/// Receives JSON tokens and writes the obfuscated JSON.
pub(crate) struct Rewriter<'a> {
    pseudonymizer: Pseudonymizer<'a>,
    cursor: PathCursor<'a>,
    text: StringState,
    held: Vec<u8>,
    /// The JSON written so far.
    pub(crate) out: Vec<u8>,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(pseudonymizer: Pseudonymizer<'a>, paths: &'a BodyPaths) -> Self {
        Self {
            pseudonymizer,
            cursor: PathCursor::new(paths),
            text: StringState::Kept,
            held: Vec::new(),
            out: Vec::new(),
        }
    }
}

impl Drop for Rewriter<'_> {
    fn drop(&mut self) {
        self.held.zeroize();
    }
}

impl Sink for Rewriter<'_> {
    fn open(&mut self, is_object: bool) {
        self.cursor.enter(is_object);
        self.out.push(if is_object { b'{' } else { b'[' });
    }

    fn close(&mut self, is_object: bool) {
        self.cursor.leave();
        self.out.push(if is_object { b'}' } else { b']' });
    }

    fn comma(&mut self) {
        // In an object the name that follows sets the position.
        self.cursor.element();
        self.out.push(b',');
    }

    fn name(&mut self, name: &str) {
        self.cursor.member(name);
        self.pseudonymizer.name(name, &mut self.out);
        self.out.push(b':');
    }

    fn begin_text(&mut self) {
        self.out.push(b'"');
        self.text = if self.cursor.is_named() { StringState::Kept } else { StringState::Held };
        self.held.clear();
    }

    fn text(&mut self, piece: &[u8]) {
        match &mut self.text {
            StringState::Kept => write_escaped(piece, &mut self.out),
            StringState::Held if self.held.len() + piece.len() <= HELD_BYTES_MAX => {
                self.held.extend_from_slice(piece);
            }
            StringState::Held => {
                let mut digest = self.pseudonymizer.key.text_digest();
                digest.push(&self.held);
                digest.push(piece);
                self.text = StringState::Hidden(digest);
            }
            StringState::Hidden(digest) => digest.push(piece),
        }
    }

    fn end_text(&mut self) {
        match std::mem::replace(&mut self.text, StringState::Kept) {
            StringState::Hidden(digest) => self.out.extend_from_slice(digest.finish().as_bytes()),
            StringState::Held if !self.held.is_empty() => self.pseudonymizer.text(&self.held, &mut self.out),
            StringState::Held | StringState::Kept => {}
        }
        self.out.push(b'"');
    }

    fn number(&mut self, number: &[u8]) {
        if self.cursor.is_named() {
            self.out.extend_from_slice(number);
        } else {
            self.pseudonymizer.number(number, &mut self.out);
        }
    }

    fn word(&mut self, word: &'static str) {
        self.out.extend_from_slice(word.as_bytes());
    }
}
