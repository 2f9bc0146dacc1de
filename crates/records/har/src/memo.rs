//! A cache of obfuscated values, as most values recur. It is a table of fixed size: each set of two slots
//! holds the two values used last among those that map to it. Its content is secret: it is never shown, and
//! wiped on drop.

use std::cell::RefCell;

use egret_items::opaque;
use egret_json::write_escaped;
use zeroize::Zeroize as _;

use crate::key::Key;
use crate::names;

/// Number of slots, a power of two. Two slots form a set.
const SLOTS: usize = 2048;

/// Maximum length of a value together with its obfuscated form. Longer ones are not cached, so the table
/// holds at most 2 MiB.
const SLOT_BYTES_MAX: usize = 1024;

/// Cache of pseudonyms, if there is one.
pub(crate) type Memory<'a> = Option<&'a RefCell<Memo>>;

/// Kind of a value. The same bytes are separate values in different kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MemoKind {
    Origin = 1,
    Segment,
    Parameter,
    Url,
    RequestField,
    ResponseField,
    Cookies,
    SetCookie,
    MediaType,
    RedirectUrl,
    Word,
    Phrase,
    Value,
    Text,
    Number,
    Name,
}

/// A value that may have a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoKey<'a> {
    pub(crate) kind: MemoKind,
    /// Empty for a value without a name.
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> MemoKey<'a> {
    /// The key of a value without a name.
    pub(crate) const fn unnamed(kind: MemoKind, value: &'a [u8]) -> Self {
        Self { kind, name: b"", value }
    }

    fn hash(self) -> u64 {
        mix(self.value, mix(self.name, self.kind as u64)) | 1
    }
}

#[derive(Clone, Default)]
struct MemoSlot {
    hash: u64,
    name_len: u32,
    value_len: u32,
    /// Name, value and output.
    bytes: Vec<u8>,
}

impl MemoSlot {
    /// Returns the cached output if this slot is for the given name and value.
    fn written(&self, hash: u64, MemoKey { name, value, .. }: MemoKey<'_>) -> Option<&[u8]> {
        let (name_len, len) = (name.len(), name.len() + value.len());
        let is_it = self.hash == hash
            && self.name_len as usize == name_len
            && self.value_len as usize == value.len()
            && self.bytes[..name_len] == *name
            && self.bytes[name_len..len] == *value;
        is_it.then(|| &self.bytes[len..])
    }

    /// Replaces the content, unless the new one is too long.
    fn keep(&mut self, hash: u64, MemoKey { name, value, .. }: MemoKey<'_>, written: &[u8]) {
        let (Ok(name_len), Ok(value_len)) = (u32::try_from(name.len()), u32::try_from(value.len())) else {
            return;
        };
        let len = name.len() + value.len() + written.len();
        if len > SLOT_BYTES_MAX {
            return;
        }
        if self.bytes.capacity() < len {
            // Growing would move the content and leave a copy in freed memory.
            self.bytes.zeroize();
        }
        (self.hash, self.name_len, self.value_len) = (hash, name_len, value_len);
        self.bytes.clear();
        for part in [name, value, written] {
            self.bytes.extend_from_slice(part);
        }
    }
}

pub(crate) struct Memo {
    slots: Vec<MemoSlot>,
}

impl Memo {
    pub(crate) fn new() -> Self {
        Self { slots: vec![MemoSlot::default(); SLOTS] }
    }

    /// Appends the output for a value: from the cache, or as `write` produces it.
    pub(crate) fn write(&mut self, key: MemoKey<'_>, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let hash = key.hash();
        let first = (hash >> 32) as usize % (SLOTS / 2) * 2;
        let [slot, other] = &mut self.slots[first..first + 2] else { return write(out) };
        if slot.hash != hash {
            // Keep the slot used last in front.
            std::mem::swap(slot, other);
        }
        if let Some(written) = slot.written(hash, key) {
            return out.extend_from_slice(written);
        }
        let start = out.len();
        write(out);
        slot.keep(hash, key, &out[start..]);
    }
}

/// Number of fields of a message whose last values are kept.
const PLACES: usize = 16;

/// The last field at each place of a message: most fields recur where they stood, and are found there without
/// a hash.
#[derive(Default)]
pub(crate) struct LastFields {
    slots: [MemoSlot; PLACES],
}

impl LastFields {
    /// The hash of a slot that is in use.
    const USED: u64 = 1;

    /// Appends the output for field number `place` of a message: that of the last field there if it is the
    /// same, or else from `memo`.
    pub(crate) fn write(
        &mut self,
        place: usize,
        memo: &mut Memo,
        key: MemoKey<'_>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(slot) = self.slots.get_mut(place) else { return memo.write(key, out, write) };
        if let Some(written) = slot.written(Self::USED, key) {
            return out.extend_from_slice(written);
        }
        let start = out.len();
        memo.write(key, out, write);
        slot.keep(Self::USED, key, &out[start..]);
    }
}

impl Drop for LastFields {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            slot.bytes.zeroize();
        }
    }
}

opaque!(LastFields);

/// Hashes eight bytes at a time. Collisions are harmless: values are compared, and the table has no chains.
fn mix(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash =
        words.iter().fold(step(seed, bytes.len() as u64), |hash, word| step(hash, u64::from_le_bytes(*word)));
    let last = match (bytes.last_chunk::<8>(), rest) {
        (_, []) => return hash ^ hash >> 29,
        // Some bytes are hashed twice, which takes one load.
        (Some(last), _) => u64::from_le_bytes(*last),
        (None, rest) => rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let hash = step(hash, last);
    hash ^ hash >> 29
}

impl Drop for Memo {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            slot.bytes.zeroize();
        }
    }
}

opaque!(Memo);

/// Maximum length of a text that is looked up. Longer texts rarely recur.
pub(crate) const HELD_BYTES_MAX: usize = 64;

/// Writes the pseudonyms of a body's leaves, cached if there is a memo.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pseudonymizer<'a> {
    pub(crate) key: &'a Key,
    pub(crate) memo: Memory<'a>,
}

impl Pseudonymizer<'_> {
    /// Appends the pseudonym of a text.
    pub(crate) fn text(self, text: &[u8], out: &mut Vec<u8>) {
        self.write(MemoKind::Text, text, out, |out| out.extend_from_slice(self.key.text(text).as_bytes()));
    }

    /// Appends the pseudonym of a number.
    pub(crate) fn number(self, number: &[u8], out: &mut Vec<u8>) {
        self.write(MemoKind::Number, number, out, |out| {
            out.extend_from_slice(self.key.number(number).to_string().as_bytes());
        });
    }

    /// Appends a name in quotes. It is kept unless it may reveal a value.
    pub(crate) fn name(self, name: &str, out: &mut Vec<u8>) {
        self.write(MemoKind::Name, name.as_bytes(), out, |out| {
            out.push(b'"');
            if names::may_reveal_value(name) {
                out.extend_from_slice(self.key.text(name.as_bytes()).as_bytes());
            } else {
                write_escaped(name.as_bytes(), out);
            }
            out.push(b'"');
        });
    }

    fn write(self, kind: MemoKind, value: &[u8], out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        match self.memo {
            Some(memo) if value.len() <= HELD_BYTES_MAX => {
                memo.borrow_mut().write(MemoKey::unnamed(kind, value), out, write);
            }
            _ => write(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(memo: &mut Memo, kind: MemoKind, name: &str, value: &str, written: &str) -> String {
        let mut out = b"+".to_vec();
        let key = MemoKey { kind, name: name.as_bytes(), value: value.as_bytes() };
        memo.write(key, &mut out, |out| out.extend_from_slice(written.as_bytes()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_known_value_is_written_from_the_memo() {
        let mut memo = Memo::new();
        assert_eq!(write(&mut memo, MemoKind::RequestField, "a", "bc", "one"), "+one");
        assert_eq!(write(&mut memo, MemoKind::RequestField, "a", "bc", "two"), "+one");
        assert_eq!(write(&mut memo, MemoKind::ResponseField, "a", "bc", "two"), "+two");
        assert_eq!(write(&mut memo, MemoKind::RequestField, "ab", "c", "three"), "+three");
        assert_eq!(write(&mut memo, MemoKind::RequestField, "", "", "four"), "+four");
        assert_eq!(write(&mut memo, MemoKind::RequestField, "", "", "five"), "+four");
    }

    #[test]
    fn it_is_bounded_and_right_however_much_it_is_given() {
        let mut memo = Memo::new();
        for round in 0..2 {
            for number in 0..10_000 {
                let value = number.to_string();
                assert_eq!(
                    write(&mut memo, MemoKind::Value, "", &value, &value),
                    format!("+{value}"),
                    "round {round}"
                );
            }
            let long = "x".repeat(5_000);
            assert_eq!(write(&mut memo, MemoKind::Value, "", &long, "y"), "+y");
            assert_eq!(write(&mut memo, MemoKind::Value, "", &long, "z"), "+z");
        }
        let bytes: usize = memo.slots.iter().map(|slot| slot.bytes.capacity()).sum();
        assert!(bytes < SLOTS * 64, "{bytes}");
        assert_eq!(format!("{memo:?}"), "Memo { .. }");
    }
}
