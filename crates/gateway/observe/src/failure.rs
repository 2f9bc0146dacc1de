//! Errors that end an exchange, and the responses that the gateway generates for them.

mod body;
pub mod config;

use std::borrow::Cow;
use std::fmt::Display;

use egret_clock::{Timestamp, http_date};
use egret_config::Problem;
use egret_http1::{BodyError, HeadError, reason};
pub use egret_message::ErrorKind;
use egret_message::grpc::{self, GrpcStatus};
use egret_message::{CallFailure, Fields, Fixed, Refused, RequestId};

use crate::failure::body::{BodyForm, ErrorBody, ToldError};
use crate::failure::config::{ErrorFormat, ErrorResponseConfig, ErrorsConfig};

/// Configuration of error responses.
#[derive(Debug, Default)]
pub struct ErrorResponses {
    format: ErrorFormat,
    /// Overrides of the table, indexed by the number of the kind. Empty if there are none.
    changed: Box<[ErrorResponseConfig]>,
}

impl ErrorResponses {
    /// Compiles the config, and adds its mistakes to `problems`.
    pub fn compile(config: &ErrorsConfig, problems: &mut Vec<Problem>) -> Self {
        let count = if config.answers.is_empty() { 0 } else { ErrorKind::ALL.len() };
        let mut changed = vec![ErrorResponseConfig::default(); count];
        for (slug, response) in &config.answers {
            let path = format!("gateway.errors.answers.{slug}");
            if let Some(number) = ErrorKind::ALL.iter().position(|kind| kind.slug() == slug) {
                changed[number] = response.clone();
            } else {
                let slugs = ErrorKind::ALL.iter().map(|kind| kind.slug());
                problems.push(Problem::new(&*path, "unknown error name").suggest(slug, slugs));
            }
            if response.status.is_some_and(|status| !(400..=599).contains(&status)) {
                problems.push(Problem::new(
                    format!("{path}.status"),
                    "the status code of an error must be from 400 to 599",
                ));
            }
        }
        Self { format: config.format, changed: changed.into() }
    }

    /// Returns the shape of the response to a request with these `fields`, to a provider for which the config
    /// has `format`. `with_body` is false for HEAD.
    pub fn shape(&self, format: Option<ErrorFormat>, fields: Fields<'_>, with_body: bool) -> ErrorShape {
        ErrorShape { form: BodyForm::of(format.unwrap_or(self.format), fields), with_body }
    }

    /// Returns the shape of the response to a request of which nothing is known.
    pub fn general_shape(&self) -> ErrorShape {
        self.shape(None, Fields::received(&[], b""), true)
    }

    fn changed(&self, kind: ErrorKind) -> Option<&ErrorResponseConfig> {
        self.changed.get(kind as usize)
    }
}

/// The shape of an error response.
#[derive(Debug, Clone, Copy)]
pub struct ErrorShape {
    form: BodyForm,
    with_body: bool,
}

impl ErrorShape {
    /// The shape of the same error for the client of a gRPC call: a head that is the trailers at the same
    /// time (Trailers-Only), with HTTP's 200, because a gRPC client reads `grpc-status` alone.
    #[must_use]
    pub fn in_grpc(self) -> Self {
        Self { form: BodyForm::Grpc, with_body: false }
    }
}

/// An error with a detail for people about this one occurrence.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The cause, and what to do about it. Never holds bytes from a peer, except a host name that passed the
    /// strict parser.
    pub detail: Cow<'static, str>,
    /// Overrides that a remedy requests.
    more: Option<Box<More>>,
}

/// Overrides of the table that a remedy requests.
#[derive(Debug, Clone)]
struct More {
    status: Option<u16>,
    retry_after_s: Option<u64>,
    fields: Vec<(Cow<'static, str>, Vec<u8>)>,
}

impl Failure {
    /// Creates an error that `detail` explains.
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), more: None }
    }

    /// Creates the error for a remedy's refusal at `now`.
    pub fn refused(refused: Refused, now: Timestamp) -> Self {
        let Refused { reason, status, detail, retry_at, fields } = refused;
        // At least 1 second: a shorter delay would be over before the client could use it.
        let retry_after_s = retry_at.map(|at| at.since(now).as_millis().div_ceil(1_000).max(1));
        let retry_after_s = retry_after_s.map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
        Self { kind: reason, detail, more: Some(Box::new(More { status, retry_after_s, fields })) }
    }

    /// Converts the error for remedies. `sent` is true if the provider may have received part of the call.
    pub fn of_call(&self, sent: bool) -> CallFailure {
        CallFailure { kind: self.kind.failure(), slug: self.kind.slug(), sent }
    }

    /// Adds `fields` to the response.
    #[must_use]
    pub fn with_fields<'f>(mut self, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Self {
        let text = |name: &[u8]| Some(Cow::from(std::str::from_utf8(name).ok()?.to_owned()));
        let fields: Vec<_> = fields.filter_map(|(name, value)| Some((text(name)?, value.to_vec()))).collect();
        if !fields.is_empty() {
            let more = self.more.get_or_insert_with(|| {
                Box::new(More { status: None, retry_after_s: None, fields: Vec::new() })
            });
            more.fields.extend(fields);
        }
        self
    }

    /// Returns the status code of the error.
    pub fn status(&self, responses: &ErrorResponses) -> u16 {
        let wanted = self.more.as_ref().and_then(|more| more.status);
        let changed = responses.changed(self.kind).and_then(|response| response.status);
        wanted.or(changed).unwrap_or(self.kind.status())
    }

    /// Returns the status code of its response in that `shape`.
    pub fn status_in(&self, responses: &ErrorResponses, shape: ErrorShape) -> u16 {
        if shape.form == BodyForm::Grpc { 200 } else { self.status(responses) }
    }

    /// Creates the error for a request head that breaks a rule.
    pub fn bad_request(error: HeadError) -> Self {
        let kind = match error.status() {
            414 => ErrorKind::UriTooLong,
            431 => ErrorKind::HeadTooLarge,
            501 => ErrorKind::NotImplemented,
            505 => ErrorKind::VersionNotSupported,
            _ => ErrorKind::BadRequest,
        };
        Self::new(kind, error.to_string())
    }

    /// Creates the error for a request body that breaks a rule.
    pub fn bad_request_body(error: BodyError) -> Self {
        Self::new(ErrorKind::BadRequest, error.to_string())
    }

    /// Creates the error for a request whose body a flow needs, but the memory for gathered bodies is used
    /// up.
    pub fn bodies_full() -> Self {
        let detail = "the memory for buffered bodies is used up (`gateway.limits.gathered`)";
        Self::new(ErrorKind::BodiesFull, detail)
    }

    /// Creates the error for a response with an invalid head, or with a body found invalid before any of it
    /// was forwarded.
    pub fn bad_response(error: impl Display) -> Self {
        Self::new(ErrorKind::BadResponse, format!("the provider's response cannot be forwarded: {error}"))
    }

    /// Returns the whole response in wire format. The connection is closed after it unless `persistent`. The
    /// response carries the request's id if there is one.
    pub fn response(
        &self,
        responses: &ErrorResponses,
        shape: ErrorShape,
        persistent: bool,
        request_id: &RequestId,
    ) -> Vec<u8> {
        let mut message = self.head(responses, shape, request_id);
        message.head.extend_from_slice(request_id.response_line());
        field(&mut message.head, "Connection", if persistent { b"keep-alive" } else { b"close" });
        message.finish(shape.with_body)
    }

    /// Returns the whole response without the fields that depend on the connection and the request, which
    /// are added when it is sent. The body names the request's id if there is one.
    pub fn message(&self, responses: &ErrorResponses, shape: ErrorShape, request_id: &RequestId) -> Vec<u8> {
        self.head(responses, shape, request_id).finish(shape.with_body)
    }

    fn head(&self, responses: &ErrorResponses, shape: ErrorShape, request_id: &RequestId) -> ResponseDraft {
        let (kind, status) = (self.kind, self.status(responses));
        let changed = responses.changed(self.kind).and_then(|response| response.detail.as_deref());
        let detail = changed.unwrap_or(&self.detail);
        let told = ToldError { slug: kind.slug(), status, detail, request_id: request_id.text() };
        let ErrorBody { media_type, content: body, fields } = told.body(shape.form);
        let mut head = Vec::with_capacity(512 + body.len());
        start(&mut head, self.status_in(responses, shape));
        field(&mut head, "Content-Type", media_type.as_bytes());
        field(&mut head, "Cache-Control", b"no-store");
        field(&mut head, "x-egret-error", kind.slug().as_bytes());
        field(&mut head, "Proxy-Status", format!("egret; error={}", kind.proxy_error()).as_bytes());
        let asked = self.more.as_ref().and_then(|more| more.retry_after_s);
        if let Some(seconds) = asked.or(matches!(status, 429 | 503).then_some(1)) {
            field(&mut head, "Retry-After", seconds.to_string().as_bytes());
        }
        if status == 405 {
            field(&mut head, "Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        }
        for (name, value) in fields {
            field(&mut head, name, value.as_bytes());
        }
        for (name, value) in self.more.iter().flat_map(|more| &more.fields) {
            field(&mut head, name, value);
        }
        field(&mut head, "Content-Length", body.len().to_string().as_bytes());
        ResponseDraft { head, body }
    }
}

/// A response in the making.
struct ResponseDraft {
    /// The head without the empty line at its end.
    head: Vec<u8>,
    body: Vec<u8>,
}

impl ResponseDraft {
    fn finish(mut self, with_body: bool) -> Vec<u8> {
        finish(&mut self.head, &self.body, with_body);
        self.head
    }
}

/// Returns a response that a flow's config spells out, without a `Connection` field.
pub fn fixed(fixed: &Fixed, with_body: bool) -> Vec<u8> {
    let mut message = Vec::with_capacity(512 + fixed.body.len());
    start(&mut message, fixed.status);
    for (name, value) in &fixed.fields {
        field(&mut message, name, value);
    }
    // These never have a body or a `Content-Length` (RFC 9110 §8.6).
    let bodiless = matches!(fixed.status, 204 | 304);
    if !bodiless {
        field(&mut message, "Content-Length", fixed.body.len().to_string().as_bytes());
    }
    finish(&mut message, &fixed.body, with_body && !bodiless);
    message
}

/// Returns the response that a flow's config spells out for the client of a gRPC call. An error without a
/// `grpc-status` becomes one in the form of gRPC (Trailers-Only), because the client would not read it.
pub fn fixed_in_grpc(response: &Fixed) -> Vec<u8> {
    let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
    let has_status = response.fields.iter().any(|(name, _)| is(name, grpc::STATUS));
    if response.status < 400 || has_status {
        return fixed(response, true);
    }
    let status = response.status;
    let own = [
        (grpc::STATUS, GrpcStatus::of_http(status).code().to_string()),
        (grpc::MESSAGE, format!("a flow responds with {status} {}", reason(status))),
        ("Content-Type", grpc::MEDIA_TYPE.to_owned()),
    ];
    let mut message = Vec::with_capacity(512);
    start(&mut message, 200);
    for (name, value) in &own {
        field(&mut message, name, value.as_bytes());
    }
    let left = |name: &str| !is(name, grpc::MESSAGE) && !is(name, "content-type");
    for (name, value) in response.fields.iter().filter(|(name, _)| left(name)) {
        field(&mut message, name, value);
    }
    field(&mut message, "Content-Length", b"0");
    finish(&mut message, b"", false);
    message
}

fn start(message: &mut Vec<u8>, status: u16) {
    message.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason(status)).as_bytes());
    field(message, "Date", http_date::now().as_bytes());
    field(message, "x-egret-generated", b"true");
}

fn field(message: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        message.extend_from_slice(part);
    }
}

/// Appends the end of the head, and the body.
fn finish(message: &mut Vec<u8>, body: &[u8], with_body: bool) {
    message.extend_from_slice(b"\r\n");
    if with_body {
        message.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_says_who_made_it_and_why() {
        let failure = Failure::new(ErrorKind::PoolFull, "all 8 connections to \"slow\" are in use");
        let mut id = RequestId::default();
        id.set(b"req-1");
        let responses = ErrorResponses::default();
        let response = failure.response(&responses, responses.general_shape(), true, &id);
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        for line in [
            "HTTP/1.1 503 Service Unavailable",
            "x-egret-generated: true",
            "x-egret-error: pool-full",
            "Proxy-Status: egret; error=connection_limit_reached",
            "Retry-After: 1",
            "Connection: keep-alive",
        ] {
            assert!(head.lines().any(|found| found == line), "{line} is missing in {head}");
        }
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"], 503);
        assert_eq!(problem["detail"], "all 8 connections to \"slow\" are in use");
    }

    #[test]
    fn a_response_to_head_has_no_body_and_the_same_length_field() {
        let failure = Failure::new(ErrorKind::DnsFailed, "no such host");
        let responses = ErrorResponses::default();
        let shape = responses.general_shape();
        let bare = ErrorShape { with_body: false, ..shape };
        let (with, without) = (
            failure.response(&responses, shape, false, &RequestId::default()),
            failure.response(&responses, bare, false, &RequestId::default()),
        );
        assert!(with.starts_with(&without[..40]));
        assert!(without.ends_with(b"Connection: close\r\n\r\n"));
    }

    #[test]
    fn an_error_of_a_grpc_call_is_trailers_only() {
        let responses = ErrorResponses::default();
        let shape = responses.general_shape().in_grpc();
        for (kind, code) in [
            (ErrorKind::PoolFull, 14),
            (ErrorKind::QuotaExceeded, 14),
            (ErrorKind::ConnectFailed, 14),
            (ErrorKind::TotalTimeout, 4),
            (ErrorKind::ClientUnproven, 16),
            (ErrorKind::EgressDenied, 7),
            (ErrorKind::UnknownProvider, 12),
        ] {
            let failure = Failure::new(kind, "50 % is too much");
            assert_eq!(failure.status_in(&responses, shape), 200);
            let response = failure.response(&responses, shape, true, &RequestId::default());
            let response = String::from_utf8(response).unwrap();
            for line in [
                "HTTP/1.1 200 OK",
                "Content-Type: application/grpc",
                &format!("x-egret-error: {}", kind.slug()),
                &format!("grpc-status: {code}"),
                "grpc-message: 50 %25 is too much",
                "Content-Length: 0",
            ] {
                assert!(response.lines().any(|found| found == line), "{line} is missing in {response}");
            }
            assert!(response.ends_with("\r\n\r\n"), "{response}");
        }
    }

    #[test]
    fn a_fixed_response_becomes_an_error_of_grpc() {
        let response = |status, fields: &[(&'static str, &str)]| {
            let fields = fields.iter().map(|(name, value)| (Cow::from(*name), value.as_bytes().to_vec()));
            let fixed = Fixed { status, fields: fields.collect(), body: b"no".to_vec() };
            String::from_utf8(fixed_in_grpc(&fixed)).unwrap()
        };
        let translated = response(503, &[("Content-Type", "text/plain"), ("x-why", "night")]);
        assert!(translated.starts_with("HTTP/1.1 200 OK\r\n"), "{translated}");
        assert!(translated.contains("\r\ngrpc-status: 14\r\n"), "{translated}");
        assert!(translated.contains("\r\nx-why: night\r\n"), "{translated}");
        assert!(translated.ends_with("\r\nContent-Length: 0\r\n\r\n"), "{translated}");
        assert!(!translated.contains("text/plain"), "{translated}");
        let own = response(400, &[("grpc-status", "3")]);
        assert!(own.starts_with("HTTP/1.1 400 ") && own.ends_with("\r\n\r\nno"), "{own}");
        assert!(response(200, &[]).ends_with("\r\n\r\nno"));
    }

    #[test]
    fn a_response_looks_as_the_config_has_it() {
        let config: ErrorsConfig = serde_json::from_value(serde_json::json!({
            "format": "text",
            "answers": { "dns-failed": { "status": 400 }, "pool-full": { "detail": "try again" } },
        }))
        .unwrap();
        let mut problems = Vec::new();
        let responses = ErrorResponses::compile(&config, &mut problems);
        assert_eq!(problems, []);
        for (kind, status, body) in [
            (ErrorKind::DnsFailed, 400, "400: so it is"),
            (ErrorKind::PoolFull, 503, "503: try again"),
            (ErrorKind::ConnectFailed, 502, "502: so it is"),
        ] {
            let failure = Failure::new(kind, "so it is");
            assert_eq!(failure.status(&responses), status);
            let response =
                failure.response(&responses, responses.general_shape(), true, &RequestId::default());
            let response = String::from_utf8(response).unwrap();
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
            assert!(response.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{response}");
            assert!(response.contains(&format!("\r\nx-egret-error: {}\r\n", kind.slug())), "{response}");
            assert!(response.ends_with(&format!("\r\n\r\n{body}")), "{response}");
        }
    }

    #[test]
    fn errors_that_there_are_not_cannot_be_answered_otherwise() {
        let response = ErrorResponseConfig { status: Some(200), detail: None };
        let responses =
            [("dns-faild".to_owned(), ErrorResponseConfig::default()), ("pool-full".to_owned(), response)];
        let config = ErrorsConfig { answers: responses.into(), ..ErrorsConfig::default() };
        let mut problems = Vec::new();
        ErrorResponses::compile(&config, &mut problems);
        let told: Vec<_> =
            problems.iter().map(|problem| (&*problem.path, problem.suggestion.as_deref())).collect();
        let expected = [
            ("gateway.errors.answers.dns-faild", Some("dns-failed")),
            ("gateway.errors.answers.pool-full.status", None),
        ];
        assert_eq!(told, expected);
    }
}
