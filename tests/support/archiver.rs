//! `egret archiver` under test: its options, process, addresses and output.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::egret::{binary, started};
use crate::http::{Client, Response};
use crate::process::{Directory, Process};
use crate::wait;

/// File in its directory to which standard output is written.
const PRINTED: &str = "printed";

/// A running archiver on free loopback ports; killed when dropped.
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

    /// Does the same in a prepared directory, with a change to the command, such as its environment.
    pub fn start_in(directory: Directory, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options);
        Self::run(directory, command.args(["-bind", "127.0.0.1"]), options.contains(&"-https"), change)
    }

    /// Does the same, with the listening address in the options.
    pub fn start_anywhere(options: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options);
        let mut archiver = Self::run(Directory::default(), &mut command, false, |_| {});
        for address in &mut archiver.listeners {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        archiver
    }

    /// Does the same with `egret run` and the printed config, after `change` to its text.
    pub fn start_printed(options: &[&str], change: impl FnOnce(String) -> String) -> Self {
        let directory = Directory::default();
        let mut command = Command::new(binary());
        command.args(["archiver", "0"]).args(options).args(["-bind", "127.0.0.1", "-print-config"]);
        let printed = crate::process::run_checked(command.current_dir(directory.path()));
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
        let control = process.until_prints(&started("its control port"), |lines| {
            listening(lines, "control port listening").first().copied()
        });
        let count = if speaks_tls { 2 } else { 1 };
        let listeners = process.until_prints(&started("its gateway"), |lines| {
            Some(listening(lines, "gateway listening")).filter(|found| found.len() == count)
        });
        Self { process, listeners, control, directory }
    }

    /// Its HTTP address.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0]
    }

    /// Its HTTPS address.
    pub fn tls_address(&self) -> SocketAddr {
        self.listeners[1]
    }

    /// Opens a connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Returns the response to a GET for `/a` with these field lines, on a new connection.
    pub fn get(&self, fields: &str) -> Response {
        self.client().send(format!("GET /a?b=c HTTP/1.1\r\n{fields}\r\n")).response()
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Its standard error so far.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Its standard output so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.join(PRINTED)).unwrap()
    }

    /// Returns the control port's response to a GET.
    pub fn control_get(&self, path: &str) -> Response {
        let fields = format!("Host: {}\r\nConnection: close\r\n", self.control);
        Client::connect(self.control).send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).response()
    }

    /// Waits until the exporter with that name has written `count` exchanges.
    pub fn until_written(&self, exporter: &str, count: u64) {
        wait::until_true("they are written", || {
            let exporters = self.control_get("/api/v1/exporters").json();
            let is_it = |found: &&Value| found["name"] == exporter;
            let found = exporters["exporters"].as_array().unwrap().iter().find(is_it);
            found.unwrap_or_else(|| panic!("no {exporter} in {exporters}"))["written"] == count
        });
    }

    /// Terminates it and waits for its end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM");
        self.process.until_ended()
    }
}
