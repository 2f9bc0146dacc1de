//! Heads of requests (RFC 9112 §3).

use memchr::memchr;

use super::authority::AuthoritySpan;
use super::error::HeadError;
use super::facts::Facts;
use super::fields::Field;
use super::framing::RequestFraming;
use super::known::KnownField;
use super::limits::{HeadLimits, MAX_METHOD};
use super::method::Method;
use super::progress::Progress;
use super::repeated::RepeatedLines;
use super::scan::HeadScan;
use super::target::TargetForm;
use super::version::Version;
use super::{diagnose, target};
use crate::edits::{Edits, Rendering};
use crate::span::{Span, to_u32};
use crate::syntax::{CRLF, find_space};

/// Bytes of a version: `HTTP/1.1`.
const VERSION_LEN: usize = 8;
/// Maximum length of a remembered Host: the longest DNS name, and a port.
const KNOWN_HOST_BYTES_MAX: usize = 253 + 6;

/// The head of a request, as offsets into the bytes it was parsed from.
///
/// The fields are valid after [`parse`](Self::parse) returned [`Progress::Complete`], together with the bytes
/// passed to it. Reuse one value for all requests of a connection, so its table is allocated once.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact of the request, and they are independent"
)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method as sent.
    pub method_text: Span,
    /// The request target as sent.
    pub target: Span,
    /// The form of the target.
    pub target_form: TargetForm,
    /// Position in the buffer of the authority `host[:port]` in the target: with absolute-form and CONNECT.
    /// It overrides Host (RFC 9112 §3.2.2).
    pub authority: Option<Span>,
    /// The protocol version.
    pub version: Version,
    /// The field lines, in order.
    pub fields: Vec<Field>,
    /// Bytes of the head, including the empty line that ends it and a skipped empty line before it.
    pub len: usize,
    /// The framing of the body.
    pub framing: RequestFraming,
    /// The value of Host, `host[:port]`. Always present in HTTP/1.1.
    pub host: Option<Span>,
    /// `true` if the client keeps the connection open: HTTP/1.1 without `close`, HTTP/1.0 with `keep-alive`.
    pub persistent: bool,
    /// `true` if the client asks for another protocol: HTTP/1.1, Upgrade, and `Connection: upgrade`.
    pub upgrade: bool,
    /// `true` if the client accepts trailers: `TE: trailers`.
    pub te_trailers: bool,
    /// `true` if the client waits for 100 (Continue). Never in HTTP/1.0 (RFC 9110 §10.1.1).
    pub expect_continue: bool,
    start_line_end: u32,
    scan: HeadScan,
    /// `None` until a second head is parsed.
    repeated: Option<Box<RepeatedLines>>,
    /// The last valid value of Host: clients repeat it.
    known_host: Vec<u8>,
}

impl RequestHead {
    /// Creates an empty head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards a partial head, before use with another buffer.
    pub fn reset(&mut self) {
        self.scan = HeadScan::default();
    }

    /// Parses the head at the start of `buffer`, which may hold more than the head.
    ///
    /// After [`Progress::Partial`], call it again with the same bytes and more. Each byte is then looked at
    /// once, and a head that exceeds a limit is rejected as soon as possible. After any other result the next
    /// call starts a new head; the caller first drops `len` bytes.
    pub fn parse(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
        if self.scan.is_new() && self.parse_whole(buffer, limits)? == Progress::Complete {
            return Ok(Progress::Complete);
        }
        self.parse_again(buffer, limits)
    }

    /// Goes on with a head that was incomplete.
    #[inline(never)]
    fn parse_again(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
        let mut scan = std::mem::take(&mut self.scan);
        let result = scan.run(buffer, limits, || self.parse_whole(buffer, limits));
        self.scan = scan;
        result
    }

    fn parse_whole(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
        let window = limits.window(buffer);
        let start = if window.starts_with(CRLF) { CRLF.len() } else { 0 };
        let Some(line) = RequestLine::find(&window[start..]) else {
            return refuse_start_line(&window[start..], limits);
        };
        self.note_start_line(&line, &window[start..], start, limits)?;
        let repeated = RepeatedLines::of(&mut self.repeated, self.len == 0);
        let fields_start = self.start_line_end as usize + CRLF.len();
        let read = Facts::read(window, fields_start, self.version, limits, repeated, &mut self.fields)?;
        let Some((facts, len)) = read else { return Ok(Progress::Partial) };
        self.len = len;
        self.conclude(&window[..len], &facts)?;
        Ok(Progress::Complete)
    }

    /// Notes the start line of `window`, which begins at offset `start` of the head, and checks its target.
    fn note_start_line(
        &mut self,
        line: &RequestLine,
        window: &[u8],
        start: usize,
        limits: &HeadLimits,
    ) -> Result<(), HeadError> {
        if line.len > limits.start_line {
            return Err(HeadError::StartLineTooLong);
        }
        if line.method_len > MAX_METHOD {
            return Err(HeadError::MethodTooLong);
        }
        let (target_start, target_end) = (line.method_len + 1, line.len - VERSION_LEN - 1);
        self.version = line.version;
        self.method = line.method;
        self.method_text = Span { start: to_u32(start), end: to_u32(start + line.method_len) };
        self.target = Span { start: to_u32(start + target_start), end: to_u32(start + target_end) };
        self.start_line_end = to_u32(start + line.len);
        let (form, authority) = target::check(line.method, &window[target_start..target_end])?;
        self.target_form = form;
        self.authority = authority
            .map(|span| Span { start: self.target.start + span.start, end: self.target.start + span.end });
        Ok(())
    }

    fn conclude(&mut self, head: &[u8], facts: &Facts) -> Result<(), HeadError> {
        match facts.host {
            Some(host) if !self.is_host(host.of(head)) => return Err(HeadError::InvalidHost),
            None if self.version == Version::Http11 => return Err(HeadError::MissingHost),
            host => self.host = host,
        }
        self.framing = match facts.content_length {
            _ if facts.chunked => RequestFraming::Chunked,
            Some(length) => RequestFraming::Length(length),
            None => RequestFraming::None,
        };
        self.persistent = facts.connection.is_persistent(self.version);
        self.upgrade = facts.upgrade(self.version);
        self.te_trailers = facts.te_trailers;
        self.expect_continue = facts.expect_continue && self.version == Version::Http11;
        if self.version == Version::Http10 {
            self.mark_expectations();
        }
        Ok(())
    }

    /// Marks `Expect`, which a server ignores in HTTP/1.0 (RFC 9110 §10.1.1). Forwarded in HTTP/1.1 it would
    /// count, and a provider could refuse the request for it.
    fn mark_expectations(&mut self) {
        for field in self.fields.iter_mut().filter(|field| field.known == KnownField::Expect) {
            field.hop_by_hop = true;
        }
    }

    /// Returns `true` if `text` is a host, with or without a port.
    fn is_host(&mut self, text: &[u8]) -> bool {
        if !text.is_empty() && text == self.known_host {
            return true;
        }
        let is_host = AuthoritySpan::parse(text).is_some();
        if is_host && text.len() <= KNOWN_HOST_BYTES_MAX {
            self.known_host.clear();
            self.known_host.extend_from_slice(text);
        }
        is_host
    }

    /// Returns the head with `edits` applied. `buffer` holds the bytes the head was parsed from. Without
    /// edits they come out unchanged, except for an empty line before the request line.
    pub fn render<'a>(&'a self, buffer: &'a [u8], edits: &'a Edits) -> Rendering<'a> {
        let start_line = Span { start: self.method_text.start, end: self.start_line_end };
        Rendering { buffer, start_line, fields: &self.fields, len: self.len, edits }
    }
}

/// A request line: three words with one space between them (RFC 9112 §3).
struct RequestLine {
    method: Method,
    method_len: usize,
    version: Version,
    /// Its length without the line end. The target is between the method and the version.
    len: usize,
}

impl RequestLine {
    /// Finds the parts of the line that `window` begins with. Returns `None` if the line is malformed or
    /// incomplete. The characters of the target are not checked yet, beyond those that end it.
    #[inline]
    fn find(window: &[u8]) -> Option<Self> {
        let (method, method_len) = Method::at_start(window)?;
        let target = &window[method_len + 1..];
        let target_len = find_space(target).filter(|len| *len > 0)?;
        let end = target[target_len..].first_chunk()?;
        let version = if end == b" HTTP/1.1\r\n" {
            Version::Http11
        } else if end == b" HTTP/1.0\r\n" {
            Version::Http10
        } else {
            return None;
        };
        Some(Self { method, method_len, version, len: method_len + 1 + target_len + 1 + VERSION_LEN })
    }
}

/// Returns the rule that the start line of `window` breaks, or `Partial` if it is not complete.
#[cold]
fn refuse_start_line(window: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
    let Some(line_feed) = memchr(b'\n', window) else {
        diagnose::request_start(window)?;
        return Ok(Progress::Partial);
    };
    let line = window[..line_feed].strip_suffix(b"\r").ok_or(HeadError::BareLineFeed)?;
    if line.is_empty() {
        return Err(HeadError::EmptyLine);
    }
    let has_version = line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0");
    if has_version && line.len() > limits.start_line {
        return Err(HeadError::StartLineTooLong);
    }
    Err(diagnose::request_line(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { start_line: 8192, head: 32768, fields: 128 };

    fn parse(text: &[u8]) -> Result<(Progress, RequestHead), HeadError> {
        let mut head = RequestHead::new();
        let progress = head.parse(text, &LIMITS)?;
        Ok((progress, head))
    }

    fn accept(text: &str) -> RequestHead {
        match parse(text.as_bytes()) {
            Ok((Progress::Complete, head)) => head,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    /// A request with one more field, or several lines of fields.
    fn with(fields: &str) -> String {
        format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")
    }

    #[test]
    fn a_request_is_a_table_of_offsets() {
        let text =
            "POST /a?b HTTP/1.1\r\nHost: example.com:81\r\ncontent-LENGTH:  5 \t\r\nX-Empty:\r\n\r\nhello";
        let head = accept(text);
        let bytes = text.as_bytes();
        assert_eq!((head.method, head.method_text.of(bytes)), (Method::Post, &b"POST"[..]));
        assert_eq!((head.target.of(bytes), head.target_form), (&b"/a?b"[..], TargetForm::Origin));
        assert_eq!(head.host.map(|host| host.of(bytes)), Some(&b"example.com:81"[..]));
        assert_eq!(
            (head.framing, head.version, head.persistent),
            (RequestFraming::Length(5), Version::Http11, true)
        );
        assert_eq!(head.len, text.len() - 5);
        let fields: Vec<_> = head
            .fields
            .iter()
            .map(|field| (field.name.of(bytes), field.value.of(bytes), field.known))
            .collect();
        assert_eq!(
            fields,
            [
                (&b"Host"[..], &b"example.com:81"[..], KnownField::Host),
                (b"content-LENGTH", b"5", KnownField::ContentLength),
                (b"X-Empty", b"", KnownField::Other),
            ]
        );
    }

    /// Checks one row per rule: its name, a head that breaks it, and the error.
    fn refuse(rows: &[(&str, &[u8], HeadError)]) {
        for (rule, text, error) in rows {
            assert_eq!(parse(text).map(|(progress, _)| progress), Err(*error), "{rule}");
        }
    }

    #[test]
    fn line_ends_are_crlf_rfc_9112_section_2_2() {
        refuse(&[
            ("bare LF after the request line", b"GET / HTTP/1.1\nHost: a\r\n\r\n", HeadError::BareLineFeed),
            ("bare LF after a field", b"GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", HeadError::BareLineFeed),
            ("bare LF after the last field", b"GET / HTTP/1.1\r\nHost: a\n\r\n", HeadError::BareLineFeed),
            (
                "bare LF after an empty value",
                b"GET / HTTP/1.1\r\nHost: a\r\nB:\n\r\n",
                HeadError::BareLineFeed,
            ),
            ("bare LF as the empty line", b"GET / HTTP/1.1\r\nHost: a\r\n\n", HeadError::BareLineFeed),
            ("bare LF only", b"GET / HTTP/1.0\n\n", HeadError::BareLineFeed),
            ("bare LF and no field", b"GET / HTTP/1.0\r\n\n", HeadError::BareLineFeed),
            ("bare LF first", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::BareLineFeed),
            ("bare LF after CRLF", b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::BareLineFeed),
            ("two empty lines", b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::EmptyLine),
            ("CR first", b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::BareCarriageReturn),
            (
                "bare CR in a value",
                b"GET / HTTP/1.1\r\nHost: a\r\nB: c\rd\r\n\r\n",
                HeadError::BareCarriageReturn,
            ),
            (
                "bare CR in a name",
                b"GET / HTTP/1.1\r\nHost: a\r\nB\r: c\r\n\r\n",
                HeadError::BareCarriageReturn,
            ),
            ("bare CR as line end", b"GET / HTTP/1.1\rHost: a\r\n\r\n", HeadError::BareCarriageReturn),
            ("CR CR LF", b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", HeadError::BareCarriageReturn),
            ("CR CR LF after a field", b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", HeadError::BareCarriageReturn),
            ("CR CR LF at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", HeadError::BareCarriageReturn),
            ("space before the first field", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", HeadError::LeadingSpace),
            ("tab before the first field", b"GET / HTTP/1.1\r\n\tHost: a\r\n\r\n", HeadError::LeadingSpace),
        ]);
    }

    #[test]
    fn start_lines_are_refused_by_rule_rfc_9112_section_3() {
        refuse(&[
            ("HTTP/1.2", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", HeadError::UnsupportedVersion),
            ("HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HeadError::UnsupportedVersion),
            ("lower case", b"GET / http/1.1\r\nHost: a\r\n\r\n", HeadError::Version),
            ("two digits", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", HeadError::StartLine),
            ("no dot", b"GET / HTTP/11\r\nHost: a\r\n\r\n", HeadError::Version),
            ("HTTP/0.9", b"GET /\r\n\r\n", HeadError::Target),
            ("two spaces", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Target),
            ("two spaces before the version", b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::StartLine),
            ("space at the end", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", HeadError::StartLine),
            ("space first", b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Method),
            ("tab between", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Method),
            ("no token", b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Method),
            ("NUL", b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Method),
            (
                "33 bytes",
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\nHost: a\r\n\r\n",
                HeadError::MethodTooLong,
            ),
            ("space in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::StartLine),
            ("bar in the target", b"GET /a|b HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Target),
            ("NUL in the target", b"GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Target),
            ("UTF-8 in the target", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::Target),
            ("no form", b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", HeadError::TargetForm),
        ]);
    }

    #[test]
    fn field_lines_are_refused_by_rule_rfc_9110_section_5() {
        refuse(&[
            ("empty name", b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", HeadError::EmptyFieldName),
            ("empty name first", b"GET / HTTP/1.1\r\n: b\r\nHost: a\r\n\r\n", HeadError::EmptyFieldName),
            ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nabc\r\n\r\n", HeadError::FieldName),
            ("no token", b"GET / HTTP/1.1\r\nHost: a\r\nb(c: d\r\n\r\n", HeadError::FieldName),
            ("NUL in a name", b"GET / HTTP/1.1\r\nHost: a\r\nb\0c: d\r\n\r\n", HeadError::FieldName),
            ("UTF-8 in a name", b"GET / HTTP/1.1\r\nHost: a\r\n\xc3\xa9: d\r\n\r\n", HeadError::FieldName),
            ("NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nb: c\0d\r\n\r\n", HeadError::FieldValue),
            ("DEL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nb: c\x7fd\r\n\r\n", HeadError::FieldValue),
            (
                "VT before a value",
                b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
                HeadError::FieldValue,
            ),
            ("space before colon", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", HeadError::SpaceBeforeColon),
            ("tab before colon", b"GET / HTTP/1.1\r\nHost: a\r\nB\t: c\r\n\r\n", HeadError::SpaceBeforeColon),
            (
                "CR in place of a hyphen",
                b"GET / HTTP/1.1\r\nHost: a\r\nContent\rLength: 1\r\n\r\n",
                HeadError::BareCarriageReturn,
            ),
            ("folded", b"GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n d\r\n\r\n", HeadError::FoldedField),
            (
                "folded, empty first line",
                b"GET / HTTP/1.1\r\nHost: a\r\nB:\r\n\tc\r\n\r\n",
                HeadError::FoldedField,
            ),
        ]);
    }

    #[test]
    fn hosts_are_refused_by_rule_rfc_9112_section_3_2() {
        refuse(&[
            ("no Host", b"GET / HTTP/1.1\r\n\r\n", HeadError::MissingHost),
            ("no Host, absolute", b"GET http://a/ HTTP/1.1\r\n\r\n", HeadError::MissingHost),
            ("no Host, CONNECT", b"CONNECT a:443 HTTP/1.1\r\n\r\n", HeadError::MissingHost),
            ("two Hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HeadError::RepeatedHost),
            ("two Hosts in 1.0", b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", HeadError::RepeatedHost),
            ("empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", HeadError::InvalidHost),
            ("Host with path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HeadError::InvalidHost),
            ("Host with user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HeadError::InvalidHost),
            ("Host list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", HeadError::InvalidHost),
            ("Host in UTF-8", b"GET / HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n", HeadError::InvalidHost),
            ("invalid Host in 1.0", b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n", HeadError::InvalidHost),
            (
                "TE in 1.0",
                b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::TransferEncodingInHttp10,
            ),
        ]);
    }

    #[test]
    fn framing_fields_are_refused_by_rule() {
        let rows: &[(&str, HeadError)] = &[
            ("Content-Length:", HeadError::ContentLength),
            ("Content-Length:\r\nContent-Length: 5", HeadError::ContentLength),
            ("Content-Length: +5", HeadError::ContentLength),
            ("Content-Length: -5", HeadError::ContentLength),
            ("Content-Length: 0x5", HeadError::ContentLength),
            ("Content-Length: 5_0", HeadError::ContentLength),
            ("Content-Length: 5 5", HeadError::ContentLength),
            ("Content-Length: 5, 5", HeadError::ContentLength),
            ("Content-Length: 5,", HeadError::ContentLength),
            ("Content-Length: 5;", HeadError::ContentLength),
            ("Content-Length: 5.0", HeadError::ContentLength),
            ("Content-Length: 18446744073709551616", HeadError::ContentLength),
            ("Content-Length: 99999999999999999999", HeadError::ContentLength),
            ("Content-Length: 5\r\nContent-Length: 5", HeadError::RepeatedContentLength),
            ("Content-Length: 5\r\ncontent-length: 6", HeadError::RepeatedContentLength),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", HeadError::LengthAndTransferEncoding),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", HeadError::LengthAndTransferEncoding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", HeadError::RepeatedTransferEncoding),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", HeadError::ChunkedNotFinal),
            ("Transfer-Encoding: ,chunked", HeadError::TransferEncoding),
            ("Transfer-Encoding:", HeadError::TransferEncoding),
            ("Transfer-Encoding: xchunked", HeadError::ChunkedNotFinal),
            ("Transfer-Encoding: identity", HeadError::ChunkedNotFinal),
            ("Transfer-Encoding: chunked, identity", HeadError::ChunkedNotFinal),
            ("Transfer-Encoding: chunked, chunked", HeadError::ChunkedRepeated),
            ("Transfer-Encoding: chunked;q=1", HeadError::ChunkedParameter),
            ("Transfer-Encoding: gzip, chunked", HeadError::UnknownTransferCoding),
            ("Transfer-Encoding : chunked", HeadError::SpaceBeforeColon),
            ("X: y\r\n Transfer-Encoding: chunked", HeadError::FoldedField),
        ];
        for (fields, error) in rows {
            assert_eq!(
                parse(with(fields).as_bytes()).map(|(progress, _)| progress),
                Err(*error),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn request_fields_decide_on_framing_and_connection() {
        let head = accept("\r\nGET / HTTP/1.0\r\n\r\n");
        assert_eq!(
            (head.len, head.persistent, head.host, head.framing),
            (20, false, None, RequestFraming::None)
        );
        assert!(accept("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").persistent);
        assert!(!accept("GET / HTTP/1.0\r\nProxy-Connection: Keep-Alive\r\n\r\n").persistent);
        assert!(!accept(&with("Connection: foo\r\nConnection: ,CLOSE ,keep-alive")).persistent);
        assert_eq!(accept(&with("transfer-encoding:\tChunked")).framing, RequestFraming::Chunked);
        assert_eq!(accept(&with("Content-Length: 0")).framing, RequestFraming::Length(0));
        assert!(accept(&with("Upgrade: websocket\r\nConnection: x, Upgrade")).upgrade);
        assert!(!accept(&with("Upgrade: websocket")).upgrade);
        assert!(!accept(&with("Connection: Upgrade")).upgrade);
        assert!(!accept("GET / HTTP/1.0\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n").upgrade);
        assert!(accept(&with("TE: gzip;q=0.5, Trailers")).te_trailers);
        assert!(!accept(&with("TE: trailers;q=1")).te_trailers);
        assert!(accept(&with("Expect: 100-Continue")).expect_continue);
        assert!(!accept("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expect_continue);
        let head = accept("CONNECT h:443 HTTP/1.1\r\nHost: other\r\n\r\n");
        assert_eq!((head.method, head.authority), (Method::Connect, Some(Span::new(8, 13))));
        let head = accept("GET http://h:1/p HTTP/1.1\r\nHost: other\r\n\r\n");
        assert_eq!((head.target_form, head.authority), (TargetForm::Absolute, Some(Span::new(11, 14))));
    }

    #[test]
    fn one_head_serves_many_requests() {
        let mut head = RequestHead::new();
        let first = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTE: trailers\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(head.parse(first, &LIMITS), Ok(Progress::Complete));
        assert_eq!(head.parse(b"GET / HTTP/1.0\r\n\r\n", &LIMITS), Ok(Progress::Complete));
        assert_eq!((head.fields.len(), head.framing, head.host), (0, RequestFraming::None, None));
        assert!(!head.te_trailers && !head.expect_continue && !head.persistent);
    }

    /// The names of the fields marked as not to be forwarded.
    fn hop_by_hop(text: &str) -> Vec<String> {
        let head = accept(text);
        let marked = head.fields.iter().filter(|field| field.hop_by_hop);
        marked.map(|field| text[field.name.range()].to_owned()).collect()
    }

    #[test]
    fn hop_by_hop_fields_rfc_9110_section_7_6_1() {
        let own = "Connection: a\r\nKeep-Alive: a\r\nProxy-Connection: a\r\nProxy-Authorization: a\r\nTE: a\r\n\
                   Upgrade: a\r\nTransfer-Encoding: chunked\r\nProxy-Authenticate: a\r\nTrailer: a\r\nDate: a\r\nVia: a";
        let expected = [
            "Connection",
            "Keep-Alive",
            "Proxy-Connection",
            "Proxy-Authorization",
            "TE",
            "Upgrade",
            "Transfer-Encoding",
            "Proxy-Authenticate",
        ];
        assert_eq!(hop_by_hop(&with(own)), expected);
        let nominated =
            "X-A: 1\r\nConnection: close, x-a\r\nX-B: 2\r\nx-a: 3\r\nconnection: X-B , X-C\r\nX-Bc: 4";
        assert_eq!(hop_by_hop(&with(nominated)), ["X-A", "Connection", "X-B", "x-a", "connection"]);
        assert_eq!(hop_by_hop("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nA: b\r\n\r\n"), ["Expect"]);
        assert!(hop_by_hop(&with("Expect: 100-continue")).is_empty());
    }

    #[test]
    fn connection_cannot_take_away_what_the_message_means() {
        for name in [
            "Host",
            "Authorization",
            "Content-Length",
            "Cookie",
            "Content-Type",
            "Cache-Control",
            "X-Forwarded-For",
            "X-Api-Key",
            "Idempotency-Key",
        ] {
            let value = if name == "Content-Length" { "1" } else { "a" };
            let field = if name == "Host" { String::new() } else { format!("{name}: {value}\r\n") };
            assert_eq!(hop_by_hop(&with(&format!("{field}Connection: {name}"))), ["Connection"], "{name}");
        }
    }

    #[test]
    fn connection_options_are_limited() {
        let options = |count: usize| with(&format!("Connection: {}", vec!["a"; count].join(",")));
        accept(&options(64));
        assert_eq!(parse(options(65).as_bytes()).err(), Some(HeadError::TooManyConnectionOptions));
    }
}
