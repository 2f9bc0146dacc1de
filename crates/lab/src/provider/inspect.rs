//! Endpoints that show one part of the request, or of the provider.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::Response;
use axum::routing::any;
use serde_json::json;

use super::answer::{self, Answer};
use super::call::{Call, canonical};
use super::endpoint::Endpoint;
use super::error::ProviderError;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        methods: "any",
        path: "/headers",
        parameters: "",
        about: "The request's header fields.",
        example: "/headers",
        route: || any(headers),
    },
    Endpoint {
        methods: "any",
        path: "/ip",
        parameters: "`format=text` for text instead of JSON",
        about: "The client's address: `Fly-Client-IP`, `CF-Connecting-IP`, `Fastly-Client-IP`, `True-Client-IP`, the first of `X-Forwarded-For`, or the peer's.",
        example: "/ip",
        route: || any(ip),
    },
    Endpoint {
        methods: "any",
        path: "/user-agent",
        parameters: "",
        about: "The request's `User-Agent`.",
        example: "/user-agent",
        route: || any(user_agent),
    },
    Endpoint {
        methods: "any",
        path: "/dump/request",
        parameters: "",
        about: "The request as text, nearly as received; header fields are sorted.",
        example: "/dump/request",
        route: || any(dump),
    },
    Endpoint {
        methods: "any",
        path: "/uuid",
        parameters: "",
        about: "A random UUID, version 4.",
        example: "/uuid",
        route: || any(uuid),
    },
    Endpoint {
        methods: "any",
        path: "/env",
        parameters: "",
        about: "The environment variables whose names begin with `HTTPBIN_ENV_`.",
        example: "/env",
        route: || any(env),
    },
    Endpoint {
        methods: "any",
        path: "/hostname",
        parameters: "",
        about: "The name of the service, not of the machine.",
        example: "/hostname",
        route: || any(hostname),
    },
    Endpoint {
        methods: "any",
        path: "/version",
        parameters: "",
        about: "The service and its version.",
        example: "/version",
        route: || any(version),
    },
];

/// The name of the service in responses.
const SERVICE: &str = "egret";

async fn headers(call: Call) -> Response {
    answer::json(StatusCode::OK, &json!({ "headers": call.shown_fields() }))
}

async fn ip(call: Call) -> Response {
    let origin = call.origin();
    if call.query.get("format") == Some("text") {
        return answer::text(StatusCode::OK, origin + "\n");
    }
    answer::json(StatusCode::OK, &json!({ "origin": origin }))
}

async fn user_agent(call: Call) -> Response {
    answer::json(StatusCode::OK, &json!({ "user-agent": call.field(&header::USER_AGENT) }))
}

async fn dump(mut call: Call) -> Answer {
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
    Ok(answer::text(StatusCode::OK, bytes))
}

/// Appends the field lines except Host, sorted by name.
fn push_sorted(text: &mut String, fields: &HeaderMap) {
    let mut lines: Vec<_> = fields.iter().filter(|(name, _)| *name != header::HOST).collect();
    lines.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in lines {
        let _ = write!(text, "{}: {}\r\n", canonical(name), String::from_utf8_lossy(value.as_bytes()));
    }
}

async fn uuid(call: Call) -> Response {
    let mut random = call.lab.sequences.next();
    let (high, low) = (random.next(), random.next());
    // RFC 9562 §5.4: four bits of version, two of variant.
    let uuid = format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0x0fff | 0x4000,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    );
    answer::json(StatusCode::OK, &json!({ "uuid": uuid }))
}

async fn env(call: Call) -> Response {
    let variables: BTreeMap<&str, &str> =
        call.lab.options().environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    // httpbin for Go returns null if there are none.
    let shown = (!variables.is_empty()).then_some(variables);
    answer::json(StatusCode::OK, &json!({ "env": shown }))
}

async fn hostname(_: Call) -> Response {
    answer::json(StatusCode::OK, &json!({ "hostname": SERVICE }))
}

async fn version(_: Call) -> Response {
    answer::json(StatusCode::OK, &json!({ "service": SERVICE, "version": env!("CARGO_PKG_VERSION") }))
}
