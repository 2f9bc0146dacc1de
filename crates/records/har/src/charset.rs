//! What a body's `charset` says of its bytes, and UTF-16 as text.

use crate::media::{self, Syntax};

/// A charset, as far as it has to be told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// UTF-8, ASCII, or none that is named.
    Utf8,
    /// ISO 8859-1: every byte is a letter.
    Latin1,
    /// UTF-16, with its byte order where that is named.
    Utf16(Option<Order>),
    /// One in which bytes of ASCII are ASCII, and letters of ASCII are those bytes, with zeros between them at most.
    AsciiBased,
    /// One in which ASCII may stand as anything, or which nobody knows.
    Other,
}

/// Which byte of a letter comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The higher.
    Big,
    /// The lower.
    Little,
}

/// How others begin whose ASCII is ASCII, by their names in the registry of IANA.
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

/// The charset that a media type names.
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

/// The text of a body in UTF-16 (RFC 2781), by its charset or, where it is text without one, by its byte order mark, which is left out.
/// `None` where it is in another charset, or no UTF-16. One that is cut may end within a letter.
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
    // Blanks and line ends have a zero. What has none is hardly in it, and would be told as letters that nobody can search.
    if marked.is_none() && !rest.contains(&0) {
        return None;
    }
    let (units, left) = rest.as_chunks::<2>();
    if !left.is_empty() && !is_cut {
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

/// Letters of ASCII have their zero where the higher byte is. Without any it is the higher byte first (RFC 2781 §4.3).
fn likely(bytes: &[u8]) -> Order {
    let zeros = |place: usize| bytes.iter().skip(place).step_by(2).filter(|byte| **byte == 0).count();
    if zeros(1) > zeros(0) { Order::Little } else { Order::Big }
}

/// Whether a body of this type is text.
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
