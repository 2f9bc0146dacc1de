//! Errors as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The media type of RFC 9457 §3.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// An answer that says what is wrong. `detail` is a fixed text: nothing that the client sent is repeated.
#[derive(Debug, Clone, Copy)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// What to do about it.
    pub detail: &'static str,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (self.status, Json(body)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}
