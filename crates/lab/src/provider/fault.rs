//! Connection faults: failures of providers, and of the proxies in front of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::any;

use super::answer::{Answer, field_value};
use super::call::Call;
use super::echo;
use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::parameters::Parameters;
use super::takeover::{End, Script, Step, head, whole};

/// Maximum number of content bytes collected before a fault is applied.
const CONTENT_MAX: usize = 64 << 20;

/// Default duration of a slow head, and of the pause in a stalled response.
const DURATION: Duration = Duration::from_secs(2);

/// Maximum number of informational responses before the final one.
const INFORMATIONAL_MAX: usize = 100;

/// A fault applied to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Resets the connection instead of responding.
    Reset,
    /// Closes the connection instead of responding.
    Close,
    /// Sends the complete response, then closes the provider's side and continues reading.
    HalfClose,
    /// Sends half of the content, then closes the connection.
    Truncate,
    /// Sends half of the content, pauses, then closes the connection.
    Stall,
    /// Declares half of the length in Content-Length, so the rest looks like the next response.
    WrongLength,
    /// Sends a second chunk whose size is not a number.
    BadChunk,
    /// Sends informational responses (103 Early Hints) before the final one.
    Informational,
    /// Sends a header field twice with different values.
    DuplicateField,
    /// Sends the head byte by byte.
    SlowHead,
    /// Sends bytes that are not HTTP.
    Garbage,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 11] = [
        Self::Reset,
        Self::Close,
        Self::HalfClose,
        Self::Truncate,
        Self::Stall,
        Self::WrongLength,
        Self::BadChunk,
        Self::Informational,
        Self::DuplicateField,
        Self::SlowHead,
        Self::Garbage,
    ];

    /// Name of the fault in options and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Close => "close",
            Self::HalfClose => "half-close",
            Self::Truncate => "truncate",
            Self::Stall => "stall",
            Self::WrongLength => "wrong-length",
            Self::BadChunk => "bad-chunk",
            Self::Informational => "informational",
            Self::DuplicateField => "duplicate-field",
            Self::SlowHead => "slow-head",
            Self::Garbage => "garbage",
        }
    }

    /// Index in [`Fault::ALL`].
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// The error for a text that is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Fault::ALL.into_iter().map(Fault::name).collect();
        write!(f, "unknown fault {:?}: expected {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        Self::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

/// A fault with its parameters, which an endpoint attaches to its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spoiled {
    fault: Fault,
    /// Number of bytes of the response sent before a reset or close.
    after: usize,
    /// Duration of a slow head, or of the pause in a stalled response.
    duration: Duration,
    /// Number of informational responses; their status code is in `status`.
    count: usize,
    status: StatusCode,
    /// Name of the duplicated field; its second value is in `value`.
    field: HeaderName,
    value: HeaderValue,
}

impl Spoiled {
    /// Creates a fault with default parameters.
    pub fn by(fault: Fault) -> Self {
        Self {
            fault,
            after: 0,
            duration: DURATION,
            count: 1,
            status: StatusCode::EARLY_HINTS,
            field: HeaderName::from_static("x-duplicate"),
            value: HeaderValue::from_static("2"),
        }
    }

    /// Creates a fault with the parameters in the query.
    fn asked(fault: Fault, call: &Call) -> Result<Self, ProviderError> {
        let usual = Self::by(fault);
        let parameters = Parameters::of(call);
        let informational =
            |status: &StatusCode| status.is_informational() && *status != StatusCode::SWITCHING_PROTOCOLS;
        let status =
            match call.query.get("status") {
                None => usual.status,
                Some(text) => text.parse().ok().filter(informational).ok_or_else(|| {
                    ProviderError::parameter("status", "write one from 100 to 199, except 101")
                })?,
            };
        let field = match call.query.get("field") {
            None => usual.field,
            Some(name) => name.parse().map_err(|_| ProviderError::parameter("field", "not a field name"))?,
        };
        Ok(Self {
            fault,
            after: parameters.count("after", 0, 0..=call.lab.options().body_bytes_max)?,
            duration: parameters.duration("duration", usual.duration)?,
            count: parameters.count("count", usual.count, 1..=INFORMATIONAL_MAX)?,
            status,
            field,
            value: call.query.get("value").map_or(usual.value, field_value),
        })
    }

    /// The kind of fault.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The script sent instead of the response to a request with this method.
    pub async fn script(self, response: Response, method: &Method) -> Script {
        let (parts, body) = response.into_parts();
        let (status, mut fields) = (parts.status, parts.headers);
        // A body that breaks off by itself is already faulty; the bytes before that are used.
        let content = axum::body::to_bytes(body, CONTENT_MAX).await.unwrap_or_default();
        let content = if *method == Method::HEAD { Bytes::new() } else { content };
        let half = content.slice(..content.len() / 2);
        let sized = |fields: &HeaderMap, length: usize| {
            let mut fields = fields.clone();
            fields.insert(header::CONTENT_LENGTH, length.into());
            Bytes::from(head(status, &fields))
        };
        let complete = [Step::Send(sized(&fields, content.len())), Step::Send(content.clone())];
        match self.fault {
            Fault::Reset => Script { steps: self.beginning(complete), end: End::Reset },
            Fault::Close => Script { steps: self.beginning(complete), end: End::Close },
            Fault::HalfClose => Script { steps: complete.into(), end: End::HalfClose(self.duration) },
            Fault::Truncate => {
                let steps = vec![Step::Send(sized(&fields, content.len())), Step::Send(half)];
                Script { steps, end: End::Close }
            }
            Fault::Stall => {
                let rest = Step::Pause(self.duration);
                let steps = vec![Step::Send(sized(&fields, content.len())), Step::Send(half), rest];
                Script { steps, end: End::Close }
            }
            Fault::WrongLength => {
                let steps = vec![Step::Send(sized(&fields, half.len())), Step::Send(content)];
                Script { steps, end: End::Keep }
            }
            Fault::BadChunk => {
                fields.remove(header::CONTENT_LENGTH);
                fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                let mut bytes = head(status, &fields);
                bytes.extend_from_slice(format!("{:x}\r\n", half.len()).as_bytes());
                bytes.extend_from_slice(&half);
                bytes.extend_from_slice(b"\r\nsize\r\n");
                bytes.extend_from_slice(&content[half.len()..]);
                Script { steps: vec![Step::Send(bytes.into())], end: End::Close }
            }
            Fault::Informational => {
                let mut hints = HeaderMap::new();
                hints.insert(header::LINK, HeaderValue::from_static("</style.css>; rel=preload; as=style"));
                let informational = Bytes::from(head(self.status, &hints).repeat(self.count));
                let mut steps = vec![Step::Send(informational)];
                steps.extend(complete);
                Script { steps, end: End::Keep }
            }
            Fault::DuplicateField => {
                fields.insert(header::CONTENT_LENGTH, content.len().into());
                if !fields.contains_key(&self.field) {
                    fields.insert(self.field.clone(), HeaderValue::from_static("1"));
                }
                fields.append(self.field, self.value);
                let steps = vec![Step::Send(head(status, &fields).into()), Step::Send(content)];
                Script { steps, end: End::Keep }
            }
            Fault::SlowHead => {
                let slow = Step::Slowly(sized(&fields, content.len()), self.duration);
                Script { steps: vec![slow, Step::Send(content)], end: End::Keep }
            }
            Fault::Garbage => {
                let garbage = Bytes::from_static(b"\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n");
                Script { steps: vec![Step::Send(garbage)], end: End::Close }
            }
        }
    }

    /// The steps for the first bytes of the response.
    fn beginning(&self, complete: [Step; 2]) -> Vec<Step> {
        let mut left = self.after;
        let steps = complete.into_iter().map(|step| match step {
            Step::Send(bytes) => {
                let bytes = bytes.slice(..bytes.len().min(left));
                left -= bytes.len();
                Step::Send(bytes)
            }
            other => other,
        });
        steps.collect()
    }
}

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint {
    methods: "any",
    path: "/fault/{kind}",
    parameters: "`kind` one of `reset`, `close`, `half-close`, `truncate`, `stall`, `wrong-length`, `bad-chunk`, `informational`, `duplicate-field`, `slow-head`, `garbage`; \
        `after`, number of bytes sent before `reset` and `close` (0); `duration` of `slow-head`, `stall`, and of waiting after `half-close` (2s); \
        `count` (1) and `status` (103) of `informational`; `field` (`x-duplicate`) and its second `value` (2) of `duplicate-field`",
    about: "The response of `/anything` with this fault.",
    example: "/fault/informational?count=2",
    route: || any(endpoint),
}];

async fn endpoint(Path(kind): Path<String>, call: Call) -> Answer {
    let fault: Fault = kind.parse().map_err(|error| ProviderError::parameter("fault", error))?;
    let spoiled = Spoiled::asked(fault, &call)?;
    let mut response = echo::anything(call).await?;
    response.extensions_mut().insert(spoiled);
    Ok(response)
}

/// The script of a response that hyper would not send as it is: with an informational status code, or with
/// trailers that the client did not ask for.
pub(super) fn unbroken(response: Response, method: &Method) -> Script {
    let (parts, body) = response.into_parts();
    let (status, mut fields) = (parts.status, parts.headers);
    // The framing is decided again here, because axum assumes valid HTTP.
    fields.remove(header::CONTENT_LENGTH);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Script { steps: vec![Step::Send(head(status, &fields).into())], end: End::Close };
    }
    let mut steps = Vec::new();
    let mut answered = status;
    if status.is_informational() {
        steps.push(Step::Send(head(status, &fields).into()));
        answered = StatusCode::OK;
    }
    let body = if status.is_informational() { Body::empty() } else { body };
    steps.extend(whole(answered, fields, body, *method != Method::HEAD));
    Script { steps, end: End::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::answer;

    #[test]
    fn every_fault_is_known_by_its_name() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault.name().parse(), Ok(fault));
            assert_eq!(fault.index(), index);
            assert!(ENDPOINTS[0].parameters.contains(&format!("`{}`", fault.name())), "{}", fault.name());
        }
        let told = "resett".parse::<Fault>().unwrap_err().to_string();
        assert!(told.contains("\"resett\"") && told.contains("half-close"), "{told}");
    }

    /// The bytes that a script sends, and its end.
    async fn sent(fault: Fault, after: usize, method: Method) -> (String, End) {
        let response = answer::text(StatusCode::OK, "0123456789");
        let script = Spoiled { after, ..Spoiled::by(fault) }.script(response, &method).await;
        let mut text = String::new();
        for step in script.steps {
            match step {
                Step::Send(bytes) | Step::Slowly(bytes, _) => {
                    text.push_str(std::str::from_utf8(&bytes).unwrap_or("?"));
                }
                Step::Pause(_) => text.push_str("[pause]"),
                other => panic!("{other:?}"),
            }
        }
        (text, script.end)
    }

    #[tokio::test]
    async fn each_fault_spoils_in_its_own_way() {
        let get = |fault| sent(fault, 0, Method::GET);
        assert_eq!(get(Fault::Reset).await, (String::new(), End::Reset));
        assert_eq!(get(Fault::Close).await, (String::new(), End::Close));
        assert_eq!(sent(Fault::Reset, 8, Method::GET).await, ("HTTP/1.1".to_owned(), End::Reset));
        let (text, end) = get(Fault::Truncate).await;
        assert!(text.contains("content-length: 10\r\n") && text.ends_with("\r\n\r\n01234"), "{text}");
        assert_eq!(end, End::Close);
        let (text, _) = get(Fault::Stall).await;
        assert!(text.ends_with("\r\n\r\n01234[pause]"), "{text}");
        let (text, end) = get(Fault::WrongLength).await;
        assert!(text.contains("content-length: 5\r\n") && text.ends_with("\r\n\r\n0123456789"), "{text}");
        assert_eq!(end, End::Keep);
        let (text, _) = get(Fault::BadChunk).await;
        assert!(
            text.ends_with("\r\n\r\n5\r\n01234\r\nsize\r\n56789") && !text.contains("content-length"),
            "{text}"
        );
        let (text, _) = get(Fault::Informational).await;
        assert!(
            text.starts_with("HTTP/1.1 103 Early Hints\r\nlink: ")
                && text.contains("\r\n\r\nHTTP/1.1 200 OK\r\n")
        );
        let (text, _) = get(Fault::DuplicateField).await;
        assert!(text.contains("x-duplicate: 1\r\nx-duplicate: 2\r\n"), "{text}");
        let (text, end) = sent(Fault::SlowHead, 0, Method::HEAD).await;
        assert!(text.ends_with("\r\n\r\n") && end == End::Keep, "{text}");
    }
}
