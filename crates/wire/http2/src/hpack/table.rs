//! The dynamic table (RFC 7541 §2.3.2): the fields that the sender has asked to remember.

use std::collections::VecDeque;

use super::fields::{COLON, LINE_END, OVERHEAD, Placed, Text, ValueForm};
use super::name::FieldName;

/// Size of the table until the sender changes it (RFC 9113 §6.5.2).
pub(super) const TABLE_BYTES: usize = 4_096;

/// Fields in the order of their arrival, the oldest of which make room for new ones.
///
/// Their lines are in one buffer, from the oldest to the newest. If its end is reached, it is moved to
/// the beginning, over the fields that are gone. So it is never longer than the table may be large.
pub(super) struct Table {
    /// The newest is the first.
    fields: VecDeque<Placed>,
    buffer: Vec<u8>,
    /// Size of all fields (RFC 7541 §4.1).
    pub(super) bytes: usize,
    /// Largest size.
    pub(super) bytes_max: usize,
}

impl Table {
    /// Creates an empty table of the initial size.
    pub(super) fn new() -> Self {
        Self { fields: VecDeque::new(), buffer: Vec::new(), bytes: 0, bytes_max: TABLE_BYTES }
    }

    /// Returns the field before which `age` others are newer.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<Text<'_>> {
        self.fields.get(age).map(|placed| placed.text(&self.buffer))
    }

    /// Changes the largest size, and removes the fields that do not fit.
    pub(super) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict(bytes_max);
    }

    /// Adds a field. One that does not fit empties the table (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, known: FieldName, form: ValueForm, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        let Some(room) = self.bytes_max.checked_sub(size) else {
            self.evict(0);
            return;
        };
        self.evict(room);
        // A line has fewer bytes than the size that counts.
        if self.buffer.len() + size > self.bytes_max {
            self.compact();
        }
        let start = self.buffer.len();
        for part in [name, COLON, value, LINE_END] {
            self.buffer.extend_from_slice(part);
        }
        self.fields.push_front(Placed::new(known, form, start, start + name.len(), self.buffer.len()));
        self.bytes += size;
    }

    /// Removes the oldest fields until the others have at most this size.
    fn evict(&mut self, bytes: usize) {
        while self.bytes > bytes
            && let Some(oldest) = self.fields.pop_back()
        {
            self.bytes -= oldest.len() + OVERHEAD;
        }
    }

    /// Moves all fields to the beginning of the buffer.
    fn compact(&mut self) {
        let Some(gone) = self.fields.back().map(|oldest| oldest.start) else {
            self.buffer.clear();
            return;
        };
        self.buffer.drain(..gone as usize);
        for placed in &mut self.fields {
            placed.start -= gone;
            placed.name_end -= gone;
            placed.end -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// Adds many fields of growing sizes, and compares the table with a list of them after each.
    #[test]
    fn a_table_holds_the_newest_fields_that_fit() {
        let mut table = Table::new();
        table.resize(400);
        let mut added: VecDeque<(String, String)> = VecDeque::new();
        for number in 0_usize..2_000 {
            let (mut name, value) = (String::new(), "v".repeat(number * 7 % 61));
            write!(name, "n{number}").unwrap();
            table.insert(FieldName::of(name.as_bytes()), ValueForm::Plain, name.as_bytes(), value.as_bytes());
            added.push_front((name, value));
            let sizes = added.iter().scan(0, |sum, (name, value)| {
                *sum += name.len() + value.len() + 32;
                Some(*sum)
            });
            let fit = sizes.take_while(|sum| *sum <= 400).count();
            assert!(table.get(fit).is_none() && table.buffer.len() <= 400);
            added.truncate(fit);
            for (age, (name, value)) in added.iter().enumerate() {
                let text = table.get(age).unwrap();
                assert_eq!(text.split(), (name.as_bytes(), value.as_bytes()));
            }
        }
        table.resize(0);
        assert_eq!((table.bytes, table.get(0).is_none()), (0, true));
        table.insert(FieldName::Path, ValueForm::Plain, b":path", b"/");
        assert!(table.get(0).is_none());
    }

    #[test]
    fn a_field_that_does_not_fit_empties_the_table() {
        let mut table = Table::new();
        table.insert(FieldName::Path, ValueForm::Plain, b":path", b"/a");
        table.insert(FieldName::Path, ValueForm::Plain, b":path", &[b'a'; TABLE_BYTES - OVERHEAD - 5]);
        assert_eq!((table.bytes, table.get(1).is_none()), (TABLE_BYTES, true));
        table.insert(FieldName::Path, ValueForm::Plain, b":path", &[b'a'; TABLE_BYTES - OVERHEAD - 4]);
        assert_eq!((table.bytes, table.get(0).is_none()), (0, true));
    }
}
