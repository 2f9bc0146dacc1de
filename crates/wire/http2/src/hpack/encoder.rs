//! The encoder of the fields that are sent to a peer (RFC 7541 §6).

use super::fields::{OVERHEAD, Text, ValueForm};
use super::huffman;
use super::name::FieldName;
use super::static_table::{FIRST_INDEX, field_index, name_index};
use super::table::{TABLE_BYTES, Table};

/// Number of buckets in which fields of the table are found.
const BUCKETS: usize = 256;
/// Most fields that the table has at once: each has 32 bytes at least.
const FIELDS_MAX: usize = TABLE_BYTES / OVERHEAD;

/// The table's part in how a field is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Indexing {
    /// The field is added to the table, and later sent as its index there.
    Add,
    /// The field is sent in full each time, except if every peer knows it.
    Without,
    /// Like `Without`, and no table may have the field on any connection that it passes (RFC 7541 §7.1.3).
    Never,
}

/// Encodes all blocks of fields that are sent on a connection, in their order.
///
/// The caller decides which fields enter the table. Values that change with most messages are better without:
/// `:path`, `content-length`, `date`, `etag` and the identifiers of requests would replace others there.
pub(crate) struct Encoder {
    table: Table,
    /// Smallest size of the table that the peer has allowed since the last block.
    smallest_bytes: usize,
    /// Size of the table that the peer allows now, at most ours.
    allowed_bytes: usize,
    /// Number of fields that were added, which numbers them. It wraps around, and so an old number may be
    /// taken for a new one: every field that is found is compared.
    added: u8,
    /// For each bucket, the number of the last field that was added to it.
    newest: [u8; BUCKETS],
    /// For each field of the table, at its number modulo their length, the number of the field that was the
    /// newest of its bucket before.
    older: [u8; FIELDS_MAX],
}

impl Encoder {
    /// Creates an encoder for a peer that allows the initial size of the table (RFC 9113 §6.5.2).
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            smallest_bytes: TABLE_BYTES,
            allowed_bytes: TABLE_BYTES,
            added: 0,
            newest: [0; BUCKETS],
            older: [0; FIELDS_MAX],
        }
    }

    /// Sets the largest size of the table that the peer allows, its `SETTINGS_HEADER_TABLE_SIZE` in bytes. No
    /// more than 4,096 are used.
    pub(crate) fn set_peer_table_bytes(&mut self, bytes: usize) {
        self.allowed_bytes = bytes.min(TABLE_BYTES);
        self.smallest_bytes = self.smallest_bytes.min(self.allowed_bytes);
    }

    /// Begins a block, with the changes of the table's size since the last (RFC 7541 §4.2).
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        for bytes in [self.smallest_bytes, self.allowed_bytes] {
            if bytes != self.table.bytes_max {
                self.table.resize(bytes);
                integer(bytes, 0x20, 0x1f, out);
            }
        }
        self.smallest_bytes = self.allowed_bytes;
    }

    /// Appends a field to a block that has begun. Its name is a token in lower case, maybe after a colon.
    ///
    /// Strings are compressed when they enter the table, which costs once for many messages. Others are sent
    /// as they are: their code would save a fifth of their bytes, for more time than all other fields take.
    #[inline]
    pub(crate) fn encode(&mut self, name: &[u8], value: &[u8], index: Indexing, out: &mut Vec<u8>) {
        // Most pseudo-fields are in the static table, and no other field is there with a value that is
        // common.
        if index == Indexing::Add && !name.starts_with(b":") {
            let age = self.age(self.newest[bucket(name, value)]);
            if self.table.get(age).is_some_and(|text| is_same(text, name, value)) {
                return integer(FIRST_INDEX + age, 0x80, 0x7f, out);
            }
        }
        self.encode_other(name, value, index, out);
    }

    /// Appends a pseudo-field, or a field that is not the newest of its bucket.
    #[inline(never)]
    fn encode_other(&mut self, name: &[u8], value: &[u8], index: Indexing, out: &mut Vec<u8>) {
        let known = FieldName::of_valid(name);
        let name_index = name_index(known, name);
        if index == Indexing::Never {
            return literal(name_index, name, value, 0x10, out);
        }
        if let Some(index) = field_index(name_index, value) {
            return integer(index, 0x80, 0x7f, out);
        }
        let fits = name.len() + value.len() + OVERHEAD <= self.table.bytes_max;
        if index == Indexing::Without || !fits {
            return literal(name_index, name, value, 0, out);
        }
        let bucket = bucket(name, value);
        if let Some(age) = self.find(bucket, name, value) {
            return integer(FIRST_INDEX + age, 0x80, 0x7f, out);
        }
        integer(name_index, 0x40, 0x3f, out);
        if name_index == 0 {
            compressed(name, out);
        }
        compressed(value, out);
        // This side has no use for the form.
        self.table.insert(known, ValueForm::Plain, name, value);
        self.older[usize::from(self.added) % FIELDS_MAX] = self.newest[bucket];
        self.newest[bucket] = self.added;
        self.added = self.added.wrapping_add(1);
    }

    /// Returns the number of fields in the table that are newer than this one.
    fn find(&self, bucket: usize, name: &[u8], value: &[u8]) -> Option<usize> {
        let mut number = self.newest[bucket];
        let mut age = self.age(number);
        loop {
            if is_same(self.table.get(age)?, name, value) {
                return Some(age);
            }
            number = self.older[usize::from(number) % FIELDS_MAX];
            let older = self.age(number);
            if older <= age {
                return None;
            }
            age = older;
        }
    }

    /// Returns the number of fields that were added after the one with this number.
    #[inline]
    fn age(&self, number: u8) -> usize {
        self.added.wrapping_sub(number).wrapping_sub(1).into()
    }
}

/// Returns `true` if a field has this name and value.
#[inline]
fn is_same(text: Text<'_>, name: &[u8], value: &[u8]) -> bool {
    text.name_len == name.len() && text.split() == (name, value)
}

/// Returns the bucket of a field: a mix of both lengths and ends.
#[inline]
fn bucket(name: &[u8], value: &[u8]) -> usize {
    /// 2^64 divided by the golden ratio, which spreads numbers that are close.
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let of_name = name.last_chunk().map_or(0, |end| u16::from_le_bytes(*end));
    let of_value = value.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    let lengths = ((name.len() as u64) << 48) ^ ((value.len() as u64) << 56);
    let mixed = lengths ^ (u64::from(of_name) << 32) ^ u64::from(of_value);
    let [.., high] = mixed.wrapping_mul(MULTIPLIER).to_le_bytes();
    usize::from(high)
}

/// Appends a literal field that does not enter the table, with the bits of its kind.
fn literal(name_index: usize, name: &[u8], value: &[u8], kind: u8, out: &mut Vec<u8>) {
    integer(name_index, kind, 0x0f, out);
    if name_index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Appends a string as it is.
fn string(text: &[u8], out: &mut Vec<u8>) {
    integer(text.len(), 0, 0x7f, out);
    out.extend_from_slice(text);
}

/// Appends a string in the Huffman code, if that is shorter.
fn compressed(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len >= text.len() {
        return string(text, out);
    }
    integer(len, 0x80, 0x7f, out);
    huffman::encode(text, out);
}

/// Appends an integer that begins in the bits of `mask`, below those of its `kind` (RFC 7541 §5.1).
#[inline]
fn integer(value: usize, kind: u8, mask: u8, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(short) if short < mask => out.push(kind | short),
        _ => long_integer(value - usize::from(mask), kind | mask, out),
    }
}

fn long_integer(mut rest: usize, first: u8, out: &mut Vec<u8>) {
    out.push(first);
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of one block.
    fn block(encoder: &mut Encoder, fields: &[(&str, &str, Indexing)]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value, index) in fields {
            encoder.encode(name.as_bytes(), value.as_bytes(), *index, &mut out);
        }
        out
    }

    /// RFC 7541 §C.1.
    #[test]
    fn integers_are_encoded_in_the_fewest_bytes() {
        for (value, mask, bytes) in [
            (10, 0x1f, &[0b0000_1010][..]),
            (1_337, 0x1f, &[0b0001_1111, 0b1001_1010, 0b0000_1010]),
            (42, 0xff, &[42]),
            (127, 0x7f, &[0x7f, 0]),
            (254, 0x7f, &[0x7f, 0x7f]),
            (255, 0x7f, &[0x7f, 0x80, 1]),
        ] {
            let mut out = Vec::new();
            integer(value, 0, mask, &mut out);
            assert_eq!(out, bytes, "{value}");
        }
    }

    #[test]
    fn changes_of_the_size_are_sent_before_the_next_block() {
        let mut encoder = Encoder::new();
        encoder.set_peer_table_bytes(65_536);
        assert!(block(&mut encoder, &[]).is_empty());
        encoder.set_peer_table_bytes(100);
        encoder.set_peer_table_bytes(0);
        encoder.set_peer_table_bytes(20);
        encoder.set_peer_table_bytes(65_536);
        assert_eq!(block(&mut encoder, &[]), [0x20, 0x3f, 0xe1, 0x1f]);
        assert!(block(&mut encoder, &[]).is_empty());
        encoder.set_peer_table_bytes(10);
        assert_eq!(block(&mut encoder, &[]), [0x2a]);
        encoder.set_peer_table_bytes(20);
        assert_eq!(block(&mut encoder, &[]), [0x34]);
    }

    #[test]
    fn a_field_enters_the_table_if_the_caller_says_so() {
        let mut encoder = Encoder::new();
        let add = [("te", "trailers", Indexing::Add), (":path", "/", Indexing::Add)];
        assert_eq!(block(&mut encoder, &add), b"\x40\x02te\x86\x4d\x83\x35\x05\xb1\x1f\x84");
        assert_eq!(block(&mut encoder, &add), [0xbe, 0x84]);
        let without = [
            ("date", "now", Indexing::Without),
            ("a", "b", Indexing::Without),
            (":path", "/", Indexing::Without),
        ];
        assert_eq!(block(&mut encoder, &without), b"\x0f\x12\x03now\x00\x01a\x01b\x84");
        let never = [("te", "trailers", Indexing::Never), (":path", "/", Indexing::Never)];
        assert_eq!(block(&mut encoder, &never), b"\x10\x02te\x08trailers\x14\x01/");
        assert_eq!(block(&mut encoder, &add), [0xbe, 0x84]);
    }

    #[test]
    fn a_field_that_does_not_fit_leaves_the_table_as_it_is() {
        let mut encoder = Encoder::new();
        encoder.set_peer_table_bytes(40);
        assert_eq!(block(&mut encoder, &[("a", "b", Indexing::Add)])[..2], [0x3f, 0x09]);
        let large = block(&mut encoder, &[("a", "123456789", Indexing::Add)]);
        assert_eq!(large, b"\x00\x01a\x09123456789");
        assert_eq!(block(&mut encoder, &[("a", "b", Indexing::Add)]), [0xbe]);
        encoder.set_peer_table_bytes(0);
        assert_eq!(block(&mut encoder, &[("a", "b", Indexing::Add)]), b"\x20\x00\x01a\x01b");
    }

    #[test]
    fn fields_are_found_while_they_are_in_the_table() {
        let mut encoder = Encoder::new();
        let mut sent = Vec::new();
        // Each takes 40 bytes, and so the last 102 are in the table.
        for number in 10_000..11_000 {
            let value = number.to_string();
            sent.push(value);
            block(&mut encoder, &[("via", sent.last().unwrap(), Indexing::Add)]);
            if number % 50 == 0 {
                for (age, value) in sent.iter().rev().enumerate().take(102) {
                    let value = value.as_bytes();
                    assert_eq!(encoder.find(bucket(b"via", value), b"via", value), Some(age));
                }
                if let Some(evicted) = sent.iter().rev().nth(102) {
                    let value = evicted.as_bytes();
                    assert_eq!(encoder.find(bucket(b"via", value), b"via", value), None);
                }
            }
        }
    }
}
