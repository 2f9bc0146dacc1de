//! Responses that hyper cannot send, because they violate HTTP or need special handling: bytes in any order,
//! at any pace, with any kind of ending.
//!
//! hyper reads the request. For such a response the service returns an error on purpose, hyper returns the
//! connection untouched, and the steps defined here are written to it. If the connection stays open, hyper
//! continues with it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::clock;
use crate::head::{head, push_fields};
use crate::stream::ClientStream;
use crate::websocket::WebSocket;

/// The action taken on a connection instead of a response by hyper.
#[derive(Debug)]
pub(crate) enum Takeover {
    /// Performs these steps.
    Script(Script),
    /// Turns the connection into a WebSocket and accepts it with these fields.
    WebSocket(WebSocket, HeaderMap),
}

/// Steps, followed by the end of the connection.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The steps, in order.
    pub steps: Vec<ScriptStep>,
    /// The state of the connection afterwards.
    pub end: ScriptEnd,
}

/// A write or a pause.
#[derive(Debug)]
pub(crate) enum ScriptStep {
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
pub(crate) enum ScriptEnd {
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
    pub async fn perform(self, stream: &mut ClientStream) -> io::Result<bool> {
        match self {
            Self::Script(script) => script.perform(stream).await,
            Self::WebSocket(socket, fields) => socket.serve(stream, &fields).await.map(|()| false),
        }
    }
}

impl Script {
    async fn perform(self, stream: &mut ClientStream) -> io::Result<bool> {
        for step in self.steps {
            step.perform(stream).await?;
        }
        stream.flush().await?;
        match self.end {
            ScriptEnd::Keep => return Ok(true),
            ScriptEnd::Close => stream.shutdown().await?,
            ScriptEnd::Reset => stream.reset()?,
            ScriptEnd::HalfClose(patience) => {
                stream.shutdown().await?;
                // The result is irrelevant: in both cases nothing is left to do.
                let _ = tokio::time::timeout(patience, drained(stream)).await;
            }
        }
        Ok(false)
    }
}

/// Reads until the client closes.
async fn drained(stream: &mut ClientStream) {
    let mut piece = [0; 4 << 10];
    while matches!(stream.read(&mut piece).await, Ok(1..)) {}
}

impl ScriptStep {
    async fn perform(self, stream: &mut ClientStream) -> io::Result<()> {
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

async fn slowly(stream: &mut ClientStream, bytes: &[u8], duration: Duration) -> io::Result<()> {
    let started = tokio::time::Instant::now();
    let pauses = u32::try_from(bytes.len()).unwrap_or(u32::MAX).max(2) - 1;
    for (number, byte) in (0_u32..).zip(bytes) {
        clock::sleep_until(started + duration * number / pauses).await;
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn plain(stream: &mut ClientStream, mut body: Body) -> io::Result<()> {
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            stream.write_all(&data).await?;
            stream.flush().await?;
        }
    }
    Ok(())
}

async fn chunks(stream: &mut ClientStream, mut body: Body) -> io::Result<()> {
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

/// Returns the steps that send a complete response: the head, with the framing that the body needs, and the
/// body.
pub(crate) fn complete_response(
    status: StatusCode,
    mut fields: HeaderMap,
    body: Body,
    with_content: bool,
) -> Vec<ScriptStep> {
    let length = body.size_hint().exact().filter(|_| !fields.contains_key(header::TRAILER));
    let chunked = length.is_none();
    match length {
        Some(length) => fields.insert(header::CONTENT_LENGTH, length.into()),
        None => fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
    };
    let mut steps = vec![ScriptStep::Send(head(status, &fields).into())];
    if with_content {
        steps.push(if chunked { ScriptStep::Chunks(body) } else { ScriptStep::Plain(body) });
    }
    steps
}
