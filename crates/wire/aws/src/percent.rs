//! Percent-encoding as AWS signs it: every character except the unreserved ones (RFC 3986 §2.3).

use data_encoding::{HEXUPPER, HEXUPPER_PERMISSIVE};

/// Appends `bytes` with every character percent-encoded except the unreserved ones.
pub fn percent_encode(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let mut encoded = *b"%00";
            HEXUPPER.encode_mut(&[byte], &mut encoded[1..]);
            out.extend_from_slice(&encoded);
        }
    }
}

/// Decodes `text`. A percent sign without two hexadecimal digits stays as it is.
pub(crate) fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let encoded = after.first_chunk().filter(|_| byte == b'%').and_then(|digits| octet(*digits));
        decoded.push(encoded.unwrap_or(byte));
        rest = if encoded.is_some() { &after[2..] } else { after };
    }
    decoded
}

/// Returns the byte that two hexadecimal digits encode.
fn octet(digits: [u8; 2]) -> Option<u8> {
    let mut byte = [0];
    HEXUPPER_PERMISSIVE.decode_mut(&digits, &mut byte).ok().map(|_| byte[0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        percent_encode(bytes, &mut out);
        out
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(percent_decode(b"%41%4a%4A%%4g%4"), b"AJJ%%4g%4");
        assert_eq!(encoded("-._~/ é+%".as_bytes()), b"-._~%2F%20%C3%A9%2B%25");
    }

    proptest! {
        #[test]
        fn encoded_bytes_are_decoded(bytes: Vec<u8>) {
            prop_assert_eq!(percent_decode(&encoded(&bytes)), bytes);
        }
    }
}
