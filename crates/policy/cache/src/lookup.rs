//! The first decision about a request, before any stored response is considered.

use egret_http1::Method;

use super::directives::RequestDirectives;
use super::fwd::FwdReason;
use super::key::{CacheKey, Partition};

/// A request, reduced to what the cache needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRequest {
    /// The key for its response.
    pub key: CacheKey,
    /// The cache partition that may serve it.
    pub partition: Partition,
    /// The cache directives of the client.
    pub wants: RequestDirectives,
    /// The method.
    pub method: Method,
    pub(super) has_authorization: bool,
}

/// The first decision about a request, before any stored response is considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Look up the responses stored under its key.
    Look(CacheRequest),
    /// Forward it to the provider, and do not store the response.
    Forward(FwdReason),
    /// Respond with 504: the client accepts only a stored response, and there cannot be one.
    OnlyIfCached,
}
