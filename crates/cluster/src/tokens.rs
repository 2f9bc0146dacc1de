//! Tokens of accounts, fetched once for all gateways of a cluster.
//!
//! Each claim is a task of its own: it asks the store, waits while another gateway fetches, and stores the
//! outcome of this gateway's fetch. The newest state of each exclusive token is also known here and on disk,
//! and is offered to a store that may have lost it.

mod claim;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use egret_store::shared::{
    Shard, SharedTokenState, SharedTokens, StoredToken, TOKEN_SCRIPT, TokenCalls, TokenClaim, TokenIdentity,
    TokenReply,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot, watch};

use self::claim::Claim;
use super::connection::{Connection, StoreTrouble};
use super::link::{Link, Message};
use super::seal::ClusterKey;
use super::store_calls::{ReadyStore, ready};
use super::token_files::TokenFiles;

/// Maximum number of claims and tokens that wait for the task.
const QUEUE_MAX: usize = 4_096;
/// Time for which the store keeps the state of an exclusive token that nobody fetches.
const EXCLUSIVE_TTL: Duration = Duration::from_hours(90 * 24);
/// Interval at which a failed subscription is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the outcomes of the last fetches to be stored.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Precedes the key of a token, if a gateway asks the others for what they know of it.
const QUESTION: u8 = b'?';

/// A message to the task.
enum TokenAsk {
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

/// The task.
pub(super) struct TokenTask {
    context: Arc<TokenContext>,
    asked: mpsc::Receiver<TokenAsk>,
    link: Link,
    /// `true` if the connection is not subscribed yet.
    is_pending: bool,
}

/// The part of the task that claims share with it.
struct TokenContext {
    shard: Shard,
    key: ClusterKey,
    /// Time for which a store that may have lost its state learns from the gateways.
    learn: Duration,
    files: TokenFiles,
    known: Mutex<HashMap<String, KnownToken>>,
    store: watch::Sender<Option<ReadyStore>>,
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

/// Creates the task and the side of the accounts.
pub(super) fn tokens(
    shard: Shard,
    key: ClusterKey,
    learn: Duration,
    files: TokenFiles,
    link: Link,
) -> (Arc<ClusterTokens>, TokenTask) {
    let (asks, asked) = mpsc::channel(QUEUE_MAX);
    let (known, store, rights) = (Mutex::default(), watch::Sender::new(None), watch::Sender::new(0));
    let context = Arc::new(TokenContext { shard, key, learn, files, known, store, rights });
    (Arc::new(ClusterTokens(asks)), TokenTask { context, asked, link, is_pending: false })
}

impl TokenTask {
    /// Works until the thread ends.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                ask = self.asked.recv() => match ask {
                    Some(TokenAsk::Open(identity)) => self.context.open(identity),
                    Some(TokenAsk::Claim(claim)) => {
                        let messages = self.link.messages.resubscribe();
                        tokio::spawn(Claim::new(Arc::clone(&self.context), claim, messages).run());
                    }
                    Some(TokenAsk::Leave(done)) => {
                        tokio::spawn(leave(Arc::clone(&self.context), done));
                    }
                    None => return,
                },
                changed = self.link.connection.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.connect().await;
                }
                () = tokio::time::sleep(RETRY_INTERVAL), if self.is_pending => self.connect().await,
                message = self.link.messages.recv() => self.told(message).await,
            }
        }
    }

    /// Subscribes over a new connection, and offers what is known: the store may be another one.
    async fn connect(&mut self) {
        let connection: Option<Connection> = self.link.connection.borrow_and_update().clone();
        self.context.store.send_replace(None);
        self.is_pending = connection.is_some();
        let Some(connection) = connection else { return };
        match ReadyStore::subscribe(connection, &self.context.shard.token_channel()).await {
            Ok(store) => {
                self.is_pending = false;
                self.context.store.send_replace(Some(store));
                for name in self.context.known_names() {
                    self.context.offer(&name).await;
                }
            }
            Err(error) => tracing::warn!(%error, "tokens cannot be shared over this connection"),
        }
    }

    async fn told(&self, message: Result<Message, RecvError>) {
        let Message { channel, content } = match message {
            Ok(message) => message,
            Err(RecvError::Closed) => return,
            Err(RecvError::Lagged(_)) => {
                for name in self.context.known_names() {
                    self.context.refresh(&name).await;
                }
                return;
            }
        };
        if *channel != *self.context.shard.token_channel() {
            return;
        }
        let (is_question, key) = match content.split_first() {
            Some((&QUESTION, key)) => (true, key),
            _ => (false, &*content),
        };
        let Some(name) = self.context.known_names().find(|name| self.context.shard.token(name) == key) else {
            return;
        };
        if is_question {
            self.context.offer(&name).await;
        } else {
            self.context.refresh(&name).await;
        }
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
    fn known(&self) -> MutexGuard<'_, HashMap<String, KnownToken>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_names(&self) -> impl Iterator<Item = String> + use<> {
        let names: Vec<String> = self.known().keys().cloned().collect();
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
        self.known().retain(|_, known| known.identity.strong_count() > 0);
        if let Some(known) = self.known().get_mut(&name) {
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
        self.known().insert(name, KnownToken { identity: token, state, noted: Instant::now() });
    }

    /// The newest state that this gateway knows of an exclusive token; of version 0 if none.
    fn newest(&self, name: &str) -> StoredToken {
        let known = self.known();
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
        let mut known = self.known();
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
    async fn offer(&self, name: &str) {
        let StoredToken { version, sealed, age_ms, .. } = self.newest(name);
        let Some(store) = self.store.borrow().clone().filter(|_| version > 0) else { return };
        let Some(calls) = self.calls(name, true) else { return };
        let offered = reply(&store, &calls.offer(version, &sealed, millis(EXCLUSIVE_TTL), age_ms)).await;
        if let Err(error) = offered {
            tracing::debug!(%error, "a token cannot be offered to the store of the cluster");
        }
    }

    /// Notes the state in the store, if it is newer.
    async fn refresh(self: &Arc<Self>, name: &str) {
        let identity = self.known().get(name).and_then(|known| known.identity.upgrade());
        let (Some(identity), Some(calls)) = (identity, self.calls(name, true)) else { return };
        let Some(store) = self.store.borrow().clone() else { return };
        if let Ok(TokenReply::Newer(stored)) = reply(&store, &calls.read()).await
            && self.opened(&identity, &stored).is_some()
        {
            self.note(&identity, &stored).await;
        }
    }

    async fn ready(&self) -> Option<ReadyStore> {
        ready(&self.store).await
    }
}

async fn reply(
    store: &ReadyStore,
    call: &egret_store::shared::ScriptCall,
) -> Result<TokenReply, StoreTrouble> {
    let words: Vec<Vec<u8>> = store.evaluate(TOKEN_SCRIPT, call).await?;
    TokenReply::from_script(&words).map_err(|_| StoreTrouble::Reply)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
