//! Tokens that gateways share, with a cluster that answers as told.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use egret_config::Secret;
use egret_message::KnownProvider;
use egret_store::SharedState;
use egret_store::shared::{
    ClaimRefusal, Election, SharedTokenState, SharedTokens, TokenAnswer, TokenClaim, TokenIdentity,
    TokenOutcome,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::{AccountConfigs, Accounts};

const START: Timestamp = Timestamp::from_secs(1_000_000);

fn at_s(after_s: u64) -> Timestamp {
    START + Duration::from_secs(after_s)
}

/// A cluster that keeps the claims until the test answers them.
#[derive(Debug, Default)]
struct Cluster {
    claims: Mutex<Vec<TokenClaim>>,
}

impl SharedTokens for Cluster {
    fn open(&self, _: &Arc<TokenIdentity>) {}

    fn claim(&self, claim: TokenClaim) {
        self.claims.lock().unwrap().push(claim);
    }
}

impl Cluster {
    /// The only claim that waits.
    fn claim(&self) -> TokenClaim {
        let mut claims = self.claims.lock().unwrap();
        assert_eq!(claims.len(), 1);
        claims.remove(0)
    }

    /// Answers the only claim, which must know this version.
    fn answer(&self, known: u64, answer: TokenAnswer) {
        let claim = self.claim();
        assert_eq!(claim.known, known);
        claim.answer.send(answer).unwrap();
    }

    /// Elects the only claim.
    fn elect(&self, latest: Option<SharedTokenState>, version: u64) -> oneshot::Receiver<TokenOutcome> {
        let (outcome, waiting) = oneshot::channel();
        let claim = self.claim();
        claim.answer.send(TokenAnswer::Elected(Election { latest, version, outcome })).unwrap();
        waiting
    }
}

/// Compiles the token of a gateway in `cluster`, which uses this refresh token if it is not empty.
fn token(cluster: &Arc<Cluster>, refresh_token: &str, scope: &str) -> Arc<Token> {
    let oauth2 = json!({ "token_url": "https://id.example/token", "client_id": "me", "scope": [scope] });
    let mut configs: AccountConfigs =
        serde_json::from_value(json!({ "a": { "provider": "one", "oauth2": oauth2 } })).unwrap();
    if !refresh_token.is_empty() {
        let oauth2 = configs.get_mut("a").and_then(|account| account.oauth2.as_mut()).unwrap();
        oauth2.grant = Grant::RefreshToken;
        oauth2.refresh_token = Some(Secret::from_value("${env:REFRESH}", refresh_token.to_owned()));
    }
    let tokens: Arc<dyn SharedTokens> = Arc::<Cluster>::clone(cluster);
    let shared = SharedState { tokens: Some(&tokens), ..SharedState::default() };
    let providers = [KnownProvider { name: "one", host: None, tls: true }];
    let mut problems = Vec::new();
    let accounts = Accounts::compile(&configs, &providers, shared, None, &mut problems);
    assert_eq!(problems, []);
    Arc::clone(accounts.get(0).unwrap().token().unwrap())
}

fn poll(token: &Arc<Token>, now: Timestamp) -> TokenTurn {
    token.poll(&mut TokenWaiter::default(), now, &Context::from_waker(Waker::noop()))
}

/// Returns the fetch of an exchange that finds no token, or an old one.
fn elected_here(token: &Arc<Token>, now: Timestamp) -> Fetch {
    match poll(token, now) {
        TokenTurn::Wait(Some(fetch), _) | TokenTurn::Ready(Some(fetch)) => fetch,
        other => panic!("{other:?}"),
    }
}

/// Runs a fetch until it waits for the cluster. The inner option is empty if the fetch is over.
#[expect(clippy::option_option, reason = "a fetch that waits, and one that is over, are two things")]
fn admitted(fetch: Fetch, now: Timestamp, answer: impl FnOnce()) -> Option<Option<Fetch>> {
    let mut admission = pin!(fetch.admitted(move || now));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(admission.as_mut().poll(&mut cx).is_pending());
    answer();
    match admission.poll(&mut cx) {
        Poll::Ready(fetch) => Some(fetch),
        Poll::Pending => None,
    }
}

fn grant(fetch: Fetch, now: Timestamp, more: &str) {
    let body = format!(r#"{{"access_token":"granted","token_type":"bearer","expires_in":100{more}}}"#);
    fetch.end(now, Ok(TokenResponse { status: 200, retry_after: None, body: body.as_bytes() }));
}

fn sent(token: &Token) -> String {
    String::from_utf8(token.field().unwrap().to_vec()).unwrap()
}

fn requested(fetch: &Fetch) -> String {
    String::from_utf8(fetch.request().unwrap().to_vec()).unwrap()
}

/// Returns what the other gateways get from this outcome.
#[expect(clippy::match_wildcard_for_single_variants, reason = "any other outcome is a failure")]
fn shared(waiting: &mut oneshot::Receiver<TokenOutcome>, version: u64, age_s: u64) -> SharedTokenState {
    match waiting.try_recv().unwrap() {
        TokenOutcome::Granted { content, .. } => {
            SharedTokenState { version, content, age: Duration::from_secs(age_s) }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fetched_token_is_used_by_another_gateway() {
    let (here, there) = (Arc::new(Cluster::default()), Arc::new(Cluster::default()));
    let first = token(&here, "", "x");
    let mut waiting = None;
    let fetch = admitted(elected_here(&first, START), START, || waiting = Some(here.elect(None, 1)));
    grant(fetch.unwrap().unwrap(), START, "");
    assert!(matches!(poll(&first, START), TokenTurn::Ready(None)));

    let second = token(&there, "", "x");
    let state = shared(waiting.as_mut().unwrap(), 1, 30);
    let fetch = elected_here(&second, at_s(30));
    assert!(admitted(fetch, at_s(30), || there.answer(0, TokenAnswer::Newer(state))).unwrap().is_none());
    assert!(matches!(poll(&second, at_s(30)), TokenTurn::Ready(None)));
    assert_eq!(sent(&second), "Bearer granted");
    let snapshot = second.snapshot(at_s(30));
    assert_eq!((snapshot.expires_at, snapshot.fetched), (Some(at_s(100)), 0));
}

#[test]
fn a_rotated_refresh_token_is_used_next_by_whichever_gateway_is_elected() {
    let (here, there) = (Arc::new(Cluster::default()), Arc::new(Cluster::default()));
    let first = token(&here, "r1", "x");
    let mut waiting = None;
    let fetch = admitted(elected_here(&first, START), START, || waiting = Some(here.elect(None, 1)));
    let fetch = fetch.unwrap().unwrap();
    assert!(requested(&fetch).contains("refresh_token=r1&"));
    grant(fetch, START, r#","refresh_token":"r2""#);
    let outcome = waiting.as_mut().unwrap();

    // Its access token is over, so the other gateway gets the right, and the refresh token with it.
    let second = token(&there, "r1", "x");
    let latest = shared(outcome, 1, 100);
    let fetch = admitted(elected_here(&second, at_s(100)), at_s(100), || drop(there.elect(Some(latest), 2)));
    assert!(requested(&fetch.unwrap().unwrap()).contains("refresh_token=r2&"));
}

#[test]
fn gateways_with_other_scopes_share_the_refresh_token_alone() {
    let (here, there) = (Arc::new(Cluster::default()), Arc::new(Cluster::default()));
    let (first, second) = (token(&here, "r1", "x"), token(&there, "r1", "y"));
    let mut waiting = None;
    let fetch = admitted(elected_here(&first, START), START, || waiting = Some(here.elect(None, 1)));
    grant(fetch.unwrap().unwrap(), START, r#","refresh_token":"r2""#);
    let state = shared(waiting.as_mut().unwrap(), 1, 0);
    let fetch = elected_here(&second, START);
    // The first answer leads to a second claim, which knows the version.
    assert!(admitted(fetch, START, || there.answer(0, TokenAnswer::Newer(state))).is_none());
    assert!(second.field().is_none());
    assert_eq!(there.claim().known, 1);
    assert_eq!(*second.grant.lock().refresh_token, "r2");
}

#[test]
fn an_older_state_changes_nothing() {
    let cluster = Arc::new(Cluster::default());
    let token = token(&cluster, "r1", "x");
    let mut waiting = None;
    let fetch = admitted(elected_here(&token, START), START, || waiting = Some(cluster.elect(None, 7)));
    grant(fetch.unwrap().unwrap(), START, r#","refresh_token":"r2""#);
    let TokenOutcome::Granted { content, .. } = waiting.unwrap().try_recv().unwrap() else { panic!() };
    token.grant.lock().refresh_token = Zeroizing::new("r3".to_owned());
    for version in [1, 7] {
        let state = SharedTokenState { version, content: content.clone(), age: Duration::ZERO };
        assert!(!token.adopt(&state, START), "{version}");
    }
    assert_eq!(*token.grant.lock().refresh_token, "r3");
}

#[test]
fn without_the_store_only_a_token_without_a_refresh_token_is_fetched() {
    let cluster = Arc::new(Cluster::default());
    let fetch = elected_here(&token(&cluster, "", "x"), START);
    let fetch = admitted(fetch, START, || cluster.answer(0, TokenAnswer::Refused(ClaimRefusal::Away)));
    assert!(!fetch.unwrap().unwrap().is_shared());

    let exclusive = token(&cluster, "r1", "x");
    for (refusal, reason) in [
        (ClaimRefusal::Away, TokenError::StoreAway),
        (ClaimRefusal::Busy, TokenError::Elsewhere),
        (ClaimRefusal::Doubt, TokenError::InDoubt),
    ] {
        let now = exclusive.snapshot(START).retry_at.unwrap_or(START);
        let fetch = elected_here(&exclusive, now);
        assert!(admitted(fetch, now, || cluster.answer(0, TokenAnswer::Refused(refusal))).unwrap().is_none());
        let TokenTurn::Refused(refused) = poll(&exclusive, now) else { panic!() };
        assert!(refused.detail.contains(&reason.to_string()), "{}", refused.detail);
    }
}

#[test]
fn a_claim_that_nobody_answers_counts_as_a_store_that_is_away() {
    let cluster = Arc::new(Cluster::default());
    let exclusive = token(&cluster, "r1", "x");
    let fetch = elected_here(&exclusive, START);
    assert!(admitted(fetch, START, || drop(cluster.claim())).unwrap().is_none());
    assert_eq!(exclusive.snapshot(START).error, Some(TokenError::StoreAway));
}

#[test]
fn a_failed_fetch_delays_the_other_gateways_too() {
    let cluster = Arc::new(Cluster::default());
    let token = token(&cluster, "", "x");
    let mut waiting = None;
    let fetch = admitted(elected_here(&token, START), START, || waiting = Some(cluster.elect(None, 1)));
    fetch
        .unwrap()
        .unwrap()
        .end(START, Ok(TokenResponse { status: 503, retry_after: Some(b"20"), body: b"" }));
    let outcome = waiting.unwrap().try_recv().unwrap();
    let TokenOutcome::Failed(wait) = outcome else { panic!("{outcome:?}") };
    assert_eq!(wait, Duration::from_secs(20));
}

#[test]
fn a_refused_token_is_replaced_by_a_newer_one() {
    let (here, there) = (Arc::new(Cluster::default()), Arc::new(Cluster::default()));
    let (first, second) = (token(&here, "", "x"), token(&there, "", "x"));
    let mut states = Vec::new();
    for version in 1..=2 {
        let mut waiting = None;
        let now = at_s(version * 100);
        let fetch = admitted(elected_here(&first, now), now, || waiting = Some(here.elect(None, version)));
        grant(fetch.unwrap().unwrap(), now, "");
        states.push(shared(waiting.as_mut().unwrap(), version, 0));
    }
    let newer = states.pop().unwrap();
    let fetch = elected_here(&second, START);
    admitted(fetch, START, || there.answer(0, TokenAnswer::Newer(states.remove(0)))).unwrap();
    let mut waiter = TokenWaiter::default();
    let cx = Context::from_waker(Waker::noop());
    assert!(matches!(second.poll(&mut waiter, START, &cx), TokenTurn::Ready(None)));
    assert!(second.reject(&waiter, START));
    let fetch = elected_here(&second, START);
    assert!(admitted(fetch, START, || there.answer(1, TokenAnswer::Newer(newer))).unwrap().is_none());
    assert!(matches!(poll(&second, START), TokenTurn::Ready(None)));
}
