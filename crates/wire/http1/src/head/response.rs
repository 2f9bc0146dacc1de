//! Heads of responses (RFC 9112 §4).

use memchr::memchr;

use super::diagnose;
use super::error::HeadError;
use super::facts::Facts;
use super::fields::Field;
use super::framing::ResponseFraming;
use super::known::KnownField;
use super::limits::HeadLimits;
use super::method::Method;
use super::progress::Progress;
use super::repeated::RepeatedLines;
use super::scan::HeadScan;
use super::version::Version;
use crate::edits::{Edits, Rendering};
use crate::span::{Span, to_u32};
use crate::syntax::{CRLF, find_control};

/// Bytes of a status line up to the end of the status code: `HTTP/1.1 200`.
const STATUS_END: u32 = 12;

/// The head of a response, as offsets into the bytes it was parsed from.
///
/// The fields are valid after [`parse`](Self::parse) returned [`Progress::Complete`], together with the bytes
/// passed to it. Reuse one value for all responses of a connection, so its table is allocated once.
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The reason phrase; may be empty.
    pub reason: Span,
    /// The protocol version.
    pub version: Version,
    /// The field lines, in order.
    pub fields: Vec<Field>,
    /// Bytes of the head, including the empty line that ends it.
    pub len: usize,
    /// The framing of the body.
    pub framing: ResponseFraming,
    /// `true` if the provider keeps the connection open after this response.
    pub persistent: bool,
    /// `true` if the provider names another protocol: HTTP/1.1, Upgrade, and `Connection: upgrade`. The
    /// connection changes to it only with status 101.
    pub upgrade: bool,
    /// `Keep-Alive: timeout`: seconds that the provider keeps an idle connection open.
    pub keep_alive_timeout_s: Option<u32>,
    /// `Keep-Alive: max`: number of further requests that the provider accepts on the connection.
    pub keep_alive_max: Option<u32>,
    start_line_end: u32,
    scan: HeadScan,
    /// `None` until a second head is parsed.
    repeated: Option<Box<RepeatedLines>>,
}

impl ResponseHead {
    /// Creates an empty head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards a partial head, before use with another buffer.
    pub fn reset(&mut self) {
        self.scan = HeadScan::default();
    }

    /// Parses the head at the start of `buffer`, which may hold more than the head. It is the response to a
    /// request with `request_method`, which affects the framing of the body.
    ///
    /// After [`Progress::Partial`], call it again with the same bytes and more. Each byte is then looked at
    /// once, and a head that exceeds a limit is rejected as soon as possible. After any other result the next
    /// call starts a new head; the caller first drops `len` bytes.
    pub fn parse(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        if matches!(buffer.first(), Some(b'\r' | b'\n')) {
            self.reset();
            return Err(HeadError::EmptyLine);
        }
        if self.scan.is_new() && self.parse_whole(buffer, limits, request_method)? == Progress::Complete {
            return Ok(Progress::Complete);
        }
        self.parse_again(buffer, limits, request_method)
    }

    /// Goes on with a head that was incomplete.
    #[inline(never)]
    fn parse_again(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        let mut scan = std::mem::take(&mut self.scan);
        let result = scan.run(buffer, limits, || self.parse_whole(buffer, limits, request_method));
        self.scan = scan;
        result
    }

    fn parse_whole(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        let window = limits.window(buffer);
        if self.read_start_line(window).is_none() {
            return refuse_start_line(window);
        }
        if self.start_line_end as usize > limits.start_line {
            return Err(HeadError::StartLineTooLong);
        }
        let repeated = RepeatedLines::of(&mut self.repeated, self.len == 0);
        let fields_start = self.start_line_end as usize + CRLF.len();
        let read = Facts::read(window, fields_start, self.version, limits, repeated, &mut self.fields)?;
        let Some((facts, len)) = read else { return Ok(Progress::Partial) };
        self.len = len;
        self.conclude(&facts, request_method)?;
        Ok(Progress::Complete)
    }

    /// Parses the status line that `window` begins with: a version, a status code and an optional reason,
    /// with one space between them (RFC 9112 §4). Returns `None` if the line is malformed or incomplete.
    #[inline]
    fn read_start_line(&mut self, window: &[u8]) -> Option<()> {
        let (version, rest) = window.split_first_chunk()?;
        self.version = match version {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            _ => return None,
        };
        let [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = rest else {
            return None;
        };
        // One space precedes the reason; both may be missing.
        let len = find_control(rest)?;
        if !matches!(rest, [b' ' | b'\r', ..]) || !rest[len..].starts_with(CRLF) {
            return None;
        }
        let digit = |byte: &u8| u16::from(byte - b'0');
        self.status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
        let end = STATUS_END + to_u32(len);
        self.start_line_end = end;
        self.reason = Span { start: end.min(STATUS_END + 1), end };
        Some(())
    }

    /// Determines the framing by RFC 9112 §6.3, in its order.
    fn conclude(&mut self, facts: &Facts, request_method: Method) -> Result<(), HeadError> {
        let tunnel = request_method == Method::Connect && (200..300).contains(&self.status);
        let no_length = self.status < 200 || self.status == 204 || tunnel;
        self.framing = match facts.content_length {
            _ if no_length || self.status == 304 || request_method == Method::Head => ResponseFraming::None,
            _ if facts.chunked => ResponseFraming::Chunked,
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::UntilClose,
        };
        if no_length {
            self.check_without_length(facts)?;
        }
        self.persistent =
            facts.connection.is_persistent(self.version) && self.framing != ResponseFraming::UntilClose;
        self.upgrade = facts.upgrade(self.version);
        self.keep_alive_timeout_s = facts.keep_alive_timeout_s;
        self.keep_alive_max = facts.keep_alive_max;
        Ok(())
    }

    /// Checks a response whose status code leaves no room for a body, and keeps its length from being
    /// forwarded.
    fn check_without_length(&mut self, facts: &Facts) -> Result<(), HeadError> {
        // A recipient that believes the fields takes the next bytes for a body, any other for a response. A
        // length of zero can be read in one way only.
        if self.status < 200 && (facts.chunked || facts.content_length.is_some_and(|length| length > 0)) {
            return Err(HeadError::InformationalBody);
        }
        if facts.content_length.is_some() {
            for field in &mut self.fields {
                field.hop_by_hop |= field.known == KnownField::ContentLength;
            }
        }
        Ok(())
    }

    /// Returns `true` if the status code is followed by the space that is required even without a reason (RFC
    /// 9112 §4). Some servers omit it.
    pub fn has_space_after_status(&self) -> bool {
        self.start_line_end > STATUS_END
    }

    /// Returns the head with `edits` applied. `buffer` holds the bytes the head was parsed from. Without
    /// edits they come out unchanged.
    pub fn render<'a>(&'a self, buffer: &'a [u8], edits: &'a Edits) -> Rendering<'a> {
        let start_line = Span { start: 0, end: self.start_line_end };
        Rendering { buffer, start_line, fields: &self.fields, len: self.len, edits }
    }
}

/// Returns the rule that the start line of `window` breaks, or `Partial` if it is not complete.
#[cold]
fn refuse_start_line(window: &[u8]) -> Result<Progress, HeadError> {
    let Some(line_feed) = memchr(b'\n', window) else {
        diagnose::response_start(window)?;
        return Ok(Progress::Partial);
    };
    let line = window[..line_feed].strip_suffix(b"\r").ok_or(HeadError::BareLineFeed)?;
    Err(diagnose::status_line(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8], request_method: Method) -> Result<(Progress, ResponseHead), HeadError> {
        let mut head = ResponseHead::new();
        let progress = head.parse(text, &HeadLimits::default(), request_method)?;
        Ok((progress, head))
    }

    fn accept(text: &str, request_method: Method) -> ResponseHead {
        match parse(text.as_bytes(), request_method) {
            Ok((Progress::Complete, head)) => head,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_response_is_a_table_of_offsets() {
        let text = "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nServer:\r\n\r\nabc";
        let head = accept(text, Method::Get);
        let bytes = text.as_bytes();
        assert_eq!(
            (head.status, head.reason.of(bytes), head.version),
            (404, &b"Not Found"[..], Version::Http11)
        );
        assert_eq!((head.framing, head.len), (ResponseFraming::Length(3), text.len() - 3));
        let fields: Vec<_> = head.fields.iter().map(|field| (field.known, field.value.of(bytes))).collect();
        assert_eq!(fields, [(KnownField::ContentLength, &b"3"[..]), (KnownField::Server, b"")]);
        assert!(head.persistent && !head.upgrade);
    }

    #[test]
    fn reasons_may_be_missing_or_any_text_rfc_9112_section_4() {
        for (line, reason) in [
            ("HTTP/1.1 200", &b""[..]),
            ("HTTP/1.1 200 ", b""),
            ("HTTP/1.1 200  two", b" two"),
            ("HTTP/1.0 200 a\tb", b"a\tb"),
            ("HTTP/1.1 200 \u{e9}", "\u{e9}".as_bytes()),
        ] {
            let text = format!("{line}\r\n\r\n");
            let head = accept(&text, Method::Get);
            assert_eq!(head.reason.of(text.as_bytes()), reason, "{line}");
            assert_eq!(head.has_space_after_status(), line.len() > 12, "{line}");
        }
    }

    #[test]
    fn malformed_heads_are_refused_by_rule() {
        let rows: &[(&str, &[u8], HeadError)] = &[
            ("9112 2.2 empty line first", b"\r\nHTTP/1.1 200 OK\r\n\r\n", HeadError::EmptyLine),
            ("9112 2.2 LF first", b"\nHTTP/1.1 200 OK\r\n\r\n", HeadError::EmptyLine),
            ("9112 2.2 bare LF after the status line", b"HTTP/1.1 200 OK\n\r\n", HeadError::BareLineFeed),
            ("9112 2.2 bare LF, no reason", b"HTTP/1.1 200\n\r\n", HeadError::BareLineFeed),
            ("9112 2.2 bare LF after a field", b"HTTP/1.1 200 OK\r\nA: b\n\r\n", HeadError::BareLineFeed),
            ("9112 2.2 bare LF at the end", b"HTTP/1.1 200 OK\r\nA: b\r\n\n", HeadError::BareLineFeed),
            ("9112 2.2 bare CR in the reason", b"HTTP/1.1 200 O\rK\r\n\r\n", HeadError::Status),
            (
                "9112 2.2 bare CR in a value",
                b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
                HeadError::BareCarriageReturn,
            ),
            ("9112 2.2 CR CR LF", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\r\n", HeadError::BareCarriageReturn),
            ("9112 2.3 version", b"HTTP/2.0 200 OK\r\n\r\n", HeadError::UnsupportedVersion),
            ("9112 2.3 not HTTP", b"ICY 200 OK\r\n\r\n", HeadError::Version),
            ("9112 2.3 SSH", b"SSH-2.0-OpenSSH_9.2\r\n", HeadError::Version),
            ("9112 4 status of 2 digits", b"HTTP/1.1 20 OK\r\n\r\n", HeadError::Status),
            ("9112 4 status of 4 digits", b"HTTP/1.1 2000 OK\r\n\r\n", HeadError::Status),
            ("9112 4 status 099", b"HTTP/1.1 099 OK\r\n\r\n", HeadError::Status),
            ("9112 4 status 000", b"HTTP/1.1 000 OK\r\n\r\n", HeadError::Status),
            ("9112 4 status in letters", b"HTTP/1.1 2OO OK\r\n\r\n", HeadError::Status),
            ("9112 4 two spaces", b"HTTP/1.1  200 OK\r\n\r\n", HeadError::Status),
            ("9112 4 NUL in the reason", b"HTTP/1.1 200 O\0K\r\n\r\n", HeadError::Status),
            ("9110 5.1 empty name", b"HTTP/1.1 200 OK\r\n: b\r\n\r\n", HeadError::EmptyFieldName),
            ("9110 5.1 no colon", b"HTTP/1.1 200 OK\r\nabc\r\n\r\n", HeadError::FieldName),
            ("9110 5.5 NUL", b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", HeadError::FieldValue),
            ("9112 5.1 space before colon", b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", HeadError::SpaceBeforeColon),
            ("9112 5.2 folded", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", HeadError::FoldedField),
            ("9112 6.3 CL", b"HTTP/1.1 200 OK\r\nContent-Length: 1,1\r\n\r\n", HeadError::ContentLength),
            (
                "9112 6.3 CL CL",
                b"HTTP/1.1 204 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                HeadError::RepeatedContentLength,
            ),
            (
                "9112 6.3 TE CL",
                b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::LengthAndTransferEncoding,
            ),
            (
                "9112 6.1 TE in 1.0",
                b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::TransferEncodingInHttp10,
            ),
            (
                "9112 6.3 TE not final",
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                HeadError::ChunkedNotFinal,
            ),
            (
                "9112 6.1 TE unknown",
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                HeadError::UnknownTransferCoding,
            ),
        ];
        for (rule, text, error) in rows {
            assert_eq!(parse(text, Method::Get).map(|(progress, _)| progress), Err(*error), "{rule}");
        }
    }

    #[test]
    fn framing_rfc_9112_section_6_3() {
        use ResponseFraming::{Chunked, Length, None, UntilClose};
        let length = "Content-Length: 7\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        let rows = [
            (Method::Get, 200, length, Length(7)),
            (Method::Get, 200, chunked, Chunked),
            (Method::Get, 200, "", UntilClose),
            (Method::Get, 205, length, Length(7)),
            (Method::Get, 999, "", UntilClose),
            (Method::Head, 200, length, None),
            (Method::Head, 200, chunked, None),
            (Method::Head, 200, "", None),
            (Method::Get, 304, length, None),
            (Method::Get, 304, "", None),
            (Method::Get, 204, length, None),
            (Method::Get, 204, chunked, None),
            (Method::Get, 100, "", None),
            (Method::Get, 103, "Content-Length: 0\r\n", None),
            (Method::Connect, 200, length, None),
            (Method::Connect, 299, chunked, None),
            (Method::Connect, 407, length, Length(7)),
            (Method::Connect, 302, "", UntilClose),
        ];
        for (method, status, fields, framing) in rows {
            let head = accept(&format!("HTTP/1.1 {status} x\r\n{fields}\r\n"), method);
            assert_eq!(head.framing, framing, "{method:?} {status} {fields}");
            assert_eq!(head.persistent, framing != UntilClose);
            // A length is not forwarded where there can be no body (RFC 9110 §8.6).
            let must_go = status < 200 || status == 204 || (method == Method::Connect && status < 300);
            for field in &head.fields {
                assert_eq!(field.hop_by_hop, must_go || fields == chunked, "{method:?} {status} {fields}");
            }
        }
    }

    #[test]
    fn an_informational_response_announces_no_body_rfc_9110_section_8_6() {
        for status in [100, 101, 103, 199] {
            for fields in ["Content-Length: 1", "Transfer-Encoding: chunked"] {
                let text = format!("HTTP/1.1 {status} x\r\n{fields}\r\n\r\n");
                for method in [Method::Get, Method::Head, Method::Connect] {
                    let parsed = parse(text.as_bytes(), method);
                    assert_eq!(parsed.err(), Some(HeadError::InformationalBody), "{method:?} {text}");
                }
            }
        }
    }

    #[test]
    fn response_fields_decide_on_connection_and_upgrade() {
        let head = accept("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Method::Get);
        assert!(head.upgrade);
        assert!(
            !accept("HTTP/1.1 200 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", Method::Get)
                .persistent
        );
        assert!(!accept("HTTP/1.0 200 x\r\nContent-Length: 0\r\n\r\n", Method::Get).persistent);
        let text = "HTTP/1.0 200 x\r\nContent-Length: 0\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5, max=100\r\n\r\n";
        let head = accept(text, Method::Get);
        assert!(head.persistent);
        assert_eq!((head.keep_alive_timeout_s, head.keep_alive_max), (Some(5), Some(100)));
        let text = "HTTP/1.1 204 x\r\nKeep-Alive: timeout=x, Max = 3, other, =, MAX=9999999999\r\n\r\n";
        let head = accept(text, Method::Get);
        assert_eq!((head.keep_alive_timeout_s, head.keep_alive_max), (None, None));
    }
}
