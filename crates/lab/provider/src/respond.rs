//! Constructors for common responses: JSON, text and pages.

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
/// Newline-delimited JSON.
pub(crate) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
/// Server-sent events.
pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
/// Text.
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// An HTML page.
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// Binary data.
pub(crate) const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A response with content of this type.
pub(crate) fn of(status: StatusCode, content_type: HeaderValue, content: impl Into<Body>) -> Response {
    let mut response = Response::new(content.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A response without content.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A response with text.
pub(crate) fn text(status: StatusCode, text: impl Into<Body>) -> Response {
    of(status, TEXT, text)
}

/// A response with indented JSON and a final line end.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    of(status, JSON, json_bytes(value))
}

/// The content of [`json`].
pub(crate) fn json_bytes(value: &impl Serialize) -> Bytes {
    // The typical size of a response, so the buffer seldom grows.
    let mut bytes = Vec::with_capacity(1 << 10);
    // Cannot fail: map keys are strings, and a vector accepts all bytes.
    let written = serde_json::to_writer_pretty(&mut bytes, value);
    debug_assert!(written.is_ok(), "{written:?}");
    bytes.push(b'\n');
    bytes.into()
}

/// Sets a field of the response.
pub(crate) fn with(mut response: Response, name: HeaderName, value: HeaderValue) -> Response {
    response.headers_mut().insert(name, value);
    response
}

/// Converts any text to a field value. Bytes that are not allowed become spaces.
pub(crate) fn field_value(text: &str) -> HeaderValue {
    let allowed = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    let bytes: Vec<u8> = text.bytes().map(|byte| if allowed(byte) { byte } else { b' ' }).collect();
    HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""))
}

/// Escapes text for HTML.
pub(crate) fn html_escaped(text: &str) -> String {
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

/// Returns `true` if a browser might execute content of this type, so text from outside must be escaped in
/// it.
pub(crate) fn is_dangerous(content_type: &str) -> bool {
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
