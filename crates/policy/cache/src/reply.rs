//! Responses from the cache: a whole stored response, a 304, or ranges of its body.

use std::io::Write as _;

use egret_clock::Timestamp;
use egret_http1::push_decimal;
use egret_message::Request;

use super::conditional::{if_range_holds, is_unchanged};
use super::directives::SECONDS_MAX;
use super::freshness::Freshness;
use super::range::{ByteRange, Selected, select};
use super::stored::Stored;

/// A response made from a stored one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Index of the stored response among the candidates.
    pub candidate: usize,
    /// Its freshness.
    pub freshness: Freshness,
    /// The form in which it is sent.
    pub form: Form,
    /// `false` for a response to HEAD, which has no body.
    pub has_body: bool,
}

/// The form in which a stored response is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Complete, as stored.
    Whole,
    /// Status 304: the client already has it.
    NotModified,
    /// Status 206 with one range.
    Range(ByteRange),
    /// Status 206 with several ranges, as `multipart/byteranges`.
    Ranges(Vec<ByteRange>),
    /// Status 416: no range lies within the body.
    Unsatisfiable,
}

/// A piece of the body that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Text(Vec<u8>),
    /// This range of the stored body.
    Stored(ByteRange),
}

/// Header fields of a 304 (RFC 9110 §15.4.5); the client already has the others.
const NOT_MODIFIED: [&[u8]; 8] = [
    b"cache-control",
    b"content-location",
    b"date",
    b"etag",
    b"expires",
    b"vary",
    b"cdn-cache-control",
    b"egret-cache-control",
];

impl Reply {
    /// Creates the response from `stored`, whose body has `len` bytes. `len` is `None` while the body is
    /// still arriving; ranges are not served then.
    pub(super) fn new(
        request: &Request<'_>,
        candidate: usize,
        stored: &Stored,
        freshness: Freshness,
        len: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let form =
            if is_unchanged(request, stored, now) { Form::NotModified } else { ranged(request, stored, len) };
        Self { candidate, freshness, form, has_body: request.method != b"HEAD" }
    }

    /// The status code.
    pub fn status(&self, stored: &Stored) -> u16 {
        match self.form {
            Form::Whole => stored.status,
            Form::NotModified => 304,
            Form::Range(_) | Form::Ranges(_) => 206,
            Form::Unsatisfiable => 416,
        }
    }

    /// Appends the header fields, except `Cache-Status` and those that frame the message. `len` is the length
    /// of the stored body.
    pub fn write_fields(&self, stored: &Stored, len: u64, out: &mut Vec<u8>) {
        let mut write = |is_sent: &dyn Fn(&[u8]) -> bool| {
            for (name, value) in stored.lines().iter().filter(|(name, _)| is_sent(name)) {
                for part in [name, b": ", value, b"\r\n"] {
                    out.extend_from_slice(part);
                }
            }
        };
        let is = |name: &[u8], other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match &self.form {
            Form::Whole => out.extend_from_slice(stored.lines().as_bytes()),
            Form::NotModified => {
                write(&|name| NOT_MODIFIED.iter().any(|other| name.eq_ignore_ascii_case(other)));
            }
            Form::Range(range) => {
                write(&|name| !is(name, "content-range"));
                push(out, format_args!("content-range: bytes {}-{}/{len}\r\n", range.start, range.end - 1));
            }
            Form::Ranges(_) => {
                write(&|name| !is(name, "content-range") && !is(name, "content-type"));
                push(
                    out,
                    format_args!("content-type: multipart/byteranges; boundary={}\r\n", boundary(stored)),
                );
            }
            Form::Unsatisfiable => {
                write(&|name| is(name, "date"));
                push(out, format_args!("content-range: bytes */{len}\r\n"));
            }
        }
        out.extend_from_slice(b"age: ");
        push_decimal(self.freshness.age.as_secs().min(SECONDS_MAX), out);
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the pieces of the body, in order; `None` if the stored body is sent unchanged.
    pub fn pieces(&self, stored: &Stored, len: u64) -> Option<Vec<Piece>> {
        let ranges = match &self.form {
            Form::Whole => return None,
            Form::NotModified | Form::Unsatisfiable => return Some(Vec::new()),
            Form::Range(range) => return Some(vec![Piece::Stored(*range)]),
            Form::Ranges(ranges) => ranges,
        };
        let boundary = boundary(stored);
        let mut pieces = Vec::with_capacity(ranges.len() * 2 + 1);
        for (number, range) in ranges.iter().enumerate() {
            let mut head = Vec::new();
            let line_end = if number == 0 { "" } else { "\r\n" };
            push(&mut head, format_args!("{line_end}--{boundary}\r\n"));
            if let Some(media_type) = stored.lines().get(b"content-type") {
                for part in [b"content-type: ", media_type, b"\r\n"] {
                    head.extend_from_slice(part);
                }
            }
            push(
                &mut head,
                format_args!("content-range: bytes {}-{}/{len}\r\n\r\n", range.start, range.end - 1),
            );
            pieces.push(Piece::Text(head));
            pieces.push(Piece::Stored(*range));
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into_bytes()));
        Some(pieces)
    }

    /// Returns the value of `Content-Length`, also for a response without the body (RFC 9110 §8.6); `None`
    /// for a 304.
    pub fn content_length(&self, stored: &Stored, len: u64) -> Option<u64> {
        if self.form == Form::NotModified || stored.status == 204 {
            return None;
        }
        let Some(pieces) = self.pieces(stored, len) else { return Some(len) };
        Some(
            pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.len() as u64,
                    Piece::Stored(range) => range.len(),
                })
                .sum(),
        )
    }
}

/// Evaluates `Range`. It applies after the conditions, only to GET, and only to a status 200 with a complete
/// body (RFC 9110 §13.2.2, §14.2).
fn ranged(request: &Request<'_>, stored: &Stored, len: Option<u64>) -> Form {
    let mut values = request.fields.all(b"range");
    let (Some(value), None) = (values.next(), values.next()) else { return Form::Whole };
    let Some(len) = len.filter(|_| request.method == b"GET" && stored.status == 200) else {
        return Form::Whole;
    };
    if !if_range_holds(request, stored) {
        return Form::Whole;
    }
    match select(value, len) {
        Selected::Whole => Form::Whole,
        Selected::Unsatisfiable => Form::Unsatisfiable,
        Selected::Ranges(ranges) => match *ranges {
            [range] => Form::Range(range),
            _ => Form::Ranges(ranges),
        },
    }
}

/// Returns the boundary between parts. It is unpredictable before the response is stored, so no body can
/// contain it.
fn boundary(stored: &Stored) -> String {
    format!("egret-{:032x}", stored.boundary)
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}
