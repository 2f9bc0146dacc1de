//! An exchange as whoever has seen it hands it over to be recorded: its heads as they were received, sizes, times, and what was kept of
//! its bodies. Nothing of it has been interpreted, decoded or obfuscated yet.

use std::net::IpAddr;

/// An exchange that is over.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// When the first byte of the request was here, in microseconds since 1970.
    pub started_unix_us: u64,
    /// The request.
    pub request: ObservedRequest<'a>,
    /// The response that the client got; none where it got none.
    pub response: Option<ObservedResponse<'a>>,
    /// How long its phases took.
    pub phases: Phases,
    /// The address of the server that answered.
    pub server: Option<IpAddr>,
    /// Of the connection to it: equal for exchanges on one connection.
    pub connection: Option<u64>,
    /// What is told of it beyond HAR.
    pub notes: Notes<'a>,
}

/// A request.
#[derive(Debug, Clone)]
pub struct ObservedRequest<'a> {
    /// As received.
    pub method: &'a [u8],
    /// Whether its URL is `https`.
    pub tls: bool,
    /// Of its URL, in lower case; IPv6 without brackets.
    pub host: &'a str,
    /// Of its URL.
    pub port: u16,
    /// Path and query of its URL.
    pub target: &'a [u8],
    /// As received.
    pub version: HttpVersion,
    /// Its header fields.
    pub fields: Vec<ObservedField<'a>>,
    /// Bytes of its head, from the start line through the empty line.
    pub head_bytes: u64,
    /// Bytes of its body as received, without the framing of chunks.
    pub body_bytes: u64,
    /// What was kept of its body.
    pub body: Captured<'a>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct ObservedResponse<'a> {
    /// Its status.
    pub status: u16,
    /// Its reason phrase, which may be empty.
    pub reason: &'a [u8],
    /// As received.
    pub version: HttpVersion,
    /// Its header fields.
    pub fields: Vec<ObservedField<'a>>,
    /// Bytes of its head, from the start line through the empty line.
    pub head_bytes: u64,
    /// Bytes of its body as received, without the framing of chunks.
    pub body_bytes: u64,
    /// What was kept of its body.
    pub body: Captured<'a>,
}

/// A header field, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedField<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value, without white space around it.
    pub value: &'a [u8],
}

/// The version of HTTP of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// What was kept of a body: its beginning, as received, without the framing of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Captured<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether they are all that was sent of it.
    pub is_whole: bool,
    /// Whether anybody wanted any of it.
    pub is_wanted: bool,
}

/// How long the phases of an exchange took, in microseconds. They follow one another without a gap, so that their sum is how long the
/// client waited; what did not happen is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases {
    /// Waiting for a remedy, a quota, a free connection.
    pub blocked_us: Option<u64>,
    /// Resolving the host's name.
    pub dns_us: Option<u64>,
    /// Connecting, the handshake of TLS not included.
    pub connect_us: Option<u64>,
    /// The handshake of TLS.
    pub tls_us: Option<u64>,
    /// Receiving the request and sending it.
    pub send_us: u64,
    /// Until the first byte of the response.
    pub wait_us: u64,
    /// Until its last byte.
    pub receive_us: u64,
}

/// What is told of an exchange beyond HAR, in fields that begin with `_`. Left out where it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes<'a> {
    /// The provider's name in the config.
    pub provider: &'a str,
    /// The flow by which it is recorded.
    pub flow: &'a str,
    /// What its remedies have decided, as in the field `x-egret-trace`.
    pub remedies: &'a str,
    /// Calls made to providers.
    pub attempts: u32,
    /// The account that it was made with.
    pub account: &'a str,
    /// Who made it, as far as the client says.
    pub consumer: &'a [u8],
    /// The slug of the error that the gateway answered with.
    pub error: &'a str,
    /// Whether the response ended before it was complete.
    pub is_cut_short: bool,
    /// Whether no provider was asked for this response.
    pub is_generated: bool,
}
