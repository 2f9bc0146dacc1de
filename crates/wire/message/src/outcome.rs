//! The destination of a call and its outcome, as flows see them.

use egret_http1::ResponseHead;

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// Name of the provider in the config; `-` for a host that the config does not name.
    pub provider: &'a str,
    /// `true` if the request is sent over TLS.
    pub tls: bool,
    /// Host, in lower case, without a port.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Path of the provider's URL, put before the request's own path. It is empty, or begins with a slash and
    /// does not end with one.
    pub base: &'a [u8],
    /// `true` if an empty request path is sent as `base` alone, without a trailing slash.
    pub has_bare_base: bool,
    /// Host (in lower case) and port sent to the provider, if the client chose others than the provider's
    /// own.
    pub kept_host: Option<(&'a str, u16)>,
    /// `true` if credentials may be sent. It is `false` for a host that the client chose and the config does
    /// not name.
    pub takes_credentials: bool,
}

impl Destination<'_> {
    /// Placeholder for a request without an upstream.
    pub const NO_UPSTREAM: Self = Self {
        provider: "-",
        tls: false,
        host: "",
        port: 0,
        base: b"",
        has_bare_base: false,
        kept_host: None,
        takes_credentials: true,
    };
}

/// A message as received: its head, and the bytes that the head's offsets refer to.
#[derive(Debug)]
pub struct ReceivedMessage<'a, Head> {
    /// The head.
    pub head: &'a Head,
    /// The bytes that the head was parsed from.
    pub bytes: &'a [u8],
    /// The whole body without transfer framing, if it is present and a flow asks for it.
    pub body: Option<&'a [u8]>,
}

/// The outcome of the last call to a provider.
#[derive(Debug, Clone, Copy, Default)]
pub enum Outcome<'a> {
    /// No call has been made yet.
    #[default]
    None,
    /// A final response, from the provider or from an inner remedy.
    Response(&'a ReceivedMessage<'a, ResponseHead>),
    /// No response.
    Failure(CallFailure),
}

/// The reason that a call brought no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFailure {
    /// Kind of failure.
    pub kind: FailureKind,
    /// Name of the error, as in `x-egret-error`.
    pub slug: &'static str,
    /// `true` if the provider may have seen any of the request.
    pub sent: bool,
}

/// Kinds of failures that remedies distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection: the name does not resolve, the port is closed, or TLS fails.
    Connect,
    /// A time limit was exceeded.
    Timeout,
    /// The connection ended before a response arrived.
    Reset,
    /// The provider sent something that is not a valid response.
    BadResponse,
    /// The gateway refused the call: egress policy or a full pool. Retrying does not help.
    Refused,
}
