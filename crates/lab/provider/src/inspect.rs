//! Endpoints that show one part of the request, or of the provider.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::Response;
use axum::routing::any;
use serde_json::json;

use crate::call::{ProviderCall, canonical};
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::respond;

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/headers", || any(headers)).about("The request's header fields."),
    Endpoint::new("any", "/ip", || any(ip))
        .about("The client's address: `Fly-Client-IP`, `CF-Connecting-IP`, `Fastly-Client-IP`, `True-Client-IP`, the first of `X-Forwarded-For`, or the peer's.")
        .parameters("`format=text` for text instead of JSON"),
    Endpoint::new("any", "/user-agent", || any(user_agent)).about("The request's `User-Agent`."),
    Endpoint::new("any", "/dump/request", || any(dump))
        .about("The request as text, nearly as received; header fields are sorted."),
    Endpoint::new("any", "/uuid", || any(uuid)).about("A random UUID, version 4."),
    Endpoint::new("any", "/env", || any(env))
        .about("The environment variables whose names begin with `HTTPBIN_ENV_`."),
    Endpoint::new("any", "/hostname", || any(hostname)).about("The name of the service, not of the machine."),
    Endpoint::new("any", "/version", || any(version)).about("The service and its version."),
];

/// The name of the service in responses.
const SERVICE: &str = "egret";

async fn headers(call: ProviderCall) -> Response {
    respond::json(StatusCode::OK, &json!({ "headers": call.shown_fields() }))
}

async fn ip(call: ProviderCall) -> Response {
    let origin = call.origin();
    if call.query.get("format") == Some("text") {
        return respond::text(StatusCode::OK, origin + "\n");
    }
    respond::json(StatusCode::OK, &json!({ "origin": origin }))
}

async fn user_agent(call: ProviderCall) -> Response {
    respond::json(StatusCode::OK, &json!({ "user-agent": call.field(&header::USER_AGENT) }))
}

async fn dump(mut call: ProviderCall) -> EndpointResult {
    let content = call.content().await.map_err(|error| {
        ProviderError::with_detail(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("failed to dump request: {error}"),
        )
    })?;
    let target = call.uri().path_and_query().map_or("/", |target| target.as_str());
    let version = if call.version() == Version::HTTP_10 { "1.0" } else { "1.1" };
    let mut text = format!("{} {target} HTTP/{version}\r\n", call.method());
    let _ = write!(text, "Host: {}\r\n", call.field(&header::HOST));
    push_sorted(&mut text, call.headers());
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&content);
    Ok(respond::text(StatusCode::OK, bytes))
}

/// Appends the field lines except Host, sorted by name.
fn push_sorted(text: &mut String, fields: &HeaderMap) {
    let mut lines: Vec<_> = fields.iter().filter(|(name, _)| *name != header::HOST).collect();
    lines.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in lines {
        let _ = write!(text, "{}: {}\r\n", canonical(name), String::from_utf8_lossy(value.as_bytes()));
    }
}

async fn uuid(call: ProviderCall) -> Response {
    let mut random = call.state.sequences.next();
    let (high, low) = (random.draw(), random.draw());
    // RFC 9562 §5.4: four bits of version, two of variant.
    let uuid = format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0x0fff | 0x4000,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    );
    respond::json(StatusCode::OK, &json!({ "uuid": uuid }))
}

async fn env(call: ProviderCall) -> Response {
    let variables: BTreeMap<&str, &str> = call
        .state
        .options()
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    // httpbin for Go returns null if there are none.
    let shown = (!variables.is_empty()).then_some(variables);
    respond::json(StatusCode::OK, &json!({ "env": shown }))
}

async fn hostname(_: ProviderCall) -> Response {
    respond::json(StatusCode::OK, &json!({ "hostname": SERVICE }))
}

async fn version(_: ProviderCall) -> Response {
    respond::json(StatusCode::OK, &json!({ "service": SERVICE, "version": env!("CARGO_PKG_VERSION") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestProvider, get, get_with, request};
    use crate::options::Options;

    #[tokio::test]
    async fn one_part_of_the_request_is_shown() {
        assert_eq!(get("/ip").await.json()["origin"], "10.0.0.1");
        assert_eq!(get("/ip?format=text").await.text(), "10.0.0.1\n");
        let agent = get_with("/user-agent", &[("user-agent", "a/1")]).await;
        assert_eq!(agent.json()["user-agent"], "a/1");
        let sent = request("POST", "/dump/request?a=1", &[("x-b", "2"), ("a", "1")], "body");
        let dump = TestProvider::new(Options::default()).send(sent).await;
        assert_eq!(
            dump.text(),
            "POST /dump/request?a=1 HTTP/1.1\r\nHost: a.test\r\nA: 1\r\nX-B: 2\r\n\r\nbody"
        );
    }

    #[tokio::test]
    async fn a_uuid_has_its_version_and_variant() {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let json = get("/uuid").await.json();
            let uuid = json["uuid"].as_str().unwrap().to_owned();
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid[14..].starts_with('4') && uuid[19..].starts_with(['8', '9', 'a', 'b']), "{uuid}");
            assert!(seen.insert(uuid));
        }
    }

    #[tokio::test]
    async fn only_the_given_variables_are_shown() {
        assert_eq!(get("/env").await.json()["env"], serde_json::Value::Null);
        let environment = vec![("HTTPBIN_ENV_A".to_owned(), "1".to_owned())];
        let provider = TestProvider::new(Options { environment, ..Options::default() });
        assert_eq!(provider.get("/env").await.json()["env"], json!({ "HTTPBIN_ENV_A": "1" }));
        assert_eq!(get("/hostname").await.json()["hostname"], "egret");
    }
}
