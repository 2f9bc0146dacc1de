//! Compares the built-in provider with go-httpbin: the same request to both, and the parts that must be equal
//! in their responses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::egret::binary;
use crate::http::{Client, Response};
use crate::peers::Httpbin;
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
        let directory = Directory::default();
        let mut command = Command::new(binary());
        command.args(["provider", "--listen", "127.0.0.1:0"]).args(arguments);
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

/// Both providers, with the same limits.
#[derive(Debug)]
pub struct Twins {
    httpbin: Httpbin,
    built_in: BuiltIn,
}

impl Default for Twins {
    fn default() -> Self {
        Self { httpbin: Httpbin::start_with(&[]), built_in: BuiltIn::start(&[]) }
    }
}

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Asking {
    method: String,
    target: String,
    fields: String,
    content: Vec<u8>,
}

/// Creates a request with this method and target.
pub fn ask(method: &str, target: &str) -> Asking {
    Asking { method: method.into(), target: target.into(), fields: String::new(), content: Vec::new() }
}

impl Asking {
    /// Adds this field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.extend([name, ": ", value, "\r\n"]);
        self
    }

    /// Adds this content and its length.
    #[must_use]
    pub fn content(self, content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        let length = content.len().to_string();
        Self { content, ..self.field("Content-Length", &length) }
    }

    /// Sends it to this address and returns the response.
    pub fn of(&self, address: SocketAddr) -> Response {
        let Self { method, target, fields, content } = self;
        let mut client = Client::connect(address);
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: provider.test\r\n{fields}\r\n"));
        client.offer(content);
        let mut response = client.response_to(method);
        while matches!(response.status, 100 | 102..=199) {
            response = client.response_to(method);
        }
        response
    }
}

/// Fields of the connection, the time or the framing; other tests compare them where they matter.
const NOT_COMPARED: [&str; 4] = ["date", "content-length", "transfer-encoding", "connection"];

/// Fields whose values differ even between two calls of the same provider.
const ONLY_NAMED: [&str; 6] =
    ["content-security-policy", "etag", "last-modified", "www-authenticate", "server-timing", "x-more-info"];

impl Twins {
    /// The built-in provider.
    pub fn built_in(&self) -> &BuiltIn {
        &self.built_in
    }

    /// Asserts that both respond with the same status code, the same header fields, and JSON of the same
    /// shape. Returns the responses, the built-in provider's first.
    pub fn assert_alike(&self, asking: &Asking) -> (Response, Response) {
        let ours = asking.of(self.built_in.address());
        let theirs = asking.of(self.httpbin.address());
        let told = format!("{} {}\nours: {ours:?}\ntheirs: {theirs:?}", asking.method, asking.target);
        assert_eq!(ours.status, theirs.status, "{told}");
        assert_eq!(fields(&ours), fields(&theirs), "{told}");
        assert_eq!(names(&ours.trailers), names(&theirs.trailers), "{told}");
        let is_json = ours.field("content-type").is_some_and(|value| value.starts_with("application/json"));
        if is_json && asking.method != "HEAD" && ours.field("content-encoding").is_none() {
            assert_eq!(documents(&ours), documents(&theirs), "{told}");
        }
        (ours, theirs)
    }

    /// Does the same and compares the JSON values.
    pub fn assert_equal_json(&self, asking: &Asking) -> Value {
        let (ours, theirs) = self.assert_alike(asking);
        assert_eq!(ours.json(), theirs.json(), "{} {}", asking.method, asking.target);
        ours.json()
    }

    /// Asserts the same of GET requests for all these targets.
    pub fn assert_all_alike(&self, targets: &[&str]) {
        for target in targets {
            self.assert_alike(&ask("GET", target));
        }
    }
}

/// Returns the fields by name, with the values that must be equal.
fn fields(response: &Response) -> BTreeMap<String, Vec<String>> {
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in &response.fields {
        let name = name.to_ascii_lowercase();
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let value = if ONLY_NAMED.contains(&name.as_str()) { String::new() } else { comparable(value) };
        fields.entry(name).or_default().push(value);
    }
    for values in fields.values_mut() {
        values.sort();
    }
    fields
}

/// Replaces random parts and times in a value.
fn comparable(value: &str) -> String {
    let value = value.split("boundary=").next().unwrap_or_default();
    match value.split_once("Expires=") {
        Some((before, after)) => format!("{before}{}", after.split_once(';').map_or("", |(_, rest)| rest)),
        None => value.to_owned(),
    }
}

fn names(fields: &[(String, String)]) -> BTreeSet<String> {
    fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

/// Returns the shapes of one document, or of one per line.
fn documents(response: &Response) -> Vec<Value> {
    let text = response.text();
    match serde_json::from_str(text) {
        Ok(document) => vec![shape(&document)],
        Err(_) => text.lines().map(|line| shape(&serde_json::from_str(line).unwrap())).collect(),
    }
}

/// Replaces each leaf by the name of its type, so only keys and types remain. Elements of a list must have
/// the same shape, so the first one represents all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(values) => Value::Array(values.iter().take(1).map(shape).collect()),
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
    }
}
