//! The fields of a block, in buffers that are used again for the next.

use egret_http1::{is_field_value, is_white_space};

use super::error::Error;
use super::name::FieldName;

/// Size of a field beside its name and value, in tables (RFC 7541 §4.1) and lists (RFC 9113 §6.5.2).
pub(super) const OVERHEAD: usize = 32;
/// A list of this many times the allowed size ends the connection. It is decoded until then, so that the
/// request alone can be refused.
const EXCESS: usize = 4;
/// Memory for lines that is kept for the next block.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// The form of a value, which is found once, when the value arrives, and kept in the tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// It can be the value of a line.
    Plain,
    /// White space surrounds it, which only HTTP/1.1 allows (RFC 9113 §8.2.1).
    Surrounded,
    /// It has bytes that no value has.
    Invalid,
}

impl ValueForm {
    /// Returns the form of a value.
    #[inline]
    pub(super) fn of(value: &[u8]) -> Self {
        let is_space = |byte: Option<&u8>| byte.is_some_and(|byte| is_white_space(*byte));
        if !is_field_value(value) {
            Self::Invalid
        } else if is_space(value.first()) || is_space(value.last()) {
            Self::Surrounded
        } else {
            Self::Plain
        }
    }
}

/// A field of a block.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The meaning of the name.
    pub(crate) known: FieldName,
    /// The name. It is valid unless `known` says otherwise.
    pub(crate) name: &'a [u8],
    /// The value: any bytes, as `form` tells.
    pub(crate) value: &'a [u8],
    /// The form of the value.
    pub(crate) form: ValueForm,
    /// `true` if no table may ever have the field, on any connection that it passes (RFC 7541 §6.2.3).
    pub(crate) is_never_indexed: bool,
}

/// The text between the name and the value of a line.
pub(super) const COLON: &[u8] = b": ";
/// The text behind the value of a line.
pub(super) const LINE_END: &[u8] = b"\r\n";

/// A field of a table, as a line of HTTP/1.1.
#[derive(Copy, Clone)]
pub(super) struct Text<'a> {
    /// The meaning of the name.
    pub(super) known: FieldName,
    /// The form of the value.
    pub(super) form: ValueForm,
    /// The name, a colon, the value and the end of the line.
    pub(super) line: &'a [u8],
    /// Number of bytes of the name.
    pub(super) name_len: usize,
}

impl<'a> Text<'a> {
    /// Returns the name and the value.
    #[inline]
    pub(super) fn split(self) -> (&'a [u8], &'a [u8]) {
        let value = self.name_len + COLON.len()..self.line.len() - LINE_END.len();
        (&self.line[..self.name_len], &self.line[value])
    }
}

/// The place of a field in a buffer, where it is a line.
#[derive(Copy, Clone)]
pub(super) struct Placed {
    /// The meaning of the name.
    pub(super) known: FieldName,
    /// The form of the value.
    pub(super) form: ValueForm,
    /// `true` if no table may ever have the field.
    pub(super) is_never_indexed: bool,
    /// Offset of the name.
    pub(super) start: u32,
    /// Offset after the name.
    pub(super) name_end: u32,
    /// Offset after the line.
    pub(super) end: u32,
}

impl Placed {
    /// Creates the place of a field that may be indexed, between three offsets.
    #[inline]
    pub(super) fn new(known: FieldName, form: ValueForm, start: usize, name_end: usize, end: usize) -> Self {
        let (start, name_end, end) = (to_u32(start), to_u32(name_end), to_u32(end));
        Self { known, form, is_never_indexed: false, start, name_end, end }
    }

    /// Number of bytes of the name and the value.
    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.end - self.start) as usize - COLON.len() - LINE_END.len()
    }

    /// Returns the field in its buffer.
    #[inline]
    pub(super) fn text<'a>(&self, buffer: &'a [u8]) -> Text<'a> {
        let line = &buffer[self.start as usize..self.end as usize];
        Text { known: self.known, form: self.form, line, name_len: (self.name_end - self.start) as usize }
    }
}

/// Converts an offset to 32 bits, without a check.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the caller bounds a block far below 4 GiB")]
fn to_u32(offset: usize) -> u32 {
    offset as u32
}

/// The fields of a block in their order, with bounds on their size and number. Fields beyond the bounds are
/// left out.
///
/// Its memory is at most the bounds and one field, which is at most 8/5 of the block and a name of the table.
pub(crate) struct FieldList {
    /// The lines of the fields.
    pub(super) bytes: Vec<u8>,
    fields: Vec<Placed>,
    /// Size of all fields of the block, also of those left out (RFC 9113 §6.5.2).
    list_bytes: usize,
    list_bytes_max: usize,
    fields_max: usize,
    is_too_large: bool,
}

impl FieldList {
    /// Creates an empty list of at most `fields_max` fields, whose names and values have together at most
    /// `list_bytes_max` bytes, with 32 for each field (RFC 9113 §6.5.2).
    pub(crate) fn new(list_bytes_max: usize, fields_max: usize) -> Self {
        let (bytes, fields) = (Vec::new(), Vec::new());
        Self { bytes, fields, list_bytes: 0, list_bytes_max, fields_max, is_too_large: false }
    }

    /// Removes the fields, and keeps the memory for the next block, unless it is large.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.fields.clear();
        self.list_bytes = 0;
        self.is_too_large = false;
    }

    /// Returns `true` if fields were left out, because a bound was passed.
    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Returns the fields in their order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        self.fields.iter().map(|placed| {
            let (name, value) = placed.text(&self.bytes).split();
            let Placed { known, form, is_never_indexed, .. } = *placed;
            Field { known, name, value, form, is_never_indexed }
        })
    }

    /// Returns the lines of the fields from the number `first` on, up to the number `end`.
    pub(crate) fn lines(&self, first: usize, end: usize) -> &[u8] {
        match self.fields.get(first..end) {
            Some([only]) => only.text(&self.bytes).line,
            Some([first, .., last]) => &self.bytes[first.start as usize..last.end as usize],
            Some([]) | None => &[],
        }
    }

    /// Adds a field of a table.
    #[inline]
    pub(super) fn push(&mut self, text: Text<'_>) -> Result<(), Error> {
        if self.counts(text.line.len() - COLON.len() - LINE_END.len())? {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(text.line);
            let end = self.bytes.len();
            self.fields.push(Placed::new(text.known, text.form, start, start + text.name_len, end));
        }
        Ok(())
    }

    /// Adds the field that was written to the end of the buffer.
    #[inline]
    pub(super) fn push_written(&mut self, placed: Placed) -> Result<(), Error> {
        if self.counts(placed.len())? {
            self.fields.push(placed);
        } else {
            self.bytes.truncate(placed.start as usize);
        }
        Ok(())
    }

    /// Counts a field of this many bytes, and returns `true` if it is within the bounds.
    #[inline]
    fn counts(&mut self, len: usize) -> Result<bool, Error> {
        self.list_bytes += len + OVERHEAD;
        if self.list_bytes <= self.list_bytes_max && self.fields.len() < self.fields_max {
            return Ok(true);
        }
        self.is_too_large = true;
        let is_excess = self.list_bytes > self.list_bytes_max.saturating_mul(EXCESS);
        if is_excess { Err(Error::ListTooLarge) } else { Ok(false) }
    }
}
