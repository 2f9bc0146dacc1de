//! The members of a cluster under test: gateways that share quotas, with a crowd of clients each.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::counted::Counted;
use crate::crowd::Crowd;
use crate::egret::{Config, Egret};
use crate::wait;

/// The key of all clusters under test.
pub const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The config of the members: a store, quotas, and a flow for each quota.
#[derive(Debug, Clone)]
pub struct MembersConfig {
    store: String,
    cluster: String,
    quotas: Vec<(String, String)>,
    flows: String,
}

/// Running members of a cluster, and the provider that they call.
#[derive(Debug)]
pub struct Members {
    /// The gateways. Stopped ones have no place in it.
    pub gateways: Vec<Option<Egret>>,
    config: MembersConfig,
    origin: String,
}

impl MembersConfig {
    /// Creates a config with this value of `cluster.redis`: `{ url: 'redis://127.0.0.1:6379' }`.
    pub fn new(store: impl Display) -> Self {
        Self { store: store.to_string(), cluster: String::new(), quotas: Vec::new(), flows: String::new() }
    }

    /// Adds keys of `cluster`: `keep_for: 5s`.
    #[must_use]
    pub fn cluster(mut self, keys: &str) -> Self {
        self.cluster = format!(", {keys}");
        self
    }

    /// Adds a quota with these keys, and a flow with a `queue` for the calls whose path begins with its name.
    #[must_use]
    pub fn queue(self, name: &str, keys: &str) -> Self {
        let remedy = format!("queue: {{ quota: {name}, size: 100000, max_wait: 1h }}");
        self.quota(name, keys, &remedy)
    }

    /// Adds a quota with these keys, and a flow with this remedy for the calls whose path begins with its name.
    #[must_use]
    pub fn quota(mut self, name: &str, keys: &str, remedy: &str) -> Self {
        self.quotas.retain(|(each, _)| each != name);
        self.quotas.push((name.to_owned(), format!("{name}: {{ {keys}, store: redis }}")));
        let flow = format!("  - {{ name: {name}, match: {{ path: '/{name}/**' }}, remedies: [{remedy}] }}\n");
        if !self.flows.contains(&flow) {
            self.flows += &flow;
        }
        self
    }

    /// The config of the member with this number.
    fn member(&self, number: usize, origin: &str) -> Config {
        let quotas: String = self.quotas.iter().map(|(_, quota)| format!("  {quota}\n")).collect();
        let Self { store, cluster, flows, .. } = self;
        let text = format!(
            "cluster: {{ name: tests, member: member-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {store}{cluster} }}\n\
             quotas:\n{quotas}flows:\n{flows}"
        );
        Config::with_origin(origin).gateway("workers: 1").flows(text)
    }
}

impl Members {
    /// Starts so many members.
    pub fn start(config: &MembersConfig, provider: &Counted, count: usize) -> Self {
        let (config, origin) = (config.clone(), provider.url());
        let gateways = (0..count).map(|number| Some(start(&config, number, &origin))).collect();
        Self { gateways, config, origin }
    }

    /// Number of places for members.
    pub fn count(&self) -> usize {
        self.gateways.len()
    }

    /// The running member with this number.
    pub fn gateway(&self, number: usize) -> &Egret {
        self.gateways[number].as_ref().unwrap()
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut gateway) = self.gateways[number].take() {
            gateway.process().signal("KILL");
            gateway.until_ended();
        }
    }

    /// Stops a member with SIGTERM, and waits until it has ended.
    pub fn stop(&mut self, number: usize) {
        if let Some(mut gateway) = self.gateways[number].take() {
            gateway.terminate();
            assert!(gateway.until_ended().success());
        }
    }

    /// Starts the member with this number, after it was stopped or killed.
    pub fn restart(&mut self, number: usize) {
        self.gateways[number] = Some(start(&self.config, number, &self.origin));
    }

    /// Uses another config for members that are started from now on.
    pub fn reconfigure(&mut self, config: &MembersConfig) {
        self.config = config.clone();
    }

    /// Starts clients of one member. They share the targets evenly; the provider learns which member called.
    pub fn crowd(&self, number: usize, targets: &[&str], clients: usize) -> Crowd {
        Crowd::start(self.gateway(number).address(), &self.targets(number, targets), clients)
    }

    /// Starts the same clients for each member.
    pub fn crowds(&self, targets: &[&str], clients: usize) -> Vec<Crowd> {
        (0..self.count()).map(|number| self.crowd(number, targets, clients)).collect()
    }

    /// The targets of calls to the provider by this member: `steady?ms=20`.
    pub fn targets(&self, number: usize, targets: &[&str]) -> Vec<String> {
        let target = |target: &&str| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            format!("/origin/{path}/?from={number}&{query}")
        };
        targets.iter().map(target).collect()
    }
}

fn start(config: &MembersConfig, number: usize, origin: &str) -> Egret {
    Egret::start_with(&config.member(number, origin), |command| {
        command.env("EGRET_TEST_KEY", KEY);
    })
}

/// A timeline that a scenario prints: elapsed times and figures.
#[derive(Debug)]
pub struct Timeline {
    name: String,
    began: Instant,
}

impl Timeline {
    /// Begins.
    pub fn new(name: impl Display) -> Self {
        Self { name: name.to_string(), began: Instant::now() }
    }

    /// Prints a line with the elapsed time.
    pub fn say(&self, line: impl Display) {
        println!("{:>6.1} s  {}: {line}", self.began.elapsed().as_secs_f64(), self.name);
    }
}

/// Lets time pass, which is what these scenarios are about.
pub fn pass(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

/// Waits until the provider was called for each of these groups, for at most twice the usual time: a store
/// without state learns before it lends.
pub fn until_lent(provider: &Counted, groups: &[&str]) {
    let calls: Vec<usize> = groups.iter().map(|group| provider.count(group)).collect();
    for (group, before) in groups.iter().zip(calls) {
        wait::until_true(&format!("calls of {group} arrive"), || provider.count(group) > before);
    }
}
