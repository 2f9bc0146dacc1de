//! The request of a recorded exchange, to be sent again through the gateway.
//!
//! It is put together from the recording, secrets included, and goes to the gateway in the same process,
//! which lets it go nowhere but to the provider of the first one. A reader of the list does not see it.

use egret_http1::{Method, RequestFraming};
use egret_items::{opaque, words};
use egret_message::ListenAddress;

use crate::finished::Parsed;
use crate::record::Routed;

/// Maximum number of requests sent again that have not been recorded yet.
const EXPECTED_MAX: usize = 32;

/// Fields that describe the first connection or the framing on it (RFC 9110 §7.6.1), in lower case.
const LEFT_OUT: [&[u8]; 8] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"content-length",
    b"expect",
];

/// A request to send again.
pub struct Resend {
    /// Address of the listener that accepted the first request.
    pub listener: Option<ListenAddress>,
    /// `true` if the first request came out of an intercepted tunnel.
    pub is_intercepted: bool,
    routed: Routed,
    is_tls: bool,
    method: Vec<u8>,
    target: Vec<u8>,
    fields: Vec<u8>,
    host: Vec<u8>,
    body: Option<Vec<u8>>,
}

/// The form of the target of a request sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendTarget {
    /// As the client sent it.
    Received,
    /// With scheme and host, as a forward proxy receives it.
    Absolute,
}

/// The bounds of a request that is sent again: it ends with an error where it would go elsewhere than the
/// recorded one, whatever the flows and the rest of the config say by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The only provider that it may go to, and the only generation of the config.
    pub routed: Routed,
    /// Its number among the requests that were sent again.
    pub number: u64,
}

/// The effect that a request may have when it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendRisk {
    /// Nothing: the method is safe (RFC 9110 §9.2.1).
    None,
    /// The provider may act a second time.
    ActsAgain,
}

words! {
    /// The reason why a request cannot be sent again. Its `Display` is a clause for people.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NotResendable: Display {
        /// It opened a tunnel, or asked for another protocol.
        Tunnel => "it opened a tunnel, and what passed through was not recorded",
        /// It named no provider that the gateway could call.
        Unrouted => "it reached no provider",
        /// Its body is not kept, as `control.traffic.bodies` and the media type decide.
        BodyNotKept =>
            "its body was not kept: bodies of this media type are not, or `control.traffic.bodies` is 0",
        /// Its body is longer than `control.traffic.bodies`.
        BodyTooLong => "its body is longer than `control.traffic.bodies`, so only the beginning was kept",
        /// The gateway responded before it had all of the body, or the client left.
        BodyNotReceived => "Egret did not receive the whole body",
        /// Its body came in chunks, so the recording does not tell whether it is whole.
        Chunked => "its body came in chunks, so the recording does not tell whether it is whole",
    }
}

// The rest of the request may have secrets.
opaque!(Resend { listener });

impl Resend {
    /// Puts the request of a recorded exchange together.
    pub(crate) fn of(parsed: Parsed<'_>) -> Result<Self, NotResendable> {
        let record = parsed.record();
        let (head, bytes) = (parsed.request_parsed(), record.request_head());
        if head.method == Method::Connect || head.upgrade {
            return Err(NotResendable::Tunnel);
        }
        let routed = record.routed.clone().ok_or(NotResendable::Unrouted)?;
        let captured = &record.request_body;
        let body = match head.framing {
            RequestFraming::None => None,
            RequestFraming::Length(0) => Some(Vec::new()),
            RequestFraming::Chunked => return Err(NotResendable::Chunked),
            RequestFraming::Length(length) if length != captured.body_bytes => {
                return Err(NotResendable::BodyNotReceived);
            }
            RequestFraming::Length(_) if captured.bytes.is_empty() => return Err(NotResendable::BodyNotKept),
            RequestFraming::Length(length) if length != captured.bytes.len() as u64 => {
                return Err(NotResendable::BodyTooLong);
            }
            RequestFraming::Length(_) => Some(captured.bytes.clone()),
        };
        let named: Vec<&[u8]> = parsed
            .request_fields()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
            .flat_map(|(_, value)| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .collect();
        let (mut fields, mut host) = (Vec::new(), Vec::new());
        for (name, value) in parsed.request_fields() {
            let is = |other: &&[u8]| name.eq_ignore_ascii_case(other);
            if name.eq_ignore_ascii_case(b"host") {
                host = value.to_vec();
            }
            if !LEFT_OUT.iter().any(is) && !named.iter().any(is) {
                for part in [name, b": ", value, b"\r\n"] {
                    fields.extend_from_slice(part);
                }
            }
        }
        Ok(Self {
            listener: record.facts.listener,
            is_intercepted: record.facts.is_intercepted,
            routed,
            is_tls: record.facts.tls,
            method: parsed.method_text().to_vec(),
            target: head.target.of(bytes).to_vec(),
            fields,
            host,
            body,
        })
    }

    /// The bounds of the request when it is sent again under this number.
    pub fn pin(&self, number: u64) -> Pin {
        Pin { routed: self.routed.clone(), number }
    }

    /// The risk of sending it again.
    pub fn risk(&self) -> ResendRisk {
        match &self.method[..] {
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" => ResendRisk::None,
            _ => ResendRisk::ActsAgain,
        }
    }

    /// Returns the message to send, on a connection for it alone.
    pub fn message(&self, target: ResendTarget) -> Vec<u8> {
        let mut message = self.method.clone();
        message.push(b' ');
        if target == ResendTarget::Absolute && self.target.starts_with(b"/") {
            message.extend_from_slice(if self.is_tls { b"https://" } else { b"http://" });
            message.extend_from_slice(&self.host);
        }
        message.extend_from_slice(&self.target);
        message.extend_from_slice(b" HTTP/1.1\r\n");
        message.extend_from_slice(&self.fields);
        if let Some(body) = &self.body {
            message.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        message.extend_from_slice(b"connection: close\r\n\r\n");
        message.extend_from_slice(self.body.as_deref().unwrap_or_default());
        message
    }
}

/// The requests that were sent again and have not been recorded yet, by number.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    last: u64,
    resends: Vec<ExpectedResend>,
}

#[derive(Debug)]
struct ExpectedResend {
    number: u64,
    /// Number of the exchange whose request it is.
    of: u64,
    /// Its own number on the list, once it is recorded.
    id: Option<u64>,
}

impl Expected {
    /// Adds a request. Returns its number; `None` if there are too many.
    pub(crate) fn add(&mut self, of: u64) -> Option<u64> {
        if self.resends.len() >= EXPECTED_MAX {
            return None;
        }
        self.last += 1;
        self.resends.push(ExpectedResend { number: self.last, of, id: None });
        Some(self.last)
    }

    /// The number of the exchange that the request with this number repeats, until it is recorded.
    pub(crate) fn of(&self, number: u64) -> Option<u64> {
        self.resends.iter().find(|each| each.number == number && each.id.is_none()).map(|each| each.of)
    }

    /// Notes that the request with this number is on the list as the exchange `id`.
    pub(crate) fn note(&mut self, number: u64, id: u64) {
        if let Some(expected) = self.resends.iter_mut().find(|each| each.number == number) {
            expected.id = Some(id);
        }
    }

    /// The number on the list of the exchange of this request, once it is recorded.
    pub(crate) fn id(&self, number: u64) -> Option<u64> {
        self.resends.iter().find(|each| each.number == number).and_then(|each| each.id)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.resends.retain(|each| each.number != number);
    }
}
