//! The cache's judgement (RFC 9111): what of a provider's answers is stored, for whom and for how long, and what a request gets of it.
//!
//! Nothing here waits, stores or knows a socket. [`Policy::ask`] makes a request a [`Question`] with a key. Whoever has the stored answers
//! shows those under that key to [`Policy::decide`], and does what it says. When the provider has answered,
//! [`Policy::receive`] says what becomes of the answer and of what is stored, and [`Policy::invalidated`] what a change makes void.
//!
//! What is decided here is never decided by the order in which things happen to be stored: the same request, candidates and time make
//! the same decision.

mod coalescer;
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

use crate::message::{Request, Response};

pub use conditional::Validators;
pub(crate) use counts::Counts;
pub use egret_store::entries::{DiskError, DiskEvent, DiskStats, EntryFile, EntryStats, Kept, Purge, Stop};
pub use key::label_of;

pub use coalescer::{Background, Coalescer, Ending, Leader, Turn, Waiter};
pub use config::{
    CacheConfig, CollapseConfig, DiskConfig, KeyConfig, QueryKey, SetCookie, Statuses, problems,
};
pub use counts::{AGE_BOUNDS_S, CacheEvent, CacheSnapshot};
pub use directives::{Extent, RequestDirectives, ResponseDirectives};
pub use disk::CacheDisk;
pub(crate) use disk::{DiskPlace, SECRET_BYTES, fingerprint};
pub use freshness::{Freshness, Trouble};
pub use key::{Key, KeyContext, KeySecret, Partition};
pub(crate) use key::{is_credential_field, is_credential_parameter};
pub use range::ByteRange;
pub use reply::{Form, Piece, Reply};
pub use served::Served;
pub use status::{CacheStatus, Forward};
pub use stored::{Lines, Stored, Times};
pub use storing::NotStored;
pub use vary::Vary;

/// One cache remedy's rules.
#[derive(Debug)]
pub struct Policy {
    secret: Arc<KeySecret>,
    keyer: Keyer,
    lifetimes: Lifetimes,
    config: CacheConfig,
    targets: Box<[Box<str>]>,
}

/// A request as a cache sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Under which key its answer is stored.
    pub key: Key,
    /// Whose answers it may get.
    pub partition: Partition,
    /// What the client wants.
    pub wants: RequestDirectives,
    /// Its method.
    pub method: Method,
    has_authorization: bool,
}

/// What becomes of a request before anything stored is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// What is stored under its key is to be looked at.
    Look(Question),
    /// It goes to the provider, and its answer is not stored.
    Forward(Forward),
    /// It wants nothing but a stored answer, and can have none: 504.
    OnlyIfCached,
}

/// A stored answer with the length of its body, where all of that is there.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The answer.
    pub stored: &'a Stored,
    /// Bytes of its body.
    pub len: Option<u64>,
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This.
    Serve(Reply),
    /// This, which is stale; and the provider is asked, for those who come later.
    ServeStale(Reply, Option<Validation>),
    /// What the provider says, which is asked whether what is stored still holds.
    Validate(Validation),
    /// What the provider says.
    Forward(Forward),
    /// 504: it wants nothing but a stored answer, and there is none.
    OnlyIfCached,
}

/// How a stored answer is validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Which of the candidates.
    pub candidate: usize,
    /// What is sent in place of the client's conditions.
    pub validators: Validators,
    /// Why the provider is asked.
    pub forward: Forward,
}

/// What becomes of a provider's answer, and of what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the answer.
    pub action: Action,
    /// Candidates that no longer hold.
    pub gone: Vec<usize>,
}

impl Verdict {
    /// Whether the answer takes the place of what may be stored and could not be looked at.
    pub fn is_newer(&self, status: u16) -> bool {
        matches!(self.action, Action::Store(..)) || says_what_is_there(status)
    }
}

/// Whether an answer of that status says what is there now, be it nothing.
const fn says_what_is_there(status: u16) -> bool {
    matches!(status, 200..=205 | 207..=399 | 404 | 410)
}

/// What becomes of a provider's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It goes on, and is stored like this with its body, once all of that has come. For how many seconds it is fresh.
    Store(Box<Stored>, i64),
    /// It goes on.
    Pass(NotStored),
    /// It goes on; a candidate is like this now.
    PassAndUpdate(usize, Box<Stored>),
    /// It does not go on: a candidate still holds, is like this now, and is served so.
    Update(Box<Stored>, Reply),
    /// It does not go on: this is served, though stale.
    ServeStale(Reply),
    /// It does not go on: the provider is asked again, without conditions of the cache's.
    Again,
}

impl Decision {
    /// Whether something stored is served.
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::ServeStale(..))
    }
}

impl Policy {
    /// The rules of `config`, in which nothing is wrong. Keys are those of `space` alone.
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

    /// The fields that come before `Cache-Control`, in lower case.
    pub fn targets(&self) -> &[Box<str>] {
        &self.targets
    }

    /// What `request` asks of the cache.
    pub fn ask(&self, request: &Request<'_>, place: &KeyContext<'_>) -> Ask {
        let method = Method::of(request.method);
        let is_stored = self.config.methods.contains(method.name())
            || (method == Method::Head && self.config.methods.contains("GET"));
        if !is_stored {
            return Ask::Forward(Forward::Method);
        }
        let is_pragma =
            request.fields.get(b"pragma").is_some_and(|value| value.eq_ignore_ascii_case(b"no-cache"));
        let wants = RequestDirectives::read(request.fields.all(b"cache-control"), is_pragma);
        let key =
            (!is_special(request, method)).then(|| self.keyer.key(&self.secret, request, place)).flatten();
        let Some((key, partition)) = key else {
            return if wants.only_if_cached { Ask::OnlyIfCached } else { Ask::Forward(Forward::Bypass) };
        };
        let has_authorization =
            request.fields.forwarded().any(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
        Ask::Look(Question { key, partition, wants, method, has_authorization })
    }

    /// What a request gets, of what is stored under its key.
    pub fn decide(
        &self,
        question: &Question,
        request: &Request<'_>,
        candidates: &[Candidate<'_>],
        now: Timestamp,
    ) -> Decision {
        let wants = &question.wants;
        let forward =
            |forward| if wants.only_if_cached { Decision::OnlyIfCached } else { Decision::Forward(forward) };
        if is_for_origin(request) {
            return forward(Forward::Request);
        }
        if candidates.is_empty() {
            return forward(Forward::UriMiss);
        }
        let Some(chosen) = self.choose(request, candidates) else { return forward(Forward::VaryMiss) };
        let stored = candidates[chosen].stored;
        let standing = self.lifetimes.standing(stored, question.partition, now);
        let reply = || Reply::new(request, chosen, stored, standing, candidates[chosen].len, now);
        let is_demanding = wants.demands_more_than(stored, standing);
        let is_reusable = !is_demanding && !self.lifetimes.needs_validation(stored);
        if is_reusable && standing.is_fresh() {
            return Decision::Serve(reply());
        }
        if is_reusable && self.lifetimes.client_takes_stale(stored, question.partition, standing, wants) {
            return Decision::Serve(reply());
        }
        let why = if standing.is_fresh() && is_demanding { Forward::Request } else { Forward::Stale };
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

    /// What is served where the provider is in that trouble, if anything is.
    pub fn fail(
        &self,
        question: &Question,
        request: &Request<'_>,
        candidates: &[Candidate<'_>],
        (trouble, now): (Trouble, Timestamp),
    ) -> Option<Reply> {
        let chosen = self.choose(request, candidates)?;
        let stored = candidates[chosen].stored;
        let standing = self.lifetimes.standing(stored, question.partition, now);
        let wants = &question.wants;
        let is_wanted = !is_for_origin(request) && (!wants.no_cache || wants.stale_if_error.is_some());
        let may = self.lifetimes.may_serve_on_error(stored, question.partition, standing, (wants, trouble));
        (is_wanted && may).then(|| Reply::new(request, chosen, stored, standing, candidates[chosen].len, now))
    }

    /// What becomes of `response`, for which the provider was asked at `times`, by `validation` if any.
    pub fn receive(
        &self,
        question: &Question,
        (request, place): (&Request<'_>, &KeyContext<'_>),
        response: &Response<'_>,
        times: Times,
        (candidates, validation): (&[Candidate<'_>], Option<&Validation>),
    ) -> Verdict {
        if response.status == 304 {
            return self.not_modified(question, request, response, times, candidates, validation);
        }
        if matches!(response.status, 500 | 502..=504)
            && let Some(reply) = self.fail(question, request, candidates, (Trouble::Error, times.received))
        {
            return Verdict { action: Action::ServeStale(reply), gone: Vec::new() };
        }
        if question.method == Method::Head {
            return self.heard_of(request, response, times, candidates);
        }
        let matching = || self.matching(request, candidates).collect();
        match self.storable(question, request, place, response, times) {
            Ok(stored) => {
                let ttl_s = self.lifetimes.standing(&stored, question.partition, times.received).ttl_s();
                Verdict { action: Action::Store(Box::new(stored), ttl_s), gone: matching() }
            }
            Err(why) => {
                // What is not stored takes the place of what was, where it says what is there now.
                let says_more = says_what_is_there(response.status) && !is_conditional(request);
                Verdict { action: Action::Pass(why), gone: if says_more { matching() } else { Vec::new() } }
            }
        }
    }

    /// The candidates that are for a request with these fields (RFC 9111 §4.1).
    fn matching<'a>(
        &'a self,
        request: &'a Request<'_>,
        candidates: &'a [Candidate<'_>],
    ) -> impl Iterator<Item = usize> + 'a {
        let is_match =
            |candidate: &Candidate<'_>| candidate.stored.vary.matches(&self.secret, request.fields);
        candidates.iter().enumerate().filter(move |(_, candidate)| is_match(candidate)).map(|(at, _)| at)
    }

    /// The most recent of the candidates that are for a request (RFC 9111 §4).
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
        forward: Forward,
    ) -> Option<Validation> {
        let stored = candidates[chosen].stored;
        let others =
            self.matching(request, candidates).filter(|at| *at != chosen).map(|at| candidates[at].stored);
        let validators = Validators::new(request, stored, others).filter(|_| stored.has_validator())?;
        Some(Validation { candidate: chosen, validators, forward })
    }
}

/// Whether a request is more than its URL and fields say: one with a body that is no part of its key, one that names another method,
/// or one that asks for another protocol.
fn is_special(request: &Request<'_>, method: Method) -> bool {
    let has = |name: &'static [u8]| request.fields.get(name).is_some();
    let has_body = has(b"transfer-encoding")
        || request.fields.get(b"content-length").is_some_and(|len| len.iter().any(|digit| *digit != b'0'));
    let names_method = has(b"x-http-method-override") || has(b"x-http-method") || has(b"x-method-override");
    (has_body && method != Method::Post) || names_method || request.upgrade
}

impl RequestDirectives {
    /// Whether the client wants more than `stored` is: newer, longer fresh, or validated. What does not change while it is fresh need not be
    /// newer (RFC 8246 §2).
    fn demands_more_than(&self, stored: &Stored, standing: Freshness) -> bool {
        use std::time::Duration;
        let is_unchanging = stored.directives.immutable && standing.is_fresh();
        // Who wants none that is older than now wants it validated.
        let is_old = self.max_age.is_some_and(|max| max == 0 || standing.age > Duration::from_secs(max));
        let is_soon_stale = self.min_fresh.is_some_and(|seconds| {
            standing.lifetime.saturating_sub(standing.age) < Duration::from_secs(seconds)
        });
        self.no_cache || is_soon_stale || (is_old && !is_unchanging)
    }
}

#[cfg(test)]
mod tests;
