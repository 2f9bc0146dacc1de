//! A provider without a network, for tests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use crate::call::Peer;
use crate::entry_point::{CallOutcome, EntryPoint};
use crate::options::Options;
use crate::registry;
use crate::state::SharedState;

/// A provider that requests are passed to directly.
pub(crate) struct TestProvider(EntryPoint);

/// A complete response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub status: u16,
    pub fields: HeaderMap,
    pub content: Bytes,
    /// Size of each piece of the content.
    pub pieces: Vec<usize>,
    pub trailers: HeaderMap,
}

impl TestProvider {
    /// Creates a provider with these options.
    pub fn new(options: Options) -> Self {
        let rows = registry::rows(&options.prefix);
        let state = Arc::new(SharedState::new(options, rows).unwrap());
        Self(EntryPoint::new(Arc::clone(&state), registry::router(state)))
    }

    /// Passes a request to the provider.
    pub async fn call(&self, request: Request) -> CallOutcome {
        self.0.call(request, Peer { address: "10.0.0.1".into(), secure: false }).await
    }

    /// Returns the response to a request that hyper can send.
    pub async fn send(&self, request: Request) -> TestResponse {
        match self.call(request).await {
            CallOutcome::Response(response) => TestResponse::read(response).await,
            CallOutcome::Takeover(takeover) => panic!("{takeover:?}"),
            CallOutcome::Faulty(_, fault) => panic!("{fault:?}"),
        }
    }

    /// Returns the response to a GET.
    pub async fn get(&self, target: &str) -> TestResponse {
        self.send(request("GET", target, &[], "")).await
    }
}

/// The response of a provider with default options to a GET.
pub(crate) async fn get(target: &str) -> TestResponse {
    get_with(target, &[]).await
}

/// The response of a provider with default options to a GET with these header fields.
pub(crate) async fn get_with(target: &str, fields: &[(&str, &str)]) -> TestResponse {
    TestProvider::new(Options::default()).send(request("GET", target, fields, "")).await
}

/// A request for a host `a.test`.
pub(crate) fn request(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    content: impl Into<Body>,
) -> Request {
    let request = Request::builder().method(method).uri(target).header("host", "a.test");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(content.into()).unwrap()
}

impl TestResponse {
    async fn read(response: Response) -> Self {
        let (parts, mut body) = response.into_parts();
        let (mut content, mut pieces, mut trailers) = (Vec::new(), Vec::new(), HeaderMap::new());
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame.unwrap().into_data() {
                Ok(data) => {
                    content.extend_from_slice(&data);
                    pieces.push(data.len());
                }
                Err(frame) => trailers = frame.into_trailers().unwrap(),
            }
        }
        Self {
            status: parts.status.as_u16(),
            fields: parts.headers,
            content: content.into(),
            pieces,
            trailers,
        }
    }

    /// The first value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The content as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }

    /// The content as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.content).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
