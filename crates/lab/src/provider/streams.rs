//! Endpoints that send their content piece by piece: `/stream/{n}`, `/sse`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::duration;
use super::echo::Echo;
use super::error::ProviderError;

/// Lines that `/stream` sends at most; more are cut to it, as httpbin does.
const LINES_MAX: u32 = 100;

/// Events that `/sse` sends at most.
const EVENTS_MAX: u32 = 1_000;

pub(super) fn routes() -> Router {
    Router::new().route("/stream/{n}", get(lines)).route("/sse", get(events))
}

/// Sends `count` pieces with `pause` between them, each as a chunk of its own.
fn paced(count: u32, pause: Duration, piece: impl Fn(u32) -> String + Send + 'static) -> Body {
    Body::from_stream(stream::unfold((0, piece), move |(index, piece)| async move {
        if index == count {
            return None;
        }
        // Yields even when there is no pause, so that every piece is flushed before the next is made.
        if index > 0 && pause.is_zero() {
            tokio::task::yield_now().await;
        } else if index > 0 {
            tokio::time::sleep(pause).await;
        }
        let bytes = Bytes::from(piece(index));
        Some((Ok::<_, Infallible>(bytes), (index + 1, piece)))
    }))
}

/// JSON lines, each the request and the line's number.
async fn lines(Path(n): Path<String>, echo: Echo) -> Result<Response, ProviderError> {
    let count: u32 = n.parse().map_err(|_| ProviderError::bad_request("invalid number of lines"))?;
    let request =
        serde_json::to_value(&echo).map_err(|error| ProviderError::bad_request(error.to_string()))?;
    let line = move |index| {
        let mut line = request.clone();
        line["id"] = json!(index);
        format!("{line}\n")
    };
    let body = paced(count.clamp(1, LINES_MAX), Duration::ZERO, line);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

#[derive(Debug, Deserialize)]
struct EventsQuery {
    count: Option<u32>,
    duration: Option<String>,
}

/// Server-sent events, spread evenly over the duration.
async fn events(query: Result<Query<EventsQuery>, QueryRejection>) -> Result<Response, ProviderError> {
    let Query(query) = query.map_err(|rejection| ProviderError::bad_request(rejection.body_text()))?;
    let count = query.count.unwrap_or(10);
    if !(1..=EVENTS_MAX).contains(&count) {
        return Err(ProviderError::bad_request(format!("invalid count: write one from 1 to {EVENTS_MAX}")));
    }
    let whole = query.duration.as_deref().map_or(Ok(Duration::from_secs(5)), duration::parse)?;
    let pause = if count > 1 { whole / (count - 1) } else { Duration::ZERO };
    let event = |index| format!("event: ping\nid: {index}\ndata: {}\n\n", json!({ "id": index }));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, paced(count, pause, event)).into_response())
}
