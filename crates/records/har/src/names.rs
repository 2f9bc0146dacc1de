//! Names stay, since without them nothing could be read of an archive. Some are no names: where a body is not what its type says, a
//! piece of it is taken for one, and some APIs put a person's address where a name belongs.

use crate::detect;

/// Longer names are none.
const NAME_BYTES_MAX: usize = 256;

/// Whether what stands in the place of a name may tell what a value would, and has to be obfuscated as one.
pub(crate) fn is_telling(name: &str) -> bool {
    name.len() > NAME_BYTES_MAX || detect::holds_secret(name)
}

/// The same where names are plain words: of header fields, parameters, cookies and fields of forms.
pub(crate) fn is_no_word(name: &str) -> bool {
    let is_odd = |byte: u8| {
        matches!(byte, 0..=b' ' | 0x7f | b'"' | b'\\' | b'{' | b'}' | b'<' | b'>' | b'&' | b';' | b'=' | b'`')
    };
    name.bytes().any(is_odd) || is_telling(name)
}
