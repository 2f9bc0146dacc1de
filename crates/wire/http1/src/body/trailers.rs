//! Trailer fields (RFC 9110 §6.5, RFC 9112 §7.1.2): collected, checked, and filtered by name.

use super::error::BodyError;
use crate::head::KnownField;
use crate::syntax::{is_token, is_value_byte};

/// Maximum bytes of all trailer lines.
pub const MAX_TRAILER_BYTES: usize = 8 * 1024;
/// Maximum number of trailer lines.
pub const MAX_TRAILER_FIELDS: usize = 64;

/// Collects the trailer lines after the last chunk.
#[derive(Debug, Default)]
pub(super) struct TrailerSection {
    bytes: Vec<u8>,
    /// Start of the incomplete last line.
    line_start: usize,
    fields: usize,
}

impl TrailerSection {
    /// Empties the section and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.line_start = 0;
        self.fields = 0;
    }

    /// Consumes bytes of `input` up to the empty line that ends the section. Returns the number of bytes
    /// consumed, and `true` once the section ended.
    pub fn consume(&mut self, input: &[u8]) -> Result<(usize, bool), BodyError> {
        if self.bytes.is_empty() && input.starts_with(b"\r\n") {
            return Ok((2, true)); // almost always there are no trailers: nothing is allocated
        }
        for (at, &byte) in input.iter().enumerate() {
            let after_carriage_return = self.bytes.len() > self.line_start && self.bytes.ends_with(b"\r");
            if after_carriage_return != (byte == b'\n') {
                return Err(BodyError::Trailer);
            }
            if !after_carriage_return && byte != b'\r' && !is_value_byte(byte) {
                return Err(BodyError::Trailer);
            }
            self.bytes.push(byte);
            if byte == b'\n' && self.end_line()? {
                return Ok((at + 1, true));
            }
            // The empty line at the end does not count.
            if self.bytes.len() > MAX_TRAILER_BYTES + 2 {
                return Err(BodyError::TrailersTooLong);
            }
        }
        Ok((input.len(), false))
    }

    /// Checks the line that just ended. Returns `true` if it was the empty line.
    fn end_line(&mut self) -> Result<bool, BodyError> {
        let line = &self.bytes[self.line_start..self.bytes.len() - 2];
        if line.is_empty() {
            self.bytes.truncate(self.line_start);
            return Ok(true);
        }
        name_of(line).ok_or(BodyError::Trailer)?;
        self.line_start = self.bytes.len();
        self.fields += 1;
        if self.fields > MAX_TRAILER_FIELDS || self.bytes.len() > MAX_TRAILER_BYTES {
            return Err(BodyError::TrailersTooLong);
        }
        Ok(false)
    }

    /// The collected lines, each with its CRLF.
    pub fn lines(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the name of a field line: a token directly followed by a colon. This also rejects folded lines.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    let name = &line[..line.iter().position(|&byte| byte == b':')?];
    is_token(name).then_some(name)
}

/// The names of trailer fields that are forwarded.
///
/// Built from names such as `server-timing`, and prefixes such as `x-*`. Fields that take part in framing,
/// routing, authentication, caching or the interpretation of content are never forwarded, even if listed (RFC
/// 9110 §6.5.1).
#[derive(Clone, Debug, Default)]
pub struct TrailerNames {
    /// Lower case.
    exact: Vec<Box<[u8]>>,
    /// Lower case, without the `*`.
    prefixes: Vec<Box<[u8]>>,
}

/// Prefixes of names that are never forwarded as trailers: these fields carry credentials, the client's
/// identity, or permission to read a response.
const FORBIDDEN_PREFIXES: &[&[u8]] =
    &[b"proxy-", b"access-control-", b"if-", b"sec-", b"x-forwarded-", b"x-egret-", b"x-lunar-", b"mashape-"];

impl TrailerNames {
    /// Creates the list from `names`, in any case.
    pub fn new<Name: AsRef<str>>(names: impl IntoIterator<Item = Name>) -> Self {
        let mut list = Self::default();
        for name in names {
            let name = name.as_ref().to_ascii_lowercase();
            match name.strip_suffix('*') {
                Some(prefix) => list.prefixes.push(prefix.as_bytes().into()),
                None => list.exact.push(name.into_bytes().into()),
            }
        }
        list
    }

    /// Returns `true` if a trailer with this name is forwarded.
    pub fn allows(&self, name: &[u8]) -> bool {
        let starts =
            |prefix: &[u8]| name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix);
        let listed = self.exact.iter().any(|exact| name.eq_ignore_ascii_case(exact))
            || self.prefixes.iter().any(|prefix| starts(prefix));
        listed
            && KnownField::of(name).may_be_trailer()
            && !FORBIDDEN_PREFIXES.iter().any(|prefix| starts(prefix))
    }

    /// Appends the forwarded lines of `trailers` to `out`, each with its CRLF. `trailers` comes from
    /// [`BodyDecoder::trailers`](crate::BodyDecoder::trailers).
    pub fn filter(&self, trailers: &[u8], out: &mut Vec<u8>) {
        for line in trailers.split_inclusive(|&byte| byte == b'\n') {
            if name_of(line).is_some_and(|name| self.allows(name)) {
                out.extend_from_slice(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_list_pass_in_any_case() {
        let names = TrailerNames::new(["Server-Timing", "x-*", "grpc-status", "etag"]);
        let trailers =
            b"server-timing: a\r\nX-Checksum: b\r\nother: c\r\nX: d\r\nGRPC-Status:0\r\nETag: e\r\n";
        let mut out = b"kept: y\r\n".to_vec();
        names.filter(trailers, &mut out);
        let expected = b"kept: y\r\nserver-timing: a\r\nX-Checksum: b\r\nGRPC-Status:0\r\nETag: e\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn an_empty_list_allows_no_trailer() {
        assert!(!TrailerNames::default().allows(b"server-timing"));
        assert!(!TrailerNames::new([""]).allows(b"server-timing"));
    }

    #[test]
    fn forbidden_trailers_never_pass_rfc_9110_section_6_5_1() {
        let forbidden = [
            "Content-Length",
            "Transfer-Encoding",
            "Host",
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Content-Encoding",
            "Content-Type",
            "Content-Range",
            "Cache-Control",
            "Expires",
            "Date",
            "Location",
            "Retry-After",
            "Vary",
            "WWW-Authenticate",
            "Proxy-Authenticate",
            "Proxy-Anything",
            "Max-Forwards",
            "Expect",
            "If-Match",
            "Range",
            "X-Api-Key",
            "X-Forwarded-For",
            "X-Egret-Error",
            "Access-Control-Allow-Origin",
        ];
        let named = TrailerNames::new(forbidden);
        let any = TrailerNames::new(["*"]);
        assert!(any.allows(b"server-timing"));
        for name in forbidden {
            assert!(!named.allows(name.as_bytes()) && !any.allows(name.as_bytes()), "{name}");
        }
    }
}
