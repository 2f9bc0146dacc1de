//! Reasons for rejecting a head: one variant per rule.

use std::fmt;

macro_rules! head_errors {
    ($($(#[$doc:meta])* $variant:ident => $status:literal, $slug:literal, $text:literal;)*) => {
        /// An invalid head. The connection it came on must be closed, because the start of the next message
        /// is unknown.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum HeadError {
            $($(#[$doc])* $variant,)*
        }

        impl HeadError {
            /// Every error, for tables and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The status code of the response to an invalid request. For an invalid response of a provider,
            /// always respond 502.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// A short name in kebab-case, for metrics, logs and problem documents.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// One English sentence, without any byte received.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

head_errors! {
    /// RFC 9112 §2.2: at most one CRLF before a request line, none before a status line.
    EmptyLine => 400, "empty-line", "The message starts with empty lines.";
    /// RFC 9112 §2.2: white space between the start line and the first field.
    LeadingSpace => 400, "leading-space", "White space precedes the first field.";
    /// RFC 9112 §2.2: LF without CR before it.
    BareLineFeed => 400, "bare-line-feed", "A line ends with LF alone.";
    /// RFC 9112 §2.2: CR without LF after it.
    BareCarriageReturn => 400, "bare-carriage-return", "A CR is not followed by LF.";
    /// RFC 9112 §3, §4: the start line does not have three parts with one space between them.
    StartLine => 400, "start-line", "The start line is not well-formed.";
    /// The start line is longer than [`HeadLimits::start_line`](crate::HeadLimits::start_line).
    StartLineTooLong => 414, "start-line-too-long", "The start line is too long.";
    /// The head is longer than [`HeadLimits::head`](crate::HeadLimits::head).
    HeadTooLong => 431, "head-too-long", "The head of the message is too long.";
    /// There are more fields than [`HeadLimits::fields`](crate::HeadLimits::fields).
    TooManyFields => 431, "too-many-fields", "The message has too many fields.";
    /// RFC 9112 §3.1: the method is not a token.
    Method => 400, "method", "The method is not a token.";
    /// The method is longer than [`MAX_METHOD`](crate::MAX_METHOD).
    MethodTooLong => 400, "method-too-long", "The method is too long.";
    /// RFC 9112 §3.2: the request target is missing or holds a byte that is not allowed in it.
    Target => 400, "target", "The request target is missing or holds a byte that is not allowed there.";
    /// RFC 9112 §3.2: the target has none of the four forms, or a form that the method does not allow.
    TargetForm => 400, "target-form", "The method does not allow this form of request target.";
    /// RFC 9112 §2.3: the start line holds no well-formed protocol version.
    Version => 400, "version", "The protocol version is not well-formed.";
    /// RFC 9112 §2.3: the version is neither HTTP/1.0 nor HTTP/1.1.
    UnsupportedVersion => 505, "unsupported-version", "The protocol version is not supported.";
    /// RFC 9112 §4: the status code is not three digits, or is below 100.
    Status => 400, "status", "The status line is not well-formed.";
    /// RFC 9110 §5.1: a field name is not a token, or a line has no colon.
    FieldName => 400, "field-name", "A field name is not a token.";
    /// RFC 9110 §5.1: there is no name before the colon.
    EmptyFieldName => 400, "empty-field-name", "A field has no name.";
    /// RFC 9112 §5.1: white space between field name and colon.
    SpaceBeforeColon => 400, "space-before-colon", "White space separates a field name from its colon.";
    /// RFC 9112 §5.2: a field value continues on the next line.
    FoldedField => 400, "folded-field", "A field value is folded over several lines.";
    /// RFC 9110 §5.5: a field value holds NUL or another control character.
    FieldValue => 400, "field-value", "A field value holds a control character.";
    /// RFC 9112 §3.2: an HTTP/1.1 request has no Host.
    MissingHost => 400, "missing-host", "An HTTP/1.1 request needs a Host field.";
    /// RFC 9112 §3.2: there are several Host lines.
    RepeatedHost => 400, "repeated-host", "The request has several Host fields.";
    /// RFC 9112 §3.2: Host is not `host[:port]`.
    InvalidHost => 400, "invalid-host", "The Host field is not valid.";
    /// RFC 9112 §6.3: Content-Length is not 1 to 19 digits.
    ContentLength => 400, "content-length", "The Content-Length field is not a plain number.";
    /// RFC 9112 §6.3: there are several Content-Length lines, even if they agree.
    RepeatedContentLength => 400, "repeated-content-length", "The message has several Content-Length fields.";
    /// RFC 9112 §6.1: there are both Transfer-Encoding and Content-Length.
    LengthAndTransferEncoding => 400, "length-and-transfer-encoding",
        "The message has both Content-Length and Transfer-Encoding.";
    /// RFC 9112 §6.1: an HTTP/1.0 message has Transfer-Encoding.
    TransferEncodingInHttp10 => 400, "transfer-encoding-in-http10", "An HTTP/1.0 message has a Transfer-Encoding.";
    /// There are several Transfer-Encoding lines.
    RepeatedTransferEncoding => 400, "repeated-transfer-encoding",
        "The message has several Transfer-Encoding fields.";
    /// RFC 9112 §6.1: Transfer-Encoding is empty, or has members that are empty or not tokens.
    TransferEncoding => 400, "transfer-encoding", "The Transfer-Encoding field is not valid.";
    /// RFC 9112 §6.3: chunked is missing or is not the last coding.
    ChunkedNotFinal => 400, "chunked-not-final", "The last transfer coding is not chunked.";
    /// RFC 9112 §6.1: chunked is applied more than once.
    ChunkedRepeated => 400, "chunked-repeated", "The transfer coding chunked is given more than once.";
    /// RFC 9112 §7: chunked has a parameter.
    ChunkedParameter => 400, "chunked-parameter", "The transfer coding chunked has a parameter.";
    /// RFC 9112 §6.1: there is a transfer coding other than chunked, which this gateway does not support.
    UnknownTransferCoding => 501, "unknown-transfer-coding", "The transfer coding is not supported.";
    /// RFC 9110 §8.6, RFC 9112 §6.1: an informational response has Transfer-Encoding, or a Content-Length
    /// above 0.
    InformationalBody => 400, "informational-body",
        "An informational response (1xx) announces a body, which it cannot have.";
    /// There are more Connection options than [`MAX_CONNECTION_OPTIONS`](crate::MAX_CONNECTION_OPTIONS).
    TooManyConnectionOptions => 400, "too-many-connection-options", "The Connection field has too many options.";
    /// RFC 9113 §8.2.2: a message of HTTP/2 has a field about the connection.
    ConnectionField => 400, "connection-field", "A field about the connection does not exist in HTTP/2.";
    /// RFC 9113 §8.2.1: white space surrounds a field value, which only HTTP/1.1 allows.
    SurroundedValue => 400, "surrounded-value", "White space surrounds a field value, which HTTP/2 does not allow.";
    /// RFC 9113 §8.3.1: `:scheme` is not that of the connection.
    Scheme => 400, "scheme", "The scheme of the request is not the one of its connection.";
    /// RFC 9113 §8.3.1: `:authority` and `Host` differ.
    HostMismatch => 400, "host-mismatch", "The Host field is not the authority of the request.";
    /// RFC 8441 §4: a request opens a stream for a protocol other than `websocket`.
    Protocol => 501, "protocol", "A stream can be opened for the protocol `websocket` alone.";
}

impl fmt::Display for HeadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for HeadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slugs_and_sentences_are_distinct_and_well_formed() {
        let slugs: HashSet<_> = HeadError::ALL.iter().map(|error| error.slug()).collect();
        let sentences: HashSet<_> = HeadError::ALL.iter().map(ToString::to_string).collect();
        assert_eq!((slugs.len(), sentences.len()), (HeadError::ALL.len(), HeadError::ALL.len()));
        for error in HeadError::ALL {
            assert!(error.slug().bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')));
            assert!(error.sentence().ends_with('.'));
            assert!(matches!(error.status(), 400 | 414 | 431 | 501 | 505));
        }
    }
}
