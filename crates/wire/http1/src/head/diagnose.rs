//! Which rule a head breaks that was refused: reading it fast only shows that there is one. Runs on refusal only.

use memchr::memchr_iter;

use super::HeadError;
use crate::syntax::{find_control, is_field_value, is_target, is_token, token_len, trim};

/// The error for the request line `line`, without its line end, that is not well-formed.
#[cold]
pub(super) fn request_line(line: &[u8]) -> HeadError {
    if line.contains(&b'\r') {
        return HeadError::BareCarriageReturn;
    }
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), ..) if !is_token(method) => HeadError::Method,
        // What HTTP/0.9 asked with has no version.
        (_, Some(target), Some(version), more) if !target.is_empty() && is_target(target) => {
            if more.is_some() { HeadError::StartLine } else { self::version(version) }
        }
        _ => HeadError::Target,
    }
}

/// The error for the status line `line`, without its line end, that is not well-formed.
#[cold]
pub(super) fn status_line(line: &[u8]) -> HeadError {
    match line.split(|&byte| byte == b' ').next() {
        Some(b"HTTP/1.0" | b"HTTP/1.1") | None => HeadError::Status,
        Some(word) => version(word),
    }
}

/// What can be said of a request whose start line has no end yet: another protocol shows in its first bytes, and a CR that nothing
/// good can follow.
#[cold]
pub(super) fn request_start(line: &[u8]) -> Result<(), HeadError> {
    match line.get(token_len(line)) {
        None | Some(b' ' | b'\r') => {}
        Some(_) => return Err(HeadError::Method),
    }
    if has_inner_control(line) { Err(request_line(line)) } else { Ok(()) }
}

/// What can be said of a response whose status line has no end yet.
#[cold]
pub(super) fn response_start(line: &[u8]) -> Result<(), HeadError> {
    const VERSIONS: &[u8] = b"HTTP/1.";
    let known = line.len().min(VERSIONS.len());
    if line[..known] != VERSIONS[..known] {
        return Err(HeadError::Version);
    }
    if has_inner_control(line) { Err(status_line(line)) } else { Ok(()) }
}

/// Whether there is a control in `line` other than the CR of a line end that is still to come.
fn has_inner_control(line: &[u8]) -> bool {
    find_control(line).is_some_and(|at| line[at..] != *b"\r")
}

/// A version of the right shape is one that is not supported (RFC 9112 §2.3), any other text is no version.
fn version(word: &[u8]) -> HeadError {
    match word {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', _, ..] => HeadError::StartLine,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::UnsupportedVersion
        }
        _ => HeadError::Version,
    }
}

/// The error for the field line at the start of `rest`, which comes after `before` and is not well-formed.
#[cold]
pub(super) fn field_line(before: &[u8], rest: &[u8]) -> HeadError {
    let line = rest.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_first = memchr_iter(b'\n', before).take(2).count() <= 1;
    field(line, is_first).unwrap_or(HeadError::FieldName)
}

fn field(line: &[u8], first: bool) -> Option<HeadError> {
    let text = line.strip_suffix(b"\r\n").unwrap_or(line);
    match text {
        [] => return None,
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
