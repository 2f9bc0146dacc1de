//! Heads that the gateway itself has written in place of the received ones.

use egret_http1::{HeadLimits, Progress, RequestHead};
use egret_observe::failure::{ErrorKind, Failure};

/// The part of a head that the gateway has added, and that the limits for clients do not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    pub bytes: usize,
    pub fields: usize,
}

/// Parses the whole of `head`. Fails with the `detail` if it is not one head.
pub(crate) fn parse(
    head: &[u8],
    limits: &HeadLimits,
    added: Added,
    detail: &'static str,
) -> Result<RequestHead, Failure> {
    let limits =
        HeadLimits { head: limits.head + added.bytes, fields: limits.fields + added.fields, ..*limits };
    let mut request = RequestHead::new();
    match request.parse(head, &limits).map_err(Failure::bad_request)? {
        Progress::Complete if request.len == head.len() => Ok(request),
        _ => Err(Failure::new(ErrorKind::BadRequest, detail)),
    }
}
