//! The experiment file: its keys, their defaults, and what the types cannot say.

mod hold;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use egret_config::{CONFIG_BYTES_MAX, Duration, Problem, Report, Size};
use serde::{Deserialize, Serialize};

use super::client::ClientKind;
use super::template;
pub use hold::{Figure, HoldConfig, Within};

/// Rounds beyond this bring nothing and fill a disk.
const ROUNDS_MAX: u32 = 1_000;

/// Scenarios and cases of one experiment; each pair is a turn in every round.
const LIST_MAX: usize = 64;

/// The longest name of a case or a scenario; both stand in file names.
const NAME_BYTES_MAX: usize = 64;

/// The most connections that a client is asked for.
const CONCURRENCY_MAX: u32 = 10_000;

/// The most requests of one turn: ab keeps every one in memory.
const REQUESTS_MAX: u64 = 50_000_000;

/// The most threads that a client is asked for.
const THREADS_MAX: u32 = 64;

/// The largest body that a client sends, and the largest file that a provider is given.
const CONTENT_BYTES_MAX: u64 = 64 << 20;

/// The scenario that deltas are taken from unless another is named.
const DIRECT: &str = "direct";

/// An experiment, as its file says it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What it shows, in a line.
    pub title: String,
    /// What is asked and how to read the answer.
    #[serde(default)]
    pub about: String,
    /// What answers.
    pub provider: ProviderConfig,
    /// What asks, and how much.
    #[serde(default)]
    pub client: ClientConfig,
    /// The ways from the client to the provider.
    pub scenarios: Vec<ScenarioConfig>,
    /// The scenario that the others are held against; `direct`, or the first where there is none of that name.
    #[serde(default)]
    pub baseline: Option<String>,
    /// The kinds of work; one with all defaults where none is named.
    #[serde(default = "one_case")]
    pub cases: Vec<CaseConfig>,
    /// Turns of each case through each scenario.
    #[serde(default = "seven")]
    pub rounds: u32,
    /// Whether failing requests are part of what is asked, so that they are counted and no reason for doubt.
    #[serde(default)]
    pub failures_expected: bool,
    /// Figures that are to be held, which the report judges.
    #[serde(default)]
    pub hold: Vec<HoldConfig>,
    /// Tables across two cases.
    #[serde(default)]
    pub tables: Vec<TableConfig>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: QuickConfig,
}

/// What answers the requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Which program.
    #[serde(default)]
    pub kind: ProviderKind,
    /// For `command`: the program and its arguments; placeholders are filled in.
    #[serde(default)]
    pub command: Vec<String>,
    /// For `command`: a config file's template, of which the command gets the filled-in path as `@{config}`.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// For `egret` and `go-httpbin`: more arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The path and query asked for; `@{delay_s}` is the case's delay in seconds.
    #[serde(default = "root")]
    pub path: String,
    /// A path that is answered at once with 2xx when the provider is ready.
    #[serde(default = "root")]
    pub ready: String,
    /// For `command`: files made before it starts, in its working directory, by name and size; full of the letter x.
    #[serde(default)]
    pub files: BTreeMap<String, Size>,
    /// Whether it speaks TLS; scenarios without a proxy then ask by https.
    #[serde(default)]
    pub tls: bool,
}

/// Which program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// `egret provider`.
    #[default]
    Egret,
    /// go-httpbin, which has to be on the path.
    GoHttpbin,
    /// Any program.
    Command,
}

/// What asks, and how much. In `client` all keys have defaults; a case's and the quick profile's override them one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// Which program (`bench`).
    pub kind: Option<ClientKind>,
    /// Requests of a turn (100,000), or `duration`.
    pub requests: Option<u64>,
    /// How long a turn lasts, instead of `requests`.
    pub duration: Option<Duration>,
    /// Connections at a time (100).
    pub concurrency: Option<u32>,
    /// Whether connections are kept for the next request (`false`, as ab and siege do by default).
    pub keep_alive: Option<bool>,
    /// Open model: so many requests each second whatever comes back. Only `bench` can.
    pub requests_per_second: Option<u32>,
    /// Requests before the measured ones, which are not counted (1,000); 0 for none.
    pub warm_up_requests: Option<u64>,
    /// Size of the body of each request, which is then a POST (none). Not with `siege`.
    pub body: Option<Size>,
    /// Threads (1). Only `bench` and `wrk` can have more.
    pub threads: Option<u32>,
    /// When a client that has not ended is given up (`15m`).
    pub deadline: Option<Duration>,
}

/// A way from the client to the provider. With neither `egret` nor `command` it is the straight one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioConfig {
    /// What files and charts call it: small letters, digits and dashes.
    pub name: String,
    /// A template of an Egret config; its listener is on `@{port}`, its control port on `@{control_port}`.
    #[serde(default)]
    pub egret: Option<PathBuf>,
    /// A proxy's program and arguments; placeholders are filled in.
    #[serde(default)]
    pub command: Vec<String>,
    /// A template of that proxy's config, of which the command gets the filled-in path as `@{config}`.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// Whether to go on without it where its program is not installed.
    #[serde(default)]
    pub optional: bool,
    /// Changes to `client`, for scenarios that differ in what asks.
    #[serde(default)]
    pub client: ClientConfig,
}

/// A kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CaseConfig {
    /// What files and charts call it: small letters, digits and dashes.
    pub name: String,
    /// The time that the provider takes; the path's `@{delay_s}`. Several cases with it make a chart against provider time.
    #[serde(default)]
    pub delay: Option<Duration>,
    /// Instead of the provider's `path`.
    #[serde(default)]
    pub path: Option<String>,
    /// Changes to `client`.
    #[serde(default)]
    pub client: ClientConfig,
}

/// A table of the same work at full load, where CPU time tells the cost, and at a rate, where response times tell what a client at ease sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// What stands above it.
    pub title: String,
    /// The case at full load. Where it is not run there is no table.
    pub loaded: String,
    /// The case at a rate.
    pub at_rate: String,
}

/// What `--quick` changes, so that the experiment ends within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuickConfig {
    /// Rounds instead of the experiment's.
    pub rounds: Option<u32>,
    /// The cases that are kept, by name; all where none is named.
    pub cases: Vec<String>,
    /// The scenarios that are kept, by name; all where none is named.
    pub scenarios: Vec<String>,
    /// Changes to every case's client.
    pub client: ClientConfig,
}

fn one_case() -> Vec<CaseConfig> {
    vec![CaseConfig { name: "default".into(), delay: None, path: None, client: ClientConfig::default() }]
}

fn seven() -> u32 {
    7
}

fn root() -> String {
    "/".into()
}

/// A client's settings with nothing left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Which program.
    pub kind: ClientKind,
    /// How much.
    pub amount: Amount,
    /// Connections at a time.
    pub concurrency: u32,
    /// Whether connections are kept.
    pub keep_alive: bool,
    /// Requests each second, in the open model.
    pub requests_per_second: Option<u32>,
    /// Requests before the measured ones.
    pub warm_up_requests: u64,
    /// Size of the body of each request; 0 where they are GET.
    pub body_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// When it is given up.
    pub deadline: std::time::Duration,
}

/// How much a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many requests.
    Requests(u64),
    /// As many as go through in this time.
    For(std::time::Duration),
}

impl ClientConfig {
    /// These settings with `over`'s on top. The amount is one setting, said in either of two ways.
    #[must_use]
    pub fn with(&self, over: &Self) -> Self {
        let amount =
            if over.requests.or(over.duration.map(Duration::as_millis)).is_some() { over } else { self };
        Self {
            kind: over.kind.or(self.kind),
            requests: amount.requests,
            duration: amount.duration,
            concurrency: over.concurrency.or(self.concurrency),
            keep_alive: over.keep_alive.or(self.keep_alive),
            requests_per_second: over.requests_per_second.or(self.requests_per_second),
            warm_up_requests: over.warm_up_requests.or(self.warm_up_requests),
            body: over.body.or(self.body),
            threads: over.threads.or(self.threads),
            deadline: over.deadline.or(self.deadline),
        }
    }

    /// These settings with the defaults for what is left open.
    pub fn resolved(&self) -> Client {
        let requests = self.requests.unwrap_or(100_000);
        Client {
            kind: self.kind.unwrap_or_default(),
            amount: self.duration.map_or(Amount::Requests(requests), |duration| Amount::For(duration.get())),
            concurrency: self.concurrency.unwrap_or(100),
            keep_alive: self.keep_alive.unwrap_or(false),
            requests_per_second: self.requests_per_second,
            warm_up_requests: self.warm_up_requests.unwrap_or(1_000),
            body_bytes: self.body.map_or(0, Size::bytes),
            threads: self.threads.unwrap_or(1),
            deadline: self.deadline.unwrap_or(Duration::from_secs(900)).get(),
        }
    }
}

impl ScenarioConfig {
    /// Whether requests go straight to the provider.
    pub fn is_direct(&self) -> bool {
        self.egret.is_none() && self.command.is_empty()
    }

    /// The config template, if there is one.
    pub fn template(&self) -> Option<&Path> {
        self.egret.as_deref().or(self.config.as_deref())
    }
}

impl Experiment {
    /// Reads an experiment's text. `directory` is where its templates are looked for; `name` is what problems are reported under.
    pub fn parse(name: &str, text: &str, directory: &Path) -> Result<Self, Report> {
        egret_config::load(name, text, |experiment: &Self| experiment.problems(directory))
    }

    /// Reads an experiment's file; its templates stand beside it. Gives its text too.
    pub fn read(file: &Path) -> Result<(Self, String), Report> {
        let name = file.display().to_string();
        let text = read_text(file).map_err(|message| Report::whole(&name, message))?;
        let directory = file.parent().unwrap_or(Path::new("."));
        Ok((Self::parse(&name, &text, directory)?, text))
    }

    /// The scenario that the others are held against.
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

    /// Has turns that last for a time last so long.
    pub(super) fn lasting(&mut self, duration: Duration) {
        let change = ClientConfig { duration: Some(duration), ..ClientConfig::default() };
        let base = self.client.clone();
        for client in self.cases.iter_mut().map(|case| &mut case.client) {
            if matches!(base.with(client).resolved().amount, Amount::For(_)) {
                *client = client.with(&change);
            }
        }
    }

    /// What the client does in a case, on its way through a scenario.
    pub fn client(&self, case: &CaseConfig, scenario: &ScenarioConfig) -> Client {
        self.client.with(&case.client).with(&scenario.client).resolved()
    }

    /// Every case with every scenario.
    pub fn pairs(&self) -> impl Iterator<Item = (&CaseConfig, &ScenarioConfig)> {
        self.cases.iter().flat_map(|case| self.scenarios.iter().map(move |scenario| (case, scenario)))
    }

    fn problems(&self, directory: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        problems.extend(names("scenarios", self.scenarios.iter().map(|scenario| scenario.name.as_str())));
        problems.extend(names("cases", self.cases.iter().map(|case| case.name.as_str())));
        problems.extend(rounds("rounds", self.rounds));
        problems.extend(self.quick.rounds.and_then(|count| rounds("quick.rounds", count)));
        problems.extend(self.dangling());
        problems.extend(self.provider.problems(directory));
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
                // Shown where something of its own is said.
                let shown = if scenario.client != ClientConfig::default() {
                    format!("scenarios[{number}].client")
                } else if case.client != ClientConfig::default() {
                    format!("{path}.client")
                } else {
                    "client".to_owned()
                };
                problems.extend(client_problem(&shown, &self.client(case, scenario)));
                let quick = self.client.with(&case.client).with(&self.quick.client).with(&scenario.client);
                problems.extend(client_problem("quick.client", &quick.resolved()));
            }
            if case.delay.is_none() && self.path_of(case).contains("@{delay_s}") {
                problems.push(Problem::new(path, "the path has `@{delay_s}`, so the case needs a `delay`"));
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

    /// The path and query asked for in a case, with its placeholder.
    pub fn path_of<'a>(&'a self, case: &'a CaseConfig) -> &'a str {
        case.path.as_deref().unwrap_or(&self.provider.path)
    }

    /// Names that are referred to and not there.
    fn dangling(&self) -> Vec<Problem> {
        let scenarios: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let cases: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        let mut problems = Vec::new();
        let mut look = |path: String, kind: &str, name: &str, known: &[&str]| {
            if !known.contains(&name) {
                let problem = Problem::new(path, format!("there is no {kind} `{name}`"));
                problems.push(problem.suggest(name, known.iter().copied()));
            }
        };
        if let Some(baseline) = &self.baseline {
            look("baseline".into(), "scenario", baseline, &scenarios);
        }
        for (index, name) in self.quick.scenarios.iter().enumerate() {
            look(format!("quick.scenarios[{index}]"), "scenario", name, &scenarios);
        }
        for (index, name) in self.quick.cases.iter().enumerate() {
            look(format!("quick.cases[{index}]"), "case", name, &cases);
        }
        for (index, table) in self.tables.iter().enumerate() {
            for (key, name) in [("loaded", &table.loaded), ("at_rate", &table.at_rate)] {
                look(format!("tables[{index}].{key}"), "case", name, &cases);
            }
        }
        for (index, hold) in self.hold.iter().enumerate() {
            for (key, name) in hold.scenarios() {
                look(format!("hold[{index}].{key}"), "scenario", name, &scenarios);
            }
            for (number, name) in hold.cases.iter().enumerate() {
                look(format!("hold[{index}].cases[{number}]"), "case", name, &cases);
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
    /// Whether it tells what it counted: the built-in one does, where it can be asked plainly.
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
                "`command` needs the key `command`: a program and its arguments",
            ));
        }
        if !is_command && (!self.command.is_empty() || self.config.is_some()) {
            problems.push(Problem::new("provider", "`command` and `config` go with `kind: command`"));
        }
        if !is_command && !self.files.is_empty() {
            problems.push(Problem::new("provider.files", "goes with `kind: command`"));
        }
        for (name, size) in &self.files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                let message = "a file's name is of letters, digits, `-`, `_` and `.`";
                problems.push(Problem::new(format!("provider.files.{name}"), message));
            }
            problems.extend(too_large(&format!("provider.files.{name}"), size.bytes()));
        }
        if is_command && !self.arguments.is_empty() {
            problems.push(Problem::new("provider.arguments", "a command has its arguments in `command`"));
        }
        for (key, path) in [("path", &self.path), ("ready", &self.ready)] {
            if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
                problems.push(Problem::new(
                    format!("provider.{key}"),
                    "a path starts with `/` and holds no spaces",
                ));
            }
        }
        problems.extend(words("provider.command", &self.command, self.config.is_some()));
        problems.extend(words("provider.arguments", &self.arguments, false));
        problems.extend(
            self.config.as_ref().and_then(|file| template_problem("provider.config", file, directory)),
        );
        problems
    }
}

impl ScenarioConfig {
    fn problems(&self, path: &str, directory: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.egret.is_some() && !(self.command.is_empty() && self.config.is_none()) {
            let message = "a scenario is either Egret with a config or a command, not both";
            problems.push(Problem::new(format!("{path}.egret"), message));
        }
        if self.egret.is_none() && self.config.is_some() && self.command.is_empty() {
            problems.push(Problem::new(format!("{path}.config"), "a config needs a `command` that reads it"));
        }
        problems.extend(words(&format!("{path}.command"), &self.command, self.config.is_some()));
        let (key, file) =
            if self.egret.is_some() { ("egret", &self.egret) } else { ("config", &self.config) };
        problems.extend(
            file.as_ref().and_then(|file| template_problem(&format!("{path}.{key}"), file, directory)),
        );
        problems
    }
}

/// Placeholders in a command's words that nothing fills in.
fn words(path: &str, words: &[String], has_config: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Err(unknown) = template::check(word) {
            problems.push(unknown.problem(path));
        } else if word.contains("@{config}") && !has_config {
            problems.push(Problem::new(path, "`@{config}` needs the key `config`: the template to fill in"));
        }
    }
    problems
}

fn template_problem(path: &str, file: &Path, directory: &Path) -> Option<Problem> {
    let located = directory.join(file);
    let text = match read_text(&located) {
        Ok(text) => text,
        Err(message) => return Some(Problem::new(path, format!("{}: {message}", located.display()))),
    };
    let unknown = template::check(&text).err()?;
    let mut problem = unknown.problem(path);
    problem.message = format!("{}:{}: {}", located.display(), unknown.line, problem.message);
    Some(problem)
}

/// Names become file names and legends.
fn names<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        let path = format!("{key}[{index}].name");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) || name.starts_with('-')
        {
            let message =
                format!("`{name}` cannot name files: write up to 64 small letters, digits and dashes");
            problems.push(Problem::new(path, message));
        } else if !seen.insert(name) {
            problems.push(Problem::new(path, format!("`{name}` is there twice")));
        }
    }
    if seen.is_empty() && problems.is_empty() {
        problems.push(Problem::new(key, "at least one is needed"));
    }
    if seen.len() > LIST_MAX {
        problems.push(Problem::new(key, format!("more than {LIST_MAX}")));
    }
    problems
}

fn rounds(path: &str, count: u32) -> Option<Problem> {
    let allowed = (1..=ROUNDS_MAX).contains(&count);
    (!allowed)
        .then(|| Problem::new(path, format!("expected a number from 1 to {ROUNDS_MAX}, found `{count}`")))
}

fn both_amounts(path: &str, client: &ClientConfig) -> Option<Problem> {
    let both = client.requests.is_some() && client.duration.is_some();
    both.then(|| {
        Problem::new(format!("{path}.duration"), "a turn ends after `requests` or after `duration`, not both")
    })
}

fn too_large(path: &str, bytes: u64) -> Option<Problem> {
    let message = || format!("more than {} MiB", CONTENT_BYTES_MAX >> 20);
    (bytes > CONTENT_BYTES_MAX).then(|| Problem::new(path, message()))
}

/// What a client cannot do.
fn client_problem(path: &str, client: &Client) -> Option<Problem> {
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
                "{} connections for {requests} requests: some would have nothing to do",
                client.concurrency
            );
            return at("concurrency", message);
        }
        Amount::Requests(_) if client.kind == ClientKind::Wrk => {
            return at("kind", "wrk has no number of requests: give a `duration`".into());
        }
        Amount::For(duration) if duration < std::time::Duration::from_secs(1) => {
            return at("duration", "a turn lasts at least `1s`".into());
        }
        Amount::For(duration) if duration >= client.deadline => {
            return at("deadline", "has to be longer than `duration`".into());
        }
        _ => {}
    }
    if client.kind == ClientKind::Wrk && !client.keep_alive {
        return at("keep_alive", "wrk always keeps its connections: say `keep_alive: true`".into());
    }
    if !(1..=client.concurrency.min(THREADS_MAX)).contains(&client.threads) {
        return at("threads", format!("expected a number from 1 to {THREADS_MAX}, at most `concurrency`"));
    }
    if client.threads > 1 && !matches!(client.kind, ClientKind::Bench | ClientKind::Wrk) {
        return at(
            "threads",
            format!("{} takes no number of threads: only `bench` and `wrk` do", client.kind),
        );
    }
    if client.body_bytes > 0 && client.kind == ClientKind::Siege {
        return at("body", "siege is only asked for GET here".into());
    }
    if let Some(problem) = too_large(&format!("{path}.body"), client.body_bytes) {
        return Some(problem);
    }
    if client.requests_per_second == Some(0) {
        return at("requests_per_second", "expected a number from 1".into());
    }
    if client.requests_per_second.is_some() && client.kind != ClientKind::Bench {
        let message = format!("{} sends as fast as it is answered: only `bench` holds a rate", client.kind);
        return at("requests_per_second", message);
    }
    None
}

/// Reads a text file up to a config's limit.
pub(super) fn read_text(file: &Path) -> Result<String, String> {
    let opened = std::fs::File::open(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be opened: {error}"),
    })?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(CONFIG_BYTES_MAX + 1).unwrap_or(u64::MAX);
    opened.take(limit).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(format!("longer than {CONFIG_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())
}

#[cfg(test)]
mod tests;
