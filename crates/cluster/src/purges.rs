//! Removals from the caches of all gateways of a cluster: tells those of this gateway, and applies those of
//! the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use egret_items::opaque;
use egret_store::entries::Removal;
use egret_store::shared::{
    NotTold, PURGE_SCRIPT, PurgeEntry, PurgePosition, PurgeTold, PurgedCache, STREAM_TTL_MS, Shard,
    SharedPurges,
};
use redis::cmd;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

use super::facts::{self, SharedFacts, StoreResult};
use super::link::Link;
use super::seal::ClusterKey;
use super::store_calls::ReadyStore;

/// Maximum number of removals of one cache that wait to be told. Beyond it, the others remove everything.
const PENDING_MAX: usize = 256;
/// Maximum number of entries that are read at once.
const READ_MAX: usize = 64;
/// Maximum length of what the others are told of a removal. Instead of a longer one they remove everything.
/// So many of the longest fit into a reply.
const REMOVAL_BYTES_MAX: usize = 4 << 10;

type Answer = oneshot::Sender<Result<(), NotTold>>;

/// A message to the task.
pub(super) enum PurgeAsk {
    Open(String, Weak<dyn PurgedCache>),
    Tell(String, Removal, Answer),
}

/// The side of the caches.
struct ClusterPurges(Sender<PurgeAsk>);

opaque!(ClusterPurges);

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

/// The removals that the task shares.
struct Purges {
    shard: Shard,
    key: Option<ClusterKey>,
    /// Stands for this gateway in messages.
    origin: String,
    /// The process of the store that the positions are from.
    incarnation: Arc<str>,
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

/// Spawns the task, and returns the side of the caches.
pub(super) fn spawn(
    shard: Shard,
    key: Option<ClusterKey>,
    instance: u64,
    link: Link,
) -> Arc<dyn SharedPurges> {
    let (origin, streams) = (format!("{instance:016x}"), HashMap::new());
    Arc::new(ClusterPurges(facts::spawn(link, |_| Purges {
        shard,
        key,
        origin,
        incarnation: "".into(),
        streams,
    })))
}

impl SharedFacts for Purges {
    type Ask = PurgeAsk;

    const NAME: &'static str = "purges of caches";
    const SYNC_INTERVAL: Duration = Duration::from_mins(1);

    fn channel(&self) -> Vec<u8> {
        self.shard.purge_channel()
    }

    async fn asked(&mut self, asks: Vec<PurgeAsk>, store: Option<&ReadyStore>) -> StoreResult {
        let mut changed = Vec::new();
        for ask in asks {
            let key = self.accept(ask);
            if !changed.contains(&key) {
                changed.push(key);
            }
        }
        for key in changed {
            match store {
                Some(store) => self.exchange(&key, store).await,
                None => self.streams.entry(key).or_default().told(false),
            }
        }
        Ok(())
    }

    async fn told(&mut self, key: &[u8], store: &ReadyStore) -> StoreResult {
        self.read(key, store).await;
        Ok(())
    }

    /// Reads all streams, keeps them alive, and tells what could not be told.
    async fn sync(&mut self, store: &ReadyStore) -> StoreResult {
        if store.incarnation != self.incarnation {
            // Another process may lack entries that the one before had acknowledged.
            self.streams.values_mut().for_each(|stream| stream.position.forget());
            self.incarnation = Arc::clone(&store.incarnation);
        }
        self.streams.retain(|_, stream| stream.is_used());
        let keys: Vec<_> = self.streams.keys().cloned().collect();
        for key in keys {
            log(store.connection.query(cmd("PEXPIRE").arg(&key).arg(STREAM_TTL_MS)).await);
            self.exchange(&key, store).await;
        }
        Ok(())
    }
}

impl Purges {
    /// Notes a message. Returns the key of its stream.
    fn accept(&mut self, ask: PurgeAsk) -> Vec<u8> {
        let (PurgeAsk::Open(name, _) | PurgeAsk::Tell(name, ..)) = &ask;
        // Names of flows are not secret, but say something about the config.
        let name = self.key.as_ref().map_or_else(|| name.clone(), |key| key.name(name.as_bytes()));
        let key = self.shard.purges(&name);
        let stream = self.streams.entry(key.clone()).or_default();
        match ask {
            PurgeAsk::Open(_, cache) => {
                stream.caches.retain(|cache| cache.strong_count() > 0);
                // What was stored before now may have been purged elsewhere.
                stream.position.forget();
                stream.caches.push(cache);
            }
            PurgeAsk::Tell(_, removal, answer) => {
                let removal = if removal.save().len() > REMOVAL_BYTES_MAX { Removal::All } else { removal };
                match (&self.key, removal) {
                    (None, Removal::Changed(_)) => drop(answer.send(Err(NotTold::NoKey))),
                    (None, _) => stream.add(Removal::All, answer),
                    (Some(_), removal) => stream.add(removal, answer),
                }
            }
        }
        key
    }

    /// Reads a stream, and tells the other gateways what waits to be told.
    async fn exchange(&mut self, key: &[u8], store: &ReadyStore) {
        self.read(key, store).await;
        self.tell(key, store).await;
    }

    /// Reads a stream, and joins it if its position is unknown.
    async fn read(&mut self, key: &[u8], store: &ReadyStore) {
        let Self { streams, key: seal, origin, .. } = self;
        let Some(stream) = streams.get_mut(key) else { return };
        let reader = Reader { store, seal: seal.as_ref(), origin, key };
        log(reader.read(stream).await);
    }

    async fn tell(&mut self, key: &[u8], store: &ReadyStore) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let message = |(removal, _): &(Removal, _)| match &self.key {
            Some(seal) => seal.seal(&[b"purge", key], &removal.save()),
            None => Some(removal.save()),
        };
        let messages: Option<Vec<_>> = stream.pending.iter().map(message).collect();
        let messages = messages.unwrap_or_default();
        if messages.is_empty() {
            return;
        }
        let call = self.shard.tell_purges(key, &self.origin, &messages);
        let told: StoreResult<u64> = store.evaluate(PURGE_SCRIPT, &call).await;
        stream.told(told.is_ok());
        log(told.map(drop));
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
    async fn read(&self, stream: &mut Stream) -> StoreResult {
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

    async fn entries(&self, position: &str) -> StoreResult<Vec<PurgeEntry>> {
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

fn log(result: StoreResult) {
    if let Err(error) = result {
        tracing::debug!(%error, "purges of caches are not shared now");
    }
}
