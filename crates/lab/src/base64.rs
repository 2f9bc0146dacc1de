//! Base64 (RFC 4648) with padding: writes and reads both the standard and the URL-safe alphabet.

/// The alphabet of RFC 4648 §4.
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The alphabet of RFC 4648 §5, safe in URLs and file names.
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes in the alphabet of RFC 4648 §5, with padding.
pub(crate) fn encode_url_safe(bytes: &[u8]) -> String {
    encode(bytes, URL_SAFE)
}

/// Encodes in the alphabet of RFC 4648 §4, with padding.
pub(crate) fn encode_standard(bytes: &[u8]) -> String {
    encode(bytes, STANDARD)
}

/// Decodes either alphabet, but not both in one text. Skips line ends. Returns `None` unless the text is
/// base64 with padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let alphabet = if text.iter().any(|byte| matches!(byte, b'-' | b'_')) { URL_SAFE } else { STANDARD };
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut values = [0xff_u8; 256];
    for (value, letter) in (0_u8..).zip(alphabet) {
        values[usize::from(*letter)] = value;
    }
    let digits = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut bits = 0_u32;
    for (place, letter) in digits.iter().enumerate() {
        let value = values[usize::from(*letter)];
        if value == 0xff {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        if place % 4 == 3 {
            bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
            bits = 0;
        }
    }
    let rest = (bits << (6 * padding)).to_be_bytes();
    match padding {
        1 => bytes.extend_from_slice(&rest[1..3]),
        2 => bytes.push(rest[1]),
        _ => {}
    }
    Some(bytes)
}

fn encode(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - group.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(alphabet[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode_url_safe(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode_url_safe(&all)), Some(all.clone()));
        assert_eq!(decode(&encode_standard(&all)), Some(all));
    }

    #[test]
    fn both_alphabets_are_read_and_line_ends_skipped() {
        assert_eq!(decode("_-8="), Some(vec![0xff, 0xef]));
        assert_eq!(decode("/+8="), Some(vec![0xff, 0xef]));
        assert_eq!(decode("Zm9v\r\nYmFy"), Some(b"foobar".to_vec()));
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Z===", "Z g=", "Zg==Zg==", "a+b_", "Zm9v=", "ä==="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
