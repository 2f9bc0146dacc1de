//! Reads the `charset` parameter of media types, and decodes UTF-16.

use crate::media::{self, Syntax};

/// A charset, as finely as this crate has to distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// UTF-8, ASCII, or no charset given.
    Utf8,
    /// ISO 8859-1: every byte is a character.
    Latin1,
    /// UTF-16, with the byte order if the name includes it.
    Utf16(Option<Order>),
    /// A charset that encodes ASCII characters as their ASCII bytes, with at most zero bytes between them,
    /// and uses those bytes for no other character.
    AsciiBased,
    /// An unknown charset, or one that may encode ASCII characters as other bytes.
    Other,
}

/// Byte order of UTF-16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The higher byte comes first.
    Big,
    /// The lower byte comes first.
    Little,
}

/// Prefixes of other ASCII-compatible charset names in the IANA registry.
const ASCII_BASED: [&str; 16] = [
    "windows-",
    "cp125",
    "iso-8859-",
    "iso8859-",
    "iso_8859-",
    "latin",
    "koi8-",
    "gb",
    "big5",
    "euc-",
    "shift_jis",
    "sjis",
    "macintosh",
    "tis-620",
    "utf-32",
    "ks_c_",
];

/// Returns the charset of a media type.
pub(crate) fn of(media_type: &str) -> Charset {
    let named = media::parameters(media_type).find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    match named.map(|(_, charset)| charset.to_ascii_lowercase()).as_deref() {
        None | Some("" | "utf-8" | "utf8" | "us-ascii" | "ascii") => Charset::Utf8,
        Some("iso-8859-1" | "latin1" | "latin-1" | "l1") => Charset::Latin1,
        Some("utf-16" | "utf16" | "unicode" | "ucs-2" | "iso-10646-ucs-2") => Charset::Utf16(None),
        Some("utf-16be" | "utf16be") => Charset::Utf16(Some(Order::Big)),
        Some("utf-16le" | "utf16le") => Charset::Utf16(Some(Order::Little)),
        Some(other) if ASCII_BASED.iter().any(|known| other.starts_with(known)) => Charset::AsciiBased,
        Some(_) => Charset::Other,
    }
}

/// Decodes a body in UTF-16 (RFC 2781), identified by its charset or, for textual media types without one, by
/// its byte order mark. The mark is removed. Returns `None` if the body is in another charset or is
/// malformed. With `is_cut`, the body may end within a character.
pub(crate) fn utf_16(bytes: &[u8], media_type: &str, is_cut: bool) -> Option<String> {
    let (marked, rest) = match bytes {
        [0xfe, 0xff, rest @ ..] => (Some(Order::Big), rest),
        [0xff, 0xfe, rest @ ..] => (Some(Order::Little), rest),
        _ => (None, bytes),
    };
    let order = match of(media_type) {
        Charset::Utf16(named) => marked.or(named).unwrap_or_else(|| likely(rest)),
        _ if is_textual(media_type) => marked?,
        _ => return None,
    };
    // Blanks and line ends contain a zero byte, so a body without any is hardly UTF-16. Decoding it would
    // yield characters that cannot be searched for secrets.
    if marked.is_none() && !rest.contains(&0) {
        return None;
    }
    let (units, rest_bytes) = rest.as_chunks::<2>();
    if !rest_bytes.is_empty() && !is_cut {
        return None;
    }
    let unit = |unit: &[u8; 2]| match order {
        Order::Big => u16::from_be_bytes(*unit),
        Order::Little => u16::from_le_bytes(*unit),
    };
    let is_half = units.last().is_some_and(|last| (0xd800..0xdc00).contains(&unit(last)));
    let units = if is_half && is_cut { &units[..units.len() - 1] } else { units };
    char::decode_utf16(units.iter().map(unit)).collect::<Result<String, _>>().ok()
}

/// Guesses the byte order: ASCII characters have a zero as their higher byte. Without any zero it is
/// big-endian (RFC 2781 §4.3).
fn likely(bytes: &[u8]) -> Order {
    let zeros = |offset: usize| bytes.iter().skip(offset).step_by(2).filter(|byte| **byte == 0).count();
    if zeros(1) > zeros(0) { Order::Little } else { Order::Big }
}

/// Returns `true` if bodies of this media type are text.
fn is_textual(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || matches!(media::syntax(media_type), Syntax::Json | Syntax::Form)
        || ["json", "xml", "javascript", "yaml"].iter().any(|word| essence.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, order: Order) -> Vec<u8> {
        let bytes = |unit: u16| if order == Order::Big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn utf_16_is_read_by_its_charset_or_its_mark() {
        let text = "{\"a\":\"é😀\"}";
        for order in [Order::Big, Order::Little] {
            let (bytes, name) =
                (encoded(text, order), if order == Order::Big { "utf-16be" } else { "UTF-16LE" });
            let marked = [encoded("\u{feff}", order), bytes.clone()].concat();
            for (media_type, bytes) in [
                ("text/plain; charset=utf-16".to_owned(), &bytes),
                ("text/plain; charset=utf-16".to_owned(), &marked),
                (format!("x/y; charset={name}"), &bytes),
                (format!("x/y; charset={name}"), &marked),
                ("application/json".to_owned(), &marked),
                ("text/html; charset=utf-8".to_owned(), &marked),
            ] {
                assert_eq!(utf_16(bytes, &media_type, false).as_deref(), Some(text), "{media_type}");
            }
            assert_eq!(utf_16(&bytes[..bytes.len() - 1], "x/y; charset=utf-16", false), None);
            let cut = utf_16(&bytes[..bytes.len() - 7], "x/y; charset=utf-16", true).unwrap();
            assert_eq!(cut, "{\"a\":\"é");
            for media_type in ["text/plain", "image/png", ""] {
                assert_eq!(utf_16(&bytes, media_type, false), None, "{media_type}");
            }
            assert_eq!(utf_16(&marked, "image/png", false), None);
        }
        for bytes in [&b"\xd8\0\0a"[..], b"password=hunter2", "caf\u{e9} ".as_bytes()] {
            assert_eq!(utf_16(bytes, "x/y; charset=utf-16", true), None, "{bytes:?}");
        }
    }

    #[test]
    fn charsets_are_told_apart() {
        for (charset, expected) in [
            ("utf-8", Charset::Utf8),
            ("ISO-8859-1", Charset::Latin1),
            ("\"utf-16\"", Charset::Utf16(None)),
            ("windows-1252", Charset::AsciiBased),
            ("Shift_JIS", Charset::AsciiBased),
            ("utf-7", Charset::Other),
            ("cp037", Charset::Other),
        ] {
            assert_eq!(of(&format!("text/plain; charset={charset}")), expected, "{charset}");
        }
        assert_eq!(of("text/plain"), Charset::Utf8);
    }
}
