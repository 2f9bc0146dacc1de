//! Connection faults: failures of providers, and of the proxies in front of them.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use egret_lab_http2::{Cut, StreamReply};
use futures_util::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;

use crate::call::ProviderCall;
use crate::clock;
use crate::echo;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::fault_kind::Fault;
use crate::head::head;
use crate::parameters::Parameters;
use crate::respond::field_value;
use crate::takeover::{Script, ScriptEnd, ScriptStep, complete_response};

/// Maximum number of content bytes collected before a fault is applied.
const CONTENT_MAX: usize = 64 << 20;

/// Default duration of a slow head, and of the pause in a stalled response.
const DURATION: Duration = Duration::from_secs(2);

/// Maximum number of informational responses before the final one.
const INFORMATIONAL_MAX: usize = 100;

/// The field of informational responses.
const LINK: HeaderValue = HeaderValue::from_static("</style.css>; rel=preload; as=style");

/// Code of an internal error in `RST_STREAM` (RFC 9113 §7).
const INTERNAL_ERROR: u32 = 2;

/// A fault with its parameters, which an endpoint attaches to its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InjectedFault {
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
    /// Error code of a reset over HTTP/2.
    code: u32,
}

impl InjectedFault {
    /// Creates a fault with default parameters.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            after: 0,
            duration: DURATION,
            count: 1,
            status: StatusCode::EARLY_HINTS,
            field: HeaderName::from_static("x-duplicate"),
            value: HeaderValue::from_static("2"),
            code: INTERNAL_ERROR,
        }
    }

    /// Creates a reset of a stream of HTTP/2 with this error code.
    pub fn reset(code: u32) -> Self {
        Self { code, ..Self::new(Fault::Reset) }
    }

    /// Creates a fault with the parameters in the query.
    fn from_query(fault: Fault, call: &ProviderCall) -> Result<Self, ProviderError> {
        let usual = Self::new(fault);
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
            after: parameters.count("after", 0, 0..=call.state.options().body_bytes_max)?,
            duration: parameters.duration("duration", usual.duration)?,
            count: parameters.count("count", usual.count, 1..=INFORMATIONAL_MAX)?,
            status,
            field,
            value: call.query.get("value").map_or(usual.value, field_value),
            code: parameters.parsed("error_code")?.unwrap_or(usual.code),
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
        let content = content_of(body, method).await;
        let half = content.slice(..content.len() / 2);
        let sized = |fields: &HeaderMap, length: usize| {
            let mut fields = fields.clone();
            fields.insert(header::CONTENT_LENGTH, length.into());
            Bytes::from(head(status, &fields))
        };
        let complete = [ScriptStep::Send(sized(&fields, content.len())), ScriptStep::Send(content.clone())];
        match self.fault {
            Fault::Reset => Script { steps: self.first_bytes(complete), end: ScriptEnd::Reset },
            Fault::Close => Script { steps: self.first_bytes(complete), end: ScriptEnd::Close },
            Fault::HalfClose => Script { steps: complete.into(), end: ScriptEnd::HalfClose(self.duration) },
            Fault::Truncate => {
                let steps = vec![ScriptStep::Send(sized(&fields, content.len())), ScriptStep::Send(half)];
                Script { steps, end: ScriptEnd::Close }
            }
            Fault::Stall => {
                let rest = ScriptStep::Pause(self.duration);
                let steps =
                    vec![ScriptStep::Send(sized(&fields, content.len())), ScriptStep::Send(half), rest];
                Script { steps, end: ScriptEnd::Close }
            }
            Fault::WrongLength => {
                let steps = vec![ScriptStep::Send(sized(&fields, half.len())), ScriptStep::Send(content)];
                Script { steps, end: ScriptEnd::Keep }
            }
            Fault::BadChunk => {
                fields.remove(header::CONTENT_LENGTH);
                fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                let mut bytes = head(status, &fields);
                bytes.extend_from_slice(format!("{:x}\r\n", half.len()).as_bytes());
                bytes.extend_from_slice(&half);
                bytes.extend_from_slice(b"\r\nsize\r\n");
                bytes.extend_from_slice(&content[half.len()..]);
                Script { steps: vec![ScriptStep::Send(bytes.into())], end: ScriptEnd::Close }
            }
            Fault::Informational => {
                let informational = Bytes::from(head(self.status, &hints()).repeat(self.count));
                let mut steps = vec![ScriptStep::Send(informational)];
                steps.extend(complete);
                Script { steps, end: ScriptEnd::Keep }
            }
            Fault::DuplicateField => {
                fields.insert(header::CONTENT_LENGTH, content.len().into());
                self.duplicate_field(&mut fields);
                let steps = vec![ScriptStep::Send(head(status, &fields).into()), ScriptStep::Send(content)];
                Script { steps, end: ScriptEnd::Keep }
            }
            Fault::SlowHead => {
                let slow = ScriptStep::Slowly(sized(&fields, content.len()), self.duration);
                Script { steps: vec![slow, ScriptStep::Send(content)], end: ScriptEnd::Keep }
            }
            Fault::Garbage => {
                let garbage = Bytes::from_static(b"\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n");
                Script { steps: vec![ScriptStep::Send(garbage)], end: ScriptEnd::Close }
            }
        }
    }

    /// The reply on a stream of HTTP/2: where HTTP/1.1 would close the connection, the stream is reset.
    pub async fn reply(self, response: Response, method: &Method) -> Result<StreamReply<Body>, Cut> {
        let (parts, body) = response.into_parts();
        let content = content_of(body, method).await;
        let half = content.slice(..content.len() / 2);
        let mut fields = parts.headers;
        fields.insert(header::CONTENT_LENGTH, content.len().into());
        let (mut body, mut informational, mut drains) = (Body::from(content.clone()), Vec::new(), false);
        match self.fault {
            Fault::Reset | Fault::Close => {
                let cut = if self.fault == Fault::Close { Cut::Connection } else { Cut::Stream(self.code) };
                if self.after == 0 {
                    return Err(cut);
                }
                let sent = content.slice(..content.len().min(self.after));
                body = cut_off(sent, Duration::ZERO, cut);
            }
            Fault::HalfClose => drains = true,
            Fault::Truncate => body = cut_off(half, Duration::ZERO, Cut::INTERNAL),
            Fault::Stall => body = cut_off(half, self.duration, Cut::INTERNAL),
            Fault::BadChunk => body = cut_off(half, Duration::ZERO, Cut::PROTOCOL),
            Fault::WrongLength => drop(fields.insert(header::CONTENT_LENGTH, half.len().into())),
            Fault::Informational => {
                let mut early = Response::new(());
                *early.status_mut() = self.status;
                *early.headers_mut() = hints();
                informational = vec![early; self.count];
            }
            Fault::DuplicateField => self.duplicate_field(&mut fields),
            Fault::SlowHead => clock::sleep(self.duration).await,
            Fault::Garbage => return Err(Cut::PROTOCOL),
        }
        let mut response = Response::new(body);
        *response.status_mut() = parts.status;
        *response.headers_mut() = fields;
        Ok(StreamReply { informational, response, drains })
    }

    /// Adds a second line to the field, and a first one if there is none.
    fn duplicate_field(self, fields: &mut HeaderMap) {
        if !fields.contains_key(&self.field) {
            fields.insert(self.field.clone(), HeaderValue::from_static("1"));
        }
        fields.append(self.field, self.value);
    }

    /// The steps for the first bytes of the response.
    fn first_bytes(&self, complete: [ScriptStep; 2]) -> Vec<ScriptStep> {
        let mut left = self.after;
        let steps = complete.into_iter().map(|step| match step {
            ScriptStep::Send(bytes) => {
                let bytes = bytes.slice(..bytes.len().min(left));
                left -= bytes.len();
                ScriptStep::Send(bytes)
            }
            other => other,
        });
        steps.collect()
    }
}

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/fault/{kind}", || any(endpoint))
        .about("The response of `/anything` with this fault.")
        .parameters(
            "`kind` one of `reset`, `close`, `half-close`, `truncate`, `stall`, `wrong-length`, `bad-chunk`, `informational`, `duplicate-field`, `slow-head`, `garbage`; \
             `after`, number of bytes sent before `reset` and `close` (0); `duration` of `slow-head`, `stall`, and of waiting after `half-close` (2s); \
             `error_code` of `reset` over HTTP/2 (2); \
             `count` (1) and `status` (103) of `informational`; `field` (`x-duplicate`) and its second `value` (2) of `duplicate-field`",
        )
        .example("/fault/informational?count=2"),
];

async fn endpoint(Path(kind): Path<String>, call: ProviderCall) -> EndpointResult {
    let fault: Fault = kind.parse().map_err(|error| ProviderError::parameter("fault", error))?;
    let injected = InjectedFault::from_query(fault, &call)?;
    let mut response = echo::anything(call).await?;
    response.extensions_mut().insert(injected);
    Ok(response)
}

/// The content of a response to a request with this method.
async fn content_of(body: Body, method: &Method) -> Bytes {
    if *method == Method::HEAD {
        return Bytes::new();
    }
    // A body that breaks off by itself is already faulty; what it has is not used.
    axum::body::to_bytes(body, CONTENT_MAX).await.unwrap_or_default()
}

/// The fields of an informational response.
fn hints() -> HeaderMap {
    HeaderMap::from_iter([(header::LINK, LINK)])
}

/// A body that ends with a cut, after a pause.
fn cut_off(content: Bytes, pause: Duration, cut: Cut) -> Body {
    let first = stream::iter((!content.is_empty()).then(|| Ok(Frame::data(content))));
    let last = stream::once(async move {
        clock::sleep(pause).await;
        Err(cut)
    });
    Body::new(StreamBody::new(first.chain(last)))
}

/// The script of a response that hyper would not send as it is: with an informational status code, or with
/// trailers that the client did not ask for.
pub(crate) fn script_of(response: Response, method: &Method) -> Script {
    let (parts, body) = response.into_parts();
    let (status, mut fields) = (parts.status, parts.headers);
    // The framing is decided again here, because axum assumes valid HTTP.
    fields.remove(header::CONTENT_LENGTH);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Script { steps: vec![ScriptStep::Send(head(status, &fields).into())], end: ScriptEnd::Close };
    }
    let mut steps = Vec::new();
    let mut final_status = status;
    if status.is_informational() {
        steps.push(ScriptStep::Send(head(status, &fields).into()));
        final_status = StatusCode::OK;
    }
    let body = if status.is_informational() { Body::empty() } else { body };
    steps.extend(complete_response(final_status, fields, body, *method != Method::HEAD));
    Script { steps, end: ScriptEnd::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::request;
    use crate::respond;

    #[test]
    fn the_handbook_names_every_fault() {
        for fault in Fault::ALL {
            assert!(ENDPOINTS[0].parameters.contains(&format!("`{}`", fault.name())), "{}", fault.name());
        }
    }

    #[tokio::test]
    async fn each_fault_of_a_stream_spares_its_connection_except_for_close() {
        let reply = |fault: InjectedFault| async move {
            let response = respond::text(StatusCode::OK, "0123456789");
            fault.reply(response, &Method::GET).await
        };
        for (fault, cut) in
            [(Fault::Reset, Cut::INTERNAL), (Fault::Close, Cut::Connection), (Fault::Garbage, Cut::PROTOCOL)]
        {
            assert_eq!(reply(InjectedFault::new(fault)).await.err(), Some(cut));
        }
        for fault in [Fault::Truncate, Fault::BadChunk] {
            let (parts, body) = reply(InjectedFault::new(fault)).await.unwrap().response.into_parts();
            assert_eq!(parts.headers[header::CONTENT_LENGTH], "10");
            assert!(axum::body::to_bytes(body, CONTENT_MAX).await.is_err(), "{fault:?}");
        }
        let hints = InjectedFault { count: 2, ..InjectedFault::new(Fault::Informational) };
        let reply = reply(hints).await.unwrap();
        assert_eq!(
            (reply.informational.len(), reply.informational[1].status()),
            (2, StatusCode::EARLY_HINTS)
        );
    }

    /// The bytes that a script sends, and its end.
    async fn sent(fault: Fault, after: usize, method: Method) -> (String, ScriptEnd) {
        let response = respond::text(StatusCode::OK, "0123456789");
        let script = InjectedFault { after, ..InjectedFault::new(fault) }.script(response, &method).await;
        let mut text = String::new();
        for step in script.steps {
            match step {
                ScriptStep::Send(bytes) | ScriptStep::Slowly(bytes, _) => {
                    text.push_str(std::str::from_utf8(&bytes).unwrap_or("?"));
                }
                ScriptStep::Pause(_) => text.push_str("[pause]"),
                other => panic!("{other:?}"),
            }
        }
        (text, script.end)
    }

    #[tokio::test]
    async fn each_fault_spoils_in_its_own_way() {
        let get = |fault| sent(fault, 0, Method::GET);
        assert_eq!(get(Fault::Reset).await, (String::new(), ScriptEnd::Reset));
        assert_eq!(get(Fault::Close).await, (String::new(), ScriptEnd::Close));
        assert_eq!(sent(Fault::Reset, 8, Method::GET).await, ("HTTP/1.1".to_owned(), ScriptEnd::Reset));
        let (text, end) = get(Fault::Truncate).await;
        assert!(text.contains("content-length: 10\r\n") && text.ends_with("\r\n\r\n01234"), "{text}");
        assert_eq!(end, ScriptEnd::Close);
        let (text, _) = get(Fault::Stall).await;
        assert!(text.ends_with("\r\n\r\n01234[pause]"), "{text}");
        let (text, end) = get(Fault::WrongLength).await;
        assert!(text.contains("content-length: 5\r\n") && text.ends_with("\r\n\r\n0123456789"), "{text}");
        assert_eq!(end, ScriptEnd::Keep);
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
        assert!(text.ends_with("\r\n\r\n") && end == ScriptEnd::Keep, "{text}");
    }

    #[tokio::test]
    async fn parameters_of_a_fault_are_read_within_their_limits() {
        let read = |query: &str| {
            let target = format!("/fault/x?{query}");
            let call = ProviderCall::new(request("GET", &target, &[], ""), std::sync::Arc::default());
            InjectedFault::from_query(Fault::Informational, &call).ok()
        };
        assert_eq!(read(""), Some(InjectedFault::new(Fault::Informational)));
        let set = read("after=5&duration=1s&count=3&status=102&field=X-A&value=v").unwrap();
        assert_eq!((set.after, set.duration, set.count), (5, Duration::from_secs(1), 3));
        assert_eq!((set.status.as_u16(), set.field.as_str(), set.value.to_str().unwrap()), (102, "x-a", "v"));
        for query in
            ["after=-1", "duration=11s", "count=0", "count=101", "status=101", "status=200", "field=a%20b"]
        {
            assert_eq!(read(query), None, "{query}");
        }
    }

    #[tokio::test]
    async fn a_response_to_head_has_no_content_whatever_the_fault() {
        for fault in [Fault::Truncate, Fault::WrongLength, Fault::HalfClose, Fault::DuplicateField] {
            let (text, _) = sent(fault, 0, Method::HEAD).await;
            assert!(text.ends_with("\r\n\r\n"), "{fault:?}: {text}");
        }
    }

    #[test]
    fn a_response_that_hyper_would_change_is_scripted() {
        let steps = |status: StatusCode| {
            let script = script_of(respond::text(status, "ab"), &Method::GET);
            let first = match &script.steps[0] {
                ScriptStep::Send(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                other => panic!("{other:?}"),
            };
            (first.lines().next().unwrap_or_default().to_owned(), script.steps.len(), script.end)
        };
        let early = "HTTP/1.1 103 Early Hints".to_owned();
        assert_eq!(steps(StatusCode::EARLY_HINTS), (early, 3, ScriptEnd::Keep), "then the final response");
        let switching = "HTTP/1.1 101 Switching Protocols".to_owned();
        assert_eq!(steps(StatusCode::SWITCHING_PROTOCOLS), (switching, 1, ScriptEnd::Close));
        assert_eq!(steps(StatusCode::OK), ("HTTP/1.1 200 OK".into(), 2, ScriptEnd::Keep));
    }
}
