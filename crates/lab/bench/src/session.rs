//! A connection of HTTP/2 (RFC 9113), whose streams are exchanges.
//!
//! The crate `h2` has the frames. Its wakers only note what can go on, so the event loop polls nothing else.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use egret_items::opaque;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use http::response::Parts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::LoadConnection;
use crate::transport::Transport;

/// Number of bytes that a stream, and a connection, may receive ahead: the maximum, so that the target never
/// waits for the client.
const WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Maximum length of a response's fields, with 32 bytes more for each.
const FIELDS_BYTES_MAX: u32 = 256 << 10;

/// Number of unread frames of data, weighed by how small they are: enough for any target.
const DATA_FRAME_BUDGET: usize = 1 << 30;

/// The numbers of the exchanges and sessions that can go on.
#[derive(Debug, Default)]
pub(crate) struct ReadyList(Mutex<Vec<usize>>);

impl ReadyList {
    /// Notes a number.
    pub fn push(&self, id: usize) {
        if let Ok(mut ids) = self.0.lock() {
            ids.push(id);
        }
    }

    /// Moves all numbers to `ids`, which is empty.
    pub fn take(&self, ids: &mut Vec<usize>) {
        if let Ok(mut own) = self.0.lock() {
            std::mem::swap(&mut *own, ids);
        }
    }

    /// Returns a waker that notes a number.
    pub fn waker(self: &Arc<Self>, id: usize) -> Waker {
        Waker::from(Arc::new(NotingWaker { ready: Arc::clone(self), id }))
    }
}

struct NotingWaker {
    ready: Arc<ReadyList>,
    id: usize,
}

impl Wake for NotingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.id);
    }
}

/// Numbers of bytes received and sent on a connection.
#[derive(Debug, Default)]
struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

/// A transport as the library wants it. The event loop polls it again after each event.
#[derive(Debug)]
struct PolledTransport {
    transport: Transport,
    traffic: Arc<Traffic>,
}

fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl AsyncRead for PolledTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.transport.read(buffer.initialize_unfilled());
        let count = ready!(polled(read))?;
        buffer.advance(count);
        self.traffic.received.fetch_add(count as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PolledTransport {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Write::write(&mut self.transport, bytes);
        let count = ready!(polled(written))?;
        if count == 0 && !bytes.is_empty() {
            // TLS holds as much as it may: it goes on once the socket has taken some.
            return Poll::Pending;
        }
        self.traffic.sent.fetch_add(count as u64, Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Transport::Plain(socket) = &mut self.transport {
            let written = socket.write_vectored(pieces);
            let count = ready!(polled(written))?;
            self.traffic.sent.fetch_add(count as u64, Relaxed);
            return Poll::Ready(Ok(count));
        }
        let first = pieces.iter().find(|piece| !piece.is_empty());
        self.poll_write(context, first.map_or(&[], |piece| piece))
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.transport, Transport::Plain(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Transport::flush(&mut self.transport) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => polled(Err(error)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// An open connection.
struct OpenConnection {
    connection: Connection<PolledTransport, Bytes>,
    send: SendRequest<Bytes>,
    traffic: Arc<Traffic>,
}

/// A connection that several slots share.
pub(crate) struct Session {
    /// The connection until it is open. Its stage afterwards is `Idle`.
    pub carrier: LoadConnection,
    /// Slots whose exchange waits for the connection.
    pub waiting: Vec<usize>,
    /// Number of exchanges on the connection.
    pub active: usize,
    /// `true` if the target accepts no more streams on the connection.
    pub is_draining: bool,
    link: Option<OpenConnection>,
    waker: Waker,
    /// Bytes received and sent that have been counted.
    counted: (u64, u64),
}

opaque!(Session { active });

impl Session {
    /// Creates a session without a connection. `waker` notes that the connection can go on.
    pub fn new(carrier: LoadConnection, waker: Waker) -> Self {
        Self {
            carrier,
            waiting: Vec::new(),
            active: 0,
            is_draining: false,
            link: None,
            waker,
            counted: (0, 0),
        }
    }

    /// Returns `true` if the connection takes requests.
    pub fn is_open(&self) -> bool {
        self.link.is_some() && !self.is_draining
    }

    /// Returns `true` if there is a connection, even one that takes no requests.
    pub fn has_connection(&self) -> bool {
        self.link.is_some()
    }

    /// Begins HTTP/2 on the carrier's transport, for this number of streams at a time.
    pub fn begin(&mut self, streams: usize) -> io::Result<()> {
        let transport = self.carrier.transport.take().ok_or(ErrorKind::NotConnected)?;
        let negotiated = transport.session().map(|session| session.alpn_protocol().unwrap_or_default());
        if negotiated.is_some_and(|name| name != b"h2") {
            return Err(io::Error::other("the target does not negotiate HTTP/2 over TLS"));
        }
        let traffic = Arc::<Traffic>::default();
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_max_send_streams(streams)
            .max_header_list_size(FIELDS_BYTES_MAX)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .enable_push(false);
        let polled = PolledTransport { transport, traffic: Arc::clone(&traffic) };
        let handshake = pin!(builder.handshake::<_, Bytes>(polled));
        // It sends the preface, for which the buffer of a new socket has room.
        let Poll::Ready(begun) = handshake.poll(&mut Context::from_waker(&self.waker)) else {
            return Err(io::Error::other("the target does not accept the preface of HTTP/2"));
        };
        let (send, connection) = begun.map_err(io::Error::other)?;
        self.link = Some(OpenConnection { connection, send, traffic });
        self.is_draining = false;
        self.counted = (0, 0);
        self.waker.wake_by_ref();
        Ok(())
    }

    /// Sends a request.
    pub fn send(&mut self, request: &Http2Request) -> Result<Exchange, h2::Error> {
        let Some(link) = &mut self.link else { return Err(h2::Reason::REFUSED_STREAM.into()) };
        // Each clone may have a request that waits for the target's limit of streams.
        let mut send = link.send.clone();
        let (response, upload) = send.send_request(request.head.clone(), request.body.is_empty())?;
        let upload = (!request.body.is_empty()).then(|| (upload, request.body.clone()));
        Ok(Exchange { upload, response: Receiving::Head(response) })
    }

    /// Moves the bytes of all streams. Ready once the connection has ended.
    pub fn poll(&mut self) -> Poll<Option<h2::Error>> {
        let Some(link) = &mut self.link else { return Poll::Pending };
        let ended = ready!(Pin::new(&mut link.connection).poll(&mut Context::from_waker(&self.waker)));
        Poll::Ready(ended.err())
    }

    /// Returns the bytes received and sent since the last call.
    pub fn take_traffic(&mut self) -> (u64, u64) {
        let Some(link) = &self.link else { return (0, 0) };
        let (received, sent) = (link.traffic.received.load(Relaxed), link.traffic.sent.load(Relaxed));
        let (before_received, before_sent) = std::mem::replace(&mut self.counted, (received, sent));
        (received - before_received, sent - before_sent)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.link = None;
        self.is_draining = false;
        self.carrier.close();
    }
}

/// A request of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Request {
    /// Pseudo-fields and fields.
    pub head: Request<()>,
    /// The body; empty if there is none.
    pub body: Bytes,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The stream and the rest of a body that is being sent.
    upload: Option<(SendStream<Bytes>, Bytes)>,
    response: Receiving,
}

#[derive(Debug)]
enum Receiving {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// A part of a response.
#[derive(Debug)]
pub(crate) enum Part {
    /// The head.
    Head(Box<Parts>),
    /// Bytes of the body.
    Data(Bytes),
    /// The response is complete.
    End,
}

impl Exchange {
    /// Sends what is left of the body, and waits for the next part of the response.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Part, h2::Error>> {
        self.poll_upload(context);
        match &mut self.response {
            Receiving::Head(future) => {
                let (parts, body) = ready!(Pin::new(future).poll(context))?.into_parts();
                self.response = Receiving::Body(body);
                Poll::Ready(Ok(Part::Head(Box::new(parts))))
            }
            Receiving::Body(body) if body.is_end_stream() => Poll::Ready(Ok(Part::End)),
            Receiving::Body(body) => {
                if let Some(data) = ready!(body.poll_data(context)) {
                    let data = data?;
                    body.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Ok(Part::Data(data)));
                }
                ready!(body.poll_trailers(context))?;
                Poll::Ready(Ok(Part::End))
            }
        }
    }

    /// Sends as much of the body as the target's windows allow. If the target does not want it, the response
    /// says so.
    fn poll_upload(&mut self, context: &mut Context<'_>) {
        while let Some((stream, rest)) = &mut self.upload {
            stream.reserve_capacity(rest.len());
            let capacity = match stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(capacity))) => capacity.min(rest.len()),
                Poll::Ready(Some(Err(_)) | None) => return self.upload = None,
                Poll::Pending => return,
            };
            if capacity == 0 {
                continue;
            }
            let piece = rest.split_to(capacity);
            let is_last = rest.is_empty();
            if stream.send_data(piece, is_last).is_err() || is_last {
                self.upload = None;
            }
        }
    }
}
