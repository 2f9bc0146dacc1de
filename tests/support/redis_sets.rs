//! Sets of Redis or Valkey servers: a master with replicas and sentinels, and a Redis Cluster.

use std::process::{Command, Stdio};

use crate::peers::free_port;
use crate::process::{Directory, Process};
use crate::redis::{Flavor, RedisServer, Reply};
use crate::wait;

/// Name of the master for the sentinels.
const MASTER: &str = "tests";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
/// Masters of a cluster. Each has one replica.
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// A master with two replicas and three sentinels; killed when dropped.
#[derive(Debug)]
pub struct Sentinels {
    /// The servers. The first one is the master at the beginning.
    pub servers: Vec<RedisServer>,
    _watchers: Vec<Process>,
    ports: Vec<u16>,
    _directory: Directory,
}

impl Sentinels {
    /// Starts them, and waits until the replicas follow and the sentinels know each other. A master that
    /// cannot be reached is replaced after a second.
    pub fn start(flavor: Flavor) -> Self {
        Self::start_behind(flavor, &[])
    }

    /// Does the same with a program before those of the replicas, such as `["faketime", "-f", "+30s"]`.
    pub fn start_behind(flavor: Flavor, prefix: &[&str]) -> Self {
        let master = RedisServer::start(flavor);
        let port = master.port().to_string();
        let replica = || RedisServer::start_behind(flavor, prefix, &["--replicaof", "127.0.0.1", &port]);
        let mut servers = vec![master];
        servers.extend(std::iter::repeat_with(replica).take(REPLICAS));
        wait::until_true("the replicas follow", || {
            servers[1..]
                .iter()
                .all(|server| server.figure("replication", "master_link_status").as_deref() == Some("up"))
        });
        let directory = Directory::default();
        let ports: Vec<u16> = std::iter::repeat_with(free_port).take(SENTINELS).collect();
        let sentinels = ports.iter().map(|own| {
            let config = format!(
                "port {own}\nbind 127.0.0.1\ndir {path}\nsentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n",
                path = directory.path().display()
            );
            let file = directory.write(&format!("sentinel-{own}.conf"), config);
            let mut command = Command::new(flavor.program());
            Process::start(command.arg(file).arg("--sentinel").stdout(Stdio::null()))
        });
        let set = Self { servers, _watchers: sentinels.collect(), ports, _directory: directory };
        wait::until_true("the sentinels know each other and the replicas", || set.is_complete());
        set
    }

    /// The value of `cluster.redis` in a config.
    pub fn config(&self) -> String {
        let nodes: Vec<String> = self.ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        format!("{{ sentinel: {{ master: {MASTER}, nodes: [{}] }} }}", nodes.join(", "))
    }

    /// Index of the present master, as the first sentinel knows it.
    pub fn master(&self) -> Option<usize> {
        let reply = sentinel(self.ports[0], &["SENTINEL", "get-master-addr-by-name", MASTER])?;
        let port = reply.words().get(1)?.parse::<u16>().ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }

    /// Kills the first server with SIGKILL.
    pub fn kill_master(&mut self) {
        self.servers[0].kill();
    }

    fn is_complete(&self) -> bool {
        self.ports.iter().all(|port| {
            let Some(reply) = sentinel(*port, &["SENTINEL", "master", MASTER]) else { return false };
            let words = reply.words();
            let figure = |name: &str| {
                let at = words.iter().position(|word| word == name)?;
                words.get(at + 1)?.parse::<usize>().ok()
            };
            figure("num-slaves") == Some(REPLICAS) && figure("num-other-sentinels") == Some(SENTINELS - 1)
        })
    }
}

fn sentinel(port: u16, words: &[&str]) -> Option<Reply> {
    let address = ([127, 0, 0, 1], port).into();
    std::net::TcpStream::connect(address).ok()?;
    Some(crate::redis::RedisClient::connect(address).command(words))
}

/// A Redis Cluster of three masters with a replica each; killed when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes. The first three are the masters at the beginning, the others their replicas, in that order.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts it, and waits until all nodes agree. A master that cannot be reached for a second is replaced.
    pub fn start(flavor: Flavor) -> Self {
        let node = || {
            let bus = free_port().to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port"];
            RedisServer::start_with(flavor, &[&settings[..], &[&bus]].concat())
        };
        let nodes: Vec<RedisServer> = std::iter::repeat_with(node).take(2 * MASTERS).collect();
        for (index, node) in nodes[..MASTERS].iter().enumerate() {
            let (from, to) = (SLOTS * index / MASTERS, SLOTS * (index + 1) / MASTERS - 1);
            ok(node, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let [own, bus] = [nodes[0].port().to_string(), bus_port(&nodes[0])];
            ok(node, &["CLUSTER", "MEET", "127.0.0.1", &own, &bus]);
        }
        let set = Self { nodes };
        set.until_all("know each other", |info| info.contains("cluster_known_nodes:6\r\n"));
        for (index, node) in set.nodes[MASTERS..].iter().enumerate() {
            let id = set.nodes[index].command(&["CLUSTER", "MYID"]).text().to_owned();
            wait::until_true("a replica knows its master", || {
                node.command(&["CLUSTER", "REPLICATE", &id]) == Reply::Text("OK".to_owned())
            });
        }
        set.until_all("serve all slots", |info| info.contains("cluster_state:ok\r\n"));
        wait::until_true("the replicas follow", || {
            set.nodes[MASTERS..]
                .iter()
                .all(|node| node.figure("replication", "master_link_status").as_deref() == Some("up"))
        });
        set
    }

    /// The value of `cluster.redis` in a config.
    pub fn config(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("'{}'", node.address())).collect();
        format!("{{ cluster: [{}] }}", nodes.join(", "))
    }

    /// Indexes of the masters, as the cluster was started, that have keys.
    pub fn masters_with_keys(&self) -> Vec<usize> {
        let has_keys = |index: &usize| self.nodes[*index].command(&["DBSIZE"]) != Reply::Number(0);
        (0..MASTERS).filter(has_keys).collect()
    }

    /// Kills a master with SIGKILL, and waits until its replica has taken over.
    pub fn fail_over(&mut self, master: usize) {
        self.nodes[master].kill();
        let replica = &self.nodes[master + MASTERS];
        wait::until_true("the replica has taken over", || {
            replica.command(&["ROLE"]).words().first().is_some_and(|role| role == "master")
        });
    }

    fn until_all(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        wait::until_true(&format!("the nodes {what}"), || {
            self.nodes.iter().all(|node| is_so(node.command(&["CLUSTER", "INFO"]).text()))
        });
    }
}

fn bus_port(node: &RedisServer) -> String {
    node.command(&["CONFIG", "GET", "cluster-port"]).words()[1].clone()
}

fn ok(server: &RedisServer, words: &[&str]) {
    assert_eq!(server.command(words), Reply::Text("OK".to_owned()), "{words:?}");
}
