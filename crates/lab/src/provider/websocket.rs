//! A WebSocket echo (RFC 6455). It receives frames, returns messages, and limits the size of both.

use std::io;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::{self, Answer, field_value};
use super::call::Call;
use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::parameters::Parameters;
use super::stream::Stream;
use super::takeover::head;
use crate::base64;

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint {
    methods: "GET",
    path: "/websocket/echo",
    parameters: "`max_fragment_size` (524288) and `max_message_size` (1048576), 1 to 1048576",
    about: "A WebSocket that echoes messages, for at most the maximum duration.",
    example: "/websocket/echo",
    route: || get(echo),
}];

/// The GUID that RFC 6455 §1.3 appends to the client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Maximum payload size of a control frame (§5.5).
const CONTROL_BYTES_MAX: usize = 125;

/// An accepted WebSocket, which the endpoint attaches to its response.
#[derive(Debug, Clone)]
pub(super) struct WebSocket {
    accept: String,
    fragment_bytes_max: usize,
    message_bytes_max: usize,
    duration_max: Duration,
}

async fn echo(call: Call) -> Answer {
    let max = call.lab.options().body_bytes_max;
    let parameters = Parameters::of(&call);
    let fragment_bytes_max = parameters.count("max_fragment_size", max / 2, 1..=max)?;
    let message_bytes_max = parameters.count("max_message_size", max, 1..=max)?;
    if fragment_bytes_max > message_bytes_max {
        return Err(ProviderError::bad_request(format!(
            "max_fragment_size {fragment_bytes_max} must be less than or equal to max_message_size {message_bytes_max}"
        )));
    }
    if !call.field(&header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err(ProviderError::bad_request("missing required `Upgrade: websocket` header"));
    }
    if call.field(&header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err(ProviderError::bad_request("only websocket version \"13\" is supported"));
    }
    let key = call.field(&header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(ProviderError::bad_request("missing required `Sec-Websocket-Key` header"));
    }
    let accept = accept(key);
    let duration_max = call.lab.options().duration_max;
    let mut response = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    response.extensions_mut().insert(WebSocket {
        accept,
        fragment_bytes_max,
        message_bytes_max,
        duration_max,
    });
    Ok(response)
}

fn accept(key: &str) -> String {
    base64::encode_standard(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes()).as_ref())
}

/// The reason for closing a WebSocket, with its status code (§7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    Normal,
    Protocol(&'static str),
    NotText,
    TooLarge,
}

impl Closing {
    fn payload(self) -> Vec<u8> {
        let (status, reason): (u16, _) = match self {
            Self::Normal => (1000, ""),
            Self::Protocol(reason) => (1002, reason),
            Self::NotText => (1007, "invalid UTF-8"),
            Self::TooLarge => (1009, "message too large"),
        };
        [&status.to_be_bytes(), reason.as_bytes()].concat()
    }
}

/// An error of the connection, or of the data received on it.
enum Failure {
    Broken(io::Error),
    Refused(Closing),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// An unmasked frame.
struct Frame {
    is_final: bool,
    opcode: u8,
    payload: Vec<u8>,
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A message being assembled.
struct Message {
    opcode: u8,
    payload: Vec<u8>,
}

impl WebSocket {
    /// Accepts the WebSocket, then echoes messages until the client closes or the time is over.
    pub async fn serve(self, stream: &mut Stream, fields: &HeaderMap) -> io::Result<()> {
        let mut fields = fields.clone();
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        fields.insert(HeaderName::from_static("sec-websocket-accept"), field_value(&self.accept));
        stream.write_all(&head(StatusCode::SWITCHING_PROTOCOLS, &fields)).await?;
        stream.flush().await?;
        let closing = match tokio::time::timeout(self.duration_max, self.echo(stream)).await {
            Ok(Ok(closing) | Err(Failure::Refused(closing))) => closing,
            Ok(Err(Failure::Broken(error))) => return Err(error),
            Err(_) => Closing::Normal,
        };
        send(stream, true, CLOSE, &closing.payload()).await?;
        stream.shutdown().await
    }

    async fn echo(&self, stream: &mut Stream) -> Result<Closing, Failure> {
        let mut message: Option<Message> = None;
        loop {
            let frame = self.receive(stream).await?;
            match frame.opcode {
                CLOSE => return check_close(&frame.payload),
                PING => send(stream, true, PONG, &frame.payload).await?,
                PONG => {}
                _ => {
                    let is_final = frame.is_final;
                    message = Some(self.joined(message.take(), frame)?);
                    if is_final && let Some(whole) = message.take() {
                        self.answer(stream, whole).await?;
                    }
                }
            }
        }
    }

    fn joined(&self, message: Option<Message>, frame: Frame) -> Result<Message, Failure> {
        let message = match (message, frame.opcode) {
            (None, TEXT | BINARY) => Message { opcode: frame.opcode, payload: frame.payload },
            (Some(mut message), CONTINUATION) => {
                message.payload.extend_from_slice(&frame.payload);
                message
            }
            (None, _) => return Err(Failure::Refused(Closing::Protocol("unexpected continuation frame"))),
            (Some(_), _) => return Err(Failure::Refused(Closing::Protocol("expected continuation frame"))),
        };
        if message.payload.len() > self.message_bytes_max {
            return Err(Failure::Refused(Closing::TooLarge));
        }
        Ok(message)
    }

    async fn answer(&self, stream: &mut Stream, message: Message) -> Result<(), Failure> {
        if message.opcode == TEXT && std::str::from_utf8(&message.payload).is_err() {
            return Err(Failure::Refused(Closing::NotText));
        }
        let fragments = message.payload.len().div_ceil(self.fragment_bytes_max).max(1);
        for index in 0..fragments {
            let opcode = if index == 0 { message.opcode } else { CONTINUATION };
            let from = index * self.fragment_bytes_max;
            let to = message.payload.len().min(from + self.fragment_bytes_max);
            send(stream, index + 1 == fragments, opcode, &message.payload[from..to]).await?;
        }
        Ok(())
    }

    async fn receive(&self, stream: &mut Stream) -> Result<Frame, Failure> {
        let refused = |reason| Failure::Refused(Closing::Protocol(reason));
        let [first, second] = read(stream).await?;
        let (is_final, opcode, is_control) = (first & 0x80 != 0, first & 0x0f, first & 0x08 != 0);
        if first & 0x70 != 0 {
            return Err(refused("frame has unsupported RSV bits set"));
        }
        if second & 0x80 == 0 {
            return Err(refused("received unmasked client frame"));
        }
        if !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
            return Err(refused("unsupported opcode"));
        }
        let length = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes(read(stream).await?)),
            127 => u64::from_be_bytes(read(stream).await?),
            length => u64::from(length),
        };
        let max = if is_control { CONTROL_BYTES_MAX } else { self.fragment_bytes_max };
        let length = usize::try_from(length).ok().filter(|length| *length <= max);
        let length = length.ok_or(refused("frame payload too large"))?;
        if is_control && !is_final {
            return Err(refused("a control frame must not be fragmented"));
        }
        let mask: [u8; 4] = read(stream).await?;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok(Frame { is_final, opcode, payload })
    }
}

async fn read<const N: usize>(stream: &mut Stream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Validates a close frame: empty, or a status code that may be sent and a reason in UTF-8 (§7.4).
fn check_close(payload: &[u8]) -> Result<Closing, Failure> {
    let refused = |reason| Err(Failure::Refused(Closing::Protocol(reason)));
    match payload {
        [] => Ok(Closing::Normal),
        [_] => refused("close frame payload must be at least 2 bytes"),
        [high, low, reason @ ..] => match u16::from_be_bytes([*high, *low]) {
            1000..=1003 | 1007..=1014 | 3000..=4999 if std::str::from_utf8(reason).is_ok() => {
                Ok(Closing::Normal)
            }
            _ => refused("close frame status or reason is invalid"),
        },
    }
}

/// Sends a frame, unmasked as required of a server.
async fn send(stream: &mut Stream, is_final: bool, opcode: u8, payload: &[u8]) -> io::Result<()> {
    let mut frame = vec![if is_final { 0x80 | opcode } else { opcode }];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Takes the WebSocket out of the extensions of the response that accepts it.
pub(super) fn agreed(response: &mut Response) -> Option<WebSocket> {
    response.extensions_mut().remove()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_is_answered_as_it_says() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_close_frame_is_judged() {
        let closes = |payload: &[u8]| check_close(payload).is_ok();
        assert!(closes(b"") && closes(&1000_u16.to_be_bytes()) && closes(b"\x0b\xb8bye"));
        assert!(!closes(b"\x03") && !closes(&1005_u16.to_be_bytes()) && !closes(b"\x03\xe8\xff"));
    }
}
