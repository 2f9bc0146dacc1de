//! Recognizes documents that report nothing, such as an event with the next word of a text, in a pass over
//! their bytes that keeps no state. Nearly all documents of a stream are such.
//!
//! A document counts as one only if [`Json`](crate::json::Json) would find nothing in it that changes the
//! tally. Whatever is unusual, cut or invalid is left to that.

use egret_items::bytes::{equal, find, in_each};
use memchr::memchr2;

use crate::names::{Flag, Node, Use, member};
use crate::shape::Gaps;
use crate::tally::Tally;

/// Number of bytes of a text that are looked at eight by eight: most texts are shorter.
pub(crate) const SHORT_TEXT_BYTES: usize = 64;

/// Returns the places in `document` that the next one may change, if it is one JSON object that changes
/// nothing in `tally`. `None` if it does, or if that cannot be told.
pub(crate) fn unread_gaps(document: &[u8], tally: &Tally) -> Option<Gaps> {
    let [b'{', rest @ ..] = after_space(document) else { return None };
    let mut pass = Pass { len: document.len(), tally, gaps: Gaps::default() };
    let rest = pass.object(rest, Node::Top)?;
    after_space(rest).is_empty().then_some(pass.gaps)
}

/// A pass over a document.
struct Pass<'t> {
    len: usize,
    tally: &'t Tally,
    gaps: Gaps,
}

impl Pass<'_> {
    /// Reads the members of an object. Returns what is behind it. Returns `None` if something in it is to be
    /// noted, or unusual.
    fn object<'b>(&mut self, mut bytes: &'b [u8], node: Node) -> Option<&'b [u8]> {
        loop {
            let rest = match after_space(bytes) {
                [b'"', rest @ ..] => rest,
                [b'}', rest @ ..] => return Some(rest),
                _ => return None,
            };
            let (name, rest) = plain_text(rest)?;
            let [b':', rest @ ..] = after_space(rest) else { return None };
            let rest = self.value(after_space(rest), member(node, name))?;
            // What else a number or a word has is not looked at.
            let is_end = |byte: &u8| matches!(byte, b',' | b'{' | b'}' | b'[' | b']' | b'"' | b':');
            let (end, rest) = rest.get(rest.iter().position(is_end)?..)?.split_first()?;
            match end {
                b',' => bytes = rest,
                b'}' => return Some(rest),
                _ => return None,
            }
        }
    }

    /// Reads a value, of a number or a word its first byte alone. Returns what is behind it.
    fn value<'b>(&mut self, bytes: &'b [u8], wanted: Use) -> Option<&'b [u8]> {
        let [first, rest @ ..] = bytes else { return None };
        match (first, wanted) {
            (b'0'..=b'9', Use::Counter) => Some(self.after_counter(bytes)),
            (b'n', _)
            | (b'f', Use::Flag(Flag::Done))
            | (b't' | b'f' | b'-' | b'0'..=b'9', Use::Skip | Use::Counter) => Some(rest),
            (_, Use::Flag(_) | Use::Document) => None,
            (b'"', Use::Text(kind)) => {
                let (text, rest) = plain_text(rest)?;
                self.tally.has_text(kind, text).then_some(rest)
            }
            (b'"', _) => self.after_text(rest),
            (b'{', Use::Enter(node @ (Node::Delta | Node::Groq))) => self.object(rest, node),
            (b'{' | b'[', Use::Enter(_)) => None,
            (b'{' | b'[', _) => self.after_container(rest),
            _ => None,
        }
    }

    /// Returns what is behind the digits at the start of `bytes`, which are those of the number that counts
    /// events. Notes their place.
    fn after_counter<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let first = self.len - bytes.len();
        self.gaps.note_digits(first, first + digits);
        &bytes[digits..]
    }

    /// Returns what is behind the text whose opening quote is before `bytes`. Notes its place, unless it is a
    /// name.
    fn after_text<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let end = text_end(bytes)?;
        let rest = &bytes[end + 1..];
        if rest.first() != Some(&b':') {
            let first = self.len - bytes.len();
            self.gaps.note_text(first, first + end);
        }
        Some(rest)
    }

    /// Returns what is behind the closing bracket of the container whose opening bracket is before `bytes`.
    fn after_container<'b>(&mut self, mut bytes: &'b [u8]) -> Option<&'b [u8]> {
        let mut depth = 1_u32;
        loop {
            let (mark, rest) = bytes.get(container_mark(bytes)?..)?.split_first()?;
            bytes = match mark {
                b'"' => self.after_text(rest)?,
                b'{' | b'[' => {
                    depth = depth.checked_add(1)?;
                    rest
                }
                _ if depth == 1 => return Some(rest),
                _ => {
                    depth -= 1;
                    rest
                }
            };
        }
    }
}

/// Divides `bytes` behind an opening quote into a text without escapes and what is behind its closing quote.
fn plain_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text_mark(bytes)?;
    (bytes[end] == b'"').then(|| (&bytes[..end], &bytes[end + 1..]))
}

/// Returns the place of the closing quote of the text whose opening quote is before `bytes`.
pub(crate) fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let mark = start + text_mark(bytes.get(start..)?)?;
        if bytes[mark] == b'"' {
            return Some(mark);
        }
        start = mark + 2;
    }
}

/// Returns the place of the first quote or backslash.
#[inline]
fn text_mark(bytes: &[u8]) -> Option<usize> {
    let (short, long) = bytes.split_at(bytes.len().min(SHORT_TEXT_BYTES));
    let word_marks = |word| equal(word, b'"') | equal(word, b'\\');
    let mark = find(short, word_marks, |byte| matches!(byte, b'"' | b'\\'));
    mark.or_else(|| memchr2(b'"', b'\\', long).map(|place| short.len() + place))
}

/// Returns the place of the first quote or bracket of a container.
#[inline]
fn container_mark(bytes: &[u8]) -> Option<usize> {
    // This bit makes `[` a `{` and `]` a `}`.
    let word_marks = |word| {
        let joined = word | in_each(0x20);
        equal(word, b'"') | equal(joined, b'{') | equal(joined, b'}')
    };
    find(bytes, word_marks, |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
}

fn after_space(bytes: &[u8]) -> &[u8] {
    match bytes {
        [b' ' | b'\t' | b'\n' | b'\r', ..] => {
            let space = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            &bytes[space..]
        }
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Sink as _;
    use crate::names::Text;

    #[test]
    fn documents_without_figures_are_recognized() {
        let mut tally = Tally::default();
        tally.text(Use::Text(Text::Model), b"m");
        for document in [
            r#"{"id":"a","object":"chat.completion.chunk","model":"m","choices":[{"delta":{"content":"}]"}}],"usage":null}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\":{"}}"#,
            r#"{"type":"response.output_text.delta","sequence_number":7,"delta":"a","logprobs":[]}"#,
            r#" { "model" : "m" , "response" : "a" , "done" : false } "#,
            r#"{"choices":[{"usage":{"prompt_tokens":1}}],"error":null,"x":[],"y":-1.5e3,}"#,
            "{}",
        ] {
            assert!(unread_gaps(document.as_bytes(), &tally).is_some(), "{document}");
        }
    }

    #[test]
    fn documents_that_change_the_tally_or_are_unusual_are_not() {
        let tally = Tally::default();
        for document in [
            r#"{"usage":{"prompt_tokens":1}}"#,
            r#"{"usage":{}}"#,
            r#"{"delta":{"usage":{"prompt_tokens":1}}}"#,
            r#"{"model":"m"}"#,
            r#"{"type":"message_start"}"#,
            r#"{"type":"response.completed"}"#,
            r#"{"done":true}"#,
            r#"{"error":"a"}"#,
            r#"{"eval_count":1}"#,
            r#"{"bytes":""}"#,
            r#"{"a\u0062":1}"#,
            r#"{"a":1]"#,
            r#"{"a":1}{"b":1}"#,
            r#"{"a":"b"#,
            r#"{"a":[{"b":1}"#,
            r#"{"a" 1}"#,
            r#"{"a":?}"#,
            "[1]",
            "[DONE]",
            "",
        ] {
            assert!(unread_gaps(document.as_bytes(), &tally).is_none(), "{document}");
        }
    }
}
