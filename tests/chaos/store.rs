//! The store: Redis with a replica, and three sentinels.

use std::process::{Command, Stdio};

use egret_tests::process::{Directory, Process};
use egret_tests::redis::{Flavor, RedisClient};
use egret_tests::wait;

use super::network::{Network, Part, STORES};

/// Name of the master for the sentinels.
const MASTER: &str = "chaos";
/// Servers; the machine after them has a sentinel alone.
const SERVERS: usize = STORES - 1;
/// Time after which sentinels replace a master. A master without replicas has stopped by then:
/// `docs/how-to/share-limits-among-gateways.md`, *Set up Redis*.
const DOWN_MS: u32 = 10_000;

/// The servers and the sentinels; killed when dropped.
#[derive(Debug)]
pub(crate) struct Store {
    servers: Vec<Process>,
    sentinels: Vec<Process>,
    directories: Vec<Directory>,
}

impl Store {
    /// Starts them, and waits until the replica follows and the sentinels know each other.
    pub(crate) fn start(network: &Network) -> Self {
        let directories: Vec<Directory> = (0..STORES).map(|_| Directory::default()).collect();
        let servers =
            (0..SERVERS).map(|number| server(network, number, &directories[number], number > 0)).collect();
        let mut store = Self { servers, sentinels: Vec::new(), directories };
        wait::until_true("the replica follows", || {
            reply(0, 6379, &["INFO", "replication"]).is_some_and(|info| info.contains("connected_slaves:1"))
        });
        for number in 0..STORES {
            store.sentinels.push(store.sentinel(network, number));
        }
        wait::until_true("the sentinels know each other", || {
            (0..STORES).all(|number| {
                let all = reply(number, 26379, &["INFO", "sentinel"]);
                all.is_some_and(|all| all.contains("slaves=1,sentinels=3"))
            })
        });
        store
    }

    /// The value of `cluster.redis` in a config.
    pub(crate) fn config() -> String {
        let nodes: Vec<String> =
            (0..STORES).map(|number| format!("'{}:26379'", Part::Store(number).address())).collect();
        format!("{{ sentinel: {{ master: {MASTER}, nodes: [{}] }} }}", nodes.join(", "))
    }

    /// Number of the server that is the master, as the sentinels that can be reached say.
    pub(crate) fn master() -> Option<usize> {
        let named = |number| {
            let reply = reply(number, 26379, &["SENTINEL", "get-master-addr-by-name", MASTER])?;
            (0..SERVERS).find(|each| reply.lines().next() == Some(&Part::Store(*each).address()))
        };
        (0..STORES).rev().find_map(named)
    }

    /// Returns `true` if the master takes writes: it has a replica that follows.
    pub(crate) fn is_whole() -> bool {
        let replicas = |master| reply(master, 6379, &["INFO", "replication"]);
        Self::master().and_then(replicas).is_some_and(|info| info.contains("min_slaves_good_slaves:1"))
    }

    /// A process of the store: a server, or the sentinel after them.
    pub(crate) fn process(&self, number: usize) -> &Process {
        self.servers.get(number).unwrap_or_else(|| &self.sentinels[number])
    }

    /// Kills a server, or the sentinel on the machine without one, with SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) {
        let process = self.servers.get_mut(number).unwrap_or_else(|| &mut self.sentinels[number]);
        process.signal("KILL");
        process.until_ended();
    }

    /// Starts it again, a server empty and as a master: the sentinels make a replica of it if there is
    /// another.
    pub(crate) fn restart(&mut self, network: &Network, number: usize) {
        if number < SERVERS {
            self.servers[number] = server(network, number, &self.directories[number], false);
        } else {
            self.sentinels[number] = self.sentinel(network, number);
        }
    }

    fn sentinel(&self, network: &Network, number: usize) -> Process {
        let directory = &self.directories[number];
        let file = directory.join("sentinel.conf");
        if !file.exists() {
            let config = format!(
                "port 26379\nprotected-mode no\ndir {}\nsentinel monitor {MASTER} {} 6379 2\n\
                 sentinel down-after-milliseconds {MASTER} {DOWN_MS}\nsentinel failover-timeout {MASTER} 20000\n",
                directory.path().display(),
                Part::Store(0).address()
            );
            directory.write("sentinel.conf", config);
        }
        let mut command = network.machine(Part::Store(number)).command(Flavor::Redis7.program());
        Process::start(command.arg(file).arg("--sentinel").stdout(Stdio::null()))
    }
}

fn server(network: &Network, number: usize, directory: &Directory, follows: bool) -> Process {
    let mut command: Command = network.machine(Part::Store(number)).command(Flavor::Redis7.program());
    command.args(["--port", "6379", "--protected-mode", "no", "--save", "", "--dir"]).arg(directory.path());
    command.args([
        "--min-replicas-to-write",
        "1",
        "--min-replicas-max-lag",
        "5",
        "--maxmemory-policy",
        "noeviction",
    ]);
    if follows {
        command.args(["--replicaof", &Part::Store(0).address(), "6379"]);
    }
    Process::start(command.stdout(Stdio::null()))
}

/// The reply of a server or a sentinel as a text; `None` if it cannot be reached.
fn reply(number: usize, port: u16, words: &[&str]) -> Option<String> {
    let address = format!("{}:{port}", Part::Store(number).address()).parse().unwrap();
    let patience = std::time::Duration::from_secs(1);
    std::net::TcpStream::connect_timeout(&address, patience).ok()?;
    let reply = RedisClient::connect(address).command(words);
    Some(match reply {
        egret_tests::redis::Reply::Text(text) => text,
        other => other.words().join("\n"),
    })
}
