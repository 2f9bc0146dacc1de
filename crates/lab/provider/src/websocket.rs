//! A WebSocket echo (RFC 6455), with limits on the size of frames and messages. The `tungstenite` library
//! speaks the protocol: a test peer of Egret must not share Egret's reading of an RFC.

use std::io;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use data_encoding::BASE64;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::head::head;
use crate::parameters::Parameters;
use crate::respond::{self, field_value};

pub(crate) const ENDPOINTS: &[Endpoint] = &[Endpoint::new("GET", "/websocket/echo", || get(echo))
    .about("A WebSocket that echoes messages, for at most the maximum duration.")
    .parameters("`max_fragment_size` (524288) and `max_message_size` (1048576), 1 to 1048576")];

/// The GUID that RFC 6455 §1.3 appends to the client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An accepted WebSocket, which the endpoint attaches to its response.
#[derive(Debug, Clone)]
pub(crate) struct WebSocket {
    accept: String,
    fragment_bytes_max: usize,
    message_bytes_max: usize,
    duration_max: Duration,
}

async fn echo(call: ProviderCall) -> EndpointResult {
    let max = call.state.options().body_bytes_max;
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
    let duration_max = call.state.options().duration_max;
    let mut response = respond::empty(StatusCode::SWITCHING_PROTOCOLS);
    response.extensions_mut().insert(WebSocket {
        accept,
        fragment_bytes_max,
        message_bytes_max,
        duration_max,
    });
    Ok(response)
}

fn accept(key: &str) -> String {
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes()).as_ref())
}

impl WebSocket {
    /// Accepts the WebSocket, then echoes messages until the client closes or the time is over.
    pub async fn serve<S>(self, stream: &mut S, fields: &HeaderMap) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut fields = fields.clone();
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        fields.insert(HeaderName::from_static("sec-websocket-accept"), field_value(&self.accept));
        stream.write_all(&head(StatusCode::SWITCHING_PROTOCOLS, &fields)).await?;
        stream.flush().await?;
        let config = WebSocketConfig::default()
            .max_frame_size(Some(self.fragment_bytes_max))
            .max_message_size(Some(self.message_bytes_max));
        let mut socket = WebSocketStream::from_raw_socket(&mut *stream, Role::Server, Some(config)).await;
        let closing = match tokio::time::timeout(self.duration_max, self.echo_all(&mut socket)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(self.close_frame(error)?),
            Err(_) => Some(closing(CloseCode::Normal, "")),
        };
        if let Some(frame) = closing {
            socket.close(Some(frame)).await.map_err(io::Error::other)?;
        }
        stream.shutdown().await
    }

    /// Echoes messages until the client closes and its close frame is answered. The library answers pings.
    async fn echo_all<S>(&self, socket: &mut WebSocketStream<S>) -> Result<(), Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(message) = socket.next().await {
            let (kind, payload) = match message? {
                Message::Text(text) => (Data::Text, Bytes::from(text)),
                Message::Binary(bytes) => (Data::Binary, bytes),
                Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => continue,
            };
            for frame in fragments(kind, payload, self.fragment_bytes_max) {
                socket.feed(Message::Frame(frame)).await?;
            }
            socket.flush().await?;
        }
        Ok(())
    }

    /// Returns the frame that ends a WebSocket after a violation of the protocol (§7.4.1), or the error of a
    /// broken connection.
    fn close_frame(&self, error: Error) -> io::Result<CloseFrame> {
        match error {
            Error::Io(error) => Err(error),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Error::Protocol(error) => Ok(closing(CloseCode::Protocol, &error.to_string())),
            Error::Utf8(_) => Ok(closing(CloseCode::Invalid, "invalid UTF-8")),
            // httpbin for Go treats a large fragment as a violation of the protocol.
            Error::Capacity(CapacityError::MessageTooLong { max_size, .. })
                if max_size == self.fragment_bytes_max =>
            {
                Ok(closing(CloseCode::Protocol, "frame payload too large"))
            }
            Error::Capacity(_) => Ok(closing(CloseCode::Size, "message too large")),
            other => Err(io::Error::other(other)),
        }
    }
}

fn closing(code: CloseCode, reason: &str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

/// Splits a message into frames with at most `bytes_max` bytes of payload.
fn fragments(kind: Data, mut payload: Bytes, bytes_max: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut kind = kind;
    loop {
        let part = payload.split_to(payload.len().min(bytes_max.max(1)));
        frames.push(Frame::message(part, OpCode::Data(kind), payload.is_empty()));
        if payload.is_empty() {
            return frames;
        }
        kind = Data::Continue;
    }
}

/// Takes the WebSocket out of the extensions of the response that accepts it.
pub(crate) fn agreed(response: &mut Response) -> Option<WebSocket> {
    response.extensions_mut().remove()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::*;

    #[test]
    fn the_key_of_the_rfc_is_answered_as_it_says() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_the_last_frame_of_a_message_is_final() {
        let split = |payload: &'static [u8], bytes_max| {
            let frames = fragments(Data::Text, Bytes::from_static(payload), bytes_max);
            frames
                .iter()
                .map(|frame| (frame.header().opcode, frame.header().is_final, frame.payload().to_vec()))
                .collect::<Vec<_>>()
        };
        let (first, rest) = (OpCode::Data(Data::Text), OpCode::Data(Data::Continue));
        assert_eq!(split(b"", 3), [(first, true, vec![])]);
        assert_eq!(split(b"abc", 3), [(first, true, b"abc".to_vec())]);
        assert_eq!(
            split(b"abcdefg", 3),
            [(first, false, b"abc".to_vec()), (rest, false, b"def".to_vec()), (rest, true, b"g".to_vec())]
        );
    }

    /// A client's frame, with a mask that does not change the payload.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
    }

    /// Everything that the server sends after its head in response to these bytes.
    async fn received(socket: WebSocket, bytes: &[u8]) -> Vec<u8> {
        let (client, mut server): (DuplexStream, DuplexStream) = tokio::io::duplex(1 << 16);
        let (mut from_server, mut to_server) = tokio::io::split(client);
        to_server.write_all(bytes).await.unwrap();
        // A client that goes away without a close frame leaves an error, which is not of interest here.
        let _ = socket.serve(&mut server, &HeaderMap::new()).await;
        drop(server);
        let mut text = Vec::new();
        from_server.read_to_end(&mut text).await.unwrap();
        let end = end_of_head(&text);
        text.split_off(end)
    }

    fn end_of_head(text: &[u8]) -> usize {
        text.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4
    }

    fn socket(fragment_bytes_max: usize, message_bytes_max: usize) -> WebSocket {
        let duration_max = Duration::from_secs(10);
        WebSocket { accept: "x".to_owned(), fragment_bytes_max, message_bytes_max, duration_max }
    }

    #[tokio::test]
    async fn messages_come_back_and_a_close_frame_is_answered() {
        let sent = [frame(0x81, b"hi"), frame(0x82, b"\xff"), frame(0x88, b"\x03\xe9bye")].concat();
        assert_eq!(received(socket(100, 100), &sent).await, b"\x81\x02hi\x82\x01\xff\x88\x05\x03\xe9bye");
        assert_eq!(received(socket(100, 100), &frame(0x88, b"")).await, b"\x88\x00");
    }

    #[tokio::test]
    async fn limits_of_fragments_and_messages_have_status_codes_of_their_own() {
        let status = async |sent: Vec<u8>| {
            let bytes = received(socket(4, 6), &sent).await;
            (bytes[0], u16::from_be_bytes([bytes[2], bytes[3]]))
        };
        assert_eq!(status(frame(0x81, b"12345")).await, (0x88, 1002), "a fragment of 5 bytes");
        let message = [frame(0x01, b"1234"), frame(0x80, b"567")].concat();
        assert_eq!(status(message).await, (0x88, 1009), "a message of 7 bytes");
        assert_eq!(status(frame(0x81, b"\xff")).await, (0x88, 1007));
        assert_eq!(status(frame(0x80, b"a")).await, (0x88, 1002), "nothing to continue");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_client_is_closed_when_the_time_is_over() {
        let (mut client, mut server) = tokio::io::duplex(1 << 10);
        let fields = HeaderMap::new();
        socket(100, 100).serve(&mut server, &fields).await.unwrap();
        drop(server);
        let mut text = Vec::new();
        client.read_to_end(&mut text).await.unwrap();
        assert!(text.ends_with(b"\r\n\r\n\x88\x02\x03\xe8"), "{text:?}");
    }

    #[tokio::test]
    async fn a_connection_that_breaks_off_is_an_error_and_no_close() {
        let (client, mut server) = tokio::io::duplex(1 << 10);
        drop(client);
        assert!(socket(100, 100).serve(&mut server, &HeaderMap::new()).await.is_err());
    }
}
