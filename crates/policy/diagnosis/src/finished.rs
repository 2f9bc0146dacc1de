//! A finished exchange as diagnoses see it: a record that has been parsed again.

use std::borrow::Cow;

use egret_har::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use egret_har::recorder::whole_body;
use egret_har::{Key, detect};
use egret_http1::{
    Field, HeadLimits, MAX_FIELDS, MAX_HEAD, Method, Progress, RequestHead, ResponseFraming, ResponseHead,
    Span, Version,
};
use egret_match::expression::{Ended, Inputs};
use egret_match::matching::Readings;
use egret_match::{CapturingPatterns, is_event_stream, merged_events};
use egret_message::authority::Authority;
use egret_message::grpc::GrpcStatus;
use egret_message::{ClientAddress, Fields, Request, Response, consumer, default_port};

use crate::record::{Attempt, AttemptMessages, CallWire, Capture, ExchangeSide, Facts, RecordedExchange};

/// Maximum length of an exported text, such as a consumer's name. A longer one is replaced by its pseudonym.
const EXPORTABLE_BYTES_MAX: usize = 64;

/// The limits of recorded heads: they were already accepted, so only the absolute limits apply.
const HEAD_LIMITS: HeadLimits = HeadLimits { start_line: MAX_HEAD, head: MAX_HEAD, fields: MAX_FIELDS };

/// Parser for records. Reuses its memory between records.
#[derive(Debug, Default)]
pub struct RecordReader {
    request: RequestHead,
    response: ResponseHead,
}

impl RecordReader {
    /// Parses a record. Returns `None` if it does not hold a valid exchange.
    pub fn read<'a>(&'a mut self, record: &'a RecordedExchange) -> Option<Parsed<'a>> {
        self.request.reset();
        self.response.reset();
        let (request, response) = (record.request_head(), record.response_head());
        if !matches!(self.request.parse(request, &HEAD_LIMITS), Ok(Progress::Complete)) {
            return None;
        }
        let method = self.request.method;
        if !response.is_empty()
            && !matches!(self.response.parse(response, &HEAD_LIMITS, method), Ok(Progress::Complete))
        {
            return None;
        }
        let response = (!response.is_empty()).then_some(&self.response);
        Some(Parsed { record, request: &self.request, response })
    }
}

/// A parsed record.
#[derive(Debug, Clone, Copy)]
pub struct Parsed<'a> {
    record: &'a RecordedExchange,
    request: &'a RequestHead,
    response: Option<&'a ResponseHead>,
}

/// A finished exchange as one diagnosis of one flow sees it.
///
/// It is read-only and holds only copies: a diagnosis cannot affect the exchange.
///
/// ```compile_fail
/// fn see(exchange: &egret_diagnosis::Finished<'_>) {
///     exchange.record().set_provider("another");
/// }
/// ```
///
/// ```
/// fn see(exchange: &egret_diagnosis::Finished<'_>) -> bool {
///     exchange.record().provider() == "another"
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    parsed: Parsed<'a>,
    flow: &'a str,
    endpoint: Endpoint<'a>,
    body_bytes_max: [usize; 2],
}

/// The path of a flow's match that has matched an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    /// The path as configured, such as `/users/{id}`. Empty if the match has no paths.
    pub text: &'a str,
    /// Its number among the paths of the match.
    pub number: usize,
    /// The patterns of the match.
    pub patterns: &'a CapturingPatterns,
}

impl<'a> Parsed<'a> {
    /// The record.
    pub(crate) fn record(self) -> &'a RecordedExchange {
        self.record
    }

    /// Head of the request.
    pub(crate) fn request_parsed(self) -> &'a RequestHead {
        self.request
    }

    /// Method of the request, as sent.
    pub(crate) fn method_text(self) -> &'a [u8] {
        self.request.method_text.of(self.record.request_head())
    }

    /// Media types of the request and the response; empty if there are none.
    pub(crate) fn media_types(self) -> [&'a [u8]; 2] {
        let response =
            self.response.map_or(&b""[..], |head| content_type(&head.fields, self.record.response_head()));
        [content_type(&self.request.fields, self.record.request_head()), response]
    }

    /// Returns the places of the values of `Content-Encoding` in a head, and all their codings as one list.
    pub(crate) fn codings(self, side: ExchangeSide) -> (Vec<Span>, Vec<u8>) {
        let (fields, bytes) = match (side, self.response) {
            (ExchangeSide::Request, _) => (&self.request.fields[..], self.record.request_head()),
            (ExchangeSide::Response, Some(response)) => (&response.fields[..], self.record.response_head()),
            (ExchangeSide::Response, None) => return Default::default(),
        };
        let is_it = |field: &&Field| field.name.of(bytes).eq_ignore_ascii_case(b"content-encoding");
        let values: Vec<Span> = fields.iter().filter(is_it).map(|field| field.value).collect();
        let codings = values.iter().map(|value| value.of(bytes)).collect::<Vec<_>>().join(&b',');
        (values, codings)
    }

    /// Names and values of the request's fields.
    pub(crate) fn request_fields(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let bytes = self.record.request_head();
        self.request.fields.iter().map(move |field| (field.name.of(bytes), field.value.of(bytes)))
    }

    /// Creates the view for a diagnosis of `flow`, whose match found the exchange by the path `endpoint`. The
    /// view shows as much of a body as `wanted` returns for its media type, or none unless `wants_bodies`.
    pub(crate) fn view_for(
        self,
        flow: &'a str,
        endpoint: Endpoint<'a>,
        wants_bodies: bool,
        wanted: impl Fn(&[u8]) -> usize,
    ) -> Finished<'a> {
        let max =
            |fields: &[Field], bytes| if wants_bodies { wanted(content_type(fields, bytes)) } else { 0 };
        let request = max(&self.request.fields, self.record.request_head());
        let response = self.response.map_or(0, |head| max(&head.fields, self.record.response_head()));
        Finished { parsed: self, flow, endpoint, body_bytes_max: [request, response] }
    }
}

impl<'a> Finished<'a> {
    /// The record of the exchange.
    pub fn record(&self) -> &'a RecordedExchange {
        self.parsed.record
    }

    /// Data about the exchange other than its texts.
    pub fn facts(&self) -> &'a Facts {
        &self.parsed.record.facts
    }

    /// Name of the flow whose diagnosis sees the exchange.
    pub fn flow(&self) -> &'a str {
        self.flow
    }

    /// Path of the flow's match that matched, such as `/users/{id}`; empty if the match has no paths.
    pub fn endpoint(&self) -> &'a str {
        self.endpoint.text
    }

    /// Method of the request.
    pub fn method(&self) -> Method {
        self.parsed.request.method
    }

    /// Method of the request, as sent.
    pub fn method_text(&self) -> &'a [u8] {
        self.parsed.method_text()
    }

    /// Returns the value of a request field. `name` is in lower case.
    pub fn request_field(&self, name: &[u8]) -> Option<&'a [u8]> {
        field(&self.parsed.request.fields, self.record().request_head(), name)
    }

    /// Returns the values of all request fields with that name. `name` is in lower case.
    pub fn request_fields(&self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Fields::received(&self.parsed.request.fields, self.record().request_head()).all(name)
    }

    /// Returns the calls to providers, in order. The last one brought the response, or failed for good. Its
    /// start includes the opening of its connection, if one was opened.
    pub fn attempts(&self) -> Vec<Attempt> {
        let facts = self.facts();
        let mut attempts = self.record().failed_attempts().to_vec();
        if attempts.len() >= facts.attempts as usize {
            return attempts;
        }
        let Phases { dns_us, connect_us, tls_us, send_us, wait_us, receive_us, .. } = self.phases();
        let dial_us = [dns_us, connect_us, tls_us].into_iter().flatten().sum::<u64>();
        let end_us = facts.times.total_us();
        let start_us = end_us.saturating_sub(dial_us + send_us + wait_us + receive_us);
        let start_us = start_us.max(attempts.last().map_or(0, |before| before.end_us));
        let status = if facts.is_generated { 0 } else { self.status() };
        let (end_us, messages) = (end_us.max(start_us), self.record().last_messages());
        attempts.push(Attempt { start_us, end_us, status, error: facts.error, messages });
        attempts
    }

    /// Calls `act` with the messages of a call, as the provider received and sent them.
    pub(crate) fn with_messages(
        &self,
        of: AttemptMessages,
        act: impl FnOnce(Option<&ObservedRequest<'_>>, Option<&ObservedResponse<'_>>),
    ) {
        let (CallWire { tls, is_http2 }, [sent, received, body]) = self.record().messages(of);
        let (mut request, mut response) = (RequestHead::default(), ResponseHead::default());
        let is_whole = |parsed| matches!(parsed, Ok(Progress::Complete));
        let request = is_whole(request.parse(sent, &HEAD_LIMITS)).then_some(&request);
        let method = request.map_or(Method::Get, |request| request.method);
        let response = is_whole(response.parse(received, &HEAD_LIMITS, method)).then_some(&response);
        let authority = request
            .and_then(|request| Authority::parse(request.host?.of(sent), Some(default_port(tls))).ok());
        let host = authority.as_ref().map_or_else(String::new, |authority| authority.host.to_string());
        let sent_request = request.map(|request| ObservedRequest {
            method: request.method_text.of(sent),
            tls,
            host: &host,
            port: authority.as_ref().map_or(0, |authority| authority.port),
            target: request.target.of(sent),
            version: version(request.version, is_http2),
            fields: observed_fields(&request.fields, sent),
            head_bytes: sent.len() as u64,
            body_bytes: 0,
            body: Captured::default(),
        });
        let received_response = response.map(|response| {
            let body_bytes = match response.framing {
                ResponseFraming::Length(length) => length,
                _ => body.len() as u64,
            };
            let is_whole = body_bytes == body.len() as u64;
            ObservedResponse {
                status: response.status,
                reason: response.reason.of(received),
                version: version(response.version, is_http2),
                fields: observed_fields(&response.fields, received),
                head_bytes: received.len() as u64,
                body_bytes,
                body: Captured { bytes: body, is_whole, is_wanted: !body.is_empty() },
            }
        });
        act(sent_request.as_ref(), received_response.as_ref());
    }

    /// Returns the value of a response field. `name` is in lower case.
    pub fn response_field(&self, name: &[u8]) -> Option<&'a [u8]> {
        field(&self.parsed.response?.fields, self.record().response_head(), name)
    }

    /// Status code of the response; 0 if the client received none.
    pub fn status(&self) -> u16 {
        self.parsed.response.map_or(0, |response| response.status)
    }

    /// Class of the status code, such as `2xx`; `none` if the client received no response.
    pub fn status_class(&self) -> &'static str {
        match self.status() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            5 => "5xx",
            _ => "none",
        }
    }

    /// Returns the consumer's name in a form that may be exported. A name that is too long, is not plain text
    /// or looks like a secret is replaced by its pseudonym. The result is empty if the request does not name
    /// a consumer, or if a pseudonym is needed and there is no key.
    pub fn exportable_consumer(&self, key: Option<&Key>) -> Cow<'a, str> {
        exportable(self.consumer().unwrap_or_default(), key)
    }

    /// Returns the id of the request in a form that may be exported: an id of the client's that looks like a
    /// secret is replaced by its pseudonym. The result is empty if there is no id, or if a pseudonym is
    /// needed and there is no key.
    pub fn exportable_request_id(&self, key: Option<&Key>) -> Cow<'a, str> {
        let id = self.record().request_id();
        if !detect::holds_secret(id) {
            return id.into();
        }
        key.map(|key| key.text(id.as_bytes()).to_string()).unwrap_or_default().into()
    }

    /// Name of the consumer, if the request has one.
    pub fn consumer(&self) -> Option<&'a [u8]> {
        consumer(Fields::received(&self.parsed.request.fields, self.record().request_head()))
    }

    /// Durations of the phases.
    pub fn phases(&self) -> Phases {
        self.facts().times.phases()
    }

    /// Address of the client.
    pub fn client(&self) -> Option<ClientAddress> {
        self.facts().client
    }

    /// Returns the captured request body, cut to the length that this diagnosis wants.
    pub fn request_body(&self) -> Captured<'a> {
        captured(&self.record().request_body, self.body_bytes_max[0])
    }

    /// Returns the captured response body, cut to the length that this diagnosis wants.
    pub fn response_body(&self) -> Captured<'a> {
        captured(&self.record().response_body, self.body_bytes_max[1])
    }

    /// Returns the body of the request without its content codings. `None` unless all of it was captured and
    /// it is at most `max` long.
    pub(crate) fn whole_request_body(&self, max: usize) -> Option<Cow<'a, [u8]>> {
        whole(&self.request_body(), self.request_field(b"content-encoding"), max)
    }

    /// Returns the bodies of request and response, each as
    /// [`whole_request_body`](Self::whole_request_body). A stream of events is merged, as for remedies.
    pub(crate) fn whole_bodies(&self, max: usize) -> [Option<Cow<'a, [u8]>>; 2] {
        let mut response = whole(&self.response_body(), self.response_field(b"content-encoding"), max);
        let fields = self.parsed.response.map_or(&[][..], |head| &head.fields);
        if is_event_stream(Fields::received(fields, self.record().response_head())) {
            response = response.and_then(|stream| merged_events(&stream)).map(Cow::Owned);
        }
        [self.whole_request_body(max), response]
    }

    /// Returns `true` if the response is a stream of a language model: of events, of lines, or of messages.
    pub(crate) fn is_streamed(&self) -> bool {
        const STREAMS: [&[u8]; 4] = [
            b"text/event-stream",
            b"application/x-ndjson",
            b"application/ndjson",
            b"application/vnd.amazon.eventstream",
        ];
        let value = self.response_field(b"content-type").unwrap_or_default();
        let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        STREAMS.iter().any(|stream| stream.eq_ignore_ascii_case(media_type))
    }

    /// Calls `act` with the inputs of expressions. Bodies are those of [`whole_bodies`](Self::whole_bodies).
    /// If the client received no response, its status is 0 and it has no fields.
    pub(crate) fn with_inputs<T>(
        &self,
        bodies: &[Option<Cow<'_, [u8]>>; 2],
        act: impl FnOnce(&Inputs<'_>) -> T,
    ) -> T {
        let record = self.record();
        let Parsed { request: head, response, .. } = self.parsed;
        let (path, query) = egret_message::request_target::split_target(record.relative_target());
        let request = Request {
            provider: record.provider(),
            tls: self.facts().tls,
            host: record.host(),
            port: self.facts().port,
            method: self.method_text(),
            path,
            query,
            fields: Fields::received(&head.fields, record.request_head()),
            upgrade: head.upgrade,
            body: bodies[0].as_deref(),
        };
        let response_fields = response.map_or(&[][..], |head| &head.fields);
        let response = Response {
            status: self.status(),
            fields: Fields::received(response_fields, record.response_head()),
            body: bodies[1].as_deref(),
        };
        let Endpoint { number, patterns, .. } = self.endpoint;
        let mut readings = Readings::default();
        act(&Inputs {
            request: &request,
            response: Some(&response),
            parameters: patterns.captured(number, record.host(), path, &mut readings),
            attempt: self.facts().attempts.max(1),
            now: self.facts().started,
            usage: record.usage.as_deref(),
            ended: Some(self.ended()),
        })
    }

    /// Returns the facts that expressions can use.
    fn ended(&self) -> Ended<'a> {
        let Facts { times, attempts, error, is_generated, grpc_status, .. } = *self.facts();
        let provider_us = if attempts > 0 { self.phases().wait_us } else { 0 };
        Ended {
            duration_ms: in_millis(times.total_us()),
            provider_ms: in_millis(provider_us),
            error: error.unwrap_or_default(),
            is_generated,
            grpc_status: grpc_status.map_or("", GrpcStatus::name),
        }
    }

    /// Returns the request of a HAR entry.
    pub(crate) fn observed_request(&self) -> ObservedRequest<'a> {
        let (record, request) = (self.record(), self.parsed.request);
        ObservedRequest {
            method: self.method_text(),
            tls: record.facts.tls,
            host: record.host(),
            port: record.facts.port,
            target: record.target(),
            version: version(request.version, record.facts.is_request_http2),
            fields: observed_fields(&request.fields, record.request_head()),
            head_bytes: record.request_head().len() as u64,
            body_bytes: record.request_body.body_bytes,
            body: self.request_body(),
        }
    }

    /// Returns the data for a HAR entry.
    pub fn observed(&self) -> Observed<'a> {
        let Facts {
            started,
            server,
            connection,
            attempts,
            error,
            client_closed_us,
            is_cut_short,
            is_generated,
            is_intercepted,
            grpc_status,
            ..
        } = *self.facts();
        let record = self.record();
        let Parsed { response, .. } = self.parsed;
        Observed {
            started_unix_us: started.as_micros(),
            request: self.observed_request(),
            response: response.map(|response| ObservedResponse {
                status: response.status,
                reason: response.reason.of(record.response_head()),
                version: version(response.version, record.facts.is_response_http2),
                fields: observed_fields(&response.fields, record.response_head()),
                head_bytes: record.response_head().len() as u64,
                body_bytes: record.response_body.body_bytes,
                body: self.response_body(),
            }),
            phases: self.phases(),
            server: server.map(|address| address.ip()),
            connection,
            notes: Notes {
                provider: record.provider(),
                flow: self.flow,
                remedies: record.remedies(),
                attempts,
                account: record.account(),
                request_id: record.request_id(),
                consumer: self.consumer().unwrap_or_default(),
                error: error.unwrap_or_default(),
                grpc_status: grpc_status.map_or("", GrpcStatus::name),
                client_closed_us,
                is_cut_short,
                is_generated,
                is_intercepted,
            },
        }
    }
}

fn whole<'a>(body: &Captured<'a>, codings: Option<&[u8]>, max: usize) -> Option<Cow<'a, [u8]>> {
    if body.is_wanted { whole_body(body, codings.unwrap_or_default(), max) } else { None }
}

/// Returns `text` in a form that may be exported. A text that is too long, is not plain or looks like a
/// secret is replaced by its pseudonym, or by nothing if there is no key.
pub(crate) fn exportable<'a>(text: &'a [u8], key: Option<&Key>) -> Cow<'a, str> {
    match std::str::from_utf8(text) {
        Ok(plain)
            if text.len() <= EXPORTABLE_BYTES_MAX
                && !plain.contains(char::is_control)
                && !detect::holds_secret(plain) =>
        {
            plain.into()
        }
        _ => key.map(|key| key.text(text).to_string()).unwrap_or_default().into(),
    }
}

/// Returns the value of `content-type`; empty if there is none.
pub fn content_type<'a>(fields: &[Field], bytes: &'a [u8]) -> &'a [u8] {
    field(fields, bytes, b"content-type").unwrap_or_default()
}

fn field<'a>(fields: &[Field], bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let field = fields.iter().find(|field| field.name.of(bytes).eq_ignore_ascii_case(name))?;
    Some(field.value.of(bytes))
}

fn captured(capture: &Capture, max: usize) -> Captured<'_> {
    let bytes = &capture.bytes[..capture.bytes.len().min(max)];
    Captured { bytes, is_whole: bytes.len() as u64 == capture.body_bytes, is_wanted: max > 0 }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
fn in_millis(us: u64) -> f64 {
    us as f64 / 1e3
}

fn version(version: Version, is_http2: bool) -> HttpVersion {
    match version {
        _ if is_http2 => HttpVersion::Http2,
        Version::Http10 => HttpVersion::Http10,
        Version::Http11 => HttpVersion::Http11,
    }
}

fn observed_fields<'a>(fields: &[Field], bytes: &'a [u8]) -> Vec<ObservedField<'a>> {
    let observed = |field: &Field| ObservedField { name: field.name.of(bytes), value: field.value.of(bytes) };
    fields.iter().map(observed).collect()
}
