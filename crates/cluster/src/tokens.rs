//! Tokens of accounts, fetched once for all gateways of a cluster.
//!
//! Each claim is a task of its own: it asks the store, waits while another gateway fetches, and stores the
//! outcome of this gateway's fetch. The newest state of each exclusive token is also known here and on disk,
//! and is offered to a store that may have lost it.

mod claim;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use egret_store::shared::{
    ScriptCall, Shard, SharedTokenState, SharedTokens, StoredToken, TOKEN_SCRIPT, TokenCalls, TokenClaim,
    TokenIdentity, TokenReply,
};
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use self::claim::Claim;
use super::connection::StoreTrouble;
use super::facts::{self, SharedFacts, StoreResult};
use super::link::{LinkSender, Message};
use super::seal::ClusterKey;
use super::store_calls::{ReadyStore, ready};
use super::token_files::TokenFiles;

/// Time for which the store keeps the state of an exclusive token that nobody fetches.
const EXCLUSIVE_TTL: Duration = Duration::from_hours(90 * 24);
/// Time for the outcomes of the last fetches to be stored.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Precedes the key of a token, if a gateway asks the others for what they know of it.
const QUESTION: u8 = b'?';

/// A message to the task.
pub(super) enum TokenAsk {
    Open(Weak<TokenIdentity>),
    Claim(TokenClaim),
    Leave(oneshot::Sender<()>),
}

/// The side of the accounts.
#[derive(Debug)]
pub(super) struct ClusterTokens(mpsc::Sender<TokenAsk>);

impl ClusterTokens {
    /// Waits until the outcomes of all fetches are stored, or it has taken too long.
    pub(super) fn leave(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.blocking_send(TokenAsk::Leave(done)).is_ok() && is_done.blocking_recv().is_err() {
            tracing::warn!("the last tokens may not have been stored in the cluster");
        }
    }
}

impl SharedTokens for ClusterTokens {
    fn open(&self, identity: &Arc<TokenIdentity>) {
        // A token that is not known is offered to the store after its first claim.
        let _ = self.0.try_send(TokenAsk::Open(Arc::downgrade(identity)));
    }

    fn claim(&self, claim: TokenClaim) {
        // The answer is dropped with a claim that is too many.
        let _ = self.0.try_send(TokenAsk::Claim(claim));
    }
}

/// The tokens that the task shares.
struct Tokens(Arc<TokenContext>);

/// The part of the task that claims share with it.
struct TokenContext {
    shard: Shard,
    key: ClusterKey,
    /// Time for which a store that may have lost its state learns from the gateways.
    learn: Duration,
    files: TokenFiles,
    known: Mutex<HashMap<String, KnownToken>>,
    store: watch::Receiver<Option<ReadyStore>>,
    messages: broadcast::Sender<Message>,
    /// Number of fetches that this gateway has the right to.
    rights: watch::Sender<usize>,
}

/// The newest state of an exclusive token.
struct KnownToken {
    identity: Weak<TokenIdentity>,
    state: StoredToken,
    /// Time at which it had its age.
    noted: Instant,
}

/// Spawns the task, and returns the side of the accounts.
pub(super) fn spawn(
    shard: Shard,
    key: ClusterKey,
    learn: Duration,
    files: TokenFiles,
    link: &LinkSender,
) -> Arc<ClusterTokens> {
    let messages = link.messages.clone();
    let (known, rights) = (Mutex::default(), watch::Sender::new(0));
    Arc::new(ClusterTokens(facts::spawn(link.subscribe(), |store| {
        Tokens(Arc::new(TokenContext { shard, key, learn, files, known, store, messages, rights }))
    })))
}

impl SharedFacts for Tokens {
    type Ask = TokenAsk;

    const NAME: &'static str = "tokens";

    fn channel(&self) -> Vec<u8> {
        self.0.shard.token_channel()
    }

    async fn asked(&mut self, asks: Vec<TokenAsk>, _: Option<&ReadyStore>) -> StoreResult {
        for ask in asks {
            let context = Arc::clone(&self.0);
            match ask {
                TokenAsk::Open(identity) => context.open(identity),
                TokenAsk::Claim(claim) => drop(tokio::spawn(Claim::new(context, claim).run())),
                TokenAsk::Leave(done) => drop(tokio::spawn(leave(context, done))),
            }
        }
        Ok(())
    }

    async fn told(&mut self, news: &[u8], store: &ReadyStore) -> StoreResult {
        let (is_question, key) = match news.split_first() {
            Some((&QUESTION, key)) => (true, key),
            _ => (false, news),
        };
        match self.0.known_names().find(|name| self.0.shard.token(name) == key) {
            Some(name) if is_question => self.0.offer(&name, store).await,
            Some(name) => self.0.refresh(&name, store).await,
            None => {}
        }
        Ok(())
    }

    /// The store may have lost a state, and another gateway may have stored a newer one.
    async fn sync(&mut self, store: &ReadyStore) -> StoreResult {
        for name in self.0.known_names() {
            self.0.offer(&name, store).await;
            self.0.refresh(&name, store).await;
        }
        Ok(())
    }
}

/// Waits until the outcomes of all fetches are stored.
async fn leave(context: Arc<TokenContext>, done: oneshot::Sender<()>) {
    let mut rights = context.rights.subscribe();
    if let Ok(Ok(_)) = tokio::time::timeout(LEAVE_MAX, rights.wait_for(|count| *count == 0)).await {
        // Nobody waits any more if the process is being stopped at once.
        let _ = done.send(());
    }
}

impl TokenContext {
    fn known_names(&self) -> impl Iterator<Item = String> + use<> {
        let names: Vec<String> = self.known.lock().keys().cloned().collect();
        names.into_iter()
    }

    /// The name of a token in the store.
    fn name(&self, identity: &TokenIdentity) -> String {
        self.key.name(&identity.content)
    }

    /// Makes a token known, with its state on disk.
    fn open(&self, token: Weak<TokenIdentity>) {
        let Some(identity) = token.upgrade().filter(|identity| identity.is_exclusive) else { return };
        let name = self.name(&identity);
        self.known.lock().retain(|_, known| known.identity.strong_count() > 0);
        if let Some(known) = self.known.lock().get_mut(&name) {
            known.identity = token;
            return;
        }
        let read = self.files.read(&name).unwrap_or_else(|error| {
            tracing::warn!(account = &*identity.account, %error, "the stored refresh token cannot be read");
            None
        });
        // The age of a state on disk is unknown, so its access token is not used.
        let age_ms = millis(EXCLUSIVE_TTL);
        let read =
            read.map(|(version, sealed)| StoredToken { version, sealed, age_ms, incarnation: Vec::new() });
        let state = read.filter(|state| self.opened(&identity, state).is_some()).unwrap_or_default();
        self.known.lock().insert(name, KnownToken { identity: token, state, noted: Instant::now() });
    }

    /// The newest state that this gateway knows of an exclusive token; of version 0 if none.
    fn newest(&self, name: &str) -> StoredToken {
        let known = self.known.lock();
        let Some(KnownToken { state, noted, .. }) = known.get(name) else { return StoredToken::default() };
        StoredToken { age_ms: state.age_ms.saturating_add(millis(noted.elapsed())), ..state.clone() }
    }

    /// Notes a state of an exclusive token, also on disk. Older ones have no effect.
    async fn note(self: &Arc<Self>, identity: &Arc<TokenIdentity>, state: &StoredToken) {
        let name = self.name(identity);
        if !self.is_news(&name, identity, state) {
            return;
        }
        let (context, version, sealed) = (Arc::clone(self), state.version, state.sealed.clone());
        let written = tokio::task::spawn_blocking(move || context.files.write(&name, version, &sealed)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(
                account = &*identity.account,
                %error,
                "a refresh token cannot be written to `data_dir`: if the store of the cluster loses it, configure a new one"
            );
        }
    }

    /// Notes a state in memory. Returns `false` if it is not newer.
    fn is_news(&self, name: &str, identity: &Arc<TokenIdentity>, state: &StoredToken) -> bool {
        let mut known = self.known.lock();
        let is_newer = known.get(name).is_none_or(|known| state.version > known.state.version);
        if is_newer {
            let (identity, state) = (Arc::downgrade(identity), state.clone());
            known.insert(name.to_owned(), KnownToken { identity, state, noted: Instant::now() });
        }
        is_newer
    }

    fn seal(&self, identity: &TokenIdentity, version: u64, content: &[u8]) -> Option<Vec<u8>> {
        let version = version.to_le_bytes();
        self.key
            .seal(&[b"token", identity.account.as_bytes(), identity.endpoint.as_bytes(), &version], content)
    }

    /// Opens a state. One that another program wrote, or that is from another place, is none.
    fn opened(&self, identity: &TokenIdentity, stored: &StoredToken) -> Option<SharedTokenState> {
        let StoredToken { version, sealed, age_ms, .. } = stored;
        let bytes = version.to_le_bytes();
        let place: [&[u8]; 4] = [b"token", identity.account.as_bytes(), identity.endpoint.as_bytes(), &bytes];
        let content = self.key.open(&place, sealed)?;
        Some(SharedTokenState { version: *version, content, age: Duration::from_millis(*age_ms) })
    }

    fn calls(&self, name: &str, is_exclusive: bool) -> Option<TokenCalls> {
        let mut owner = [0; 16];
        rand::fill(&mut owner).ok()?;
        Some(TokenCalls::new(&self.shard, name, is_exclusive, u128::from_be_bytes(owner)))
    }

    /// Offers the newest state to the store.
    async fn offer(&self, name: &str, store: &ReadyStore) {
        let StoredToken { version, sealed, age_ms, .. } = self.newest(name);
        let Some(calls) = self.calls(name, true).filter(|_| version > 0) else { return };
        let offered = reply(store, &calls.offer(version, &sealed, millis(EXCLUSIVE_TTL), age_ms)).await;
        if let Err(error) = offered {
            tracing::debug!(%error, "a token cannot be offered to the store of the cluster");
        }
    }

    /// Notes the state in the store, if it is newer.
    async fn refresh(self: &Arc<Self>, name: &str, store: &ReadyStore) {
        let identity = self.known.lock().get(name).and_then(|known| known.identity.upgrade());
        let (Some(identity), Some(calls)) = (identity, self.calls(name, true)) else { return };
        if let Ok(TokenReply::Newer(stored)) = reply(store, &calls.read()).await
            && self.opened(&identity, &stored).is_some()
        {
            self.note(&identity, &stored).await;
        }
    }

    async fn ready(&self) -> Option<ReadyStore> {
        ready(self.store.clone()).await
    }
}

async fn reply(store: &ReadyStore, call: &ScriptCall) -> StoreResult<TokenReply> {
    let words: Vec<Vec<u8>> = store.evaluate(TOKEN_SCRIPT, call).await?;
    TokenReply::from_script(&words).map_err(|_| StoreTrouble::Reply)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
