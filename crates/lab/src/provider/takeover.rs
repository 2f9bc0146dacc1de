//! Responses that hyper cannot send, because they violate HTTP or need special handling: bytes in any order,
//! at any pace, with any kind of ending.
//!
//! hyper reads the request. For such a response the service returns an error on purpose, hyper returns the
//! connection untouched, and the steps defined here are written to it. If the connection stays open, hyper
//! continues with it.

use egret_clock::http_date;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::clock;
use super::stream::Stream;
use super::websocket::WebSocket;

/// The action taken on a connection instead of a response by hyper.
#[derive(Debug)]
pub(super) enum Takeover {
    /// Performs these steps.
    Script(Script),
    /// Turns the connection into a WebSocket and accepts it with these fields.
    WebSocket(WebSocket, HeaderMap),
}

/// Steps, followed by the end of the connection.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The state of the connection afterwards.
    pub end: End,
}

/// A write or a pause.
#[derive(Debug)]
pub(super) enum Step {
    /// Sends these bytes.
    Send(Bytes),
    /// Sends these bytes one by one, spread evenly over this duration.
    Slowly(Bytes, Duration),
    /// Waits for this duration.
    Pause(Duration),
    /// Sends a body without chunking.
    Plain(Body),
    /// Sends a body chunked, with its trailers.
    Chunks(Body),
}

/// The fate of a connection after a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// It stays open for the next request.
    #[default]
    Keep,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
    /// The provider closes its side, and reads until the client closes or this duration is over.
    HalfClose(Duration),
}

impl Takeover {
    /// Performs the action. Returns `true` if the connection stays open.
    pub async fn perform(self, stream: &mut Stream) -> io::Result<bool> {
        match self {
            Self::Script(script) => script.perform(stream).await,
            Self::WebSocket(socket, fields) => socket.serve(stream, &fields).await.map(|()| false),
        }
    }
}

impl Script {
    async fn perform(self, stream: &mut Stream) -> io::Result<bool> {
        for step in self.steps {
            step.perform(stream).await?;
        }
        stream.flush().await?;
        match self.end {
            End::Keep => return Ok(true),
            End::Close => stream.shutdown().await?,
            End::Reset => stream.reset()?,
            End::HalfClose(patience) => {
                stream.shutdown().await?;
                // The result is irrelevant: in both cases nothing is left to do.
                let _ = tokio::time::timeout(patience, drained(stream)).await;
            }
        }
        Ok(false)
    }
}

/// Reads until the client closes.
async fn drained(stream: &mut Stream) {
    let mut piece = [0; 4 << 10];
    while matches!(stream.read(&mut piece).await, Ok(1..)) {}
}

impl Step {
    async fn perform(self, stream: &mut Stream) -> io::Result<()> {
        match self {
            Self::Send(bytes) => stream.write_all(&bytes).await,
            Self::Slowly(bytes, duration) => slowly(stream, &bytes, duration).await,
            Self::Pause(duration) => {
                stream.flush().await?;
                clock::sleep(duration).await;
                Ok(())
            }
            Self::Plain(body) => plain(stream, body).await,
            Self::Chunks(body) => chunks(stream, body).await,
        }
    }
}

async fn slowly(stream: &mut Stream, bytes: &[u8], duration: Duration) -> io::Result<()> {
    let started = tokio::time::Instant::now();
    let pauses = u32::try_from(bytes.len()).unwrap_or(u32::MAX).max(2) - 1;
    for (number, byte) in (0_u32..).zip(bytes) {
        clock::sleep_until(started + duration * number / pauses).await;
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn plain(stream: &mut Stream, mut body: Body) -> io::Result<()> {
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            stream.write_all(&data).await?;
            stream.flush().await?;
        }
    }
    Ok(())
}

async fn chunks(stream: &mut Stream, mut body: Body) -> io::Result<()> {
    let mut trailers = HeaderMap::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.map_err(io::Error::other)?.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
                chunk.extend_from_slice(&data);
                chunk.extend_from_slice(b"\r\n");
                stream.write_all(&chunk).await?;
                stream.flush().await?;
            }
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    let mut end = b"0\r\n".to_vec();
    push_fields(&mut end, &trailers);
    stream.write_all(&end).await
}

/// Serializes a response head; adds a date if there is none.
pub(super) fn head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    if !fields.contains_key(header::DATE) && !status.is_informational() {
        bytes.extend_from_slice(
            format!("date: {}\r\n", http_date::write_system_time(SystemTime::now())).as_bytes(),
        );
    }
    push_fields(&mut bytes, fields);
    bytes
}

/// Appends the field lines and the empty line after them.
fn push_fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

/// Returns the steps that send a complete response: the head, with the framing that the body needs, and the
/// body.
pub(super) fn whole(status: StatusCode, mut fields: HeaderMap, body: Body, with_content: bool) -> Vec<Step> {
    let length = body.size_hint().exact().filter(|_| !fields.contains_key(header::TRAILER));
    let chunked = length.is_none();
    match length {
        Some(length) => fields.insert(header::CONTENT_LENGTH, length.into()),
        None => fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
    };
    let mut steps = vec![Step::Send(head(status, &fields).into())];
    if with_content {
        steps.push(if chunked { Step::Chunks(body) } else { Step::Plain(body) });
    }
    steps
}
