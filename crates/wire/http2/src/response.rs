//! The text of a response of HTTP/1.1 as a response of HTTP/2 (RFC 9113 §8.3.2).

use egret_http1::{HeadLimits, MAX_FIELDS, MAX_HEAD, Method, Progress, ResponseHead};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use thiserror::Error;

use crate::request::is_surrounded;

/// Fields about a connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings"];

/// Error: a message cannot be sent in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message cannot be sent in HTTP/2")]
pub struct Untranslatable;

/// Translates the text of a response's head, with the empty line that ends it. The reason phrase and the
/// fields about the connection are dropped.
pub fn response(text: &[u8]) -> Result<Response<()>, Untranslatable> {
    let limits = HeadLimits { head: MAX_HEAD, fields: MAX_FIELDS, ..HeadLimits::default() };
    let mut head = ResponseHead::new();
    // The method matters for the framing alone.
    match head.parse(text, &limits, Method::Get) {
        Ok(Progress::Complete) if head.len == text.len() => {}
        Ok(_) | Err(_) => return Err(Untranslatable),
    }
    // Switching protocols does not exist (RFC 9113 §8.6).
    let status = StatusCode::from_u16(head.status).ok().filter(|_| head.status != 101);
    let mut response = Response::new(());
    *response.status_mut() = status.ok_or(Untranslatable)?;
    let fields = response.headers_mut();
    for field in &head.fields {
        let name = field.name.of(text);
        if !CONNECTION_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            append(fields, name, field.value.of(text))?;
        }
    }
    Ok(response)
}

/// Translates the lines of trailers.
pub fn trailer_map(lines: &[u8]) -> Result<HeaderMap, Untranslatable> {
    let mut fields = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\r") else { continue };
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Untranslatable)?;
        append(&mut fields, &line[..colon], line[colon + 1..].trim_ascii())?;
    }
    Ok(fields)
}

fn append(fields: &mut HeaderMap, name: &[u8], value: &[u8]) -> Result<(), Untranslatable> {
    let name = HeaderName::from_bytes(name).map_err(|_| Untranslatable)?;
    let value = HeaderValue::from_bytes(value).map_err(|_| Untranslatable)?;
    fields.try_append(name, value).map_err(|_| Untranslatable)?;
    Ok(())
}

/// Writes received trailers as lines.
pub(crate) fn trailer_lines(fields: &HeaderMap, lines: &mut Vec<u8>) -> Result<(), Untranslatable> {
    for (name, value) in fields {
        if is_surrounded(value.as_bytes()) {
            return Err(Untranslatable);
        }
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_loses_its_reason_and_its_connection_fields() {
        let text =
            b"HTTP/1.1 404 Not There\r\nContent-Type: a/b\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n\
            Transfer-Encoding: chunked\r\nProxy-Authenticate: Basic\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let response = response(text).unwrap();
        assert_eq!(response.status(), 404);
        let fields: Vec<_> =
            response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("content-type", b"a/b"), ("proxy-authenticate", b"Basic"), ("x-a", b"1"), ("x-a", b"2")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_head_without_a_form_in_http_2_is_refused() {
        for text in [
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\nbody",
            "HTTP/2 200\r\n\r\n",
            "",
        ] {
            assert_eq!(response(text.as_bytes()).err(), Some(Untranslatable), "{text:?}");
        }
    }

    #[test]
    fn trailers_are_the_same_in_both_directions() {
        let fields = trailer_map(b"grpc-status: 0\r\nGrpc-Message:  a b \r\n").unwrap();
        let mut lines = Vec::new();
        trailer_lines(&fields, &mut lines).unwrap();
        assert_eq!(lines, b"grpc-status: 0\r\ngrpc-message: a b\r\n");
        assert_eq!(trailer_map(b"no colon\r\n"), Err(Untranslatable));
    }
}
