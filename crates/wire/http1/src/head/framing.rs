//! Body framing of a message (RFC 9112 §6).

use super::error::HeadError;
use crate::syntax::{is_token, list};

/// Framing of a request body. A request never ends with the connection (RFC 9112 §6.3).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestFraming {
    /// No body.
    #[default]
    None,
    /// `Content-Length`, in bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Framing of a response body.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body, regardless of the fields: 1xx, 204, 304, a response to HEAD, a 2xx response to CONNECT.
    #[default]
    None,
    /// `Content-Length`, in bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The body ends when the provider closes the connection.
    UntilClose,
}

/// A response supports every framing of a request.
impl From<RequestFraming> for ResponseFraming {
    #[inline]
    fn from(framing: RequestFraming) -> Self {
        match framing {
            RequestFraming::None => Self::None,
            RequestFraming::Length(length) => Self::Length(length),
            RequestFraming::Chunked => Self::Chunked,
        }
    }
}

/// Checks the value of the only `Transfer-Encoding` line: it must be exactly `chunked`.
pub(super) fn check_transfer_encoding(value: &[u8]) -> Result<(), HeadError> {
    if value.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(refuse_transfer_encoding(value)) }
}

/// Returns the rule that a value other than `chunked` breaks (RFC 9112 §6.1, §6.3, §7).
#[cold]
fn refuse_transfer_encoding(value: &[u8]) -> HeadError {
    let mut chunked = 0_u32;
    let mut chunked_is_last = false;
    for member in list(value) {
        let name = member.split(|&byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
        if !is_token(name) {
            return HeadError::TransferEncoding;
        }
        chunked_is_last = name.eq_ignore_ascii_case(b"chunked");
        if chunked_is_last && name.len() != member.len() {
            return HeadError::ChunkedParameter;
        }
        chunked += u32::from(chunked_is_last);
    }
    match (chunked, chunked_is_last) {
        (0, _) | (1, false) => HeadError::ChunkedNotFinal,
        (1, true) => HeadError::UnknownTransferCoding,
        _ => HeadError::ChunkedRepeated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunked_alone_is_understood_rfc_9112_section_6_1() {
        let rows: &[(&[u8], Result<(), HeadError>)] = &[
            (b"chunked", Ok(())),
            (b"ChUnKeD", Ok(())),
            (b"", Err(HeadError::TransferEncoding)),
            (b",chunked", Err(HeadError::TransferEncoding)),
            (b"chunked,", Err(HeadError::TransferEncoding)),
            (b"\xa0chunked", Err(HeadError::TransferEncoding)),
            (b"\"chunked\"", Err(HeadError::TransferEncoding)),
            (b"xchunked", Err(HeadError::ChunkedNotFinal)),
            (b"gzip", Err(HeadError::ChunkedNotFinal)),
            (b"identity", Err(HeadError::ChunkedNotFinal)),
            (b"chunked, gzip", Err(HeadError::ChunkedNotFinal)),
            (b"chunked, identity", Err(HeadError::ChunkedNotFinal)),
            (b"chunked, chunked", Err(HeadError::ChunkedRepeated)),
            (b"chunked;a=b", Err(HeadError::ChunkedParameter)),
            (b"chunked ;", Err(HeadError::ChunkedParameter)),
            (b"gzip, chunked", Err(HeadError::UnknownTransferCoding)),
            (b"gzip;q=1, chunked", Err(HeadError::UnknownTransferCoding)),
        ];
        for (value, expected) in rows {
            assert_eq!(check_transfer_encoding(value), *expected, "{}", value.escape_ascii());
        }
    }
}
