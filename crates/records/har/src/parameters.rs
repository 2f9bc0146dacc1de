//! Parses, decodes and obfuscates the parameters of URLs and forms: `name=value&name=value`, percent-encoded.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::key::Key;
use crate::names;

/// Encoded and decoded forms of the parts of a text. HAR recorders list parameters in either form; this maps
/// both to the decoded one.
#[derive(Default)]
pub(crate) struct Encodings {
    decoded: HashMap<Vec<u8>, Vec<u8>>,
    /// Parts without `=`, decoded.
    bare: HashSet<Vec<u8>>,
}

impl Encodings {
    /// Decodes a name or value of the text. One that the text does not contain is returned as it is.
    pub(crate) fn read(&self, encoded: &str) -> Vec<u8> {
        self.decoded.get(encoded.as_bytes()).map_or_else(|| encoded.as_bytes().to_vec(), Clone::clone)
    }

    /// Returns `true` if a part has no `=` in the text, so it may be a name or a value.
    pub(crate) fn is_bare(&self, decoded: &[u8]) -> bool {
        self.bare.contains(decoded)
    }

    /// Adds a part. Some recorders decode `+`, some only percent-encoding, some nothing.
    fn add(&mut self, encoded: &str) -> Vec<u8> {
        let decoded = decode(encoded, true);
        for form in [encoded.as_bytes().to_vec(), decode(encoded, false)] {
            self.decoded.entry(form).or_insert_with(|| decoded.clone());
        }
        // A decoded part is not decoded a second time.
        self.decoded.insert(decoded.clone(), decoded.clone());
        decoded
    }
}

/// Obfuscates the values in a text, except those whose name `is_kept` accepts. An empty value stays empty. A
/// part without `=` counts as a value unless its name is kept.
pub(crate) fn obfuscate(
    key: &Key,
    text: &str,
    is_kept: impl Fn(&str) -> bool,
    encodings: &mut Encodings,
) -> String {
    let parts = text.split('&').map(|part| {
        let (encoded_name, encoded_value) =
            part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
        let bytes = encodings.add(encoded_name);
        let name = String::from_utf8_lossy(&bytes);
        let (is_kept, is_word) = (is_kept(&name), !names::is_unusual_name(&name));
        let Some(encoded_value) = encoded_value else {
            if part.is_empty() {
                return String::new();
            }
            encodings.bare.insert(bytes.clone());
            return if is_kept { part.to_owned() } else { key.text(&bytes).to_string() };
        };
        let value = encodings.add(encoded_value);
        let name = if is_kept || is_word { encoded_name.to_owned() } else { key.text(&bytes).to_string() };
        let value =
            if is_kept || value.is_empty() { encoded_value.to_owned() } else { key.text(&value).to_string() };
        format!("{name}={value}")
    });
    parts.collect::<Vec<_>>().join("&")
}

/// Decodes percent-encoding (RFC 3986 §2.1), and in forms `+` to a space. A `%` that is not followed by two
/// digits stays.
pub(crate) fn decode(text: &str, is_form: bool) -> Vec<u8> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return text.as_bytes().to_vec();
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let pair = after.first_chunk::<2>().filter(|_| *byte == b'%').and_then(|pair| {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(high? << 4 | low?).ok()
        });
        decoded.push(match (pair, byte) {
            (Some(byte), _) => {
                rest = &after[2..];
                byte
            }
            (None, b'+') if is_form => b' ',
            (None, byte) => *byte,
        });
    }
    decoded
}

/// Percent-encodes bytes that are not allowed.
pub(crate) fn encode(bytes: &[u8], is_allowed: impl Fn(u8) -> bool, out: &mut String) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.bytes().all(&is_allowed)
    {
        return out.push_str(text);
    }
    for byte in bytes {
        if is_allowed(*byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns `true` for unreserved characters (RFC 3986 §2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_before_they_are_hidden() {
        let key = Key::new(&[1; 32]);
        let mut encodings = Encodings::default();
        let text = "a=x%20y&b=x+y&page=2+&a%5B%5D=&&bare&%zz=1";
        let xy = key.text(b"x y");
        let hidden = obfuscate(&key, text, |name| name == "page", &mut encodings);
        let (bare, one) = (key.text(b"bare"), key.text(b"1"));
        assert_eq!(hidden, format!("a={xy}&b={xy}&page=2+&a%5B%5D=&&{bare}&%zz={one}"));
        for encoded in ["x%20y", "x+y", "x y"] {
            assert_eq!(encodings.read(encoded), b"x y");
        }
        assert!(encodings.is_bare(b"bare") && !encodings.is_bare(b"page"));
    }

    #[test]
    fn text_other_than_a_form_is_obfuscated() {
        let key = Key::new(&[1; 32]);
        let hidden = obfuscate(&key, "{\"token\":\"s3cret==\"}", |_| false, &mut Encodings::default());
        assert!(!hidden.contains("s3cret") && !hidden.contains("token"), "{hidden}");
    }
}
