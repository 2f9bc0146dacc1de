//! Reads Base64 (RFC 4648), as recorders write bodies that are no text.

/// What a text stands for, in either alphabet, with padding or without; line ends are skipped. `None` where it is no Base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
