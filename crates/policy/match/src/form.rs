//! Names and values of query parameters, decoded as in forms.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::matching::path::decode;

/// Values of query parameters up to this length are decoded without allocating.
const VALUE_BYTES_INLINE: usize = 256;

/// Decodes percent-encoding as in forms (`+` is a space), and copies only if necessary.
pub(crate) fn with_decoded<T>(bytes: &[u8], ask: impl FnOnce(&[u8]) -> T) -> T {
    if memchr::memchr2(b'%', b'+', bytes).is_none() {
        return ask(bytes);
    }
    let mut decoded = SmallVec::<[u8; VALUE_BYTES_INLINE]>::new();
    for (at, part) in bytes.split(|byte| *byte == b'+').enumerate() {
        if at > 0 {
            decoded.push(b' ');
        }
        decode(part, |part| decoded.extend_from_slice(part));
    }
    ask(&decoded)
}

/// Returns `true` if the decoded name or value of a query parameter equals `plain`.
pub fn is_same_decoded(encoded: &[u8], plain: &[u8]) -> bool {
    with_decoded(encoded, |decoded| decoded == plain)
}

/// Decodes the value of a query parameter.
pub fn decode_form(bytes: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr2(b'%', b'+', bytes) {
        None => Cow::Borrowed(bytes),
        Some(_) => with_decoded(bytes, |decoded| Cow::Owned(decoded.to_vec())),
    }
}
