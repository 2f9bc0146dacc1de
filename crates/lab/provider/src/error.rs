//! Error responses in httpbin's format: JSON with `status_code`, `error` and `detail`, or a line of text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::respond;

/// The result of an endpoint.
pub(crate) type EndpointResult = Result<Response, ProviderError>;

/// An error response that explains the problem with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderError {
    status: StatusCode,
    detail: String,
    text: bool,
}

impl ProviderError {
    /// An error with only a status code.
    pub fn of(status: StatusCode) -> Self {
        Self { status, detail: String::new(), text: false }
    }

    /// An error with a status code and a detail.
    pub fn with_detail(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), text: false }
    }

    /// An error with a status code and a line of text instead of JSON.
    pub fn text(status: StatusCode, line: impl Into<String>) -> Self {
        Self { status, detail: line.into(), text: true }
    }

    /// The detail; empty if there is none.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// 400: a parameter is invalid or exceeds its limit.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::with_detail(StatusCode::BAD_REQUEST, detail)
    }

    /// 400: the named parameter is invalid, with a reason.
    pub fn parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("invalid {name}: {reason}"))
    }

    /// 404: the endpoint does not exist.
    pub fn not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 no such endpoint: see / for a list")
    }

    /// 405: the endpoint does not accept the method.
    pub fn method_not_allowed() -> Self {
        Self::text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed: see the Allow field")
    }
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    status_code: u16,
    error: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl IntoResponse for ProviderError {
    fn into_response(self) -> Response {
        if self.text {
            let mut response = respond::text(self.status, self.detail + "\n");
            response
                .headers_mut()
                .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            return response;
        }
        let error = self.status.canonical_reason().unwrap_or("Error");
        respond::json(
            self.status,
            &ErrorDocument { status_code: self.status.as_u16(), error, detail: &self.detail },
        )
    }
}
