//! Checks of translated messages, shared by property tests and fuzzing.

use std::fmt::Write as _;

use egret_http1::{HeadLimits, Method, Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead};
use egret_http2::{BodyFraming, outgoing_request, request_text, response, response_text, websocket_key};
use h2::ext::Protocol;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response, Uri};

const FIELDS_MAX: usize = 100;
/// Fields that do not arrive as they were sent.
const CHANGED: [&str; 4] = ["host", "cookie", "http2-settings", "sec-websocket-key"];
/// The first part of a request that opens a WebSocket (RFC 8441 §4).
const OPENS_WEBSOCKET: &[u8] = b"w";

/// A request, in the parts that HTTP/2 sends.
pub struct Sent<'a> {
    pub method: &'a [u8],
    pub authority: &'a [u8],
    pub target: &'a [u8],
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// `true` if there is no body.
    pub ends: bool,
    /// `true` if it is a CONNECT that opens a WebSocket. `method` has no meaning then.
    pub opens_websocket: bool,
}

impl<'a> Sent<'a> {
    /// Reads the parts of a request from `bytes`, with NUL between them.
    pub fn read(bytes: &'a [u8]) -> Self {
        let mut parts = bytes.split(|byte| *byte == 0);
        let mut part = || parts.next().unwrap_or_default();
        let (flag, method, authority, target) = (part(), part(), part(), part());
        let mut fields = Vec::new();
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            fields.push((name, value));
        }
        let opens_websocket = flag == OPENS_WEBSOCKET;
        Self {
            method,
            authority,
            target,
            fields,
            ends: !flag.is_empty() && !opens_websocket,
            opens_websocket,
        }
    }

    /// Returns the request as the library passes it on, unless the library refuses it.
    fn parts(&self) -> Option<Parts> {
        let method = if self.opens_websocket { b"CONNECT" } else { self.method };
        let uri = if method == b"CONNECT" && !self.opens_websocket {
            Uri::builder().authority(self.authority).build()
        } else {
            Uri::builder().scheme("http").authority(self.authority).path_and_query(self.target).build()
        };
        let mut builder = Request::builder().method(method).uri(uri.ok()?);
        if self.opens_websocket {
            builder = builder.extension(Protocol::from_static("websocket"));
        }
        for (name, value) in &self.fields {
            builder =
                builder.header(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        Some(builder.body(()).ok()?.into_parts().0)
    }
}

/// Checks that an accepted request keeps its meaning as text, and is one request.
pub fn request(sent: &Sent<'_>) {
    let Some(parts) = sent.parts() else { return };
    let Ok(translated) = request_text(&parts, false, sent.ends, FIELDS_MAX) else { return };
    let bytes = &translated.text;
    let mut head = RequestHead::new();
    // The strict parser may refuse it, too.
    let Ok(progress) = head.parse(bytes, &HeadLimits::default()) else { return };
    assert_eq!((progress, head.len), (Progress::Complete, bytes.len()));
    assert_eq!(translated.opens_websocket, sent.opens_websocket);
    if sent.opens_websocket {
        assert!(head.upgrade && translated.framing == BodyFraming::Tunnel);
        // The gateway's own key, whatever the client has sent.
        assert_eq!(websocket_key(&head, bytes).map(<[u8]>::len), Some(24));
    } else {
        assert_eq!(head.method_text.of(bytes), parts.method.as_str().as_bytes());
    }
    let authority = parts.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let target = parts.uri.path_and_query().map_or(authority, http::uri::PathAndQuery::as_str);
    assert_eq!(head.target.of(bytes), target.as_bytes());
    assert_eq!(head.host.map(|host| host.of(bytes)), Some(authority.as_bytes()));
    for name in parts.headers.keys().filter(|name| !CHANGED.contains(&name.as_str())) {
        let sent: Vec<_> = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let lines = head.fields.iter().filter(|field| field.name.of(bytes) == name.as_str().as_bytes());
        let arrived: Vec<_> = lines.map(|field| field.value.of(bytes)).collect();
        assert_eq!(sent, arrived, "{name}");
    }
    let is_framed_so = match translated.framing {
        BodyFraming::None => matches!(head.framing, RequestFraming::None | RequestFraming::Length(0)),
        BodyFraming::Length => matches!(head.framing, RequestFraming::Length(_)),
        BodyFraming::Chunked => head.framing == RequestFraming::Chunked,
        BodyFraming::Tunnel => head.framing == RequestFraming::None,
    };
    assert!(is_framed_so, "{:?} {:?}", translated.framing, head.framing);
    assert!(!sent.ends || matches!(translated.framing, BodyFraming::None | BodyFraming::Tunnel));
}

/// Checks that an accepted response keeps its status and fields.
pub fn sent_response(text: &[u8]) {
    let Ok(translated) = response(text) else { return };
    let mut head = ResponseHead::new();
    let parsed = head.parse(text, &HeadLimits::default(), Method::Get);
    if parsed.is_err() {
        // It is longer than the heads that the gateway receives by default.
        return;
    }
    assert_eq!(translated.status().as_u16(), head.status);
    let connection =
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"];
    let mut seen = HeaderMap::<usize>::default();
    for field in &head.fields {
        let Ok(name) = HeaderName::from_bytes(field.name.of(text)) else { unreachable!() };
        if connection.contains(&name.as_str()) {
            assert!(!translated.headers().contains_key(&name));
            continue;
        }
        let number = seen.get(&name).copied().unwrap_or(0);
        let arrived = translated.headers().get_all(&name).iter().nth(number).map(HeaderValue::as_bytes);
        assert_eq!(arrived, Some(field.value.of(text)));
        seen.insert(name, number + 1);
    }
    assert_eq!(translated.headers().len(), seen.values().sum::<usize>());
}

/// Checks that an accepted response of a provider keeps its status and fields as text, and is one response.
pub fn received_response(status: u16, fields: &[(&[u8], &[u8])], ends: bool) {
    let mut builder = Response::builder().status(status);
    for (name, value) in fields {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            return;
        };
        builder = builder.header(name, value);
    }
    let Ok(received) = builder.body(()) else { return };
    let parts = received.into_parts().0;
    for method in [Method::Get, Method::Head] {
        let Ok(translated) = response_text(&parts, method, ends, FIELDS_MAX) else { continue };
        let bytes = &translated.text;
        let mut head = ResponseHead::new();
        // The strict parser may refuse it, too.
        let Ok(progress) = head.parse(bytes, &HeadLimits::default(), method) else { continue };
        assert_eq!((progress, head.len), (Progress::Complete, bytes.len()));
        assert!(head.status == status && status != 101);
        assert!(head.persistent, "the other streams of the connection go on");
        for name in parts.headers.keys().filter(|name| *name != "content-length") {
            let sent: Vec<_> = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            let lines = head.fields.iter().filter(|field| field.name.of(bytes) == name.as_str().as_bytes());
            let arrived: Vec<_> = lines.map(|field| field.value.of(bytes)).collect();
            assert_eq!(sent, arrived, "{name}");
        }
        let is_framed_so = match translated.framing {
            BodyFraming::None => matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(0)),
            BodyFraming::Length => matches!(head.framing, ResponseFraming::Length(_)),
            BodyFraming::Chunked => head.framing == ResponseFraming::Chunked,
            BodyFraming::Tunnel => false,
        };
        assert!(is_framed_so, "{:?} {:?}", translated.framing, head.framing);
        assert!(!ends || translated.framing == BodyFraming::None);
    }
}

/// Checks that a request that can be sent keeps its method, target and fields.
pub fn sent_request(text: &[u8]) {
    let Ok(translated) = outgoing_request(text, true) else { return };
    let mut head = RequestHead::new();
    if head.parse(text, &HeadLimits::default()).is_err() {
        // It is longer than the heads that the gateway receives by default.
        return;
    }
    let request = &translated.request;
    assert_eq!(translated.len, head.len);
    // A WebSocket is opened by another method.
    let method = if translated.accept.is_some() { b"CONNECT" } else { head.method_text.of(text) };
    assert_eq!(request.method().as_str().as_bytes(), method);
    assert_eq!(
        request.uri().path_and_query().map(|path| path.as_str().as_bytes()),
        Some(head.target.of(text))
    );
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    assert_eq!(authority, head.host.map(|host| host.of(text)));
    for name in request.headers().keys().filter(|name| *name != "te") {
        let sent: Vec<_> = request.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let lines = head
            .fields
            .iter()
            .filter(|field| field.name.of(text).eq_ignore_ascii_case(name.as_str().as_bytes()));
        let received: Vec<_> = lines.map(|field| field.value.of(text)).collect();
        assert_eq!(sent, received, "{name}");
    }
    for name in
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"]
    {
        assert!(!request.headers().contains_key(name), "{name}");
    }
}

/// Checks both directions: a request, and the text of a response made of the same parts.
pub fn message(bytes: &[u8]) {
    let sent = Sent::read(bytes);
    request(&sent);
    let mut text = String::from("HTTP/1.1 ");
    let _ = write!(text, "{} {}\r\n", sent.method.escape_ascii(), sent.target.escape_ascii());
    let mut text = text.into_bytes();
    for (name, value) in &sent.fields {
        text.extend([name, &b": "[..], value, b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    sent_response(&text);
    let status = u16::try_from(sent.target.len()).map_or(200, |len| len.saturating_add(90));
    received_response(status, &sent.fields, sent.ends);
    let line = [sent.method, b" ", sent.target, b" HTTP/1.1\r\nHost: ", sent.authority, b"\r\n"].concat();
    let fields = text.iter().position(|byte| *byte == b'\n').map_or(&[][..], |at| &text[at + 1..]);
    sent_request(&[&line, fields].concat());
}
