//! A request of HTTP/2 as the text of a request of HTTP/1.1 (RFC 9113 §8), which the strict parser then
//! judges.
//!
//! Only what that parser cannot see is decided here: pseudo-fields, fields about the connection, bytes that
//! would change the lines of the text, and white space around values.

use egret_http1::{HeadError, KnownField, is_target, is_token};

use crate::body::BodyFraming;
use crate::hpack::{FieldList, FieldName, ValueForm};
use crate::received::{MessageRefusal, check_size, checked, note_length, put_line};
use crate::websocket::{KEY_FIELD, WEBSOCKET, new_key};

/// The text of a request's head.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestText {
    /// The head, with the empty line that ends it.
    pub text: Vec<u8>,
    /// The way in which the body follows.
    pub framing: BodyFraming,
    /// Number of bytes of the body, if the head says it.
    pub length: Option<u64>,
    /// `true` if it opens a WebSocket (RFC 8441): its head asks for an upgrade, and its body is a tunnel.
    pub opens_websocket: bool,
}

/// The facts about a request that are not in its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// `true` if its connection uses TLS.
    pub is_tls: bool,
    /// `true` if it ends with its head.
    pub ends: bool,
    /// Maximum number of its fields, without pseudo-fields.
    pub fields_max: usize,
}

/// The pseudo-fields of a request (RFC 9113 §8.3.1, RFC 8441 §4).
#[derive(Debug, Default)]
struct Pseudo<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
}

impl<'a> Pseudo<'a> {
    /// Reads them. Returns their number, too.
    fn read(list: &'a FieldList) -> Result<(Self, usize), MessageRefusal> {
        let (mut pseudo, mut count) = (Self::default(), 0);
        for field in list.iter() {
            let place = match field.known {
                FieldName::Method => &mut pseudo.method,
                FieldName::Scheme => &mut pseudo.scheme,
                FieldName::Authority => &mut pseudo.authority,
                FieldName::Path => &mut pseudo.path,
                FieldName::Protocol => &mut pseudo.protocol,
                FieldName::Field(_) => break,
                FieldName::Status | FieldName::UnknownPseudo | FieldName::Malformed => {
                    return Err(MessageRefusal::Malformed);
                }
            };
            if place.replace(field.value).is_some() || field.form == ValueForm::Invalid {
                return Err(MessageRefusal::Malformed);
            }
            count += 1;
        }
        Ok((pseudo, count))
    }

    /// Returns the method, unless one of them is missing that it needs, or there is one that it must not
    /// have.
    fn method(&self) -> Result<&'a [u8], MessageRefusal> {
        let method = self.method.filter(|method| is_token(method)).ok_or(MessageRefusal::Malformed)?;
        let is_connect = method == b"CONNECT";
        let is_tunnel = is_connect && self.protocol.is_none();
        let is_whole = if is_tunnel {
            self.scheme.is_none() && self.path.is_none()
        } else {
            self.scheme.is_some() && self.path.is_some_and(|path| !path.is_empty())
        };
        let is_allowed = is_connect || self.protocol.is_none();
        let is_named = self.authority.is_none_or(|authority| !authority.is_empty());
        if is_whole && is_allowed && is_named { Ok(method) } else { Err(MessageRefusal::Malformed) }
    }
}

/// Translates a request. Each part of a cookie is a field. The text replaces that in `text`.
pub(crate) fn request_text(
    list: &FieldList,
    arrival: Arrival,
    mut text: Vec<u8>,
) -> Result<RequestText, MessageRefusal> {
    text.clear();
    let (pseudo, pseudo_count) = Pseudo::read(list)?;
    check_size(list, list.iter().len() - pseudo_count, arrival.fields_max)?;
    let method = pseudo.method()?;
    let scheme: &[u8] = if arrival.is_tls { b"https" } else { b"http" };
    if pseudo.scheme.is_some_and(|sent| !sent.eq_ignore_ascii_case(scheme)) {
        return Err(HeadError::Scheme.into());
    }
    // An extended CONNECT must be for WebSocket.
    let opens_websocket = pseudo.protocol.is_some();
    if pseudo.protocol.is_some_and(|protocol| protocol != WEBSOCKET.as_bytes()) {
        return Err(HeadError::Protocol.into());
    }
    start_line(if opens_websocket { b"GET" } else { method }, &pseudo, &mut text)?;
    host(pseudo.authority, list, &mut text)?;
    let length = fields(list, pseudo_count, &pseudo, &mut text)?;
    if opens_websocket {
        let key = new_key().ok_or(HeadError::Protocol)?;
        let handshake = format!("connection: upgrade\r\nupgrade: {WEBSOCKET}\r\n{KEY_FIELD}: {key}\r\n");
        text.extend_from_slice(handshake.as_bytes());
    }
    let framing = framing(method, length, arrival.ends, &mut text)?;
    text.extend_from_slice(b"\r\n");
    Ok(RequestText { text, framing, length, opens_websocket })
}

fn start_line(method: &[u8], pseudo: &Pseudo<'_>, text: &mut Vec<u8>) -> Result<(), HeadError> {
    let target = if method == b"CONNECT" {
        pseudo.authority.ok_or(HeadError::TargetForm)?
    } else {
        // An absolute target would name a second authority.
        let is_asterisk = |target: &[u8]| target == b"*" && method == b"OPTIONS";
        let is_valid = |target: &&[u8]| is_asterisk(target) || target.starts_with(b"/");
        pseudo.path.filter(is_valid).ok_or(HeadError::TargetForm)?
    };
    if !is_target(target) {
        return Err(HeadError::Target);
    }
    text.extend_from_slice(method);
    text.push(b' ');
    text.extend_from_slice(target);
    text.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

/// Writes the only `Host` (RFC 9113 §8.3.1).
fn host(authority: Option<&[u8]>, list: &FieldList, text: &mut Vec<u8>) -> Result<(), HeadError> {
    let host = if let Some(authority) = authority {
        authority
    } else {
        let mut named = list.iter().filter(|field| field.known == FieldName::Field(KnownField::Host));
        let host = named.next().ok_or(HeadError::MissingHost)?;
        if named.next().is_some() {
            return Err(HeadError::RepeatedHost);
        }
        host.value
    };
    // Two parsers could read it differently otherwise.
    if !is_target(host) {
        return Err(HeadError::InvalidHost);
    }
    put_line(b"host", host, text);
    Ok(())
}

/// Writes the fields behind the pseudo-fields. Returns the length of the body, if there is one.
fn fields(
    list: &FieldList,
    pseudo_count: usize,
    pseudo: &Pseudo<'_>,
    text: &mut Vec<u8>,
) -> Result<Option<u64>, MessageRefusal> {
    let (mut length, mut has_cookie) = (None, false);
    // Lines between two that are left out are copied at once.
    let mut first = pseudo_count;
    for (number, field) in list.iter().enumerate().skip(pseudo_count) {
        match checked(&field)? {
            KnownField::Host => {
                if pseudo.authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(field.value)) {
                    return Err(HeadError::HostMismatch.into());
                }
            }
            KnownField::Te if field.value != b"trailers" => return Err(MessageRefusal::Malformed),
            // An offer of HTTP/2 has no meaning here.
            KnownField::Http2Settings => {}
            KnownField::Cookie => has_cookie = true,
            KnownField::ContentLength => {
                note_length(&mut length, field.value)?;
                continue;
            }
            // The handshake of HTTP/1.1 has a key of its own.
            KnownField::SecWebSocketKey if pseudo.protocol.is_some() => {}
            _ => continue,
        }
        text.extend_from_slice(list.lines(first, number));
        first = number + 1;
    }
    text.extend_from_slice(list.lines(first, list.iter().len()));
    if has_cookie {
        cookies(list, text);
    }
    Ok(length)
}

/// Joins the parts of the cookie to one field (RFC 9113 §8.2.3).
fn cookies(list: &FieldList, text: &mut Vec<u8>) {
    let parts = list.iter().filter(|field| field.known == FieldName::Field(KnownField::Cookie));
    for (number, part) in parts.enumerate() {
        text.extend_from_slice(if number == 0 { b"cookie: " } else { b"; " });
        text.extend_from_slice(part.value);
    }
    text.extend_from_slice(b"\r\n");
}

/// Says how the body is framed, which the stream alone says in HTTP/2.
fn framing(
    method: &[u8],
    length: Option<u64>,
    ends: bool,
    text: &mut Vec<u8>,
) -> Result<BodyFraming, MessageRefusal> {
    if method == b"CONNECT" {
        return if length.is_some() { Err(HeadError::ContentLength.into()) } else { Ok(BodyFraming::Tunnel) };
    }
    match length {
        Some(1..) if ends => Err(MessageRefusal::Malformed),
        Some(_) if ends => Ok(BodyFraming::None),
        Some(_) => Ok(BodyFraming::Length),
        None if !ends => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Ok(BodyFraming::Chunked)
        }
        // RFC 9110 §8.6: these methods have a body, which is empty here.
        None if matches!(method, b"POST" | b"PUT" | b"PATCH") => {
            text.extend_from_slice(b"content-length: 0\r\n");
            Ok(BodyFraming::None)
        }
        None => Ok(BodyFraming::None),
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress, RequestFraming, RequestHead};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::parts::{self, FieldPairs};

    const FIELDS_MAX: usize = 100;

    /// The fields of a request with `https` or `http`, and without an authority if it is empty.
    fn request<'a>(
        method: &'a str,
        authority: &'a str,
        path: &'a str,
        fields: &[(&'a str, &'a str)],
    ) -> FieldPairs<'a> {
        let mut all =
            vec![(":method", method), (":scheme", "http"), (":authority", authority), (":path", path)];
        if method == "CONNECT" && path.is_empty() {
            all.retain(|(name, _)| ![":scheme", ":path"].contains(name));
        }
        all.retain(|field| *field != (":authority", ""));
        all.extend_from_slice(fields);
        parts::fields(&all)
    }

    fn translated(fields: &FieldPairs<'_>, ends: bool) -> Result<RequestText, MessageRefusal> {
        parts::received_request(fields, false, ends, FIELDS_MAX)
    }

    fn text(fields: &FieldPairs<'_>, ends: bool) -> Result<String, MessageRefusal> {
        Ok(String::from_utf8(translated(fields, ends)?.text).unwrap())
    }

    #[test]
    fn a_request_becomes_the_text_of_a_head() {
        let fields = [("cookie", "a=1"), ("x-a", "1"), ("x-a", "2"), ("cookie", "b=2"), ("te", "trailers")];
        assert_eq!(
            text(&request("GET", "h:81", "/p?q=1", &fields), true).unwrap(),
            "GET /p?q=1 HTTP/1.1\r\nhost: h:81\r\nx-a: 1\r\nx-a: 2\r\nte: trailers\r\ncookie: a=1; b=2\r\n\r\n"
        );
        assert_eq!(
            text(&request("CONNECT", "h:443", "", &[]), false).unwrap(),
            "CONNECT h:443 HTTP/1.1\r\nhost: h:443\r\n\r\n"
        );
        let offered = [("host", "h"), ("http2-settings", "AAMAAABk")];
        assert_eq!(
            text(&request("GET", "", "/p", &offered), true).unwrap(),
            "GET /p HTTP/1.1\r\nhost: h\r\n\r\n"
        );
    }

    #[test]
    fn the_stream_says_how_the_body_is_framed() {
        let framed = |method: &str, length: &[(&str, &str)], ends: bool| {
            let translated = translated(&request(method, "h", "/", length), ends)?;
            let mut head = RequestHead::new();
            assert_eq!(head.parse(&translated.text, &HeadLimits::default()), Ok(Progress::Complete));
            Ok((translated.framing, head.framing))
        };
        let length = [("content-length", "3")];
        assert_eq!(framed("GET", &[], true), Ok((BodyFraming::None, RequestFraming::None)));
        assert_eq!(framed("GET", &[], false), Ok((BodyFraming::Chunked, RequestFraming::Chunked)));
        assert_eq!(framed("POST", &length, false), Ok((BodyFraming::Length, RequestFraming::Length(3))));
        assert_eq!(framed("POST", &[], true), Ok((BodyFraming::None, RequestFraming::Length(0))));
        assert_eq!(framed("POST", &length, true), Err(MessageRefusal::Malformed));
    }

    #[test]
    fn a_malformed_request_is_refused() {
        let plain = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];
        let is_malformed = |fields: &[(&str, &str)]| {
            assert_eq!(text(&parts::fields(fields), false), Err(MessageRefusal::Malformed), "{fields:?}");
        };
        for at in [0, 1, 3] {
            is_malformed(&[&plain[..at], &plain[at + 1..]].concat());
        }
        for field in plain {
            is_malformed(&[&plain[..], &[field]].concat());
            is_malformed(&[&plain[..], &[("x-a", "1"), field]].concat());
            is_malformed(&[&[(field.0, "")], &plain[..]].concat());
        }
        for field in [
            (":status", "200"),
            (":unknown", "1"),
            (":Method", "GET"),
            (":protocol", "websocket"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("te", "trailers, gzip"),
            ("content-length", "+5"),
            ("content-length", "5, 5"),
            ("content-length", ""),
            ("X-A", "1"),
            ("", "1"),
            ("x a", "1"),
            ("x-a:", "1"),
            ("x-a", "1\r\nx-b: 2"),
            ("x-a", "1\0"),
            ("x-a", "1\n"),
        ] {
            is_malformed(&[&plain[..], &[field]].concat());
        }
        is_malformed(&[&plain[..], &[("content-length", "0"), ("content-length", "1")]].concat());
        is_malformed(&[(":method", "GET /x"), plain[1], plain[2], plain[3]]);
        is_malformed(&[(":method", "CONNECT"), plain[1], plain[2], plain[3]]);
        is_malformed(&[(":method", "CONNECT"), (":protocol", "websocket"), plain[2]]);
    }

    #[test]
    fn a_request_that_http_1_1_would_read_otherwise_is_refused() {
        use HeadError::{
            ContentLength, HostMismatch, InvalidHost, MissingHost, RepeatedContentLength, RepeatedHost,
            Scheme, SurroundedValue, Target, TargetForm,
        };
        let refused = |method: &str,
                       authority: &str,
                       path: &str,
                       fields: &[(&str, &str)],
                       error: HeadError| {
            let refused = text(&request(method, authority, path, fields), false);
            assert_eq!(refused, Err(MessageRefusal::Head(error)), "{method} {authority} {path} {fields:?}");
        };
        for value in [" x", "x ", "\tx", "x\t"] {
            refused("GET", "h", "/", &[("x-a", value)], SurroundedValue);
            refused("GET", "h", "/", &[("cookie", value)], SurroundedValue);
        }
        refused("GET", "h", "/", &[("host", "other")], HostMismatch);
        refused("GET", "h", "/", &[("content-length", "1"), ("content-length", "1")], RepeatedContentLength);
        refused("GET", "", "/", &[], MissingHost);
        refused("GET", "", "/", &[("host", "a"), ("host", "b")], RepeatedHost);
        refused("GET", "a b", "/", &[], InvalidHost);
        refused("GET", "h", "*", &[], TargetForm);
        refused("GET", "h", "p", &[], TargetForm);
        refused("GET", "h", "http://other/", &[], TargetForm);
        refused("GET", "h", "/a b", &[], Target);
        refused("GET", "h", "/#a", &[], Target);
        refused("CONNECT", "", "", &[], TargetForm);
        refused("CONNECT", "h:443", "", &[("content-length", "3")], ContentLength);
        let scheme = [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/")];
        assert_eq!(text(&parts::fields(&scheme), false), Err(MessageRefusal::Head(Scheme)));
    }

    /// The fields of an extended CONNECT to this protocol.
    fn extended<'a>(protocol: &'a str, path: &'a str, fields: &[(&'a str, &'a str)]) -> FieldPairs<'a> {
        request("CONNECT", "h:81", path, &[&[(":protocol", protocol)], fields].concat())
    }

    #[test]
    fn an_extended_connect_becomes_an_upgrade_with_a_key_of_its_own() {
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "its"), ("origin", "http://o")];
        let opened = translated(&extended(WEBSOCKET, "/chat?a=1", &fields), false).unwrap();
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
        use HeadError::{ContentLength, HostMismatch, Protocol};
        let refused = |protocol, fields: &[(&'static str, &'static str)]| {
            translated(&extended(protocol, "/", fields), false).err()
        };
        for protocol in ["webtransport", "connect-udp", "WebSocket", "websocket, x", ""] {
            assert_eq!(refused(protocol, &[]), Some(MessageRefusal::Head(Protocol)), "{protocol}");
        }
        assert_eq!(refused(WEBSOCKET, &[("content-length", "0")]), Some(MessageRefusal::Head(ContentLength)));
        assert_eq!(refused(WEBSOCKET, &[("host", "other")]), Some(MessageRefusal::Head(HostMismatch)));
        assert_eq!(refused(WEBSOCKET, &[("upgrade", "websocket")]), Some(MessageRefusal::Malformed));
    }

    proptest! {
        #[test]
        fn a_websocket_from_stream_to_stream_is_the_same_request(
            authority in prop_oneof!["[a-z0-9.-]{1,10}(:[0-9]{1,5})?", "[ -~]{1,12}"],
            path in prop_oneof!["/[ -~]{0,20}", "[ -~]{1,20}"],
            names in vec(prop_oneof!["[a-z0-9-]{1,12}", "sec-websocket-[a-z]{3,8}", "upgrade|connection|te"], 0..5),
            values in vec("[ -~]{0,12}", 5),
        ) {
            let mut sent: Vec<(&str, &str)> = vec![
                (":method", "CONNECT"),
                (":protocol", WEBSOCKET),
                (":scheme", "http"),
                (":authority", &authority),
                (":path", &path),
            ];
            sent.extend(names.iter().zip(&values).map(|(name, value)| (name.as_str(), value.as_str())));
            let Ok(opened) = translated(&parts::fields(&sent), false) else { return Ok(()) };
            prop_assert_eq!(opened.framing, BodyFraming::Tunnel);
            // The strict parser may refuse it, too.
            let Some(forwarded) = parts::sent_request(&opened.text, false) else { return Ok(()) };
            prop_assert!(forwarded.opens_websocket);
            // The key is that of HTTP/1.1, and the parts of a cookie are joined.
            let dropped = ["sec-websocket-key", "host", "http2-settings", "cookie"];
            sent.retain(|(name, _)| !dropped.contains(name));
            let mut received: Vec<(&str, &str)> = Vec::new();
            for (name, value) in &forwarded.fields {
                received.push((std::str::from_utf8(name).unwrap(), std::str::from_utf8(value).unwrap()));
            }
            received.retain(|(name, _)| *name != "cookie");
            sent.sort_unstable();
            received.sort_unstable();
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn the_parts_of_a_cookie_count_as_fields() {
        let crumbs = vec![("cookie", "a=1"); FIELDS_MAX + 1];
        let refused = text(&request("GET", "h", "/", &crumbs), true);
        assert_eq!(refused, Err(MessageRefusal::Head(HeadError::TooManyFields)));
    }
}
