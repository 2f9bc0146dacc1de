//! Checks of responses: status code, body and header fields.

use egret_http1::ResponseHead;
use memchr::memmem::Finder;

/// Maximum number of body bytes that are buffered for a check.
const CHECKED_BODY_BYTES_MAX: usize = 16 << 20;

/// Checks of responses. A check that is not configured passes.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    statuses: Vec<StatusRange>,
    body: Option<Finder<'static>>,
    fields: Vec<FieldCheck>,
    /// Responses must have events with the moments at which they were sent, and their delays are measured.
    pub events: bool,
}

/// A header field that responses must have.
#[derive(Debug)]
struct FieldCheck {
    name: Vec<u8>,
    /// Text that the value must contain; any value if it is empty.
    text: Vec<u8>,
}

/// An inclusive range of status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatusRange(u16, u16);

/// The error for an invalid check.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// Not a status code.
    #[error("`{0}` is not a status code to check: write `200`, `2xx`, or several separated by commas")]
    Status(String),
    /// Not a header field.
    #[error("`{0}` is not a field to check: write `Name: text that the value contains`")]
    Field(String),
}

impl Checks {
    /// Compiles checks: status codes like `200,3xx`, a text that the body must contain, and fields like
    /// `Name: text that the value contains`.
    pub fn compile(
        statuses: Option<&str>,
        body: Option<&str>,
        fields: &[String],
    ) -> Result<Self, CheckError> {
        let statuses = statuses.into_iter().flat_map(|list| list.split(',')).map(status_range);
        let fields = fields.iter().map(|text| {
            let (name, value) = text.split_once(':').ok_or_else(|| CheckError::Field(text.clone()))?;
            Ok(FieldCheck { name: name.trim().as_bytes().to_vec(), text: value.trim().as_bytes().to_vec() })
        });
        Ok(Self {
            statuses: statuses.collect::<Result<_, _>>()?,
            body: body.map(|text| Finder::new(text).into_owned()),
            fields: fields.collect::<Result<_, _>>()?,
            events: false,
        })
    }

    /// Returns `true` if bodies must be buffered.
    #[inline]
    pub fn wants_body(&self) -> bool {
        self.body.is_some()
    }

    /// Returns `true` if a head, parsed from `bytes`, passes.
    #[inline]
    pub fn head(&self, head: &ResponseHead, bytes: &[u8]) -> bool {
        self.status(head.status) && self.fields.iter().all(|field| has_field(head, bytes, field))
    }

    /// Returns `true` if a head of HTTP/2 passes.
    pub fn http2_head(&self, head: &http::response::Parts) -> bool {
        let has = |field: &FieldCheck| {
            let finder = Finder::new(&field.text);
            let name = http::HeaderName::from_bytes(&field.name);
            let values = name.iter().flat_map(|name| head.headers.get_all(name));
            values.into_iter().any(|value| field.text.is_empty() || finder.find(value.as_bytes()).is_some())
        };
        self.status(head.status.as_u16()) && self.fields.iter().all(has)
    }

    fn status(&self, status: u16) -> bool {
        self.statuses.is_empty() || self.statuses.iter().any(|range| (range.0..=range.1).contains(&status))
    }

    /// Returns `true` if a body passes.
    #[inline]
    pub fn body(&self, body: &[u8]) -> bool {
        self.body.as_ref().is_none_or(|finder| finder.find(body).is_some())
    }

    /// Appends a piece to a buffered body, up to the limit.
    pub fn gather(body: &mut Vec<u8>, piece: &[u8]) {
        let room = CHECKED_BODY_BYTES_MAX.saturating_sub(body.len());
        body.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

fn status_range(text: &str) -> Result<StatusRange, CheckError> {
    let text = text.trim();
    let wrong = || CheckError::Status(text.to_owned());
    let (low, high) = match text.strip_suffix("xx") {
        Some(class) if class.len() == 1 => (format!("{class}00"), format!("{class}99")),
        _ => (text.to_owned(), text.to_owned()),
    };
    let number = |digits: String| digits.parse().ok().filter(|status| (100..=999).contains(status));
    Ok(StatusRange(number(low).ok_or_else(wrong)?, number(high).ok_or_else(wrong)?))
}

fn has_field(head: &ResponseHead, bytes: &[u8], check: &FieldCheck) -> bool {
    head.fields.iter().any(|field| {
        field.name.of(bytes).eq_ignore_ascii_case(&check.name)
            && (check.text.is_empty() || memchr::memmem::find(field.value.of(bytes), &check.text).is_some())
    })
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Method, Progress};

    use super::*;

    #[test]
    fn statuses_are_numbers_or_classes() {
        let checks = Checks::compile(Some("200, 3xx"), None, &[]).unwrap();
        assert!(checks.status(200) && checks.status(304) && !checks.status(201) && !checks.status(400));
        assert!(Checks::default().status(503));
        for text in ["", "2x", "xx", "20", "2000", "ok", "22xx"] {
            assert_eq!(Checks::compile(Some(text), None, &[]).unwrap_err(), CheckError::Status(text.into()));
        }
    }

    #[test]
    fn a_body_has_the_text() {
        let checks = Checks::compile(None, Some("\"ok\""), &[]).unwrap();
        assert!(checks.wants_body() && checks.body(b"{\"ok\":true}") && !checks.body(b"{}"));
        assert!(!Checks::default().wants_body() && Checks::default().body(b""));
    }

    #[test]
    fn a_field_has_the_text_whatever_the_case_of_its_name() {
        let bytes = b"HTTP/1.1 200 OK\r\nX-Cache: hit from edge\r\nContent-Length: 0\r\n\r\n";
        let mut head = ResponseHead::new();
        assert_eq!(head.parse(bytes, &HeadLimits::default(), Method::Get), Ok(Progress::Complete));
        let passes =
            |field: &str| Checks::compile(None, None, &[field.to_owned()]).unwrap().head(&head, bytes);
        assert!(passes("x-cache: hit") && passes("x-cache:") && !passes("x-cache: miss") && !passes("via:"));
        assert_eq!(Checks::compile(None, None, &["x".into()]).unwrap_err(), CheckError::Field("x".into()));
    }

    #[test]
    fn a_buffered_body_is_bounded() {
        let mut body = vec![b'x'; CHECKED_BODY_BYTES_MAX - 3];
        Checks::gather(&mut body, b"12345");
        Checks::gather(&mut body, b"6");
        assert_eq!(body.len(), CHECKED_BODY_BYTES_MAX);
        assert!(body.ends_with(b"x123"));
    }
}
