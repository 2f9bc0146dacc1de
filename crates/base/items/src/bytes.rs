//! The search for bytes in short texts, eight at a time in a register. Most names and values are so short
//! that this is faster than a call of a vectorized search.

/// Repeats a byte in each position of a word.
#[inline]
pub const fn in_each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns a word with the top bit set at each position of `word` that holds a byte below `bound`, which is
/// at most 0x80. Positions above the lowest marked one may be marked wrongly.
#[inline]
pub fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(in_each(bound)) & !word & in_each(0x80)
}

/// Returns a word with the top bit set at each position of `word` that holds `byte`. Positions above the
/// lowest marked one may be marked wrongly.
#[inline]
pub fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ in_each(byte), 1)
}

/// Returns the position of the first byte that satisfies `is`; `marks` marks such bytes in a word as
/// [`below`] and [`equal`] do.
#[inline]
pub fn find(bytes: &[u8], marks: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|&byte| is(byte)).map(|at| 8 * words.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_found_at_each_place_of_each_length() {
        let marks = |word| equal(word, b'"') | below(word, b' ');
        let is = |byte| byte == b'"' || byte < b' ';
        for len in 0..40 {
            for (at, byte) in (0..=len).flat_map(|at| [(at, b'"'), (at, 0x1f), (at, 0)]) {
                // Bytes that differ from a mark in one bit, and those behind it that a borrow could change.
                let mut text: Vec<u8> = b"!#\xa2 \xff~".iter().copied().cycle().take(len).collect();
                text.get_mut(at..).into_iter().flatten().for_each(|after| *after = b'!');
                if let Some(marked) = text.get_mut(at) {
                    *marked = byte;
                }
                let expected = text.iter().position(|byte| is(*byte));
                assert_eq!(find(&text, marks, is), expected, "{text:?}");
            }
        }
    }
}
