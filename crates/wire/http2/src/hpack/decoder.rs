//! The decoder of the fields that a peer sends (RFC 7541 §3, §6).

use super::error::Error;
use super::fields::{COLON, FieldList, LINE_END, Placed, Text, ValueForm};
use super::huffman;
use super::name::FieldName;
use super::static_table::{FIRST_INDEX, STATIC};
use super::table::Table;

/// Changes of the table's size at the beginning of a block: the smallest since the last block, and the last
/// (RFC 7541 §4.2).
const SIZE_CHANGES: usize = 2;

/// Decodes all blocks of fields that arrive on a connection, in their order.
pub(crate) struct Decoder {
    pub(super) table: Table,
    table_bytes_max: usize,
}

impl Decoder {
    /// Creates a decoder whose table the peer may enlarge to this size, the announced value of
    /// `SETTINGS_HEADER_TABLE_SIZE` (RFC 9113 §6.5.2). It begins with the 4,096 bytes that a peer may use
    /// before it knows of any other.
    pub(crate) fn new(table_bytes_max: usize) -> Self {
        Self { table: Table::new(), table_bytes_max }
    }

    /// Decodes a whole block, and adds its fields to the `list`, which should be empty. A block must also be
    /// decoded if its message is not wanted, because it changes the table.
    ///
    /// Names and values are not judged: [`Field::known`](super::Field::known) tells malformed names, and
    /// [`Field::form`](super::Field::form) values that are no text.
    pub(crate) fn decode(&mut self, block: &[u8], list: &mut FieldList) -> Result<(), Error> {
        let mut input = Input { rest: block };
        self.change_size(&mut input)?;
        while let Some((&first, rest)) = input.rest.split_first() {
            input.rest = rest;
            if first & 0x80 != 0 {
                let index = input.integer(first, 0x7f)?;
                list.push(self.field(index)?)?;
                continue;
            }
            let is_added = first & 0x40 != 0;
            if !is_added && first & 0x20 != 0 {
                return Err(Error::TableSize);
            }
            let mask = if is_added { 0x3f } else { 0x0f };
            let mut placed = self.literal(&mut input, first, mask, &mut list.bytes)?;
            if is_added {
                let (name, value) = placed.text(&list.bytes).split();
                self.table.insert(placed.known, placed.form, name, value);
            } else {
                placed.is_never_indexed = first & 0x10 != 0;
            }
            list.push_written(placed)?;
        }
        Ok(())
    }

    /// Changes the size of the table, as the beginning of a block says.
    fn change_size(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        for _ in 0..SIZE_CHANGES {
            let Some((&first @ 0x20..=0x3f, rest)) = input.rest.split_first() else { break };
            input.rest = rest;
            let bytes = input.integer(first, 0x1f)?;
            if bytes > self.table_bytes_max {
                return Err(Error::TableSize);
            }
            self.table.resize(bytes);
        }
        Ok(())
    }

    /// Returns the field of a table.
    #[inline]
    fn field(&self, index: usize) -> Result<Text<'_>, Error> {
        let field = match index.checked_sub(FIRST_INDEX) {
            Some(age) => self.table.get(age),
            None => index.checked_sub(1).and_then(|at| STATIC.get(at)).copied(),
        };
        field.ok_or(Error::Index)
    }

    /// Appends a literal field to `bytes`. The index of its name is in the bits of `mask`, 0 if the name is a
    /// literal too.
    #[inline]
    fn literal(
        &self,
        input: &mut Input<'_>,
        first: u8,
        mask: u8,
        bytes: &mut Vec<u8>,
    ) -> Result<Placed, Error> {
        let start = bytes.len();
        let index = input.integer(first, mask)?;
        let known = if index == 0 {
            input.string(bytes)?;
            FieldName::of(&bytes[start..])
        } else {
            let field = self.field(index)?;
            bytes.extend_from_slice(field.split().0);
            field.known
        };
        let name_end = bytes.len();
        bytes.extend_from_slice(COLON);
        input.string(bytes)?;
        let form = ValueForm::of(&bytes[name_end + COLON.len()..]);
        bytes.extend_from_slice(LINE_END);
        Ok(Placed::new(known, form, start, name_end, bytes.len()))
    }
}

/// The rest of a block.
struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self.rest.split_first().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    /// Decodes an integer that begins in the bits of `mask` of the `first` byte (RFC 7541 §5.1).
    #[inline]
    fn integer(&mut self, first: u8, mask: u8) -> Result<usize, Error> {
        let value = first & mask;
        if value < mask {
            return Ok(value.into());
        }
        let (value, rest) = long_integer(self.rest, mask)?;
        self.rest = rest;
        Ok(value)
    }

    /// Appends a string to `bytes` (RFC 7541 §5.2).
    fn string(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let first = self.byte()?;
        let len = self.integer(first, 0x7f)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(Error::Truncated)?;
        self.rest = rest;
        if first & 0x80 != 0 {
            return huffman::decode(text, bytes);
        }
        bytes.extend_from_slice(text);
        Ok(())
    }
}

/// Decodes an integer that does not fit into the bits of `mask`, and returns the bytes after it. With four
/// bytes it is above any length of a block.
#[inline(never)]
fn long_integer(bytes: &[u8], mask: u8) -> Result<(usize, &[u8]), Error> {
    let mut value = usize::from(mask);
    for (byte, shift) in bytes.iter().zip([0, 7, 14, 21]) {
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value, &bytes[shift / 7 + 1..]));
        }
    }
    Err(if bytes.len() < 4 { Error::Truncated } else { Error::Integer })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a block that a new decoder with a table of 4,096 bytes gets.
    fn decode(block: &[u8]) -> Result<(), Error> {
        Decoder::new(4_096).decode(block, &mut FieldList::new(16_384, 128))
    }

    /// RFC 7541 §C.1.
    #[test]
    fn integers_are_decoded_up_to_four_more_bytes() {
        for (bytes, mask, value) in [
            (&[0b1110_1010][..], 0x1f, Ok(10)),
            (&[0b0001_1111, 0b1001_1010, 0b0000_1010], 0x1f, Ok(1_337)),
            (&[42], 0xff, Ok(42)),
            (&[0x7f, 0x80, 0x00], 0x7f, Ok(127)),
            (&[0x7f, 0xff, 0xff, 0xff, 0x7f], 0x7f, Ok(127 + (1 << 28) - 1)),
            (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x00], 0x7f, Err(Error::Integer)),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 0x7f, Err(Error::Integer)),
            (&[0x7f, 0x80], 0x7f, Err(Error::Truncated)),
        ] {
            assert_eq!(Input { rest: &bytes[1..] }.integer(bytes[0], mask), value, "{bytes:?}");
        }
    }

    #[test]
    fn an_index_of_no_field_is_refused() {
        assert_eq!(decode(&[0x80]), Err(Error::Index));
        assert_eq!(decode(&[0xbd]), Ok(()));
        assert_eq!(decode(&[0xbe]), Err(Error::Index));
        assert_eq!(decode(&[0x40, 1, b'a', 0, 0xbe]), Ok(()));
        assert_eq!(decode(&[0x40, 1, b'a', 0, 0xbf]), Err(Error::Index));
        // Also as the index of a name.
        assert_eq!(decode(&[0x7e, 0]), Err(Error::Index));
    }

    #[test]
    fn a_truncated_field_is_refused() {
        let block = [0x40, 2, b'a', b'b', 3, b'x', b'y', b'z'];
        for len in 1..block.len() {
            assert_eq!(decode(&block[..len]), Err(Error::Truncated), "{len}");
        }
        assert_eq!(decode(&block), Ok(()));
    }

    #[test]
    fn the_size_of_the_table_changes_at_the_beginning_alone() {
        assert_eq!(decode(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]), Ok(()));
        assert_eq!(decode(&[0x20]), Ok(()));
        assert_eq!(decode(&[0x3f, 0xe2, 0x1f]), Err(Error::TableSize));
        assert_eq!(decode(&[0x20, 0x20, 0x20]), Err(Error::TableSize));
        assert_eq!(decode(&[0x82, 0x20]), Err(Error::TableSize));
        // A size of 0 empties the table.
        assert_eq!(decode(&[0x40, 1, b'a', 0]), Ok(()));
        let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(16_384, 128));
        assert_eq!(decoder.decode(&[0x40, 1, b'a', 0], &mut list), Ok(()));
        assert_eq!(decoder.decode(&[0x20, 0xbe], &mut list), Err(Error::Index));
    }

    #[test]
    fn a_repeated_large_field_takes_no_memory() {
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
        block.extend([b'v'; 4_000]);
        let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(16_384, 128));
        assert_eq!(decoder.decode(&block, &mut list), Ok(()));
        assert!(!list.is_too_large());
        assert_eq!(decoder.decode(&[0xbe; 10], &mut list), Ok(()));
        assert!(list.is_too_large());
        assert_eq!(list.iter().len(), 4);
        assert_eq!(decoder.decode(&[0xbe; 16_384], &mut list), Err(Error::ListTooLarge));
        assert_eq!((list.iter().len(), list.bytes.len()), (4, 16_020));
        list.clear();
        assert_eq!(decoder.decode(&[0xbe], &mut list), Ok(()));
        assert_eq!((list.iter().len(), list.is_too_large()), (1, false));
    }

    #[test]
    fn fields_beyond_the_bounds_change_the_table_alone() {
        let mut decoder = Decoder::new(4_096);
        for mut list in [FieldList::new(16_384, 1), FieldList::new(50, 9)] {
            let block = [0x82, 0x40, 1, b'a', 1, b'b', 0x00, 1, b'c', 1, b'd'];
            assert_eq!(decoder.decode(&block, &mut list), Ok(()));
            assert_eq!((list.iter().len(), list.bytes.len(), list.is_too_large()), (1, 14, true));
            list = FieldList::new(16_384, 128);
            assert_eq!(decoder.decode(&[0xbe], &mut list), Ok(()));
            assert!(list.iter().all(|field| (field.name, field.value) == (&b"a"[..], &b"b"[..])));
        }
    }
}
