//! The request of a recorded exchange, to be sent again through the gateway.
//!
//! It is put together from the recording, secrets included, and never leaves the process on another way than
//! the first request did: to a listener of the gateway. A reader of the list does not get to see it.

use std::fmt;
use std::net::SocketAddr;

use egret_http1::{Method, RequestFraming};

use crate::finished::Parsed;

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
    pub listener: Option<SocketAddr>,
    /// `true` if the first request came out of an intercepted tunnel.
    pub is_intercepted: bool,
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
    Https,
}

/// The effect that a request may have when it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendRisk {
    /// Nothing: the method is safe (RFC 9110 §9.2.1).
    None,
    /// The provider may act a second time.
    ActsAgain,
}

/// The reason why a request cannot be sent again. Its `Display` is a clause for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotResendable {
    /// It opened a tunnel, or asked for another protocol.
    Tunnel,
    /// Its body is not kept, as `control.traffic.bodies` and the media type decide.
    BodyNotKept,
    /// Its body is longer than `control.traffic.bodies`.
    BodyTooLong,
    /// The gateway responded before it had all of the body, or the client left.
    BodyNotReceived,
    /// Its body came in chunks, so the recording does not tell whether it is whole.
    Chunked,
}

impl fmt::Display for NotResendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tunnel => "it opened a tunnel, and what passed through was not recorded",
            Self::BodyNotKept => {
                "its body was not kept: bodies of this media type are not, or `control.traffic.bodies` is 0"
            }
            Self::BodyTooLong => {
                "its body is longer than `control.traffic.bodies`, so only the beginning was kept"
            }
            Self::BodyNotReceived => "Egret did not receive the whole body",
            Self::Chunked => "its body came in chunks, so the recording does not tell whether it is whole",
        })
    }
}

impl fmt::Debug for Resend {
    /// Shows nothing of the request, which may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resend").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Resend {
    /// Puts the request of a recorded exchange together.
    pub(crate) fn of(parsed: Parsed<'_>) -> Result<Self, NotResendable> {
        let record = parsed.record();
        let (head, bytes) = (parsed.request_parsed(), record.request_head());
        if head.method == Method::Connect || head.upgrade {
            return Err(NotResendable::Tunnel);
        }
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
            method: parsed.method_text().to_vec(),
            target: head.target.of(bytes).to_vec(),
            fields,
            host,
            body,
        })
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
        if target == ResendTarget::Https && self.target.starts_with(b"/") {
            message.extend_from_slice(b"https://");
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

/// The requests that were sent again and have not been recorded yet, by the address that they come from.
#[derive(Debug, Default)]
pub(crate) struct Expected(Vec<ExpectedResend>);

#[derive(Debug)]
struct ExpectedResend {
    client: SocketAddr,
    /// Number of the exchange whose request it is.
    of: u64,
    /// Its own number, once it is recorded.
    id: Option<u64>,
}

impl Expected {
    /// Adds a request. Returns `false` if there are too many.
    pub(crate) fn add(&mut self, client: SocketAddr, of: u64) -> bool {
        let has_room = self.0.len() < EXPECTED_MAX;
        if has_room {
            self.0.push(ExpectedResend { client: canonical(client), of, id: None });
        }
        has_room
    }

    /// Notes that the exchange of this client is recorded with this number. Returns the number of the
    /// exchange that it repeats. Further exchanges of the same client are others.
    pub(crate) fn note(&mut self, client: Option<SocketAddr>, id: u64) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        let client = canonical(client?);
        let expected = self.0.iter_mut().find(|each| each.client == client && each.id.is_none())?;
        expected.id = Some(id);
        Some(expected.of)
    }

    /// The number of the exchange of this client, once it is recorded.
    pub(crate) fn id(&self, client: SocketAddr) -> Option<u64> {
        let client = canonical(client);
        self.0.iter().rfind(|each| each.client == client).and_then(|each| each.id)
    }

    pub(crate) fn remove(&mut self, client: SocketAddr) {
        let client = canonical(client);
        self.0.retain(|each| each.client != client);
    }
}

/// A listener for both families sees IPv4 clients by mapped addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
