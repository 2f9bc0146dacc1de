//! Changes to a head, kept as a list and applied while it is written. What is not named stays as received: order, case,
//! white space and duplicates.

use std::io::IoSlice;

use smallvec::SmallVec;

use crate::syntax::{is_field_value, is_token};
use crate::{Field, Span};

/// The pieces of a rendered message, for one vectored write.
pub type Slices<'a> = SmallVec<[IoSlice<'a>; 16]>;

const CRLF: &[u8] = b"\r\n";

/// What is to change in a head. Meant to be kept and cleared between messages, so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Edits {
    /// Changed lines, by rising index of the field.
    changes: Vec<Change>,
    /// The new start line, in `arena`.
    start_line: Option<Span>,
    /// Bytes of replaced values and of the start line.
    arena: Vec<u8>,
    /// Inserted lines, and after them the empty line that ends the head; or nothing. Apart from `arena` so that they
    /// go out as one slice.
    tail: Vec<u8>,
}

#[derive(Copy, Clone, Debug)]
struct Change {
    index: usize,
    /// The new value in the arena; `None` removes the line.
    value: Option<Span>,
}

impl Edits {
    /// No edits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops all edits and keeps the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.start_line = None;
        self.arena.clear();
        self.tail.clear();
    }

    /// Whether rendering changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.start_line.is_none() && self.tail.is_empty()
    }

    /// Removes the line of field `index`. The last edit of a field counts.
    pub fn remove(&mut self, index: usize) {
        self.change(Change { index, value: None });
    }

    /// Removes the lines of all `fields` that must not be forwarded.
    pub fn remove_hop_by_hop(&mut self, fields: &[Field]) {
        for (index, _) in fields.iter().enumerate().filter(|(_, field)| field.hop_by_hop) {
            self.remove(index);
        }
    }

    /// Gives field `index` another value. The last edit of a field counts.
    pub fn replace_value(&mut self, index: usize, value: &[u8]) {
        debug_assert!(is_field_value(value), "a field value holds a control character");
        let value = self.store(&[value]);
        self.change(Change { index, value: Some(value) });
    }

    /// Adds a field after the last one.
    pub fn insert(&mut self, name: &str, value: &[u8]) {
        self.insert_parts(name, &[value]);
    }

    /// Adds a field after the last one, its value in parts that are joined.
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

    /// Replaces the start line by `parts`, joined; its line end stays.
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

    /// Edits mostly come in the order of the fields, so the place is searched from the end.
    fn change(&mut self, change: Change) {
        let place = self.changes.iter().rposition(|other| other.index <= change.index);
        match place {
            Some(at) if self.changes[at].index == change.index => self.changes[at] = change,
            Some(at) => self.changes.insert(at + 1, change),
            None => self.changes.insert(0, change),
        }
    }
}

/// Where the parts of a head are.
pub(crate) struct Layout<'a, 'f> {
    pub buffer: &'a [u8],
    /// The start line without its line end.
    pub start_line: Span,
    pub fields: &'f [Field],
    /// Where the head ends in `buffer`.
    pub len: usize,
}

impl<'a> Layout<'a, '_> {
    /// Appends the head with `edits` applied to `out`; bytes kept side by side become one slice.
    pub fn render(&self, edits: &'a Edits, out: &mut Slices<'a>) {
        let mut kept = self.start_line.start as usize;
        if let Some(line) = edits.start_line {
            push(out, line.of(&edits.arena));
            kept = self.start_line.end as usize;
        }
        for change in &edits.changes {
            let Some(field) = self.fields.get(change.index) else { break };
            let cut = match change.value {
                Some(_) => field.value,
                None => Span { start: field.name.start, end: field.line_end },
            };
            push(out, &self.buffer[kept..cut.start as usize]);
            push(out, change.value.unwrap_or_default().of(&edits.arena));
            kept = cut.end as usize;
        }
        let inserts = !edits.tail.is_empty();
        push(out, &self.buffer[kept..self.len - if inserts { CRLF.len() } else { 0 }]);
        push(out, &edits.tail);
    }
}

fn push<'a>(out: &mut Slices<'a>, bytes: &'a [u8]) {
    if !bytes.is_empty() {
        out.push(IoSlice::new(bytes));
    }
}
