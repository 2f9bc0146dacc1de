//! Answers as they are made everywhere: JSON for people to read, text, pages.

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::error::ProviderError;

/// What an endpoint comes to.
pub(super) type Answer = Result<Response, ProviderError>;

/// JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
/// Lines of JSON.
pub(super) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
/// Server-sent events.
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
/// Text.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// A page.
pub(super) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// Bytes.
pub(super) const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Content of this type.
pub(super) fn of(status: StatusCode, content_type: HeaderValue, content: impl Into<Body>) -> Response {
    let mut response = Response::new(content.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A status, without content.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Text.
pub(super) fn text(status: StatusCode, text: impl Into<Body>) -> Response {
    of(status, TEXT, text)
}

/// JSON, indented, with a line end.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    of(status, JSON, json_bytes(value))
}

/// The content of [`json`].
pub(super) fn json_bytes(value: &impl Serialize) -> Bytes {
    // As long as most answers are, so that a buffer seldom grows.
    let mut bytes = Vec::with_capacity(1 << 10);
    // Maps have text for keys and a vector takes all that is written, so that there is nothing to fail.
    let written = serde_json::to_writer_pretty(&mut bytes, value);
    debug_assert!(written.is_ok(), "{written:?}");
    bytes.push(b'\n');
    bytes.into()
}

/// A field of the answer.
pub(super) fn with(mut response: Response, name: HeaderName, value: HeaderValue) -> Response {
    response.headers_mut().insert(name, value);
    response
}

/// A field's value from any text: what may not stand in one becomes a space.
pub(super) fn field_value(text: &str) -> HeaderValue {
    let allowed = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    let bytes: Vec<u8> = text.bytes().map(|byte| if allowed(byte) { byte } else { b' ' }).collect();
    HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""))
}

/// Text as it may stand in a page without being taken for part of it.
pub(super) fn html_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// Whether a browser might run what it finds in content of this type, so that text from outside has to be escaped in it.
pub(super) fn is_dangerous(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    !matches!(media_type.as_str(), "text/plain" | "application/json" | "application/octet-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_value_can_be_made_of_anything() {
        assert_eq!(field_value("a\r\nb: c\u{7f}"), "a  b: c ");
        assert_eq!(field_value("ä").as_bytes(), "ä".as_bytes());
    }

    #[test]
    fn only_types_that_no_browser_runs_are_safe() {
        assert!(!is_dangerous("Text/Plain; charset=utf-8") && !is_dangerous("application/json"));
        assert!(is_dangerous("text/html") && is_dangerous("image/svg+xml") && is_dangerous(""));
    }
}
