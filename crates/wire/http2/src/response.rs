//! A response of HTTP/2 as the text of a response of HTTP/1.1 (RFC 9113 §8.3.2), which the strict parser then
//! judges.

use egret_http1::{HeadError, KnownField, Method, push_decimal, reason};
use egret_message::grpc::is_grpc;

use crate::body::BodyFraming;
use crate::hpack::{FieldList, FieldName};
use crate::received::{MessageRefusal, check_size, checked, note_length};
use crate::websocket::{ACCEPT_FIELD, WEBSOCKET};

/// The text of a response's head.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseText {
    /// The head, with the empty line that ends it.
    pub text: Vec<u8>,
    /// The way in which the body follows.
    pub framing: BodyFraming,
    /// Number of bytes of the body, if it is known.
    pub length: Option<u64>,
    /// `true` if another response follows (RFC 9110 §15.2).
    pub is_informational: bool,
}

/// The request that a response belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Its method.
    pub method: Method,
    /// The value of `Sec-WebSocket-Accept`, if it opens a WebSocket.
    pub accept: Option<&'a str>,
    /// Maximum number of the response's fields.
    pub fields_max: usize,
}

/// Reads the status code, the only pseudo-field.
fn status(list: &FieldList) -> Result<u16, MessageRefusal> {
    let first = list.iter().next().filter(|field| field.known == FieldName::Status);
    match first.map(|field| field.value) {
        Some(&[hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => {
            let digit = |byte: u8| u16::from(byte - b'0');
            Ok(100 * digit(hundreds) + 10 * digit(tens) + digit(ones))
        }
        _ => Err(MessageRefusal::Malformed),
    }
}

/// Translates a response. It has no body if it `ends` with its head. The text replaces that in `text`.
pub(crate) fn response_text(
    list: &FieldList,
    asked: Asked<'_>,
    ends: bool,
    mut text: Vec<u8>,
) -> Result<ResponseText, MessageRefusal> {
    text.clear();
    let status = status(list)?;
    check_size(list, list.iter().len() - 1, asked.fields_max)?;
    // Switching protocols does not exist (RFC 9113 §8.6).
    if status == 101 {
        return Err(HeadError::Status.into());
    }
    let is_informational = status < 200;
    if is_informational && ends {
        return Err(MessageRefusal::Malformed);
    }
    let opened = asked.accept.filter(|_| (200..300).contains(&status));
    start(status, opened, &mut text);
    let fields = fields(list, opened.is_some(), &mut text)?;
    let (framing, length) = if opened.is_some() {
        (BodyFraming::Tunnel, None)
    } else {
        framing(status, asked.method, &fields, ends, &mut text)?
    };
    text.extend_from_slice(b"\r\n");
    Ok(ResponseText { text, framing, length, is_informational })
}

/// Writes the status line. A response that has opened a WebSocket becomes one that switches to it, with this
/// value of `Sec-WebSocket-Accept`.
fn start(status: u16, opened: Option<&str>, text: &mut Vec<u8>) {
    let status = if opened.is_some() { 101 } else { status };
    text.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(status.into(), text);
    text.push(b' ');
    text.extend_from_slice(reason(status).as_bytes());
    text.extend_from_slice(b"\r\n");
    if let Some(accept) = opened {
        let handshake =
            format!("connection: upgrade\r\nupgrade: {WEBSOCKET}\r\n{ACCEPT_FIELD}: {accept}\r\n");
        text.extend_from_slice(handshake.as_bytes());
    }
}

/// The fields that decide how the body is framed.
#[derive(Debug, Default)]
struct Framed {
    length: Option<u64>,
    is_grpc: bool,
}

/// Writes the fields behind the status, without the length, which has no meaning where a WebSocket
/// `is_opened` (RFC 9110 §9.3.6).
fn fields(list: &FieldList, is_opened: bool, text: &mut Vec<u8>) -> Result<Framed, MessageRefusal> {
    let mut framed = Framed::default();
    // Lines between two that are left out are copied at once.
    let mut first = 1;
    for (number, field) in list.iter().enumerate().skip(1) {
        match checked(&field)? {
            KnownField::ContentLength | KnownField::SecWebSocketAccept if is_opened => {}
            KnownField::ContentLength => note_length(&mut framed.length, field.value)?,
            // An offer of HTTP/2 has no meaning here.
            KnownField::Http2Settings => {}
            KnownField::ContentType => {
                framed.is_grpc = is_grpc(field.value);
                continue;
            }
            _ => continue,
        }
        text.extend_from_slice(list.lines(first, number));
        first = number + 1;
    }
    text.extend_from_slice(list.lines(first, list.iter().len()));
    Ok(framed)
}

/// Says how the body is framed, which the stream alone says in HTTP/2, and how long it is.
fn framing(
    status: u16,
    method: Method,
    fields: &Framed,
    ends: bool,
    text: &mut Vec<u8>,
) -> Result<(BodyFraming, Option<u64>), MessageRefusal> {
    // Trailers follow the body of gRPC, so its length must not end it.
    if let Some(length) = fields.length.filter(|_| ends || !fields.is_grpc) {
        text.extend_from_slice(b"content-length: ");
        push_decimal(length, text);
        text.extend_from_slice(b"\r\n");
    }
    if status < 200 || method == Method::Head || matches!(status, 204 | 304) {
        return Ok((BodyFraming::None, Some(0)));
    }
    Ok(match fields.length {
        Some(1..) if ends => return Err(MessageRefusal::Malformed),
        Some(_) if ends => (BodyFraming::None, Some(0)),
        Some(length) if !fields.is_grpc => (BodyFraming::Length, Some(length)),
        None if ends => {
            text.extend_from_slice(b"content-length: 0\r\n");
            (BodyFraming::None, Some(0))
        }
        length => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            (BodyFraming::Chunked, length)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts;

    fn translated(
        status: &str,
        fields: &[(&str, &str)],
        method: Method,
        ends: bool,
    ) -> Result<ResponseText, MessageRefusal> {
        let fields = parts::fields(&[&[(":status", status)], fields].concat());
        parts::received_response(&fields, method, None, ends, 100)
    }

    fn text_of(
        status: &str,
        fields: &[(&str, &str)],
        method: Method,
        ends: bool,
    ) -> Result<String, MessageRefusal> {
        Ok(String::from_utf8(translated(status, fields, method, ends)?.text).unwrap())
    }

    #[test]
    fn the_framing_of_a_received_body_is_written_into_its_head() {
        use Method::{Get, Head};
        let length = [("content-length", "3")];
        let grpc = [("content-length", "3"), ("content-type", "application/grpc+proto")];
        for (status, fields, method, ends, expected) in [
            ("200", &[][..], Get, false, "200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            ("200", &[], Get, true, "200 OK\r\ncontent-length: 0\r\n\r\n"),
            ("200", &length, Get, false, "200 OK\r\ncontent-length: 3\r\n\r\n"),
            ("200", &length, Head, true, "200 OK\r\ncontent-length: 3\r\n\r\n"),
            ("304", &length, Get, true, "304 Not Modified\r\ncontent-length: 3\r\n\r\n"),
            ("204", &[], Get, true, "204 No Content\r\n\r\n"),
            ("103", &[("link", "</a>")], Get, false, "103 \r\nlink: </a>\r\n\r\n"),
            (
                "200",
                &grpc,
                Get,
                false,
                "200 OK\r\ncontent-type: application/grpc+proto\r\ntransfer-encoding: chunked\r\n\r\n",
            ),
        ] {
            assert_eq!(text_of(status, fields, method, ends).unwrap(), format!("HTTP/1.1 {expected}"));
        }
    }

    #[test]
    fn a_malformed_response_is_refused() {
        let is_malformed = |status: &str, fields: &[(&str, &str)], ends: bool| {
            let refused = text_of(status, fields, Method::Get, ends);
            assert_eq!(refused, Err(MessageRefusal::Malformed), "{status} {fields:?}");
        };
        for (name, value) in [
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "websocket"),
            (":status", "200"),
            (":path", "/"),
            ("content-length", "+5"),
            ("x-a", "1\r\nx-b: 2"),
            ("X-A", "1"),
        ] {
            is_malformed("200", &[(name, value)], false);
        }
        for status in ["099", "20", "2000", "2x0", "", " 200"] {
            is_malformed(status, &[], false);
        }
        is_malformed("200", &[("content-length", "3")], true);
        is_malformed("103", &[], true);
        assert_eq!(
            parts::received_response(&parts::fields(&[("x-a", "1")]), Method::Get, None, true, 100),
            Err(MessageRefusal::Malformed)
        );
    }

    #[test]
    fn a_response_that_http_1_1_would_read_otherwise_is_refused() {
        let refused =
            |status: &str, fields: &[(&str, &str)]| text_of(status, fields, Method::Get, false).err();
        for value in [" x", "x ", "\tx", "x\t"] {
            let expected = Some(MessageRefusal::Head(HeadError::SurroundedValue));
            assert_eq!(refused("200", &[("x-a", value)]), expected, "{value:?}");
        }
        assert_eq!(refused("101", &[]), Some(MessageRefusal::Head(HeadError::Status)));
        assert_eq!(
            refused("200", &[("x-a", "1"); 101]),
            Some(MessageRefusal::Head(HeadError::TooManyFields))
        );
    }

    #[test]
    fn a_response_that_has_no_body_has_no_data() {
        let length_of = |status: &str, method, fields: &[(&str, &str)]| {
            translated(status, fields, method, false).map(|translated| translated.length)
        };
        let length = [("content-length", "3")];
        for (status, method) in [("200", Method::Head), ("204", Method::Get), ("304", Method::Get)] {
            assert_eq!(length_of(status, method, &length), Ok(Some(0)), "{status}");
        }
        assert_eq!(length_of("200", Method::Get, &length), Ok(Some(3)));
        assert_eq!(length_of("200", Method::Get, &[]), Ok(None));
    }

    #[test]
    fn an_opened_websocket_is_a_switch_to_it() {
        let opened = |fields: &[(&str, &str)]| {
            let fields = parts::fields(&[&[(":status", "200")], fields].concat());
            parts::received_response(&fields, Method::Get, Some("b="), false, 100)
        };
        let text =
            opened(&[("sec-websocket-protocol", "chat"), ("content-length", "3"), ("x-a", "1")]).unwrap();
        assert_eq!(text.framing, BodyFraming::Tunnel);
        assert_eq!(
            String::from_utf8(text.text).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: b=\r\n\
             sec-websocket-protocol: chat\r\nx-a: 1\r\n\r\n"
        );
        assert_eq!(opened(&[("upgrade", "x")]).err(), Some(MessageRefusal::Malformed));
        assert_eq!(opened(&[("x-a", " x")]).err(), Some(MessageRefusal::Head(HeadError::SurroundedValue)));
    }
}
