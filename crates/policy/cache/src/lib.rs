//! Decisions of the cache (RFC 9111): which responses are stored, for which clients and for how long, and
//! which requests they satisfy.
//!
//! The crate performs no I/O, does not wait, and knows no remedy and no connection. [`Policy::look_up`] turns
//! a request into a [`CacheRequest`] with a key. The caller passes the responses stored under that key to
//! [`Policy::decide`], and follows the decision. After the provider's response, [`Policy::receive`] decides
//! about it and about the stored responses, and [`Policy::invalidated`] lists what a change invalidates.
//!
//! Decisions never depend on the order in which responses were stored: the same request, candidates and time
//! give the same decision.

mod conditional;
mod config;
mod counts;
mod decision;
mod directives;
mod disk;
mod freshness;
mod fwd;
mod invalidate;
mod key;
mod lookup;
mod not_stored;
mod policy;
mod range;
mod reply;
mod served;
mod status;
mod stored;
mod storing;
mod structured;
mod update;
mod vary;

pub use conditional::Validators;
pub use config::{
    CacheConfig, CollapseConfig, DiskConfig, KeyConfig, QueryKey, SetCookie, Statuses, StatusesError,
    problems,
};
pub use counts::{AGE_BOUNDS_S, CacheCounts, CacheEvent, CacheSnapshot};
pub use decision::{Action, Candidate, Decision, Validation, Verdict};
pub use directives::{Extent, RequestDirectives, ResponseDirectives};
pub use disk::{CacheDisk, DiskLocation, SECRET_BYTES, fingerprint};
pub use freshness::{Freshness, ProviderFailure};
pub use fwd::FwdReason;
pub use invalidate::group_of;
pub use key::{
    CacheKey, KeyContext, KeySecret, Partition, is_credential_field, is_credential_parameter, label_of,
};
pub use lookup::{CacheRequest, Lookup};
pub use not_stored::NotStored;
pub use policy::{Policy, TimedResponse};
pub use range::ByteRange;
pub use reply::{Form, Piece, Reply};
pub use served::Served;
pub use status::CacheStatus;
pub use stored::{CallTimes, FieldLines, Stored};
pub use vary::Vary;

#[cfg(test)]
mod tests;
