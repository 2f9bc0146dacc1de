//! The exchanges of a thread as streams of HTTP/2: several slots share a connection.
//!
//! An event moves the bytes of its connection, which notes the streams that can go on. They start the next
//! exchanges, whose frames are sent together when the connection is polled again.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mio::{Interest, Token};
use rustls::HandshakeKind;

use super::{Worker, prepared};
use crate::connection::{ConnectionStage, LoadConnection};
use crate::plan::Plan;
use crate::session::{Exchange, Part, ReadyList, Session};
use crate::tally::Fault;
use crate::tls::TlsParameters;
use crate::transport::Transport;

/// Maximum number of exchanges that are repeated without a response, beyond those in progress.
const REPEATS_MAX: usize = 10;

/// The connections of a thread, and their streams.
#[derive(Debug)]
pub(super) struct Sessions {
    /// The connections: one for each group of slots and each destination.
    connections: Vec<Session>,
    /// The stream of each exchange, in the order of the thread's connections of HTTP/1.1.
    streams: Vec<Option<Exchange>>,
    wakers: Vec<Waker>,
    ready: Arc<ReadyList>,
    /// Memory for the numbers that are handled.
    scratch: Vec<usize>,
    /// Number of streams of a connection.
    streams_max: usize,
    destinations: usize,
    /// Number of exchanges repeated since the last response.
    repeats: usize,
}

impl Sessions {
    /// Creates the connections for this number of slots, if the plan is one for HTTP/2.
    pub fn of(plan: &Plan, slots: usize, now: Instant) -> Option<Self> {
        let streams_max = plan.streams?;
        let destinations = plan.destinations.len();
        let exchanges = slots * destinations;
        let ready = Arc::<ReadyList>::default();
        let count = slots.div_ceil(streams_max) * destinations;
        let session = |index| Session::new(LoadConnection::new(now), ready.waker(exchanges + index));
        Some(Self {
            connections: (0..count).map(session).collect(),
            streams: (0..exchanges).map(|_| None).collect(),
            wakers: (0..exchanges).map(|id| ready.waker(id)).collect(),
            ready,
            scratch: Vec::new(),
            streams_max,
            destinations,
            repeats: 0,
        })
    }

    /// Returns `true` if an exchange may be repeated. A target that never responds does not keep the client
    /// busy.
    fn may_repeat(&mut self) -> bool {
        self.repeats += 1;
        self.repeats <= self.streams.len() + REPEATS_MAX
    }

    /// The number of the connection of an exchange.
    fn session_of(&self, id: usize) -> usize {
        id / self.destinations / self.streams_max * self.destinations + id % self.destinations
    }
}

impl Worker<'_> {
    /// Begins an exchange on its connection, which is opened first if need be.
    pub(super) fn begin_stream(&mut self, id: usize) {
        self.connections[id].fresh = false;
        self.connections[id].stage = ConnectionStage::Receiving;
        let Some(http2) = &mut self.http2 else { return };
        let index = http2.session_of(id);
        let session = &mut http2.connections[index];
        if session.is_open() {
            return self.send_stream(id);
        }
        session.waiting.push(id);
        if !session.has_connection() && session.carrier.stage == ConnectionStage::Closed {
            self.open_session(index);
        }
    }

    /// Sends the request of an exchange on its open connection.
    fn send_stream(&mut self, id: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let index = http2.session_of(id);
        let session = &mut http2.connections[index];
        let Some(request) = &self.plan.requests[self.connections[id].request].http2 else { return };
        match session.send(request) {
            Ok(exchange) => {
                session.active += 1;
                http2.streams[id] = Some(exchange);
                // The first poll registers the waker.
                http2.ready.push(id);
            }
            // The target has said that it accepts no more streams: others may still be in progress.
            Err(error) => self.repeat(id, &error),
        }
    }

    /// Repeats an exchange on the next connection. Its stream, if it has one, still counts as active, so the
    /// connection cannot be replaced before the exchange waits for the next one.
    #[cold]
    fn repeat(&mut self, id: usize, error: &h2::Error) {
        let Some(http2) = &mut self.http2 else { return };
        let index = http2.session_of(id);
        let may_repeat = http2.may_repeat();
        let session = &mut http2.connections[index];
        session.is_draining = true;
        if !may_repeat {
            return self.fail_stream(id, Fault::Closed, error.to_string());
        }
        session.waiting.push(id);
        session.active -= usize::from(http2.streams[id].take().is_some());
        self.tally.retried += 1;
        self.reopen_drained(index);
    }

    /// Opens the connection again once no stream is left on one that takes no more.
    fn reopen_drained(&mut self, index: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let session = &mut http2.connections[index];
        if session.active > 0 || !session.is_draining {
            return;
        }
        session.close();
        if !session.waiting.is_empty() {
            self.open_session(index);
        }
    }

    fn open_session(&mut self, index: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let destination = &self.plan.destinations[index % http2.destinations];
        let token = Token(http2.streams.len() + index);
        let opened = Transport::connect(destination.address, self.plan.socket).and_then(|mut transport| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(transport.socket(), token, interest)?;
            transport.socket().set_nodelay(true)?;
            Ok(transport)
        });
        let carrier = &mut http2.connections[index].carrier;
        carrier.restart();
        carrier.ready = self.now;
        match opened {
            Ok(transport) => {
                carrier.transport = Some(transport);
                carrier.stage = ConnectionStage::Connecting;
            }
            Err(error) => self.session_failed(index, Fault::Connect, &error),
        }
    }

    /// Handles an event on a connection.
    pub(super) fn on_session_event(&mut self, token: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let index = token.wrapping_sub(http2.streams.len());
        let Some(session) = http2.connections.get_mut(index) else { return };
        match session.carrier.stage {
            ConnectionStage::Connecting | ConnectionStage::Tunnelling | ConnectionStage::Handshaking => {
                self.prepare_session(index);
            }
            _ => http2.ready.push(token),
        }
    }

    fn prepare_session(&mut self, index: usize) {
        self.now = Instant::now();
        let Some(http2) = &mut self.http2 else { return };
        let session = &mut http2.connections[index];
        let destination = &self.plan.destinations[index % http2.destinations];
        let ready = prepared(&mut session.carrier, destination, &mut self.reader).and_then(|is_ready| {
            if is_ready {
                let tls = session.carrier.transport.as_ref().and_then(Transport::session);
                if let Some(tls) = tls {
                    let is_counted = self.now >= self.measured_from;
                    let is_resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
                    self.tally.resumed += u64::from(is_counted && is_resumed);
                    self.tls.get_or_insert_with(|| TlsParameters::of(tls));
                }
                session.begin(http2.streams_max)?;
                session.carrier.stage = ConnectionStage::Idle;
            }
            Ok(is_ready)
        });
        match ready {
            Ok(false) => {}
            Ok(true) => self.session_opened(index),
            Err(error) => self.session_failed(index, Fault::Connect, &error),
        }
    }

    /// Starts the exchanges that have waited for a connection.
    fn session_opened(&mut self, index: usize) {
        self.connect_failures = 0;
        let Some(http2) = &mut self.http2 else { return };
        let session = &mut http2.connections[index];
        let connect = self.now - session.carrier.ready;
        for (number, id) in std::mem::take(&mut session.waiting).into_iter().enumerate() {
            let connection = &mut self.connections[id];
            // One of them has opened it.
            connection.fresh = number == 0;
            connection.connect = connect;
            connection.ready = self.now;
            self.send_stream(id);
        }
    }

    /// Fails all exchanges of a connection that could not be opened, or has ended. However many there are,
    /// they are one failure to connect.
    #[cold]
    fn session_failed(&mut self, index: usize, fault: Fault, error: &io::Error) {
        if fault == Fault::Connect {
            self.connect_failed(index, error.kind(), Some(error));
        }
        let Some(http2) = &mut self.http2 else { return };
        let session = &mut http2.connections[index];
        session.close();
        let mut failed = std::mem::take(&mut session.waiting);
        session.active = 0;
        for id in 0..http2.streams.len() {
            if http2.session_of(id) == index && http2.streams[id].take().is_some() {
                failed.push(id);
            }
        }
        for id in failed {
            if fault == Fault::Connect {
                self.connections[id].stage = ConnectionStage::Closed;
                self.fail(id, fault, error.kind(), Some(error));
            } else {
                self.fail_stream(id, fault, error.to_string());
            }
        }
    }

    /// Moves the bytes of connections and the exchanges that can go on, until none can.
    pub(super) fn drive(&mut self) {
        loop {
            let Some(http2) = &mut self.http2 else { return };
            let mut ids = std::mem::take(&mut http2.scratch);
            http2.ready.take(&mut ids);
            if ids.is_empty() {
                http2.scratch = ids;
                return;
            }
            let exchanges = http2.streams.len();
            // Streams first: their frames are then sent together.
            for id in ids.iter().filter(|id| **id < exchanges) {
                self.advance(*id);
            }
            ids.retain(|id| *id >= exchanges);
            ids.sort_unstable();
            ids.dedup();
            for id in &ids {
                self.poll_session(id - exchanges);
            }
            ids.clear();
            if let Some(http2) = &mut self.http2 {
                http2.scratch = ids;
            }
        }
    }

    fn poll_session(&mut self, index: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let session = &mut http2.connections[index];
        let ended = session.poll();
        self.now = Instant::now();
        let (received, sent) = session.take_traffic();
        if self.now >= self.measured_from {
            self.tally.bytes_received += received;
            self.tally.bytes_sent += sent;
        }
        if let Poll::Ready(error) = ended {
            self.session_ended(index, error);
        }
    }

    /// Handles the end of a connection. Its streams have ended with it, and say so when they are polled.
    #[cold]
    fn session_ended(&mut self, index: usize, error: Option<h2::Error>) {
        let Some(http2) = &mut self.http2 else { return };
        http2.connections[index].is_draining = true;
        let exchanges: Vec<usize> = (0..http2.streams.len())
            .filter(|id| http2.session_of(*id) == index && http2.streams[*id].is_some())
            .collect();
        // Responses that arrived before the end are complete.
        for id in exchanges {
            self.advance(id);
        }
        let Some(http2) = &mut self.http2 else { return };
        let session = &http2.connections[index];
        if !session.has_connection() {
            // The last of its streams has closed it, and perhaps the next one is being opened.
            return;
        }
        if session.active > 0 {
            let error = error.map_or_else(|| io::ErrorKind::UnexpectedEof.into(), io::Error::other);
            return self.session_failed(index, Fault::Closed, &error);
        }
        self.reopen_drained(index);
    }

    /// Takes the next parts of a response.
    fn advance(&mut self, id: usize) {
        loop {
            let Some(http2) = &mut self.http2 else { return };
            let Some(exchange) = &mut http2.streams[id] else { return };
            let polled = exchange.poll(&mut Context::from_waker(&http2.wakers[id]));
            let response = &mut self.connections[id].response;
            match polled {
                Poll::Pending => return,
                Poll::Ready(Ok(Part::Head(head))) => {
                    response.begin_http2(&head, self.plan, self.now);
                    self.reader.server.get_or_insert_with(|| {
                        let value = head.headers.get(http::header::SERVER);
                        let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()));
                        text.iter().flat_map(|text| text.split(' ')).next().unwrap_or_default().to_owned()
                    });
                }
                Poll::Ready(Ok(Part::Data(data))) => response.process_http2(&data, self.plan),
                Poll::Ready(Ok(Part::End)) => {
                    response.end_http2(self.plan);
                    http2.repeats = 0;
                    self.end_stream(id);
                    return self.finish(id, self.now, true);
                }
                Poll::Ready(Err(error)) => return self.stream_failed(id, &error),
            }
        }
    }

    /// Removes a stream from its connection. If it is dropped before its end, it is reset.
    fn end_stream(&mut self, id: usize) {
        let Some(http2) = &mut self.http2 else { return };
        let index = http2.session_of(id);
        if http2.streams[id].take().is_some() {
            http2.connections[index].active -= 1;
        } else {
            let session = &mut http2.connections[index];
            session.waiting.retain(|other| *other != id);
            // A connection that nobody waits for any more may take for ever.
            if session.waiting.is_empty() && !session.has_connection() {
                session.close();
            }
        }
        self.reopen_drained(index);
    }

    /// Repeats an exchange that the target has not processed. Otherwise it has failed.
    #[cold]
    fn stream_failed(&mut self, id: usize, error: &h2::Error) {
        let is_unprocessed =
            error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        if is_unprocessed && self.connections[id].response.status.is_none() {
            return self.repeat(id, error);
        }
        if error.is_remote()
            && error.reason() == Some(h2::Reason::REFUSED_STREAM)
            && self.http2.as_mut().is_some_and(Sessions::may_repeat)
        {
            // The target had not told its limit of streams yet when they were opened.
            self.tally.retried += 1;
            self.end_stream(id);
            return self.begin_stream(id);
        }
        let fault = if error.is_library() {
            Fault::Protocol
        } else if error.is_io() {
            Fault::Receive
        } else {
            Fault::Closed
        };
        self.fail_stream(id, fault, error.to_string());
    }

    /// Counts an exchange that has failed, and starts the next one.
    #[cold]
    pub(super) fn fail_stream(&mut self, id: usize, fault: Fault, text: String) {
        self.end_stream(id);
        // Only an exchange that timed out has a time, and it has opened no connection.
        self.connections[id].fresh = fault != Fault::Timeout;
        self.connections[id].stage = ConnectionStage::Closed;
        self.fail(id, fault, io::ErrorKind::Other, Some(&io::Error::other(text)));
    }
}
