//! Heads of responses (RFC 9112 §4).

use std::mem::MaybeUninit;

use super::fields::{Facts, check_line_end};
use super::scan::Scan;
use super::{
    Field, HeadError, HeadLimits, KnownField, MAX_FIELDS, Method, Progress, ResponseFraming, Version,
    diagnose,
};
use crate::Span;
use crate::edits::{Edits, Layout, Slices};

/// Bytes of a status line up to the status code's end: `HTTP/1.1 200`.
const STATUS_END: u32 = 12;

/// The head of a response, as offsets into the bytes it was parsed from.
///
/// The fields are meaningful after [`parse`](Self::parse) returned [`Progress::Complete`], together with the bytes
/// given to it. One value serves all responses of a connection, so that its table is allocated once.
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
    /// Bytes of the head, with the empty line that ends it.
    pub len: usize,
    /// How the body is delimited.
    pub framing: ResponseFraming,
    /// Whether the provider keeps the connection open after this response.
    pub persistent: bool,
    /// Whether the provider names another protocol: HTTP/1.1, Upgrade, and `Connection: upgrade`. Only with status 101
    /// does the connection change to it.
    pub upgrade: bool,
    /// `Keep-Alive: timeout`, in seconds: how long the provider keeps the connection open when idle.
    pub keep_alive_timeout_s: Option<u32>,
    /// `Keep-Alive: max`: how many more requests the provider takes on the connection.
    pub keep_alive_max: Option<u32>,
    start_line_end: u32,
    scan: Scan,
}

impl ResponseHead {
    /// A head with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets a partial head, for use with another buffer.
    pub fn reset(&mut self) {
        self.scan = Scan::default();
    }

    /// Parses the head at the start of `buffer`, which may hold more than it, as the answer to a request with
    /// `request_method`, which decides on the body.
    ///
    /// After [`Progress::Partial`] it is to be called again with the same bytes and more. Each byte is then looked at
    /// once, and a head that breaks a limit is refused as soon as that is known. After anything else the next call
    /// starts a new head; the caller drops `len` bytes before it.
    pub fn parse(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        let result = self.parse_or_scan(buffer, limits, request_method);
        if result != Ok(Progress::Partial) {
            self.reset();
        }
        result
    }

    fn parse_or_scan(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        if matches!(buffer.first(), Some(b'\r' | b'\n')) {
            return Err(HeadError::EmptyLine);
        }
        if self.scan.is_fresh() {
            if self.parse_whole(buffer, limits, request_method)? == Progress::Complete {
                return Ok(Progress::Complete);
            }
            return match self.scan.advance(buffer, limits)? {
                Progress::Partial => Ok(Progress::Partial),
                Progress::Complete => Err(HeadError::StartLine),
            };
        }
        match self.scan.advance(buffer, limits)? {
            Progress::Partial => Ok(Progress::Partial),
            Progress::Complete => match self.parse_whole(buffer, limits, request_method)? {
                Progress::Complete => Ok(Progress::Complete),
                // The parsers disagree on where the head ends: such a head is not to be trusted.
                Progress::Partial => Err(HeadError::StartLine),
            },
        }
    }

    fn parse_whole(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Progress, HeadError> {
        let window = limits.window(buffer);
        let mut headers = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            window,
            &mut headers[..limits.fields()],
        );
        let len = match parsed {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(Progress::Partial),
            Err(error) => return Err(diagnose::response(window, error)),
        };
        let (Some(version), Some(status)) = (response.version, response.code) else {
            return Err(HeadError::Status);
        };
        let head = &window[..len];
        self.len = len;
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        self.status = status;
        self.read_start_line(head, limits)?;
        let facts = Facts::read(head, response.headers, self.version, &mut self.fields)?;
        self.conclude(&facts, request_method);
        Ok(Progress::Complete)
    }

    fn read_start_line(&mut self, head: &[u8], limits: &HeadLimits) -> Result<(), HeadError> {
        if self.status < 100 {
            return Err(HeadError::Status);
        }
        let line_feed = memchr::memchr(b'\n', head).ok_or(HeadError::StartLine)?;
        check_line_end(head, line_feed + 1)?;
        let end = line_feed - 1;
        if end > limits.start_line {
            return Err(HeadError::StartLineTooLong);
        }
        let end = Span::new(0, end).end;
        self.start_line_end = end;
        // The reason stands after one space; both may be missing.
        self.reason = Span { start: end.min(STATUS_END + 1), end };
        Ok(())
    }

    /// RFC 9112 §6.3, in its order.
    fn conclude(&mut self, facts: &Facts, request_method: Method) {
        let tunnel = request_method == Method::Connect && (200..300).contains(&self.status);
        let no_length = self.status < 200 || self.status == 204 || tunnel;
        self.framing = match facts.content_length {
            _ if no_length || self.status == 304 || request_method == Method::Head => ResponseFraming::None,
            _ if facts.chunked => ResponseFraming::Chunked,
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::UntilClose,
        };
        if no_length && facts.content_length.is_some() {
            for field in &mut self.fields {
                field.hop_by_hop |= field.known == KnownField::ContentLength;
            }
        }
        self.persistent =
            facts.connection.is_persistent(self.version) && self.framing != ResponseFraming::UntilClose;
        self.upgrade = facts.upgrade(self.version);
        self.keep_alive_timeout_s = facts.keep_alive_timeout_s;
        self.keep_alive_max = facts.keep_alive_max;
    }

    /// Appends the head with `edits` applied to `out`. `buffer` holds the bytes the head was parsed from; without edits
    /// they come out as they are.
    pub fn render<'a>(&self, buffer: &'a [u8], edits: &'a Edits, out: &mut Slices<'a>) {
        let start_line = Span { start: 0, end: self.start_line_end };
        Layout { buffer, start_line, fields: &self.fields, len: self.len }.render(edits, out);
    }
}
