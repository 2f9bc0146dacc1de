//! Endpoints that say what was asked: `/get`, `/anything`, `/headers`, `/delay/{duration}`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::body::{Bytes, HttpBody as _};
use axum::extract::{ConnectInfo, FromRequest, Path, Query, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde::Serialize;

use super::error::ProviderError;
use super::{BODY_BYTES_MAX, duration};
use crate::base64;

/// Values by name, in lists since a name may come more than once.
type Values = BTreeMap<String, Vec<String>>;

pub(super) fn routes() -> Router {
    Router::new()
        .route("/get", get(|echo: Echo| async { Json(echo) }))
        .route("/anything", any(|echo: Echo| async { Json(echo) }))
        .route("/anything/{*rest}", any(|echo: Echo| async { Json(echo) }))
        .route("/headers", get(headers))
        .route("/delay/{duration}", any(delay))
}

/// A request as the provider saw it.
#[derive(Debug, Serialize)]
pub(super) struct Echo {
    args: Values,
    headers: Values,
    method: String,
    origin: String,
    url: String,
    data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<serde_json::Value>,
}

impl<S: Send + Sync> FromRequest<S> for Echo {
    type Rejection = ProviderError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProviderError> {
        let ConnectInfo(peer) = request
            .extensions()
            .get::<ConnectInfo<SocketAddr>>()
            .copied()
            .ok_or_else(|| ProviderError::bad_request("the peer's address is not known"))?;
        let args = values(
            Query::<Vec<(String, String)>>::try_from_uri(request.uri())
                .map_err(|error| ProviderError::bad_request(error.body_text()))?
                .0,
        );
        let headers = fields(request.headers());
        let method = request.method().to_string();
        let url = url(&request);
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(is_json);
        let content = content(request, state).await?;
        let json = if is_json && !content.is_empty() {
            Some(
                serde_json::from_slice(&content)
                    .map_err(|error| ProviderError::bad_request(format!("invalid JSON: {error}")))?,
            )
        } else {
            None
        };
        Ok(Self { args, headers, method, origin: peer.ip().to_string(), url, data: data(&content), json })
    }
}

/// All of the content, where it is not larger than the limit.
async fn content<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ProviderError> {
    let refuse = || ProviderError::content_too_large(BODY_BYTES_MAX);
    // Said before anything of it is read where the length is known.
    if request.body().size_hint().lower() > u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX) {
        return Err(refuse());
    }
    Bytes::from_request(request, state).await.map_err(|rejection| match rejection.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => refuse(),
        _ => ProviderError::bad_request("the content could not be read"),
    })
}

fn is_json(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|value| {
        value
            .split(';')
            .next()
            .is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
    })
}

fn url(request: &Request) -> String {
    let uri = request.uri();
    match (uri.authority(), request.headers().get(header::HOST).and_then(|host| host.to_str().ok())) {
        (None, Some(host)) => format!("http://{host}{uri}"),
        _ => uri.to_string(),
    }
}

/// Text as it is, anything else as a data URL.
fn data(content: &[u8]) -> String {
    match std::str::from_utf8(content) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("data:application/octet-stream;base64,{}", base64::encode_url_safe(content)),
    }
}

fn values(pairs: Vec<(String, String)>) -> Values {
    let mut values = Values::new();
    for (name, value) in pairs {
        values.entry(name).or_default().push(value);
    }
    values
}

fn fields(headers: &HeaderMap) -> Values {
    values(
        headers
            .iter()
            .map(|(name, value)| (canonical(name), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
    )
}

/// A field name as httpbin shows it: `x-request-id` as `X-Request-Id`.
fn canonical(name: &HeaderName) -> String {
    let mut starts = true;
    let letter = |character: char| {
        let shown = if starts { character.to_ascii_uppercase() } else { character };
        starts = character == '-';
        shown
    };
    name.as_str().chars().map(letter).collect()
}

async fn headers(headers: HeaderMap) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "headers": fields(&headers) }))
}

async fn delay(
    Path(text): Path<String>,
    echo: Result<Echo, ProviderError>,
) -> Result<Response, ProviderError> {
    let delay = duration::parse(&text)?;
    let echo = echo?;
    tokio::time::sleep(delay).await;
    let timing = format!("initial_delay;dur={:.2};desc=\"initial delay\"", delay.as_secs_f64() * 1e3);
    Ok(([("server-timing", timing)], Json(echo)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_is_not_text_is_shown_as_base64() {
        assert_eq!(data(&[0xff, 0xfe]), "data:application/octet-stream;base64,__4=");
    }

    #[test]
    fn field_names_are_shown_with_capitals() {
        assert_eq!(canonical(&HeaderName::from_static("x-request-id")), "X-Request-Id");
    }
}
