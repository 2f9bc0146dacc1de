//! Facts that all gateways of a cluster know: marks, purges and tokens. Each kind has its own task and its
//! own protocol over the store. The tasks run one loop, which keeps a kind synchronized with the store.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::connection::StoreTrouble;
use super::link::{Link, Message};
use super::store_calls::ReadyStore;

/// Maximum number of messages of this gateway that wait for a task.
pub(super) const QUEUE_MAX: usize = 4_096;
/// Maximum number of them that are handled at once.
const BATCH_MAX: usize = 256;
/// Time after which a connection that has failed is tried again, if it is not replaced before.
const RETRY: Duration = Duration::from_secs(1);

/// The result of a call to the store.
pub(super) type StoreResult<T = ()> = Result<T, StoreTrouble>;

/// One kind of facts. After an error of a method, the kind is synchronized again.
pub(super) trait SharedFacts: Send + 'static {
    /// A message of this gateway.
    type Ask: Send;

    /// The name of the kind in logs.
    const NAME: &'static str;
    /// Interval at which the kind is synchronized without a reason.
    const SYNC_INTERVAL: Duration = Duration::from_hours(24);

    /// The channel of their news.
    fn channel(&self) -> Vec<u8>;

    /// Handles messages of this gateway, in order. `store` is `None` while it cannot be used.
    fn asked(
        &mut self,
        asks: Vec<Self::Ask>,
        store: Option<&ReadyStore>,
    ) -> impl Future<Output = StoreResult> + Send;

    /// Handles news from the channel.
    fn told(&mut self, news: &[u8], store: &ReadyStore) -> impl Future<Output = StoreResult> + Send;

    /// Exchanges all facts with the store. It may be another one, or news were missed.
    fn sync(&mut self, store: &ReadyStore) -> impl Future<Output = StoreResult> + Send;
}

/// The task of a kind.
struct FactsTask<F: SharedFacts> {
    facts: F,
    asked: Receiver<F::Ask>,
    link: Link,
    /// `None` while the store cannot be used.
    store: watch::Sender<Option<ReadyStore>>,
    /// Time of the next synchronization.
    due: Instant,
}

/// Spawns the task of a kind on the runtime that was entered. `make` gets the store. The messages of this
/// gateway go to the sender that is returned.
pub(super) fn spawn<F: SharedFacts>(
    link: Link,
    make: impl FnOnce(watch::Receiver<Option<ReadyStore>>) -> F,
) -> Sender<F::Ask> {
    let (asks, asked) = mpsc::channel(QUEUE_MAX);
    let (store, ready) = watch::channel(None);
    let due = Instant::now() + F::SYNC_INTERVAL;
    tokio::spawn(FactsTask { facts: make(ready), asked, link, store, due }.run());
    asks
}

impl<F: SharedFacts> FactsTask<F> {
    /// Works until the thread ends.
    async fn run(mut self) {
        while let Some(shared) = self.turn().await {
            if let Err(error) = shared {
                tracing::debug!(%error, "{} are not shared for a moment", F::NAME);
                self.store.send_replace(None);
                self.due = Instant::now() + RETRY;
            }
        }
    }

    /// Handles one event. Returns `None` if the thread ends.
    async fn turn(&mut self) -> Option<StoreResult> {
        let store = self.store.borrow().clone();
        let mut asks = Vec::new();
        tokio::select! {
            count = self.asked.recv_many(&mut asks, BATCH_MAX) => match count {
                0 => None,
                _ => Some(self.facts.asked(asks, store.as_ref()).await),
            },
            changed = self.link.connection.changed() => {
                changed.ok()?;
                self.store.send_replace(None);
                Some(self.sync().await)
            }
            // News that arrive meanwhile wait.
            message = self.link.messages.recv(), if store.is_some() => match (message, store) {
                (Err(RecvError::Closed), _) => None,
                (Err(RecvError::Lagged(_)), _) => Some(self.sync().await),
                (Ok(Message { channel, content }), Some(store)) if *channel == *self.facts.channel() => {
                    Some(self.facts.told(&content, &store).await)
                }
                (Ok(_), _) => Some(Ok(())),
            },
            () = sleep_until(self.due) => Some(self.sync().await),
        }
    }

    /// Synchronizes the kind, if there is a connection.
    async fn sync(&mut self) -> StoreResult {
        self.due = Instant::now() + F::SYNC_INTERVAL;
        match self.ready().await? {
            Some(store) => self.facts.sync(&store).await,
            None => Ok(()),
        }
    }

    /// Returns the store, over a connection that is subscribed to the channel.
    async fn ready(&mut self) -> StoreResult<Option<ReadyStore>> {
        let ready = self.store.borrow().clone();
        if ready.is_some() {
            return Ok(ready);
        }
        let Some(connection) = self.link.connection.borrow_and_update().clone() else { return Ok(None) };
        let subscribed = ReadyStore::subscribe(connection, &self.facts.channel()).await;
        let store = subscribed.inspect_err(|error| {
            tracing::warn!(%error, "{} cannot be shared over this connection", F::NAME);
        })?;
        self.store.send_replace(Some(store.clone()));
        Ok(Some(store))
    }
}
