//! What is kept of an exchange for diagnoses: its heads as the client saw them, sizes, times, and the beginnings of its bodies where a
//! diagnosis asks for them.
//!
//! A record is filled on the thread of the exchange and read on another. Filling it copies a few pieces of memory that is used again, and
//! nothing else: it is parsed again by whoever reads it ([`Finished`](crate::finished::Finished)). It holds nothing that leads back to the
//! exchange.

use std::net::SocketAddr;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_har::observed::Phases;
use egret_http1::Span;

use crate::plan::Diagnoses;

/// What a record that waits to be used again keeps of its memory: more than nearly every exchange needs.
const SPARE_TEXT_BYTES: usize = 8 * 1024;
const SPARE_BODY_BYTES: usize = 4 * 1024;

/// What is kept of an exchange.
#[derive(Debug, Default)]
pub struct Record {
    /// The diagnoses that the observers' numbers refer to. Kept with the memory, and counted again only after a reload.
    pub(crate) diagnoses: Option<Arc<Diagnoses>>,
    /// Who sees it.
    pub(crate) observers: Vec<Observer>,
    /// All texts, one after the other.
    text: Vec<u8>,
    spans: Spans,
    /// All that is no text.
    pub facts: Facts,
    /// Calls that were made in vain, and made again.
    vain: Vec<Attempt>,
    /// The request's body, as the client has sent it.
    pub request_body: Capture,
    /// The response's body, as the client got it.
    pub response_body: Capture,
}

/// Where the texts of a record stand.
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
}

/// What there is to tell of an exchange besides texts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// When the first byte of the request was here.
    pub started: Timestamp,
    /// How long what took.
    pub times: Times,
    /// Whether the URL that the client has asked for is `https`.
    pub tls: bool,
    /// Its port.
    pub port: u16,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The address of the server that answered.
    pub server: Option<SocketAddr>,
    /// The connection to it, by a number that no other has.
    pub connection: Option<u64>,
    /// Calls made to providers.
    pub attempts: u32,
    /// What the ids of its spans follow from; 0 where no remedy has drawn it.
    pub trace_seed: u64,
    /// Informational responses passed on before the final one.
    pub informational: u8,
    /// The slug of the error that the gateway answered with.
    pub error: Option<&'static str>,
    /// Whether the response ended before it was complete.
    pub is_cut_short: bool,
    /// Whether no provider has made the response.
    pub is_generated: bool,
}

/// A call to a provider. Moments are in microseconds, counted from the first byte of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// It began.
    pub start_us: u64,
    /// It ended.
    pub end_us: u64,
    /// The status of the response that it has brought; 0 where there was none.
    pub status: u16,
    /// Why there was none, as a slug.
    pub error: Option<&'static str>,
}

/// Calls made in vain that are noted; nobody makes more of one exchange.
const VAIN_MAX: usize = 64;

/// A diagnosis that sees a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observer {
    /// Its number among all diagnoses of the config.
    pub slot: u32,
    /// The pattern of the flow's match by which it was found.
    pub pattern: u32,
}

/// How long what took, in microseconds. The first four are moments, counted from the first byte of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The last byte of the request that was sent has been handed to the system.
    pub sent_us: u64,
    /// The first byte of the response was here.
    pub first_byte_us: u64,
    /// Its last byte has been handed to the system.
    pub ended_us: u64,
    /// Of the time before the response: what remedies let wait, and calls made in vain.
    pub waited_us: u64,
    /// Of the time before `sent_us`, where this exchange has opened a connection: resolving the name, connecting, the handshake of TLS.
    pub dial: Option<[u64; 3]>,
    /// The part of the time that the gateway itself took.
    pub footprint_us: u64,
}

impl Times {
    /// How long the client waited: the sum of all phases.
    pub fn total_us(&self) -> u64 {
        self.ended_us.max(self.first_byte_us)
    }

    /// As HAR has them: one after the other without a gap, so that their sum is how long the client waited.
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
        // Waited for without a call being made after it: what refuses in the end.
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

/// What is kept of a body.
#[derive(Debug, Default)]
pub struct Capture {
    /// Its beginning, without the framing of chunks: as much as was wanted of it, and there was room for.
    pub bytes: Vec<u8>,
    /// How long it was, as far as it went.
    pub body_bytes: u64,
    /// Whether anybody wanted any of it.
    pub is_wanted: bool,
}

impl Capture {
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(SPARE_BODY_BYTES);
        self.body_bytes = 0;
        self.is_wanted = false;
    }
}

/// Where a request goes, as the client has asked for it.
#[derive(Debug, Clone, Copy)]
pub struct Url<'a> {
    /// Whether it is `https`.
    pub tls: bool,
    /// In lower case; IPv6 without brackets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The path of the provider's URL, and the slash after it where one is sent that `target` does not have.
    pub base: [&'a [u8]; 2],
    /// Path and query, relative to the provider's URL.
    pub target: &'a [u8],
}

impl Record {
    /// Forgets the exchange, and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.observers.clear();
        self.text.clear();
        self.text.shrink_to(SPARE_TEXT_BYTES);
        self.spans = Spans::default();
        self.facts = Facts::default();
        self.vain.clear();
        self.request_body.clear();
        self.response_body.clear();
    }

    /// Notes the request: where it goes, and its head as the client has sent it.
    pub fn set_request(&mut self, url: &Url<'_>, head: &[u8]) {
        self.facts.tls = url.tls;
        self.facts.port = url.port;
        self.spans.host = self.push(url.host.as_bytes());
        let base = url.base.map(|part| self.push(part));
        self.spans.relative = self.push(url.target);
        self.spans.target = Span { start: base[0].start, end: self.spans.relative.end };
        self.spans.request_head = self.push(head);
    }

    /// Notes the head of the response as the client gets it, which `write` puts together; once more if another takes its place.
    pub fn set_response(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.spans.response_head = Span::new(start, self.text.len());
    }

    /// Forgets the response: the client has not got it.
    pub fn forget_response(&mut self) {
        self.spans.response_head = Span::default();
    }

    /// Notes the provider's name in the config, of the call that was made last.
    pub fn set_provider(&mut self, name: &str) {
        self.spans.provider = self.push(name.as_bytes());
    }

    /// Notes a call that is made again.
    pub fn note_attempt(&mut self, attempt: Attempt) {
        if self.vain.len() < VAIN_MAX {
            self.vain.push(attempt);
        }
    }

    /// Calls made in vain so far.
    pub fn vain(&self) -> &[Attempt] {
        &self.vain
    }

    /// Notes what remedies have decided.
    pub fn set_remedies(&mut self, decisions: &str) {
        self.spans.remedies = self.push(decisions.as_bytes());
    }

    /// Takes the name of the account that the last call was made with.
    pub fn set_account(&mut self, name: &str) {
        self.spans.account = self.push(name.as_bytes());
    }

    fn push(&mut self, text: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        Span::new(start, self.text.len())
    }

    /// Bytes of memory that it takes while it waits to be seen.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.request_body.bytes.len() + self.response_body.bytes.len()
    }

    /// The host of the URL that the client has asked for, in lower case.
    pub fn host(&self) -> &str {
        str::from_utf8(self.spans.host.of(&self.text)).unwrap_or_default()
    }

    /// Path and query of that URL.
    pub fn target(&self) -> &[u8] {
        self.spans.target.of(&self.text)
    }

    /// The part of it that is relative to the provider's URL: what flows match.
    pub fn relative_target(&self) -> &[u8] {
        self.spans.relative.of(&self.text)
    }

    /// The provider's name in the config; `-` where there is none.
    pub fn provider(&self) -> &str {
        str::from_utf8(self.spans.provider.of(&self.text)).unwrap_or_default()
    }

    /// The request's head as the client has sent it.
    pub fn request_head(&self) -> &[u8] {
        self.spans.request_head.of(&self.text)
    }

    /// The response's head as the client got it; empty where it got none.
    pub fn response_head(&self) -> &[u8] {
        self.spans.response_head.of(&self.text)
    }

    /// What remedies have decided, as in the field `x-egret-trace`.
    pub fn remedies(&self) -> &str {
        str::from_utf8(self.spans.remedies.of(&self.text)).unwrap_or_default()
    }

    /// The account that the last call was made with; empty where there was none.
    pub fn account(&self) -> &str {
        str::from_utf8(self.spans.account.of(&self.text)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn phases_follow_one_another() {
        let times = Times {
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
    fn waiting_for_a_place_without_a_call_is_no_waiting_for_the_provider() {
        let times = Times {
            sent_us: 10,
            first_byte_us: 5_000,
            ended_us: 5_050,
            waited_us: 4_900,
            ..Times::default()
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
            let times = Times { sent_us, first_byte_us, ended_us, waited_us, dial, footprint_us: 0 };
            let phases = times.phases();
            let parts = [phases.blocked_us, phases.dns_us, phases.connect_us, phases.tls_us].into_iter().flatten();
            let sum = parts.sum::<u64>() + phases.send_us + phases.wait_us + phases.receive_us;
            prop_assert_eq!(sum, ended_us.max(first_byte_us));
        }
    }

    #[test]
    fn texts_stand_where_they_were_put_and_memory_is_kept() {
        let mut record = Record::default();
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
