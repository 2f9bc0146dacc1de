//! Bytes of a message as text.

use std::borrow::Cow;

/// Decodes bytes as UTF-8, or else as Latin-1, in which every byte is a character.
pub(super) fn utf8_or_latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_other_than_utf_8_are_latin_1() {
        assert_eq!(utf8_or_latin1("é".as_bytes()), "é");
        assert_eq!(utf8_or_latin1(b"\xe9"), "é");
    }
}
