//! One claim of a token, from the question to the store until the outcome of the fetch is stored.

use std::sync::Arc;
use std::time::Duration;

use egret_store::shared::{
    ClaimRefusal, Election, SharedTokenState, StoredToken, TokenAnswer, TokenCalls, TokenClaim,
    TokenIdentity, TokenOutcome, TokenReply,
};
use redis::cmd;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;

use super::{EXCLUSIVE_TTL, QUESTION, TokenContext, millis, reply};
use crate::connection::StoreTrouble;
use crate::link::Message;
use crate::store_calls::ReadyStore;

/// Time by which a lock lasts longer than the fetch: for the calls to the store.
const LOCK_MARGIN: Duration = Duration::from_secs(5);
/// Interval at which a claim that waits looks again, in case a message is lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Claim {
    context: Arc<TokenContext>,
    identity: Arc<TokenIdentity>,
    name: String,
    /// The newest version that the asker knows.
    known: u64,
    timeout: Duration,
    answer: oneshot::Sender<TokenAnswer>,
    messages: broadcast::Receiver<Message>,
}

/// The result of a search.
enum Found {
    Newer(SharedTokenState),
    /// The right to fetch, with the newest state, and the version of the result.
    Right(Option<SharedTokenState>, u64),
    Refused(ClaimRefusal),
}

impl Claim {
    pub(super) fn new(context: Arc<TokenContext>, claim: TokenClaim) -> Self {
        let TokenClaim { identity, known, timeout, answer } = claim;
        let (name, messages) = (context.name(&identity), context.messages.subscribe());
        Self { context, identity, name, known, timeout, answer, messages }
    }

    /// Answers the claim. If this gateway is elected, waits for the outcome and stores it.
    pub(super) async fn run(mut self) {
        let is_exclusive = self.identity.is_exclusive;
        let Some(calls) = self.context.calls(&self.name, is_exclusive) else { return };
        let found = self.seek(&calls).await;
        let Self { context, identity, answer, .. } = self;
        let right = |version| Right::new(context, identity, calls, version);
        // The asker may be gone: the gateway stops. It has used nothing then.
        match found {
            Ok(Found::Newer(state)) => drop(answer.send(TokenAnswer::Newer(state))),
            Ok(Found::Refused(refusal)) => drop(answer.send(TokenAnswer::Refused(refusal))),
            Ok(Found::Right(latest, version)) => {
                let (outcome, waiting) = oneshot::channel();
                let right = right(version);
                match answer.send(TokenAnswer::Elected(Election { latest, version, outcome })) {
                    Ok(()) => right.finish(waiting).await,
                    Err(_) => right.release(Duration::ZERO).await,
                }
            }
            Err(error) => {
                let _ = answer.send(TokenAnswer::Refused(ClaimRefusal::Away));
                let right = right(0);
                log(&right.identity, Err(error));
                // The store may have given the right, though its reply is lost.
                right.release(Duration::ZERO).await;
            }
        }
    }

    /// Time to live of a lock.
    fn lock(&self) -> Duration {
        let learn = if self.identity.is_exclusive { self.context.learn } else { Duration::ZERO };
        self.timeout + learn + LOCK_MARGIN
    }

    /// Asks the store until there is a newer state, or this gateway is elected.
    async fn seek(&mut self, calls: &TokenCalls) -> Result<Found, StoreTrouble> {
        let deadline = Instant::now() + self.lock();
        while Instant::now() < deadline && !self.answer.is_closed() {
            let Some(store) = self.context.ready().await else {
                return Ok(Found::Refused(ClaimRefusal::Away));
            };
            match reply(&store, &calls.claim(self.known, millis(self.lock()))).await? {
                TokenReply::Newer(stored) => match self.context.opened(&self.identity, &stored) {
                    Some(state) => {
                        self.note(&stored).await;
                        return Ok(Found::Newer(state));
                    }
                    // Nobody can use this state, so the next one needs a later version.
                    None => self.known = stored.version,
                },
                TokenReply::Busy(left_ms) => self.changed(Duration::from_millis(left_ms)).await,
                TokenReply::Doubt => return Ok(Found::Refused(ClaimRefusal::Doubt)),
                TokenReply::Elected(stored) => return self.elected(&store, calls, stored).await,
                _ => return Ok(Found::Refused(ClaimRefusal::Away)),
            }
        }
        Ok(Found::Refused(ClaimRefusal::Busy))
    }

    /// Prepares the fetch of an elected gateway.
    async fn elected(
        &self,
        store: &ReadyStore,
        calls: &TokenCalls,
        stored: StoredToken,
    ) -> Result<Found, StoreTrouble> {
        if !self.identity.is_exclusive {
            return Ok(Found::Right(None, self.known.max(stored.version) + 1));
        }
        let known = self.known.max(self.context.newest(&self.name).version);
        let is_whole = stored.version > 0
            && stored.version >= known
            && stored.incarnation == store.incarnation.as_bytes();
        if !is_whole {
            self.learn(store).await?;
        }
        if self.answer.is_closed() {
            reply(store, &calls.release(0)).await?;
            return Ok(Found::Refused(ClaimRefusal::Away));
        }
        let begun = reply(store, &calls.begin(&store.incarnation, millis(EXCLUSIVE_TTL))).await?;
        let TokenReply::Begun(stored) = begun else { return Ok(Found::Refused(ClaimRefusal::Busy)) };
        let opened = self.context.opened(&self.identity, &stored);
        if opened.is_some() {
            self.note(&stored).await;
        }
        let own = self.context.newest(&self.name);
        let version = self.known.max(stored.version).max(own.version) + 1;
        let own_state = self.context.opened(&self.identity, &own);
        let latest = opened.filter(|state| state.version >= own.version).or(own_state);
        Ok(Found::Right(latest, version))
    }

    /// Gives the other gateways time to offer a newer state: the store may have lost it.
    async fn learn(&self, store: &ReadyStore) -> Result<(), StoreTrouble> {
        let context = &self.context;
        let question = [&[QUESTION], context.shard.token(&self.name).as_slice()].concat();
        let channel = context.shard.token_channel();
        let () = store.connection.query(cmd("PUBLISH").arg(channel).arg(question)).await?;
        tracing::info!(
            account = &*self.identity.account,
            "the store of the cluster may have lost a refresh token: waiting for the other gateways (`learn_for`)"
        );
        tokio::time::sleep(context.learn).await;
        Ok(())
    }

    async fn note(&self, stored: &StoredToken) {
        if self.identity.is_exclusive {
            self.context.note(&self.identity, stored).await;
        }
    }

    /// Waits until the token has changed, or it is time to look again.
    async fn changed(&mut self, at_most: Duration) {
        let (channel, key) = (self.context.shard.token_channel(), self.context.shard.token(&self.name));
        let messages = &mut self.messages;
        let changed = async {
            while let Ok(message) = messages.recv().await {
                if *message.channel == *channel && *message.content == *key {
                    return;
                }
            }
        };
        let wait = at_most.clamp(Duration::from_millis(1), LOOK_INTERVAL);
        // A timeout is another reason to look.
        let _ = tokio::time::timeout(wait, changed).await;
    }
}

/// The right to fetch, which this gateway has.
struct Right {
    context: Arc<TokenContext>,
    identity: Arc<TokenIdentity>,
    calls: TokenCalls,
    version: u64,
}

impl Drop for Right {
    fn drop(&mut self) {
        self.context.rights.send_modify(|count| *count -= 1);
    }
}

impl Right {
    fn new(
        context: Arc<TokenContext>,
        identity: Arc<TokenIdentity>,
        calls: TokenCalls,
        version: u64,
    ) -> Self {
        context.rights.send_modify(|count| *count += 1);
        Self { context, identity, calls, version }
    }

    async fn finish(self, waiting: oneshot::Receiver<TokenOutcome>) {
        match waiting.await {
            Ok(TokenOutcome::Granted { content, life, is_reusable }) => {
                let sealed = self.context.seal(&self.identity, self.version, &content);
                drop(content);
                if let Some(sealed) = sealed {
                    self.store(&sealed, life, is_reusable).await;
                }
            }
            Ok(TokenOutcome::Failed(wait)) => self.release(wait).await,
            Err(_) if self.identity.is_exclusive => {
                tracing::error!(
                    account = &*self.identity.account,
                    "a fetch was cut off: no gateway uses its refresh token again"
                );
            }
            Err(_) => self.release(Duration::ZERO).await,
        }
    }

    /// Stores a state. An exclusive one is stored on disk first, and then as soon as the store can be used.
    async fn store(&self, sealed: &[u8], life: Duration, is_reusable: bool) {
        let Self { context, identity, calls, version } = self;
        if !identity.is_exclusive {
            let Some(store) = context.ready().await else { return };
            let call = calls.store(*version, sealed, millis(life).max(1), &store.incarnation, true);
            return log(identity, reply(&store, &call).await);
        }
        let state = StoredToken { version: *version, sealed: sealed.to_vec(), ..StoredToken::default() };
        context.note(identity, &state).await;
        let ttl_ms = millis(EXCLUSIVE_TTL);
        loop {
            let Some(store) = context.ready().await else { continue };
            match reply(&store, &calls.store(*version, sealed, ttl_ms, &store.incarnation, is_reusable)).await
            {
                Ok(TokenReply::Refused) => break,
                Ok(_) => return,
                Err(error) => log(identity, Err(error)),
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        // The store has lost the note of this use, so the state is as good as any that a gateway knows.
        if let Some(store) = context.ready().await {
            log(identity, reply(&store, &calls.offer(*version, sealed, ttl_ms, 0)).await);
        }
        self.release(Duration::ZERO).await;
    }

    /// Returns the right. That of an exclusive token does not end by itself, so it is returned for certain.
    async fn release(&self, wait: Duration) {
        let mut wait = wait;
        loop {
            if let Some(store) = self.context.ready().await {
                match reply(&store, &self.calls.release(millis(wait))).await {
                    Ok(_) => return,
                    Err(error) => log(&self.identity, Err(error)),
                }
            }
            if !self.identity.is_exclusive {
                return;
            }
            wait = wait.saturating_sub(LOOK_INTERVAL);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

fn log(identity: &TokenIdentity, replied: Result<TokenReply, StoreTrouble>) {
    if let Err(error) = replied {
        tracing::debug!(%error, account = &*identity.account, "a token cannot be shared");
    }
}
