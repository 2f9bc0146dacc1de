//! Checks of translated messages, shared by property tests and fuzzing.

use std::fmt::Write as _;

use egret_http1::{HeadLimits, Method, Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead};
use egret_http2::parts::{
    decoded, encoded, received_request, received_response, sent_request, sent_response,
};
use egret_http2::{BodyFraming, websocket_key};

const FIELDS_MAX: usize = 100;
/// Fields that do not arrive as they were sent.
const CHANGED: [&[u8]; 4] = [b"host", b"cookie", b"http2-settings", b"sec-websocket-key"];
/// Fields that HTTP/2 does not have, or that are dropped.
const DROPPED: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings"];
/// The first part of a request that opens a WebSocket (RFC 8441 §4).
const OPENS_WEBSOCKET: &[u8] = b"w";

/// Fields as they are sent.
type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

/// A request, in the parts that HTTP/2 sends.
pub struct Sent<'a> {
    pub method: &'a [u8],
    pub authority: &'a [u8],
    pub target: &'a [u8],
    pub fields: Fields<'a>,
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

    /// The method that is sent.
    fn method(&self) -> &'a [u8] {
        if self.opens_websocket { b"CONNECT" } else { self.method }
    }

    /// Returns all fields, with the pseudo-fields before the others.
    fn all(&self) -> Fields<'a> {
        let mut all: Fields<'a> = vec![(b":method", self.method())];
        if self.opens_websocket {
            all.push((b":protocol", b"websocket"));
        }
        if self.method() != b"CONNECT" || self.opens_websocket {
            all.extend([(&b":scheme"[..], &b"http"[..]), (b":path", self.target)]);
        }
        all.push((b":authority", self.authority));
        all.extend(&self.fields);
        all
    }
}

/// Returns the values of the fields with this name.
fn values<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>, name: &[u8]) -> Vec<&'a [u8]> {
    fields.into_iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// Checks that an accepted request keeps its meaning as text, and is one request.
pub fn request(sent: &Sent<'_>) {
    let Ok(translated) = received_request(&sent.all(), false, sent.ends, FIELDS_MAX) else { return };
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
        assert_eq!(head.method_text.of(bytes), sent.method());
    }
    let is_tunnel = sent.method() == b"CONNECT" && !sent.opens_websocket;
    assert_eq!(head.target.of(bytes), if is_tunnel { sent.authority } else { sent.target });
    assert_eq!(head.host.map(|host| host.of(bytes)), Some(sent.authority));
    // Names are sent in lower case.
    let is_changed = |name: &[u8]| CHANGED.iter().any(|changed| changed.eq_ignore_ascii_case(name));
    for (name, _) in sent.fields.iter().filter(|(name, _)| !is_changed(name)) {
        let lines = head.fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
        assert_eq!(values(sent.fields.iter().copied(), name), values(lines, name), "{name:?}");
    }
    let is_framed_so = match translated.framing {
        BodyFraming::None => matches!(head.framing, RequestFraming::None | RequestFraming::Length(0)),
        BodyFraming::Length => head.framing == RequestFraming::Length(translated.length.unwrap_or(0)),
        BodyFraming::Chunked => head.framing == RequestFraming::Chunked,
        BodyFraming::Tunnel => head.framing == RequestFraming::None,
    };
    assert!(is_framed_so, "{:?} {:?}", translated.framing, head.framing);
    assert!(!sent.ends || matches!(translated.framing, BodyFraming::None | BodyFraming::Tunnel));
}

/// Checks that `sent` has the fields of a head, apart from those that are dropped, in lower case and in their
/// order.
fn assert_same<'a>(
    sent: &[(Vec<u8>, Vec<u8>)],
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    left_out: &[&[u8]],
) {
    let is_kept = |name: &[u8]| !name.starts_with(b":") && name != b"te";
    let lines: Vec<_> = lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .filter(|(name, _)| is_kept(name) && !left_out.contains(&&name[..]))
        .collect();
    let sent: Vec<_> = sent.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
    assert_eq!(sent, lines);
}

/// Checks that an accepted response keeps its status and fields.
pub fn sends_response(text: &[u8]) {
    let Some(translated) = sent_response(text) else { return };
    let mut head = ResponseHead::new();
    if head.parse(text, &HeadLimits::default(), Method::Get).is_err() {
        // It is longer than the heads that the gateway receives by default.
        return;
    }
    assert_eq!(translated.fields[0], (b":status".to_vec(), head.status.to_string().into_bytes()));
    let lines = head.fields.iter().map(|field| (field.name.of(text), field.value.of(text)));
    assert_same(&translated.fields, lines, &DROPPED);
}

/// Checks that an accepted response of a provider keeps its status and fields as text, and is one response.
pub fn receives_response(status: u16, fields: &[(&[u8], &[u8])], ends: bool) {
    let status_text = status.to_string();
    let all: Fields<'_> = [&[(&b":status"[..], status_text.as_bytes())], fields].concat();
    for method in [Method::Get, Method::Head] {
        let Ok(translated) = received_response(&all, method, None, ends, FIELDS_MAX) else { continue };
        let bytes = &translated.text;
        let mut head = ResponseHead::new();
        // The strict parser may refuse it, too.
        let Ok(progress) = head.parse(bytes, &HeadLimits::default(), method) else { continue };
        assert_eq!((progress, head.len), (Progress::Complete, bytes.len()));
        assert!(head.status == status && status != 101);
        assert_eq!(translated.is_informational, status < 200);
        assert!(head.persistent, "the other streams of the connection go on");
        for (name, _) in
            fields.iter().filter(|(name, _)| ![&b"content-length"[..], b"http2-settings"].contains(name))
        {
            let lines = head.fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
            assert_eq!(values(fields.iter().copied(), name), values(lines, name), "{name:?}");
        }
        let is_framed_so = match translated.framing {
            BodyFraming::None => matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(0)),
            BodyFraming::Length => head.framing == ResponseFraming::Length(translated.length.unwrap_or(0)),
            BodyFraming::Chunked => head.framing == ResponseFraming::Chunked,
            BodyFraming::Tunnel => false,
        };
        assert!(is_framed_so, "{:?} {:?}", translated.framing, head.framing);
        assert!(!ends || translated.framing == BodyFraming::None);
    }
}

/// Checks that a request that can be sent keeps its method, target and fields.
pub fn sends_request(text: &[u8]) {
    let Some(translated) = sent_request(text, true) else { return };
    let mut head = RequestHead::new();
    if head.parse(text, &HeadLimits::default()).is_err() {
        // It is longer than the heads that the gateway receives by default.
        return;
    }
    assert_eq!((translated.len, translated.framing), (head.len, head.framing));
    let pseudo = |wanted: &[u8]| {
        let found = translated.fields.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_slice())
    };
    // A WebSocket is opened by another method.
    let method = if translated.opens_websocket { b"CONNECT" } else { head.method_text.of(text) };
    assert_eq!((pseudo(b":method"), pseudo(b":scheme")), (Some(method), Some(&b"https"[..])));
    assert_eq!(pseudo(b":path"), Some(head.target.of(text)));
    assert_eq!(pseudo(b":authority"), head.host.map(|host| host.of(text)));
    assert_eq!(pseudo(b":protocol").is_some(), translated.opens_websocket);
    let lines = head.fields.iter().map(|field| (field.name.of(text), field.value.of(text)));
    let mut left_out = [&DROPPED[..], &[b"host"]].concat();
    if translated.opens_websocket {
        left_out.push(b"sec-websocket-key");
    }
    assert_same(&translated.fields, lines, &left_out);
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
    sends_response(&text);
    let status = u16::try_from(sent.target.len()).map_or(200, |len| len.saturating_add(90));
    receives_response(status, &sent.fields, sent.ends);
    let line = [sent.method, b" ", sent.target, b" HTTP/1.1\r\nHost: ", sent.authority, b"\r\n"].concat();
    let fields = text.iter().position(|byte| *byte == b'\n').map_or(&[][..], |at| &text[at + 1..]);
    sends_request(&[&line, fields].concat());
}

/// Decodes blocks of fields, each behind a byte with its length. What is encoded of them again must be
/// decoded as the same fields.
pub fn blocks(bytes: &[u8]) {
    let mut rest = bytes;
    let blocks = std::iter::from_fn(|| {
        let (&len, after) = rest.split_first()?;
        let (block, after) = after.split_at(after.len().min(len.into()));
        rest = after;
        Some(block)
    });
    let fields = decoded(blocks);
    let again = encoded(&fields);
    assert_eq!(decoded(again.iter().map(Vec::as_slice)), fields);
}
