//! The text of a response of HTTP/1.1 as a response of HTTP/2 (RFC 9113 §8.3.2), and back.

use std::io::Write as _;

use egret_http1::{HeadError, HeadLimits, MAX_FIELDS, MAX_HEAD, Method, Progress, ResponseHead, reason};
use egret_message::grpc::is_grpc;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use thiserror::Error;

use crate::request::{BodyFraming, CONNECTION_FIELDS, field_line, is_surrounded};
use crate::websocket::{ACCEPT_FIELD, WEBSOCKET};

/// Error: a message cannot be sent in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message cannot be sent in HTTP/2")]
pub struct Untranslatable;

/// Translates the text of a response's head, with the empty line that ends it. The reason phrase and the
/// fields about the connection are dropped.
pub fn response(text: &[u8]) -> Result<Response<()>, Untranslatable> {
    let head = parsed(text)?;
    // Switching protocols does not exist (RFC 9113 §8.6).
    if head.status == 101 {
        return Err(Untranslatable);
    }
    translated(&head, text, head.status, None)
}

/// Translates the text of a response's head that switches to WebSocket (RFC 8441 §5).
pub(crate) fn opened_websocket(text: &[u8]) -> Result<Response<()>, Untranslatable> {
    let head = parsed(text)?;
    if head.status != 101 {
        return Err(Untranslatable);
    }
    translated(&head, text, 200, Some(ACCEPT_FIELD))
}

fn parsed(text: &[u8]) -> Result<ResponseHead, Untranslatable> {
    let limits = HeadLimits { head: MAX_HEAD, fields: MAX_FIELDS, ..HeadLimits::default() };
    let mut head = ResponseHead::new();
    // The method matters for the framing alone.
    match head.parse(text, &limits, Method::Get) {
        Ok(Progress::Complete) if head.len == text.len() => Ok(head),
        Ok(_) | Err(_) => Err(Untranslatable),
    }
}

/// Translates a head with this status code, without the field that is `left_out`.
fn translated(
    head: &ResponseHead,
    text: &[u8],
    status: u16,
    left_out: Option<&str>,
) -> Result<Response<()>, Untranslatable> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Untranslatable)?;
    let fields = response.headers_mut();
    for field in &head.fields {
        let name = field.name.of(text);
        let is_left_out = left_out.is_some_and(|other| name.eq_ignore_ascii_case(other.as_bytes()));
        if !is_left_out && !is_about_connection(name) {
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

/// Returns `true` for the name of a field that HTTP/2 does not have (RFC 9113 §8.2.2), or that offers HTTP/2.
pub(crate) fn is_about_connection(name: &[u8]) -> bool {
    let mut known = CONNECTION_FIELDS.iter().chain(&["http2-settings"]);
    known.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// The text of a response's head.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseText {
    /// The head, with the empty line that ends it.
    pub text: Vec<u8>,
    /// The way in which the body follows.
    pub framing: BodyFraming,
}

/// Translates a response to a request of this method, which the strict parser of HTTP/1.1 then judges. It has
/// no body if it `ends` with its head, and at most `fields_max` fields.
pub fn response_text(
    response: &Parts,
    method: Method,
    ends: bool,
    fields_max: usize,
) -> Result<ResponseText, HeadError> {
    if response.headers.len() > fields_max {
        return Err(HeadError::TooManyFields);
    }
    // Switching protocols does not exist (RFC 9113 §8.6).
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(HeadError::Status);
    }
    let mut text = Vec::with_capacity(512);
    let phrase = reason(response.status.as_u16());
    // Writing to memory does not fail.
    let _ = write!(text, "HTTP/1.1 {} {phrase}\r\n", response.status.as_str());
    // Trailers follow such a body, so its length must not end it.
    let media_type = response.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_grpc = !ends && media_type.is_some_and(is_grpc);
    for (name, value) in &response.headers {
        if is_about_connection(name.as_str().as_bytes()) {
            return Err(HeadError::ConnectionField);
        }
        if !(is_grpc && *name == CONTENT_LENGTH) {
            field_line(name.as_str().as_bytes(), value, &mut text)?;
        }
    }
    let length = response.headers.get(CONTENT_LENGTH).filter(|_| !is_grpc);
    let framing = framing(response.status, method, length, ends, &mut text)?;
    text.extend_from_slice(b"\r\n");
    Ok(ResponseText { text, framing })
}

/// Translates a response that has opened a WebSocket to the text of one that switches to it, with this value
/// of `Sec-WebSocket-Accept`.
pub(crate) fn websocket_text(
    response: &Parts,
    accept: &str,
    fields_max: usize,
) -> Result<ResponseText, HeadError> {
    if response.headers.len() > fields_max {
        return Err(HeadError::TooManyFields);
    }
    let mut text = Vec::with_capacity(512);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        "HTTP/1.1 101 {}\r\nconnection: upgrade\r\nupgrade: {WEBSOCKET}\r\n{ACCEPT_FIELD}: {accept}\r\n",
        reason(101)
    );
    for (name, value) in &response.headers {
        if is_about_connection(name.as_str().as_bytes()) {
            return Err(HeadError::ConnectionField);
        }
        // A length has no meaning here (RFC 9110 §9.3.6).
        if *name != CONTENT_LENGTH && name.as_str() != ACCEPT_FIELD {
            field_line(name.as_str().as_bytes(), value, &mut text)?;
        }
    }
    text.extend_from_slice(b"\r\n");
    Ok(ResponseText { text, framing: BodyFraming::Tunnel })
}

/// Says how the body is framed, which the stream alone says in HTTP/2.
fn framing(
    status: StatusCode,
    method: Method,
    length: Option<&HeaderValue>,
    ends: bool,
    text: &mut Vec<u8>,
) -> Result<BodyFraming, HeadError> {
    if status.is_informational() {
        return Ok(BodyFraming::None);
    }
    if method == Method::Head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(BodyFraming::None);
    }
    match length {
        // The library has compared the length with that of the frames.
        Some(length) if ends && length != "0" => Err(HeadError::ContentLength),
        Some(_) if ends => Ok(BodyFraming::None),
        Some(_) => Ok(BodyFraming::Length),
        None if ends => {
            text.extend_from_slice(b"content-length: 0\r\n");
            Ok(BodyFraming::None)
        }
        None => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Ok(BodyFraming::Chunked)
        }
    }
}

/// Adds a field.
pub(crate) fn append(fields: &mut HeaderMap, name: &[u8], value: &[u8]) -> Result<(), Untranslatable> {
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

    fn text_of(
        status: u16,
        fields: &[(&str, &str)],
        method: Method,
        ends: bool,
    ) -> Result<String, HeadError> {
        let mut builder = Response::builder().status(status);
        for (name, value) in fields {
            builder = builder.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let parts = builder.body(()).unwrap().into_parts().0;
        Ok(String::from_utf8(response_text(&parts, method, ends, 100)?.text).unwrap())
    }

    #[test]
    fn the_framing_of_a_received_body_is_written_into_its_head() {
        use Method::{Get, Head};
        let length = [("content-length", "3")];
        let grpc = [("content-type", "application/grpc+proto"), ("content-length", "3")];
        for (status, fields, method, ends, expected) in [
            (200, &[][..], Get, false, "200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            (200, &[], Get, true, "200 OK\r\ncontent-length: 0\r\n\r\n"),
            (200, &length, Get, false, "200 OK\r\ncontent-length: 3\r\n\r\n"),
            (200, &length, Head, true, "200 OK\r\ncontent-length: 3\r\n\r\n"),
            (304, &length, Get, true, "304 Not Modified\r\ncontent-length: 3\r\n\r\n"),
            (204, &[], Get, true, "204 No Content\r\n\r\n"),
            (103, &[("link", "</a>")], Get, false, "103 \r\nlink: </a>\r\n\r\n"),
            (
                200,
                &grpc,
                Get,
                false,
                "200 OK\r\ncontent-type: application/grpc+proto\r\ntransfer-encoding: chunked\r\n\r\n",
            ),
        ] {
            assert_eq!(text_of(status, fields, method, ends).unwrap(), format!("HTTP/1.1 {expected}"));
        }
        assert_eq!(text_of(200, &length, Get, true), Err(HeadError::ContentLength));
    }

    #[test]
    fn a_response_that_http_1_1_would_read_otherwise_is_refused() {
        for (name, value) in [
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "websocket"),
        ] {
            let refused = text_of(200, &[(name, value)], Method::Get, false);
            assert_eq!(refused, Err(HeadError::ConnectionField), "{name}");
        }
        for value in [" x", "x ", "\tx", "x\t"] {
            let refused = text_of(200, &[("x-a", value)], Method::Get, false);
            assert_eq!(refused, Err(HeadError::SurroundedValue), "{value:?}");
        }
        assert_eq!(text_of(101, &[], Method::Get, false), Err(HeadError::Status));
        assert_eq!(text_of(200, &[("x-a", "1"); 101], Method::Get, false), Err(HeadError::TooManyFields));
    }

    #[test]
    fn a_switch_to_websocket_is_a_success_and_back() {
        let text = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: a=\r\nSec-WebSocket-Protocol: chat\r\nX-A: 1\r\n\r\n";
        let opened = opened_websocket(text).unwrap();
        assert_eq!(opened.status(), 200);
        let names: Vec<_> = opened.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["sec-websocket-protocol", "x-a"]);
        assert!(opened_websocket(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        let back = websocket_text(&opened.into_parts().0, "b=", 100).unwrap();
        assert_eq!(
            String::from_utf8(back.text).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: b=\r\n\
             sec-websocket-protocol: chat\r\nx-a: 1\r\n\r\n"
        );
        assert_eq!(back.framing, BodyFraming::Tunnel);
    }

    #[test]
    fn an_opened_websocket_with_fields_of_a_connection_is_refused() {
        let refused = |name: &str, value: &str| {
            let parts = Response::builder().header(name, value).body(()).unwrap().into_parts().0;
            websocket_text(&parts, "b=", 100).map(|text| text.text).err()
        };
        assert_eq!(refused("upgrade", "x"), Some(HeadError::ConnectionField));
        assert_eq!(refused("transfer-encoding", "chunked"), Some(HeadError::ConnectionField));
        assert_eq!(refused("x-a", " x"), Some(HeadError::SurroundedValue));
        assert_eq!(refused("content-length", "3"), None);
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
