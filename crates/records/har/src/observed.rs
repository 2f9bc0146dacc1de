//! A finished exchange as it is passed to a recorder: its heads as they were received, sizes, times, and the
//! kept part of its bodies. Nothing is interpreted, decoded or obfuscated yet.

use std::net::IpAddr;

/// A finished exchange.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Arrival of the request's first byte, in microseconds since 1970.
    pub started_unix_us: u64,
    /// The request.
    pub request: ObservedRequest<'a>,
    /// The response that the client received, if any.
    pub response: Option<ObservedResponse<'a>>,
    /// Durations of its phases.
    pub phases: Phases,
    /// Address of the server that responded.
    pub server: Option<IpAddr>,
    /// Id of the upstream connection, equal for all exchanges on it.
    pub connection: Option<u64>,
    /// Additional information that HAR does not define.
    pub notes: Notes<'a>,
}

/// A request.
#[derive(Debug, Clone)]
pub struct ObservedRequest<'a> {
    /// Method as received.
    pub method: &'a [u8],
    /// `true` if the URL's scheme is `https`.
    pub tls: bool,
    /// Host of the URL in lower case; IPv6 without brackets.
    pub host: &'a str,
    /// Port of the URL.
    pub port: u16,
    /// Path and query of the URL.
    pub target: &'a [u8],
    /// HTTP version as received.
    pub version: HttpVersion,
    /// Header fields.
    pub fields: Vec<ObservedField<'a>>,
    /// Size of the head, from the start line through the empty line.
    pub head_bytes: u64,
    /// Size of the body as received, without chunk framing.
    pub body_bytes: u64,
    /// The part of the body that was kept.
    pub body: Captured<'a>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct ObservedResponse<'a> {
    /// Status code.
    pub status: u16,
    /// Reason phrase, which may be empty.
    pub reason: &'a [u8],
    /// HTTP version as received.
    pub version: HttpVersion,
    /// Header fields.
    pub fields: Vec<ObservedField<'a>>,
    /// Size of the head, from the start line through the empty line.
    pub head_bytes: u64,
    /// Size of the body as received, without chunk framing.
    pub body_bytes: u64,
    /// The part of the body that was kept.
    pub body: Captured<'a>,
}

/// A header field, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedField<'a> {
    /// Field name.
    pub name: &'a [u8],
    /// Field value, without surrounding white space.
    pub value: &'a [u8],
}

/// HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2. Its messages are recorded in the form of HTTP/1.1.
    Http2,
}

/// The part of a body that was kept: its beginning as received, without chunk framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Captured<'a> {
    /// The kept bytes.
    pub bytes: &'a [u8],
    /// `true` if this is all that was sent of the body.
    pub is_whole: bool,
    /// `true` if a recording asked for the body.
    pub is_wanted: bool,
}

/// Durations of the phases of an exchange, in microseconds. They follow one another without a gap, so their
/// sum is the time that the client waited. A phase that did not happen is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases {
    /// Time spent waiting for a remedy, a quota or a free connection.
    pub blocked_us: Option<u64>,
    /// Time of the DNS lookup.
    pub dns_us: Option<u64>,
    /// Time to connect, without the TLS handshake.
    pub connect_us: Option<u64>,
    /// Time of the TLS handshake.
    pub tls_us: Option<u64>,
    /// Time to receive and send the request.
    pub send_us: u64,
    /// Time until the first byte of the response.
    pub wait_us: u64,
    /// Time from the first to the last byte of the response.
    pub receive_us: u64,
}

/// Additional information about an exchange, written to fields that begin with `_`, and to `comment`. Empty
/// values are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes<'a> {
    /// Name of the provider in the config.
    pub provider: &'a str,
    /// The flow that records the exchange.
    pub flow: &'a str,
    /// Decisions of its remedies, in the format of the field `x-egret-trace`.
    pub remedies: &'a str,
    /// Number of calls made to providers.
    pub attempts: u32,
    /// The account used.
    pub account: &'a str,
    /// Id of the request.
    pub request_id: &'a str,
    /// Consumer, as named by the client.
    pub consumer: &'a [u8],
    /// Slug of the error that the gateway responded with.
    pub error: &'a str,
    /// Name of the status of a gRPC call.
    pub grpc_status: &'a str,
    /// Time from the first byte of the request until the client closed the connection, if it did.
    pub client_closed_us: Option<u64>,
    /// `true` if the response ended before it was complete.
    pub is_cut_short: bool,
    /// `true` if the response was produced without calling a provider.
    pub is_generated: bool,
    /// `true` if the request came out of a tunnel that the gateway intercepted.
    pub is_intercepted: bool,
}
