//! Removals from the caches of all gateways of a cluster: tells those of this gateway, and applies those of
//! the others.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use egret_store::shared::{
    NotTold, PURGE_SCRIPT, PurgeEntry, PurgePosition, PurgeTold, PurgedCache, Removal, STREAM_TTL_MS, Shard,
    SharedPurges,
};
use redis::cmd;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};

use super::connection::{Connection, StoreTrouble};
use super::link::{Link, Message};
use super::seal::ClusterKey;
use super::store_calls::ReadyStore;

/// Maximum number of removals that wait for the task.
const QUEUE_MAX: usize = 4_096;
/// Maximum number of removals of one cache that wait to be told. Beyond it, the others remove everything.
const PENDING_MAX: usize = 256;
/// Maximum number of entries that are read at once.
const READ_MAX: usize = 64;
/// Maximum length of what the others are told of a removal. Instead of a longer one they remove everything.
/// So many of the longest fit into a reply.
const REMOVAL_BYTES_MAX: usize = 4 << 10;
/// Interval at which streams are read without a message, and kept alive.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which a failed subscription is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

type Answer = oneshot::Sender<Result<(), NotTold>>;

/// A message to the task.
enum PurgeAsk {
    Open(String, Weak<dyn PurgedCache>),
    Tell(String, Removal, Answer),
}

/// The side of the caches.
struct ClusterPurges(mpsc::Sender<PurgeAsk>);

impl fmt::Debug for ClusterPurges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterPurges")
    }
}

impl SharedPurges for ClusterPurges {
    fn open(&self, name: &str, cache: Weak<dyn PurgedCache>) {
        // A queue of configs cannot fill up; a cache that is not known gets no removals of others.
        if self.0.try_send(PurgeAsk::Open(name.to_owned(), cache)).is_err() {
            tracing::error!(
                cache = name,
                "the thread of the cluster is too busy: other gateways cannot purge this cache"
            );
        }
    }

    fn tell(&self, name: &str, removal: Removal) -> PurgeTold {
        let (answer, told) = oneshot::channel();
        if let Err(error) = self.0.try_send(PurgeAsk::Tell(name.to_owned(), removal, answer))
            && let PurgeAsk::Tell(_, _, answer) = error.into_inner()
        {
            // The receiver is returned below.
            let _ = answer.send(Err(NotTold::Busy));
        }
        told
    }
}

/// The task.
pub(super) struct PurgeTask {
    shard: Shard,
    key: Option<ClusterKey>,
    /// Stands for this gateway in messages.
    origin: String,
    asked: mpsc::Receiver<PurgeAsk>,
    link: Link,
    store: Option<ReadyStore>,
    /// The process of the store that the positions are from.
    incarnation: Arc<str>,
    /// `true` if the connection is not subscribed yet.
    is_pending: bool,
    /// By the keys of their streams.
    streams: HashMap<Vec<u8>, Stream>,
}

/// The stream of the caches with one name.
#[derive(Default)]
struct Stream {
    caches: Vec<Weak<dyn PurgedCache>>,
    position: PurgePosition,
    /// The removals that the others were not told yet.
    pending: VecDeque<(Removal, Option<Answer>)>,
}

/// Creates the task and the side of the caches.
pub(super) fn purges(
    shard: Shard,
    key: Option<ClusterKey>,
    instance: u64,
    link: Link,
) -> (Arc<dyn SharedPurges>, PurgeTask) {
    let (asks, asked) = mpsc::channel(QUEUE_MAX);
    let task = PurgeTask {
        shard,
        key,
        origin: format!("{instance:016x}"),
        asked,
        link,
        store: None,
        incarnation: "".into(),
        is_pending: false,
        streams: HashMap::new(),
    };
    (Arc::new(ClusterPurges(asks)), task)
}

impl PurgeTask {
    /// Works until the thread ends.
    pub(super) async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                ask = self.asked.recv() => match ask {
                    Some(ask) => self.asked(ask).await,
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
                _ = look.tick() => self.look().await,
            }
        }
    }

    async fn asked(&mut self, ask: PurgeAsk) {
        let mut changed = Vec::new();
        let mut next = Some(ask);
        while let Some(ask) = next {
            let key = self.accept(ask);
            if !changed.contains(&key) {
                changed.push(key);
            }
            next = self.asked.try_recv().ok();
        }
        for key in changed {
            self.join(&key).await;
            self.tell(&key).await;
        }
    }

    /// Notes a message. Returns the key of its stream.
    fn accept(&mut self, ask: PurgeAsk) -> Vec<u8> {
        match ask {
            PurgeAsk::Open(name, cache) => {
                let key = self.key_of(&name);
                let stream = self.streams.entry(key.clone()).or_default();
                stream.caches.retain(|cache| cache.strong_count() > 0);
                // What was stored before now may have been purged elsewhere.
                stream.position.forget();
                stream.caches.push(cache);
                key
            }
            PurgeAsk::Tell(name, removal, answer) => {
                let key = self.key_of(&name);
                let stream = self.streams.entry(key.clone()).or_default();
                let removal = if removal.save().len() > REMOVAL_BYTES_MAX { Removal::All } else { removal };
                match (&self.key, removal) {
                    (None, Removal::Changed(_)) => drop(answer.send(Err(NotTold::NoKey))),
                    (None, _) => stream.add(Removal::All, answer),
                    (Some(_), removal) => stream.add(removal, answer),
                }
                key
            }
        }
    }

    /// The key of the stream of a cache. Names of flows are not secret, but say something about the config.
    fn key_of(&self, name: &str) -> Vec<u8> {
        let name = self.key.as_ref().map_or_else(|| name.to_owned(), |key| key.name(name.as_bytes()));
        self.shard.purges(&name)
    }

    /// Subscribes over a new connection, and reads what was missed.
    async fn connect(&mut self) {
        let connection: Option<Connection> = self.link.connection.borrow_and_update().clone();
        self.store = None;
        self.is_pending = connection.is_some();
        let Some(connection) = connection else { return };
        match ReadyStore::subscribe(connection, &self.shard.purge_channel()).await {
            Ok(store) => {
                self.is_pending = false;
                if store.incarnation != self.incarnation {
                    // Another process may lack entries that the one before had acknowledged.
                    self.streams.values_mut().for_each(|stream| stream.position.forget());
                    self.incarnation = Arc::clone(&store.incarnation);
                }
                self.store = Some(store);
                self.look().await;
            }
            Err(error) => tracing::warn!(%error, "purges of caches cannot be shared over this connection"),
        }
    }

    async fn told(&mut self, message: Result<Message, RecvError>) {
        let Message { channel, content } = match message {
            Ok(message) => message,
            Err(RecvError::Closed) => return,
            Err(RecvError::Lagged(_)) => return self.look().await,
        };
        if *channel == *self.shard.purge_channel() {
            self.join(&content).await;
        }
    }

    /// Reads all streams, keeps them alive, and tells what could not be told.
    async fn look(&mut self) {
        self.streams.retain(|_, stream| stream.is_used());
        let keys: Vec<_> = self.streams.keys().cloned().collect();
        for key in keys {
            if let Some(store) = &self.store {
                log(store.connection.query(cmd("PEXPIRE").arg(&key).arg(STREAM_TTL_MS)).await);
            }
            self.join(&key).await;
            self.tell(&key).await;
        }
    }

    /// Reads a stream, and joins it if its position is unknown.
    async fn join(&mut self, key: &[u8]) {
        let Self { store: Some(store), streams, key: seal, origin, .. } = self else { return };
        let Some(stream) = streams.get_mut(key) else { return };
        let reader = Reader { store, seal: seal.as_ref(), origin, key };
        log(reader.read(stream).await);
    }

    /// Tells the other gateways what waits to be told.
    async fn tell(&mut self, key: &[u8]) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let messages: Option<Vec<_>> = match &self.key {
            Some(seal) => {
                let sealed =
                    stream.pending.iter().map(|(removal, _)| seal.seal(&[b"purge", key], &removal.save()));
                sealed.collect()
            }
            None => Some(stream.pending.iter().map(|(removal, _)| removal.save()).collect()),
        };
        let messages = messages.unwrap_or_default();
        if messages.is_empty() {
            return;
        }
        let told = match &self.store {
            Some(store) => {
                let call = self.shard.tell_purges(key, &self.origin, &messages);
                let told: Result<u64, StoreTrouble> = store.evaluate(PURGE_SCRIPT, &call).await;
                let is_told = told.is_ok();
                log(told.map(drop));
                is_told
            }
            None => false,
        };
        stream.told(told);
    }
}

impl Stream {
    fn is_used(&self) -> bool {
        !self.pending.is_empty() || self.caches.iter().any(|cache| cache.strong_count() > 0)
    }

    fn add(&mut self, removal: Removal, answer: Answer) {
        if let Some((_, waiting)) = self.pending.iter_mut().find(|(other, _)| *other == removal)
            && waiting.is_none()
        {
            *waiting = Some(answer);
            return;
        }
        if self.pending.len() >= PENDING_MAX {
            self.told(false);
            self.pending.clear();
            return self.pending.push_back((Removal::All, Some(answer)));
        }
        self.pending.push_back((removal, Some(answer)));
    }

    /// Answers those who wait. What was not told stays.
    fn told(&mut self, is_told: bool) {
        let result = if is_told { Ok(()) } else { Err(NotTold::Away) };
        for answer in self.pending.iter_mut().filter_map(|(_, answer)| answer.take()) {
            // An invalidation has nobody who waits.
            let _ = answer.send(result);
        }
        if is_told {
            self.pending.clear();
        }
    }

    fn remove(&self, removal: &Removal) {
        for cache in self.caches.iter().filter_map(Weak::upgrade) {
            cache.remove(removal);
        }
    }
}

/// Reads one stream.
struct Reader<'a> {
    store: &'a ReadyStore,
    seal: Option<&'a ClusterKey>,
    origin: &'a str,
    key: &'a [u8],
}

impl Reader<'_> {
    async fn read(&self, stream: &mut Stream) -> Result<(), StoreTrouble> {
        while let Some(position) = stream.position.get() {
            let entries = self.entries(position).await?;
            let Some(new) = stream.position.advance(&entries) else {
                tracing::warn!("purges of other gateways were missed: all responses of a cache are removed");
                stream.position.forget();
                break;
            };
            for entry in new.iter().filter(|entry| entry.origin != self.origin.as_bytes()) {
                self.apply(entry, stream);
            }
            if entries.len() < READ_MAX {
                return Ok(());
            }
        }
        // The position comes first: what others purge from here on is read.
        let last: String = self.store.evaluate(PURGE_SCRIPT, &Shard::join_purges(self.key)).await?;
        if stream.position.join(last) {
            stream.remove(&Removal::All);
        }
        Ok(())
    }

    async fn entries(&self, position: &str) -> Result<Vec<PurgeEntry>, StoreTrouble> {
        let mut command = cmd("XRANGE");
        command.arg(self.key).arg(position).arg("+").arg("COUNT").arg(READ_MAX);
        let read: Vec<(String, Vec<Vec<u8>>)> = self.store.connection.query(&command).await?;
        Ok(read.into_iter().map(|(position, fields)| entry(position, fields)).collect())
    }

    /// Applies an entry. One that cannot be read may be anything.
    fn apply(&self, entry: &PurgeEntry, stream: &Stream) {
        if entry.origin.is_empty() {
            return;
        }
        let removal = match self.seal {
            Some(seal) => {
                seal.open(&[b"purge", self.key], &entry.message).and_then(|saved| Removal::load(&saved))
            }
            None => Removal::load(&entry.message),
        };
        stream.remove(&removal.unwrap_or(Removal::All));
    }
}

/// Reads the fields of an entry.
fn entry(position: String, fields: Vec<Vec<u8>>) -> PurgeEntry {
    let mut entry = PurgeEntry { position, origin: Vec::new(), message: Vec::new() };
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        match name.as_slice() {
            b"o" => entry.origin = value,
            b"m" => entry.message = value,
            _ => {}
        }
    }
    entry
}

fn log(result: Result<(), StoreTrouble>) {
    if let Err(error) = result {
        tracing::debug!(%error, "purges of caches are not shared now");
    }
}
