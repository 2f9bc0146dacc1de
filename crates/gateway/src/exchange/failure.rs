//! What can go wrong with an exchange, and the answer that the gateway makes of it.

use std::borrow::Cow;
use std::fmt::Write as _;

use egret_http1::{BodyError, HeadError};

/// The ways in which the gateway itself ends an exchange. The slug is what `x-egret-error` carries and counters are named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    BadRequest,
    UriTooLong,
    HeadTooLarge,
    NotImplemented,
    VersionNotSupported,
    RequestTimeout,
    UnknownProvider,
    ConnectNotAllowed,
    NoForwardsLeft,
    LoopDetected,
    EgressDenied,
    DnsFailed,
    DnsTimeout,
    ConnectFailed,
    ConnectTimeout,
    TlsFailed,
    TlsTimeout,
    BadResponse,
    ProviderClosed,
    FirstByteTimeout,
    IdleTimeout,
    TotalTimeout,
    PoolFull,
    TooManyConnections,
}

/// One line of the table of answers.
struct Row {
    slug: &'static str,
    status: u16,
    /// Reason phrase and problem title.
    title: &'static str,
    /// Error type of RFC 9209 §2.3.
    proxy_error: &'static str,
}

impl ErrorKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 24] = [
        Self::BadRequest,
        Self::UriTooLong,
        Self::HeadTooLarge,
        Self::NotImplemented,
        Self::VersionNotSupported,
        Self::RequestTimeout,
        Self::UnknownProvider,
        Self::ConnectNotAllowed,
        Self::NoForwardsLeft,
        Self::LoopDetected,
        Self::EgressDenied,
        Self::DnsFailed,
        Self::DnsTimeout,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::TlsFailed,
        Self::TlsTimeout,
        Self::BadResponse,
        Self::ProviderClosed,
        Self::FirstByteTimeout,
        Self::IdleTimeout,
        Self::TotalTimeout,
        Self::PoolFull,
        Self::TooManyConnections,
    ];

    const fn row(self) -> Row {
        const fn row(slug: &'static str, status: u16, title: &'static str, proxy_error: &'static str) -> Row {
            Row { slug, status, title, proxy_error }
        }
        match self {
            Self::BadRequest => row("bad-request", 400, "Bad Request", "http_request_error"),
            Self::UriTooLong => row("uri-too-long", 414, "URI Too Long", "http_request_error"),
            Self::HeadTooLarge => {
                row("head-too-large", 431, "Request Header Fields Too Large", "http_request_error")
            }
            Self::NotImplemented => row("not-implemented", 501, "Not Implemented", "http_request_error"),
            Self::VersionNotSupported => {
                row("version-not-supported", 505, "HTTP Version Not Supported", "http_request_error")
            }
            Self::RequestTimeout => row("request-timeout", 408, "Request Timeout", "http_request_error"),
            Self::UnknownProvider => row("unknown-provider", 404, "Not Found", "destination_not_found"),
            Self::ConnectNotAllowed => {
                row("connect-not-allowed", 405, "Method Not Allowed", "http_request_denied")
            }
            Self::NoForwardsLeft => row("no-forwards-left", 405, "Method Not Allowed", "http_request_denied"),
            Self::LoopDetected => row("loop-detected", 508, "Loop Detected", "proxy_loop_detected"),
            Self::EgressDenied => row("egress-denied", 403, "Forbidden", "destination_ip_prohibited"),
            Self::DnsFailed => row("dns-failed", 502, "Bad Gateway", "dns_error"),
            Self::DnsTimeout => row("dns-timeout", 504, "Gateway Timeout", "dns_timeout"),
            Self::ConnectFailed => row("connect-failed", 502, "Bad Gateway", "connection_refused"),
            Self::ConnectTimeout => row("connect-timeout", 504, "Gateway Timeout", "connection_timeout"),
            Self::TlsFailed => row("tls-failed", 502, "Bad Gateway", "tls_protocol_error"),
            Self::TlsTimeout => row("tls-timeout", 504, "Gateway Timeout", "connection_timeout"),
            Self::BadResponse => row("bad-response", 502, "Bad Gateway", "http_protocol_error"),
            Self::ProviderClosed => row("provider-closed", 502, "Bad Gateway", "connection_terminated"),
            Self::FirstByteTimeout => {
                row("first-byte-timeout", 504, "Gateway Timeout", "http_response_timeout")
            }
            Self::IdleTimeout => row("idle-timeout", 504, "Gateway Timeout", "connection_write_timeout"),
            Self::TotalTimeout => row("total-timeout", 504, "Gateway Timeout", "http_response_timeout"),
            Self::PoolFull => row("pool-full", 503, "Service Unavailable", "connection_limit_reached"),
            Self::TooManyConnections => {
                row("too-many-connections", 503, "Service Unavailable", "connection_limit_reached")
            }
        }
    }

    /// The short name of the error.
    pub const fn slug(self) -> &'static str {
        self.row().slug
    }

    /// The status of the answer.
    pub const fn status(self) -> u16 {
        self.row().status
    }
}

/// An error together with what a person should know of this one.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// Which.
    pub kind: ErrorKind,
    /// What happened and what to do; never holds bytes of a peer other than a host name that passed the strict parser.
    pub detail: Cow<'static, str>,
}

impl Failure {
    /// An error that is explained by `detail`.
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// A request head that breaks a rule.
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

    /// A request body that breaks a rule.
    pub fn bad_request_body(error: BodyError) -> Self {
        Self::new(ErrorKind::BadRequest, error.to_string())
    }

    /// A response head that breaks a rule.
    pub fn bad_response(error: HeadError) -> Self {
        Self::new(ErrorKind::BadResponse, format!("the provider's answer cannot be passed on: {error}"))
    }

    /// The whole answer on the wire. `with_body` is false for HEAD; the connection is closed after it unless `persistent`.
    pub fn answer(&self, with_body: bool, persistent: bool) -> Vec<u8> {
        let row = self.kind.row();
        let body = serde_json::json!({
            "type": "about:blank",
            "title": row.title,
            "status": row.status,
            "detail": self.detail,
            "error": row.slug,
        })
        .to_string();
        let mut text = String::with_capacity(512);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nDate: {}\r\nCache-Control: no-store\r\n\
             x-egret-generated: true\r\nx-egret-error: {}\r\nProxy-Status: egret; error={}\r\n",
            row.status,
            row.title,
            body.len(),
            crate::exchange::date::now(),
            row.slug,
            row.proxy_error,
        );
        if row.status == 503 {
            text.push_str("Retry-After: 1\r\n");
        }
        if row.status == 405 {
            text.push_str("Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
        }
        text.push_str(if persistent {
            "Connection: keep-alive\r\n\r\n"
        } else {
            "Connection: close\r\n\r\n"
        });
        if with_body {
            text.push_str(&body);
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers_and_no_slug_stands_twice() {
        for (number, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(ErrorKind::ALL.iter().filter(|other| other.slug() == kind.slug()).count(), 1);
        }
    }

    #[test]
    fn the_page_of_errors_has_a_row_for_each() {
        let page = include_str!("../../../../docs/errors.md");
        for kind in ErrorKind::ALL {
            let row = format!("| `{}` | {} | `{}` |", kind.slug(), kind.status(), kind.row().proxy_error);
            assert!(page.contains(&row), "docs/errors.md has no row that starts with {row}");
        }
    }

    #[test]
    fn an_answer_says_who_made_it_and_why() {
        let failure = Failure::new(ErrorKind::PoolFull, "all 8 connections to \"slow\" are in use");
        let answer = String::from_utf8(failure.answer(true, true)).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
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
    fn an_answer_to_head_has_no_body_and_the_same_length_field() {
        let failure = Failure::new(ErrorKind::DnsFailed, "no such host");
        let (with, without) = (failure.answer(true, false), failure.answer(false, false));
        assert!(with.starts_with(&without[..40]));
        assert!(without.ends_with(b"Connection: close\r\n\r\n"));
    }
}
