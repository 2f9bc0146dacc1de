//! The clients, each with a provider that sends any bytes, and with an Egret in front of that.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use egret_tests::egret::Egret;
use egret_tests::process::{Directory, run_checked};
use egret_tests::wait;

use super::raw::{self, Responses};
use super::record::{Record, Records};
use super::servers::{SOURCES, gateway, located};

/// The names of all clients.
pub(crate) const NAMES: [&str; 9] =
    ["curl", "requests", "httpx", "aiohttp", "undici", "node-http", "go-client", "net-http", "jdk-client"];

/// The responses that a client has seen to a generated one, and to the request after it. `None` is an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) first: Option<Record>,
    pub(crate) next: Option<Record>,
}

/// A running client.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    /// Its input, and the lines that it prints.
    talk: Mutex<(ChildStdin, Receiver<String>)>,
    responses: Responses,
    records: Records,
    direct: SocketAddr,
    egret: Egret,
    _directory: Directory,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// Starts the client of that name, the provider, and Egret.
    pub(crate) fn start(name: &str) -> Self {
        let directory = Directory::default();
        let mut command = command(name, &directory);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (records, responses) = (Records::default(), Responses::default());
        let direct = raw::start(&records, &responses);
        let talk = Mutex::new((child.stdin.take().unwrap(), lines));
        Self { child, talk, responses, records, direct, egret: gateway(direct), _directory: directory }
    }

    /// Has the client receive responses, directly and through Egret.
    pub(crate) fn receive(&self, responses: &[(u64, Vec<u8>)]) -> Vec<(Seen, Seen)> {
        self.responses.set(responses.iter().cloned().collect());
        let numbers: Vec<u64> = responses.iter().map(|(number, _)| *number).collect();
        let direct = self.visit(self.direct, &numbers);
        let through = self.visit(self.egret.address(), &numbers);
        self.records.take();
        direct.into_iter().zip(through).collect()
    }

    fn visit(&self, address: SocketAddr, numbers: &[u64]) -> Vec<Seen> {
        let mut talk = self.talk.lock().unwrap();
        let (input, lines) = &mut *talk;
        let orders: String = numbers.iter().map(|number| format!("{number} http://{address}\n")).collect();
        let mut seen = HashMap::new();
        std::thread::scope(|scope| {
            // What it prints is read meanwhile, so neither side waits for the other.
            scope.spawn(move || input.write_all(orders.as_bytes()).and_then(|()| input.flush()));
            while seen.len() < numbers.len() {
                let line =
                    lines.recv_timeout(wait::DEADLINE).unwrap_or_else(|_| panic!("the client has stopped"));
                seen.extend(parse(&line));
            }
        });
        numbers.iter().map(|number| seen.remove(number).unwrap_or_default()).collect()
    }
}

/// Reads `C NUMBER RESPONSE RESPONSE`.
fn parse(line: &str) -> Option<(u64, Seen)> {
    let mut words = line.strip_prefix("C ")?.split(' ');
    let number = words.next()?.parse().ok()?;
    let mut response = || Record::parse(&words.next()?.replace(',', " "));
    Some((number, Seen { first: response(), next: response() }))
}

fn command(name: &str, directory: &Directory) -> Command {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let (mut command, file) = match name {
        "undici" | "node-http" => {
            let node = format!("{SOURCES}/../javascript/node_modules/node-24/bin/node");
            (Command::new(node), "clients.mjs")
        }
        "go-client" => {
            let program = directory.join("client");
            run_checked(
                Command::new("go").args(["build", "-o"]).arg(&program).arg(format!("{SOURCES}/client.go")),
            );
            return Command::new(program);
        }
        "curl" => (Command::new(located("python3")), "clients.py"),
        "net-http" => (Command::new(located("ruby")), "client.rb"),
        "jdk-client" => (Command::new(located("java")), "Client.java"),
        _ => (Command::new(format!("{root}/.peers/garden/bin/python")), "clients.py"),
    };
    command.arg(format!("{SOURCES}/{file}")).arg(name);
    command
}
