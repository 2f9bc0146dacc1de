//! Compares the built-in provider with go-httpbin: the same request to both, and the parts that must be equal
//! in their responses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::Value;

use crate::built_in::BuiltIn;
use crate::http::{Client, Response};
use crate::peers::Httpbin;

/// Both providers, with the same limits.
#[derive(Debug)]
pub struct ProviderPair {
    httpbin: Httpbin,
    built_in: BuiltIn,
}

impl Default for ProviderPair {
    fn default() -> Self {
        Self { httpbin: Httpbin::start_with(&[]), built_in: BuiltIn::start(&[]) }
    }
}

/// A request under construction.
#[derive(Debug, Clone)]
pub struct RequestBuilder {
    method: String,
    target: String,
    fields: String,
    content: Vec<u8>,
}

/// Creates a request with this method and target.
pub fn request(method: &str, target: &str) -> RequestBuilder {
    RequestBuilder {
        method: method.into(),
        target: target.into(),
        fields: String::new(),
        content: Vec::new(),
    }
}

impl RequestBuilder {
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
    pub fn send_to(&self, address: SocketAddr) -> Response {
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

impl ProviderPair {
    /// The built-in provider.
    pub fn built_in(&self) -> &BuiltIn {
        &self.built_in
    }

    /// Asserts that both respond with the same status code, the same header fields, and JSON of the same
    /// shape. Returns the responses, the built-in provider's first.
    pub fn assert_alike(&self, request: &RequestBuilder) -> (Response, Response) {
        let ours = request.send_to(self.built_in.address());
        let theirs = request.send_to(self.httpbin.address());
        let context = format!("{} {}\nours: {ours:?}\ntheirs: {theirs:?}", request.method, request.target);
        assert_eq!(ours.status, theirs.status, "{context}");
        assert_eq!(fields(&ours), fields(&theirs), "{context}");
        assert_eq!(names(&ours.trailers), names(&theirs.trailers), "{context}");
        let is_json = ours.field("content-type").is_some_and(|value| value.starts_with("application/json"));
        if is_json && request.method != "HEAD" && ours.field("content-encoding").is_none() {
            assert_eq!(documents(&ours), documents(&theirs), "{context}");
        }
        (ours, theirs)
    }

    /// Does the same and compares the JSON values.
    pub fn assert_equal_json(&self, request: &RequestBuilder) -> Value {
        let (ours, theirs) = self.assert_alike(request);
        assert_eq!(ours.json(), theirs.json(), "{} {}", request.method, request.target);
        ours.json()
    }

    /// Asserts the same of GET requests for all these targets.
    pub fn assert_all_alike(&self, targets: &[&str]) {
        for target in targets {
            self.assert_alike(&request("GET", target));
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
