//! Finds the rule that a rejected head breaks. The fast parser only detects that a rule is broken; this runs
//! on rejection only.

use memchr::memchr_iter;

use super::error::HeadError;
use crate::syntax::{find_control, is_field_value, is_target, is_token, token_len, trim};

/// Returns the error for the malformed request line `line`, given without its line end.
#[cold]
pub(super) fn request_line(line: &[u8]) -> HeadError {
    if line.contains(&b'\r') {
        return HeadError::BareCarriageReturn;
    }
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), ..) if !is_token(method) => HeadError::Method,
        // HTTP/0.9 requests have no version.
        (_, Some(target), Some(version), more) if !target.is_empty() && is_target(target) => {
            if more.is_some() { HeadError::StartLine } else { self::version(version) }
        }
        _ => HeadError::Target,
    }
}

/// Returns the error for the malformed status line `line`, given without its line end.
#[cold]
pub(super) fn status_line(line: &[u8]) -> HeadError {
    match line.split(|&byte| byte == b' ').next() {
        Some(b"HTTP/1.0" | b"HTTP/1.1") | None => HeadError::Status,
        Some(word) => version(word),
    }
}

/// Rejects an incomplete request line early: its first bytes belong to another protocol, or it holds a CR
/// that cannot be part of a line end.
#[cold]
pub(super) fn request_start(line: &[u8]) -> Result<(), HeadError> {
    match line.get(token_len(line)) {
        None | Some(b' ' | b'\r') => {}
        Some(_) => return Err(HeadError::Method),
    }
    if has_inner_control(line) { Err(request_line(line)) } else { Ok(()) }
}

/// Rejects an incomplete status line early.
#[cold]
pub(super) fn response_start(line: &[u8]) -> Result<(), HeadError> {
    const VERSIONS: &[u8] = b"HTTP/1.";
    let known = line.len().min(VERSIONS.len());
    if line[..known] != VERSIONS[..known] {
        return Err(HeadError::Version);
    }
    if has_inner_control(line) { Err(status_line(line)) } else { Ok(()) }
}

/// Returns `true` if `line` holds a control character other than a final CR, which may belong to the line
/// end.
fn has_inner_control(line: &[u8]) -> bool {
    find_control(line).is_some_and(|at| line[at..] != *b"\r")
}

/// Returns `UnsupportedVersion` for text in the form of a version (RFC 9112 §2.3), `Version` for any other
/// text.
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

/// Returns the error for the malformed field line at the start of `rest`, which follows `before`.
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
