//! The members of a cluster under test: gateways that share quotas, with clients of each.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::clients::Clients;
use crate::counted::{Counted, between};
use crate::egret::{Config, Egret};
use crate::timeline::{Timeline, pass};
use crate::wait;

/// The key of all clusters under test.
pub const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The config of the members: a store, quotas, and a flow for each quota.
#[derive(Debug, Clone)]
pub struct MembersConfig {
    store: String,
    /// The beginning of the members' names.
    named: String,
    cluster: String,
    quotas: Vec<(String, String)>,
    flows: String,
    more: String,
    environment: Vec<(String, String)>,
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
        let [cluster, flows, more] = [const { String::new() }; 3];
        let (store, named) = (store.to_string(), "member".to_owned());
        Self { store, named, cluster, quotas: Vec::new(), flows, more, environment: Vec::new() }
    }

    /// Names the members `NAME-0` and so on.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { named: name.to_owned(), ..self }
    }

    /// Adds keys of `cluster`: `keep_for: 5s`.
    #[must_use]
    pub fn cluster(mut self, keys: &str) -> Self {
        self.cluster = format!(", {keys}");
        self
    }

    /// Adds a flow, in YAML's flow style: `{ name: all, remedies: [...] }`.
    #[must_use]
    pub fn flow(mut self, flow: &str) -> Self {
        self.flows.extend(["  - ", flow, "\n"]);
        self
    }

    /// Sets a variable in the environment of the members.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds keys at the top: `accounts: { ... }`.
    #[must_use]
    pub fn with(mut self, keys: &str) -> Self {
        self.more.extend([keys, "\n"]);
        self
    }

    /// Adds these quotas, each with a `queue`.
    #[must_use]
    pub fn queues(self, allowances: &[Allowance]) -> Self {
        allowances.iter().fold(self, |config, each| config.queue(each.name(), &each.keys()))
    }

    /// Adds a quota with these keys, and a flow with a `queue` for the calls whose path begins with its name.
    #[must_use]
    pub fn queue(self, name: &str, keys: &str) -> Self {
        let remedy = format!("queue: {{ quota: {name}, size: 100000, max_wait: 1h }}");
        self.quota(name, keys, &remedy)
    }

    /// Adds a quota with these keys, and a flow with this remedy for the calls whose path begins with its
    /// name.
    #[must_use]
    pub fn quota(mut self, name: &str, keys: &str, remedy: &str) -> Self {
        self.quotas.retain(|(each, _)| each != name);
        self.quotas.push((name.to_owned(), format!("{name}: {{ {keys}, store: redis }}")));
        let flow = format!("{{ name: {name}, match: {{ path: '/{name}/*' }}, remedies: [{remedy}] }}");
        if self.flows.contains(&flow) { self } else { self.flow(&flow) }
    }

    /// The config of the member with this number.
    fn member(&self, number: usize, origin: &str) -> Config {
        let quotas: String = self.quotas.iter().flat_map(|(_, quota)| ["  ", quota, "\n"]).collect();
        let Self { store, named, cluster, flows, more, .. } = self;
        let text = format!(
            "cluster: {{ name: tests, member: {named}-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {store}{cluster} }}\n\
             {more}quotas:\n{quotas}flows:\n{flows}"
        );
        Config::with_origin(origin).flows(text)
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

    /// Starts clients of one member. These quotas share them evenly; the provider learns which member called.
    pub fn clients(&self, number: usize, allowances: &[Allowance], clients: usize) -> Clients {
        let targets: Vec<String> = allowances.iter().map(|each| target(number, &each.target())).collect();
        Clients::start(self.gateway(number).address(), &targets, clients)
    }

    /// Starts the same clients for each member.
    pub fn all_clients(&self, allowances: &[Allowance], clients: usize) -> Vec<Clients> {
        (0..self.count()).map(|number| self.clients(number, allowances, clients)).collect()
    }

    /// Claims that the members hold equal parts of this allowance, up to a unit, on average over `time`.
    #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
    pub fn claim_shared(&self, each: &Allowance, time: Duration, samples: u32, line: &Timeline) {
        let mut sums = vec![0; self.count()];
        for _ in 0..samples {
            for (number, sum) in sums.iter_mut().enumerate() {
                *sum += self.hold(number, each.name());
            }
            pass(time / samples);
        }
        let fair = each.limit() as f64 / self.count() as f64;
        let holds: Vec<f64> = sums.iter().map(|sum| *sum as f64 / f64::from(samples)).collect();
        let furthest = holds.iter().map(|hold| (hold - fair).abs()).fold(0.0, f64::max);
        let figure = format!("{}: fair share {fair:.2}, holds {holds:.2?}", each.name());
        line.claim(furthest <= 1.0, figure);
    }

    /// Units of a quota that a member holds.
    fn hold(&self, number: usize, quota: &str) -> u64 {
        let status = self.gateway(number).control_get("/api/v1/cluster").json();
        let quotas = status["cluster"]["quotas"].as_array().into_iter().flatten();
        let group = quotas.filter(|found| found["name"] == quota).map(|found| &found["groups"][0]).next();
        group.and_then(|group| group["hold"].as_u64()).unwrap_or_else(|| panic!("no {quota} in {status}"))
    }
}

/// The target of a call to the provider by this member: `steady?ms=20`.
pub fn target(number: usize, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    format!("/origin/{path}/call?from={number}&{query}")
}

fn start(config: &MembersConfig, number: usize, origin: &str) -> Egret {
    Egret::start_with(&config.member(number, origin), |command| {
        command.env("EGRET_TEST_KEY", KEY).envs(config.environment.iter().cloned());
    })
}

/// Waits until one more call of this member for each of these has arrived, and returns the time it took.
pub fn until_lent_to(number: usize, provider: &Counted, allowances: &[Allowance]) -> Duration {
    let (began, from) = (Instant::now(), provider.now());
    for each in allowances {
        wait::until_true(&format!("member {number} calls for {}", each.name()), || {
            let calls = provider.calls(each.name());
            between(&calls, from, u64::MAX).iter().any(|call| call.from == number)
        });
    }
    began.elapsed()
}

/// Waits until a call for each of these has arrived from now on.
pub fn until_lent(provider: &Counted, allowances: &[Allowance]) {
    for each in allowances {
        let before = provider.count(each.name());
        wait::until_true(&format!("calls of {} arrive", each.name()), || {
            provider.count(each.name()) > before
        });
    }
}
