//! A connection of HTTP/2 from a client.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use egret_items::opaque;
use egret_net::stream::Stream;
use h2::Reason;
use h2::server::{Builder, Connection, SendResponse};
use http::Request;

use crate::body::Body;
use crate::gate::{Flood, SentPieces};
use crate::request::{BodyFraming, RequestText, request_text};
use crate::stream::ServerStream;
use crate::transport::{Transport, Turn, TurnOutput};
use crate::windows::{self, OpenStream, Windows};

/// The first line of the client's preface (RFC 9113 §3.4). No request of HTTP/1.1 begins so.
const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// Number of bytes that a client may send on all streams before they are passed on: as many as their windows
/// admit, so stalled streams do not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Maximum number of bytes of a stream that wait in the library for the socket.
const UNSENT_BYTES_MAX: usize = 32 << 10;
/// Memory for the compression of fields in each direction: the value that every peer begins with.
const HEADER_TABLE_BYTES: u32 = 4096;
/// Number of unread frames of data, weighed by how small they are. Enough for a client that streams messages
/// of a few bytes.
const DATA_FRAME_BUDGET: usize = 4 << 20;
/// Number of streams that a client may make this end reset before its connection ends.
const CAUSED_RESETS_MAX: usize = 1_024;

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of streams at the same time.
    pub streams: u32,
    /// Maximum length of a request's fields, with 32 bytes more for each (RFC 9113 §6.5.2).
    pub header_list: u32,
    /// Maximum number of a request's fields.
    pub fields: usize,
}

/// An event on a connection.
#[derive(Debug)]
pub enum Arrived {
    /// A request.
    Stream(Box<ServerStream>),
    /// The client sends a flood of frames. The connection ends by itself, which must not take long.
    Flood(Flood),
    /// The connection has ended.
    End,
}

/// Returns `true` if `bytes`, the first ones of a connection, begin HTTP/2.
pub fn is_preface(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFACE_LINE)
}

/// A client's connection.
pub struct ServerConnection {
    inner: Connection<Transport, Bytes>,
    flood: Rc<Cell<Option<Flood>>>,
    pieces: SentPieces,
    windows: Rc<Windows>,
    turn: Turn,
    output: TurnOutput,
    is_tls: bool,
    fields_max: usize,
    is_flooded: bool,
    has_failed: bool,
}

opaque!(ServerConnection { flood });

impl ServerConnection {
    /// Waits for the preface of a client, of whose bytes `ahead` have been received. It waits for the client,
    /// so set a timeout. `None` if the client does not speak HTTP/2, or has left.
    pub async fn accept(stream: Stream, ahead: &[u8], bounds: Bounds) -> Option<Self> {
        let is_tls = matches!(stream, Stream::Tls(_));
        let flood = Rc::new(Cell::new(None));
        let transport = Transport::of_client(stream, ahead, Rc::clone(&flood));
        let (pieces, turn, output) = (transport.pieces(), transport.turn(), transport.output());
        let inner = Builder::new()
            .initial_window_size(windows::MIN_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(bounds.streams)
            .max_header_list_size(bounds.header_list)
            .header_table_size(HEADER_TABLE_BYTES)
            .max_send_buffer_size(UNSENT_BYTES_MAX)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .max_local_error_reset_streams(Some(CAUSED_RESETS_MAX))
            .enable_connect_protocol()
            .handshake(transport)
            .await
            .ok()?;
        Some(Self {
            inner,
            flood,
            pieces,
            windows: Rc::default(),
            turn,
            output,
            is_tls,
            fields_max: bounds.fields,
            is_flooded: false,
            has_failed: false,
        })
    }

    /// Moves the bytes of all streams, and waits for the next request.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arrived> {
        if self.has_failed {
            return Poll::Ready(Arrived::End);
        }
        self.turn.begin();
        self.windows.announce(|bytes| self.inner.set_initial_window_size(bytes).is_ok());
        let polled = self.inner.poll_accept(cx);
        // With a request in hand the turn goes on.
        if polled.is_pending() {
            self.output.send(cx);
        }
        if let Some(flood) = self.flood.get()
            && !self.is_flooded
        {
            self.is_flooded = true;
            self.inner.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            return Poll::Ready(Arrived::Flood(flood));
        }
        polled.map(|accepted| match accepted {
            Some(Ok((request, respond))) => Arrived::Stream(Box::new(self.stream(request, respond))),
            Some(Err(error)) => self.failed(&error),
            None => Arrived::End,
        })
    }

    /// Notes the error that has ended the connection. It is a flood if the library says so.
    fn failed(&mut self, error: &h2::Error) -> Arrived {
        self.has_failed = true;
        let is_flood = error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
        if self.is_flooded || !is_flood {
            return Arrived::End;
        }
        self.is_flooded = true;
        Arrived::Flood(Flood::Frames)
    }

    /// Tells the client to open no more streams, and ends the connection after those in flight (RFC 9113
    /// §6.8).
    pub fn drain(&mut self) {
        self.inner.graceful_shutdown();
    }

    fn stream(&self, request: Request<h2::RecvStream>, respond: SendResponse<Bytes>) -> ServerStream {
        let (parts, received) = request.into_parts();
        let text = request_text(&parts, self.is_tls, received.is_end_stream(), self.fields_max);
        let (head, framing, opens_websocket) = match text {
            Ok(RequestText { text, framing, opens_websocket }) => (Ok(text), framing, opens_websocket),
            Err(error) => (Err(error), BodyFraming::None, false),
        };
        let body = Body::new(received, framing, Rc::clone(&self.windows));
        let open = OpenStream::new(Rc::clone(&self.windows));
        ServerStream::new(head, body, respond, self.pieces.clone(), opens_websocket, open)
    }
}
