//! One connection and the exchange on it: what has been sent, what has come, what that makes of it.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use egret_http1::{BodyDecoder, HeadLimits, Method, Progress, ResponseHead, Span};

use super::check::Checks;
use super::plan::{Plan, Request};
use super::tally::Fault;
use super::transport::Transport;
use crate::streams::print;

/// Informational responses that may come before the one asked for.
const INFORMATIONAL_MAX: u8 = 16;

/// Bytes that one read may take. Larger ones are no faster and push more out of the processor's cache.
const READ_BYTES: usize = 64 << 10;

/// What all connections of a thread share to receive with.
#[derive(Debug)]
pub struct Reader {
    head: ResponseHead,
    limits: HeadLimits,
    spans: Vec<Span>,
    buffer: Box<[u8]>,
    /// The `Server` field of the first response: what software answers.
    pub server: Option<String>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            head: ResponseHead::new(),
            limits: HeadLimits::default(),
            spans: Vec::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            server: None,
        }
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    Closed,
    /// It is being made.
    Connecting,
    /// A proxy is asked for a tunnel.
    Tunnelling,
    /// TLS is being agreed on.
    Handshaking,
    /// A request is being sent.
    Sending,
    /// A response is waited for.
    Receiving,
    /// It is kept for the next exchange.
    Idle,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// How far it is.
    pub stage: Stage,
    /// Its byte stream, unless closed.
    pub transport: Option<Transport>,
    /// The request of the exchange on it, as an index into the plan's.
    pub request: usize,
    /// When the exchange started, or was due.
    pub started: Instant,
    /// When the connection was there and the request could be sent; before that, when making it began.
    pub ready: Instant,
    /// What making the connection took, once it is there.
    pub connect: Duration,
    /// Whether the connection was made for this exchange.
    pub fresh: bool,
    /// What has come of the response.
    pub response: Response,
    sent: usize,
}

/// What has come of a response.
#[derive(Debug)]
pub struct Response {
    /// When its first byte came.
    pub first_byte: Option<Instant>,
    /// Its status, once the head is whole.
    pub status: Option<u16>,
    /// Bytes of it, head included.
    pub bytes: u64,
    /// Bytes of its body.
    pub bytes_body: u64,
    /// Whether the checks have said yes so far.
    pub passes: bool,
    persistent: bool,
    informational: u8,
    decoder: BodyDecoder,
    /// The start of a head that is not whole yet.
    partial: Vec<u8>,
    /// The body, where a check looks into it.
    body: Vec<u8>,
}

/// What came of trying to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it is on its way.
    All,
    /// The connection takes no more for now.
    Part,
}

/// What came of receiving.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// More is to come.
    Part,
    /// The response is whole.
    Whole {
        /// When.
        at: Instant,
        /// Whether the connection can be used again.
        kept: bool,
    },
    /// The exchange has failed.
    Failed(Fault, ErrorKind),
}

impl Connection {
    /// A connection that is not there yet.
    pub fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Closed,
            transport: None,
            request: 0,
            started: now,
            ready: now,
            connect: Duration::ZERO,
            fresh: true,
            response: Response::new(),
            sent: 0,
        }
    }

    /// Begins an exchange; on a kept connection the request can be sent at once.
    #[inline]
    pub fn begin(&mut self, request: usize, started: Instant, now: Instant) {
        self.request = request;
        self.started = started;
        self.ready = now;
        self.fresh = self.transport.is_none();
        self.restart();
    }

    /// Forgets what has been sent and received.
    #[inline]
    pub fn restart(&mut self) {
        self.sent = 0;
        self.response.clear();
    }

    /// Closes it.
    pub fn close(&mut self) {
        self.stage = Stage::Closed;
        self.transport = None;
    }

    /// Sends what is left of `bytes`.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<Sent> {
        let Some(transport) = &mut self.transport else { return Err(ErrorKind::NotConnected.into()) };
        while self.sent < bytes.len() {
            match transport.write(&bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Sent::Part),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if transport.flush()? { Sent::All } else { Sent::Part })
    }

    /// Receives what has come. `closing` says that the other side has closed: then a read that comes up short is not the last.
    #[inline]
    pub fn receive(&mut self, reader: &mut Reader, plan: &Plan, closing: bool) -> Received {
        let request = &plan.requests[self.request];
        loop {
            let Some(transport) = &mut self.transport else {
                return Received::Failed(Fault::Receive, ErrorKind::NotConnected);
            };
            let count = match transport.read(&mut reader.buffer) {
                Ok(0) => return self.response.end(),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Received::Part,
                    ErrorKind::Interrupted => continue,
                    // A peer that leaves without TLS's goodbye after a body that only its end delimits.
                    ErrorKind::UnexpectedEof => return self.response.end(),
                    kind => return Received::Failed(Fault::Receive, kind),
                },
            };
            let drained = !closing && count < READ_BYTES && transport.short_read_is_last();
            let now = self.response.first_byte.is_none().then(Instant::now);
            self.response.first_byte = self.response.first_byte.or(now);
            match self.response.take(reader, count, request, plan) {
                Ok(false) if drained => return Received::Part,
                Ok(false) => {}
                Ok(true) => {
                    let at = now.unwrap_or_else(Instant::now);
                    return Received::Whole { at, kept: self.response.persistent };
                }
                Err(fault) => return Received::Failed(fault, ErrorKind::InvalidData),
            }
        }
    }

    /// Receives the answer to a CONNECT; whether the tunnel is there.
    pub fn receive_tunnel(&mut self, reader: &mut Reader) -> io::Result<bool> {
        let Some(transport) = &mut self.transport else { return Err(ErrorKind::NotConnected.into()) };
        let count = match transport.read(&mut reader.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        let partial = &mut self.response.partial;
        partial.extend_from_slice(&reader.buffer[..count]);
        reader.head.reset();
        match reader.head.parse(partial, &reader.limits, Method::Connect) {
            Ok(Progress::Partial) => Ok(false),
            // Nothing may come of the target before it was asked.
            Ok(Progress::Complete) if reader.head.status / 100 == 2 && reader.head.len == partial.len() => {
                partial.clear();
                Ok(true)
            }
            Ok(Progress::Complete) => Err(io::Error::other(format!(
                "the proxy refuses the tunnel with status {}",
                reader.head.status
            ))),
            Err(error) => Err(io::Error::other(format!("the proxy's answer is no HTTP: {error}"))),
        }
    }
}

impl Response {
    fn new() -> Self {
        Self {
            first_byte: None,
            status: None,
            bytes: 0,
            bytes_body: 0,
            passes: true,
            persistent: false,
            informational: 0,
            decoder: BodyDecoder::none(),
            partial: Vec::new(),
            body: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.first_byte = None;
        self.status = None;
        self.bytes = 0;
        self.bytes_body = 0;
        self.passes = true;
        self.informational = 0;
        self.partial.clear();
        self.body.clear();
    }

    /// Whether nothing of it has come.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes in what was read; whether the response is whole.
    fn take(
        &mut self,
        reader: &mut Reader,
        count: usize,
        request: &Request,
        plan: &Plan,
    ) -> Result<bool, Fault> {
        self.bytes += count as u64;
        if self.status.is_some() {
            return self.take_body(&reader.buffer[..count], &mut reader.spans, plan);
        }
        let Reader { head, limits, spans, buffer, server } = reader;
        // Nearly always the head comes whole and is read where it is.
        let mut partial = std::mem::take(&mut self.partial);
        let bytes = if partial.is_empty() {
            &buffer[..count]
        } else {
            partial.extend_from_slice(&buffer[..count]);
            &partial[..]
        };
        let mut at = 0;
        loop {
            head.reset();
            match head.parse(&bytes[at..], limits, request.method) {
                Ok(Progress::Partial) => {
                    self.partial = bytes[at..].to_vec();
                    return Ok(false);
                }
                Ok(Progress::Complete) if head.status < 200 => {
                    self.informational += 1;
                    if self.informational > INFORMATIONAL_MAX || head.status == 101 {
                        return Err(Fault::Protocol);
                    }
                    at += head.len;
                }
                Ok(Progress::Complete) => break,
                Err(_) => return Err(Fault::Protocol),
            }
        }
        let (bytes, rest) = bytes[at..].split_at(head.len);
        self.start(head, bytes, plan);
        if server.is_none() {
            *server = Some(server_of(head, bytes));
        }
        let whole = self.take_body(rest, spans, plan);
        // Its allocation serves the next one.
        partial.clear();
        self.partial = partial;
        whole
    }

    #[inline]
    fn start(&mut self, head: &ResponseHead, bytes: &[u8], plan: &Plan) {
        self.status = Some(head.status);
        self.persistent = head.persistent && plan.keep_alive;
        self.passes = plan.checks.head(head, bytes);
        self.decoder = BodyDecoder::from(head.framing);
        if plan.verbosity >= 2 {
            log(format_args!("LOG: header received:\n{}", String::from_utf8_lossy(bytes)));
        }
        if plan.verbosity >= 3 {
            log(format_args!("LOG: Response code = {}", head.status));
        }
    }

    #[inline]
    fn take_body(&mut self, bytes: &[u8], spans: &mut Vec<Span>, plan: &Plan) -> Result<bool, Fault> {
        spans.clear();
        let consumed = self.decoder.decode(bytes, spans).map_err(|_| Fault::Protocol)?;
        for span in &*spans {
            self.bytes_body += span.len() as u64;
        }
        if plan.verbosity >= 4 {
            for span in &*spans {
                log(format_args!("{}", String::from_utf8_lossy(span.of(bytes))));
            }
        }
        if plan.checks.wants_body() {
            for span in &*spans {
                Checks::gather(&mut self.body, span.of(bytes));
            }
        }
        if !self.decoder.is_done() {
            return Ok(false);
        }
        self.passes &= plan.checks.body(&self.body);
        // What comes unasked behind a response makes the connection worthless, not the response.
        self.persistent &= consumed == bytes.len();
        Ok(true)
    }

    /// The other side has closed.
    fn end(&mut self) -> Received {
        if self.status.is_some() && self.decoder.end_of_input().is_ok() {
            return Received::Whole { at: Instant::now(), kept: false };
        }
        Received::Failed(Fault::Closed, ErrorKind::UnexpectedEof)
    }
}

/// A line of ab's `-v`. Where it cannot be written, the report will say so.
#[cold]
fn log(line: fmt::Arguments<'_>) {
    let _ = print(&format!("{line}\n"));
}

/// The first word of the `Server` field, as ab shows it.
fn server_of(head: &ResponseHead, bytes: &[u8]) -> String {
    let field = head.fields.iter().find(|field| field.name.of(bytes).eq_ignore_ascii_case(b"server"));
    let value = field.map(|field| field.value.of(bytes)).unwrap_or_default();
    let word = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    String::from_utf8_lossy(word).into_owned()
}
