//! One connection and its current exchange: sends the request, and receives and checks the response.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use egret_clock::Moment;
use egret_http1::{BodyDecoder, HeadLimits, Method, Progress, ResponseHead, Span};
use egret_measure::streams::print;

use crate::check::Checks;
use crate::plan::{Plan, PreparedRequest};
use crate::stamps::StampReader;
use crate::tally::{Fault, Series, micros};
use crate::transport::Transport;

/// Maximum number of informational responses before the final one.
const INFORMATIONAL_MAX: u8 = 16;

/// Maximum size of one read, in bytes. Larger reads are not faster and evict more from the processor's cache.
const READ_BYTES: usize = 64 << 10;

/// Receive state shared by all connections of a thread.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    head: ResponseHead,
    limits: HeadLimits,
    spans: Vec<Span>,
    buffer: Box<[u8]>,
    /// Delays of the events of counted exchanges, if the plan measures them.
    pub event_delays: Series,
    /// The `Server` field of the first response, which names the target's software.
    pub server: Option<String>,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self {
            head: ResponseHead::new(),
            limits: HeadLimits::default(),
            spans: Vec::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            event_delays: Series::default(),
            server: None,
        }
    }
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// There is no connection.
    Closed,
    /// The connection is being made.
    Connecting,
    /// A tunnel was requested from the proxy.
    Tunnelling,
    /// The TLS handshake is in progress.
    Handshaking,
    /// The request is being sent.
    Sending,
    /// The response is awaited or being received.
    Receiving,
    /// The connection is kept open for the next exchange.
    Idle,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct LoadConnection {
    /// The state of the connection.
    pub stage: ConnectionStage,
    /// The byte stream; `None` if the connection is closed.
    pub transport: Option<Transport>,
    /// The request of the current exchange, as an index into the plan's requests.
    pub request: usize,
    /// Start of the exchange, or the moment it was due.
    pub started: Instant,
    /// The moment at which the connection was ready to send the request. Before that, the moment at which
    /// connecting began.
    pub ready: Instant,
    /// Time taken to connect, once connected.
    pub connect: Duration,
    /// `true` if the connection was made for this exchange.
    pub fresh: bool,
    /// The response received so far.
    pub response: ResponseProgress,
    sent: usize,
}

/// The part of a response received so far.
#[derive(Debug, Default)]
pub(crate) struct ResponseProgress {
    /// Arrival of the first byte.
    pub first_byte: Option<Instant>,
    /// The status code, once the head is complete.
    pub status: Option<u16>,
    /// Bytes received, head included.
    pub bytes: u64,
    /// Bytes received of the body.
    pub bytes_body: u64,
    /// `true` while no check has rejected the response.
    pub passes: bool,
    /// `true` if the exchange began after the warm-up.
    pub is_counted: bool,
    persistent: bool,
    informational: u8,
    decoder: BodyDecoder,
    /// The start of an incomplete head.
    partial: Vec<u8>,
    /// The body, if a check needs it.
    body: Vec<u8>,
    stamps: StampReader,
}

/// The result of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// All bytes were written.
    All,
    /// The connection accepts no more bytes for now.
    Part,
}

/// The result of an attempt to receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceiveProgress {
    /// The response is incomplete.
    Part,
    /// The response is complete.
    Whole {
        /// The time of completion.
        at: Instant,
        /// `true` if the connection can be reused.
        kept: bool,
    },
    /// The exchange has failed.
    Failed(Fault, ErrorKind),
}

impl LoadConnection {
    /// Creates a connection in the closed state.
    pub fn new(now: Instant) -> Self {
        Self {
            stage: ConnectionStage::Closed,
            transport: None,
            request: 0,
            started: now,
            ready: now,
            connect: Duration::ZERO,
            fresh: true,
            response: ResponseProgress::new(),
            sent: 0,
        }
    }

    /// Begins an exchange. On a kept connection the request can be sent at once.
    #[inline]
    pub fn begin(&mut self, request: usize, started: Instant, now: Instant) {
        self.request = request;
        self.started = started;
        self.ready = now;
        self.fresh = self.transport.is_none();
        self.restart();
    }

    /// Resets the state of sending and receiving.
    #[inline]
    pub fn restart(&mut self) {
        self.sent = 0;
        self.response.clear();
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.stage = ConnectionStage::Closed;
        self.transport = None;
    }

    /// Sends the rest of `bytes`.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<SendProgress> {
        let Some(transport) = &mut self.transport else { return Err(ErrorKind::NotConnected.into()) };
        while self.sent < bytes.len() {
            match transport.write(&bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(SendProgress::Part),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if transport.flush()? { SendProgress::All } else { SendProgress::Part })
    }

    /// Receives the available bytes. If `closing`, the peer has closed the connection, so a short read is not
    /// the last one.
    #[inline]
    pub fn receive(&mut self, reader: &mut ResponseReader, plan: &Plan, closing: bool) -> ReceiveProgress {
        let request = &plan.requests[self.request];
        loop {
            let Some(transport) = &mut self.transport else {
                return ReceiveProgress::Failed(Fault::Receive, ErrorKind::NotConnected);
            };
            let count = match transport.read(&mut reader.buffer) {
                Ok(0) => return self.response.end(),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return ReceiveProgress::Part,
                    ErrorKind::Interrupted => continue,
                    // The peer closed without a TLS `close_notify`. The close may be what delimits the body.
                    ErrorKind::UnexpectedEof => return self.response.end(),
                    kind => return ReceiveProgress::Failed(Fault::Receive, kind),
                },
            };
            let drained = !closing && count < READ_BYTES && transport.short_read_is_last();
            let now = self.response.first_byte.is_none().then(Instant::now);
            self.response.first_byte = self.response.first_byte.or(now);
            match self.response.process(reader, count, request, plan) {
                Ok(false) if drained => return ReceiveProgress::Part,
                Ok(false) => {}
                Ok(true) => {
                    let at = now.unwrap_or_else(Instant::now);
                    return ReceiveProgress::Whole { at, kept: self.response.persistent };
                }
                Err(fault) => return ReceiveProgress::Failed(fault, ErrorKind::InvalidData),
            }
        }
    }

    /// Receives the response to a CONNECT. Returns `true` when the tunnel is established.
    pub fn receive_tunnel(&mut self, reader: &mut ResponseReader) -> io::Result<bool> {
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
            // The target must not send anything before it receives a request.
            Ok(Progress::Complete) if reader.head.status / 100 == 2 && reader.head.len == partial.len() => {
                partial.clear();
                Ok(true)
            }
            Ok(Progress::Complete) => Err(io::Error::other(format!(
                "the proxy rejected the tunnel with status {}",
                reader.head.status
            ))),
            Err(error) => Err(io::Error::other(format!("the proxy's response is not HTTP: {error}"))),
        }
    }
}

impl ResponseProgress {
    fn new() -> Self {
        Self { passes: true, ..Self::default() }
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
        self.stamps.clear();
    }

    /// Begins the response of HTTP/2 whose head arrived at `now`.
    pub fn begin_http2(&mut self, head: &http::response::Parts, plan: &Plan, now: Instant) {
        self.first_byte = Some(now);
        self.status = Some(head.status.as_u16());
        self.passes = plan.checks.http2_head(head);
        if plan.verbosity >= 2 {
            let fields = head.headers.iter();
            let lines = fields
                .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
            log(format_args!("LOG: header received:\nHTTP/2 {}\n{}", head.status, lines.collect::<String>()));
        }
        if plan.verbosity >= 3 {
            log(format_args!("LOG: Response code = {}", head.status.as_u16()));
        }
    }

    /// Takes bytes of the body of a response of HTTP/2.
    pub fn process_http2(&mut self, data: &[u8], plan: &Plan) {
        self.bytes_body += data.len() as u64;
        if plan.verbosity >= 4 {
            log(format_args!("{}", String::from_utf8_lossy(data)));
        }
        if plan.checks.wants_body() {
            Checks::gather(&mut self.body, data);
        }
    }

    /// Judges the whole body of a response of HTTP/2.
    pub fn end_http2(&mut self, plan: &Plan) {
        self.passes &= plan.checks.body(&self.body);
    }

    /// Returns `true` if no byte of the response has arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Processes the bytes read. Returns `true` when the response is complete.
    fn process(
        &mut self,
        reader: &mut ResponseReader,
        count: usize,
        request: &PreparedRequest,
        plan: &Plan,
    ) -> Result<bool, Fault> {
        self.bytes += count as u64;
        if self.status.is_some() {
            let ResponseReader { spans, event_delays, buffer, .. } = reader;
            return self.process_body(&buffer[..count], spans, event_delays, plan);
        }
        let ResponseReader { head, limits, spans, buffer, event_delays, server } = reader;
        // The head nearly always arrives in one read and is parsed in place.
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
        self.begin_body(head, bytes, plan);
        if server.is_none() {
            *server = Some(server_of(head, bytes));
        }
        let whole = self.process_body(rest, spans, event_delays, plan);
        // Keeps the allocation for the next response.
        partial.clear();
        self.partial = partial;
        whole
    }

    #[inline]
    fn begin_body(&mut self, head: &ResponseHead, bytes: &[u8], plan: &Plan) {
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
    fn process_body(
        &mut self,
        bytes: &[u8],
        spans: &mut Vec<Span>,
        event_delays: &mut Series,
        plan: &Plan,
    ) -> Result<bool, Fault> {
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
        if plan.checks.events {
            self.read_events(bytes, spans, event_delays);
        }
        if !self.decoder.is_done() {
            return Ok(false);
        }
        self.passes &= plan.checks.body(&self.body) && (!plan.checks.events || self.stamps.count > 0);
        // Unrequested bytes after a response make the connection unusable, but not the response.
        self.persistent &= consumed == bytes.len();
        Ok(true)
    }

    /// Records the delays of the events in these parts of the bytes, which have just arrived.
    fn read_events(&mut self, bytes: &[u8], spans: &[Span], delays: &mut Series) {
        let now = Moment::now();
        for span in spans {
            self.stamps.read(span.of(bytes), |sent| {
                if self.is_counted {
                    delays.record(micros(now.since(Moment::from_nanos(sent))));
                }
            });
        }
    }

    /// Handles the end of the connection: it completes a body that is delimited by closing, and otherwise is
    /// a failure.
    fn end(&mut self) -> ReceiveProgress {
        if self.status.is_some() && self.decoder.end_of_input().is_ok() {
            return ReceiveProgress::Whole { at: Instant::now(), kept: false };
        }
        ReceiveProgress::Failed(Fault::Closed, ErrorKind::UnexpectedEof)
    }
}

/// Prints a line of ab's `-v`. If it cannot be written, printing the report fails as well.
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

#[cfg(test)]
mod tests;
