//! Edits to a head: a list of changes, applied while the head is written. Everything else stays as received:
//! order, case, white space and duplicates.

use crate::head::fields::Field;
use crate::span::Span;
use crate::syntax::{CRLF, is_field_value, is_token};

/// The changes to make in a head. Keep one value and clear it between messages, so nothing is allocated.
#[derive(Debug, Default)]
pub struct Edits {
    /// Changed lines, by ascending field index.
    changes: Vec<Change>,
    /// The new start line, in `arena`.
    start_line: Option<Span>,
    /// Bytes of replaced values and of the start line.
    arena: Vec<u8>,
    /// Inserted lines, and after them the empty line that ends the head; empty if there are none. Separate
    /// from `arena` so they are written as one piece.
    tail: Vec<u8>,
}

#[derive(Copy, Clone, Debug)]
struct Change {
    index: usize,
    /// The new value in the arena; `None` removes the line.
    value: Option<Span>,
}

impl Edits {
    /// Creates an empty list of edits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all edits and keeps the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.start_line = None;
        self.arena.clear();
        self.tail.clear();
    }

    /// Returns `true` if rendering changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.start_line.is_none() && self.tail.is_empty()
    }

    /// Returns `true` if field `index` is removed or has a new value.
    pub fn changes_field(&self, index: usize) -> bool {
        self.changes.iter().any(|change| change.index == index)
    }

    /// Removes the line of field `index`. The last edit of a field wins.
    pub fn remove(&mut self, index: usize) {
        self.change(Change { index, value: None });
    }

    /// Removes the lines of all `fields` that must not be forwarded.
    pub fn remove_hop_by_hop(&mut self, fields: &[Field]) {
        for (index, _) in fields.iter().enumerate().filter(|(_, field)| field.hop_by_hop) {
            self.remove(index);
        }
    }

    /// Replaces the value of field `index`. The last edit of a field wins.
    pub fn replace_value(&mut self, index: usize, value: &[u8]) {
        debug_assert!(is_field_value(value), "a field value holds a control character");
        let value = self.store(&[value]);
        self.change(Change { index, value: Some(value) });
    }

    /// Adds a field after the last one.
    pub fn insert(&mut self, name: &str, value: &[u8]) {
        self.insert_parts(name, &[value]);
    }

    /// Adds a field after the last one. Its value is the concatenation of the parts.
    pub fn insert_parts(&mut self, name: &str, value: &[&[u8]]) {
        debug_assert!(is_token(name.as_bytes()), "a field name is not a token");
        debug_assert!(
            value.iter().all(|part| is_field_value(part)),
            "a field value holds a control character"
        );
        // The empty line moves to the end.
        self.tail.truncate(self.tail.len().saturating_sub(CRLF.len()));
        self.tail.extend_from_slice(name.as_bytes());
        self.tail.extend_from_slice(b": ");
        for part in value {
            self.tail.extend_from_slice(part);
        }
        self.tail.extend_from_slice(b"\r\n\r\n");
    }

    /// Adds whole field lines, each with its line end, after the last field.
    pub fn insert_lines(&mut self, lines: &[u8]) {
        debug_assert!(lines.ends_with(CRLF), "a line has no end");
        self.tail.truncate(self.tail.len().saturating_sub(CRLF.len()));
        self.tail.extend_from_slice(lines);
        self.tail.extend_from_slice(CRLF);
    }

    /// Replaces the start line by the concatenation of `parts`; its line end stays.
    pub fn start_line(&mut self, parts: &[&[u8]]) {
        debug_assert!(
            parts.iter().all(|part| is_field_value(part)),
            "a start line holds a control character"
        );
        self.start_line = Some(self.store(parts));
    }

    fn store(&mut self, parts: &[&[u8]]) -> Span {
        let start = self.arena.len();
        for part in parts {
            self.arena.extend_from_slice(part);
        }
        Span::new(start, self.arena.len())
    }

    #[inline]
    fn change(&mut self, change: Change) {
        // Edits mostly come in the order of the fields.
        if self.changes.last().is_none_or(|last| last.index < change.index) {
            self.changes.push(change);
        } else {
            self.change_before_last(change);
        }
    }

    #[inline(never)]
    fn change_before_last(&mut self, change: Change) {
        let before = self.changes.iter().rposition(|other| other.index <= change.index);
        match before {
            Some(at) if self.changes[at].index == change.index => self.changes[at] = change,
            Some(at) => self.changes.insert(at + 1, change),
            None => self.changes.insert(0, change),
        }
    }
}

/// A head ready to be sent: pieces of the received bytes and of the edits.
#[derive(Debug)]
pub struct Rendering<'a> {
    pub(crate) buffer: &'a [u8],
    /// The start line without its line end.
    pub(crate) start_line: Span,
    pub(crate) fields: &'a [Field],
    /// End of the head in `buffer`.
    pub(crate) len: usize,
    pub(crate) edits: &'a Edits,
}

impl<'a> Rendering<'a> {
    /// Calls `take` with each piece in order. No piece is empty; adjacent bytes form one piece.
    #[inline]
    pub fn for_each_piece(&self, mut take: impl FnMut(&'a [u8])) {
        let mut take = |bytes: &'a [u8]| {
            if !bytes.is_empty() {
                take(bytes);
            }
        };
        let edits = self.edits;
        let mut kept = self.start_line.start as usize;
        if let Some(line) = edits.start_line {
            take(line.of(&edits.arena));
            kept = self.start_line.end as usize;
        }
        for change in &edits.changes {
            let Some(field) = self.fields.get(change.index) else { break };
            let cut = match change.value {
                Some(_) => field.value,
                None => Span { start: field.name.start, end: field.line_end },
            };
            take(&self.buffer[kept..cut.start as usize]);
            take(change.value.unwrap_or_default().of(&edits.arena));
            kept = cut.end as usize;
        }
        let inserts = !edits.tail.is_empty();
        take(&self.buffer[kept..self.len - if inserts { CRLF.len() } else { 0 }]);
        take(&edits.tail);
    }

    /// An upper bound of the total length of the pieces, known without visiting them.
    pub fn max_len(&self) -> usize {
        self.len + self.edits.arena.len() + self.edits.tail.len()
    }

    /// Returns all pieces, concatenated.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.max_len());
        self.for_each_piece(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadLimits, Method, Progress, RequestHead, ResponseHead};

    const TEXT: &[u8] = b"\r\nGET /a HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\n\r\nrest";

    /// Renders the head of [`TEXT`] with some edits. Returns the bytes and the number of pieces.
    fn rendered(edit: impl FnOnce(&mut Edits)) -> (String, usize) {
        let mut head = RequestHead::new();
        assert_eq!(head.parse(TEXT, &HeadLimits::default()), Ok(Progress::Complete));
        let mut edits = Edits::new();
        edit(&mut edits);
        let rendering = head.render(TEXT, &edits);
        let (bytes, mut pieces) = (rendering.to_vec(), 0);
        rendering.for_each_piece(|_| pieces += 1);
        assert!(bytes.len() <= rendering.max_len());
        (String::from_utf8(bytes).unwrap(), pieces)
    }

    #[test]
    fn without_edits_the_head_is_one_piece_as_received() {
        let expected = "GET /a HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\n\r\n";
        assert_eq!(rendered(|_| ()), (expected.to_owned(), 1));
    }

    #[test]
    fn lines_are_removed_whole() {
        let one = "GET /a HTTP/1.1\r\nHost: a\r\nx-a: 2\r\nEmpty:\r\n\r\n";
        assert_eq!(rendered(|edits| edits.remove(1)), (one.to_owned(), 2));
        let neighbours = "GET /a HTTP/1.1\r\nHost: a\r\nEmpty:\r\n\r\n";
        let removed = rendered(|edits| {
            edits.remove(2);
            edits.remove(1);
        });
        assert_eq!(removed, (neighbours.to_owned(), 2));
        let all = rendered(|edits| (0..9).for_each(|index| edits.remove(index)));
        assert_eq!(all, ("GET /a HTTP/1.1\r\n\r\n".to_owned(), 2));
    }

    #[test]
    fn values_are_replaced_in_place() {
        let expected = "GET /a HTTP/1.1\r\nHost: b:8\r\nX-A:   \r\nx-a: 2\r\nEmpty:full\r\n\r\n";
        let replaced = rendered(|edits| {
            edits.replace_value(3, b"full");
            edits.replace_value(0, b"x");
            edits.replace_value(0, b"b:8");
            edits.replace_value(1, b"");
        });
        assert_eq!(replaced, (expected.to_owned(), 6));
    }

    #[test]
    fn the_last_edit_of_a_field_counts() {
        let kept = "GET /a HTTP/1.1\r\nHost: b\r\nx-a: 2\r\nEmpty:\r\n\r\n";
        let changed = rendered(|edits| {
            edits.remove(0);
            edits.replace_value(1, b"gone");
            edits.replace_value(0, b"b");
            edits.remove(1);
        });
        assert_eq!(changed.0, kept);
    }

    #[test]
    fn inserted_fields_and_the_end_are_one_piece() {
        let expected =
            "GET /a HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\nVia: 1.1 egret\r\nB: \r\n\r\n";
        let inserted = rendered(|edits| {
            edits.insert_parts("Via", &[b"1.1", b" ", b"egret"]);
            edits.insert("B", b"");
        });
        assert_eq!(inserted, (expected.to_owned(), 2));
    }

    #[test]
    fn the_start_line_is_replaced() {
        let expected = "POST /b HTTP/1.1\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\nHost: b\r\n\r\n";
        let replaced = rendered(|edits| {
            edits.start_line(&[b"POST ", b"/b", b" HTTP/1.1"]);
            edits.remove(0);
            edits.insert("Host", b"b");
        });
        assert_eq!(replaced, (expected.to_owned(), 4));
    }

    #[test]
    fn each_kind_of_edit_counts() {
        let kinds: [fn(&mut Edits); 5] = [
            |edits| edits.remove(3),
            |edits| edits.replace_value(3, b"x"),
            |edits| edits.insert("A", b"b"),
            |edits| edits.insert_lines(b"A: b\r\n"),
            |edits| edits.start_line(&[b"x"]),
        ];
        for (number, edit) in kinds.into_iter().enumerate() {
            let mut edits = Edits::new();
            edit(&mut edits);
            assert!(!edits.is_empty(), "{number}");
            assert_eq!((edits.changes_field(3), edits.changes_field(2)), (number < 2, false), "{number}");
        }
    }

    #[test]
    fn whole_lines_are_inserted_after_the_last_field() {
        let expected =
            "GET /a HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\nA: b\r\nC:d\r\nE: f\r\n\r\n";
        let inserted = rendered(|edits| {
            edits.insert_lines(b"A: b\r\nC:d\r\n");
            edits.insert_lines(b"E: f\r\n");
        });
        assert_eq!(inserted, (expected.to_owned(), 2));
    }

    #[test]
    fn cleared_edits_change_nothing() {
        let mut edits = Edits::new();
        assert!(edits.is_empty());
        edits.insert("A", b"b");
        edits.remove(0);
        edits.start_line(&[b"x"]);
        assert!(!edits.is_empty());
        edits.clear();
        assert!(edits.is_empty());
    }

    #[test]
    fn a_response_is_rendered_without_its_hop_by_hop_fields() {
        let text = b"HTTP/1.0 200\r\nConnection: x\r\nX: 1\r\nA: b\r\nKeep-Alive: timeout=1\r\n\r\n";
        let mut head = ResponseHead::new();
        assert_eq!(head.parse(text, &HeadLimits::default(), Method::Get), Ok(Progress::Complete));
        let mut edits = Edits::new();
        edits.remove_hop_by_hop(&head.fields);
        edits.start_line(&[b"HTTP/1.1 200 "]);
        assert_eq!(head.render(text, &edits).to_vec(), b"HTTP/1.1 200 \r\nA: b\r\n\r\n");
    }

    #[test]
    #[should_panic(expected = "control character")]
    #[cfg(debug_assertions)]
    fn a_line_end_in_an_inserted_value_is_caught_in_debug_builds() {
        Edits::new().insert("A", b"b\r\nC: d");
    }
}
