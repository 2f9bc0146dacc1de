//! The experiment file: its keys and defaults, and the rules that types cannot express.

mod hold;
mod machines;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use egret_config::{Duration, Problem, Report, Size};
use serde::{Deserialize, Serialize};

use crate::client_settings::{Amount, ClientKind, ClientSettings, Protocol};
use crate::external_url::{self, ExternalUrl, UrlError};
use crate::template::{self, Additional};
use crate::text_file::read_text;
pub use hold::{Figure, HoldConfig};
pub use machines::{MachineConfig, MachinesConfig};
pub use service::{ServiceConfig, ServiceKind};

/// Maximum number of rounds. More bring no benefit and fill the disk.
const ROUNDS_MAX: u32 = 1_000;

/// Maximum number of scenarios, and of cases. Each pair is a turn in every round.
const LIST_MAX: usize = 64;

/// Maximum length of the name of a case or scenario, which is part of file names.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of instances of a proxy.
const INSTANCES_MAX: u32 = 8;

/// Maximum number of connections of a client.
const CONCURRENCY_MAX: u32 = 10_000;

/// Maximum number of streams on a connection.
const STREAMS_MAX: u32 = 1_000;

/// Maximum number of requests in a turn: ab keeps each in memory.
const REQUESTS_MAX: u64 = 50_000_000;

/// Maximum number of threads of a client.
const THREADS_MAX: u32 = 64;

/// Maximum size of a client's body, and of a provider's file.
const CONTENT_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of a header field's value, in bytes.
const HEADER_BYTES_MAX: usize = 1_024;

/// Name of the default baseline.
const DIRECT: &str = "direct";

/// An experiment as its file describes it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Subject of the experiment, in one line.
    pub title: String,
    /// The question of the experiment, and how to read the results.
    #[serde(default)]
    pub about: String,
    /// The provider.
    pub provider: ProviderConfig,
    /// The load client and the amount of work.
    #[serde(default)]
    pub client: ClientConfig,
    /// Programs that proxies need, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceConfig>,
    /// The ways from the client to the provider.
    pub scenarios: Vec<ScenarioConfig>,
    /// The scenario that the others are compared with; by default `direct`, or the first scenario if there is
    /// no `direct`.
    pub baseline: Option<String>,
    /// The kinds of work; by default one case with all defaults.
    #[serde(default = "one_case")]
    pub cases: Vec<CaseConfig>,
    /// Number of turns of each case through each scenario.
    #[serde(default = "seven")]
    pub rounds: u32,
    /// Treats failing requests as part of the experiment: they are counted and do not make the figures
    /// doubtful.
    #[serde(default)]
    pub failures_expected: bool,
    /// Figures with bounds, which the report judges.
    #[serde(default)]
    pub hold: Vec<HoldConfig>,
    /// Tables that span two cases.
    #[serde(default)]
    pub tables: Vec<TableConfig>,
    /// The machines on which the parts run, if not on this one.
    #[serde(default, skip_serializing_if = "MachinesConfig::is_empty")]
    pub on: MachinesConfig,
    /// Changes made by `--quick`.
    #[serde(default)]
    pub quick: QuickConfig,
}

/// The provider of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The kind of program.
    #[serde(default)]
    pub kind: ProviderKind,
    /// For `command`: the program and its arguments; placeholders are filled in.
    #[serde(default)]
    pub command: Vec<String>,
    /// For `command`: a template of a config file. The command receives the path of the filled-in file as
    /// `@{config}`.
    pub config: Option<PathBuf>,
    /// For `egret` and `go-httpbin`: additional arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The path and query to request; `@{delay_s}` is the case's delay in seconds.
    #[serde(default = "root")]
    pub path: String,
    /// A path that returns 2xx at once when the provider is ready.
    #[serde(default = "root")]
    pub ready: String,
    /// For `command`: files created in its working directory before it starts, by name and size, filled with
    /// the letter x.
    #[serde(default)]
    pub files: BTreeMap<String, Size>,
    /// The provider uses TLS; scenarios without a proxy then use https.
    #[serde(default)]
    pub tls: bool,
}

/// The kind of program that serves as provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// `egret provider`.
    #[default]
    Egret,
    /// go-httpbin, which must be in PATH.
    GoHttpbin,
    /// Any program.
    Command,
}

/// Settings of the load client. In `client` every key has a default; the settings of a case and of the quick
/// profile override single keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// The program (`bench`).
    pub kind: Option<ClientKind>,
    /// Number of requests in a turn (100,000); alternative to `duration`.
    pub requests: Option<u64>,
    /// Duration of a turn; alternative to `requests`.
    pub duration: Option<Duration>,
    /// Number of concurrent connections (100).
    pub concurrency: Option<u32>,
    /// The protocol (`http1`). `http2` and `grpc` only with `bench` and `h2load`.
    pub protocol: Option<Protocol>,
    /// Number of streams on each connection (1). Only with `http2` and `grpc`.
    pub streams: Option<u32>,
    /// Keeps connections open for the next request (`false`, the default of ab and siege).
    pub keep_alive: Option<bool>,
    /// Open model: sends this many requests per second, however slow the responses are. Only with `bench`.
    pub requests_per_second: Option<u32>,
    /// Number of uncounted requests before the measured ones (1,000); 0 for none.
    pub warm_up_requests: Option<u64>,
    /// Size of the body of each request, which is then a POST (no body), or of the payload of each call of
    /// gRPC. Not with `siege`.
    pub body: Option<Size>,
    /// JSON that is the body of each request, which is then a POST (no body). Only with `bench`.
    pub json: Option<String>,
    /// Measures the delay of each event of streams that `egret provider` has stamped (`false`). Only with
    /// `bench` and `http1`, on the machine of the provider.
    pub events: Option<bool>,
    /// Number of threads (1). Only `bench`, `wrk` and `h2load` support more.
    pub threads: Option<u32>,
    /// Resumes TLS sessions on new connections (`false`: each makes a full handshake). Only with `bench`.
    pub resume: Option<bool>,
    /// Time after which a client that has not ended is stopped (`15m`).
    pub deadline: Option<Duration>,
}

/// A way from the client to the provider. Without `egret`, `command` and `url` it is direct.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioConfig {
    /// Name in files and charts: lower-case letters, digits and dashes.
    pub name: String,
    /// A template of an Egret config. Its listener uses `@{port}`, its control API `@{control_port}`.
    pub egret: Option<PathBuf>,
    /// A proxy's program and arguments; placeholders are filled in.
    #[serde(default)]
    pub command: Vec<String>,
    /// A template of the proxy's config. The command receives the path of the filled-in file as `@{config}`.
    pub config: Option<PathBuf>,
    /// The way from the client to the proxy.
    #[serde(default, skip_serializing_if = "Reach::is_plain")]
    pub reach: Reach,
    /// URL of a proxy that runs already, instead of a program: `http://host:port`, or `${env:NAME}` for the
    /// URL in an environment variable. A path precedes the requested path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Path that replaces the case's, for a proxy with paths of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Field lines that each request carries, by name; placeholders are filled in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Number of proxies that are started alike. The client spreads its requests evenly over them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instances: u32,
    /// Names of the services that run beside the proxies, in the order in which they start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Leaves the scenario out if one of its programs is not installed.
    #[serde(default)]
    pub optional: bool,
    /// Changes to `client` for this scenario.
    #[serde(default)]
    pub client: ClientConfig,
}

/// The way from the client to a proxy that the lab starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// HTTP to the proxy, as if it were the provider.
    #[default]
    Plain,
    /// HTTPS to the proxy, as if it were the provider.
    Tls,
    /// HTTPS to the provider in a tunnel: the client asks the proxy for it with CONNECT. Only with `bench`.
    Tunnel,
}

impl Reach {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// A kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CaseConfig {
    /// Name in files and charts: lower-case letters, digits and dashes.
    pub name: String,
    /// Provider time, for the path's `@{delay_s}`. Several cases with a delay yield a chart against provider
    /// time.
    pub delay: Option<Duration>,
    /// Path that replaces the provider's `path`.
    pub path: Option<String>,
    /// Names of the scenarios that take part; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<String>,
    /// Changes to `client` for this case.
    #[serde(default)]
    pub client: ClientConfig,
}

/// A table with a row for each scenario. It compares the same work at full load, where CPU time shows the
/// cost, and at a fixed rate, where response times show the latency without queueing; or it has some figures
/// of some cases.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// Title of the table.
    pub title: String,
    /// The case at full load. If it is not run, there is no such table.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub loaded: String,
    /// The case at a fixed rate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at_rate: String,
    /// The cases whose figures the table has. Those that are not run are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<String>,
    /// These figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// Changes made by `--quick`, which shorten the experiment to at most two minutes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuickConfig {
    /// Number of rounds, instead of the experiment's.
    pub rounds: Option<u32>,
    /// Names of the cases to keep; all if empty.
    pub cases: Vec<String>,
    /// Names of the scenarios to keep; all if empty.
    pub scenarios: Vec<String>,
    /// Changes to the client of every case.
    pub client: ClientConfig,
}

fn one_case() -> Vec<CaseConfig> {
    let (name, client) = ("default".into(), ClientConfig::default());
    vec![CaseConfig { name, delay: None, path: None, scenarios: Vec::new(), client }]
}

fn seven() -> u32 {
    7
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

fn root() -> String {
    "/".into()
}

impl ClientConfig {
    /// Returns these settings overridden by `over`'s. Number of requests and duration are two forms of one
    /// setting.
    #[must_use]
    pub fn with(&self, over: &Self) -> Self {
        let amount =
            if over.requests.or(over.duration.map(Duration::as_millis)).is_some() { over } else { self };
        Self {
            kind: over.kind.or(self.kind),
            requests: amount.requests,
            duration: amount.duration,
            concurrency: over.concurrency.or(self.concurrency),
            protocol: over.protocol.or(self.protocol),
            streams: over.streams.or(self.streams),
            keep_alive: over.keep_alive.or(self.keep_alive),
            requests_per_second: over.requests_per_second.or(self.requests_per_second),
            warm_up_requests: over.warm_up_requests.or(self.warm_up_requests),
            body: over.body.or(self.body),
            json: over.json.as_ref().or(self.json.as_ref()).cloned(),
            events: over.events.or(self.events),
            threads: over.threads.or(self.threads),
            resume: over.resume.or(self.resume),
            deadline: over.deadline.or(self.deadline),
        }
    }

    /// Returns the settings with defaults applied.
    pub(crate) fn resolved(&self) -> ClientSettings {
        let requests = self.requests.unwrap_or(100_000);
        ClientSettings {
            kind: self.kind.unwrap_or_default(),
            amount: self.duration.map_or(Amount::Requests(requests), |duration| Amount::For(duration.get())),
            concurrency: self.concurrency.unwrap_or(100),
            protocol: self.protocol.unwrap_or_default(),
            streams: self.streams.unwrap_or(1),
            keep_alive: self.keep_alive.unwrap_or(false),
            requests_per_second: self.requests_per_second,
            warm_up_requests: self.warm_up_requests.unwrap_or(1_000),
            body_bytes: self.body.map_or(0, Size::bytes),
            json: self.json.clone(),
            events: self.events.unwrap_or(false),
            threads: self.threads.unwrap_or(1),
            resume: self.resume.unwrap_or(false),
            deadline: self.deadline.unwrap_or(Duration::from_secs(900)).get(),
        }
    }
}

impl CaseConfig {
    /// Returns `true` if the scenario takes part in the case.
    pub fn includes(&self, scenario: &ScenarioConfig) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario.name)
    }
}

impl ScenarioConfig {
    /// Returns `true` if requests are sent directly to the provider.
    pub fn is_direct(&self) -> bool {
        self.egret.is_none() && self.command.is_empty() && self.url.is_none()
    }

    /// Returns `true` if the lab starts a proxy.
    pub fn starts_proxy(&self) -> bool {
        !self.is_direct() && self.url.is_none()
    }

    /// The config template, if there is one.
    pub fn template(&self) -> Option<&Path> {
        self.egret.as_deref().or(self.config.as_deref())
    }
}

impl Experiment {
    /// Parses the text of an experiment. Templates are resolved against `directory`; problems are reported
    /// under `name`.
    pub fn parse(name: &str, text: &str, directory: &Path) -> Result<Self, Report> {
        egret_config::load(name, text, |experiment: &Self| experiment.problems(directory))
    }

    /// Reads the file of an experiment and returns its text as well. Templates are resolved against the
    /// file's directory.
    pub fn read(file: &Path) -> Result<(Self, String), Report> {
        let name = file.display().to_string();
        let text = read_text(file).map_err(|error| Report::whole(&name, error.to_string()))?;
        let directory = file.parent().unwrap_or(Path::new("."));
        Ok((Self::parse(&name, &text, directory)?, text))
    }

    /// Name of the scenario that the others are compared with.
    pub fn baseline(&self) -> &str {
        let direct = self.scenarios.iter().find(|scenario| scenario.name == DIRECT);
        let first = direct.or(self.scenarios.first()).map_or(DIRECT, |scenario| &scenario.name);
        self.baseline.as_deref().unwrap_or(first)
    }

    /// The experiment as `--quick` runs it.
    #[must_use]
    pub fn quick(mut self) -> Self {
        let quick = std::mem::take(&mut self.quick);
        self.rounds = quick.rounds.unwrap_or(self.rounds);
        if !quick.cases.is_empty() {
            self.cases.retain(|case| quick.cases.contains(&case.name));
        }
        if !quick.scenarios.is_empty() {
            self.scenarios.retain(|scenario| quick.scenarios.contains(&scenario.name));
        }
        for case in &mut self.cases {
            case.client = case.client.with(&quick.client);
        }
        self
    }

    /// Sets the duration of all turns that have one.
    pub(super) fn set_duration(&mut self, duration: Duration) {
        let change = ClientConfig { duration: Some(duration), ..ClientConfig::default() };
        let base = self.client.clone();
        for client in self.cases.iter_mut().map(|case| &mut case.client) {
            if matches!(base.with(client).resolved().amount, Amount::For(_)) {
                *client = client.with(&change);
            }
        }
    }

    /// The client's settings for a case and a scenario.
    pub(crate) fn client(&self, case: &CaseConfig, scenario: &ScenarioConfig) -> ClientSettings {
        self.client.with(&case.client).with(&scenario.client).resolved()
    }

    /// Every case with each scenario that takes part in it.
    pub fn pairs(&self) -> impl Iterator<Item = (&CaseConfig, &ScenarioConfig)> {
        let of = |case: &CaseConfig, scenario: &&ScenarioConfig| case.includes(scenario);
        self.cases.iter().flat_map(move |case| {
            let scenarios = self.scenarios.iter().filter(move |scenario| of(case, scenario));
            scenarios.map(move |scenario| (case, scenario))
        })
    }

    /// Returns `true` if a client of the experiment speaks HTTP/1.
    pub(crate) fn speaks_http1(&self) -> bool {
        self.pairs().any(|(case, scenario)| self.client(case, scenario).protocol == Protocol::Http1)
    }

    fn problems(&self, directory: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        problems.extend(names("scenarios", self.scenarios.iter().map(|scenario| scenario.name.as_str())));
        problems.extend(names("cases", self.cases.iter().map(|case| case.name.as_str())));
        problems.extend(rounds("rounds", self.rounds));
        problems.extend(self.quick.rounds.and_then(|count| rounds("quick.rounds", count)));
        problems.extend(self.dangling());
        problems.extend(self.machine_problems("on."));
        problems.extend(self.provider.problems(directory));
        problems.extend(service::problems(&self.services));
        for (index, scenario) in self.scenarios.iter().enumerate() {
            problems.extend(scenario.problems(&format!("scenarios[{index}]"), directory));
            problems.extend(both_amounts(&format!("scenarios[{index}].client"), &scenario.client));
        }
        problems.extend(both_amounts("client", &self.client));
        problems.extend(both_amounts("quick.client", &self.quick.client));
        for (index, case) in self.cases.iter().enumerate() {
            let path = format!("cases[{index}]");
            problems.extend(both_amounts(&format!("{path}.client"), &case.client));
            for (number, scenario) in self.scenarios.iter().enumerate() {
                // Reports the problem at the most specific key that is set.
                let shown = if scenario.client != ClientConfig::default() {
                    format!("scenarios[{number}].client")
                } else if case.client != ClientConfig::default() {
                    format!("{path}.client")
                } else {
                    "client".to_owned()
                };
                problems.extend(client_problem(&shown, &self.client(case, scenario)));
                problems.extend(instances_problem(number, scenario, &self.client(case, scenario)));
                problems.extend(reach_problem(number, scenario, &self.client(case, scenario)));
                if case.delay.is_none() && self.path_of(case, scenario).contains("@{delay_s}") {
                    let message = "the path has `@{delay_s}`, so the case needs a `delay`";
                    problems.push(Problem::new(&path, message));
                }
                let quick = self.client.with(&case.client).with(&self.quick.client).with(&scenario.client);
                problems.extend(client_problem("quick.client", &quick.resolved()));
            }
        }
        for (index, table) in self.tables.iter().enumerate() {
            if table.cases.is_empty() != table.figures.is_empty() {
                let message = "a table has either `loaded` and `at_rate`, or `cases` and `figures`";
                problems.push(Problem::new(format!("tables[{index}]"), message));
            }
        }
        for (index, hold) in self.hold.iter().enumerate() {
            problems.extend(hold.problems(&format!("hold[{index}]"), self.provider.counts()));
        }
        let mut once: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        once
    }

    /// Finds problems of the machines; `path` is the prefix of the keys.
    fn machine_problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.on.problems(path, self.scenarios.iter().any(ScenarioConfig::starts_proxy));
        let [client, provider] = [&self.on.client, &self.on.provider]
            .map(|machine| machine.as_ref().and_then(|it| it.ssh.as_ref()));
        if client != provider && self.pairs().any(|(case, scenario)| self.client(case, scenario).events) {
            let message = "`events` compares the clocks of client and provider: they need the same machine";
            problems.push(Problem::new(path.trim_end_matches('.'), message));
        }
        problems
    }

    /// Replaces the machines by those of a file.
    pub(crate) fn set_machines(&mut self, file: &Path) -> Result<(), Report> {
        self.on = MachinesConfig::read(file)?;
        let problem = self.machine_problems("").into_iter().next();
        let name = file.display().to_string();
        problem.map_or(Ok(()), |problem| Err(Report::whole(&name, problem.message)))
    }

    /// Replaces the references to environment variables in the URLs of proxies. Fails with the name of the
    /// scenario whose URL cannot be used.
    pub(crate) fn resolve_urls(&mut self) -> Result<(), (String, UrlError)> {
        for scenario in &mut self.scenarios {
            if let Some(url) = &mut scenario.url {
                let resolved = external_url::resolved(url, |name| std::env::var(name).ok());
                *url = resolved.map_err(|error| (scenario.name.clone(), error))?.base();
            }
        }
        Ok(())
    }

    /// Returns `true` if a bound or a table has this figure.
    pub(crate) fn has_figure(&self, figure: Figure) -> bool {
        let figures = self.hold.iter().map(|hold| &hold.figures);
        figures.chain(self.tables.iter().map(|table| &table.figures)).flatten().any(|other| *other == figure)
    }

    /// The path and query requested in a case through a scenario, with placeholders.
    pub fn path_of<'a>(&'a self, case: &'a CaseConfig, scenario: &'a ScenarioConfig) -> &'a str {
        scenario.path.as_deref().or(case.path.as_deref()).unwrap_or(&self.provider.path)
    }

    /// Finds references to unknown names.
    fn dangling(&self) -> Vec<Problem> {
        let scenarios: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let cases: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        let services: Vec<&str> = self.services.keys().map(String::as_str).collect();
        let mut problems = Vec::new();
        let mut check_name = |path: String, kind: &str, name: &str, known: &[&str]| {
            if !known.contains(&name) {
                let problem = Problem::new(path, format!("there is no {kind} `{name}`"));
                problems.push(problem.suggest(name, known.iter().copied()));
            }
        };
        for (index, scenario) in self.scenarios.iter().enumerate() {
            for (number, name) in scenario.services.iter().enumerate() {
                check_name(format!("scenarios[{index}].services[{number}]"), "service", name, &services);
            }
        }
        for (index, case) in self.cases.iter().enumerate() {
            for (number, name) in case.scenarios.iter().enumerate() {
                check_name(format!("cases[{index}].scenarios[{number}]"), "scenario", name, &scenarios);
            }
        }
        if let Some(baseline) = &self.baseline {
            check_name("baseline".into(), "scenario", baseline, &scenarios);
        }
        for (index, name) in self.quick.scenarios.iter().enumerate() {
            check_name(format!("quick.scenarios[{index}]"), "scenario", name, &scenarios);
        }
        for (index, name) in self.quick.cases.iter().enumerate() {
            check_name(format!("quick.cases[{index}]"), "case", name, &cases);
        }
        for (index, table) in self.tables.iter().enumerate() {
            let of_cases = table.cases.iter().enumerate();
            let of_cases = of_cases.map(|(number, name)| (format!("cases[{number}]"), name));
            let of_load = [("loaded".to_owned(), &table.loaded), ("at_rate".to_owned(), &table.at_rate)];
            let is_by_case = !table.cases.is_empty();
            for (key, name) in of_load.into_iter().filter(|_| !is_by_case).chain(of_cases) {
                check_name(format!("tables[{index}].{key}"), "case", name, &cases);
            }
        }
        for (index, hold) in self.hold.iter().enumerate() {
            for (key, name) in hold.scenarios() {
                check_name(format!("hold[{index}].{key}"), "scenario", name, &scenarios);
            }
            for (number, name) in hold.cases.iter().enumerate() {
                check_name(format!("hold[{index}].cases[{number}]"), "case", name, &cases);
            }
            if let Some(name) = &hold.beside_case {
                check_name(format!("hold[{index}].beside_case"), "case", name, &cases);
            }
        }
        if !self.quick.scenarios.is_empty()
            && !self.quick.scenarios.iter().any(|name| name == self.baseline())
        {
            let message = format!("leaves out the baseline `{}`", self.baseline());
            problems.push(Problem::new("quick.scenarios", message));
        }
        problems
    }
}

impl ProviderConfig {
    /// Returns `true` if the provider's counters can be read: it is the built-in one, without TLS and prefix.
    pub(super) fn counts(&self) -> bool {
        let moved = self.arguments.iter().any(|word| word.starts_with("--prefix"));
        self.kind == ProviderKind::Egret && !self.tls && !moved
    }

    fn problems(&self, directory: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        let is_command = self.kind == ProviderKind::Command;
        if is_command && self.command.is_empty() {
            problems.push(Problem::new(
                "provider.kind",
                "`command` requires the key `command`: a program and its arguments",
            ));
        }
        if !is_command && (!self.command.is_empty() || self.config.is_some()) {
            problems.push(Problem::new("provider", "`command` and `config` require `kind: command`"));
        }
        if !is_command && !self.files.is_empty() {
            problems.push(Problem::new("provider.files", "requires `kind: command`"));
        }
        for (name, size) in &self.files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                let message =
                    "a file name may contain letters, digits, `-`, `_` and `.`, and does not start with `.`";
                problems.push(Problem::new(format!("provider.files.{name}"), message));
            }
            problems.extend(too_large(&format!("provider.files.{name}"), size.bytes()));
        }
        if is_command && !self.arguments.is_empty() {
            problems
                .push(Problem::new("provider.arguments", "put the arguments of a command into `command`"));
        }
        for (key, path) in [("path", &self.path), ("ready", &self.ready)] {
            if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
                problems.push(Problem::new(
                    format!("provider.{key}"),
                    "a path must start with `/` and contain no spaces",
                ));
            }
        }
        let none = Additional::default();
        problems.extend(words("provider.command", &self.command, self.config.is_some(), none));
        problems.extend(words("provider.arguments", &self.arguments, false, none));
        problems.extend(
            self.config.as_ref().and_then(|file| template_problem("provider.config", file, directory, none)),
        );
        problems
    }
}

impl ScenarioConfig {
    fn problems(&self, path: &str, directory: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.egret.is_some() && !(self.command.is_empty() && self.config.is_none()) {
            let message = "`egret` cannot be combined with `command` or `config`";
            problems.push(Problem::new(format!("{path}.egret"), message));
        }
        if self.egret.is_none() && self.config.is_some() && self.command.is_empty() {
            problems
                .push(Problem::new(format!("{path}.config"), "`config` requires a `command` that reads it"));
        }
        let additional = Additional { services: &self.services, instances: self.instances };
        let has_config = self.config.is_some();
        problems.extend(words(&format!("{path}.command"), &self.command, has_config, additional));
        problems.extend(self.url_problems(path));
        problems.extend(self.header_problems(path));
        problems.extend(self.company_problems(path));
        let (key, file) =
            if self.egret.is_some() { ("egret", &self.egret) } else { ("config", &self.config) };
        problems.extend(
            file.as_ref()
                .and_then(|file| template_problem(&format!("{path}.{key}"), file, directory, additional)),
        );
        problems
    }

    /// Finds problems of the instances and services.
    fn company_problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=INSTANCES_MAX).contains(&self.instances) {
            let message = format!("expected a number from 1 to {INSTANCES_MAX}");
            problems.push(Problem::new(format!("{path}.instances"), message));
        }
        if !self.starts_proxy() && self.instances != 1 {
            problems.push(Problem::new(format!("{path}.instances"), "requires a proxy that the lab starts"));
        }
        if !self.starts_proxy() && !self.services.is_empty() {
            problems.push(Problem::new(format!("{path}.services"), "requires a proxy that the lab starts"));
        }
        if !self.starts_proxy() && !self.reach.is_plain() {
            problems.push(Problem::new(format!("{path}.reach"), "requires a proxy that the lab starts"));
        }
        let mut seen = BTreeSet::new();
        if !self.services.iter().all(|name| seen.insert(name)) {
            problems.push(Problem::new(format!("{path}.services"), "names a service twice"));
        }
        problems
    }

    fn url_problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add =
            |key: &str, message: &str| problems.push(Problem::new(format!("{path}.{key}"), message));
        let Some(url) = &self.url else { return problems };
        if self.egret.is_some() || !self.command.is_empty() || self.config.is_some() {
            add("url", "cannot be combined with `egret`, `command` or `config`: the proxy runs already");
        }
        let parsed = external_url::variable(url).map(|variable| variable.is_some());
        if let Err(error) = parsed
            .and_then(|is_set_later| if is_set_later { Ok(()) } else { ExternalUrl::parse(url).map(drop) })
        {
            add("url", &error.to_string());
        }
        problems
    }

    fn header_problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add =
            |key: &str, message: &str| problems.push(Problem::new(format!("{path}.{key}"), message));
        for (name, value) in &self.headers {
            let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&*+-.^_|~".contains(c);
            if name.is_empty() || !name.chars().all(plain) || name.eq_ignore_ascii_case("host") {
                add(&format!("headers.{name}"), "expected the name of a header field other than `host`");
            }
            if value.contains(char::is_control) || value.len() > HEADER_BYTES_MAX {
                add(&format!("headers.{name}"), "a value has at most 1,024 bytes and no control characters");
            }
            if let Err(unknown) = template::check(value, Additional::default()) {
                problems.push(unknown.problem(format!("{path}.headers.{name}")));
                break;
            }
        }
        problems
    }
}

/// Finds unknown placeholders in the words of a command.
fn words(path: &str, words: &[String], has_config: bool, additional: Additional<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Err(unknown) = template::check(word, additional) {
            problems.push(unknown.problem(path));
        } else if word.contains("@{config}") && !has_config {
            problems
                .push(Problem::new(path, "`@{config}` requires the key `config`: the template to fill in"));
        }
    }
    problems
}

fn template_problem(
    path: &str,
    file: &Path,
    directory: &Path,
    additional: Additional<'_>,
) -> Option<Problem> {
    let located = directory.join(file);
    let text = match read_text(&located) {
        Ok(text) => text,
        Err(error) => return Some(Problem::new(path, format!("{}: {error}", located.display()))),
    };
    let unknown = template::check(&text, additional).err()?;
    let mut problem = unknown.problem(path);
    problem.message = format!("{}:{}: {}", located.display(), unknown.line, problem.message);
    Some(problem)
}

/// Checks names, which become file names and legends.
fn names<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        let path = format!("{key}[{index}].name");
        if let Some(message) = invalid_name(name) {
            problems.push(Problem::new(path, message));
        } else if !seen.insert(name) {
            problems.push(Problem::new(path, format!("duplicate name `{name}`")));
        }
    }
    if seen.is_empty() && problems.is_empty() {
        problems.push(Problem::new(key, "at least one is required"));
    }
    if seen.len() > LIST_MAX {
        problems.push(Problem::new(key, format!("more than {LIST_MAX} entries")));
    }
    problems
}

/// Explains why a name cannot be part of file names.
fn invalid_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_valid =
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(plain) && !name.starts_with('-');
    (!is_valid).then(|| {
        format!(
            "`{name}` is not a valid name: use up to 64 lower-case letters, digits and dashes, not starting with a dash"
        )
    })
}

fn rounds(path: &str, count: u32) -> Option<Problem> {
    let allowed = (1..=ROUNDS_MAX).contains(&count);
    (!allowed)
        .then(|| Problem::new(path, format!("expected a number from 1 to {ROUNDS_MAX}, found `{count}`")))
}

fn both_amounts(path: &str, client: &ClientConfig) -> Option<Problem> {
    let both = client.requests.is_some() && client.duration.is_some();
    both.then(|| Problem::new(format!("{path}.duration"), "set either `requests` or `duration`, not both"))
}

fn too_large(path: &str, bytes: u64) -> Option<Problem> {
    let message = || format!("more than {} MiB", CONTENT_BYTES_MAX >> 20);
    (bytes > CONTENT_BYTES_MAX).then(|| Problem::new(path, message()))
}

/// Finds a client that cannot spread requests over several proxies.
fn instances_problem(index: usize, scenario: &ScenarioConfig, client: &ClientSettings) -> Option<Problem> {
    let is_spread = scenario.instances == 1 || client.kind == ClientKind::Bench;
    let message = || format!("{} sends requests to one proxy only: only `bench` spreads them", client.kind);
    (!is_spread).then(|| Problem::new(format!("scenarios[{index}].instances"), message()))
}

/// Finds a client that cannot reach the proxy as the scenario wants, or a scenario that cannot be.
fn reach_problem(index: usize, scenario: &ScenarioConfig, client: &ClientSettings) -> Option<Problem> {
    let problem = |message: String| Some(Problem::new(format!("scenarios[{index}].reach"), message));
    if scenario.reach != Reach::Tunnel {
        return None;
    }
    if client.kind != ClientKind::Bench {
        return problem(format!("{} does not ask for a tunnel with CONNECT: only `bench` does", client.kind));
    }
    (scenario.instances > 1)
        .then(|| problem("a client has one proxy for its tunnels: remove `instances`".into()))
        .flatten()
}

/// Finds a setting that the client does not support.
fn client_problem(path: &str, client: &ClientSettings) -> Option<Problem> {
    let at = |key: &str, message: String| Some(Problem::new(format!("{path}.{key}"), message));
    if !(1..=CONCURRENCY_MAX).contains(&client.concurrency) {
        return at("concurrency", format!("expected a number from 1 to {CONCURRENCY_MAX}"));
    }
    match client.amount {
        Amount::Requests(requests) if !(1..=REQUESTS_MAX).contains(&requests) => {
            return at("requests", format!("expected a number from 1 to {REQUESTS_MAX}"));
        }
        Amount::Requests(requests) if requests < u64::from(client.concurrency) => {
            let message = format!(
                "{} connections for {requests} requests: some would have no work",
                client.concurrency
            );
            return at("concurrency", message);
        }
        Amount::Requests(_) if client.kind == ClientKind::Wrk => {
            return at("kind", "wrk does not support a number of requests: set `duration`".into());
        }
        Amount::For(duration) if duration < std::time::Duration::from_secs(1) => {
            return at("duration", "must be at least `1s`".into());
        }
        Amount::For(duration) if duration >= client.deadline => {
            return at("deadline", "must be longer than `duration`".into());
        }
        _ => {}
    }
    if matches!(client.kind, ClientKind::Wrk | ClientKind::H2load) && !client.keep_alive {
        let message = format!("{} always keeps connections open: set `keep_alive: true`", client.kind);
        return at("keep_alive", message);
    }
    if let Some((key, message)) = protocol_problem(client) {
        return at(key, message);
    }
    if !(1..=client.concurrency.min(THREADS_MAX)).contains(&client.threads) {
        return at("threads", format!("expected a number from 1 to {THREADS_MAX}, at most `concurrency`"));
    }
    if client.threads > 1 && !matches!(client.kind, ClientKind::Bench | ClientKind::Wrk | ClientKind::H2load)
    {
        let message = "does not support several threads: only `bench`, `wrk` and `h2load` do";
        return at("threads", format!("{} {message}", client.kind));
    }
    if client.resume && client.kind != ClientKind::Bench {
        return at("resume", format!("{} does not say whether it resumes: only `bench` does", client.kind));
    }
    if client.body_bytes > 0 && client.kind == ClientKind::Siege {
        return at("body", "not supported with siege, which only sends GET here".into());
    }
    if client.json.is_some() && (client.kind != ClientKind::Bench || client.protocol == Protocol::Grpc) {
        return at("json", "requires `bench` and `http1` or `http2`".into());
    }
    if client.json.is_some() && client.body_bytes > 0 {
        return at("json", "set either `json` or `body`, not both".into());
    }
    if client.events && (client.kind != ClientKind::Bench || client.protocol != Protocol::Http1) {
        return at("events", "requires `bench` and `http1`".into());
    }
    if let Some(problem) = too_large(&format!("{path}.body"), client.body_bytes) {
        return Some(problem);
    }
    if client.requests_per_second == Some(0) {
        return at("requests_per_second", "expected a number from 1".into());
    }
    if client.requests_per_second.is_some() && client.kind != ClientKind::Bench {
        let message = format!("{} does not support a fixed rate: only `bench` does", client.kind);
        return at("requests_per_second", message);
    }
    None
}

/// Finds a protocol that the client does not speak, or an impossible number of streams: the key, and why.
fn protocol_problem(client: &ClientSettings) -> Option<(&'static str, String)> {
    let has_streams = client.protocol != Protocol::Http1;
    if has_streams && !matches!(client.kind, ClientKind::Bench | ClientKind::H2load) {
        let message = format!("{} does not speak HTTP/2 here: only `bench` and `h2load` do", client.kind);
        return Some(("protocol", message));
    }
    if !has_streams && client.kind == ClientKind::H2load {
        return Some(("protocol", "h2load speaks `http2` and `grpc` here".into()));
    }
    if !has_streams && client.streams != 1 {
        return Some(("streams", "requires `protocol: http2` or `grpc`".into()));
    }
    let streams_max = STREAMS_MAX.min(CONCURRENCY_MAX / client.concurrency);
    (!(1..=streams_max).contains(&client.streams)).then(|| {
        let message = format!(
            "expected a number from 1 to {STREAMS_MAX}, and at most {CONCURRENCY_MAX} streams in all"
        );
        ("streams", message)
    })
}

#[cfg(test)]
mod tests;
