//! Egret under test: its config, process and control port.

use std::fmt::Display;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use serde_json::Value;

use crate::http::{Client, Response};
use crate::process::{Directory, Process};
use crate::wait;

/// A config under construction. By default listeners are on free ports and logs are JSON.
#[derive(Debug, Clone)]
pub struct Config {
    listen: Vec<String>,
    gateway: Vec<String>,
    control: Vec<String>,
    providers: Vec<String>,
    flows: String,
    /// The whole text, instead of the parts.
    written: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec!["\"127.0.0.1:0\"".to_owned()],
            gateway: Vec::new(),
            control: Vec::new(),
            providers: Vec::new(),
            flows: String::new(),
            written: None,
        }
    }
}

impl Config {
    /// Creates a config with one provider named `origin`.
    pub fn with_origin(url: impl Display) -> Self {
        Self::default().provider("origin", url)
    }

    /// Creates a config from a whole text with one listener, whose ports and logs suit a test.
    pub fn written(yaml: String) -> Self {
        Self { written: Some(yaml), ..Self::default() }
    }

    /// Adds a provider.
    #[must_use]
    pub fn provider(self, name: &str, url: impl Display) -> Self {
        self.provider_with(name, url, "")
    }

    /// Adds a provider with more keys, in YAML's flow style: `pool: { connections: 1 }`.
    #[must_use]
    pub fn provider_with(mut self, name: &str, url: impl Display, keys: &str) -> Self {
        let separator = if keys.is_empty() { "" } else { ", " };
        self.providers.push(format!("{name}: {{ url: \"{url}\"{separator}{keys} }}"));
        self
    }

    /// Adds a line under `gateway:`.
    #[must_use]
    pub fn gateway(mut self, line: impl Into<String>) -> Self {
        self.gateway.push(line.into());
        self
    }

    /// Appends the end of the config: `quotas:` and `flows:`.
    #[must_use]
    pub fn flows(mut self, yaml: impl Display) -> Self {
        self.flows = yaml.to_string();
        self
    }

    /// Adds a line under `control:`.
    #[must_use]
    pub fn control(mut self, line: impl Into<String>) -> Self {
        self.control.push(line.into());
        self
    }

    /// Replaces the listeners.
    #[must_use]
    pub fn listen<const N: usize>(mut self, entries: [&str; N]) -> Self {
        self.listen = entries.map(str::to_owned).to_vec();
        self
    }

    /// The text of the config file.
    pub fn yaml(&self) -> String {
        if let Some(written) = &self.written {
            return written.clone();
        }
        let mut yaml = format!("gateway:\n  listen: [{}]\n", self.listen.join(", "));
        push_lines(&mut yaml, &self.gateway);
        yaml += "control:\n  listen: 127.0.0.1:0\n";
        push_lines(&mut yaml, &self.control);
        yaml += "log: { format: json, level: debug }\n";
        if !self.providers.is_empty() {
            yaml += "providers:\n";
            push_lines(&mut yaml, &self.providers);
        }
        yaml + &self.flows
    }

    /// Starts Egret with this config.
    pub fn start(&self) -> Egret {
        Egret::start(self)
    }
}

fn push_lines(yaml: &mut String, lines: &[String]) {
    for line in lines {
        yaml.extend(["  ", line, "\n"]);
    }
}

/// A running Egret; killed when dropped.
#[derive(Debug)]
pub struct Egret {
    process: Process,
    listeners: Vec<SocketAddr>,
    control: SocketAddr,
    directory: Directory,
}

impl Egret {
    /// Starts Egret and waits until it listens.
    pub fn start(config: &Config) -> Self {
        Self::start_with(config, |_| {})
    }

    /// Does the same with a change to the command, such as its environment.
    pub fn start_with(config: &Config, change: impl FnOnce(&mut Command)) -> Self {
        Self::start_in(Directory::default(), config, change)
    }

    /// Stops it with that signal, and starts it again in the same directory.
    #[must_use]
    pub fn restart(self, signal: &str, config: &Config) -> Self {
        self.restart_with(signal, config, |_| {})
    }

    /// Does the same with a change to the command, such as its environment.
    #[must_use]
    pub fn restart_with(mut self, signal: &str, config: &Config, change: impl FnOnce(&mut Command)) -> Self {
        self.process.signal(signal);
        self.process.until_ended();
        Self::start_in(self.directory, config, change)
    }

    /// Starts it again in the same directory, after it has ended, with a change to the command.
    pub fn start_again(&mut self, config: &Config, change: impl FnOnce(&mut Command)) {
        let (process, control, listeners) = launch(&self.directory, config, change);
        (self.process, self.control, self.listeners) = (process, control, listeners);
    }

    fn start_in(directory: Directory, config: &Config, change: impl FnOnce(&mut Command)) -> Self {
        let (process, control, listeners) = launch(&directory, config, change);
        Self { process, listeners, control, directory }
    }

    /// Starts another process with the same config file, which takes over. Returns the old one.
    pub fn take_over(&mut self) -> Process {
        self.take_over_with(|_| {})
    }

    /// Does the same with a change to the command.
    pub fn take_over_with(&mut self, change: impl FnOnce(&mut Command)) -> Process {
        let mut command = self.successor();
        change(&mut command);
        let new = Process::start(&mut command);
        new.until_prints("the new process has taken over", |lines| {
            lines.iter().any(|line| line.contains("took over from the running Egret")).then_some(())
        });
        std::mem::replace(&mut self.process, new)
    }

    /// The command for another process with the same config file, which takes over.
    pub fn successor(&self) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.directory.path()).args(["run", "--config"]);
        command.arg(self.directory.join("egret.yaml")).arg("--take-over");
        command
    }

    /// The gateway's first listening address.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0]
    }

    /// The listening address with that number in the config.
    pub fn listener(&self, number: usize) -> SocketAddr {
        self.listeners[number]
    }

    /// The gateway's URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The control port's address.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// Opens a connection to the gateway.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends a GET for `/origin` and `path` by base URL, on a new connection.
    pub fn get(&self, path: &str) -> Response {
        self.client().get(self.address(), &format!("/origin{path}")).response()
    }

    /// Sends a GET for this target with these field lines, on a new connection.
    pub fn get_with(&self, target: &str, fields: &str) -> Response {
        self.ask(&format!("GET {target}"), fields, "")
    }

    /// Sends a request on a new connection: a line such as `POST /origin/a`, further field lines, and a body.
    /// Returns the response.
    pub fn ask(&self, line: &str, fields: &str, body: impl AsRef<[u8]>) -> Response {
        let method = line.split(' ').next().unwrap_or_default();
        self.client().request(self.address(), line, fields, body).response_to(method)
    }

    /// Sends a GET to the control port.
    pub fn control_get(&self, path: &str) -> Response {
        self.control_get_with(path, &format!("Host: {}\r\n", self.control))
    }

    /// Sends a GET to the control port, with these field lines.
    pub fn control_get_with(&self, path: &str, fields: &str) -> Response {
        let request = format!("GET {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
        Client::connect(self.control).send(request).response()
    }

    /// The statistics.
    pub fn stats(&self) -> Value {
        self.control_get("/api/v1/stats").json()
    }

    /// Returns one figure, by JSON pointer: `/clients/open`.
    pub fn stat(&self, pointer: &str) -> u64 {
        let stats = self.stats();
        stats.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {stats}"))
    }

    /// Returns one figure of a provider; 0 before its first use.
    pub fn provider_stat(&self, provider: &str, figure: &str) -> u64 {
        let stats = self.stats();
        let all = stats["providers"].as_array().into_iter().flatten();
        all.filter(|found| found["name"] == provider).filter_map(|found| found[figure].as_u64()).sum()
    }

    /// Number of responses with this error that the gateway generated.
    pub fn generated(&self, slug: &str) -> u64 {
        named(&self.stats()["generated"], slug).and_then(|found| found["count"].as_u64()).unwrap_or(0)
    }

    /// Number of connections that were ended because of this kind of flood of HTTP/2 frames.
    pub fn floods(&self, kind: &str) -> u64 {
        named(&self.stats()["floods"], kind).and_then(|found| found["count"].as_u64()).unwrap_or(0)
    }

    /// Number of targets denied for this reason.
    pub fn denials(&self, reason: &str) -> u64 {
        named(&self.stats()["denials"], reason).and_then(|found| found["count"].as_u64()).unwrap_or(0)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its log so far. A thread writes it, so lines of an exchange may come after the response.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until a log line contains `text`.
    pub fn until_logged(&self, text: &str) {
        self.process.until_prints(&format!("{text:?} is logged"), |lines| {
            lines.iter().any(|line| line.contains(text)).then_some(())
        });
    }

    /// Waits until a log line contains `text`, and returns the log so far.
    pub fn log_with(&self, text: &str) -> String {
        self.until_logged(text);
        self.log()
    }

    /// The directory of files that the config refers to, which is also its working directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Replaces the config file, which Egret watches.
    pub fn rewrite(&self, yaml: impl AsRef<[u8]>) {
        self.directory.write("egret.yaml", yaml);
    }

    /// Replaces the config file by another config, and waits until that is in force. It sends no SIGHUP:
    /// together they apply a config once or twice.
    pub fn change_config(&self, yaml: impl AsRef<[u8]>) {
        let before = self.stat("/reloads");
        self.rewrite(yaml);
        wait::until_true("the config is in force", || self.stat("/reloads") > before);
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.process.signal("HUP");
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits until the process has ended.
    pub fn until_ended(&mut self) -> ExitStatus {
        self.process.until_ended()
    }

    /// Asserts that the gateway serves a new connection normally: it is neither dead nor stuck.
    pub fn assert_well(&self) {
        assert_eq!(self.control_get("/healthz").status, 200);
        let request = format!("GET /no-such-provider/ HTTP/1.1\r\nHost: {}\r\n\r\n", self.address());
        self.client().send(request).response().assert_generated(404, "unknown-provider");
    }
}

/// Starts Egret in a directory, and waits until it listens. Returns the addresses of its control port and of
/// its gateway.
fn launch(
    directory: &Directory,
    config: &Config,
    change: impl FnOnce(&mut Command),
) -> (Process, SocketAddr, Vec<SocketAddr>) {
    let file = directory.write("egret.yaml", config.yaml());
    let mut command = Command::new(binary());
    command.current_dir(directory.path()).arg("run").arg("--config").arg(file);
    change(&mut command);
    let process = Process::start(&mut command);
    let control = process
        .until_prints(&started("its control port"), |lines| listening(lines, "control").next()?.parse().ok());
    let listeners = process.until_prints(&started("its gateway"), |lines| {
        let listeners: Vec<String> = listening(lines, "gateway").collect();
        (listeners.len() == config.listen.len()).then_some(listeners)
    });
    // A Unix socket is known by its path.
    let listeners = listeners.iter().filter_map(|address| address.parse().ok()).collect();
    (process, control, listeners)
}

/// Name of the startup step that is waited for. `scripts/regressions` recognizes by it a test that proves
/// nothing about its claim, because Egret rejected the config or did not start.
pub fn started(part: &str) -> String {
    format!("Egret has started ({part} listens)")
}

/// Returns the entry with that name in a list of figures.
fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Returns the addresses in log lines that report that `part` listens.
fn listening(lines: &[String], part: &str) -> impl Iterator<Item = String> {
    lines.iter().filter_map(move |line| {
        let record: Value = serde_json::from_str(line).ok()?;
        let fields = record.get("fields").unwrap_or(&record);
        let message = fields["message"].as_str()?;
        (message.starts_with(part) && message.ends_with("listening"))
            .then(|| fields["address"].as_str().map(str::to_owned))?
    })
}

/// A command of the binary under test.
pub fn egret<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    command
}

/// Returns `true` if the binary under test can be run as this user: by root, in directories that are open to
/// others.
pub fn can_run_as(user: u32) -> bool {
    let can = egret(["version"]).uid(user).gid(user).output().is_ok_and(|tried| tried.status.success());
    if !can {
        println!("not run as root, or the binary is not accessible to others: not tried as another user");
    }
    can
}

/// The binary under test: `EGRET_BIN`, or the one built with this test, which is built if it is missing.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("EGRET_BIN") {
            return named.into();
        }
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).expect("a test runs from target/PROFILE/deps");
        let binary = profile.join("egret");
        if !binary.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--package", "egret", "--target-dir"]).arg(profile.parent().unwrap());
            if profile.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "the binary under test cannot be built");
        }
        binary
    })
}
