//! A token that is fetched (RFC 6749): one for an account, shared by all workers, and kept from one config to the next.
//!
//! Nothing is sent from here. An exchange that finds none, or one that is soon over, may be elected to have it fetched: it is given a
//! [`Fetch`], which the gateway takes to the token endpoint, and which is given up when dropped, so that another exchange is elected.
//! There is one at a time. All who need the token wait for it; while the old one is good nobody does.

mod answer;
mod config;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Timestamp;
use egret_config::Problem;
use tracing::{debug, warn};
use zeroize::Zeroizing;

use crate::answer::{Reason, Refused};
use crate::cache::{self, Coalescer, Leader};
use egret_clock::Random;
use egret_clock::retry_after;

pub use answer::{ANSWER_BYTES_MAX, Trouble};
pub use config::{ClientAuth, Endpoint, EndpointError, Grant, OAuth2Config, OAuth2RetryConfig};

use answer::Granted;

/// A token that is new is used at least for so long, even where its answer was slower than its life.
const USED_MIN: Duration = Duration::from_secs(1);
/// A token that a provider refuses is fetched anew no more often than this: a provider that refuses every token would otherwise have
/// the endpoint called for each call.
const REJECTION_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer the endpoint is left alone after a failure that trying again will hardly mend.
const LASTING_FACTOR: u32 = 10;
/// All exchanges of an account ask for the same.
const THE_TOKEN: u128 = 0;

/// The token of an account.
pub struct Token {
    /// The account's name, for logs.
    account: Arc<str>,
    config: OAuth2Config,
    endpoint: Endpoint,
    state: Mutex<State>,
    /// The fetch that is under way, and who waits for it.
    coalescer: Arc<Coalescer>,
    /// What tokens are granted for, if that is a refresh token: the last one that is known.
    grant: Arc<Mutex<Zeroizing<String>>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// Failures since the last token.
    failures: u32,
    trouble: Option<Trouble>,
    /// Until when the endpoint is left alone.
    retry_at: Timestamp,
    /// When a provider has last refused a token that was thrown away for it.
    rejected_at: Option<Timestamp>,
    random: Random,
}

/// The token that was fetched last.
struct Current {
    /// Tells one token from the next.
    number: u64,
    /// The value of `Authorization`.
    field: Arc<Zeroizing<Vec<u8>>>,
    renew_at: Timestamp,
    expires_at: Timestamp,
    /// Whether a provider has refused it.
    is_rejected: bool,
}

/// What is counted, also across changes of the config.
#[derive(Debug, Default)]
struct Counts {
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// How an account's token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSnapshot {
    /// What there is.
    pub state: TokenState,
    /// When it expires, if there is one.
    pub expires_at: Option<Timestamp>,
    /// Why the last fetch has failed, if it has.
    pub trouble: Option<Trouble>,
    /// Until when the endpoint is left alone for that.
    pub retry_at: Option<Timestamp>,
    /// How many tokens have been fetched.
    pub fetched: u64,
    /// How many fetches have failed.
    pub failed: u64,
}

/// What there is of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// None has been fetched.
    Missing,
    /// One that is good.
    Good,
    /// One that is over.
    Expired,
    /// One that a provider has refused.
    Rejected,
}

impl TokenState {
    /// As the control API has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Good => "good",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
        }
    }
}

/// What an exchange keeps while it needs a token.
#[derive(Debug, Default)]
pub struct TokenWaiter {
    since: Option<Timestamp>,
    shared_call: Option<cache::Waiter>,
    /// The number of the token that it was let go on with.
    number: u64,
    /// Whether a provider has refused one and the call is made again for that.
    has_repeated: bool,
}

/// How an exchange goes on that needs a token.
#[derive(Debug)]
pub enum Turn {
    /// It goes on: there is one. If a fetch is given, it has been elected to have the token renewed meanwhile.
    Ready(Option<Fetch>),
    /// It waits, until that time at most. If a fetch is given, it has been elected to have one fetched.
    Wait(Option<Fetch>, Timestamp),
    /// It is refused.
    Refused(Refused),
}

/// What there is for an exchange.
enum TokenStanding {
    Good(u64),
    /// Good, and to be renewed.
    Due(u64),
    Missing,
    /// None is there, and the endpoint is left alone.
    Failing(Timestamp, Option<Trouble>),
}

impl Token {
    /// The token of `account`. What is known of it under the config before stays if that was the same. A refresh token stays too that
    /// was answered in place of the configured one, unless another one is configured.
    pub(super) fn compile(
        account: &Arc<str>,
        config: &OAuth2Config,
        before: Option<&Arc<Self>>,
        at: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Self>> {
        if let Some(before) = before.filter(|before| before.config == *config) {
            return Some(Arc::clone(before));
        }
        let count = problems.len();
        config.check(at, problems);
        let endpoint = Endpoint::parse(&config.token_url).ok().filter(|_| problems.len() == count)?;
        let is_same_grant = |before: &&Arc<Self>| {
            let of = |config: &OAuth2Config| {
                (config.token_url.clone(), config.client_id.clone(), config.refresh_token.clone())
            };
            of(&before.config) == of(config)
        };
        let grant = before.filter(is_same_grant).map(|before| Arc::clone(&before.grant));
        let grant = grant.unwrap_or_else(|| {
            let configured = config.refresh_token.as_ref().map_or("", |secret| secret.expose());
            Arc::new(Mutex::new(Zeroizing::new(configured.to_owned())))
        });
        Some(Arc::new(Self {
            account: Arc::clone(account),
            config: config.clone(),
            endpoint,
            state: Mutex::default(),
            coalescer: Coalescer::new(),
            grant,
            counts: before.map(|before| Arc::clone(&before.counts)).unwrap_or_default(),
        }))
    }

    /// How an exchange goes on that needs the token. One that waits is woken when there is one, or none to be had.
    pub fn poll(self: &Arc<Self>, waiting: &mut TokenWaiter, now: Timestamp, cx: &Context<'_>) -> Turn {
        let mut fetch = None;
        loop {
            // Looked at again by whoever is elected: only then has nobody else brought one meanwhile.
            let standing = self.lock().standing(now);
            match standing {
                TokenStanding::Good(number) => {
                    waiting.let_go(number);
                    return Turn::Ready(None);
                }
                TokenStanding::Due(number) => {
                    if fetch.is_none()
                        && let Some(leader) = self.coalescer.leader(THE_TOKEN, now)
                    {
                        fetch = Some(self.fetch(leader, now));
                        continue;
                    }
                    waiting.let_go(number);
                    return Turn::Ready(fetch);
                }
                TokenStanding::Failing(retry_at, trouble) => {
                    return Turn::Refused(self.refused(retry_at, trouble, now));
                }
                TokenStanding::Missing => {}
            }
            let until = *waiting.since.get_or_insert(now) + self.config.wait_max.get();
            if until <= now {
                return Turn::Refused(self.refused_late(now));
            }
            if let Some(shared_call) = &mut waiting.shared_call {
                match shared_call.poll(cx) {
                    Poll::Pending => return Turn::Wait(fetch, until),
                    // What has come of it is looked at.
                    Poll::Ready(_) => waiting.shared_call = None,
                }
            } else {
                match self.coalescer.join(THE_TOKEN, now) {
                    cache::Turn::Leader(leader) => fetch = Some(self.fetch(leader, now)),
                    cache::Turn::Wait(shared_call) => waiting.shared_call = Some(shared_call),
                    // A token is for everybody: that is never noted.
                    cache::Turn::Alone => return Turn::Wait(fetch, until),
                }
            }
        }
    }

    /// The value of `Authorization` that a call is made with: the last token, even where it is over by now. Whoever waits for a good one
    /// has done so before; a provider that refuses it says so.
    pub(super) fn field(&self) -> Option<Arc<Zeroizing<Vec<u8>>>> {
        self.lock().current.as_ref().map(|current| Arc::clone(&current.field))
    }

    /// A provider has refused the token that an exchange was let go on with. Says whether the call is worth making again: there is another
    /// token, or there will be, and the exchange has had no second call for this reason yet.
    pub fn reject(&self, waiting: &TokenWaiter, now: Timestamp) -> bool {
        let is_replaced = self.lock().reject(waiting.number, now);
        debug!(account = &*self.account, is_replaced, "a provider has refused a token");
        is_replaced && !waiting.has_repeated
    }

    /// Until when there is none, since the last fetch has failed.
    pub(crate) fn failing_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.lock().standing(now) {
            TokenStanding::Failing(retry_at, _) => Some(retry_at),
            TokenStanding::Good(_) | TokenStanding::Due(_) | TokenStanding::Missing => None,
        }
    }

    /// How it stands.
    pub fn snapshot(&self, now: Timestamp) -> TokenSnapshot {
        let state = self.lock();
        TokenSnapshot {
            state: match &state.current {
                None => TokenState::Missing,
                Some(current) if current.is_rejected => TokenState::Rejected,
                Some(current) if current.expires_at <= now => TokenState::Expired,
                Some(_) => TokenState::Good,
            },
            expires_at: state.current.as_ref().map(|current| current.expires_at),
            trouble: state.trouble,
            retry_at: Some(state.retry_at).filter(|retry_at| *retry_at > now),
            fetched: self.counts.fetched.load(Relaxed),
            failed: self.counts.failed.load(Relaxed),
        }
    }

    /// Where it is fetched.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh_token(&self) -> MutexGuard<'_, Zeroizing<String>> {
        self.grant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetch(self: &Arc<Self>, leader: Leader, now: Timestamp) -> Fetch {
        Fetch { token: Arc::clone(self), leader, begun: now }
    }

    fn refused(&self, retry_at: Timestamp, trouble: Option<Trouble>, now: Timestamp) -> Refused {
        let why = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
        let wait_s = retry_at.since(now).as_millis().div_ceil(1_000);
        let detail = format!(
            "there is no token for the account {}{why}; it is asked again in {wait_s} s",
            self.account
        );
        Refused { retry_at: Some(retry_at), ..Refused::new(Reason::AccountUnavailable, detail) }
    }

    fn refused_late(&self, now: Timestamp) -> Refused {
        let detail = format!(
            "there is no token for the account {} yet, after {} (`wait_max`)",
            self.account, self.config.wait_max
        );
        Refused { retry_at: Some(now + USED_MIN), ..Refused::new(Reason::AccountUnavailable, detail) }
    }

    /// Takes up what a fetch has brought that began at `begun`.
    fn settle(
        &self,
        begun: Timestamp,
        now: Timestamp,
        granted: Result<Granted, Trouble>,
        asked: Option<Timestamp>,
    ) {
        match granted {
            Ok(granted) => self.take_up(begun, now, granted),
            Err(trouble) => {
                self.counts.failed.fetch_add(1, Relaxed);
                let mut state = self.lock();
                let wait = state.fail(&self.config.retry, trouble, now, asked);
                let is_good = state.is_good(now);
                drop(state);
                warn!(
                    account = &*self.account,
                    reason = %trouble,
                    retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    old_token_is_good = is_good,
                    "a token could not be fetched"
                );
            }
        }
    }

    fn take_up(&self, begun: Timestamp, now: Timestamp, granted: Granted) {
        let Granted { access_token, life, refresh_token } = granted;
        let life = life.unwrap_or(self.config.default_life.get());
        // The life began at the latest when it was answered, and at the earliest when it was asked for.
        let expires_at = (begun + life).max(now + USED_MIN);
        let mut field = Zeroizing::new(Vec::with_capacity(access_token.len() + 7));
        field.extend_from_slice(b"Bearer ");
        field.extend_from_slice(access_token.as_bytes());
        if let Some(refresh_token) = refresh_token {
            *self.refresh_token() = refresh_token;
        }
        let number = self.counts.fetched.fetch_add(1, Relaxed) + 1;
        let mut state = self.lock();
        state.current = Some(Current {
            number,
            field: Arc::new(field),
            renew_at: expires_at - self.config.renew_before.get().min(life / 4),
            expires_at,
            is_rejected: false,
        });
        (state.failures, state.trouble, state.retry_at) = (0, None, Timestamp::default());
        drop(state);
        debug!(account = &*self.account, life_s = life.as_secs(), "a token has been fetched");
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.account)
    }
}

impl State {
    fn is_good(&self, now: Timestamp) -> bool {
        self.current.as_ref().is_some_and(|current| !current.is_rejected && now < current.expires_at)
    }

    fn standing(&self, now: Timestamp) -> TokenStanding {
        let is_left_alone = now < self.retry_at;
        match &self.current {
            Some(current) if self.is_good(now) => {
                let is_due = current.renew_at <= now && !is_left_alone;
                if is_due { TokenStanding::Due(current.number) } else { TokenStanding::Good(current.number) }
            }
            _ if is_left_alone => TokenStanding::Failing(self.retry_at, self.trouble),
            _ => TokenStanding::Missing,
        }
    }

    /// Throws the token with that number away, if it is still the current one. Says whether there is another one, or will be.
    fn reject(&mut self, number: u64, now: Timestamp) -> bool {
        let Some(current) = &mut self.current else { return false };
        if current.number != number || current.is_rejected {
            return true;
        }
        if self.rejected_at.is_some_and(|before| now < before + REJECTION_INTERVAL) {
            return false;
        }
        self.rejected_at = Some(now);
        current.is_rejected = true;
        true
    }

    /// Has the endpoint be left alone after a failure; at least until the time that it has `asked` for, within bounds. Says for how long.
    fn fail(
        &mut self,
        config: &OAuth2RetryConfig,
        trouble: Trouble,
        now: Timestamp,
        asked: Option<Timestamp>,
    ) -> Duration {
        let factor = if trouble.is_lasting() { LASTING_FACTOR } else { 1 };
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let longest = config.base.get().saturating_mul(doubled).min(config.max.get()).saturating_mul(factor);
        let half_ms = u64::try_from(longest.as_millis() / 2).unwrap_or(u64::MAX);
        let wait = longest / 2 + Duration::from_millis(self.random.up_to(half_ms));
        let asked = asked.map_or(Duration::ZERO, |asked| asked.since(now));
        let wait = wait.max(asked.min(config.max.get().saturating_mul(LASTING_FACTOR)));
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(trouble);
        self.retry_at = now + wait;
        wait
    }
}

impl TokenWaiter {
    /// Whether the exchange waits now.
    pub(crate) fn is_under_way(&self) -> bool {
        self.since.is_some()
    }

    /// Goes on with the token with that number.
    fn let_go(&mut self, number: u64) {
        self.number = number;
        self.since = None;
        self.shared_call = None;
    }

    /// The call is made again for a token that was refused.
    pub fn repeat(&mut self) {
        self.has_repeated = true;
    }
}

/// A token that is to be fetched, by whoever has this. Dropped, it is given up, and another exchange is elected.
pub struct Fetch {
    token: Arc<Token>,
    leader: Leader,
    begun: Timestamp,
}

/// What a token endpoint has answered.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// The status.
    pub status: u16,
    /// The value of `Retry-After`, if it is there.
    pub retry_after: Option<&'a [u8]>,
    /// The whole body.
    pub body: &'a [u8],
}

impl Fetch {
    /// Where it is fetched.
    pub fn endpoint(&self) -> &Endpoint {
        self.token.endpoint()
    }

    /// The name of the account.
    pub fn account(&self) -> &str {
        &self.token.account
    }

    /// How long that may take in all.
    pub fn timeout(&self) -> Duration {
        self.token.config.timeout.get()
    }

    /// The whole request, as a message of HTTP/1.1.
    pub fn request(&self) -> Zeroizing<Vec<u8>> {
        let Token { config, endpoint, .. } = &*self.token;
        request::request(config, endpoint, &self.token.refresh_token())
    }

    /// Takes up what has been answered, and wakes all who wait for it.
    pub fn end(self, now: Timestamp, answered: Result<Answered<'_>, Trouble>) {
        let asked = answered.as_ref().ok().and_then(|answered| answered.retry_after);
        let asked = asked.and_then(|value| retry_after::read(value, now));
        let granted = answered.and_then(|Answered { status, body, .. }| answer::read(status, body));
        self.token.settle(self.begun, now, granted, asked);
        self.leader.answered();
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fetch({})", self.token.account)
    }
}
