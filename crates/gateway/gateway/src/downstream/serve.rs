//! Serves a client's connection: receives one request after the other, and holds no buffers while it waits.
//! Over HTTP/2, the requests of a connection are served beside each other.

mod streams;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use egret_clients::{Clients, Proven, Unproven};
use egret_clock::Moment;
use egret_diagnosis::Pin;
use egret_export::access_log::LogLine;
use egret_http1::Method;
use egret_http2::is_preface;
use egret_leg::{HeadRoom, Leg, NoHead, Received};
use egret_message::{ListenAddress, RequestId};
use egret_net::buffer::Buffer;
use egret_net::event_loop::{self, Socket, spawn};
use egret_net::os::kernel::TcpStream;
use egret_net::socks::SocksError;
use egret_net::tls::{ServerTls, TlsError, TlsStream, accept};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::ListenerRouting;
use tracing::{debug, warn};

use crate::downstream::connection::{ClientConnection, ClientLeg, ConnectionSlot, End};
use crate::downstream::{intercept, redirect};
use crate::exchange::serve::serve_request;
use crate::state::request::RequestState;
use crate::worker::Worker;

/// Time that a client may go on sending after a response that closes the connection. If the gateway closed at
/// once, the client's kernel would discard the response.
const LINGER: Duration = Duration::from_secs(2);
/// Time that an idle connection stays open once the gateway begins to drain: a request may be on its way.
const DRAIN_LINGER: Duration = Duration::from_secs(1);

/// Serves a client's connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, socket: TcpStream, listener: ListenAddress) {
    let slot = ConnectionSlot::new(Rc::clone(&worker));
    let socket = match Socket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return warn!(%error, "cannot serve a client connection"),
    };
    let (tls, redirects, socks, user) = match worker.view().plan.listener(listener) {
        Some(listener) => (
            listener.tls.clone().map(|tls| (tls, listener.clients.clone())),
            matches!(listener.routing, ListenerRouting::Redirected),
            matches!(listener.routing, ListenerRouting::Socks)
                .then_some(listener.clients.as_ref().is_some_and(|clients| clients.ask_for_tokens())),
            listener.clients.as_ref().and_then(|clients| clients.of_user(|| socket.peer_user().ok())),
        ),
        None => (None, false, None, None),
    };
    let (leg, proven) = match tls {
        None => match socks {
            None => (Leg::plain(socket), user),
            Some(asks) => (Leg::socks(socket, asks), user),
        },
        Some((tls, clients)) => match Box::pin(enter(&worker, socket, tls, clients)).await {
            Some((stream, proven)) => (Leg::tls(stream), proven.or(user)),
            None => return,
        },
    };
    let client = ClientLeg::new(ClientConnection::new(slot, listener, proven, None), leg);
    if client.leg.begins_http2() && !redirects {
        return spawn(streams::serve(client, Box::default()));
    }
    let mut task = ClientTask { client };
    if redirects {
        match Box::pin(task.serve_redirected()).await {
            Next::Request => {}
            Next::Nothing => return,
            Next::Streams(ahead) => return spawn(streams::serve(task.client, ahead)),
        }
    }
    if let Next::Streams(ahead) = task.run().await {
        spawn(streams::serve(task.client, ahead));
    }
}

/// Serves the request of a stream.
async fn serve_stream(client: ClientLeg) {
    let worker = Rc::clone(&client.connection.worker);
    let mut task = ClientTask { client };
    let mut state = worker.pools.take_state();
    task.serve_one(&mut state).await;
    worker.return_state(state);
    if task.client.leg.is_incomplete_stream() {
        // The connection's task runs first, and sends the rest: some clients drop what comes with a reset.
        give_turn().await;
    }
}

/// Lets the tasks run that have been woken so far.
async fn give_turn() {
    let mut is_given = false;
    poll_fn(|cx| {
        if is_given {
            return Poll::Ready(());
        }
        is_given = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Serves a recorded request that is sent again, on a connection within the process: without TLS, whatever
/// the listener wants of its clients' connections.
pub(crate) async fn serve_resent(
    worker: Rc<Worker>,
    socket: TcpStream,
    listener: ListenAddress,
    pin: Box<Pin>,
) {
    let slot = ConnectionSlot::new(worker);
    let socket = match Socket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return warn!(%error, "cannot send a recorded request again"),
    };
    let connection = ClientConnection::new(slot, listener, None, Some(pin));
    ClientTask { client: ClientLeg::new(connection, Leg::plain(socket)) }.run().await;
}

/// Performs the TLS handshake that a client must begin, and reads what its certificate proves if the listener
/// has `clients` that need one. Returns `None` if the connection is over.
async fn enter(
    worker: &Worker,
    socket: Socket,
    tls: ServerTls,
    clients: Option<Arc<Clients>>,
) -> Option<(TlsStream, Option<Arc<Proven>>)> {
    let stream = shake_hands(worker, socket, tls).await?;
    match clients.and_then(|clients| clients.of_certificate(stream.peer_certificate())) {
        None => Some((stream, None)),
        Some(Ok(proven)) => Some((stream, Some(proven))),
        Some(Err(unproven)) => {
            worker.counters().unproven(unproven);
            debug!("the certificate of a client has no usable name (`clients.name_from`)");
            None
        }
    }
}

/// Performs the TLS handshake that a client must begin. Returns `None` if it fails or exceeds the timeout for
/// a request's head.
async fn shake_hands(worker: &Worker, socket: Socket, tls: ServerTls) -> Option<TlsStream> {
    let patience = worker.view().plan.timeouts.head.unwrap_or(Duration::MAX);
    let shaken = event_loop::timeout(patience, accept(socket, &tls)).await;
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => {
            if matches!(error, TlsError::Certificate(_)) {
                worker.counters().unproven(Unproven::Certificate);
            }
            debug!(%error, "a client's TLS handshake failed");
        }
        Err(_) => debug!("a client's TLS handshake timed out"),
    }
    worker.counters().tls_failures.add(1);
    None
}

/// Returns the error of a client whose handshake of SOCKS is refused.
fn refused_handshake(worker: &Worker, error: SocksError) -> Failure {
    debug!(%error, "a client's handshake of SOCKS is refused");
    let kind = if error == SocksError::NoCredentials {
        worker.counters().unproven(Unproven::Missing);
        ErrorKind::ClientUnproven
    } else {
        ErrorKind::BadRequest
    };
    Failure::new(kind, error.to_string())
}

/// The result of waiting for a request.
enum Arrival {
    /// A complete request head.
    Head,
    /// Spurious readiness: nothing to read after all.
    Nothing,
    /// The connection was closed.
    End,
}

/// The continuation of a connection.
enum Next {
    /// Another request.
    Request,
    Nothing,
    /// Streams of HTTP/2, of which these bytes have arrived.
    Streams(Box<[u8]>),
}

impl Next {
    /// Returns what follows `end`, with `input` behind it.
    #[inline]
    fn after(end: End, input: &Buffer) -> Self {
        match end {
            End::Persist => Self::Request,
            End::Http2 => Self::Streams(input.filled().into()),
            End::Close | End::Linger => Self::Nothing,
        }
    }
}

/// The task of a client's connection, or of one of its streams.
struct ClientTask {
    client: ClientLeg,
}

impl ClientTask {
    /// Serves requests to the end of the connection, or of HTTP/1.1 on it. Returns what follows.
    async fn run(&mut self) -> Next {
        while self.wait_for_request().await {
            match self.requests().await {
                Next::Request => {}
                next => return next,
            }
        }
        Next::Nothing
    }

    /// Returns [`serve_requests`](Self::serve_requests) as a future of its own, so a waiting connection takes
    /// no more memory than waiting needs. Were this inlined, a kilobyte would be copied for each request.
    #[inline(never)]
    fn requests(&mut self) -> impl Future<Output = Next> + Unpin {
        Box::pin(self.serve_requests())
    }

    /// Waits for the first byte of a request. Returns `false` if none arrives in time.
    async fn wait_for_request(&mut self) -> bool {
        let timeouts = self.client.connection.worker.view().plan.timeouts;
        self.client.timer.set(self.client.last_active, timeouts.keep_alive);
        self.client.connection.worker.counters().idle.add(1);
        let mut told_to_stop = false;
        let readable = poll_fn(|cx| {
            if self.client.leg.poll_readable(cx).is_ready() {
                return Poll::Ready(true);
            }
            if self.client.connection.worker.draining.get() && !told_to_stop {
                told_to_stop = true;
                self.client.timer.set(Moment::now(), Some(DRAIN_LINGER));
            }
            if self.client.timer.poll_expired(cx) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await;
        self.client.connection.worker.counters().idle.sub(1);
        readable
    }

    /// Serves the beginning of a redirected connection. Returns what follows.
    async fn serve_redirected(&mut self) -> Next {
        let mut state = self.client.connection.worker.pools.take_state();
        self.client.connection.worker.pools.buffers.lend(&mut state.input);
        state.request.reset();
        let end = if redirect::begin(&mut self.client, &mut state).await {
            self.serve_with(&mut state).await
        } else {
            End::Linger
        };
        if matches!(end, End::Linger) {
            self.linger(&mut state.input).await;
        }
        let next = Next::after(end, &state.input);
        self.client.connection.worker.return_state(state);
        next
    }

    /// Serves requests until there is a pause. Returns what follows.
    async fn serve_requests(&mut self) -> Next {
        let mut state = self.client.connection.worker.pools.take_state();
        let end = self.serve_with(&mut state).await;
        if matches!(end, End::Linger) {
            self.linger(&mut state.input).await;
        }
        let next = Next::after(end, &state.input);
        self.client.connection.worker.return_state(state);
        next
    }

    /// Serves the only request.
    async fn serve_one(&mut self, state: &mut RequestState) {
        self.client.connection.worker.pools.buffers.lend_small(&mut state.input);
        state.request.reset();
        match self.receive_head(state).await {
            Ok(Arrival::Head) => {
                serve_request(&mut self.client, state).await;
            }
            Ok(Arrival::Nothing | Arrival::End) => {}
            Err(failure) => {
                Box::pin(self.refuse(state, &failure)).await;
            }
        }
    }

    /// Returns `true` if what has been received begins HTTP/2 instead of a request.
    #[cold]
    fn is_http2(&self, state: &RequestState) -> bool {
        is_preface(state.input.filled())
            && !self.client.leg.is_stream()
            && self.client.connection.is_unused()
            && self.client.connection.inside().is_none()
            && self.client.connection.worker.view().plan.http2
    }

    async fn serve_with(&mut self, state: &mut RequestState) -> End {
        self.client.connection.worker.pools.buffers.lend(&mut state.input);
        state.request.reset();
        loop {
            let end = match self.receive_head(state).await {
                Ok(Arrival::Head) => serve_request(&mut self.client, state).await,
                Ok(Arrival::Nothing) => End::Persist,
                Ok(Arrival::End) => {
                    intercept::note_end(&self.client);
                    End::Close
                }
                Err(_) if self.is_http2(state) => End::Http2,
                // Boxed, because few messages are refused.
                Err(failure) => Box::pin(self.refuse(state, &failure)).await,
            };
            if !matches!(end, End::Persist) || state.input.filled().is_empty() {
                return end;
            }
        }
    }

    /// Receives a request head.
    async fn receive_head(&mut self, state: &mut RequestState) -> Result<Arrival, Failure> {
        let view = self.client.connection.worker.view();
        let plan = &view.plan;
        let worker = Rc::clone(&self.client.connection.worker);
        let room = HeadRoom { limits: &plan.head_limits, buffers: &worker.pools.buffers };
        let mut is_timed = false;
        poll_fn(|cx| {
            let RequestState { input, request, .. } = &mut *state;
            let before = input.filled().len();
            let polled = self.client.leg.poll_head(cx, input, request, room);
            let received = input.filled().len().saturating_sub(before);
            worker.counters().received_bytes.add(received as u64);
            match polled {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(Arrival::Head)),
                Poll::Ready(Err(NoHead::End | NoHead::Gone(_))) => Poll::Ready(Ok(Arrival::End)),
                Poll::Ready(Err(NoHead::Malformed(error))) => Poll::Ready(Err(Failure::bad_request(error))),
                Poll::Ready(Err(NoHead::Socks(error))) => Poll::Ready(Err(refused_handshake(&worker, error))),
                Poll::Pending if input.filled().is_empty() => Poll::Ready(Ok(Arrival::Nothing)),
                Poll::Pending => {
                    if !is_timed {
                        // The timeout starts with the first byte, which ended the wait before this.
                        self.client.head_since = Moment::now();
                        self.client.timer.set(self.client.head_since, plan.timeouts.head);
                        is_timed = true;
                    }
                    if !self.client.timer.poll_expired(cx) {
                        return Poll::Pending;
                    }
                    let detail = "the request head did not arrive in time";
                    Poll::Ready(Err(Failure::new(ErrorKind::RequestTimeout, detail)))
                }
            }
        })
        .await
    }

    /// Responds to a request that could not be parsed, and closes the connection, because the start of the
    /// next request is unknown.
    async fn refuse(&mut self, state: &mut RequestState, failure: &Failure) -> End {
        self.client.connection.worker.counters().generated(failure.kind);
        let view = self.client.connection.worker.view();
        let status = failure.status(&view.plan.errors);
        self.client.connection.worker.identify(&view.plan, None, &mut state.request_id);
        view.unrouted.counters().exchange(Method::Other, status);
        self.log_refusal(failure, status, &state.request_id);
        let stats = &view.unrouted.plan.stats;
        stats.errors.respond(stats.name(), failure, status, &state.request_id);
        state.input.clear();
        let (errors, shape) = (&view.plan.errors, view.plan.errors.general_shape());
        self.client.send_all(&failure.response(errors, shape, false, &state.request_id)).await;
        End::Linger
    }

    fn log_refusal(&self, failure: &Failure, status: u16, id: &RequestId) {
        self.client.connection.worker.log_access(|| LogLine {
            client: self.client.peer_address(),
            error: Some(failure.kind.slug()),
            status,
            request_id: id.text(),
            is_intercepted: self.client.connection.inside().is_some(),
            ..LogLine::default()
        });
    }

    /// Shuts down the sending side, and reads and discards what the client still sends, for a limited time.
    async fn linger(&mut self, input: &mut Buffer) {
        self.client.timer.set(Moment::now(), Some(LINGER));
        let mut shut = false;
        poll_fn(|cx| {
            if !shut {
                if self.client.leg.poll_finish(cx).is_pending() {
                    return if self.client.timer.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending };
                }
                shut = true;
            }
            loop {
                input.clear();
                match self.client.leg.poll_receive(cx, input) {
                    Poll::Ready(Received::Data(_)) => {}
                    Poll::Ready(Received::End | Received::Gone(_)) => return Poll::Ready(()),
                    Poll::Pending if self.client.timer.poll_expired(cx) => return Poll::Ready(()),
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

    /// Returns the size of the future that `make` would return, without calling it.
    fn size_of_future<A, B, C, F: Future>(_make: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_needs_next_to_nothing() {
        // The event loop also holds the task's waker and the socket.
        let bytes = size_of_future(serve);
        assert!(bytes <= 512, "{bytes}");
    }

    #[test]
    fn serving_a_request_is_small_enough_for_the_allocators_fast_way() {
        let bytes = size_of_future(|task: &mut ClientTask, (), ()| task.serve_requests());
        assert!(bytes <= 1024, "{bytes}");
    }
}
