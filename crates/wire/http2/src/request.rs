//! A request of HTTP/2 as the text of a request of HTTP/1.1 (RFC 9113 §8), which the strict parser then
//! judges.
//!
//! Only what that parser cannot see is decided here: pseudo-fields, fields about the connection, and white
//! space around values.

use egret_http1::HeadError;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use crate::websocket::{KEY_FIELD, WEBSOCKET, new_key};

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
    /// `true` if it opens a WebSocket (RFC 8441): its head asks for an upgrade, and its body is a tunnel.
    pub opens_websocket: bool,
}

/// Fields about a connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
pub(crate) const CONNECTION_FIELDS: [&str; 5] =
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
    let opens_websocket = opens_websocket(request)?;
    start_line(request, opens_websocket, &mut text)?;
    host(request, &mut text)?;
    for (name, value) in &request.headers {
        // The handshake of HTTP/1.1 has a key of its own.
        if !(opens_websocket && name.as_str() == KEY_FIELD) {
            field(name, value, &mut text)?;
        }
    }
    cookies(&request.headers, &mut text);
    if opens_websocket {
        let key = new_key().ok_or(HeadError::Protocol)?;
        let handshake = format!("connection: upgrade\r\nupgrade: {WEBSOCKET}\r\n{KEY_FIELD}: {key}\r\n");
        text.extend_from_slice(handshake.as_bytes());
    }
    let framing = framing(request, ends, &mut text)?;
    text.extend_from_slice(b"\r\n");
    Ok(RequestText { text, framing, opens_websocket })
}

/// Returns `true` for an extended CONNECT (RFC 8441 §4), which must be for WebSocket.
fn opens_websocket(request: &Parts) -> Result<bool, HeadError> {
    match request.extensions.get::<Protocol>() {
        None => Ok(false),
        Some(protocol) if request.method == Method::CONNECT && protocol.as_str() == WEBSOCKET => Ok(true),
        Some(_) => Err(HeadError::Protocol),
    }
}

fn start_line(request: &Parts, opens_websocket: bool, text: &mut Vec<u8>) -> Result<(), HeadError> {
    let method = if opens_websocket { &Method::GET } else { &request.method };
    text.extend_from_slice(method.as_str().as_bytes());
    text.push(b' ');
    if *method == Method::CONNECT {
        // Only an extended CONNECT has a path.
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

pub(crate) fn field_line(name: &[u8], value: &HeaderValue, text: &mut Vec<u8>) -> Result<(), HeadError> {
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
    use http::{Request, Uri};
    use proptest::collection::vec;
    use proptest::prelude::*;

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

    /// The text of an extended CONNECT to this protocol.
    fn extended(
        protocol: &'static str,
        uri: &str,
        fields: &[(&str, &str)],
    ) -> Result<RequestText, HeadError> {
        let mut parts = parts("CONNECT", uri, fields);
        parts.extensions.insert(Protocol::from_static(protocol));
        request_text(&parts, false, false, FIELDS_MAX)
    }

    #[test]
    fn an_extended_connect_becomes_an_upgrade_with_a_key_of_its_own() {
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "its"), ("origin", "http://o")];
        let opened = extended(WEBSOCKET, "http://h:81/chat?a=1", &fields).unwrap();
        assert!(opened.opens_websocket && opened.framing == BodyFraming::Tunnel);
        let text = String::from_utf8(opened.text).unwrap();
        let (rest, key) = text.rsplit_once("sec-websocket-key: ").unwrap();
        assert_eq!(
            rest,
            "GET /chat?a=1 HTTP/1.1\r\nhost: h:81\r\nsec-websocket-version: 13\r\norigin: http://o\r\n\
             connection: upgrade\r\nupgrade: websocket\r\n"
        );
        let mut head = RequestHead::new();
        assert_eq!(head.parse(text.as_bytes(), &HeadLimits::default()), Ok(Progress::Complete));
        assert!(head.upgrade && head.framing == RequestFraming::None);
        let read = crate::websocket::websocket_key(&head, text.as_bytes());
        assert_eq!(read, Some(key.trim_end().as_bytes()));
    }

    #[test]
    fn an_extended_connect_for_anything_else_is_refused() {
        use HeadError::{ConnectionField, ContentLength, HostMismatch, Protocol, TargetForm};
        for protocol in ["webtransport", "connect-udp", "WebSocket", "websocket, x", ""] {
            assert_eq!(extended(protocol, "http://h/", &[]), Err(Protocol), "{protocol}");
        }
        assert_eq!(extended(WEBSOCKET, "http://h/", &[("content-length", "0")]), Err(ContentLength));
        assert_eq!(extended(WEBSOCKET, "http://h/", &[("host", "other")]), Err(HostMismatch));
        assert_eq!(extended(WEBSOCKET, "http://h/", &[("upgrade", "websocket")]), Err(ConnectionField));
        assert_eq!(extended(WEBSOCKET, "h:443", &[]), Err(TargetForm));
    }

    proptest! {
        #[test]
        fn a_websocket_from_stream_to_stream_is_the_same_request(
            authority in prop_oneof!["[a-z0-9.-]{1,10}(:[0-9]{1,5})?", "[ -~]{1,12}"],
            path in prop_oneof!["/[ -~]{0,20}", "[ -~]{1,20}"],
            names in vec(prop_oneof!["[a-z0-9-]{1,12}", "sec-websocket-[a-z]{3,8}", "upgrade|connection|te"], 0..5),
            values in vec("[ -~]{0,12}", 5),
        ) {
            let uri = Uri::builder().scheme("http").authority(&*authority).path_and_query(&*path).build();
            let Ok(uri) = uri else { return Ok(()) };
            let mut builder = Request::builder().method("CONNECT").uri(uri);
            for (name, value) in names.iter().zip(&values) {
                builder = builder.header(&**name, &**value);
            }
            let mut sent = builder.body(()).unwrap().into_parts().0;
            sent.extensions.insert(Protocol::from_static(WEBSOCKET));
            let Ok(opened) = request_text(&sent, false, false, FIELDS_MAX) else { return Ok(()) };
            prop_assert_eq!(opened.framing, BodyFraming::Tunnel);
            // The strict parser may refuse it, too.
            let Ok(forwarded) = crate::outgoing::outgoing_request(&opened.text, false) else { return Ok(()) };
            prop_assert_eq!(forwarded.len, opened.text.len());
            prop_assert!(forwarded.accept.is_some());
            let received = forwarded.request;
            prop_assert_eq!(received.method(), Method::CONNECT);
            prop_assert_eq!(received.extensions().get::<Protocol>().map(Protocol::as_str), Some(WEBSOCKET));
            prop_assert_eq!(received.uri(), &sent.uri);
            for dropped in [KEY_FIELD, "connection", "upgrade", "host", "http2-settings"] {
                prop_assert!(!received.headers().contains_key(dropped), "{}", dropped);
                sent.headers.remove(dropped);
            }
            // The parts of a cookie are joined.
            sent.headers.remove(COOKIE);
            let mut fields = received.headers().clone();
            fields.remove(COOKIE);
            prop_assert_eq!(fields, sent.headers);
        }
    }

    #[test]
    fn the_parts_of_a_cookie_count_as_fields() {
        let crumbs = vec![("cookie", "a=1"); FIELDS_MAX + 1];
        assert_eq!(text("GET", "http://h/", &crumbs, true), Err(HeadError::TooManyFields));
    }
}
