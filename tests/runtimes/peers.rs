//! Simulated providers, which the providers of trials pass their requests on to: moto and stripe-mock.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use egret_tests::process::{Directory, Process};
use egret_tests::provider::Request;
use egret_tests::wait;

/// The Python with the SDKs and moto.
pub const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/runtimes/bin/python");

/// A running moto, which simulates AWS.
#[derive(Debug)]
pub struct Moto {
    _process: Process,
    port: u16,
}

impl Moto {
    /// Starts it.
    pub fn start() -> Self {
        let mut command = Command::new(PYTHON);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]).stdout(Stdio::null());
        let process = Process::start(&mut command);
        let port = wait::until("moto listens", || process.listening_ports().first().copied());
        Self { _process: process, port }
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Passes a request on, and returns the response.
    pub fn response(&self, request: &Request) -> Vec<u8> {
        pass_on(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap(), request)
    }
}

/// A running stripe-mock, which simulates Stripe by its published description.
#[derive(Debug)]
pub struct StripeMock {
    _process: Process,
    directory: Directory,
}

impl StripeMock {
    /// Starts it on Unix sockets: it cannot report ports chosen by the system.
    pub fn start() -> Self {
        let directory = Directory::default();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/bin/stripe-mock");
        let mut command = Command::new(program);
        command.args(["-http-unix", "plain.sock", "-https-unix", "tls.sock"]);
        let process = Process::start(command.current_dir(directory.path()).stdout(Stdio::null()));
        let socket = directory.join("plain.sock");
        wait::until_true("stripe-mock listens", || UnixStream::connect(&socket).is_ok());
        Self { _process: process, directory }
    }

    /// Passes a request on, and returns the response.
    pub fn response(&self, request: &Request) -> Vec<u8> {
        pass_on(UnixStream::connect(self.directory.join("plain.sock")).unwrap(), request)
    }
}

/// Sends a request on a connection of its own, and returns the bytes of the response.
fn pass_on(mut stream: impl Read + Write, request: &Request) -> Vec<u8> {
    let own = ["connection", "content-length", "expect", "transfer-encoding"];
    let mut head = format!("{}\r\n", request.line);
    for (name, value) in &request.fields {
        if !own.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    let _ = write!(head, "Connection: close\r\nContent-Length: {}\r\n\r\n", request.body.len());
    stream.write_all(&[head.as_bytes(), &request.body].concat()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    response
}
