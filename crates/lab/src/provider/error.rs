//! Errors as httpbin for Go writes them: JSON with `status_code`, `error` and `detail`, or a line of text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::answer;

/// An answer that says what was wrong with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderError {
    status: StatusCode,
    detail: String,
    text: bool,
}

impl ProviderError {
    /// A status by itself.
    pub fn of(status: StatusCode) -> Self {
        Self { status, detail: String::new(), text: false }
    }

    /// A status and what led to it.
    pub fn with_detail(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), text: false }
    }

    /// A status and a line of text instead of JSON.
    pub fn text(status: StatusCode, line: impl Into<String>) -> Self {
        Self { status, detail: line.into(), text: true }
    }

    /// 400: a parameter is not understood or beyond its limit.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::with_detail(StatusCode::BAD_REQUEST, detail)
    }

    /// 400: this parameter, for that reason.
    pub fn parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("invalid {name}: {reason}"))
    }

    /// 404: no such endpoint.
    pub fn not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 no such endpoint: / lists them")
    }

    /// 405: not by this method.
    pub fn method_not_allowed() -> Self {
        Self::text(StatusCode::METHOD_NOT_ALLOWED, "405 not by this method: Allow lists those that are")
    }
}

#[derive(Serialize)]
struct Document<'a> {
    status_code: u16,
    error: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl IntoResponse for ProviderError {
    fn into_response(self) -> Response {
        if self.text {
            let mut response = answer::text(self.status, self.detail + "\n");
            response
                .headers_mut()
                .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            return response;
        }
        let error = self.status.canonical_reason().unwrap_or("Error");
        answer::json(
            self.status,
            &Document { status_code: self.status.as_u16(), error, detail: &self.detail },
        )
    }
}
