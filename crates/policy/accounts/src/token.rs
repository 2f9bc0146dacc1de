//! A token that is fetched from a token endpoint (RFC 6749). Each account has one, shared by all workers, and
//! kept across reloads.
//!
//! This module does not send anything. An exchange that finds no token, or one that expires soon, may be
//! elected to fetch it. It is given a [`Fetch`], which the gateway sends to the token endpoint. A `Fetch`
//! that is dropped is given up, and another exchange is elected. Only one fetch is in flight at a time. All
//! exchanges that need the token wait for it, unless the old one is still valid.
//!
//! In a cluster whose gateways share tokens, a `Fetch` must be [admitted](Fetch::admitted) by the others
//! before it is sent. They may have a newer token already.

mod assertion;
mod aws;
mod azure;
mod config;
mod endpoint;
mod fetch;
mod gcp;
mod github;
mod request;
mod response;
mod shared;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
mod wiped;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use egret_aws::Signer;
use egret_clock::{Random, Timestamp};
use egret_config::{Problem, Secret};
use egret_items::words;
use egret_message::{ErrorKind, Refused};
use egret_store::coalescer;
use egret_store::coalescer::{Coalescer, Leader};
use egret_store::shared::{SharedTokenState, SharedTokens};
use parking_lot::Mutex;
use tracing::{debug, warn};
use zeroize::Zeroizing;

pub use assertion::AssertionConfig;
pub use aws::AwsIdentityConfig;
pub(crate) use aws::{AwsKeys, TemporaryKeys};
pub use azure::AzureConfig;
pub use config::{ClientAuth, Grant, MetadataService, OAuth2Config, OAuth2RetryConfig};
pub use endpoint::{EndpointError, TokenEndpoint};
pub use fetch::{Fetch, FetchedResponse, TokenResponse};
pub use gcp::GcpConfig;
pub use github::GithubConfig;
pub use response::{KeyService, RESPONSE_BYTES_MAX, TokenError};

use super::in_force::SecretsInForce;
use assertion::AssertionSigner;
use response::Granted;
use shared::{Sharing, TokenState as StoredState};
use wiped::WipedText;

/// Minimum time for which a new token is used, even if its response took longer than its lifetime.
const USED_MIN: Duration = Duration::from_secs(1);
/// Minimum time between two fetches caused by a rejected token. Without it, a provider that rejects every
/// token would cause a fetch for each call.
const REJECTION_INTERVAL: Duration = Duration::from_secs(5);
/// Time by which an event may seem to be in the future: an exchange takes the time from the beginning of its
/// worker's turn. An event further ahead is from before the clock was set back, and blocks nothing.
const AHEAD_MAX: Duration = Duration::from_secs(5);
/// Factor for the wait after a failure that a retry is unlikely to fix.
const LASTING_FACTOR: u32 = 10;
/// The coalescing key: all exchanges of an account need the same token.
const THE_TOKEN: u128 = 0;

/// The token of an account.
pub struct Token {
    /// The account's name, for logs.
    account: Arc<str>,
    config: OAuth2Config,
    endpoint: TokenEndpoint,
    /// The private key of the config's assertion.
    signer: Option<AssertionSigner>,
    state: Mutex<TokenSlot>,
    /// The fetch in flight, and its waiters.
    coalescer: Arc<Coalescer>,
    grant: Arc<Mutex<GrantState>>,
    counts: Arc<TokenCounts>,
    /// The other gateways of the cluster, if they share the token.
    sharing: Option<Sharing>,
    /// The secrets that recordings do not show.
    in_force: Arc<SecretsInForce>,
}

/// The state of the grant, kept across changes of the requested token.
struct GrantState {
    /// The latest refresh token, if the grant uses one.
    refresh_token: Zeroizing<String>,
    /// Version of the shared state that it is from; 0 if none.
    version: u64,
}

#[derive(Default)]
struct TokenSlot {
    current: Option<Current>,
    /// Number of tokens so far.
    number: u64,
    /// Number of failures since the last token.
    failures: u32,
    error: Option<TokenError>,
    /// Time of the last failure.
    failed_at: Timestamp,
    /// Time before which the endpoint is not called.
    retry_at: Timestamp,
    /// Time of the last rejection that discarded a token.
    rejected_at: Option<Timestamp>,
    random: Random,
}

/// The latest token.
#[derive(Clone)]
struct Current {
    /// Distinguishes one token from the next.
    number: u64,
    content: TokenContent,
    renew_at: Timestamp,
    expires_at: Timestamp,
    /// `true` once a provider has rejected it.
    is_rejected: bool,
}

/// The part of a token that authorizes requests.
#[derive(Clone)]
enum TokenContent {
    /// The value of `Authorization`.
    Field(Arc<Zeroizing<Vec<u8>>>),
    /// Keys of AWS, which sign requests.
    Keys(Arc<Signer>),
}

/// Counters, kept across changes of the config.
#[derive(Debug, Default)]
struct TokenCounts {
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// State of an account's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSnapshot {
    /// The state.
    pub state: TokenState,
    /// Time at which the token expires, if there is one.
    pub expires_at: Option<Timestamp>,
    /// Reason for the failure of the last fetch, if it failed.
    pub error: Option<TokenError>,
    /// Time before which the endpoint is not called again after a failure.
    pub retry_at: Option<Timestamp>,
    /// Number of tokens fetched.
    pub fetched: u64,
    /// Number of fetches that failed.
    pub failed: u64,
}

words! {
    /// The state of a token.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TokenState: word {
        /// No token has been fetched.
        Missing => "missing",
        /// The token is valid.
        Good => "good",
        /// The token has expired.
        Expired => "expired",
        /// A provider has rejected the token.
        Rejected => "rejected",
    }
}

/// State of an exchange that needs a token.
#[derive(Debug, Default)]
pub struct TokenWaiter {
    since: Option<Timestamp>,
    shared_call: Option<coalescer::Waiter>,
    /// Number of the token that the exchange uses.
    number: u64,
    /// `true` if the call is repeated because a provider rejected a token.
    has_repeated: bool,
}

/// The next step of an exchange that needs a token.
#[derive(Debug)]
pub enum TokenTurn {
    /// There is a token. With a fetch, this exchange is elected to renew the token meanwhile.
    Ready(Option<Fetch>),
    /// Wait until that time at most. With a fetch, this exchange is elected to fetch the token.
    Wait(Option<Fetch>, Timestamp),
    /// The exchange is rejected.
    Refused(Refused),
}

/// The state of the token, as one exchange sees it.
enum TokenNeed {
    Good(u64),
    /// Valid, and due for renewal.
    Due(u64),
    Missing,
    /// No valid token, and the endpoint must not be called yet.
    Failing(Timestamp, Option<TokenError>),
}

impl Token {
    /// Compiles the token of `account`, which is shared through `tokens`, and not shown in recordings because
    /// of `in_force`. If the config is the same as
    /// `before`, its whole state is kept. If the endpoint, the client and the configured refresh token are
    /// the same, the latest refresh token is kept.
    pub(super) fn compile(
        account: &Arc<str>,
        config: &OAuth2Config,
        before: Option<&Arc<Self>>,
        tokens: Option<&Arc<dyn SharedTokens>>,
        in_force: &Arc<SecretsInForce>,
        at: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Self>> {
        let tokens = tokens.filter(|_| config.is_shareable());
        let is_shared_alike = |before: &&Arc<Self>| before.sharing.is_some() == tokens.is_some();
        if let Some(before) = before.filter(is_shared_alike).filter(|before| before.config == *config) {
            return Some(Arc::clone(before));
        }
        let count = problems.len();
        // Checked below: without a key, as in a config whose secrets are not read, nothing is signed.
        let signer = config.assertion.as_ref().and_then(|assertion| AssertionSigner::compile(assertion).ok());
        config.check(at, problems);
        let endpoint = TokenEndpoint::parse(&config.token_url).ok().filter(|_| problems.len() == count)?;
        let is_same_grant = |before: &&Arc<Self>| {
            let of = |config: &OAuth2Config| {
                (config.token_url.clone(), config.client_id.clone(), config.refresh_token.clone())
            };
            of(&before.config) == of(config)
        };
        let sharing = tokens.map(|tokens| Sharing::new(account, config, tokens));
        // A version counts within one shared state.
        let is_same_sharing = |before: &&Arc<Self>| match (&before.sharing, &sharing) {
            (Some(before), Some(sharing)) => before.is_same_grant(sharing),
            (before, _) => before.is_none(),
        };
        let is_same_client = |before: &&Arc<Self>| config.is_same_client(&before.config);
        let before_grant = before.filter(is_same_grant).filter(is_same_sharing);
        let grant = before_grant.map(|before| Arc::clone(&before.grant));
        let grant = grant.unwrap_or_else(|| {
            let configured = config.refresh_token.as_ref().map_or("", |secret| secret.expose());
            let refresh_token = Zeroizing::new(configured.to_owned());
            Arc::new(Mutex::new(GrantState { refresh_token, version: 0 }))
        });
        Some(Arc::new(Self {
            account: Arc::clone(account),
            config: config.clone(),
            endpoint,
            signer,
            state: Mutex::new(
                before
                    .filter(is_same_client)
                    .map_or_else(TokenSlot::default, |before| before.state.lock().inherited()),
            ),
            coalescer: Coalescer::new(),
            grant,
            counts: before.map(|before| Arc::clone(&before.counts)).unwrap_or_default(),
            sharing,
            in_force: Arc::clone(in_force),
        }))
    }

    /// Returns the next step of an exchange that needs the token. A waiting exchange is woken once there is a
    /// token, or the fetch has failed.
    pub fn poll(self: &Arc<Self>, waiting: &mut TokenWaiter, now: Timestamp, cx: &Context<'_>) -> TokenTurn {
        let mut fetch = None;
        loop {
            // Checked again after the election: another exchange may have fetched a token meanwhile.
            let need = self.state.lock().need(now);
            match need {
                TokenNeed::Good(number) => {
                    waiting.proceed_with(number);
                    return TokenTurn::Ready(None);
                }
                TokenNeed::Due(number) => {
                    if fetch.is_none()
                        && let Some(leader) = self.coalescer.leader(THE_TOKEN, now)
                    {
                        fetch = Some(self.fetch(leader, now));
                        continue;
                    }
                    waiting.proceed_with(number);
                    return TokenTurn::Ready(fetch);
                }
                TokenNeed::Failing(retry_at, error) => {
                    return TokenTurn::Refused(self.refused(retry_at, error, now));
                }
                TokenNeed::Missing => {}
            }
            let until = *waiting.since.get_or_insert(now) + self.config.wait_max.get();
            if until <= now {
                return TokenTurn::Refused(self.refused_late(now));
            }
            if let Some(shared_call) = &mut waiting.shared_call {
                match shared_call.poll(cx) {
                    Poll::Pending => return TokenTurn::Wait(fetch, until),
                    // The next round reads the new state.
                    Poll::Ready(_) => waiting.shared_call = None,
                }
            } else {
                match self.coalescer.join(THE_TOKEN, now) {
                    coalescer::CoalescedRole::Leader(leader) => fetch = Some(self.fetch(leader, now)),
                    coalescer::CoalescedRole::Wait(shared_call) => waiting.shared_call = Some(shared_call),
                    // Not reached: a token is never marked as not shareable.
                    coalescer::CoalescedRole::Alone => return TokenTurn::Wait(fetch, until),
                }
            }
        }
    }

    /// Returns the value of `Authorization` for a call: the latest token, even if it has expired by now. The
    /// exchange has already waited for a valid one; if the provider rejects it, it responds with 401.
    pub(super) fn field(&self) -> Option<Arc<Zeroizing<Vec<u8>>>> {
        match &self.state.lock().current.as_ref()?.content {
            TokenContent::Field(field) => Some(Arc::clone(field)),
            TokenContent::Keys(_) => None,
        }
    }

    /// Returns the signer with the latest keys of AWS, as [`field`](Self::field) does with a token.
    pub(super) fn signer(&self) -> Option<Arc<Signer>> {
        match &self.state.lock().current.as_ref()?.content {
            TokenContent::Keys(signer) => Some(Arc::clone(signer)),
            TokenContent::Field(_) => None,
        }
    }

    /// Handles the rejection of the token that an exchange used. Returns `true` if the call should be
    /// repeated: there is another token or one will be fetched, and the exchange has not been repeated for
    /// this reason yet.
    pub fn reject(&self, waiting: &TokenWaiter, now: Timestamp) -> bool {
        let is_replaced = self.state.lock().reject(waiting.number, now);
        debug!(account = &*self.account, is_replaced, "a provider has refused a token");
        is_replaced && !waiting.has_repeated
    }

    /// `true` if it consists of keys of AWS.
    pub fn has_keys(&self) -> bool {
        self.config.aws.is_some()
    }

    /// Time before which no token can be had, after a failed fetch.
    pub fn failing_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state.lock().need(now) {
            TokenNeed::Failing(retry_at, _) => Some(retry_at),
            TokenNeed::Good(_) | TokenNeed::Due(_) | TokenNeed::Missing => None,
        }
    }

    /// Returns the token's state at `now`.
    pub fn snapshot(&self, now: Timestamp) -> TokenSnapshot {
        let state = self.state.lock();
        TokenSnapshot {
            state: match &state.current {
                None => TokenState::Missing,
                Some(current) if current.is_rejected => TokenState::Rejected,
                Some(current) if current.expires_at <= now => TokenState::Expired,
                Some(_) => TokenState::Good,
            },
            expires_at: state.current.as_ref().map(|current| current.expires_at),
            error: state.error,
            retry_at: Some(state.retry_at).filter(|_| state.is_left_alone(now)),
            fetched: self.counts.fetched.load(Relaxed),
            failed: self.counts.failed.load(Relaxed),
        }
    }

    /// The token endpoint; for keys of AWS, all endpoints of a fetch.
    pub fn endpoints(&self) -> impl Iterator<Item = &TokenEndpoint> {
        let sts = self.config.aws.as_ref().and_then(|aws| aws.role.as_ref()).map(|role| &role.endpoint);
        [&self.endpoint].into_iter().chain(sts)
    }

    fn fetch(self: &Arc<Self>, leader: Leader, now: Timestamp) -> Fetch {
        Fetch::new(Arc::clone(self), leader, now)
    }

    fn refused(&self, retry_at: Timestamp, error: Option<TokenError>, now: Timestamp) -> Refused {
        let why = error.map_or_else(String::new, |error| format!(": {error}"));
        let wait_s = retry_at.since(now).as_millis().div_ceil(1_000);
        let detail =
            format!("there is no token for the account {}{why}; next attempt in {wait_s} s", self.account);
        Refused { retry_at: Some(retry_at), ..Refused::new(ErrorKind::AccountUnavailable, detail) }
    }

    fn refused_late(&self, now: Timestamp) -> Refused {
        let detail = format!(
            "there is still no token for the account {} after {} (`wait_max`)",
            self.account, self.config.wait_max
        );
        Refused { retry_at: Some(now + USED_MIN), ..Refused::new(ErrorKind::AccountUnavailable, detail) }
    }

    /// Notes a failure, after which the endpoint is not called for a while. Returns that time.
    fn fail(&self, error: TokenError, now: Timestamp, requested: Option<Timestamp>) -> Duration {
        self.counts.failed.fetch_add(1, Relaxed);
        let mut state = self.state.lock();
        let wait = state.fail(&self.config.retry, error, now, requested);
        let is_good = state.is_good(now);
        drop(state);
        warn!(
            account = &*self.account,
            reason = %error,
            retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            old_token_is_good = is_good,
            "a token could not be fetched"
        );
        wait
    }

    /// Stores a token that was granted after a request at `started`.
    fn store_granted(&self, started: Timestamp, now: Timestamp, granted: Granted) {
        let Granted { access_token, life, refresh_token } = granted;
        let life = self.life(life);
        if let Some(refresh_token) = refresh_token {
            self.in_force.set_refresh_token(&self.account, &refresh_token);
            self.grant.lock().refresh_token = refresh_token;
        }
        self.counts.fetched.fetch_add(1, Relaxed);
        // The lifetime begins between the request and the response; the request is the safe bound.
        self.store_token(&access_token, life, (started + life).max(now + USED_MIN));
        debug!(account = &*self.account, life_s = life.as_secs(), "a token has been fetched");
    }

    /// Stores keys of AWS that were given after a request at `started`.
    fn store_keys(&self, started: Timestamp, now: Timestamp, keys: TemporaryKeys) {
        let Some(aws) = &self.config.aws else { return };
        let TemporaryKeys { key, expires_at } = keys;
        let life = self.life(expires_at.map(|expires_at| expires_at.since(started).min(response::LIFE_MAX)));
        // Before any exchange can use them.
        let secrets = [Some(&key.secret), key.session_token.as_ref()];
        let secrets: Vec<&str> = secrets.into_iter().flatten().map(Secret::expose).collect();
        self.in_force.set_access_token(&self.account, &secrets);
        self.counts.fetched.fetch_add(1, Relaxed);
        let signer = Arc::new(Signer::new(key, &aws.region, &aws.service));
        self.store(TokenContent::Keys(signer), life, (started + life).max(now + USED_MIN));
        debug!(account = &*self.account, life_s = life.as_secs(), "keys have been fetched");
    }

    fn store_token(&self, access_token: &str, life: Duration, expires_at: Timestamp) {
        // Before any exchange can send it.
        self.in_force.set_access_token(&self.account, &[access_token]);
        let mut field = Zeroizing::new(Vec::with_capacity(access_token.len() + 7));
        field.extend_from_slice(b"Bearer ");
        field.extend_from_slice(access_token.as_bytes());
        self.store(TokenContent::Field(Arc::new(field)), life, expires_at);
    }

    fn store(&self, content: TokenContent, life: Duration, expires_at: Timestamp) {
        let mut state = self.state.lock();
        state.number += 1;
        state.current = Some(Current {
            number: state.number,
            content,
            renew_at: expires_at - self.config.renew_before.get().min(life / 4),
            expires_at,
            is_rejected: false,
        });
        (state.failures, state.error, state.retry_at) = (0, None, Timestamp::default());
    }

    fn life(&self, granted: Option<Duration>) -> Duration {
        granted.unwrap_or(self.config.default_life.get())
    }

    /// Takes over what another gateway has fetched. Returns `true` if its access token can be used here.
    fn adopt(&self, shared: &SharedTokenState, now: Timestamp) -> bool {
        let mut grant = self.grant.lock();
        if shared.version <= grant.version {
            return false;
        }
        // A state that cannot be read leaves the version as it is: its refresh token is not known here.
        let Some(stored) = StoredState::load(&shared.content) else { return false };
        grant.version = shared.version;
        if let Some(WipedText(refresh_token)) = stored.refresh_token {
            self.in_force.set_refresh_token(&self.account, &refresh_token);
            grant.refresh_token = refresh_token;
        }
        drop(grant);
        let is_for_same_request =
            self.sharing.as_ref().is_some_and(|sharing| sharing.request() == stored.request);
        let life = Duration::from_millis(stored.life_ms);
        let used = Duration::from_millis(stored.used_ms).saturating_add(shared.age);
        let WipedText(access_token) = stored.access_token;
        if !is_for_same_request || used >= life || !response::is_sendable(&access_token) {
            return false;
        }
        self.store_token(&access_token, life, now + life.saturating_sub(used));
        debug!(account = &*self.account, version = shared.version, "another gateway has fetched a token");
        true
    }

    /// Returns what the other gateways need to know of a token that was granted.
    fn shared_state(&self, granted: &Granted, started: Timestamp, now: Timestamp) -> Option<StoredState> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let refresh_token =
            granted.refresh_token.clone().unwrap_or_else(|| self.grant.lock().refresh_token.clone());
        Some(StoredState {
            request: self.sharing.as_ref()?.request(),
            access_token: WipedText(granted.access_token.clone()),
            life_ms: millis(self.life(granted.life)),
            used_ms: millis(now.since(started)),
            refresh_token: Some(WipedText(refresh_token)).filter(|WipedText(text)| !text.is_empty()),
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.account)
    }
}

impl TokenSlot {
    /// Returns a slot with the same token, and without the failures.
    fn inherited(&self) -> Self {
        Self { current: self.current.clone(), number: self.number, ..Self::default() }
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.current.as_ref().is_some_and(|current| !current.is_rejected && now < current.expires_at)
    }

    fn is_left_alone(&self, now: Timestamp) -> bool {
        self.failed_at <= now + AHEAD_MAX && now < self.retry_at
    }

    fn need(&self, now: Timestamp) -> TokenNeed {
        let is_left_alone = self.is_left_alone(now);
        match &self.current {
            Some(current) if self.is_good(now) => {
                let is_due = current.renew_at <= now && !is_left_alone;
                if is_due { TokenNeed::Due(current.number) } else { TokenNeed::Good(current.number) }
            }
            _ if is_left_alone => TokenNeed::Failing(self.retry_at, self.error),
            _ => TokenNeed::Missing,
        }
    }

    /// Discards the token with that number if it is still the current one. Returns `true` if there is another
    /// token, or one will be fetched.
    fn reject(&mut self, number: u64, now: Timestamp) -> bool {
        let Some(current) = &mut self.current else { return false };
        if current.number != number || current.is_rejected {
            return true;
        }
        let is_recent = |before: Timestamp| before <= now + AHEAD_MAX && now < before + REJECTION_INTERVAL;
        if self.rejected_at.is_some_and(is_recent) {
            return false;
        }
        self.rejected_at = Some(now);
        current.is_rejected = true;
        true
    }

    /// Blocks calls to the endpoint after a failure, at least until the time that it has `requested`, within
    /// bounds. Returns the wait.
    fn fail(
        &mut self,
        config: &OAuth2RetryConfig,
        error: TokenError,
        now: Timestamp,
        requested: Option<Timestamp>,
    ) -> Duration {
        let factor = if error.is_lasting() { LASTING_FACTOR } else { 1 };
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let longest = config.base.get().saturating_mul(doubled).min(config.max.get()).saturating_mul(factor);
        let half_ms = u64::try_from(longest.as_millis() / 2).unwrap_or(u64::MAX);
        let wait = longest / 2 + Duration::from_millis(self.random.up_to(half_ms));
        let requested = requested.map_or(Duration::ZERO, |requested| requested.since(now));
        let wait = wait.max(requested.min(config.max.get().saturating_mul(LASTING_FACTOR)));
        // A store that is away says nothing about the endpoint.
        if error != TokenError::StoreAway {
            self.failures = self.failures.saturating_add(1);
        }
        self.error = Some(error);
        (self.failed_at, self.retry_at) = (now, now + wait);
        wait
    }
}

impl TokenWaiter {
    /// Returns `true` if the exchange is waiting now.
    pub fn is_under_way(&self) -> bool {
        self.since.is_some()
    }

    /// Ends the wait, with the token of that number.
    fn proceed_with(&mut self, number: u64) {
        self.number = number;
        self.since = None;
        self.shared_call = None;
    }

    /// Notes that the call is repeated because its token was rejected.
    pub fn repeat(&mut self) {
        self.has_repeated = true;
    }
}
