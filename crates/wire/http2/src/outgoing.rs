//! The text of a request or response of HTTP/1.1 as the fields of one of HTTP/2 (RFC 9113 §8.3), and
//! trailers.
//!
//! The strict parser of HTTP/1.1 judges the text first. The reason phrase and the fields about the connection
//! are dropped, and names are written in lower case.

use egret_http1::{
    Field, HeadLimits, KnownField, MAX_FIELDS, MAX_HEAD, Method, Progress, RequestHead, ResponseHead,
    is_field_value, is_token, trim,
};
use thiserror::Error;

use crate::hpack::Indexing;
use crate::received::is_about_connection;
use crate::websocket::{WEBSOCKET, websocket_accept, websocket_key};

/// Fields of requests whose values may enter the table that all requests of a connection share, beside those
/// that [`index_in_request`] knows. Clients of the gateway share the connection, and could guess the values
/// of others by how well their own are compressed (RFC 7541 §7.1.3), so only values are listed here that many
/// calls have in common and that are no secret.
const COMMON_FIELDS: [&[u8]; 3] = [b"grpc-accept-encoding", b"grpc-encoding", b"x-goog-api-client"];

/// Limits of heads, which the exchange has applied already.
const LIMITS: HeadLimits = HeadLimits { start_line: MAX_HEAD, head: MAX_HEAD, fields: MAX_FIELDS };

/// Error: a message cannot be sent in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message cannot be sent in HTTP/2")]
pub(crate) struct Untranslatable;

/// A request that can be sent.
#[derive(Debug)]
pub(crate) struct OutgoingRequest<'a> {
    text: &'a [u8],
    /// Its head in HTTP/1.1.
    pub head: &'a RequestHead,
    host: &'a [u8],
    is_tls: bool,
    /// The value of `Sec-WebSocket-Accept` for the client, if the request opens a WebSocket (RFC 8441).
    pub accept: Option<String>,
}

impl<'a> OutgoingRequest<'a> {
    /// Reads the text of a request's head, which bytes of its body may follow, into `head`. The request is
    /// sent on a connection with TLS if `is_tls`.
    pub fn read(text: &'a [u8], head: &'a mut RequestHead, is_tls: bool) -> Result<Self, Untranslatable> {
        head.reset();
        match head.parse(text, &LIMITS) {
            Ok(Progress::Complete) => {}
            Ok(Progress::Partial) | Err(_) => return Err(Untranslatable),
        }
        let head = &*head;
        // CONNECT and an absolute target have forms of their own, which no request to a provider takes.
        if head.authority.is_some() || head.method == Method::Connect {
            return Err(Untranslatable);
        }
        let host =
            head.host.map(|host| host.of(text)).filter(|host| !host.is_empty()).ok_or(Untranslatable)?;
        let accept = websocket_key(head, text).map(websocket_accept);
        Ok(Self { text, head, host, is_tls, accept })
    }

    /// Calls `take` with the name and the value of each field, in the order in which they are sent.
    pub fn for_each_field(&self, mut take: impl FnMut(&[u8], &[u8], Indexing)) {
        let (text, head) = (self.text, self.head);
        let is_websocket = self.accept.is_some();
        let method = if is_websocket { b"CONNECT" } else { head.method_text.of(text) };
        take(b":method", method, Indexing::Without);
        if is_websocket {
            take(b":protocol", WEBSOCKET.as_bytes(), Indexing::Add);
        }
        take(b":scheme", if self.is_tls { b"https" } else { b"http" }, Indexing::Without);
        take(b":authority", self.host, Indexing::Add);
        take(b":path", head.target.of(text), Indexing::Without);
        let mut lower = Vec::new();
        for field in &head.fields {
            match field.known {
                KnownField::Host | KnownField::Http2Settings => {}
                // RFC 9113 §8.2.2: nothing but `trailers` may be asked for.
                KnownField::Te if !field.value.of(text).eq_ignore_ascii_case(b"trailers") => {}
                KnownField::Te => take(b"te", b"trailers", Indexing::Add),
                known if is_about_connection(known) => {}
                KnownField::SecWebSocketKey if is_websocket => {}
                known => {
                    let name = lower_case(field.name.of(text), &mut lower);
                    take(name, field.value.of(text), index_in_request(known, name));
                }
            }
        }
    }
}

/// The part of the table in how a field of a request is sent.
fn index_in_request(known: KnownField, name: &[u8]) -> Indexing {
    match known {
        KnownField::Accept
        | KnownField::AcceptCharset
        | KnownField::AcceptEncoding
        | KnownField::AcceptLanguage
        | KnownField::CacheControl
        | KnownField::ContentEncoding
        | KnownField::ContentType
        | KnownField::UserAgent
        | KnownField::Via => Indexing::Add,
        KnownField::ContentLength => Indexing::Without,
        KnownField::Other if COMMON_FIELDS.contains(&name) => Indexing::Add,
        _ => Indexing::Never,
    }
}

/// A response that can be sent.
#[derive(Debug)]
pub(crate) struct OutgoingResponse<'a> {
    text: &'a [u8],
    /// Its head in HTTP/1.1.
    pub head: &'a ResponseHead,
    /// Its status code in HTTP/2.
    pub status: u16,
    opens_websocket: bool,
}

impl<'a> OutgoingResponse<'a> {
    /// Reads the text of a response's head, with the empty line that ends it, into `head`.
    pub fn read(text: &'a [u8], head: &'a mut ResponseHead) -> Result<Self, Untranslatable> {
        let response = Self::parse(text, head)?;
        // Switching protocols does not exist (RFC 9113 §8.6).
        if response.status == 101 { Err(Untranslatable) } else { Ok(response) }
    }

    /// Reads the text of a response's head that switches to WebSocket, which is a success in HTTP/2 (RFC 8441
    /// §5).
    pub fn read_switch(text: &'a [u8], head: &'a mut ResponseHead) -> Result<Self, Untranslatable> {
        let response = Self::parse(text, head)?;
        let is_switch = response.status == 101;
        if is_switch {
            Ok(Self { status: 200, opens_websocket: true, ..response })
        } else {
            Err(Untranslatable)
        }
    }

    fn parse(text: &'a [u8], head: &'a mut ResponseHead) -> Result<Self, Untranslatable> {
        head.reset();
        // The method matters for the framing alone.
        match head.parse(text, &LIMITS, Method::Get) {
            Ok(Progress::Complete) if head.len == text.len() => {
                Ok(Self { text, status: head.status, head, opens_websocket: false })
            }
            Ok(_) | Err(_) => Err(Untranslatable),
        }
    }

    /// Calls `take` with the name and the value of each field, in the order in which they are sent.
    pub fn for_each_field(&self, mut take: impl FnMut(&[u8], &[u8], Indexing)) {
        let digit = |number: u16| b'0' + (number % 10) as u8;
        let status = [digit(self.status / 100), digit(self.status / 10), digit(self.status)];
        take(b":status", &status, Indexing::Without);
        let mut lower = Vec::new();
        for field in self.head.fields.iter().filter(|field| self.is_sent(field)) {
            let name = lower_case(field.name.of(self.text), &mut lower);
            take(name, field.value.of(self.text), index_in_response(field.known));
        }
    }

    fn is_sent(&self, field: &Field) -> bool {
        let is_left_out = match field.known {
            KnownField::Http2Settings => true,
            KnownField::SecWebSocketAccept => self.opens_websocket,
            known => is_about_connection(known),
        };
        !is_left_out
    }
}

/// The part of the table in how a field of a response is sent. Only one client sees the table.
fn index_in_response(known: KnownField) -> Indexing {
    match known {
        // The date is the same for all responses of a second.
        KnownField::AcceptRanges
        | KnownField::CacheControl
        | KnownField::ContentEncoding
        | KnownField::ContentType
        | KnownField::Date
        | KnownField::Server
        | KnownField::StrictTransportSecurity
        | KnownField::Vary
        | KnownField::Via => Indexing::Add,
        KnownField::SetCookie | KnownField::AuthenticationInfo => Indexing::Never,
        _ => Indexing::Without,
    }
}

/// Returns `true` if a name, a token, has a letter in upper case. Names are short: eight bytes at a time in a
/// register are faster than a loop.
fn has_upper_case(name: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The top bit of each byte that is at least `A`, and of each that is above `Z`.
    let is_upper = |word: u64| {
        let from_a = word + EACH * u64::from(0x80 - b'A');
        let above_z = word + EACH * u64::from(0x80 - b'Z' - 1);
        from_a & !above_z & (EACH << 7) != 0
    };
    let (words, rest) = name.as_chunks::<8>();
    words.iter().any(|word| is_upper(u64::from_le_bytes(*word))) || rest.iter().any(u8::is_ascii_uppercase)
}

/// Returns the name in lower case, which `buffer` holds unless it is so already.
fn lower_case<'a>(name: &'a [u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    if !has_upper_case(name) {
        return name;
    }
    buffer.clear();
    buffer.extend(name.iter().map(u8::to_ascii_lowercase));
    buffer
}

/// Returns the name and the value in each line of trailers.
fn trailers(lines: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Untranslatable>> {
    lines.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r\n").ok_or(Untranslatable)?;
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Untranslatable)?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if is_token(name) && is_field_value(value) { Ok((name, value)) } else { Err(Untranslatable) }
    })
}

/// Checks the lines of trailers.
pub(crate) fn check_trailers(lines: &[u8]) -> Result<(), Untranslatable> {
    trailers(lines).try_for_each(|trailer| trailer.map(drop))
}

/// Calls `take` with the name and the value of each of these trailers, which are valid. Those of requests are
/// not remembered: all clients share the connection.
pub(crate) fn for_each_trailer(lines: &[u8], is_request: bool, mut take: impl FnMut(&[u8], &[u8], Indexing)) {
    let mut lower = Vec::new();
    for (name, value) in trailers(lines).flatten() {
        let name = lower_case(name, &mut lower);
        let index = match name {
            _ if is_request => Indexing::Never,
            b"grpc-status" => Indexing::Add,
            _ => Indexing::Without,
        };
        take(name, value, index);
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::RequestFraming;

    use super::*;

    type Fields = Vec<(String, String, Indexing)>;

    fn listed(for_each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing))) -> Fields {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for_each(&mut |name, value, index| fields.push((text(name), text(value), index)));
        fields
    }

    fn request(text: &str, is_tls: bool) -> Result<Fields, Untranslatable> {
        let mut head = RequestHead::new();
        let request = OutgoingRequest::read(text.as_bytes(), &mut head, is_tls)?;
        Ok(listed(|take| request.for_each_field(take)))
    }

    fn response(text: &str) -> Result<Fields, Untranslatable> {
        let mut head = ResponseHead::new();
        let response = OutgoingResponse::read(text.as_bytes(), &mut head)?;
        Ok(listed(|take| response.for_each_field(take)))
    }

    fn expected(fields: &[(&str, &str, Indexing)]) -> Fields {
        fields.iter().map(|(name, value, index)| ((*name).into(), (*value).into(), *index)).collect()
    }

    #[test]
    fn a_head_becomes_a_request_without_connection_fields() {
        let text = "POST /p?q=1 HTTP/1.1\r\nHost: h:81\r\nConnection: TE, X-B\r\nTE: trailers\r\nX-A: 1\r\n\
            x-a: 2\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nVia: 1.1 egret\r\n\r\n3\r\nabc";
        let fields = [
            (":method", "POST", Indexing::Without),
            (":scheme", "https", Indexing::Without),
            (":authority", "h:81", Indexing::Add),
            (":path", "/p?q=1", Indexing::Without),
            ("te", "trailers", Indexing::Add),
            ("x-a", "1", Indexing::Never),
            ("x-a", "2", Indexing::Never),
            ("via", "1.1 egret", Indexing::Add),
        ];
        assert_eq!(request(text, true), Ok(expected(&fields)));
        let mut head = RequestHead::new();
        let translated = OutgoingRequest::read(text.as_bytes(), &mut head, true).unwrap();
        assert_eq!(
            (&text[translated.head.len..], translated.head.framing),
            ("3\r\nabc", RequestFraming::Chunked)
        );
    }

    #[test]
    fn an_upgrade_to_websocket_becomes_an_extended_connect() {
        let text = "GET /chat?a=1 HTTP/1.1\r\nHost: h:81\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        let fields = [
            (":method", "CONNECT", Indexing::Without),
            (":protocol", "websocket", Indexing::Add),
            (":scheme", "https", Indexing::Without),
            (":authority", "h:81", Indexing::Add),
            (":path", "/chat?a=1", Indexing::Without),
            ("sec-websocket-version", "13", Indexing::Never),
        ];
        assert_eq!(request(text, true), Ok(expected(&fields)));
        let mut head = RequestHead::new();
        let translated = OutgoingRequest::read(text.as_bytes(), &mut head, true).unwrap();
        assert_eq!(translated.accept.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn credentials_are_never_compressed() {
        for name in ["authorization", "cookie", "x-api-key", "api-key", "x-own-credential", "proxy-token"] {
            let fields =
                request(&format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: s3cret\r\n\r\n"), true).unwrap();
            assert_eq!(fields.last(), Some(&(name.into(), "s3cret".into(), Indexing::Never)));
        }
        let set = response("HTTP/1.1 200 OK\r\nSet-Cookie: s3cret\r\n\r\n").unwrap();
        assert_eq!(set[1], ("set-cookie".into(), "s3cret".into(), Indexing::Never));
    }

    #[test]
    fn a_request_without_a_form_in_http_2_is_refused() {
        for text in [
            "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "",
        ] {
            assert_eq!(request(text, false), Err(Untranslatable), "{text:?}");
        }
        let options = request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", false).unwrap();
        assert_eq!(options[3], (":path".into(), "*".into(), Indexing::Without));
    }

    #[test]
    fn a_head_loses_its_reason_and_its_connection_fields() {
        let text = "HTTP/1.1 404 Not There\r\nContent-Type: a/b\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n\
            Transfer-Encoding: chunked\r\nProxy-Authenticate: Basic\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let fields = [
            (":status", "404", Indexing::Without),
            ("content-type", "a/b", Indexing::Add),
            ("proxy-authenticate", "Basic", Indexing::Without),
            ("x-a", "1", Indexing::Without),
            ("x-a", "2", Indexing::Without),
        ];
        assert_eq!(response(text), Ok(expected(&fields)));
    }

    #[test]
    fn a_response_without_a_form_in_http_2_is_refused() {
        for text in [
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\nbody",
            "HTTP/2 200\r\n\r\n",
            "",
        ] {
            assert_eq!(response(text), Err(Untranslatable), "{text:?}");
        }
    }

    #[test]
    fn a_switch_to_websocket_is_a_success() {
        let text = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: a=\r\nSec-WebSocket-Protocol: chat\r\nX-A: 1\r\n\r\n";
        let mut head = ResponseHead::new();
        let opened = OutgoingResponse::read_switch(text, &mut head).unwrap();
        let names: Vec<_> =
            listed(|take| opened.for_each_field(take)).into_iter().map(|field| field.0).collect();
        assert_eq!(
            (opened.status, names),
            (200, vec![":status".into(), "sec-websocket-protocol".into(), "x-a".into()])
        );
        assert!(OutgoingResponse::read_switch(b"HTTP/1.1 200 OK\r\n\r\n", &mut head).is_err());
    }

    #[test]
    fn upper_case_is_noticed_wherever_it_is() {
        for byte in (0..0x80).map(|byte| [byte]).filter(|byte| is_token(byte)) {
            for len in 0..20 {
                let mut name = vec![b'a'; len];
                assert!(!has_upper_case(&name));
                for at in 0..len {
                    name[at] = byte[0];
                    assert_eq!(has_upper_case(&name), byte[0].is_ascii_uppercase(), "{name:?}");
                    name[at] = b'z';
                }
            }
        }
    }

    #[test]
    fn trailers_are_lines_of_fields() {
        let lines = b"grpc-status: 0\r\nGrpc-Message:  a b \r\n";
        assert_eq!(check_trailers(lines), Ok(()));
        let sent = |is_request| listed(|take| for_each_trailer(lines, is_request, take));
        let own = [("grpc-status", "0", Indexing::Add), ("grpc-message", "a b", Indexing::Without)];
        assert_eq!(sent(false), expected(&own));
        assert!(sent(true).iter().all(|(.., index)| *index == Indexing::Never));
        for lines in ["no colon\r\n", "a: 1\n", "a: 1", ": 1\r\n", "a b: 1\r\n", "a: 1\0\r\n"] {
            assert_eq!(check_trailers(lines.as_bytes()), Err(Untranslatable), "{lines:?}");
        }
    }
}
