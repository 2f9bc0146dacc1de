//! The built-in provider as a program of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::egret::binary;
use crate::http::{Client, Response};
use crate::process::{Directory, Process};
use crate::wait;

/// A running `egret provider`.
#[derive(Debug)]
pub struct BuiltIn {
    process: Process,
    address: SocketAddr,
    directory: Directory,
}

impl BuiltIn {
    /// Starts it with these arguments, in addition to its address, in its own directory.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, |_| {})
    }

    /// Does the same with a change to the command, such as its environment.
    pub fn start_with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::start_on("127.0.0.1:0", arguments, change)
    }

    /// Starts it at all addresses of this machine.
    pub fn start_everywhere(arguments: &[&str]) -> Self {
        Self::start_on("0.0.0.0:0", arguments, |_| {})
    }

    fn start_on(listen: &str, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let directory = Directory::default();
        let mut command = Command::new(binary());
        command.args(["provider", "--listen", listen]).args(arguments);
        change(command.current_dir(directory.path()).stdout(Stdio::null()));
        let process = Process::start(&mut command);
        let port = wait::until("the provider listens", || process.listening_ports().first().copied());
        Self { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), directory }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its working directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Opens a connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends a GET on a new connection.
    pub fn get(&self, target: &str) -> Response {
        self.client().get("provider.test", target).response()
    }

    /// Its counters.
    pub fn counters(&self) -> Value {
        self.get("/counters").json()
    }
}
