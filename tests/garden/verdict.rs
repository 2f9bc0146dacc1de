//! Verdicts on a message, and the documented reasons for which its ways may differ.

use memchr::memmem;

/// The result of comparing what became of a message directly and through Egret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The peer has understood the same.
    Equal,
    /// The message, or its rest, was accepted on neither way.
    RefusedByBoth,
    /// Egret refused what the peer accepts.
    RefusedByEgret(Part, &'static str),
    /// The peer refuses, or misreads, what it accepts in the form that Egret gives it.
    RefusedByPeer(&'static str),
    /// Anything else.
    Unexplained(Difference),
}

/// The part of HTTP/1.1 that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The end of messages: peers that disagree about it can be made to smuggle.
    Framing,
    /// The rest of the syntax, and limits.
    Other,
}

/// The kinds of differences that must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// The server has understood more requests than Egret has passed responses to: smuggling.
    MoreRequests,
    /// A client was given bytes of one response as another.
    OtherResponse,
    /// The peer has understood another message.
    OtherMessage,
    /// The peer refuses the message directly, and accepts what Egret makes of it.
    Laxer,
    /// Egret lost the message without an error of its own.
    Lost,
    /// Egret refused with a reason that is not on the list.
    UnknownReason,
}

impl Difference {
    /// `true` if a busy machine is not the cause: a peer that is late looks silent, never like another.
    pub(crate) fn is_certain(self) -> bool {
        matches!(self, Self::OtherResponse | Self::OtherMessage)
    }
}

/// The reasons of Egret for a refusal: a detail of `bad-request` or `bad-response`, or the name of an error
/// of docs/reference/errors.md. Nothing else may be refused.
const REASONS: [(&str, Part); 44] = [
    ("A line ends with LF alone.", Part::Framing),
    ("A CR is not followed by LF.", Part::Framing),
    ("White space precedes the first field.", Part::Framing),
    ("White space separates a field name from its colon.", Part::Framing),
    ("A field value is folded over several lines.", Part::Framing),
    ("The Content-Length field is not a plain number.", Part::Framing),
    ("The message has several Content-Length fields.", Part::Framing),
    ("The message has both Content-Length and Transfer-Encoding.", Part::Framing),
    ("An HTTP/1.0 message has a Transfer-Encoding.", Part::Framing),
    ("The message has several Transfer-Encoding fields.", Part::Framing),
    ("The Transfer-Encoding field is not valid.", Part::Framing),
    ("The last transfer coding is not chunked.", Part::Framing),
    ("The transfer coding chunked is given more than once.", Part::Framing),
    ("The transfer coding chunked has a parameter.", Part::Framing),
    ("The transfer coding is not supported.", Part::Framing),
    ("An informational response (1xx) announces a body, which it cannot have.", Part::Framing),
    ("A chunk size is not a plain hexadecimal number.", Part::Framing),
    ("A chunk is too large.", Part::Framing),
    ("A chunk extension holds a control character.", Part::Framing),
    ("The chunk extensions of the body are too long.", Part::Framing),
    ("A chunk does not end where its size says.", Part::Framing),
    ("A trailer field is not well-formed.", Part::Framing),
    ("The trailers are too long.", Part::Framing),
    ("The connection ended before the body was complete.", Part::Framing),
    ("the provider switched protocols without a matching request", Part::Framing),
    ("The message starts with empty lines.", Part::Other),
    ("The start line is not well-formed.", Part::Other),
    ("The status line is not well-formed.", Part::Other),
    ("The start line is too long.", Part::Other),
    ("The head of the message is too long.", Part::Other),
    ("The message has too many fields.", Part::Other),
    ("The method is not a token.", Part::Other),
    ("The request target is missing or holds a byte that is not allowed there.", Part::Other),
    ("The method does not allow this form of request target.", Part::Other),
    ("The protocol version is not well-formed.", Part::Other),
    ("The protocol version is not supported.", Part::Other),
    ("A field name is not a token.", Part::Other),
    ("A field has no name.", Part::Other),
    ("A field value holds a control character.", Part::Other),
    ("An HTTP/1.1 request needs a Host field.", Part::Other),
    ("The request has several Host fields.", Part::Other),
    ("The Host field is not valid.", Part::Other),
    ("The Connection field has too many options.", Part::Other),
    ("only the schemes http and https can be forwarded", Part::Other),
];

/// Names of errors that count without their detail. A response to HEAD has none.
const ERRORS: [&str; 8] = [
    "bad-request",
    "uri-too-long",
    "head-too-large",
    "not-implemented",
    "version-not-supported",
    "connect-not-allowed",
    "no-forwards-left",
    "provider-closed",
];

/// The verdict on a refusal of Egret by the name of its error, and the detail.
pub(crate) fn refused(error: &str, detail: &str) -> Verdict {
    if let Some((reason, part)) = REASONS.iter().find(|(reason, _)| detail.contains(reason)) {
        return Verdict::RefusedByEgret(*part, reason);
    }
    // A reason without a detail, or one that names what only this message has.
    match ERRORS.iter().find(|known| **known == error) {
        Some(known) if detail.is_empty() || *known != "bad-request" => {
            Verdict::RefusedByEgret(Part::Other, known)
        }
        _ => Verdict::Unexplained(Difference::UnknownReason),
    }
}

/// Parts of a message that Egret by the documentation takes away, or passes on in another form, and for which
/// a peer may refuse the message.
const CHANGED: [(&str, fn(&[u8]) -> bool); 8] = [
    ("the empty line before it", |bytes| bytes.starts_with(b"\r\n")),
    ("its trailers", |bytes| {
        let ends = ["\r\n0\r\n", "\r\n00\r\n", "\r\n0;c\r\n"]
            .map(|end| Some(memmem::find(bytes, end.as_bytes())? + end.len()));
        ends.into_iter().flatten().any(|at| !bytes[at..].starts_with(b"\r\n"))
    }),
    ("its chunk extensions", |bytes| memmem::find(bytes, b"5;").is_some()),
    ("leading zeros of a chunk size", |bytes| {
        memmem::find(bytes, b"\r\n05\r\n").is_some() || memmem::find(bytes, b"\r\n00\r\n").is_some()
    }),
    ("fields about the connection", |bytes| {
        memmem::find(&bytes.to_ascii_lowercase(), b"\nconnection:").is_some()
    }),
    ("the form of its target", |bytes| memmem::find(bytes, b"://").is_some()),
    ("bytes behind its end", has_rest),
    ("HTTP/1.0, which becomes HTTP/1.1", |bytes| memmem::find(bytes, b"HTTP/1.0").is_some()),
];

/// `true` if a response is well-formed, and bytes follow it.
fn has_rest(bytes: &[u8]) -> bool {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n").filter(|_| bytes.starts_with(b"HTTP/1.")) else {
        return false;
    };
    let (head, body) = (bytes[..end].to_ascii_lowercase(), &bytes[end + 4..]);
    let value = |name: &str| {
        let line = head.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
        Some(String::from_utf8_lossy(line.trim_ascii()).into_owned())
    };
    match head.get(9..12) {
        Some([b'1', ..]) => return has_rest(body),
        Some(b"204" | b"304") => return !body.is_empty(),
        _ => {}
    }
    if value("transfer-encoding:").is_some_and(|coding| coding == "chunked") {
        return memmem::find(body, b"\r\n0\r\n\r\n").is_some_and(|at| at + 7 < body.len());
    }
    let length: Option<usize> = value("content-length:").and_then(|length| length.parse().ok());
    length.is_some_and(|length| length < body.len())
}

/// The verdict on a message that a peer refuses directly and accepts through Egret.
pub(crate) fn laxer(bytes: &[u8]) -> Verdict {
    let changed = CHANGED.iter().find(|(_, has)| has(bytes));
    changed.map_or(Verdict::Unexplained(Difference::Laxer), |(part, _)| Verdict::RefusedByPeer(part))
}
