//! A request as flows see it.

use super::Fields;
use crate::grpc::{GrpcMethod, is_grpc_message};

/// A request to a provider, with the remedies' changes so far.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Name of the provider in the config; `-` for a host that the config does not name.
    pub provider: &'a str,
    /// `true` if the request is sent over TLS.
    pub tls: bool,
    /// Target host, in lower case, without a port.
    pub host: &'a str,
    /// Target port.
    pub port: u16,
    /// Method as sent.
    pub method: &'a [u8],
    /// Path as sent, relative to the provider's URL. It starts with a slash, except for `*`.
    pub path: &'a [u8],
    /// Query, without the question mark, if there is one.
    pub query: Option<&'a [u8]>,
    /// Header fields.
    pub fields: Fields<'a>,
    /// `true` if the request asks to switch protocols (RFC 9110 §7.8).
    pub upgrade: bool,
    /// The whole body, if a flow asks for it and it is within the size limit.
    pub body: Option<&'a [u8]>,
}

/// Returns the name that the client gives itself: the value of `x-egret-consumer`, or of
/// `x-lunar-consumer-tag`.
pub fn consumer(fields: Fields<'_>) -> Option<&[u8]> {
    fields.get(b"x-egret-consumer").or_else(|| fields.get(b"x-lunar-consumer-tag"))
}

impl<'a> Request<'a> {
    /// Returns the name of the calling application, see [`consumer`]. It is looked for in all fields.
    pub fn consumer(&self) -> Option<&'a [u8]> {
        consumer(self.fields)
    }

    /// Returns the method of the gRPC call that the request is. `None` if it is none.
    pub fn grpc(&self) -> Option<GrpcMethod<'a>> {
        if is_grpc_message(self.fields) { GrpcMethod::of_path(self.path) } else { None }
    }

    /// Returns the query parameters as sent: names with their values, which are empty if there is no equals
    /// sign.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let pairs =
            self.query.unwrap_or_default().split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        })
    }
}
