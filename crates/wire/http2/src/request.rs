//! A request of HTTP/2 as the text of a request of HTTP/1.1 (RFC 9113 §8), which the strict parser then
//! judges.
//!
//! Only what that parser cannot see is decided here: pseudo-fields, fields about the connection, and white
//! space around values.

use egret_http1::HeadError;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

/// The way in which the body follows the text of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// It has the length that the head says.
    Length,
    /// It is sent in chunks, as the head says.
    Chunked,
    /// Bytes of a tunnel, which end with the stream.
    Tunnel,
}

/// The text of a request's head.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestText {
    /// The head, with the empty line that ends it.
    pub text: Vec<u8>,
    /// The way in which the body follows.
    pub framing: BodyFraming,
}

/// Fields about a connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Translates a request that arrived on a connection with TLS if `is_tls`, and that has no body if it `ends`
/// with its head. It has at most `fields_max` fields; each part of a cookie is one.
pub fn request_text(
    request: &Parts,
    is_tls: bool,
    ends: bool,
    fields_max: usize,
) -> Result<RequestText, HeadError> {
    if request.headers.len() > fields_max {
        return Err(HeadError::TooManyFields);
    }
    if request.uri.scheme_str().is_some_and(|scheme| scheme != if is_tls { "https" } else { "http" }) {
        return Err(HeadError::Scheme);
    }
    let mut text = Vec::with_capacity(512);
    start_line(request, &mut text)?;
    host(request, &mut text)?;
    for (name, value) in &request.headers {
        field(name, value, &mut text)?;
    }
    cookies(&request.headers, &mut text);
    let framing = framing(request, ends, &mut text)?;
    text.extend_from_slice(b"\r\n");
    Ok(RequestText { text, framing })
}

fn start_line(request: &Parts, text: &mut Vec<u8>) -> Result<(), HeadError> {
    text.extend_from_slice(request.method.as_str().as_bytes());
    text.push(b' ');
    if request.method == Method::CONNECT {
        // An extended CONNECT (RFC 8441) has a path. It is not offered.
        let authority = request.uri.authority().filter(|_| request.uri.path_and_query().is_none());
        let authority = authority.ok_or(HeadError::TargetForm)?;
        text.extend_from_slice(authority.as_str().as_bytes());
    } else {
        let target = request.uri.path_and_query().map_or("", |target| target.as_str());
        // An absolute target would name a second authority.
        let is_asterisk = target == "*" && request.method == Method::OPTIONS;
        if !is_asterisk && !target.starts_with('/') {
            return Err(HeadError::TargetForm);
        }
        text.extend_from_slice(target.as_bytes());
    }
    text.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

/// Writes the only `Host` (RFC 9113 §8.3.1).
fn host(request: &Parts, text: &mut Vec<u8>) -> Result<(), HeadError> {
    let mut named = request.headers.get_all(HOST).iter();
    let Some(authority) = request.uri.authority() else {
        return match (named.next(), named.next()) {
            (None, _) => Err(HeadError::MissingHost),
            (Some(_), Some(_)) => Err(HeadError::RepeatedHost),
            (Some(host), None) => field_line(b"host", host, text),
        };
    };
    let authority = authority.as_str().as_bytes();
    if named.any(|host| !host.as_bytes().eq_ignore_ascii_case(authority)) {
        return Err(HeadError::HostMismatch);
    }
    text.extend_from_slice(b"host: ");
    text.extend_from_slice(authority);
    text.extend_from_slice(b"\r\n");
    Ok(())
}

fn field(name: &HeaderName, value: &HeaderValue, text: &mut Vec<u8>) -> Result<(), HeadError> {
    if *name == HOST {
        return Ok(());
    }
    if CONNECTION_FIELDS.contains(&name.as_str()) || (*name == TE && value != "trailers") {
        return Err(HeadError::ConnectionField);
    }
    // An offer of HTTP/2 has no meaning here.
    if name.as_str() == "http2-settings" {
        return Ok(());
    }
    if *name == COOKIE {
        return if is_surrounded(value.as_bytes()) { Err(HeadError::SurroundedValue) } else { Ok(()) };
    }
    field_line(name.as_str().as_bytes(), value, text)
}

fn field_line(name: &[u8], value: &HeaderValue, text: &mut Vec<u8>) -> Result<(), HeadError> {
    if is_surrounded(value.as_bytes()) {
        return Err(HeadError::SurroundedValue);
    }
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value.as_bytes());
    text.extend_from_slice(b"\r\n");
    Ok(())
}

/// Returns `true` if white space surrounds a value, which HTTP/2 does not allow (RFC 9113 §8.2.1).
pub(crate) fn is_surrounded(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.first()) || is_space(value.last())
}

/// Joins the parts of the cookie to one field (RFC 9113 §8.2.3).
fn cookies(fields: &HeaderMap, text: &mut Vec<u8>) {
    for (number, part) in fields.get_all(COOKIE).iter().enumerate() {
        text.extend_from_slice(if number == 0 { b"cookie: " } else { b"; " });
        text.extend_from_slice(part.as_bytes());
    }
    if fields.contains_key(COOKIE) {
        text.extend_from_slice(b"\r\n");
    }
}

/// Says how the body is framed, which the stream alone says in HTTP/2.
fn framing(request: &Parts, ends: bool, text: &mut Vec<u8>) -> Result<BodyFraming, HeadError> {
    let length = request.headers.get(CONTENT_LENGTH);
    if request.method == Method::CONNECT {
        return if length.is_some() { Err(HeadError::ContentLength) } else { Ok(BodyFraming::Tunnel) };
    }
    match length {
        // The library has compared the length with that of the frames.
        Some(length) if ends && length != "0" => Err(HeadError::ContentLength),
        Some(_) if ends => Ok(BodyFraming::None),
        Some(_) => Ok(BodyFraming::Length),
        None if !ends => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Ok(BodyFraming::Chunked)
        }
        // RFC 9110 §8.6: these methods have a body, which is empty here.
        None if matches!(request.method, Method::POST | Method::PUT | Method::PATCH) => {
            text.extend_from_slice(b"content-length: 0\r\n");
            Ok(BodyFraming::None)
        }
        None => Ok(BodyFraming::None),
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress, RequestFraming, RequestHead};
    use http::Request;

    use super::*;

    const FIELDS_MAX: usize = 100;

    fn parts(method: &str, uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn text(method: &str, uri: &str, fields: &[(&str, &str)], ends: bool) -> Result<String, HeadError> {
        let translated = request_text(&parts(method, uri, fields), false, ends, FIELDS_MAX)?;
        Ok(String::from_utf8(translated.text).unwrap())
    }

    #[test]
    fn a_request_becomes_the_text_of_a_head() {
        let fields = [("cookie", "a=1"), ("x-a", "1"), ("x-a", "2"), ("cookie", "b=2"), ("te", "trailers")];
        assert_eq!(
            text("GET", "http://h:81/p?q=1", &fields, true).unwrap(),
            "GET /p?q=1 HTTP/1.1\r\nhost: h:81\r\nx-a: 1\r\nx-a: 2\r\nte: trailers\r\ncookie: a=1; b=2\r\n\r\n"
        );
        assert_eq!(
            text("CONNECT", "h:443", &[], false).unwrap(),
            "CONNECT h:443 HTTP/1.1\r\nhost: h:443\r\n\r\n"
        );
        assert_eq!(
            text("GET", "/p", &[("host", "h"), ("http2-settings", "AAMAAABk")], true).unwrap(),
            "GET /p HTTP/1.1\r\nhost: h\r\n\r\n"
        );
    }

    #[test]
    fn the_stream_says_how_the_body_is_framed() {
        let framed = |method: &str, length: &[(&str, &str)], ends: bool| {
            let translated = request_text(&parts(method, "http://h/", length), false, ends, FIELDS_MAX)?;
            let mut head = RequestHead::new();
            assert_eq!(head.parse(&translated.text, &HeadLimits::default()), Ok(Progress::Complete));
            Ok((translated.framing, head.framing))
        };
        let length = [("content-length", "3")];
        assert_eq!(framed("GET", &[], true), Ok((BodyFraming::None, RequestFraming::None)));
        assert_eq!(framed("GET", &[], false), Ok((BodyFraming::Chunked, RequestFraming::Chunked)));
        assert_eq!(framed("POST", &length, false), Ok((BodyFraming::Length, RequestFraming::Length(3))));
        assert_eq!(framed("POST", &[], true), Ok((BodyFraming::None, RequestFraming::Length(0))));
        assert_eq!(framed("POST", &length, true), Err(HeadError::ContentLength));
    }

    #[test]
    fn a_request_that_http_1_1_would_read_otherwise_is_refused() {
        use HeadError::{
            ConnectionField, ContentLength, HostMismatch, MissingHost, RepeatedHost, SurroundedValue,
            TargetForm,
        };
        let refused = |method: &str, uri: &str, fields: &[(&str, &str)]| text(method, uri, fields, false);
        for (name, value) in [
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
        ] {
            assert_eq!(refused("GET", "http://h/", &[(name, value)]), Err(ConnectionField), "{name}");
        }
        for value in [" x", "x ", "\tx", "x\t"] {
            assert_eq!(refused("GET", "http://h/", &[("x-a", value)]), Err(SurroundedValue), "{value:?}");
            assert_eq!(refused("GET", "http://h/", &[("cookie", value)]), Err(SurroundedValue), "{value:?}");
        }
        assert_eq!(refused("GET", "http://h/", &[("host", "other")]), Err(HostMismatch));
        assert_eq!(refused("GET", "/", &[]), Err(MissingHost));
        assert_eq!(refused("GET", "/", &[("host", "a"), ("host", "b")]), Err(RepeatedHost));
        assert_eq!(refused("GET", "*", &[("host", "a")]), Err(TargetForm));
        assert_eq!(refused("CONNECT", "h:443", &[("content-length", "3")]), Err(ContentLength));
        assert_eq!(refused("GET", "https://h/", &[]), Err(HeadError::Scheme));
    }

    #[test]
    fn the_parts_of_a_cookie_count_as_fields() {
        let crumbs = vec![("cookie", "a=1"); FIELDS_MAX + 1];
        assert_eq!(text("GET", "http://h/", &crumbs, true), Err(HeadError::TooManyFields));
    }
}
