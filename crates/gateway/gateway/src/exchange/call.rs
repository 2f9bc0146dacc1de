//! A call: sends a request to a provider, and obtains the head of the response. One task holds both sockets.
//!
//! The common case makes four system calls: receive the request, send it, receive the response, send it. A
//! call knows no remedy: flows change it by plain data.

mod unusual;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use egret_clock::{Moment, planted};
use egret_http1::{BodyError, Edits, Method, RequestFraming};
use egret_http2::websocket_key;
use egret_leg::http1::ResponseTo;
use egret_leg::{Framing, HeadRoom, NoHead, OutgoingHead};
use egret_message::grpc::GrpcOutcome;
use egret_net::event_loop::now;
use egret_net::pace::RateWindow;
use egret_observe::counters::is_failed_status;
use egret_observe::failure::config::ErrorFormat;
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{RequestIds, UpstreamTimeouts};
use egret_store::coalescer::Followers;
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::exchange::forward::{Disclosed, edit_request};
use crate::exchange::grpc::GrpcCall;
use crate::exchange::stop::{Stop, check_pin, check_switch, not_opened, provider_closed};
use crate::recorder::Recording;
use crate::state::changes::{Inbound, Outbound};
use crate::state::request::{Clock, Deadlines, RequestState, ResponseState, Upload};
use egret_body::{Begun, PipeError};
use egret_upstream::{CallTarget, Connection, Needs, Upstream, View};

/// Time that an exchange waits for its provider before it starts to watch the client's socket too. Nearly
/// every response arrives sooner, and waking on two sockets costs more than waking on one.
const UNWATCHED: Duration = Duration::from_millis(50);

/// The kind of a response, by its status code.
pub(super) enum ResponseKind {
    Informational,
    /// The connection switches to another protocol.
    Switching,
    Final,
}

/// Returns the kind of a response with this status code.
pub(super) fn response_kind(status: u16) -> Result<ResponseKind, Failure> {
    match status {
        101 => Ok(ResponseKind::Switching),
        100..=199 => Ok(ResponseKind::Informational),
        200..=599 => Ok(ResponseKind::Final),
        _ => {
            let detail = "the provider's status code is not between 100 and 599";
            Err(Failure::new(ErrorKind::BadResponse, detail))
        }
    }
}

pub(crate) struct Call<'a> {
    pub client: &'a mut ClientLeg,
    pub state: &'a mut RequestState,
    pub view: Rc<View>,
    pub upstream: Rc<Upstream>,
    pub clock: Clock,
    pub deadlines: Deadlines,
    pub upload: Upload,
    /// Number of informational responses.
    pub informational: u8,
    /// Number of times that the provider has not processed the request.
    pub(super) refusals: u8,
    /// `true` if the client named the provider by base URL, so the response is rewritten to match.
    pub is_rewritten: bool,
    /// `true` while the response is gathered for remedies, before it is forwarded.
    pub is_gathering: bool,
    /// `true` if the provider's response says when to try again.
    pub has_retry_after: bool,
    /// The format of errors for the provider that the client has called, if it has one of its own.
    pub error_format: Option<ErrorFormat>,
    /// The error that the gateway responded with.
    pub failed: Option<ErrorKind>,
    /// Number of bytes received from the provider, apart from those of the response's pipe.
    pub received_bytes: u64,
    /// The changes that flows make to the call. `None` if there are none.
    pub outbound: Option<Box<Outbound>>,
    /// The changes that flows make to the response. `None` if there are none.
    pub inbound: Option<Box<Inbound>>,
    /// The recording that diagnoses receive. `None` if no diagnosis matches.
    pub recording: Option<Recording>,
    /// Other requests that wait for the response. `None` if there cannot be any.
    pub followers: Option<Followers>,
    /// The gRPC call that the request is, if it is one and has arrived over HTTP/2.
    pub grpc: Option<Box<GrpcCall>>,
}

impl<'a> Call<'a> {
    pub fn new(
        client: &'a mut ClientLeg,
        state: &'a mut RequestState,
        view: Rc<View>,
        upstream: Rc<Upstream>,
        begun: Moment,
    ) -> Self {
        let total = begun.after(upstream.plan.timeouts.total);
        Self {
            clock: Clock::new(begun),
            deadlines: Deadlines::new(total),
            upload: Upload::new(),
            informational: 0,
            refusals: 0,
            is_rewritten: false,
            is_gathering: false,
            has_retry_after: false,
            error_format: upstream.plan.error_format,
            failed: None,
            received_bytes: 0,
            outbound: None,
            inbound: None,
            recording: None,
            followers: None,
            grpc: None,
            client,
            state,
            view,
            upstream,
        }
    }

    /// Responds as `target` wants it: with its paths rewritten, and with its format of errors.
    pub fn answer_for(&mut self, target: &CallTarget) {
        self.is_rewritten = target.is_rewritten;
        self.error_format = target.upstream.plan.error_format;
    }

    /// Notes that the request is a gRPC call, if it is one, and ends the exchange at its deadline.
    pub fn note_grpc(&mut self) {
        let state = &*self.state;
        self.grpc = GrpcCall::of(&state.request, state.input.filled(), self.clock.begun);
        self.end_at(self.deadlines.total);
    }

    /// Returns what is known of the status of the gRPC call, if the request is one.
    pub fn grpc_outcome(&self) -> GrpcOutcome {
        self.grpc.as_ref().map_or(GrpcOutcome::NotGrpc, |grpc| grpc.outcome())
    }

    /// Ends the whole exchange at `end`, or at the client's own deadline if that is earlier.
    pub fn end_at(&mut self, end: Moment) {
        self.deadlines.total = self.grpc.as_ref().map_or(end, |grpc| end.min(grpc.deadline));
    }

    /// Takes the recording of an exchange that has ended.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Notes that the request has waited from `since` until `now`.
    pub fn note_waited(&mut self, since: Moment, now: Moment) {
        self.clock.waited_nanos += now.nanos_since(since);
    }

    /// Removes the request from the input, so the next one can follow.
    pub fn drop_request(&mut self) {
        self.upload.drop_request(self.state, &self.client.connection.worker.pools);
    }

    pub fn timeouts(&self) -> UpstreamTimeouts {
        let timeouts = self.upstream.plan.timeouts;
        let Some(outbound) = &self.outbound else { return timeouts };
        UpstreamTimeouts { first_byte: outbound.first_byte.or(timeouts.first_byte), ..timeouts }
    }

    /// Sends the request and receives the head of the final response. Retries once if a reused connection
    /// turns out to be stale; if flows have changed the call, they decide about that. A request that must not
    /// be repeated takes `fresh` connections, because a reused one may be dead.
    pub async fn obtain_response(
        &mut self,
        forward: &CallTarget,
        mut fresh: bool,
    ) -> Result<Box<Connection>, Stop> {
        if self.client.connection.pin.is_some() {
            check_pin(self)?;
        }
        let mut connection = match self.take_connection(self.clock.begun.max(now::turned()), fresh) {
            Some(connection) => {
                self.upstream.counters().pool_hits.add(1);
                connection
            }
            None => self.connect(fresh).await?,
        };
        self.refusals = 0;
        loop {
            if self.outbound.as_ref().is_some_and(|outbound| !outbound.is_permitted()) {
                self.upstream.keep(connection, now::exact(), None, None);
                self.client.connection.worker.has_kept();
                return Err(Stop::NotPermitted);
            }
            let Err(stop) = self.attempt(forward, &mut connection).await else { return Ok(connection) };
            // The next one may need its place.
            drop(connection);
            connection = match stop {
                Stop::Stale => {
                    let provider = self.upstream.plan.stats.name();
                    debug!(provider, "a reused connection was stale: sending the request again");
                    self.upstream.counters().repeats.add(1);
                    self.note_waited(self.clock.sent, Moment::now());
                    self.upload.repeat(self.state);
                    if self.outbound.is_some() {
                        return Err(Stop::Stale);
                    }
                    // A new connection cannot be stale, so the request is not sent a third time, also if the
                    // new one takes no more calls.
                    fresh = true;
                    self.connect(fresh).await?
                }
                Stop::Refused => Box::pin(self.connect_again(fresh)).await?,
                stop => return Err(stop),
            };
        }
    }

    /// Returns what the request needs of its connection.
    #[inline]
    pub fn needs(&self) -> Needs {
        let request = &self.state.request;
        match request.method {
            _ if request.upgrade => match websocket_key(request, self.state.input.filled()) {
                Some(_) => Needs::WebSocket,
                None => Needs::Http1,
            },
            // Calls of gRPC are always POSTs.
            Method::Post if self.is_grpc() => Needs::Http2,
            _ => Needs::Any,
        }
    }

    /// Takes a connection that the worker has, unless the request wants a `fresh` one.
    #[inline]
    fn take_connection(&self, now: Moment, fresh: bool) -> Option<Box<Connection>> {
        if fresh { None } else { self.upstream.take(now, self.needs()) }
    }

    async fn attempt(&mut self, forward: &CallTarget, connection: &mut Connection) -> Result<(), Stop> {
        let sent = poll_fn(|cx| Poll::Ready(self.send_request(cx, forward, connection))).await;
        self.clock.sent = now::exact();
        sent?;
        self.state.return_response_state(&self.client.connection.worker.pools);
        self.start_waiting(self.clock.sent);
        let received = poll_fn(|cx| self.poll_response(cx, connection)).await;
        match &received {
            Ok(()) => {
                if self.count_answered() {
                    self.note_failed_call(forward, connection, true);
                }
            }
            Err(Stop::Failure(failure)) => {
                self.upstream.plan.stats.errors.failed_call(failure);
                self.note_failed_call(forward, connection, false);
            }
            Err(_) => {}
        }
        received
    }

    /// Counts a call that got the head of a response. Returns `true` if its status says that it has failed.
    #[inline]
    fn count_answered(&self) -> bool {
        let counters = self.upstream.counters();
        counters.answered_calls.add(1);
        counters.waited_nanos.add(self.clock.first_byte.nanos_since(self.clock.sent));
        let status = self.state.response_state.response.status;
        let is_failed = is_failed_status(status);
        if is_failed {
            self.upstream.plan.stats.errors.failed_status(status);
        }
        is_failed
    }

    /// Collects the changes to the request for a call of `forward`, those of remedies included.
    #[inline]
    fn edit_request(&self, forward: &CallTarget, outbound: Option<&Outbound>, edits: &mut Edits) {
        let RequestState { input, request, request_id, .. } = &*self.state;
        let plan = &self.view.plan;
        let disclosed = Disclosed {
            client: if plan.forwarded_for { self.client.peer_ip() } else { None },
            request_id: if matches!(plan.request_ids, RequestIds::Sent) { request_id.made() } else { None },
            is_http2: self.client.leg.is_stream(),
        };
        let via = &self.client.connection.worker.shared.via;
        edit_request(request, input.filled(), forward, via, disclosed, outbound, edits);
        if let Some(grpc) = &self.grpc {
            grpc.edit_timeout(request, input.filled(), self.clock.begun, outbound, edits);
        }
    }

    /// Writes the head, and the part of the body that has been received, in one system call.
    fn send_request(
        &mut self,
        cx: &mut Context<'_>,
        forward: &CallTarget,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        self.tap_request();
        let worker = &self.client.connection.worker;
        let mut edits = worker.pools.edits.borrow_mut();
        self.edit_request(forward, self.outbound.as_deref(), &mut edits);
        let RequestState { input, request, up, .. } = &mut *self.state;
        let outbound = self.outbound.as_deref();
        let changed = outbound.and_then(Outbound::body);
        if let Some(body) = changed {
            up.reset(RequestFraming::Length(body.len() as u64), Framing::Length);
        }
        let is_changed = changed.is_some();
        let head = request.render(input.filled(), &edits);
        let body = changed.unwrap_or(&input.filled()[request.len..]);
        let shared = (&worker.pools.buffers, &self.view.plan.trailers);
        let begun = up.begin(cx, OutgoingHead::Edited(&head), body, &mut connection.leg, shared);
        let Begun { used, is_sink_gone } =
            begun.map_err(|error| Stop::Failure(Failure::bad_request_body(error)))?;
        if is_sink_gone {
            self.upload.refuse();
            return Ok(());
        }
        let mut kept = used;
        if let Some(outbound) = outbound {
            if let Some(order) = outbound.hedge.as_ref().filter(|_| up.is_received()) {
                order.set_request([head.to_vec().as_slice(), &body[..used]].concat());
            }
            if is_changed {
                // The body that was received stays in the input, so a repeated call can be built from it.
                kept = outbound.framed_len;
            }
        }
        self.upload.begin(self.state, kept);
        Ok(())
    }

    /// Sets the deadline of the phase that begins at `now`.
    pub(super) fn start_waiting(&mut self, now: Moment) {
        let timeouts = self.timeouts();
        let sends = self.is_sending();
        let first_byte = timeouts.first_byte.filter(|_| !planted!(WaitUnlimited));
        self.deadlines.phase = now.after(if sends { timeouts.idle } else { first_byte });
        self.deadlines.rate =
            if sends { RateWindow::starting(now, self.state.up.moved_bytes) } else { RateWindow::NONE };
        self.deadlines.watch = now + UNWATCHED;
        self.deadlines.arm(&self.client.timer);
    }

    /// Returns `true` while the request is being sent, `false` once the gateway waits for the provider to
    /// respond. A client that waits for 100 (Continue) is not late.
    fn is_sending(&self) -> bool {
        let waits_for_continue =
            self.state.request.expect_continue && self.informational == 0 && self.upload.is_repeatable();
        self.is_uploading() && !waits_for_continue
    }

    fn poll_response(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<Result<(), Stop>> {
        if self.informational > 0
            && let Poll::Ready(Err(stop)) = self.poll_informational(cx)
        {
            return Poll::Ready(Err(stop));
        }
        if self.is_uploading()
            && let Err(stop) = self.poll_request(cx, connection)
        {
            return Poll::Ready(Err(stop));
        }
        if let Poll::Ready(received) = self.poll_response_head(cx, connection) {
            return Poll::Ready(received);
        }
        let polled = self.poll_deadlines(cx);
        if polled.is_pending()
            && !self.is_uploading()
            && self.deadlines.watches_client()
            && let Err(stop) = self.watch_client(cx)
        {
            return Poll::Ready(Err(stop));
        }
        polled
    }

    /// Stays pending while the client is connected and no deadline has passed.
    pub fn poll_waiting<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        match self.watch_client(cx) {
            Ok(()) => self.poll_deadlines(cx),
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    /// Stays pending until a deadline passes.
    pub fn poll_deadlines<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        if self.client.timer.poll_expired(cx)
            && let Some(stop) = self.expired_while_waiting(cx)
        {
            return Poll::Ready(Err(stop));
        }
        Poll::Pending
    }

    /// Returns `true` if part of the request is still to be sent.
    pub fn is_uploading(&self) -> bool {
        self.upload.is_going_on(self.state)
    }

    /// Forwards more of the request's body.
    pub fn poll_request(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Result<(), Stop> {
        let before = self.state.up.moved_bytes;
        match self.poll_up(cx, connection) {
            Poll::Ready(Ok(())) => {
                self.clock.uploaded = Moment::now();
                self.start_waiting(self.clock.uploaded);
            }
            Poll::Ready(Err(
                PipeError::Malformed(BodyError::Incomplete) | PipeError::SourceGone | PipeError::Cut,
            )) => {
                return Err(Stop::ClientGone);
            }
            Poll::Ready(Err(PipeError::Malformed(error))) => {
                return Err(Stop::Failure(Failure::bad_request_body(error)));
            }
            Poll::Ready(Err(PipeError::SinkGone)) => {
                // The provider may have responded before it stopped reading.
                self.upload.refuse();
                self.start_waiting(Moment::now());
            }
            Poll::Pending if self.state.up.moved_bytes != before => self.note_progress(self.timeouts().idle),
            Poll::Pending => {}
        }
        Ok(())
    }

    pub fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<(), PipeError>> {
        let ClientLeg { leg, connection: client, .. } = &mut *self.client;
        let shared = (&client.worker.pools.buffers, &self.view.plan.trailers);
        let before = self.state.up.read_bytes;
        let polled = self.upload.poll(cx, leg, self.state, &mut connection.leg, shared);
        client.worker.counters().received_bytes.add(self.state.up.read_bytes - before);
        polled
    }

    pub fn note_progress(&mut self, idle: Option<Duration>) {
        let now = Moment::now();
        self.deadlines.phase = now.after(idle);
        self.deadlines.arm(&self.client.timer);
    }

    /// Receives the head of the final response, and passes informational ones on.
    fn poll_response_head(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<(), Stop>> {
        // A connection that waits for its provider needs no response state yet.
        if !self.state.has_response_state() {
            ready!(connection.leg.poll_readable(cx));
            self.state.take_response_state(&self.client.connection.worker.pools);
        }
        loop {
            let RequestState { request, response_state, .. } = &mut *self.state;
            let ResponseState { output, response, .. } = &mut **response_state;
            let limits = &self.view.plan.head_limits;
            let room = HeadRoom { limits, buffers: &self.client.connection.worker.pools.buffers };
            let before = output.filled().len();
            let mut head = ResponseTo { method: request.method, head: response };
            let polled = connection.leg.poll_head(cx, output, &mut head, room);
            let received = output.filled().len() - before;
            // An informational response does not end the wait for the provider: the final response is still
            // to come.
            if before == 0 && received > 0 {
                self.clock.first_byte = now::turned();
            }
            self.received_bytes += received as u64;
            match ready!(polled) {
                Ok(()) => {}
                Err(NoHead::Malformed(error)) => {
                    return Poll::Ready(Err(Stop::Failure(Failure::bad_response(error))));
                }
                Err(NoHead::End | NoHead::Socks(_)) => {
                    return Poll::Ready(Err(provider_closed(self, connection, None)));
                }
                Err(NoHead::Gone(error)) => {
                    return Poll::Ready(Err(provider_closed(self, connection, Some(error))));
                }
            }
            match response_kind(self.state.response_state.response.status).map_err(Stop::Failure)? {
                ResponseKind::Final => return Poll::Ready(self.check_final()),
                ResponseKind::Informational => self.pass_on_informational(cx, connection.leg.is_stream())?,
                ResponseKind::Switching => return Poll::Ready(check_switch(self)),
            }
        }
    }

    /// Checks that a client which has opened a stream for a WebSocket is not told of a success that is none.
    #[inline]
    fn check_final(&self) -> Result<(), Stop> {
        let is_success = matches!(self.state.response_state.response.status, 200..=299);
        if is_success && self.client.leg.opens_websocket() {
            return Err(Stop::Failure(not_opened()));
        }
        Ok(())
    }

    /// Starts to record the request's body, when it is sent or inspected.
    pub fn tap_request(&mut self) {
        if let Some(recording) = &mut self.recording {
            let state = &mut *self.state;
            let bytes = state.input.filled();
            recording.tap_request(
                &state.request,
                bytes,
                &mut state.up,
                &self.client.connection.worker.records,
            );
        }
    }
}
