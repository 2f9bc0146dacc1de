//! Which rule a head breaks that httparse refuses: its errors are coarser than ours. Runs on refusal only.

use super::HeadError;
use crate::syntax::{is_field_value, is_token, trim};

/// The error for a request head that httparse refused with `error`.
#[cold]
pub(super) fn request(head: &[u8], error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::Token => request_line(first_line(head)),
        httparse::Error::Version => request_version(first_line(head)),
        _ => common(head, error),
    }
}

/// The error for a response head that httparse refused with `error`.
#[cold]
pub(super) fn response(head: &[u8], error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::Version => {
            version(first_line(head).split(|&byte| byte == b' ').next().unwrap_or_default())
        }
        httparse::Error::Status | httparse::Error::Token => HeadError::Status,
        _ => common(head, error),
    }
}

fn common(head: &[u8], error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => fields(head),
        // An end of line was expected and something else came: more text on the start line, or a CR alone.
        _ if first_line_has_more(head) => HeadError::StartLine,
        _ => HeadError::BareCarriageReturn,
    }
}

/// The start line without its end, empty lines before it passed over.
fn first_line(head: &[u8]) -> &[u8] {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(head.len());
    let line = &head[start..];
    &line[..line.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(line.len())]
}

fn request_line(line: &[u8]) -> HeadError {
    let method = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    if is_token(method) { HeadError::Target } else { HeadError::Method }
}

/// The version is the third of three words.
fn request_version(line: &[u8]) -> HeadError {
    let mut words = line.split(|&byte| byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some(word), None) => version(word),
        _ => HeadError::StartLine,
    }
}

/// A version of the right shape is one that is not supported (RFC 9112 §2.3), any other text is no version.
fn version(word: &[u8]) -> HeadError {
    match word {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::UnsupportedVersion
        }
        _ => HeadError::Version,
    }
}

/// The first field line that breaks a rule says which.
fn fields(head: &[u8]) -> HeadError {
    let mut lines =
        head.split_inclusive(|&byte| byte == b'\n').skip_while(|line| matches!(*line, b"\r\n" | b"\n"));
    if lines.next().is_some_and(|line| !line.ends_with(b"\r\n")) {
        return HeadError::BareLineFeed;
    }
    for (at, line) in lines.enumerate() {
        if let Some(error) = field(line, at == 0) {
            return error;
        }
    }
    HeadError::FieldName
}

fn field(line: &[u8], first: bool) -> Option<HeadError> {
    let text = line.strip_suffix(b"\r\n").unwrap_or(line);
    match text {
        [b' ' | b'\t', ..] if first => return Some(HeadError::LeadingSpace),
        [b' ' | b'\t', ..] => return Some(HeadError::FoldedField),
        [b':', ..] => return Some(HeadError::EmptyFieldName),
        _ => {}
    }
    if text.contains(&b'\r') {
        return Some(HeadError::BareCarriageReturn);
    }
    if text.len() == line.len() && line.ends_with(b"\n") {
        return Some(HeadError::BareLineFeed);
    }
    let Some(colon) = text.iter().position(|&byte| byte == b':') else { return Some(HeadError::FieldName) };
    let (name, value) = (&text[..colon], &text[colon + 1..]);
    match (is_token(name), is_token(trim(name))) {
        (true, _) => (!is_field_value(value)).then_some(HeadError::FieldValue),
        (false, true) => Some(HeadError::SpaceBeforeColon),
        (false, false) => Some(HeadError::FieldName),
    }
}

/// Whether the start line goes on after its version.
fn first_line_has_more(head: &[u8]) -> bool {
    let version = first_line(head).splitn(3, |&byte| byte == b' ').nth(2);
    !head.starts_with(b"\r") && version.is_some_and(|version| version.len() > b"HTTP/1.1".len())
}
