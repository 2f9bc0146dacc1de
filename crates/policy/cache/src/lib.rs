//! Decisions of the cache (RFC 9111): which responses are stored, for which clients and for how long, and
//! which requests they satisfy.
//!
//! This module performs no I/O, does not wait, and holds no stored responses. [`Policy::ask`] turns a request
//! into a [`CacheRequest`] with a key. The caller passes the responses stored under that key to
//! [`Policy::decide`], and follows the decision. After the provider's response, [`Policy::receive`] decides
//! about it and about the stored responses, and [`Policy::invalidated`] lists what a change invalidates.
//!
//! Decisions never depend on the order in which responses were stored: the same request, candidates and time
//! give the same decision.

mod conditional;
mod config;
mod counts;
mod directives;
mod disk;
mod freshness;
mod invalidate;
mod key;
mod range;
mod reply;
mod served;
mod status;
mod stored;
mod storing;
mod structured;
mod update;
mod vary;

use std::sync::Arc;

use egret_clock::Timestamp;
use egret_http1::Method;

use conditional::{is_conditional, is_for_origin};
use freshness::Lifetimes;
use key::Keyer;

use egret_message::{Request, Response};

pub use conditional::Validators;
pub use counts::CacheCounts;
pub use egret_store::entries::{
    DiskError, DiskEvent, DiskStats, EntryFile, EntryStats, Purge, Stop, StoredValue,
};
pub use key::label_of;

pub use config::{
    CacheConfig, CollapseConfig, DiskConfig, KeyConfig, QueryKey, SetCookie, Statuses, problems,
};
pub use counts::{AGE_BOUNDS_S, CacheEvent, CacheSnapshot};
pub use directives::{Extent, RequestDirectives, ResponseDirectives};
pub use disk::CacheDisk;
pub use disk::{DiskLocation, SECRET_BYTES, fingerprint};
pub use egret_store::coalescer::{Background, Coalescer, Ending, Leader, Turn, Waiter};
pub use freshness::{Freshness, ProviderFailure};
pub use key::{CacheKey, KeyContext, KeySecret, Partition};
pub use key::{is_credential_field, is_credential_parameter};
pub use range::ByteRange;
pub use reply::{Form, Piece, Reply};
pub use served::Served;
pub use status::{CacheStatus, FwdReason};
pub use stored::{CallTimes, FieldLines, Stored};
pub use storing::NotStored;
pub use vary::Vary;

/// The rules of one cache remedy.
#[derive(Debug)]
pub struct Policy {
    secret: Arc<KeySecret>,
    keyer: Keyer,
    lifetimes: Lifetimes,
    config: CacheConfig,
    targets: Box<[Box<str>]>,
}

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
    has_authorization: bool,
}

/// The first decision about a request, before any stored response is considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Look up the responses stored under its key.
    Look(CacheRequest),
    /// FwdReason it to the provider, and do not store the response.
    Forward(FwdReason),
    /// Respond with 504: the client accepts only a stored response, and there cannot be one.
    OnlyIfCached,
}

/// A stored response, with the length of its body if the body is complete.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The stored response.
    pub stored: &'a Stored,
    /// Length of the body, in bytes.
    pub len: Option<u64>,
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Serve this response.
    Serve(Reply),
    /// Serve this stale response, and revalidate in the background for later requests.
    ServeStale(Reply, Option<Validation>),
    /// Ask the provider if the stored response is still valid.
    Validate(Validation),
    /// FwdReason the request to the provider.
    Forward(FwdReason),
    /// Respond with 504: the client accepts only a stored response, and there is none.
    OnlyIfCached,
}

/// The validation of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Index of the response among the candidates.
    pub candidate: usize,
    /// The validators to send in place of the client's conditions.
    pub validators: Validators,
    /// The reason for the request to the provider.
    pub forward: FwdReason,
}

/// The decision about a provider's response, and about the stored responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The action for the response.
    pub action: Action,
    /// Indexes of the candidates to remove.
    pub removed: Vec<usize>,
}

impl Verdict {
    /// Returns `true` if the response also replaces stored responses that could not be read.
    pub fn is_newer(&self, status: u16) -> bool {
        matches!(self.action, Action::Store(..)) || describes_resource(status)
    }
}

/// Returns `true` if a response with that status describes the current state of the resource, including its
/// absence.
const fn describes_resource(status: u16) -> bool {
    matches!(status, 200..=205 | 207..=399 | 404 | 410)
}

/// The action for a provider's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// FwdReason it, and store this once the whole body has arrived. The number is its remaining freshness, in
    /// seconds.
    Store(Box<Stored>, i64),
    /// FwdReason it without storing it.
    Pass(NotStored),
    /// FwdReason it, and update the candidate with that index.
    PassAndUpdate(usize, Box<Stored>),
    /// Update the candidate, and serve it instead.
    Update(Box<Stored>, Reply),
    /// Serve this stale response instead.
    ServeStale(Reply),
    /// Discard it, and repeat the request without the cache's own conditions.
    Again,
}

impl Decision {
    /// Returns `true` if a stored response is served.
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::ServeStale(..))
    }
}

impl Policy {
    /// Creates the rules of a valid `config`. Keys are separate for each `space`.
    pub fn new(config: &CacheConfig, space: &str, secret: Arc<KeySecret>) -> Self {
        let targets = config.targets.iter().map(|name| name.to_ascii_lowercase().into()).collect();
        Self {
            secret,
            keyer: Keyer::new(config, space),
            lifetimes: Lifetimes::new(config),
            config: config.clone(),
            targets,
        }
    }

    /// The config.
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// The header fields that take precedence over `Cache-Control`, in lower case.
    pub fn targets(&self) -> &[Box<str>] {
        &self.targets
    }

    /// Decides if the cache handles `request`, and computes its key.
    pub fn ask(&self, request: &Request<'_>, place: &KeyContext<'_>) -> Lookup {
        let method = Method::of(request.method);
        let is_stored = self.config.methods.contains(method.name())
            || (method == Method::Head && self.config.methods.contains("GET"));
        if !is_stored {
            return Lookup::Forward(FwdReason::Method);
        }
        let is_pragma =
            request.fields.get(b"pragma").is_some_and(|value| value.eq_ignore_ascii_case(b"no-cache"));
        let wants = RequestDirectives::read(request.fields.all(b"cache-control"), is_pragma);
        let key =
            (!is_special(request, method)).then(|| self.keyer.key(&self.secret, request, place)).flatten();
        let Some((key, partition)) = key else {
            return if wants.only_if_cached {
                Lookup::OnlyIfCached
            } else {
                Lookup::Forward(FwdReason::Bypass)
            };
        };
        let has_authorization =
            request.fields.forwarded().any(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
        Lookup::Look(CacheRequest { key, partition, wants, method, has_authorization })
    }

    /// Decides how to respond to a request from the responses stored under its key.
    pub fn decide(
        &self,
        question: &CacheRequest,
        request: &Request<'_>,
        candidates: &[Candidate<'_>],
        now: Timestamp,
    ) -> Decision {
        let wants = &question.wants;
        let forward =
            |forward| if wants.only_if_cached { Decision::OnlyIfCached } else { Decision::Forward(forward) };
        if is_for_origin(request) {
            return forward(FwdReason::Request);
        }
        if candidates.is_empty() {
            return forward(FwdReason::UriMiss);
        }
        let Some(chosen) = self.choose(request, candidates) else { return forward(FwdReason::VaryMiss) };
        let stored = candidates[chosen].stored;
        let standing = self.lifetimes.freshness(stored, question.partition, now);
        let reply = || Reply::new(request, chosen, stored, standing, candidates[chosen].len, now);
        let is_demanding = wants.demands_more_than(stored, standing);
        let is_reusable = !is_demanding && !self.lifetimes.needs_validation(stored);
        if is_reusable && standing.is_fresh() {
            return Decision::Serve(reply());
        }
        if is_reusable && self.lifetimes.client_takes_stale(stored, question.partition, standing, wants) {
            return Decision::Serve(reply());
        }
        let why = if standing.is_fresh() && is_demanding { FwdReason::Request } else { FwdReason::Stale };
        if is_reusable && self.lifetimes.may_revalidate_later(stored, question.partition, standing) {
            return Decision::ServeStale(reply(), self.validation(request, candidates, chosen, why));
        }
        if wants.only_if_cached {
            return Decision::OnlyIfCached;
        }
        match self.validation(request, candidates, chosen, why) {
            Some(validation) => Decision::Validate(validation),
            None => Decision::Forward(why),
        }
    }

    /// Returns the stored response to serve when the provider fails, if there is one.
    pub fn fail(
        &self,
        question: &CacheRequest,
        request: &Request<'_>,
        candidates: &[Candidate<'_>],
        (trouble, now): (ProviderFailure, Timestamp),
    ) -> Option<Reply> {
        let chosen = self.choose(request, candidates)?;
        let stored = candidates[chosen].stored;
        let standing = self.lifetimes.freshness(stored, question.partition, now);
        let wants = &question.wants;
        let is_wanted = !is_for_origin(request) && (!wants.no_cache || wants.stale_if_error.is_some());
        let may = self.lifetimes.may_serve_on_error(stored, question.partition, standing, (wants, trouble));
        (is_wanted && may).then(|| Reply::new(request, chosen, stored, standing, candidates[chosen].len, now))
    }

    /// Decides about `response`, which was requested at `times`, with `validation` if it was a conditional
    /// request.
    pub fn receive(
        &self,
        question: &CacheRequest,
        (request, place): (&Request<'_>, &KeyContext<'_>),
        response: &Response<'_>,
        times: CallTimes,
        (candidates, validation): (&[Candidate<'_>], Option<&Validation>),
    ) -> Verdict {
        if response.status == 304 {
            return self.not_modified(question, request, response, times, candidates, validation);
        }
        if matches!(response.status, 500 | 502..=504)
            && let Some(reply) =
                self.fail(question, request, candidates, (ProviderFailure::Error, times.received))
        {
            return Verdict { action: Action::ServeStale(reply), removed: Vec::new() };
        }
        if question.method == Method::Head {
            return self.after_head(request, response, times, candidates);
        }
        let matching = || self.matching(request, candidates).collect();
        match self.storable(question, request, place, response, times) {
            Ok(stored) => {
                let ttl_s = self.lifetimes.freshness(&stored, question.partition, times.received).ttl_s();
                Verdict { action: Action::Store(Box::new(stored), ttl_s), removed: matching() }
            }
            Err(why) => {
                // A response that is not stored still replaces older ones if it describes the current state.
                let says_more = describes_resource(response.status) && !is_conditional(request);
                Verdict {
                    action: Action::Pass(why),
                    removed: if says_more { matching() } else { Vec::new() },
                }
            }
        }
    }

    /// Returns the candidates whose `Vary` matches the request (RFC 9111 §4.1).
    fn matching<'a>(
        &'a self,
        request: &'a Request<'_>,
        candidates: &'a [Candidate<'_>],
    ) -> impl Iterator<Item = usize> + 'a {
        let is_match =
            |candidate: &Candidate<'_>| candidate.stored.vary.matches(&self.secret, request.fields);
        candidates.iter().enumerate().filter(move |(_, candidate)| is_match(candidate)).map(|(at, _)| at)
    }

    /// Returns the most recent matching candidate (RFC 9111 §4).
    fn choose(&self, request: &Request<'_>, candidates: &[Candidate<'_>]) -> Option<usize> {
        let recency = |at: &usize| {
            let stored = candidates[*at].stored;
            (stored.date, stored.times.received)
        };
        self.matching(request, candidates).max_by_key(recency)
    }

    fn validation(
        &self,
        request: &Request<'_>,
        candidates: &[Candidate<'_>],
        chosen: usize,
        forward: FwdReason,
    ) -> Option<Validation> {
        let stored = candidates[chosen].stored;
        let others =
            self.matching(request, candidates).filter(|at| *at != chosen).map(|at| candidates[at].stored);
        let validators = Validators::new(request, stored, others).filter(|_| stored.has_validator())?;
        Some(Validation { candidate: chosen, validators, forward })
    }
}

/// Returns `true` if the meaning of a request does not follow from its URL and fields: it has a body that is
/// not part of the key, it overrides the method, or it upgrades the protocol.
fn is_special(request: &Request<'_>, method: Method) -> bool {
    let has = |name: &'static [u8]| request.fields.get(name).is_some();
    let has_body = has(b"transfer-encoding")
        || request.fields.get(b"content-length").is_some_and(|len| len.iter().any(|digit| *digit != b'0'));
    let names_method = has(b"x-http-method-override") || has(b"x-http-method") || has(b"x-method-override");
    (has_body && method != Method::Post) || names_method || request.upgrade
}

impl RequestDirectives {
    /// Returns `true` if the client requires more than `stored` offers: a newer response, one that stays
    /// fresh for longer, or validation. A response that is immutable while fresh need not be newer (RFC 8246
    /// §2).
    fn demands_more_than(&self, stored: &Stored, standing: Freshness) -> bool {
        use std::time::Duration;
        let is_unchanging = stored.directives.immutable && standing.is_fresh();
        // `max-age=0` asks for validation.
        let is_old = self.max_age.is_some_and(|max| max == 0 || standing.age > Duration::from_secs(max));
        let is_soon_stale = self.min_fresh.is_some_and(|seconds| {
            standing.lifetime.saturating_sub(standing.age) < Duration::from_secs(seconds)
        });
        self.no_cache || is_soon_stale || (is_old && !is_unchanging)
    }
}

#[cfg(test)]
mod tests;
