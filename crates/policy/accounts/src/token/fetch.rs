//! One fetch of a token: admitted by the other gateways of a cluster, sent by the gateway, and ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::{Timestamp, retry_after};
use egret_store::coalescer::Leader;
use egret_store::shared::{ClaimRefusal, Election, TokenAnswer, TokenOutcome};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::aws::step::{KeyAnswer, KeyStep};
use super::config::Grant;
use super::endpoint::TokenEndpoint;
use super::request::RequestParts;
use super::response::{Granted, TokenError};
use super::shared::Sharing;
use super::{Token, request, response};

/// Maximum number of claims of one fetch. Each is caused by a newer state whose token cannot be used here.
const CLAIMS_MAX: usize = 4;

/// A token fetch to perform. If this is dropped, the fetch is given up, and another exchange is elected.
pub struct Fetch {
    token: Arc<Token>,
    leader: Leader,
    started: Timestamp,
    admission: Admission,
    /// The next step, for keys of AWS.
    step: Option<Box<KeyStep>>,
}

/// The relation of a fetch to the other gateways of a cluster.
enum Admission {
    /// None: the gateway fetches for itself.
    Alone,
    /// They have been asked.
    Claimed(oneshot::Receiver<TokenAnswer>),
    /// They wait for the outcome, which has this version.
    Elected(u64, oneshot::Sender<TokenOutcome>),
}

/// The response of a token endpoint.
#[derive(Clone, Copy)]
pub struct TokenResponse<'a> {
    /// The status code.
    pub status: u16,
    /// The value of `Retry-After`, if present.
    pub retry_after: Option<&'a [u8]>,
    /// The whole body.
    pub body: &'a [u8],
}

/// A response of a token endpoint that holds its parts.
pub struct FetchedResponse {
    /// The status code.
    pub status: u16,
    /// The value of `Retry-After`, if present.
    pub retry_after: Option<Vec<u8>>,
    /// The whole body.
    pub body: Zeroizing<Vec<u8>>,
}

impl FetchedResponse {
    /// Returns the response for [`Fetch::end`].
    pub fn borrowed(&self) -> TokenResponse<'_> {
        let Self { status, retry_after, body } = self;
        TokenResponse { status: *status, retry_after: retry_after.as_deref(), body }
    }
}

impl Fetch {
    pub(super) fn new(token: Arc<Token>, leader: Leader, now: Timestamp) -> Self {
        let admission = claim(&token);
        let step = token.config.aws.as_ref().map(|aws| Box::new(aws.first.clone()));
        Self { token, leader, started: now, admission, step }
    }

    /// The token endpoint, or that of the next step.
    pub fn endpoint(&self) -> &TokenEndpoint {
        self.step.as_ref().map_or(&self.token.endpoint, |step| step.endpoint())
    }

    /// The account's name.
    pub fn account(&self) -> &str {
        &self.token.account
    }

    /// `true` if other gateways wait for the outcome.
    pub fn is_shared(&self) -> bool {
        matches!(self.admission, Admission::Elected(..))
    }

    /// Maximum duration of the request and its response.
    pub fn timeout(&self) -> Duration {
        self.token.config.timeout.get()
    }

    /// Waits for the other gateways of a cluster that share the token. Returns the fetch to perform, or
    /// `None` if it is over: there is a token, or a reason why there is none.
    pub async fn admitted(mut self, now: impl Fn() -> Timestamp) -> Option<Self> {
        for _ in 0..CLAIMS_MAX {
            let Admission::Claimed(answered) = &mut self.admission else { return Some(self) };
            let answer = answered.await.unwrap_or(TokenAnswer::Refused(ClaimRefusal::Away));
            self.started = now();
            match answer {
                TokenAnswer::Newer(state) if self.token.adopt(&state, self.started) => {
                    self.leader.finish();
                    return None;
                }
                TokenAnswer::Newer(_) => self.admission = claim(&self.token),
                TokenAnswer::Elected(election) => return self.elected(election),
                TokenAnswer::Refused(ClaimRefusal::Away) if !self.is_exclusive() => {
                    self.admission = Admission::Alone;
                    return Some(self);
                }
                TokenAnswer::Refused(refusal) => return self.refuse(refusal),
            }
        }
        self.refuse(ClaimRefusal::Busy)
    }

    /// Takes over the right to fetch, unless the latest state makes the fetch unnecessary or impossible.
    fn elected(mut self, election: Election) -> Option<Self> {
        let Election { latest, version, outcome } = election;
        let is_good = latest.as_ref().is_some_and(|latest| self.token.adopt(latest, self.started));
        let is_behind = latest.is_some_and(|latest| latest.version > self.token.grant.lock().version);
        if !(is_good || is_behind && self.is_exclusive()) {
            self.admission = Admission::Elected(version, outcome);
            return Some(self);
        }
        // If the thread of the cluster is gone, there is nobody to tell.
        let _ = outcome.send(TokenOutcome::Failed(Duration::ZERO));
        if !is_good {
            return self.refuse(ClaimRefusal::Doubt);
        }
        self.leader.finish();
        None
    }

    fn is_exclusive(&self) -> bool {
        self.token.sharing.as_ref().is_some_and(Sharing::is_exclusive)
    }

    fn refuse(self, refusal: ClaimRefusal) -> Option<Self> {
        let error = match refusal {
            ClaimRefusal::Away => TokenError::StoreAway,
            ClaimRefusal::Busy => TokenError::Elsewhere,
            ClaimRefusal::Doubt => TokenError::InDoubt,
        };
        self.token.fail(error, self.started, None);
        self.leader.finish();
        None
    }

    /// Returns the whole request, as an HTTP/1.1 message.
    ///
    /// # Errors
    ///
    /// Fails if the request has an assertion that cannot be signed, or a token whose file cannot be read.
    pub fn request(&self) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let Token { config, endpoint, signer, .. } = &*self.token;
        if let Some(step) = &self.step {
            return step.request(self.started);
        }
        let refresh_token = &self.token.grant.lock().refresh_token;
        let parts = RequestParts { endpoint, refresh_token, signer: signer.as_ref(), now: self.started };
        request::request(config, &parts).ok_or(TokenError::Unsigned)
    }

    /// `true` if the endpoint is a service of this machine, which is called through no proxy and with the
    /// settings of no provider.
    pub fn is_of_machine(&self) -> bool {
        self.step.as_ref().map_or_else(|| self.token.config.is_of_machine(), |step| step.is_of_machine())
    }

    /// Handles the response. Returns the fetch again if it has one more request. Otherwise stores the result,
    /// shares it, and wakes all waiters.
    pub fn end(mut self, now: Timestamp, response: Result<TokenResponse<'_>, TokenError>) -> Option<Self> {
        let requested = response.as_ref().ok().and_then(|response| response.retry_after);
        let requested = requested.and_then(|value| retry_after::read(value, now));
        if let Some(step) = self.step.take() {
            match self.answered(*step, now, response) {
                Ok(KeyAnswer::Next(step)) => {
                    // Its request is signed, and its keys count, from now on.
                    (self.step, self.started) = (Some(Box::new(step)), now);
                    return Some(self);
                }
                Ok(KeyAnswer::Keys(keys)) => self.token.store_keys(self.started, now, keys),
                Err(error) => {
                    self.token.fail(error, now, requested);
                }
            }
            self.leader.finish();
            return None;
        }
        let granted = response.and_then(|TokenResponse { status, body, .. }| {
            if self.token.config.grant == Grant::Installation {
                response::read_installation(status, body, now)
            } else {
                response::read(status, body)
            }
        });
        let Self { token, leader, started, admission, .. } = self;
        let outcome = match granted {
            Ok(granted) => {
                let outcome = outcome(&token, &granted, started, now);
                token.store_granted(started, now, granted);
                outcome
            }
            Err(error) => Some(TokenOutcome::Failed(token.fail(error, now, requested))),
        };
        if let (Admission::Elected(version, waiting), Some(outcome)) = (admission, outcome) {
            if matches!(outcome, TokenOutcome::Granted { .. }) {
                token.grant.lock().version = version;
            }
            // If the thread of the cluster is gone, there is nobody to tell.
            let _ = waiting.send(outcome);
        }
        leader.finish();
        None
    }

    /// Reads the response to a step of a fetch of keys.
    fn answered(
        &self,
        step: KeyStep,
        now: Timestamp,
        response: Result<TokenResponse<'_>, TokenError>,
    ) -> Result<KeyAnswer, TokenError> {
        let response = response.map_err(|error| match error {
            TokenError::Unreachable(slug) => TokenError::KeysUnreachable(step.service(), slug),
            other => other,
        })?;
        let role = self.token.config.aws.as_ref().and_then(|aws| aws.role.as_ref());
        step.answered(role, response.status, response.body, now)
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fetch({})", self.token.account)
    }
}

fn claim(token: &Token) -> Admission {
    match &token.sharing {
        None => Admission::Alone,
        Some(sharing) => Admission::Claimed(sharing.claim(token.grant.lock().version)),
    }
}

/// Returns the outcome that the other gateways get.
fn outcome(token: &Token, granted: &Granted, started: Timestamp, now: Timestamp) -> Option<TokenOutcome> {
    let state = token.shared_state(granted, started, now)?;
    let is_replaced =
        granted.refresh_token.as_ref().is_some_and(|new| *new != token.grant.lock().refresh_token);
    Some(TokenOutcome::Granted {
        content: state.save(),
        life: Duration::from_millis(state.life_ms.saturating_sub(state.used_ms)),
        is_reusable: !is_replaced,
    })
}
