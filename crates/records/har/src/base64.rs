//! Base64 (RFC 4648). HAR recorders use it for bodies that are not text.

/// Decodes a text in the standard or the URL-safe alphabet, with or without padding. Line ends are skipped.
/// Returns `None` if the text is not Base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut digits: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    for _ in 0..2 {
        digits.pop_if(|last| *last == b'=');
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | value(*digit)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, whole @ ..] = bits.to_be_bytes();
        let len = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bytes.extend_from_slice(&whole[..len]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    }))
}

/// Appends `bytes` in the standard alphabet, with padding (RFC 4648 §4).
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32, place: u32| DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
    out.reserve(bytes.len().div_ceil(3) * 4);
    let (groups, rest) = bytes.as_chunks::<3>();
    for [a, b, c] in groups {
        let bits = u32::from_be_bytes([0, *a, *b, *c]);
        out.extend_from_slice(&[0, 1, 2, 3].map(|place| digit(bits, place)));
    }
    match *rest {
        [a] => {
            let bits = u32::from_be_bytes([0, a, 0, 0]);
            out.extend_from_slice(&[digit(bits, 0), digit(bits, 1), b'=', b'=']);
        }
        [a, b] => {
            let bits = u32::from_be_bytes([0, a, b, 0]);
            out.extend_from_slice(&[digit(bits, 0), digit(bits, 1), digit(bits, 2), b'=']);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes: Vec<u8>) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(text.len() % 4, 0);
            prop_assert_eq!(decode(&text), Some(bytes));
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
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zm9vZ", "Z g=", "Zg==Zg==", "Zg===", "ä"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
