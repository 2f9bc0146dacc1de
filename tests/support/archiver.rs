//! `egret archiver` under test: its options, its process, where it listens, what it prints.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::egret::{binary, started};
use crate::http::{Client, Response};
use crate::process::{Directory, Process};
use crate::wait;

/// Where its standard output goes, in its directory.
const PRINTED: &str = "printed";

/// A running archiver on free ports of loopback; killed when dropped.
#[derive(Debug)]
pub struct Archiver {
    process: Process,
    listeners: Vec<SocketAddr>,
    control: SocketAddr,
    directory: Directory,
}

impl Archiver {
    /// Starts it with these options and waits until it listens.
    pub fn start(options: &[&str]) -> Self {
        Self::start_in(Directory::default(), options, |_| {})
    }

    /// The same in a directory that has been made ready, with a change to the command, such as its environment.
    pub fn start_in(directory: Directory, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options);
        Self::run(directory, command.args(["-bind", "127.0.0.1"]), options.contains(&"-https"), change)
    }

    /// The same where the options say on which address.
    pub fn start_anywhere(options: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options);
        let mut archiver = Self::run(Directory::default(), &mut command, false, |_| {});
        for address in &mut archiver.listeners {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        archiver
    }

    /// The same by `egret run` with the config that the options amount to, after `change` to its text.
    pub fn start_printed(options: &[&str], change: impl FnOnce(String) -> String) -> Self {
        let directory = Directory::default();
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options).args(["-bind", "127.0.0.1", "-print-config"]);
        let printed = crate::process::run_well(command.current_dir(directory.path()));
        let file = directory.write("egret.yaml", change(printed));
        let mut command = Command::new(binary());
        command.args(["run", "--config"]).arg(file);
        Self::run(directory, &mut command, options.contains(&"-https"), |_| {})
    }

    fn run(
        directory: Directory,
        command: &mut Command,
        speaks_tls: bool,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let printed = File::create(directory.join(PRINTED)).unwrap();
        command.current_dir(directory.path()).stdout(printed);
        change(command);
        let process = Process::start(command);
        let listening = |lines: &[String], part: &str| -> Vec<SocketAddr> {
            let lines = lines.iter().filter(|line| line.contains(part));
            lines.filter_map(|line| line.split_once("address=")?.1.trim().parse().ok()).collect()
        };
        let control = process.until_says(&started("its control port"), |lines| {
            listening(lines, "control port listening").first().copied()
        });
        let count = if speaks_tls { 2 } else { 1 };
        let listeners = process.until_says(&started("its gateway"), |lines| {
            Some(listening(lines, "gateway listening")).filter(|found| found.len() == count)
        });
        Self { process, listeners, control, directory }
    }

    /// Where it listens for HTTP.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0]
    }

    /// Where it listens for HTTPS.
    pub fn tls_address(&self) -> SocketAddr {
        self.listeners[1]
    }

    /// A connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// The response to a GET for `/a` with these field lines, on a connection of its own.
    pub fn get(&self, fields: &str) -> Response {
        self.client().send(format!("GET /a?b=c HTTP/1.1\r\n{fields}\r\n")).response()
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Everything on its standard error so far.
    pub fn log(&self) -> String {
        self.process.said()
    }

    /// Everything on its standard output so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.join(PRINTED)).unwrap()
    }

    /// What the control port answers to a GET.
    pub fn control_get(&self, path: &str) -> Response {
        let fields = format!("Host: {}\r\nConnection: close\r\n", self.control);
        Client::connect(self.control).send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).response()
    }

    /// Waits until the exporter of that name has written `count` exchanges.
    pub fn until_written(&self, exporter: &str, count: u64) {
        wait::until_true("they are written", || {
            let exporters = self.control_get("/api/v1/exporters").json();
            let is_it = |found: &&Value| found["name"] == exporter;
            let found = exporters["exporters"].as_array().unwrap().iter().find(is_it);
            found.unwrap_or_else(|| panic!("no {exporter} in {exporters}"))["written"] == count
        });
    }

    /// Has it end, and waits for that.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM");
        self.process.until_ended()
    }
}
