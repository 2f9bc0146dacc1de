//! The recorded data of an exchange, for diagnoses: its heads as the client saw them, sizes, times, and the
//! beginnings of its bodies if a diagnosis asks for them.
//!
//! A record is filled on the thread of the exchange and read on another. Filling it only copies a few byte
//! ranges into reused memory; the reader parses it again ([`Finished`](crate::finished::Finished)). A record
//! has no reference to the exchange.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_har::observed::Phases;
use egret_http1::Span;
use egret_message::grpc::GrpcStatus;
use egret_message::{ClientAddress, ListenAddress};
use egret_usage::UsageRecord;

/// Capacity that a reused record keeps: more than nearly every exchange needs.
const SPARE_TEXT_BYTES: usize = 8 * 1024;
const SPARE_BODY_BYTES: usize = 4 * 1024;

/// The recorded data of an exchange.
#[derive(Debug, Default)]
pub struct RecordedExchange {
    /// All texts, one after the other.
    text: Vec<u8>,
    spans: Spans,
    /// All data other than text.
    pub facts: Facts,
    /// The provider that the request was routed to, if it was and live traffic is read.
    pub routed: Option<Routed>,
    /// Failed calls that were repeated.
    failed_attempts: Vec<Attempt>,
    /// The messages of the last call, if it has failed.
    last_messages: AttemptMessages,
    /// Number of bytes of the messages of calls.
    attempt_bytes: usize,
    /// The request's body as the client sent it.
    pub request_body: Capture,
    /// The response's body as the client received it.
    pub response_body: Capture,
    /// The usage that the response has reported. `None` if it was not read.
    pub usage: Option<Box<UsageRecord>>,
}

/// The provider that a request was routed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// Its name and its URL, as text.
    pub destination: Arc<str>,
    /// The generation of the config that the request was served by.
    pub generation: u64,
}

/// Offsets of a record's texts.
#[derive(Debug, Clone, Copy, Default)]
struct Spans {
    host: Span,
    target: Span,
    relative: Span,
    provider: Span,
    request_head: Span,
    response_head: Span,
    remedies: Span,
    account: Span,
    request_id: Span,
    flows: Span,
}

/// Data about an exchange other than its texts.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
pub struct Facts {
    /// Time at which the first byte of the request arrived.
    pub started: Timestamp,
    /// Durations of the phases.
    pub times: PhaseTimes,
    /// `true` if the URL that the client requested is `https`.
    pub tls: bool,
    /// Port of that URL.
    pub port: u16,
    /// Address of the client.
    pub client: Option<ClientAddress>,
    /// Address of the listener that accepted its connection.
    pub listener: Option<ListenAddress>,
    /// Address of the server that responded.
    pub server: Option<SocketAddr>,
    /// Unique number of the upstream connection.
    pub connection: Option<u64>,
    /// Number of calls made to providers.
    pub attempts: u32,
    /// Seed of the exchange's span ids; 0 if no remedy has drawn one.
    pub trace_seed: u64,
    /// Number of informational responses forwarded before the final one.
    pub informational: u8,
    /// Slug of the error that the gateway responded with.
    pub error: Option<&'static str>,
    /// Status of the gRPC call. `None` if the exchange is none, or if the call ended without one.
    pub grpc_status: Option<GrpcStatus>,
    /// The client closed the connection, or its sending side, so long after the first byte of the request.
    /// `None` if it did not before the end of the exchange.
    pub client_closed_us: Option<u64>,
    /// `true` if the response ended before it was complete.
    pub is_cut_short: bool,
    /// `true` if the response did not come from a provider.
    pub is_generated: bool,
    /// `true` if the response came from a cache.
    pub is_stored: bool,
    /// `true` if the client sent the request inside a tunnel, which the gateway intercepted.
    pub is_intercepted: bool,
    /// `true` if the client sent the request in HTTP/2.
    pub is_request_http2: bool,
    /// `true` if the provider sent the response in HTTP/2.
    pub is_response_http2: bool,
    /// The number under which a recorded request was sent again, if this is one.
    pub resend: Option<u64>,
}

impl Facts {
    /// Time at which the exchange ended.
    pub(crate) fn ended(&self) -> Timestamp {
        self.started + Duration::from_micros(self.times.total_us())
    }
}

/// A call to a provider. Times are in microseconds since the first byte of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempt {
    /// Start of the call.
    pub start_us: u64,
    /// End of the call.
    pub end_us: u64,
    /// Status code of the response; 0 if there was none.
    pub status: u16,
    /// Slug of the failure, if there was no response, or the status of a gRPC call that failed.
    pub error: Option<&'static str>,
    /// Its messages, if they were recorded.
    pub messages: AttemptMessages,
}

/// The way in which a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallWire {
    /// `true` if it was made over TLS.
    pub tls: bool,
    /// `true` if it was made in HTTP/2.
    pub is_http2: bool,
}

/// The places of a call's messages in the record's text. Each is empty if it was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttemptMessages {
    wire: CallWire,
    /// Head of the request as the provider received it.
    request: Span,
    /// Head of the response as the provider sent it.
    response: Span,
    /// The beginning of the response's body.
    body: Span,
}

/// Maximum number of bytes of the messages of all calls of an exchange. What would exceed it is not recorded.
const ATTEMPT_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of failed calls recorded. No exchange makes more.
const FAILED_ATTEMPTS_MAX: usize = 64;

/// Durations of the phases, in microseconds. The first three fields are times since the first byte of the
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseTimes {
    /// The last byte of the request was written to the socket.
    pub sent_us: u64,
    /// The first byte of the response arrived.
    pub first_byte_us: u64,
    /// The last byte of the response was written to the socket.
    pub ended_us: u64,
    /// Time before the response spent on waits for remedies and on failed calls.
    pub waited_us: u64,
    /// Time before `sent_us` spent on opening a connection, if this exchange opened one: DNS, TCP connect,
    /// TLS handshake.
    pub dial: Option<[u64; 3]>,
    /// Time that the gateway itself took.
    pub footprint_us: u64,
}

impl PhaseTimes {
    /// Time that the client waited: the sum of all phases.
    pub fn total_us(&self) -> u64 {
        self.ended_us.max(self.first_byte_us)
    }

    /// Returns the phases as HAR has them: consecutive without gaps, so their sum is the time that the client
    /// waited.
    pub fn phases(&self) -> Phases {
        let sent = self.sent_us.min(self.first_byte_us);
        let ended = self.ended_us.max(self.first_byte_us);
        let mut left = sent;
        let mut take = |part_us: u64| {
            let taken = part_us.min(left);
            left -= taken;
            taken
        };
        let [dns, connect, tls] = self.dial.unwrap_or_default().map(&mut take);
        let waited_before = take(self.waited_us);
        let until_response = self.first_byte_us - sent;
        // A wait without a call after it, which ended in a refusal.
        let waited_after = (self.waited_us - waited_before).min(until_response);
        let blocked = waited_before + waited_after;
        let happened = |part_us: u64| (part_us > 0).then_some(part_us);
        Phases {
            blocked_us: happened(blocked),
            dns_us: happened(dns),
            connect_us: self.dial.map(|_| connect),
            tls_us: happened(tls),
            send_us: left,
            wait_us: until_response - waited_after,
            receive_us: ended - self.first_byte_us,
        }
    }
}

/// The captured part of a body.
#[derive(Debug, Default)]
pub struct Capture {
    /// The beginning of the body without chunk framing, as much as was wanted and fits.
    pub bytes: Vec<u8>,
    /// Length of the body as far as it was transferred.
    pub body_bytes: u64,
    /// `true` if any diagnosis wants the body.
    pub is_wanted: bool,
}

impl Capture {
    /// Returns a copy with at most `bytes_max` of the body.
    fn copy(&self, bytes_max: usize) -> Self {
        let kept = self.bytes.len().min(bytes_max);
        Self { bytes: self.bytes[..kept].to_vec(), body_bytes: self.body_bytes, is_wanted: self.is_wanted }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(SPARE_BODY_BYTES);
        self.body_bytes = 0;
        self.is_wanted = false;
    }
}

/// The URL that the client requested.
#[derive(Debug, Clone, Copy)]
pub struct Url<'a> {
    /// `true` if the scheme is `https`.
    pub tls: bool,
    /// Host in lower case; IPv6 without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Path of the provider's URL, and the slash after it if one is sent that `target` does not have.
    pub base: [&'a [u8]; 2],
    /// Path and query, relative to the provider's URL.
    pub target: &'a [u8],
}

/// A message of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeSide {
    Request,
    Response,
}

impl ExchangeSide {
    pub(crate) const ALL: [Self; 2] = [Self::Request, Self::Response];
}

impl RecordedExchange {
    /// Returns a copy with the texts that `mask` returns, which have the same length, or `None` if it returns
    /// none. Names of the config stay as they are.
    pub(crate) fn masked_text(&self, mask: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Self> {
        let mut text = mask(&self.text)?;
        let Spans { provider, account, flows, remedies, .. } = self.spans;
        for kept in [provider, account, flows, remedies] {
            if let Some(place) = text.get_mut(kept.start as usize..kept.end as usize) {
                place.copy_from_slice(kept.of(&self.text));
            }
        }
        Some(Self { text, ..self.copy([usize::MAX; 2]) })
    }

    pub(crate) fn body(&self, side: ExchangeSide) -> &Capture {
        match side {
            ExchangeSide::Request => &self.request_body,
            ExchangeSide::Response => &self.response_body,
        }
    }

    pub(crate) fn body_mut(&mut self, side: ExchangeSide) -> &mut Capture {
        match side {
            ExchangeSide::Request => &mut self.request_body,
            ExchangeSide::Response => &mut self.response_body,
        }
    }

    /// Writes blanks in the place of a part of a head.
    pub(crate) fn blank(&mut self, side: ExchangeSide, part: Span) {
        let head = match side {
            ExchangeSide::Request => self.spans.request_head,
            ExchangeSide::Response => self.spans.response_head,
        };
        let start = head.start as usize;
        if let Some(place) = self.text.get_mut(start + part.start as usize..start + part.end as usize) {
            place.fill(b' ');
        }
    }

    /// Removes the exchange's data and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(SPARE_TEXT_BYTES);
        self.spans = Spans::default();
        self.facts = Facts::default();
        self.routed = None;
        self.failed_attempts.clear();
        self.last_messages = AttemptMessages::default();
        self.attempt_bytes = 0;
        self.request_body.clear();
        self.response_body.clear();
        self.usage = None;
    }

    /// Records the request: its URL, and its head as the client sent it.
    pub fn set_request(&mut self, url: &Url<'_>, head: &[u8]) {
        self.facts.tls = url.tls;
        self.facts.port = url.port;
        self.spans.host = self.push(url.host.as_bytes());
        let base = url.base.map(|part| self.push(part));
        self.spans.relative = self.push(url.target);
        self.spans.target = Span { start: base[0].start, end: self.spans.relative.end };
        self.spans.request_head = self.push(head);
    }

    /// Records the response head that the client gets, which `write` assembles. A later call replaces it.
    pub fn set_response(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.spans.response_head = Span::new(start, self.text.len());
    }

    /// Removes the response, because the client did not get it.
    pub fn forget_response(&mut self) {
        self.spans.response_head = Span::default();
    }

    /// Records the name (in the config) of the provider that was called last.
    pub fn set_provider(&mut self, name: &str) {
        self.spans.provider = self.push(name.as_bytes());
    }

    /// Records the head of a request to a provider that has failed, which `write` assembles.
    pub fn note_sent(&mut self, wire: CallWire, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.last_messages = AttemptMessages { wire, ..AttemptMessages::default() };
        self.last_messages.request = self.keep_attempt_text(start);
    }

    /// Records the response to that request: its head, and the beginning of its body.
    pub fn note_received(&mut self, head: &[u8], body: &[u8]) {
        for (text, is_body) in [(head, false), (body, true)] {
            let start = self.text.len();
            self.text.extend_from_slice(text);
            let place = self.keep_attempt_text(start);
            if is_body {
                self.last_messages.body = place;
            } else {
                self.last_messages.response = place;
            }
        }
    }

    /// Returns the place of the text from `start`, or removes it if it is too much.
    fn keep_attempt_text(&mut self, start: usize) -> Span {
        let len = self.text.len() - start;
        if self.attempt_bytes + len > ATTEMPT_TEXT_BYTES_MAX {
            self.text.truncate(start);
            return Span::default();
        }
        self.attempt_bytes += len;
        Span::new(start, start + len)
    }

    /// Records a failed call that is repeated, with the messages noted before.
    pub fn note_attempt(&mut self, attempt: Attempt) {
        let messages = std::mem::take(&mut self.last_messages);
        if self.failed_attempts.len() < FAILED_ATTEMPTS_MAX {
            self.failed_attempts.push(Attempt { messages, ..attempt });
        }
    }

    /// The messages of the last call, if it has failed.
    pub(crate) fn last_messages(&self) -> AttemptMessages {
        self.last_messages
    }

    /// Returns the way in which a call was made, the heads of its request and of its response, and the
    /// beginning of its response's body. A message that was not recorded is empty.
    pub(crate) fn messages(&self, of: AttemptMessages) -> (CallWire, [&[u8]; 3]) {
        (of.wire, [of.request, of.response, of.body].map(|place| place.of(&self.text)))
    }

    /// Returns the failed calls so far.
    pub fn failed_attempts(&self) -> &[Attempt] {
        &self.failed_attempts
    }

    /// Records the remedies' decisions.
    pub fn set_remedies(&mut self, decisions: &str) {
        self.spans.remedies = self.push(decisions.as_bytes());
    }

    /// Records the name of the account that the last call used.
    pub fn set_account(&mut self, name: &str) {
        self.spans.account = self.push(name.as_bytes());
    }

    /// Records the id of the request.
    pub fn set_request_id(&mut self, id: &[u8]) {
        self.spans.request_id = self.push(id);
    }

    /// Records the names of the flows that match, in order.
    pub fn set_flows<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let start = self.text.len();
        for name in names {
            self.text.extend_from_slice(name.as_bytes());
            self.text.push(b'\n');
        }
        self.spans.flows = Span::new(start, self.text.len());
    }

    fn push(&mut self, text: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        Span::new(start, self.text.len())
    }

    /// Number of bytes of text and bodies.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.text.len() + self.request_body.bytes.len() + self.response_body.bytes.len()
    }

    /// Returns a copy that takes no more memory than it needs, with at most these numbers of bytes of the
    /// bodies of request and response.
    pub(crate) fn copy(&self, body_bytes_max: [usize; 2]) -> Self {
        Self {
            text: self.text.clone(),
            spans: self.spans,
            facts: self.facts,
            routed: self.routed.clone(),
            failed_attempts: self.failed_attempts.clone(),
            last_messages: self.last_messages,
            attempt_bytes: self.attempt_bytes,
            request_body: self.request_body.copy(body_bytes_max[0]),
            response_body: self.response_body.copy(body_bytes_max[1]),
            usage: self.usage.clone(),
        }
    }

    /// Number of bytes of memory that it has, besides its own size.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.text.capacity()
            + self.request_body.bytes.capacity()
            + self.response_body.bytes.capacity()
            + self.failed_attempts.capacity() * size_of::<Attempt>()
    }

    /// Host of the URL that the client requested, in lower case.
    pub fn host(&self) -> &str {
        str::from_utf8(self.spans.host.of(&self.text)).unwrap_or_default()
    }

    /// Path and query of that URL.
    pub fn target(&self) -> &[u8] {
        self.spans.target.of(&self.text)
    }

    /// The part of the target that is relative to the provider's URL, which flows match.
    pub fn relative_target(&self) -> &[u8] {
        self.spans.relative.of(&self.text)
    }

    /// Name of the provider in the config; `-` if there is none.
    pub fn provider(&self) -> &str {
        str::from_utf8(self.spans.provider.of(&self.text)).unwrap_or_default()
    }

    /// The request's head as the client sent it.
    pub fn request_head(&self) -> &[u8] {
        self.spans.request_head.of(&self.text)
    }

    /// The response's head as the client received it; empty if it received none.
    pub fn response_head(&self) -> &[u8] {
        self.spans.response_head.of(&self.text)
    }

    /// The remedies' decisions, as in the field `x-egret-trace`.
    pub fn remedies(&self) -> &str {
        str::from_utf8(self.spans.remedies.of(&self.text)).unwrap_or_default()
    }

    /// Name of the account that the last call used; empty if there was none.
    pub fn account(&self) -> &str {
        str::from_utf8(self.spans.account.of(&self.text)).unwrap_or_default()
    }

    /// Names of the flows that match, in order, if they were recorded.
    pub fn flows(&self) -> impl Iterator<Item = &str> {
        str::from_utf8(self.spans.flows.of(&self.text)).unwrap_or_default().lines()
    }

    /// Id of the request; empty if there is none.
    pub fn request_id(&self) -> &str {
        str::from_utf8(self.spans.request_id.of(&self.text)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn phases_follow_one_another() {
        let times = PhaseTimes {
            sent_us: 1_000,
            first_byte_us: 21_000,
            ended_us: 22_500,
            waited_us: 300,
            dial: Some([100, 200, 0]),
            footprint_us: 60,
        };
        let phases = times.phases();
        let expected = Phases {
            blocked_us: Some(300),
            dns_us: Some(100),
            connect_us: Some(200),
            tls_us: None,
            send_us: 400,
            wait_us: 20_000,
            receive_us: 1_500,
        };
        assert_eq!(phases, expected);
    }

    #[test]
    fn waiting_without_a_call_is_not_provider_time() {
        let times = PhaseTimes {
            sent_us: 10,
            first_byte_us: 5_000,
            ended_us: 5_050,
            waited_us: 4_900,
            ..PhaseTimes::default()
        };
        let phases = times.phases();
        assert_eq!((phases.blocked_us, phases.send_us, phases.wait_us), (Some(4_900), 0, 100));
        assert_eq!((phases.connect_us, phases.receive_us), (None, 50));
    }

    proptest! {
        #[test]
        fn phases_add_up_whatever_was_measured(
            sent_us in 0_u64..10_000, first_byte_us in 0_u64..10_000, ended_us in 0_u64..10_000, waited_us in 0_u64..10_000,
            dial in proptest::option::of([0_u64..4_000, 0..4_000, 0..4_000]),
        ) {
            let times = PhaseTimes { sent_us, first_byte_us, ended_us, waited_us, dial, footprint_us: 0 };
            let phases = times.phases();
            let parts = [phases.blocked_us, phases.dns_us, phases.connect_us, phases.tls_us].into_iter().flatten();
            let sum = parts.sum::<u64>() + phases.send_us + phases.wait_us + phases.receive_us;
            prop_assert_eq!(sum, ended_us.max(first_byte_us));
        }
    }

    #[test]
    fn texts_stand_where_they_were_put_and_memory_is_kept() {
        let mut record = RecordedExchange::default();
        let url =
            Url { tls: true, host: "one.example", port: 443, base: [b"/v2", b""], target: b"/users/7?a" };
        for _ in 0..2 {
            record.set_request(&url, b"GET /one/users/7?a HTTP/1.1\r\n\r\n");
            record.set_response(|text| text.extend_from_slice(b"HTTP/1.1 500 Old\r\n\r\n"));
            record.set_response(|text| text.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n"));
            record.set_provider("one");
            record.set_remedies("f/retry=next");
            assert_eq!((record.host(), record.target()), ("one.example", &b"/v2/users/7?a"[..]));
            assert_eq!((record.relative_target(), record.provider()), (&b"/users/7?a"[..], "one"));
            assert_eq!(record.response_head(), b"HTTP/1.1 200 OK\r\n\r\n");
            assert_eq!(record.remedies(), "f/retry=next");
            let capacity = record.text.capacity();
            record.clear();
            assert!(record.request_head().is_empty() && record.response_head().is_empty());
            assert_eq!(record.text.capacity(), capacity);
        }
    }
}
