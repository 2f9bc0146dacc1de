//! Errors as `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use egret_config::LocatedProblem;
use serde_json::json;

/// The media type of RFC 9457 §3.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Time after which a client that was refused for the moment may try again, in seconds.
const RETRY_AFTER_SECS: &str = "1";

/// An error response. Its detail never repeats anything that the client sent.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    paths: &'static [&'static str],
    problems: Vec<LocatedProblem>,
}

impl Problem {
    /// Creates a problem with a status code and a message.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), paths: &[], problems: Vec::new() }
    }

    /// Adds the list of existing paths, as an extension member (RFC 9457 §3.2).
    pub fn with_paths(self, paths: &'static [&'static str]) -> Self {
        Self { paths, ..self }
    }

    /// Adds the problems of a config that was sent, as an extension member.
    pub fn with_problems(self, problems: Vec<LocatedProblem>) -> Self {
        Self { problems, ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.paths.is_empty() {
            body["paths"] = json!(self.paths);
        }
        if !self.problems.is_empty() {
            body["problems"] = json!(self.problems);
        }
        let mut response = (self.status, Json(body)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS));
        }
        response
    }
}
