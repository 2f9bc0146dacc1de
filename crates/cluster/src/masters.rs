//! The masters of the store: the search for a shard's master, and the connections that shards share.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use egret_clock::Random;
use egret_store::shared::Shard;
use parking_lot::Mutex;
use redis::{Value, cmd};
use tokio::sync::{OnceCell, broadcast};

use super::config::{Address, Login, RedisConfig};
use super::connection::{Connection, StoreConnection, StoreTrouble, connect};
use super::link::Message;
use super::sentinel;

/// Maximum number of servers of a Redis Cluster that one search asks.
const ASKED_MAX: usize = 64;

/// The store, as one version of the config has it.
pub(super) struct Masters {
    config: RedisConfig,
    messages: broadcast::Sender<Message>,
    dials: Mutex<HashMap<Address, Weak<Dial>>>,
}

/// A connection to a server, as several shards wait for it and share it. It closes with the last of them.
struct Dial {
    address: Address,
    redis: OnceCell<Result<Connection, StoreTrouble>>,
    master: OnceCell<Result<StoreConnection, StoreTrouble>>,
}

/// A shard's connection to its master.
pub(super) struct Master {
    pub(super) connection: StoreConnection,
    dial: Arc<Dial>,
}

impl Master {
    pub(super) fn address(&self) -> &Address {
        &self.dial.address
    }
}

impl Masters {
    /// Creates the store without a connection. Messages of all its servers go to `messages`.
    pub(super) fn new(config: &RedisConfig, messages: &broadcast::Sender<Message>) -> Self {
        Self { config: config.clone(), messages: messages.clone(), dials: Mutex::default() }
    }

    /// Connects to the master that has the keys of a shard.
    pub(super) async fn find(&self, shard: &Shard, random: &mut Random) -> Result<Master, StoreTrouble> {
        let master = if let Some(sentinel) = &self.config.sentinel {
            let address = sentinel::master(&self.config, sentinel, &self.messages, random).await?;
            self.master(self.dial(&address)).await?
        } else if let Some(address) = self.config.server() {
            self.master(self.dial(&address)).await?
        } else {
            self.owner(shard, random).await?
        };
        let subscribed = master.connection.connection().subscribe(&shard.channel()).await;
        subscribed.map_err(|error| self.failed(&master, error))?;
        Ok(master)
    }

    /// Notes that a connection has failed. Another search connects again.
    pub(super) fn failed(&self, master: &Master, trouble: StoreTrouble) -> StoreTrouble {
        self.forget(&master.dial);
        trouble.at(&master.dial.address)
    }

    /// Waits until Sentinel names another master than this. Never returns without Sentinel.
    pub(super) async fn switched(&self, master: &Address) -> StoreTrouble {
        match &self.config.sentinel {
            Some(sentinel) => sentinel::switched(&self.config, sentinel, master).await,
            None => std::future::pending().await,
        }
    }

    /// Asks the nodes of a Redis Cluster for the master of a shard, and follows their answers.
    async fn owner(&self, shard: &Shard, random: &mut Random) -> Result<Master, StoreTrouble> {
        let mut trouble = StoreTrouble::NoMaster;
        let mut places = self.known(random);
        let mut asked = HashSet::new();
        while let Some(address) = places.pop_front() {
            if asked.len() >= ASKED_MAX || !asked.insert(address.clone()) {
                continue;
            }
            let dial = self.dial(&address);
            match self.asks(&dial, shard).await {
                Ok(None) => match self.master(dial).await {
                    Ok(master) => return Ok(master),
                    Err(error) => trouble = error,
                },
                Ok(Some(other)) => places.push_front(other),
                Err(error) => trouble = self.lost(&dial, error),
            }
        }
        Err(trouble)
    }

    /// Asks a node about a key of the shard. Returns the node that it names, or `None` if it has the key.
    async fn asks(&self, dial: &Dial, shard: &Shard) -> Result<Option<Address>, StoreTrouble> {
        let asked = self.redis(dial).await?.query::<Value>(cmd("EXISTS").arg(shard.members())).await;
        let error = match asked {
            Ok(_) => return Ok(None),
            Err(StoreTrouble::Redis(error)) => error,
            Err(trouble) => return Err(trouble),
        };
        match error.redirect_node() {
            Some((node, _)) => Ok(Some(dial.address.other(node).ok_or(StoreTrouble::Reply)?)),
            None => Err(error.into()),
        }
    }

    /// The places at which to ask for a master: those that are connected, because they respond, then those of
    /// the config in an order of chance, so that not all members ask the same node. The last master is not
    /// the first of them: it may be dead, and if it is not, another node names it.
    fn known(&self, random: &mut Random) -> VecDeque<Address> {
        let mut nodes = self.config.nodes();
        let first = usize::try_from(random.draw()).unwrap_or(0) % nodes.len().max(1);
        nodes.rotate_left(first);
        let connected = |dial: &Weak<Dial>| {
            let dial = dial.upgrade()?;
            matches!(dial.master.get(), Some(Ok(_))).then(|| dial.address.clone())
        };
        self.dials.lock().values().filter_map(connected).chain(nodes).collect()
    }

    /// The connection to this server, which may be shared and may be new.
    fn dial(&self, address: &Address) -> Arc<Dial> {
        let mut dials = self.dials.lock();
        if let Some(dial) = dials.get(address).and_then(Weak::upgrade) {
            return dial;
        }
        let dial =
            Arc::new(Dial { address: address.clone(), redis: OnceCell::new(), master: OnceCell::new() });
        dials.retain(|_, dial| dial.strong_count() > 0);
        dials.insert(address.clone(), Arc::downgrade(&dial));
        dial
    }

    async fn redis(&self, dial: &Dial) -> Result<Connection, StoreTrouble> {
        let login =
            Login { username: self.config.username.as_deref(), password: self.config.password.as_ref() };
        let open = || connect(&self.config, login, &dial.address, &self.messages);
        dial.redis.get_or_init(open).await.clone()
    }

    async fn master(&self, dial: Arc<Dial>) -> Result<Master, StoreTrouble> {
        let open = || async { StoreConnection::to_master(self.redis(&dial).await?).await };
        let connection = dial.master.get_or_init(open).await.clone();
        let connection = connection.map_err(|error| self.lost(&dial, error))?;
        Ok(Master { connection, dial })
    }

    fn lost(&self, dial: &Arc<Dial>, trouble: StoreTrouble) -> StoreTrouble {
        self.forget(dial);
        trouble.at(&dial.address)
    }

    fn forget(&self, dial: &Arc<Dial>) {
        let mut dials = self.dials.lock();
        if dials.get(&dial.address).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(dial))) {
            dials.remove(&dial.address);
        }
    }
}
