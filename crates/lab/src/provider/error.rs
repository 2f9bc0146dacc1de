//! Errors as httpbin for Go writes them: JSON with `status_code`, `error` and `detail`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An answer that says what was wrong with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    status: StatusCode,
    detail: String,
}

impl ProviderError {
    /// 400: a parameter is not understood or beyond its limit.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: detail.into() }
    }

    /// 413: more content than the limit in bytes.
    pub fn content_too_large(limit: usize) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, detail: format!("content longer than {limit} bytes") }
    }

    /// 404: no such endpoint.
    pub fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, detail: "no such endpoint; / names them".into() }
    }

    /// 405: not by this method.
    pub fn method_not_allowed() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: "this endpoint does not take that method".into(),
        }
    }
}

impl IntoResponse for ProviderError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            status_code: u16,
            error: &'a str,
            detail: &'a str,
        }
        let error = self.status.canonical_reason().unwrap_or("Error");
        (self.status, Json(Body { status_code: self.status.as_u16(), error, detail: &self.detail }))
            .into_response()
    }
}
