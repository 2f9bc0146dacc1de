//! Base64 (RFC 4648). HAR recorders use it for bodies that are not text.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD, Encoding};

/// Base64 as others write it: in either alphabet or a mix of both, with line ends, and with bits after the
/// last byte. Padding is not part of it.
static TOLERANT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64_NOPAD.specification();
    specification.translate.from.push_str("-_");
    specification.translate.to.push_str("+/");
    specification.ignore.push_str("\r\n");
    specification.check_trailing_bits = false;
    // It is valid: a test depends on it.
    specification.encoding().unwrap_or(BASE64_NOPAD)
});

/// Decodes a text in the standard or the URL-safe alphabet, with or without padding. Line ends are skipped.
/// Returns `None` if the text is not Base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    TOLERANT.decode(without_padding(text)).ok()
}

/// Returns `text` without the line ends and up to two `=` at its end.
fn without_padding(text: &[u8]) -> &[u8] {
    let (mut digits, mut padding) = (text, 0);
    while let [before @ .., last] = digits {
        match last {
            b'\r' | b'\n' => {}
            b'=' if padding < 2 => padding += 1,
            _ => break,
        }
        digits = before;
    }
    digits
}

/// Appends `bytes` in the standard alphabet, with padding (RFC 4648 §4).
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + BASE64.encode_len(bytes.len()), 0);
    BASE64.encode_mut(bytes, &mut out[start..]);
}

/// Decodes a text in the standard or the URL-safe alphabet, but not both, with padding at its end. Line ends
/// are skipped. Returns `None` for any other text.
pub fn decode_padded(text: &str) -> Option<Vec<u8>> {
    if text.contains(['-', '_']) && text.contains(['+', '/']) {
        return None;
    }
    let length = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).count();
    decode(text.as_bytes()).filter(|_| length.is_multiple_of(4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_bytes_are_decoded(bytes: Vec<u8>) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(text.len() % 4, 0);
            prop_assert_eq!(decode(&text), Some(bytes.clone()));
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(decode_padded(&text), Some(bytes.clone()));
            prop_assert_eq!(decode_padded(&text.replace('+', "-").replace('/', "_")), Some(bytes));
        }
    }

    #[test]
    fn it_is_written_as_everybody_does() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut text = Vec::new();
            encode(bytes.as_bytes(), &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn both_alphabets_are_read_with_padding_and_without() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v\r\nYmFy", b"foobar"),
            ("_-8=", b"\xff\xef"),
            ("/+8", b"\xff\xef"),
            ("_+8", b"\xff\xef"),
            ("Zg=\r\n=\n", b"f"),
            ("Zh==", b"f"),
            ("\n", b""),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn malformed_base64_is_refused() {
        for text in ["Z", "Zm9vZ", "Z g=", "Zg==Zg==", "Zg===", "Zg=\n=\n=", "Z\n", "Zg=m", "ä"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn padded_text_is_read_in_either_alphabet_and_without_its_line_ends() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9v\r\nYmFy", b"foobar"),
            ("Zm9vYg=\n=\n", b"foob"),
            ("_-8=", b"\xff\xef"),
            ("/+8=", b"\xff\xef"),
            // The bits that no byte needs may be set.
            ("Zh==", b"f"),
        ] {
            assert_eq!(decode_padded(text).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn text_without_its_padding_or_in_two_alphabets_is_refused() {
        for text in
            ["Z", "Zg", "Zg=", "Z===", "Z g=", "Zg==Zg==", "Zg==Zm9v", "a+b_", "Zm9v=", "====", "ä==="]
        {
            assert_eq!(decode_padded(text), None, "{text}");
        }
    }
}
