//! A client's connection: requests one after the other, nothing held while it waits for the next.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{Method, Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead};
use tracing::{debug, warn};

use crate::event_loop::{self, Socket};
use crate::exchange;
use crate::exchange::access_log::Record;
use crate::exchange::failure::{ErrorKind, Failure};
use crate::exchange::pace::Patience;
use crate::exchange::pipe::Pipe;
use crate::upstream::stream::Stream;
use crate::upstream::tls::{ServerTls, accept};
use crate::worker::Worker;
use crate::worker::buffer::Buffer;
use crate::worker::timer::Timer;

/// How long a client may go on sending after an answer that closes the connection: closing at once would make its system throw
/// the answer away.
const LINGER: Duration = Duration::from_secs(2);
/// How long a connection that waits for a request stays open once the gateway is told to stop: one may be on its way.
const DRAIN_LINGER: Duration = Duration::from_secs(1);

/// Buffers and tables for one request. A worker lends one to each connection with an exchange under way.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    /// Received from the client: the head of the request, then its body or what follows it.
    pub input: Buffer,
    pub request: RequestHead,
    /// The request's body.
    pub up: Pipe,
    /// State of the response: empty until [`take_response_state`](Self::take_response_state).
    pub response_state: Box<ResponseState>,
    has_response_state: bool,
}

/// Buffers and tables for one response.
#[derive(Debug, Default)]
pub(crate) struct ResponseState {
    /// Received from the provider.
    pub output: Buffer,
    pub response: ResponseHead,
    /// The response's body.
    pub down: Pipe,
}

impl RequestState {
    /// Prepares for a response. Takes the response state that the worker used last and leaves its own: most
    /// responses come and go in one turn, so a hundred exchanges under way touch the memory of one.
    pub fn take_response_state(&mut self, worker: &Worker) {
        if !self.has_response_state {
            self.has_response_state = true;
            mem::swap(&mut self.response_state, &mut worker.response_state.borrow_mut());
            worker.buffers.lend(&mut self.response_state.output);
        }
    }

    /// Takes over a response that has been received elsewhere.
    pub fn set_response_state(&mut self, response_state: Box<ResponseState>) {
        self.has_response_state = true;
        self.response_state = response_state;
    }

    /// Whether there is, or has been, something of a response.
    pub fn has_response_state(&self) -> bool {
        self.has_response_state
    }

    /// Forgets the response.
    pub fn return_response_state(&mut self, worker: &Worker) {
        if self.has_response_state {
            self.has_response_state = false;
            worker.buffers.take_back(&mut self.response_state.output);
            self.response_state.response.reset();
            self.response_state.down.reset(ResponseFraming::None, false);
            mem::swap(&mut self.response_state, &mut worker.response_state.borrow_mut());
        }
    }

    /// Makes ready to send the request that has just been parsed.
    pub fn reset_up(&mut self) {
        let framing = self.request.framing;
        self.up.reset(framing, framing == RequestFraming::Chunked);
    }
}

/// What came where a request was to come.
enum Received {
    /// The head of one.
    Head,
    /// Nothing, though the system seemed to have something.
    Nothing,
    /// The end of the connection.
    End,
}

/// What is to be done with a client's connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Wait for the next request.
    Persist,
    /// Close it.
    Close,
    /// Close it once the client has read the answer, or at least had the time to.
    Linger,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub worker: Rc<Worker>,
    pub stream: Stream,
    /// The address of the listener that it came in by.
    pub listener: SocketAddr,
    pub timer: Timer,
    /// The client's address, once somebody has asked for it.
    peer: OnceCell<Option<SocketAddr>>,
    /// When the first byte of the head was here that did not come in one piece last.
    head_since: Moment,
    /// Requests received on it.
    pub requests: u32,
    /// When the last exchange ended, or the connection came in.
    pub last_active: Moment,
    /// Whether the client has closed its sending side.
    pub half_closed: bool,
    /// Given up last, when the socket is closed.
    _place: ConnectionSlot,
}

/// Serves a client's connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, socket: TcpStream, listener: SocketAddr) {
    let place = ConnectionSlot::new(Rc::clone(&worker));
    let socket = match Socket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return warn!(%error, "a client connection could not be taken on"),
    };
    let tls = worker.view().plan.listener(listener).and_then(|listener| listener.tls.clone());
    let stream = match tls {
        None => Stream::Plain(socket),
        Some(tls) => match Box::pin(shake_hands(&worker, socket, tls)).await {
            Some(stream) => stream,
            None => return,
        },
    };
    let mut client = Client::new(place, stream, listener);
    while client.wait_for_request().await {
        // Apart from the waiting, so that a connection that waits takes no more memory than the waiting needs.
        if !Box::pin(client.serve_requests()).await {
            return;
        }
    }
}

/// Does the handshake that a client has to begin; none if it fails or takes longer than a request's head may.
async fn shake_hands(worker: &Worker, socket: Socket, tls: ServerTls) -> Option<Stream> {
    let patience = worker.view().plan.timeouts.head.unwrap_or(Duration::MAX);
    let shaken = event_loop::timeout(patience, accept(socket, &tls)).await;
    match shaken {
        Ok(Ok(stream)) => return Some(Stream::Tls(stream)),
        Ok(Err(error)) => debug!(%error, "a client's TLS handshake failed"),
        Err(_) => debug!("a client's TLS handshake took too long"),
    }
    worker.counters().tls_failures.add(1);
    None
}

/// The place of one client connection among those that may be open. The acceptor has counted it for this worker.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    worker: Rc<Worker>,
    is_counted: bool,
}

impl ConnectionSlot {
    /// Of a connection that has come in.
    pub fn new(worker: Rc<Worker>) -> Self {
        worker.counters().accepted.add(1);
        worker.counters().open.add(1);
        Self { worker, is_counted: true }
    }

    /// Of a client that there is none of.
    pub fn of_nobody(worker: Rc<Worker>) -> Self {
        Self { worker, is_counted: false }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Self { worker, is_counted } = self;
        if !*is_counted {
            return;
        }
        worker.counters().open.sub(1);
        worker.shared.connections[worker.number].fetch_sub(1, Relaxed);
        worker.has_closed();
    }
}

impl Client {
    /// A connection that came in by `listener`.
    pub fn new(place: ConnectionSlot, stream: Stream, listener: SocketAddr) -> Self {
        let worker = Rc::clone(&place.worker);
        let timer = worker.timers.timer();
        let now = Moment::now();
        Self {
            worker,
            stream,
            listener,
            timer,
            peer: OnceCell::new(),
            head_since: now,
            requests: 0,
            last_active: now,
            half_closed: false,
            _place: place,
        }
    }

    /// The address that the client connected to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.socket().local_addr().ok()
    }

    /// The client's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        *self.peer.get_or_init(|| self.stream.socket().peer_addr().ok())
    }

    /// When the first byte of the request was here whose head had been parsed at `begun`.
    pub fn request_since(&self, begun: Moment) -> Moment {
        // One of a request before is older.
        if self.head_since > self.last_active { self.head_since } else { begun }
    }

    /// Waits for the first byte of a request; false when none came in time.
    async fn wait_for_request(&mut self) -> bool {
        let timeouts = self.worker.view().plan.timeouts;
        self.timer.set(self.last_active, timeouts.keep_alive);
        self.worker.counters().idle.add(1);
        let mut told_to_stop = false;
        let readable = poll_fn(|cx| {
            if self.stream.poll_readable(cx).is_ready() {
                return Poll::Ready(true);
            }
            if self.worker.draining.get() && !told_to_stop {
                told_to_stop = true;
                self.timer.set(Moment::now(), Some(DRAIN_LINGER));
            }
            if self.timer.poll_expired(cx) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await;
        self.worker.counters().idle.sub(1);
        readable
    }

    /// Serves requests as long as they come without a pause. Says whether the connection stays open.
    async fn serve_requests(&mut self) -> bool {
        let mut state = self.worker.states.borrow_mut().pop().unwrap_or_default();
        let end = self.serve_with(&mut state).await;
        if end == End::Linger {
            self.linger(&mut state.input).await;
        }
        self.worker.return_state(state);
        end == End::Persist
    }

    async fn serve_with(&mut self, state: &mut RequestState) -> End {
        self.worker.buffers.lend(&mut state.input);
        state.request.reset();
        loop {
            let end = match self.receive_head(state).await {
                Ok(Received::Head) => exchange::run(self, state).await,
                Ok(Received::Nothing) => End::Persist,
                Ok(Received::End) => End::Close,
                Err(failure) => self.refuse(state, &failure).await,
            };
            if end != End::Persist || state.input.filled().is_empty() {
                return end;
            }
        }
    }

    /// Receives a request head.
    async fn receive_head(&mut self, state: &mut RequestState) -> Result<Received, Failure> {
        let view = self.worker.view();
        let plan = &view.plan;
        let mut timed = false;
        loop {
            if !state.input.filled().is_empty() {
                match state
                    .request
                    .parse(state.input.filled(), &plan.head_limits)
                    .map_err(Failure::bad_request)?
                {
                    Progress::Complete => return Ok(Received::Head),
                    // Old clients end a body with an empty line that is not part of it (RFC 9112 §2.2).
                    Progress::Partial if state.input.filled() == b"\r\n" => {
                        state.request.reset();
                        state.input.clear();
                    }
                    Progress::Partial => {}
                }
                if !timed {
                    // Counts from the first byte, which the waiting before this has seen.
                    self.head_since = Moment::now();
                    self.timer.set(self.head_since, plan.timeouts.head);
                    timed = true;
                }
                if state.input.is_full() {
                    self.worker.buffers.grow(&mut state.input, plan.head_limits.head + 1);
                }
            }
            let received = poll_fn(|cx| {
                if let Poll::Ready(received) = self.stream.poll_read(cx, state.input.spare()) {
                    return Poll::Ready(Some(received));
                }
                let nothing = state.input.filled().is_empty();
                if nothing || self.timer.poll_expired(cx) { Poll::Ready(None) } else { Poll::Pending }
            })
            .await;
            match received {
                Some(Ok(0) | Err(_)) => return Ok(Received::End),
                Some(Ok(count)) => {
                    self.worker.counters().received_bytes.add(count as u64);
                    state.input.advance(count);
                }
                None if state.input.filled().is_empty() => return Ok(Received::Nothing),
                None => {
                    return Err(Failure::new(
                        ErrorKind::RequestTimeout,
                        "the request head did not arrive in time",
                    ));
                }
            }
        }
    }

    /// Answers a request that could not even be read, and ends the connection: where the next request starts is not known.
    async fn refuse(&mut self, state: &mut RequestState, failure: &Failure) -> End {
        self.worker.counters().generated(failure.kind);
        let view = self.worker.view();
        let status = failure.status(&view.plan.errors);
        view.nowhere.counters().exchange(Method::Other, status);
        self.log_refusal(failure, status);
        state.input.clear();
        self.send_all(&failure.answer(&view.plan.errors, true, false)).await;
        End::Linger
    }

    fn log_refusal(&self, failure: &Failure, status: u16) {
        self.worker.shared.access_log.write_if_on(self.worker.counters(), || Record {
            client: self.peer_address(),
            error: Some(failure.kind.slug()),
            status,
            ..Record::default()
        });
    }

    /// Closes the connection so that the client sees that something is missing: with a reset.
    pub fn abort(&self) {
        // If the system refuses, an orderly close is all there is.
        let _ = socket2::SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
    }

    /// Sends all of `bytes`, unless the client takes too long (`timeouts.idle`), takes too little
    /// (`limits.body_rate`) or is gone.
    pub async fn send_all(&mut self, bytes: &[u8]) -> bool {
        let idle = self.worker.view().plan.timeouts.idle;
        let mut patience = Patience::new(self, idle, Moment::now());
        let mut sent = 0;
        poll_fn(|cx| {
            while sent < bytes.len() {
                match self.stream.poll_write(cx, &[IoSlice::new(&bytes[sent..])]) {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        sent += count;
                        if sent < bytes.len() {
                            patience.note_taken(self, count as u64);
                        }
                    }
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending if patience.is_lost(self, cx, true) => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
            self.worker.counters().sent_bytes.add(bytes.len() as u64);
            Poll::Ready(true)
        })
        .await
    }

    /// Says that nothing more is coming, and takes in what the client still sends, within bounds.
    async fn linger(&mut self, input: &mut Buffer) {
        self.timer.set(Moment::now(), Some(LINGER));
        let mut shut = false;
        poll_fn(|cx| {
            if !shut {
                if self.stream.poll_shutdown(cx).is_pending() {
                    return if self.timer.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending };
                }
                shut = true;
            }
            loop {
                input.clear();
                match self.stream.poll_read(cx, input.spare()) {
                    Poll::Ready(Ok(count)) if count > 0 => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending if self.timer.poll_expired(cx) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a future that `make` would make, without making it.
    fn size_of_future<A, B, C, F: Future>(_make: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_needs_next_to_nothing() {
        // Besides this, the event loop keeps the task's waker and the socket.
        let bytes = size_of_future(serve);
        assert!(bytes <= 512, "{bytes}");
    }

    #[test]
    fn serving_a_request_is_small_enough_for_the_allocators_fast_way() {
        let bytes = size_of_future(|client: &mut Client, (), ()| client.serve_requests());
        assert!(bytes <= 1024, "{bytes}");
    }
}
