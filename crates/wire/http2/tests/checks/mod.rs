//! Checks of translated messages, shared by property tests and fuzzing.

use std::fmt::Write as _;

use egret_http1::{HeadLimits, Progress, RequestFraming, RequestHead, ResponseHead};
use egret_http2::{BodyFraming, request_text, response};
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Uri};

const FIELDS_MAX: usize = 100;
/// Fields that do not arrive as they were sent.
const CHANGED: [&str; 3] = ["host", "cookie", "http2-settings"];

/// A request, in the parts that HTTP/2 sends.
pub struct Sent<'a> {
    pub method: &'a [u8],
    pub authority: &'a [u8],
    pub target: &'a [u8],
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// `true` if there is no body.
    pub ends: bool,
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
        Self { method, authority, target, fields, ends: !flag.is_empty() }
    }

    /// Returns the request as the library passes it on, unless the library refuses it.
    fn parts(&self) -> Option<Parts> {
        let uri = if self.method == b"CONNECT" {
            Uri::builder().authority(self.authority).build()
        } else {
            Uri::builder().scheme("http").authority(self.authority).path_and_query(self.target).build()
        };
        let mut builder = Request::builder().method(self.method).uri(uri.ok()?);
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
    assert_eq!(head.method_text.of(bytes), parts.method.as_str().as_bytes());
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
pub fn response_text(text: &[u8]) {
    let Ok(translated) = response(text) else { return };
    let mut head = ResponseHead::new();
    let parsed = head.parse(text, &HeadLimits::default(), egret_http1::Method::Get);
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
    response_text(&text);
}
