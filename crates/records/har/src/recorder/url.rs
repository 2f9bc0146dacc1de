//! Writes the URL of a request and its parameters.
//!
//! Obfuscated URLs are composed of parts that are cached separately: URLs rarely recur as a whole, but most
//! of their parts do.

use std::fmt::Write as _;

use egret_json::write_escaped;

use super::characters::utf8_or_latin1;
use super::pieces::text;
use super::{Buffers, Recorder, json};
use crate::har::NameValue;
use crate::memo::{Memo, MemoKey, MemoKind};
use crate::obfuscate::{MessageKind, Obfuscator};
use crate::observed::ObservedRequest;
use crate::parameters::{self, Encodings};
use crate::redact::Redact as _;

impl Recorder {
    /// Writes `url` and `queryString`.
    pub(super) fn url(&mut self, request: &ObservedRequest<'_>, out: &mut Vec<u8>) {
        let Self { redaction, memo, buffers, .. } = self;
        let memo = memo.get_mut();
        if let Some(obfuscator) = redaction.as_obfuscator()
            && is_plain(request.target)
        {
            let start = out.len();
            if by_parts(obfuscator, memo, buffers, request, out) {
                return;
            }
            out.truncate(start);
        }
        let url = &mut buffers.text;
        url.clear();
        write_origin(request, url);
        write_target(request, url);
        memo.write(MemoKey::unnamed(MemoKind::Url, url.as_bytes()), out, |out| {
            let mut obfuscated = url.clone();
            let mut parameters = query(url);
            redaction.url(&mut obfuscated, &mut parameters);
            out.extend_from_slice(b",\"url\":");
            text(obfuscated.as_bytes(), out);
            out.extend_from_slice(b",\"queryString\":");
            json(&parameters, out);
        });
    }
}

/// Returns `true` for bytes that a URL may contain (RFC 3986 §2, and others that clients send).
fn is_allowed(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && byte != b'#'
}

/// Returns `true` if a target can be copied into the URL unchanged. A loop without an early exit lets the
/// compiler check many bytes at once.
fn is_plain(target: &[u8]) -> bool {
    matches!(target.first(), None | Some(b'/' | b'?'))
        && target.iter().fold(true, |is_plain, byte| is_plain & is_allowed(*byte))
}

/// Writes an obfuscated URL part by part. Returns `false` if that is impossible because a part depends on
/// others.
fn by_parts(
    obfuscator: &Obfuscator,
    memo: &mut Memo,
    buffers: &mut Buffers,
    request: &ObservedRequest<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let mut parts = request.target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next());
    out.extend_from_slice(b",\"url\":\"");
    let [high, low] = request.port.to_be_bytes();
    let place = [u8::from(request.tls), high, low];
    let key = MemoKey { kind: MemoKind::Origin, name: &place, value: request.host.as_bytes() };
    memo.write(key, out, |out| {
        let mut origin = String::new();
        write_origin(request, &mut origin);
        obfuscator.url(&mut origin, &mut []);
        write_escaped(origin.as_bytes(), out);
    });
    let has_positions = obfuscator.side(MessageKind::Request).has_segments();
    for (index, segment) in path.split(|byte| *byte == b'/').skip(1).enumerate() {
        out.push(b'/');
        let position = index.to_le_bytes();
        let position = if has_positions { &position[..] } else { b"" };
        memo.write(MemoKey { kind: MemoKind::Segment, name: position, value: segment }, out, |out| {
            match obfuscator.segment(index, &utf8_or_latin1(segment)) {
                Some(hidden) => out.extend_from_slice(hidden.as_bytes()),
                None => write_escaped(segment, out),
            }
        });
    }
    buffers.parameters.clear();
    for (index, part) in query.into_iter().flat_map(|query| query.split(|byte| *byte == b'&')).enumerate() {
        out.push(if index > 0 { b'&' } else { b'?' });
        if part.is_empty() {
            continue;
        }
        buffers.parameter.clear();
        memo.write(MemoKey::unnamed(MemoKind::Parameter, part), &mut buffers.parameter, |out| {
            parameter(obfuscator, &utf8_or_latin1(part), out);
        });
        // One form is for the URL, the other for the list.
        let Some((in_url, in_list)) = split(&buffers.parameter) else { return false };
        out.extend_from_slice(in_url);
        if !buffers.parameters.is_empty() {
            buffers.parameters.push(b',');
        }
        buffers.parameters.extend_from_slice(in_list);
    }
    out.extend_from_slice(b"\",\"queryString\":[");
    out.extend_from_slice(&buffers.parameters);
    out.push(b']');
    true
}

/// Appends a parameter in two forms, for the URL and for the list, after the length of the first. Appends
/// nothing if it is not a name and a value in UTF-8.
fn parameter(obfuscator: &Obfuscator, part: &str, out: &mut Vec<u8>) {
    let Some((name, value)) = part.split_once('=') else { return };
    let [name, value] = [name, value].map(|encoded| String::from_utf8(parameters::decode(encoded, true)));
    let (Ok(name), Ok(value)) = (name, value) else { return };
    let mut in_url = Vec::new();
    write_escaped(obfuscator.url_parameter(part).as_bytes(), &mut in_url);
    let mut pair = NameValue::new(name, value);
    obfuscator.parameter(&mut pair, &Encodings::default());
    out.extend_from_slice(&in_url.len().to_le_bytes());
    out.extend_from_slice(&in_url);
    json(&pair, out);
}

fn split(parameter: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = parameter.split_first_chunk()?;
    rest.split_at_checked(usize::from_le_bytes(*len))
}

/// Writes scheme, host and port. The default port is left out, and the host is encoded so it cannot be read
/// as anything else.
fn write_origin(request: &ObservedRequest<'_>, url: &mut String) {
    url.push_str(if request.tls { "https://" } else { "http://" });
    let host = request.host;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_literal = host.contains(':');
    if is_literal {
        url.push('[');
    }
    parameters::encode(host.as_bytes(), |byte| parameters::is_unreserved(byte) || byte == b':', url);
    if is_literal {
        url.push(']');
    }
    if request.port != if request.tls { 443 } else { 80 } {
        // Writing to a `String` cannot fail.
        let _ = write!(url, ":{}", request.port);
    }
}

/// Writes path and query, with encoding of bytes that a URL cannot contain: `#`, spaces, control characters,
/// and all outside ASCII.
fn write_target(request: &ObservedRequest<'_>, url: &mut String) {
    // The asterisk of `OPTIONS *` is not a path (RFC 9112 §3.3).
    let target = if request.target == b"*" { b"" } else { request.target };
    if !matches!(target.first(), None | Some(b'/' | b'?')) {
        url.push('/');
    }
    parameters::encode(target, is_allowed, url);
}

/// Parses the parameters of a URL, decoded.
fn query(url: &str) -> Vec<NameValue> {
    let Some((_, query)) = url.split_once('?') else { return Vec::new() };
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let text = |encoded: &str| utf8_or_latin1(&parameters::decode(encoded, true)).into_owned();
    pairs.map(|(name, value)| NameValue::new(text(name), text(value))).collect()
}
