//! Servers of others: moto and stripe-mock, which the providers of trials pass their requests on to, and
//! Vault.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use egret_tests::http::Client;
use egret_tests::process::{Directory, Process};
use egret_tests::provider::Request;
use egret_tests::wait;
use serde_json::{Value, json};

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

/// A running Vault, with version 2 of its key-value store at `secret`.
#[derive(Debug)]
pub struct Vault {
    _process: Process,
    address: SocketAddr,
    /// The token of its first administrator.
    token: String,
    /// The key that unseals it.
    key: String,
}

impl Vault {
    /// Starts it, initializes and unseals it.
    pub fn start() -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/tools/vault/server");
        let process = Process::printing(Command::new(program).arg("127.0.0.1:0"));
        let address = process.until_printed("Vault listens", |lines| {
            lines.iter().find_map(|line| line.strip_prefix("listening ")?.parse().ok())
        });
        let mut vault = Self { _process: process, address, token: String::new(), key: String::new() };
        let made = vault.call("PUT", "sys/init", &json!({ "secret_shares": 1, "secret_threshold": 1 }));
        let text = |pointer: &str| made.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        (vault.token, vault.key) = (text("/root_token"), text("/keys/0"));
        vault.unseal();
        vault.call("POST", "sys/mounts/secret", &json!({ "type": "kv", "options": { "version": "2" } }));
        vault
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls its API as its administrator, and returns the response, which must not be an error.
    pub fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Calls its API as its administrator, and returns the status and the response.
    pub fn try_call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "{method} /v1/{path} HTTP/1.1\r\nHost: {}\r\nX-Vault-Token: {}",
            self.address, self.token
        );
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let response = Client::connect(self.address).send(request).response();
        (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
    }

    /// Seals it: it responds to every call with an error.
    pub fn seal(&self) {
        self.call("PUT", "sys/seal", &Value::Null);
    }

    /// Unseals it.
    pub fn unseal(&self) {
        assert_eq!(self.call("PUT", "sys/unseal", &json!({ "key": self.key }))["sealed"], false);
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
