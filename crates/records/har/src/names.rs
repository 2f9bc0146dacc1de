//! Detects names that may reveal a value. Names are kept, because an archive is unreadable without them. But
//! a malformed body can yield a piece of data as a name, and some APIs put an e-mail address where a name
//! belongs.

use crate::detect;

/// Maximum length of a name. Longer texts are not treated as names.
const NAME_BYTES_MAX: usize = 256;

/// Returns `true` if a text in the position of a name may reveal a value and has to be obfuscated as one.
pub(crate) fn may_reveal_value(name: &str) -> bool {
    name.len() > NAME_BYTES_MAX || detect::holds_secret(name)
}

/// Returns `true` if a name may reveal a value, or has characters that are unusual in the names of header
/// fields, parameters, cookies and form fields.
pub(crate) fn is_unusual_name(name: &str) -> bool {
    let is_odd = |byte: u8| {
        matches!(byte, 0..=b' ' | 0x7f | b'"' | b'\\' | b'{' | b'}' | b'<' | b'>' | b'&' | b';' | b'=' | b'`')
    };
    name.bytes().any(is_odd) || may_reveal_value(name)
}
