//! Serializes the heads of responses that hyper does not send.

use std::time::SystemTime;

use axum::http::{HeaderMap, StatusCode, header};
use egret_clock::http_date;

/// Serializes a response head; adds a date if there is none.
pub(crate) fn head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    if !fields.contains_key(header::DATE) && !status.is_informational() {
        bytes.extend_from_slice(
            format!("date: {}\r\n", http_date::write_system_time(SystemTime::now())).as_bytes(),
        );
    }
    push_fields(&mut bytes, fields);
    bytes
}

/// Appends the field lines and the empty line after them.
pub(crate) fn push_fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_date_and_its_fields_in_order() {
        let fields = HeaderMap::from_iter([
            (header::DATE, "today".parse().unwrap()),
            (header::SERVER, "s".parse().unwrap()),
        ]);
        assert_eq!(head(StatusCode::OK, &fields), b"HTTP/1.1 200 OK\r\ndate: today\r\nserver: s\r\n\r\n");
        let dated = String::from_utf8(head(StatusCode::NOT_FOUND, &HeaderMap::new())).unwrap();
        assert!(
            dated.starts_with("HTTP/1.1 404 Not Found\r\ndate: ") && dated.ends_with(" GMT\r\n\r\n"),
            "{dated}"
        );
        // RFC 9110 §6.6.1 asks for a date in final responses alone.
        assert_eq!(head(StatusCode::CONTINUE, &HeaderMap::new()), b"HTTP/1.1 100 Continue\r\n\r\n");
        let unknown = StatusCode::from_u16(599).unwrap();
        assert!(head(unknown, &HeaderMap::new()).starts_with(b"HTTP/1.1 599 Unknown\r\n"));
    }
}
