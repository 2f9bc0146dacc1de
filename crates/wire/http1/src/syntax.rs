//! Character classes of the grammar of RFC 9110 §5, RFC 9112 and RFC 3986, in one table.

use egret_items::bytes::{below, equal, find};

/// The end of a line (RFC 9112 §2.2).
pub const CRLF: &[u8] = b"\r\n";

/// `tchar` (RFC 9110 §5.6.2): the characters of method names, field names and codings.
const TOKEN: u8 = 1;
/// Bytes of a field value (RFC 9110 §5.5): visible, space, tab and obs-text.
const VALUE: u8 = 1 << 1;
/// Bytes of a request target: those of a URI (RFC 3986 §2) without `#`, which is never sent.
const TARGET: u8 = 1 << 2;
/// Bytes of a host name. Narrower than `reg-name` (RFC 3986 §3.2.2): percent-encoding and the delimiters
/// `!$&'()*+,;=` are excluded, because two parsers could read two different hosts.
const HOST: u8 = 1 << 3;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        let alphanumeric = byte.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric || is_in(byte, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            class |= VALUE;
        }
        if alphanumeric || is_in(byte, b"-._~:/?[]@!$&'()*+,;=%") {
            class |= TARGET;
        }
        if alphanumeric || is_in(byte, b"-._~") {
            class |= HOST;
        }
        classes[byte as usize] = class;
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    classes
};

const fn is_in(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

/// Returns `true` if all `bytes` are of `class`. It does not branch per byte, because almost all messages are
/// well-formed.
#[inline]
fn all(bytes: &[u8], class: u8) -> bool {
    let common = |classes: u8, byte: &u8| classes & CLASSES[usize::from(*byte)];
    let (words, rest) = bytes.as_chunks::<8>();
    let classes = words.iter().fold(class, |classes, word| word.iter().fold(classes, common));
    rest.iter().fold(classes, common) & class == class
}

/// Returns `true` if `bytes` is a token: not empty, `tchar` only.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Number of bytes at the start of `bytes` that are token characters.
#[inline]
pub fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| CLASSES[usize::from(byte)] & TOKEN == 0).unwrap_or(bytes.len())
}

/// Returns the position of the first space or control character.
#[inline]
pub fn find_space(bytes: &[u8]) -> Option<usize> {
    find(bytes, |word| below(word, b' ' + 1), |byte| byte <= b' ')
}

/// Returns the position of the first colon or control character.
#[inline]
pub fn find_colon(bytes: &[u8]) -> Option<usize> {
    let marks = |word| below(word, b' ') | equal(word, b':');
    find(bytes, marks, |byte| byte < b' ' || byte == b':')
}

/// Returns the position of the first byte not allowed in a field value: in a valid line, the CR of the line
/// end.
#[inline]
pub fn find_control(bytes: &[u8]) -> Option<usize> {
    let marks = |word| below(word, b' ') | equal(word, 0x7f);
    let mut start = 0;
    loop {
        let found = start + find(&bytes[start..], marks, |byte| byte < b' ' || byte == 0x7f)?;
        if bytes[found] != b'\t' {
            return Some(found);
        }
        start = found + 1;
    }
}

/// Returns `true` if `bytes` is a valid field value: no control character except tab.
pub fn is_field_value(bytes: &[u8]) -> bool {
    all(bytes, VALUE)
}

/// Returns `true` if `byte` is allowed in a field value.
pub fn is_value_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & VALUE != 0
}

/// Returns `true` if all `bytes` are allowed in a request target.
pub fn is_target(bytes: &[u8]) -> bool {
    all(bytes, TARGET)
}

/// Returns `true` if `bytes` may be a host name or an IPv4 address.
pub fn is_host_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, HOST)
}

/// Returns `true` if `byte` is optional white space (RFC 9110 §5.6.3).
pub fn is_white_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Removes optional white space from both ends of `bytes`.
pub fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(trim_start(bytes))
}

/// Removes optional white space from the start of `bytes`: almost always one space or none.
#[inline]
pub fn trim_start(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
    if bytes.first().is_some_and(|&byte| is_white_space(byte)) { trim_start_slow(bytes) } else { bytes }
}

#[cold]
fn trim_start_slow(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_white_space(*first)
    {
        bytes = rest;
    }
    bytes
}

/// Removes optional white space from the end of `bytes`: almost always there is none.
#[inline]
pub fn trim_end(bytes: &[u8]) -> &[u8] {
    if bytes.last().is_some_and(|&byte| is_white_space(byte)) { trim_end_slow(bytes) } else { bytes }
}

#[cold]
fn trim_end_slow(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., last] = bytes
        && is_white_space(*last)
    {
        bytes = rest;
    }
    bytes
}

/// Iterates over the members of a comma-separated list (RFC 9110 §5.6.1), trimmed, including empty ones.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}

/// Parses decimal digits. Returns `None` for anything else and for more than 19 digits, so it never
/// overflows.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits
        .iter()
        .try_fold(0_u64, |number, &byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

/// Appends `number` in decimal digits, without the overhead of the standard library's formatting.
pub fn push_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        start -= 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_follow_the_grammar() {
        for byte in 0..=u8::MAX {
            let token = byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
            assert_eq!(is_token(&[byte]), token, "token {byte:#x}");
            let value = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
            assert_eq!(is_field_value(&[byte]), value, "value {byte:#x}");
            let target = byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
            assert_eq!(is_target(&[byte]), target, "target {byte:#x}");
        }
        assert!(!is_token(b"") && !is_host_name(b""));
    }

    #[test]
    fn the_first_control_is_found_wherever_it_stands() {
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert_eq!((find_control(&bytes), find_colon(&bytes)), (None, None));
            for at in (0..len).rev() {
                // The bytes after it do not matter.
                bytes[at] = 0x7f;
                assert_eq!(find_control(&bytes), Some(at));
                bytes[at] = b':';
                assert_eq!((find_control(&bytes[..=at]), find_colon(&bytes)), (None, Some(at)));
                bytes[at] = b'\r';
                assert_eq!((find_control(&bytes), find_colon(&bytes)), (Some(at), Some(at)));
            }
        }
        for byte in 0..=u8::MAX {
            let bytes = [b'a', byte, b'b', byte ^ 1, byte, 0, b':', b':', b':'];
            let first = bytes.iter().position(|&byte| !is_value_byte(byte));
            assert_eq!(find_control(&bytes), first, "{byte:#x}");
            let first = bytes.iter().position(|&byte| byte == b':' || byte < b' ');
            assert_eq!(find_colon(&bytes), first, "{byte:#x}");
        }
    }

    proptest! {
        #[test]
        fn a_fast_search_finds_what_a_slow_one_finds(
            bytes in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'\t'), any::<u8>()], 0..80)
        ) {
            for start in 0..bytes.len() {
                let bytes = &bytes[start..];
                let control = bytes.iter().position(|&byte| !is_value_byte(byte));
                prop_assert_eq!(find_control(bytes), control);
                let colon = bytes.iter().position(|&byte| byte == b':' || byte < b' ');
                prop_assert_eq!(find_colon(bytes), colon);
            }
        }
    }

    #[test]
    fn a_token_ends_at_its_first_other_byte() {
        assert_eq!(token_len(b"Host: a"), 4);
        assert_eq!((token_len(b"Host"), token_len(b": a"), token_len(b"")), (4, 0, 0));
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        let powers = (0..20).map(|power| 10_u64.pow(power)).flat_map(|power| [power - 1, power, power + 1]);
        for number in powers.chain([u64::MAX, 12_345_678_909_876_543_210]) {
            let mut out = b"= ".to_vec();
            push_decimal(number, &mut out);
            assert_eq!(out, format!("= {number}").as_bytes());
        }
    }

    #[test]
    fn decimals_are_plain_digits() {
        let rows: &[(&[u8], Option<u64>)] = &[
            (b"0", Some(0)),
            (b"007", Some(7)),
            (b"9999999999999999999", Some(9_999_999_999_999_999_999)),
            (b"10000000000000000000", None),
            (b"", None),
            (b"+1", None),
            (b"-1", None),
            (b"0x1", None),
            (b"1_0", None),
            (b"1 0", None),
            (b"1,1", None),
            (b"\xd9\xa1", None),
        ];
        for (digits, expected) in rows {
            assert_eq!(decimal(digits), *expected, "{digits:?}");
        }
    }

    #[test]
    fn lists_keep_empty_members() {
        let members: Vec<_> = list(b" a ,,\tb\t").collect();
        assert_eq!(members, [&b"a"[..], b"", b"b"]);
    }
}
