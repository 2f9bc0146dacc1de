//! A connection of HTTP/2 to a provider.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use egret_items::opaque;
use egret_net::stream::Stream;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};

use crate::call::ClientStream;
use crate::gate::{Flood, SentPieces};
use crate::server::Bounds;
use crate::transport::{Transport, Turn, TurnOutput};
use crate::windows::{self, Windows};

/// Number of bytes that a provider may send on all streams before they are passed on. Streams that stall one
/// after another, each with the window of its time, do not fill it: 4 MiB twice, then 8 MiB / n for the nth
/// of 100, so they do not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 40 << 20;
/// Maximum number of bytes of a stream that wait in the library for the socket.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Memory for the compression of fields in each direction: the value that every peer begins with.
const HEADER_TABLE_BYTES: u32 = 4096;
/// Number of unread frames of data, weighed by how small they are. Enough for a provider that streams
/// messages of a few bytes.
const DATA_FRAME_BUDGET: usize = 4 << 20;
/// Number of frames for streams closed on this side after which a connection is given up. Cancelled calls may
/// leave some on their way.
const LATE_FRAMES_MAX: usize = 1_000_000;
/// Number of streams that are assumed before the provider says its maximum.
const STREAMS_ASSUMED: usize = 100;
/// The number of a stream from which on no further one is opened on its connection: half of those that there
/// are (RFC 9113 §5.1.1), so that the rest can still be used while the connection is replaced.
const LAST_STREAM: u32 = 1 << 30;

/// The end of a connection.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// It has ended in order, or the provider has closed it.
    Closed,
    /// It has failed.
    Failed(io::Error),
    /// The provider sends a flood of frames.
    Flood(Flood),
}

/// The facts that the streams of a connection share with it.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// `true` once the numbers of streams are used up.
    pub is_used_up: Cell<bool>,
    pub flood: Rc<Cell<Option<Flood>>>,
    /// The counter of pieces of requests that are sent.
    pub pieces: SentPieces,
    pub windows: Rc<Windows>,
    /// Maximum number of a response's fields.
    pub fields_max: usize,
    pub is_tls: bool,
    /// `true` once the provider's settings have been applied, or the connection has ended without them.
    is_settled: Cell<bool>,
    /// The calls that wait for them.
    waiting: RefCell<Vec<Waker>>,
}

impl Common {
    /// Ready once the provider's settings have been applied, or the connection has ended without them.
    pub fn poll_settings(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_settled.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        // One for each call at most.
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn settle(&self) {
        if !self.is_settled.replace(true) {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Notes the number of a new stream.
    pub fn note_stream(&self, number: u32) {
        if number >= LAST_STREAM {
            self.is_used_up.set(true);
        }
    }
}

/// The connection itself. A task polls it to its end, and so moves the bytes of all streams. If it is
/// dropped, all streams end.
pub struct ClientConnection {
    inner: Connection<Transport, Bytes>,
    pings: Option<PingPong>,
    turn: Turn,
    output: TurnOutput,
    flood: Rc<Cell<Option<Flood>>>,
    received: Rc<Cell<Instant>>,
    /// `true` once the provider's settings have arrived.
    has_settings: Rc<Cell<bool>>,
    common: Rc<Common>,
}

opaque!(ClientConnection { flood });

impl ClientConnection {
    /// Begins HTTP/2 on a new connection, for at most `bounds.streams` calls at a time. Fails if the
    /// connection is gone.
    pub async fn begin(stream: Stream, bounds: Bounds) -> io::Result<(Self, Streams)> {
        let is_tls = matches!(stream, Stream::Tls(_));
        let flood = Rc::new(Cell::new(None));
        let received = Rc::new(Cell::new(Instant::now()));
        let has_settings = Rc::new(Cell::new(false));
        let transport =
            Transport::of_provider(stream, Rc::clone(&flood), Rc::clone(&received), Rc::clone(&has_settings));
        let (pieces, turn, output) = (transport.pieces(), transport.turn(), transport.output());
        let (opener, mut inner) = Builder::new()
            .enable_push(false)
            .initial_window_size(windows::MIN_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_ASSUMED)
            .max_header_list_size(bounds.header_list)
            .header_table_size(HEADER_TABLE_BYTES)
            .max_send_buffer_size(UNSENT_BYTES_MAX)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .max_local_error_reset_streams(Some(LATE_FRAMES_MAX))
            .handshake(transport)
            .await
            .map_err(|error| io::Error::new(io::ErrorKind::ConnectionReset, error.to_string()))?;
        let pings = inner.ping_pong();
        let common = Rc::new(Common {
            is_used_up: Cell::new(false),
            flood: Rc::clone(&flood),
            pieces,
            windows: Rc::default(),
            fields_max: bounds.fields,
            is_tls,
            is_settled: Cell::new(false),
            waiting: RefCell::default(),
        });
        let connection =
            Self { inner, pings, turn, output, flood, received, has_settings, common: Rc::clone(&common) };
        Ok((connection, Streams { opener, common }))
    }

    /// Moves the bytes of all streams. Ready at the end of the connection, which comes by itself once all
    /// [`Streams`] of it are dropped and no stream is left.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        self.turn.begin();
        // Ahead of the heads of new streams, so it holds for these.
        self.common.windows.announce(|bytes| self.inner.set_initial_window_size(bytes).is_ok());
        let polled = std::pin::Pin::new(&mut self.inner).poll(cx);
        self.output.send(cx);
        // What has arrived has been applied.
        if self.has_settings.get() {
            self.common.settle();
        }
        if let Some(flood) = self.flood.get() {
            return Poll::Ready(ConnectionEnd::Flood(flood));
        }
        polled.map(|ended| match ended {
            Ok(()) => ConnectionEnd::Closed,
            Err(error) => ConnectionEnd::Failed(io::Error::other(error.to_string())),
        })
    }

    /// Returns the time since anything was received.
    pub fn quiet_for(&self) -> Duration {
        self.received.get().elapsed()
    }

    /// Asks the provider for a sign of life.
    pub fn ping(&mut self) {
        if let Some(pings) = &mut self.pings {
            // It fails if the last one is unanswered. Then nothing has been received either.
            let _ = pings.send_ping(Ping::opaque());
        }
    }

    /// Takes the provider's answer to the last [`ping`](Self::ping), if it has come.
    pub fn take_pong(&mut self, cx: &mut Context<'_>) {
        if let Some(pings) = &mut self.pings {
            let _ = pings.poll_pong(cx);
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.common.settle();
    }
}

/// The means to open streams on a connection, which ends once they and all streams are dropped.
#[derive(Clone)]
pub struct Streams {
    opener: SendRequest<Bytes>,
    common: Rc<Common>,
}

opaque!(Streams { common });

impl Streams {
    /// Returns `true` if streams may be opened: the connection is there, the provider has not announced its
    /// end (GOAWAY), and there are numbers left.
    pub fn is_open(&mut self) -> bool {
        // It has opened no stream itself that it would have to wait for.
        let mut cx = Context::from_waker(Waker::noop());
        !self.common.is_used_up.get() && matches!(self.opener.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }

    /// Returns the maximum number of streams at the same time, as the provider says it.
    pub fn max(&self) -> usize {
        self.opener.current_max_send_streams()
    }

    /// Returns a stream, which is opened by the head of its request.
    pub fn stream(&self) -> ClientStream {
        ClientStream::new(self.opener.clone(), Rc::clone(&self.common))
    }
}
