//! A client's connection of HTTP/2 (RFC 9113), whose streams are served side by side.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, SendStream};
use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use crate::RequestBody;

/// Maximum number of streams of a connection at the same time. A load client may ask for many.
const STREAMS_MAX: u32 = 1_000;
/// Number of bytes that a client may send on a stream before they are read.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Maximum length of a request's fields, with 32 bytes more for each (RFC 9113 §6.5.2).
const FIELDS_BYTES_MAX: u32 = 64 << 10;
/// Number of unread frames of data, weighed by how small they are: enough for streams of small messages.
const DATA_FRAME_BUDGET: usize = 4 << 20;

/// Fields that HTTP/2 does not have (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [header::HeaderName; 5] = [
    header::CONNECTION,
    header::HeaderName::from_static("keep-alive"),
    header::HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

type BoxError = Box<dyn Error + Send + Sync>;

/// An end before the end of a response. As the error of a body it takes effect after the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// The stream is reset with this error code (RFC 9113 §7).
    #[error("the stream is reset with code {0}")]
    Stream(u32),
    /// The connection is closed, with all of its streams.
    #[error("the connection is closed")]
    Connection,
}

impl Cut {
    /// The stream is reset by an error of the server.
    pub const INTERNAL: Self = Self::Stream(2);
    /// The stream is reset as if the server had met a violation of the protocol.
    pub const PROTOCOL: Self = Self::Stream(1);
}

/// A response, and what is sent before and after it.
#[derive(Debug)]
pub struct StreamReply<B> {
    /// Informational responses before the final one.
    pub informational: Vec<Response<()>>,
    /// The final response.
    pub response: Response<B>,
    /// Refuses further streams after it (`GOAWAY`), and closes the connection once no stream is left.
    pub drains: bool,
}

impl<B> StreamReply<B> {
    /// Replies with a response alone.
    pub fn of(response: Response<B>) -> Self {
        Self { informational: Vec::new(), response, drains: false }
    }
}

/// The effect of a stream's end on its connection.
enum Effect {
    Nothing,
    Drain,
    /// The connection is closed. The stream is kept until then, because it would be reset when it is dropped.
    Close(#[expect(dead_code, reason = "it is only dropped")] Held),
}

/// A stream whose response has not begun, or has.
#[expect(dead_code, reason = "they are only dropped")]
enum Held {
    Before(SendResponse<Bytes>),
    Within(SendStream<Bytes>),
}

/// Serves a connection until the client closes it, or it was idle for `idle_max`. After `stop` it accepts no
/// further streams. Runs on a thread with a local runtime of tokio; streams end with the returned future.
pub async fn serve<S, H, F, B>(
    io: S,
    handler: H,
    idle_max: Duration,
    stop: impl Future<Output = ()>,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Result<StreamReply<B>, Cut>> + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + 'static,
{
    let handshake = Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(FIELDS_BYTES_MAX)
        .data_frame_budget(DATA_FRAME_BUDGET)
        .handshake(io);
    let Ok(connection) = tokio::time::timeout(idle_max, handshake).await else { return Ok(()) };
    let mut connection: Connection<S, Bytes> = connection?;
    let mut streams = JoinSet::new();
    let mut stop = pin!(stop);
    let mut is_stopping = false;
    // Dropped after the connection has sent what is ready.
    let mut held = None;
    loop {
        tokio::select! {
            biased;
            Some(ended) = streams.join_next(), if !streams.is_empty() => match ended {
                Ok(effect @ Effect::Close(_)) => {
                    held = Some(effect);
                    break;
                }
                Ok(Effect::Drain) => connection.graceful_shutdown(),
                // A stream that panicked has been reset.
                Ok(Effect::Nothing) | Err(_) => {}
            },
            accepted = poll_fn(|context| connection.poll_accept(context)) => match accepted {
                Some(Ok((request, respond))) => {
                    let is_head = request.method() == Method::HEAD;
                    let replying = handler(received(request));
                    streams.spawn_local(answer(replying, respond, is_head));
                }
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            () = &mut stop, if !is_stopping => {
                is_stopping = true;
                connection.graceful_shutdown();
            }
            () = tokio::time::sleep(idle_max), if streams.is_empty() => {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                break;
            }
        }
    }
    // The frames that are ready are sent as far as the socket takes them.
    poll_fn(|context| {
        let _ = connection.poll_accept(context);
        std::task::Poll::Ready(())
    })
    .await;
    drop(held);
    Ok(())
}

/// A request whose body is in the form that endpoints read.
fn received(request: Request<h2::RecvStream>) -> Request<RequestBody> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    request.map(|body| RequestBody::new(body, length))
}

/// Sends the reply on a stream, unless the client resets it first.
async fn answer<B>(
    replying: impl Future<Output = Result<StreamReply<B>, Cut>>,
    mut respond: SendResponse<Bytes>,
    is_head: bool,
) -> Effect
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let reply = tokio::select! {
        biased;
        reply = replying => reply,
        _ = poll_fn(|context| respond.poll_reset(context)) => return Effect::Nothing,
    };
    match reply {
        Ok(reply) => {
            let effect = if reply.drains { Effect::Drain } else { Effect::Nothing };
            // An error says that the client has left, or reset the stream.
            send(respond, reply, is_head).await.unwrap_or(Some(Effect::Nothing)).unwrap_or(effect)
        }
        Err(Cut::Stream(code)) => {
            respond.send_reset(code.into());
            Effect::Nothing
        }
        Err(Cut::Connection) => Effect::Close(Held::Before(respond)),
    }
}

/// Sends a reply. Returns an effect if its body was cut.
async fn send<B>(
    mut respond: SendResponse<Bytes>,
    reply: StreamReply<B>,
    is_head: bool,
) -> Result<Option<Effect>, h2::Error>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    for informational in reply.informational {
        respond.send_informational(informational)?;
    }
    let (mut parts, body) = reply.response.into_parts();
    for name in &CONNECTION_FIELDS {
        parts.headers.remove(name);
    }
    let has_end = is_head || body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(parts, ()), has_end)?;
    if has_end {
        return Ok(None);
    }
    let mut body = pin!(body);
    loop {
        let frame = tokio::select! {
            biased;
            frame = poll_fn(|context| body.as_mut().poll_frame(context)) => frame,
            _ = poll_fn(|context| stream.poll_reset(context)) => return Ok(None),
        };
        match frame.map(|frame| frame.map(BodyFrame::of)) {
            Some(Ok(BodyFrame::Data(data))) => {
                let is_last = body.is_end_stream();
                send_data(&mut stream, data, is_last).await?;
                if is_last {
                    return Ok(None);
                }
            }
            Some(Ok(BodyFrame::Trailers(trailers))) => return stream.send_trailers(trailers).map(|()| None),
            Some(Err(error)) => return Ok(Some(cut(stream, error.into()).await)),
            None => return stream.send_data(Bytes::new(), true).map(|()| None),
        }
    }
}

/// A frame of a body.
enum BodyFrame {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl BodyFrame {
    fn of(frame: hyper::body::Frame<Bytes>) -> Self {
        match frame.into_data() {
            Ok(data) => Self::Data(data),
            Err(frame) => Self::Trailers(frame.into_trailers().unwrap_or_default()),
        }
    }
}

/// Sends data as far as the client's windows allow.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes, is_last: bool) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(capacity) = poll_fn(|context| stream.poll_capacity(context)).await else {
            // The stream has ended.
            return Err(Reason::CANCEL.into());
        };
        let piece = data.split_to(capacity?.min(data.len()));
        if !piece.is_empty() {
            stream.send_data(piece, is_last && data.is_empty())?;
        }
    }
    Ok(())
}

/// Ends a stream as the [`Cut`] among the causes of its body's error says. Without one, it is reset by an
/// internal error.
async fn cut(mut stream: SendStream<Bytes>, error: BoxError) -> Effect {
    let mut source: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    let mut cut = Cut::INTERNAL;
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            cut = *found;
        }
        source = error.source();
    }
    // The connection sends what the stream has sent before. A reset would overtake it.
    tokio::task::yield_now().await;
    match cut {
        Cut::Stream(code) => {
            stream.send_reset(code.into());
            Effect::Nothing
        }
        Cut::Connection => Effect::Close(Held::Within(stream)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::{BodyExt as _, Full, StreamBody};
    use tokio::runtime::{Builder as RuntimeBuilder, LocalOptions};

    use super::*;

    type TestBody = http_body_util::combinators::BoxBody<Bytes, BoxError>;

    fn whole(text: &'static str) -> TestBody {
        Full::from(text).map_err(|never| match never {}).boxed()
    }

    /// Returns a body of some data and an error.
    fn broken(cut: Cut) -> TestBody {
        let frames = [Ok(hyper::body::Frame::data(Bytes::from_static(b"half"))), Err(BoxError::from(cut))];
        StreamBody::new(futures_util::stream::iter(frames)).boxed()
    }

    /// Serves one request with this reply. Returns the status and what came of the body.
    fn exchanged(
        reply: impl Fn() -> Result<StreamReply<TestBody>, Cut> + 'static,
    ) -> Result<(u16, Result<String, h2::Error>), h2::Error> {
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build_local(LocalOptions::default());
        runtime.unwrap().block_on(async move {
            let (client, server) = tokio::io::duplex(64 << 10);
            let handler = move |_: Request<RequestBody>| std::future::ready(reply());
            let serving = serve(server, handler, Duration::from_hours(1), std::future::pending());
            tokio::task::spawn_local(serving);
            let (mut send, connection) = h2::client::handshake(client).await?;
            tokio::task::spawn_local(connection);
            send = send.ready().await?;
            let request = Request::get("http://a.test/").body(()).unwrap();
            let (response, _) = send.send_request(request, true)?;
            let (parts, mut body) = response.await?.into_parts();
            let mut text = String::new();
            let content = loop {
                match body.data().await {
                    Some(Ok(data)) => text.push_str(std::str::from_utf8(&data).unwrap()),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(text),
                }
            };
            Ok((parts.status.as_u16(), content))
        })
    }

    #[test]
    fn a_response_is_sent_without_fields_of_the_connection() {
        let response = || Response::builder().header("connection", "close").body(whole("hello")).unwrap();
        let (status, content) = exchanged(move || Ok(StreamReply::of(response()))).unwrap();
        assert_eq!((status, content.unwrap().as_str()), (200, "hello"));
    }

    #[test]
    fn a_cut_before_the_response_resets_the_stream() {
        let error = exchanged(|| Err(Cut::Stream(7))).unwrap_err();
        assert_eq!((error.reason(), error.is_remote()), (Some(Reason::REFUSED_STREAM), true));
    }

    #[test]
    fn a_cut_within_a_body_follows_the_data_before_it() {
        let (status, content) =
            exchanged(|| Ok(StreamReply::of(Response::new(broken(Cut::PROTOCOL))))).unwrap();
        assert_eq!((status, content.unwrap_err().reason()), (200, Some(Reason::PROTOCOL_ERROR)));
        let (_, content) = exchanged(|| Ok(StreamReply::of(Response::new(broken(Cut::Connection))))).unwrap();
        assert!(content.unwrap_err().is_io());
    }

    #[test]
    fn a_closed_connection_has_no_response() {
        assert!(exchanged(|| Err(Cut::Connection)).unwrap_err().is_io());
    }

    #[test]
    fn informational_responses_precede_the_final_one() {
        let reply = || {
            let hints = Response::builder().status(103).body(()).unwrap();
            let response = Response::new(whole("final"));
            Ok(StreamReply { informational: vec![hints], response, drains: true })
        };
        let (status, content) = exchanged(reply).unwrap();
        assert_eq!((status, content.unwrap().as_str()), (200, "final"));
    }
}
