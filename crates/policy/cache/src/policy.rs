//! The rules of a cache: they decide about requests, and about the provider's responses.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_http1::Method;
use egret_message::{Request, Response};

use super::conditional::{Validators, is_conditional, is_for_origin};
use super::config::CacheConfig;
use super::decision::{Action, Candidate, Decision, Validation, Verdict, describes_resource};
use super::directives::RequestDirectives;
use super::freshness::{Freshness, Lifetimes, ProviderFailure};
use super::fwd::FwdReason;
use super::key::{KeyContext, KeySecret, Keyer};
use super::lookup::{CacheRequest, Lookup};
use super::reply::Reply;
use super::stored::{CallTimes, Stored};

/// The rules of one cache remedy.
#[derive(Debug)]
pub struct Policy {
    pub(super) secret: Arc<KeySecret>,
    pub(super) keyer: Keyer,
    pub(super) lifetimes: Lifetimes,
    pub(super) config: CacheConfig,
    pub(super) targets: Box<[Box<str>]>,
}

/// A response of the provider, with the times of its call.
#[derive(Debug, Clone, Copy)]
pub struct TimedResponse<'a> {
    /// The response.
    pub response: &'a Response<'a>,
    /// The times at which it was requested and received.
    pub times: CallTimes,
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
    pub fn look_up(&self, request: &Request<'_>, context: &KeyContext<'_>) -> Lookup {
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
            (!is_special(request, method)).then(|| self.keyer.key(&self.secret, request, context)).flatten();
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
        let freshness = self.lifetimes.freshness(stored, question.partition, now);
        let reply = || Reply::new(request, chosen, stored, freshness, candidates[chosen].len, now);
        let is_demanding = wants.demands_more_than(stored, freshness);
        let is_reusable = !is_demanding && !self.lifetimes.needs_validation(stored);
        if is_reusable && freshness.is_fresh() {
            return Decision::Serve(reply());
        }
        if is_reusable && self.lifetimes.client_takes_stale(stored, question.partition, freshness, wants) {
            return Decision::Serve(reply());
        }
        let why = if freshness.is_fresh() && is_demanding { FwdReason::Request } else { FwdReason::Stale };
        if is_reusable && self.lifetimes.may_revalidate_later(stored, question.partition, freshness) {
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
        failure: ProviderFailure,
        now: Timestamp,
    ) -> Option<Reply> {
        let chosen = self.choose(request, candidates)?;
        let stored = candidates[chosen].stored;
        let freshness = self.lifetimes.freshness(stored, question.partition, now);
        let wants = &question.wants;
        let is_wanted = !is_for_origin(request) && (!wants.no_cache || wants.stale_if_error.is_some());
        let may = self.lifetimes.may_serve_on_error(stored, question.partition, freshness, wants, failure);
        (is_wanted && may)
            .then(|| Reply::new(request, chosen, stored, freshness, candidates[chosen].len, now))
    }

    /// Decides about `response`, which was requested with `validation` if the request was conditional.
    pub fn receive(
        &self,
        question: &CacheRequest,
        request: &Request<'_>,
        context: &KeyContext<'_>,
        response: TimedResponse<'_>,
        candidates: &[Candidate<'_>],
        validation: Option<&Validation>,
    ) -> Verdict {
        let TimedResponse { response, times } = response;
        if response.status == 304 {
            return self.not_modified(question, request, response, times, candidates, validation);
        }
        if matches!(response.status, 500 | 502..=504)
            && let Some(reply) =
                self.fail(question, request, candidates, ProviderFailure::Error, times.received)
        {
            return Verdict { action: Action::ServeStale(reply), removed: Vec::new() };
        }
        if question.method == Method::Head {
            return self.after_head(request, response, times, candidates);
        }
        let matching = || self.matching(request, candidates).collect();
        match self.storable(question, request, context, response, times) {
            Ok(stored) => {
                let ttl_s = self.lifetimes.freshness(&stored, question.partition, times.received).ttl_s();
                Verdict { action: Action::Store(Box::new(stored), ttl_s), removed: matching() }
            }
            Err(why) => {
                // A response that is not stored still replaces older ones if it describes the current state.
                let replaces = describes_resource(response.status) && !is_conditional(request);
                Verdict { action: Action::Pass(why), removed: if replaces { matching() } else { Vec::new() } }
            }
        }
    }

    /// Returns the candidates whose `Vary` matches the request (RFC 9111 §4.1).
    pub(super) fn matching<'a>(
        &'a self,
        request: &'a Request<'_>,
        candidates: &'a [Candidate<'_>],
    ) -> impl Iterator<Item = usize> + 'a {
        let is_match =
            |candidate: &Candidate<'_>| candidate.stored.vary.matches(&self.secret, request.fields);
        candidates.iter().enumerate().filter(move |(_, candidate)| is_match(candidate)).map(|(at, _)| at)
    }

    /// Returns the most recent matching candidate (RFC 9111 §4).
    pub(super) fn choose(&self, request: &Request<'_>, candidates: &[Candidate<'_>]) -> Option<usize> {
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
    fn demands_more_than(&self, stored: &Stored, freshness: Freshness) -> bool {
        let is_unchanging = stored.directives.immutable && freshness.is_fresh();
        // `max-age=0` asks for validation.
        let is_old = self.max_age.is_some_and(|max| max == 0 || freshness.age > Duration::from_secs(max));
        let is_soon_stale = self.min_fresh.is_some_and(|seconds| {
            freshness.lifetime.saturating_sub(freshness.age) < Duration::from_secs(seconds)
        });
        self.no_cache || is_soon_stale || (is_old && !is_unchanging)
    }
}
