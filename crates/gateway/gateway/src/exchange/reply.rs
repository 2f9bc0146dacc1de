//! The reply: forwards the response of a call to the client, or sends the client a response of the gateway's
//! own.

use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{Field, ResponseFraming, TrailerNames, Version};
use egret_leg::{Framing, OutgoingHead, Reply};
use egret_match::rewrite::Rewriter;
use egret_match::{EventScan, is_event_stream};
use egret_message::Fields;
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_net::budget::{Budget, Share};
use egret_net::event_loop::{now, spawn};
use egret_net::pace::{RateWindow, Taking};
use egret_observe::failure::{ErrorKind, Failure};
use egret_observe::provider_errors::is_failed_status;
use egret_store::entries::{Next, StoredBody};
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::exchange::call::{Call, Stop};
use crate::exchange::fill::{Fill, Filling, Reuse};
use crate::exchange::forward::{edit_generated, edit_response};
use crate::state::changes::{Inbound, Tail};
use crate::state::request::{Deadlines, ResponseState};
use egret_body::{Begun, FaultedBody, Kept, Pipe, PipeError, StoredSource, StreamProgress};
use egret_upstream::{CallTarget, Connection, View};

/// Maximum time for which a response is read although its client has left.
const READ_ON_MAX: Duration = Duration::from_mins(10);

/// The outcome of a response that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Complete,
    /// The response is incomplete, and the client can see that it is.
    CutShort,
    ClientGone,
}

/// The end of an exchange, as the client sees it.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The status code of the response, or 0 if the client received none.
    pub status: u16,
    /// End of the response.
    pub at: Moment,
    /// The fate of the client's connection.
    pub then: Then,
}

/// The fate of the client's connection.
#[derive(Debug)]
pub(crate) enum Then {
    /// The next request may follow, if the connection is `persistent` and nothing of this request is left to
    /// be read.
    Next { persistent: bool },
    /// The next request may follow.
    Persist,
    /// The connection is closed.
    Close,
    /// The connection is closed after the client had time to read the response.
    Linger,
    /// The connection is reset, so the client sees that the response is incomplete.
    Abort,
    /// Both sides have switched to another protocol: their bytes are relayed.
    Relay(Box<Connection>),
}

/// Starts to keep the end of the response or to read its events, if remedies need it, and to fill the cache,
/// if one stores the response.
fn add_stages(inbound: &mut Inbound, fields: &[Field], head: &[u8], down: &mut Pipe, budget: &Arc<Budget>) {
    if let Some(mask) = &inbound.mask {
        down.stages.mask(mask);
    }
    if inbound.hides_usage {
        down.stages.hide_usage(Fields::received(fields, head), budget);
    }
    if inbound.fault.is_some() || inbound.stall.is_some() {
        let fields = Fields::received(fields, head);
        let is_event_stream = is_event_stream(fields) && !fields.is_encoded();
        let is_one_piece = inbound.body.is_some();
        if let Some(fault) = inbound.fault.take() {
            down.stages.inject(&fault, FaultedBody { is_event_stream, is_one_piece, now: Moment::now() });
        }
        if let Some(limit) = inbound.stall.filter(|_| is_event_stream && !is_one_piece) {
            down.stages.limit_stalls(limit);
        }
    }
    if let Some(filling) = inbound.filling.take() {
        down.stages.store(filling);
    }
    if let Some(Tail { max, wants_usage, memory, head: kept, .. }) = &mut inbound.tail {
        kept.clear();
        kept.extend_from_slice(head);
        let fields = Fields::received(fields, head);
        if *max > 0 {
            down.stages.tap(|tap| match EventScan::of_response(fields) {
                Some(events) => tap.read_events(events, budget),
                None => tap.keep_end(mem::take(memory), *max, budget),
            });
        }
        if *wants_usage {
            down.stages.read_usage(fields, budget);
        }
    }
}

/// Returns the names of the trailers of a response that are forwarded.
fn trailers_of(view: &View, is_grpc: bool) -> &TrailerNames {
    if is_grpc { &view.plan.grpc_trailers } else { &view.plan.trailers }
}

/// The source of a response's body.
enum BodySource {
    Provider(Box<Connection>),
    /// The cache, which the provider fills meanwhile.
    Store(StoredSource),
}

impl Call<'_> {
    /// Forwards the response.
    async fn reply(&mut self, connection: Box<Connection>) -> Ended {
        // A gRPC call may turn out to have failed at its end, where its head is gone.
        if is_failed_status(self.state.response_state.response.status) || self.grpc.is_some() {
            self.record_failure();
        }
        if let Some(recording) = &mut self.recording {
            recording.note_connection(&connection);
        }
        if self.grpc_outcome() == GrpcOutcome::Pending {
            self.note_grpc_head();
        }
        let is_http2 = connection.leg.is_stream();
        let framing = self.announced_framing();
        let reply = Reply::new(self.state.request.version, framing, self.can_persist());
        let mut finish = match poll_fn(|cx| Poll::Ready(self.send_response(cx, reply, is_http2))).await {
            Ok(finish) => finish,
            Err(failure) => return Box::pin(self.respond_with_error(&failure)).await,
        };
        self.clock.forwarded = now::exact();
        let mut ended = self.clock.forwarded;
        let stages = &self.state.response_state.down.stages;
        let mut source = match stages.storing().map(|storing| Arc::clone(storing.body())) {
            // A fault acts on what passes from the provider to the client.
            Some(body) if !self.upload.is_going_on(self.state) && !stages.are_inseparable() => {
                self.fill(connection, &body)
            }
            _ => BodySource::Provider(connection),
        };
        if finish == Finish::Complete && !self.state.response_state.down.is_complete() {
            self.start_forwarding();
            finish = poll_fn(|cx| self.poll_bodies(cx, &mut source)).await;
            ended = Moment::now();
        }
        if finish == Finish::ClientGone && self.reads_on() {
            Box::pin(self.read_on(&mut source)).await;
            ended = Moment::now();
        }
        self.finish(source, finish, reply, ended)
    }

    /// Lets a task of its own receive the rest of a response into the cache. The client is served from there.
    fn fill(&mut self, connection: Box<Connection>, body: &Arc<StoredBody>) -> BodySource {
        let ResponseState { output, response, down } = &mut *self.state.response_state;
        let (source, lead) = StoredSource::leading(body);
        let filling = Filling { pipe: down.split(), buffer: mem::take(output), lead };
        let fill = Fill {
            filling,
            reuse: Reuse::after(response).filter(|_| !self.upload.is_refused()),
            connection,
            upstream: Rc::clone(&self.upstream),
            view: Rc::clone(&self.view),
            client: Rc::clone(&self.client.connection),
            idle: self.timeouts().idle,
            total: self.deadlines.total,
        };
        spawn(fill.run());
        BodySource::Store(source)
    }

    /// Sends the client a stored response: the head that is given, and the body while it arrives.
    pub async fn send_stored(&mut self, head: &[u8], body: &Arc<StoredBody>, framing: Framing) -> Finish {
        let mut source = StoredSource::new(body);
        self.state.response_state.down.start(ResponseFraming::UntilClose, framing);
        let begun = poll_fn(|cx| {
            let ResponseState { down, .. } = &mut *self.state.response_state;
            let shared = (&self.client.connection.worker.pools.buffers, &self.view.plan.trailers);
            let block = match source.poll_next(cx) {
                Poll::Ready(Next::Block(block)) => Some(block),
                Poll::Ready(Next::Broken) => return Poll::Ready(Err(Finish::CutShort)),
                // The end is found again.
                Poll::Ready(Next::End) | Poll::Pending => None,
            };
            let data = block.as_deref().unwrap_or_default();
            match down.begin(cx, OutgoingHead::Written(head), data, &mut self.client.leg, shared) {
                Ok(begun) if !begun.is_sink_gone => Poll::Ready(Ok(())),
                Ok(_) | Err(_) => Poll::Ready(Err(Finish::ClientGone)),
            }
        });
        if let Err(finish) = begun.await {
            return finish;
        }
        self.start_forwarding();
        let mut source = BodySource::Store(source);
        poll_fn(|cx| self.poll_bodies(cx, &mut source)).await
    }

    /// Returns `true` if the rest is read although the client has left: for a remedy, or for the cache.
    fn reads_on(&self) -> bool {
        let tail = self.inbound.as_ref().and_then(|inbound| inbound.tail.as_ref());
        let stages = &self.state.response_state.down.stages;
        let fills = stages.are_inseparable() && stages.storing().is_some();
        (fills || tail.is_some_and(|tail| tail.reads_on)) && self.upload.is_complete(self.state)
    }

    /// Reads the rest of a response whose client has left, so that its end is known. There is a bound for
    /// such responses, and for the time that each takes.
    async fn read_on(&mut self, source: &mut BodySource) {
        if !self.client.connection.worker.take_left_response() {
            debug!("a client has left, and too many such responses are read already");
            return;
        }
        self.state.response_state.down.drop_sink();
        let Deadlines { total, .. } = self.deadlines;
        self.deadlines = Deadlines::new(total.min(Moment::now() + READ_ON_MAX));
        self.note_progress(self.timeouts().idle);
        poll_fn(|cx| self.poll_rest(cx, source)).await;
        self.client.connection.worker.has_read_left_response();
    }

    /// Ready once the response has ended, or its time is over.
    fn poll_rest(&mut self, cx: &mut Context<'_>, source: &mut BodySource) -> Poll<()> {
        let before = self.state.response_state.down.read_bytes;
        if self.poll_down(cx, source).is_ready() {
            return Poll::Ready(());
        }
        // A store is filled by a task that watches the provider itself.
        let is_stored = matches!(source, BodySource::Store(_));
        if is_stored || self.state.response_state.down.read_bytes != before {
            self.note_progress(self.timeouts().idle);
        }
        if self.client.timer.poll_expired(cx) {
            let now = Moment::now();
            if self.deadlines.total.min(self.deadlines.phase) <= now {
                return Poll::Ready(());
            }
            self.deadlines.rearm(&self.client.timer, cx, now);
        }
        Poll::Pending
    }

    /// Forwards more of the response's body.
    fn poll_down(&mut self, cx: &mut Context<'_>, source: &mut BodySource) -> Poll<Result<(), PipeError>> {
        let ResponseState { output, down, .. } = &mut *self.state.response_state;
        let ClientLeg { leg: sink, connection: client, .. } = &mut *self.client;
        let shared = (&client.worker.pools.buffers, trailers_of(&self.view, self.grpc.is_some()));
        match source {
            BodySource::Provider(connection) => {
                down.poll(cx, &mut connection.leg, output, &mut Kept::first(0), sink, shared)
            }
            BodySource::Store(stored) => down.poll_stored(cx, stored, sink, shared),
        }
    }

    fn start_forwarding(&mut self) {
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.taking = Taking::NOTHING;
        self.note_moved();
    }

    /// Sets the time until which more must pass, after some has.
    fn note_moved(&mut self) {
        match self.state.response_state.down.stages.progress() {
            StreamProgress::Bytes => self.note_progress(self.timeouts().idle),
            StreamProgress::Content(limit) => self.note_progress(Some(limit)),
            StreamProgress::Nothing => {}
        }
    }

    /// Returns the framing of the response that is sent: the provider's own, or that of a body set by a
    /// remedy.
    fn response_framing(&self) -> ResponseFraming {
        match self.inbound.as_ref().and_then(|inbound| inbound.body.as_ref()) {
            Some(body) => ResponseFraming::Length(body.len() as u64),
            None => self.state.response_state.response.framing,
        }
    }

    /// Returns the framing that the client's is derived from: one without a length, if a part is left out.
    fn announced_framing(&self) -> ResponseFraming {
        match &self.inbound {
            None => self.state.response_state.response.framing,
            Some(inbound) if inbound.hides_usage => ResponseFraming::UntilClose,
            Some(_) => self.response_framing(),
        }
    }

    /// Returns `true` if the client's connection could stay open after a response that starts now.
    fn can_persist(&self) -> bool {
        self.state.request.persistent
            && self.upload.is_complete(self.state)
            && !self.client.has_closed()
            && !self.client.connection.worker.draining.get()
            && self.client.connection.may_go_on(self.view.plan.limits.requests_per_connection)
    }

    /// Writes the head, and the part of the body that has been received, in one system call. If the body is
    /// malformed from its start, the client can still get an error response. With `is_http2`, the response
    /// arrived in HTTP/2.
    fn send_response(
        &mut self,
        cx: &mut Context<'_>,
        reply: Reply,
        is_http2: bool,
    ) -> Result<Finish, Failure> {
        let framing = self.response_framing();
        let ResponseState { output, response, down } = &mut *self.state.response_state;
        let worker = &self.client.connection.worker;
        let mut edits = worker.pools.edits.borrow_mut();
        let via = worker.shared.via.line(response.version, is_http2);
        let id = &self.state.request_id;
        edit_response(response, output.filled(), reply, via, id, self.inbound.as_deref(), &mut edits);
        down.start(framing, reply.framing);
        let mut changed = None;
        if let Some(inbound) = &mut self.inbound {
            let budget = &worker.pools.buffers.budget;
            add_stages(inbound, &response.fields, &output.filled()[..response.len], down, budget);
            changed = inbound.body.clone().map(|body| (body, inbound.framed_len));
        }
        if matches!(response.status, 429 | 503) {
            self.has_retry_after =
                Fields::received(&response.fields, output.filled()).get(b"retry-after").is_some();
        }
        let head = response.render(output.filled(), &edits);
        if let Some(recording) = &mut self.recording {
            if recording.wants_usage() {
                let budget = &worker.pools.buffers.budget;
                down.stages.read_usage(Fields::received(&response.fields, output.filled()), budget);
            }
            recording.tap_response(response, output.filled(), &head, down, &worker.records);
        }
        if self.is_rewritten
            && let Some(rewriter) = Rewriter::new(
                &self.view.plan.table,
                self.upstream.plan.responder(),
                &self.state.request,
                self.state.input.filled(),
            )
        {
            rewriter.edit(&response.fields, output.filled(), &mut edits);
        }
        let head = response.render(output.filled(), &edits);
        let body = changed.as_ref().map_or(&output.filled()[response.len..], |(body, _)| body);
        let shared = (&worker.pools.buffers, trailers_of(&self.view, self.grpc.is_some()));
        match down.begin(cx, OutgoingHead::Edited(&head), body, &mut self.client.leg, shared) {
            Ok(Begun { used, is_sink_gone }) => {
                let used = changed.map_or(used, |(_, received)| received);
                output.remove(0, response.len + used);
                Ok(if is_sink_gone { Finish::ClientGone } else { Finish::Complete })
            }
            Err(error) => {
                down.stages.stop_storing();
                Err(Failure::bad_response(error))
            }
        }
    }

    /// Forwards both bodies until the response's body is complete.
    fn poll_bodies(&mut self, cx: &mut Context<'_>, source: &mut BodySource) -> Poll<Finish> {
        let before = self.state.up.moved_bytes + self.state.response_state.down.moved_bytes;
        if let BodySource::Provider(connection) = source
            && self.is_uploading()
        {
            match self.poll_up(cx, connection) {
                Poll::Ready(Err(PipeError::SinkGone)) => self.upload.refuse(),
                Poll::Ready(Err(_)) => return Poll::Ready(Finish::ClientGone),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        } else if self.watch_client(cx).is_err() {
            return Poll::Ready(Finish::ClientGone);
        }
        if self.client.has_closed() && self.deadlines.half_close == Moment::NEVER {
            self.give_half_closed_client_time(Moment::now());
            self.deadlines.arm(&self.client.timer);
        }
        match self.poll_down(cx, source) {
            Poll::Ready(Ok(())) => return Poll::Ready(Finish::Complete),
            Poll::Ready(Err(PipeError::SinkGone)) => return Poll::Ready(Finish::ClientGone),
            Poll::Ready(Err(PipeError::Cut)) => {
                self.note_failed(ErrorKind::FaultInjected);
                return Poll::Ready(Finish::CutShort);
            }
            Poll::Ready(Err(error)) => {
                debug!(provider = self.upstream.plan.stats.name(), ?error, "a response was cut short");
                let detail = "the provider closed the connection before the end of its response";
                self.count_cut(ErrorKind::ProviderClosed, detail);
                return Poll::Ready(Finish::CutShort);
            }
            Poll::Pending => {}
        }
        let down = &self.state.response_state.down;
        let (waits, taken) = (down.is_blocked_on_sink(), down.moved_bytes);
        if waits != self.deadlines.taking.is_waiting() {
            self.deadlines.taking.note(waits, Moment::now(), taken);
            self.deadlines.arm(&self.client.timer);
        }
        if self.state.up.moved_bytes + taken != before {
            self.note_moved();
        }
        if self.client.timer.poll_expired(cx)
            && let Some(finish) = self.expired_while_streaming(cx)
        {
            return Poll::Ready(finish);
        }
        Poll::Pending
    }

    fn expired_while_streaming(&mut self, cx: &Context<'_>) -> Option<Finish> {
        let now = Moment::now();
        let due = |deadline: Moment| deadline <= now;
        if due(self.deadlines.half_close) {
            // The client may be reading the response as it arrives. If none of it moves, the client is
            // probably gone.
            if self.state.response_state.down.moved_bytes == self.deadlines.half_close_moved_bytes {
                return Some(Finish::ClientGone);
            }
            self.give_half_closed_client_time(now);
        }
        if due(self.deadlines.total) || due(self.deadlines.phase) {
            // The data that the provider has not sent is given up.
            let is_of_provider = self.grpc.as_ref().is_none_or(|grpc| grpc.deadline > now);
            if is_of_provider && !self.state.response_state.down.is_blocked_on_sink() {
                self.count_cut(ErrorKind::IdleTimeout, "the provider stopped in the middle of its response");
            }
            return Some(Finish::CutShort);
        }
        let down = &self.state.response_state.down;
        let (taken, rate) = (down.moved_bytes, self.view.plan.limits.body_rate.bytes());
        if !self.deadlines.taking.keeps_up(now, taken, rate, || self.client.hidden_bytes()) {
            self.client.give_up();
            return Some(Finish::CutShort);
        }
        self.deadlines.rearm(&self.client.timer, cx, now);
        None
    }

    /// Returns `true` if the provider's connection can serve another request: it has delivered this response
    /// completely, and nothing after it.
    fn is_reusable(&self) -> bool {
        let ResponseState { output, response, down } = &*self.state.response_state;
        down.is_received()
            && response.persistent
            && response.framing != ResponseFraming::UntilClose
            && self.upload.is_complete(self.state)
            // Bytes after the response were not requested. Parsing them as the next response would pair it
            // with the wrong request.
            && output.filled().is_empty()
    }

    /// Keeps both connections open if possible, and updates the counters.
    fn finish(&mut self, source: BodySource, finish: Finish, reply: Reply, ended: Moment) -> Ended {
        match source {
            BodySource::Provider(connection) if self.is_reusable() => self.keep(connection, ended),
            BodySource::Provider(_) => {}
            BodySource::Store(stored) => self.received_bytes += stored.take_received_bytes(),
        }
        self.client.connection.worker.counters().sent_bytes.add(self.state.response_state.down.moved_bytes);
        if finish != Finish::Complete
            && let Some(recording) = &mut self.recording
        {
            recording.note_cut();
        }
        if finish == Finish::ClientGone {
            self.client.note_closed(ended);
        }
        let then = match finish {
            // An orderly close would mark the response as complete.
            Finish::CutShort if reply.framing == Framing::UntilClose => Then::Abort,
            Finish::CutShort | Finish::ClientGone => Then::Close,
            Finish::Complete => Then::Next { persistent: reply.persistent },
        };
        Ended { status: self.state.response_state.response.status, at: ended, then }
    }

    /// Returns a connection to the pool, if its response allows reuse.
    pub fn keep(&self, connection: Box<Connection>, now: Moment) {
        let response = &self.state.response_state.response;
        self.upstream.keep(connection, now, response.keep_alive_timeout_s, response.keep_alive_max);
        self.client.connection.worker.has_kept();
    }

    /// Sends an error response in the provider's place.
    pub async fn respond_with_error(&mut self, failure: &Failure) -> Ended {
        // The time spent waiting until now does not count towards the gateway's footprint.
        self.clock.first_byte = Moment::now();
        self.client.connection.worker.counters().generated(failure.kind);
        self.failed = Some(failure.kind);
        self.record_failure();
        self.state.take_response_state(&self.client.connection.worker.pools);
        if self.client.leg.is_blocked() {
            // Half of an informational response has been sent, so no other response can follow it.
            return Ended { status: 0, at: Moment::now(), then: Then::Close };
        }
        let persistent = self.can_persist_without_provider();
        let (errors, shape) = (&self.view.plan.errors, self.client_error_shape());
        let status = failure.status_in(errors, shape);
        let message = failure.response(errors, shape, persistent, &self.state.request_id);
        self.warn_of(failure, failure.status(errors));
        self.upstream.counters().generated(status);
        let grpc_status = GrpcStatus::of_http(failure.status(errors));
        self.note_grpc_status(Some(grpc_status));
        self.send_message(&message, &message, status, persistent).await
    }

    /// Ends the exchange without a response, and resets the client's connection or its stream.
    pub fn reset_client(&mut self, kind: ErrorKind) -> Ended {
        let at = Moment::now();
        // The time spent waiting until now does not count towards the gateway's footprint.
        self.clock.first_byte = at;
        self.clock.forwarded = at;
        self.note_failed(kind);
        self.record_failure();
        Ended { status: 0, at, then: Then::Abort }
    }

    /// Sends a whole message. Records `recorded` instead of it, because the client may get a rewritten copy.
    pub async fn send_message(
        &mut self,
        message: &[u8],
        recorded: &[u8],
        status: u16,
        persistent: bool,
    ) -> Ended {
        let sent = self.client.send_all(message).await;
        self.state.response_state.down.moved_bytes += message.len() as u64;
        self.clock.forwarded = Moment::now();
        if let Some(recording) = &mut self.recording {
            recording.note_generated(recorded, &self.client.connection.worker.records);
            if !sent {
                recording.note_cut();
            }
        }
        let then = match (sent, persistent) {
            (false, _) => Then::Close,
            (true, false) => Then::Linger,
            (true, true) => Then::Persist,
        };
        Ended { status, at: self.clock.forwarded, then }
    }

    /// Returns `true` if the whole request has been received, so the start of the next one is known.
    pub fn can_persist_without_provider(&mut self) -> bool {
        // Bytes after a CONNECT were meant for the tunnel. Somebody other than the client may have chosen
        // them.
        if !self.upload.is_repeatable() || self.state.request.method == egret_http1::Method::Connect {
            return false;
        }
        self.upload.repeat(self.state);
        self.tap_request();
        self.upload.skip(self.state) && self.can_persist()
    }

    /// Switches both sides to the agreed protocol. From here on bytes are relayed unchanged.
    async fn upgrade(&mut self, connection: Box<Connection>) -> Ended {
        let reply = Reply { version: Version::Http11, persistent: true, framing: Framing::Length };
        if let Some(recording) = &mut self.recording {
            recording.note_connection(&connection);
        }
        let sent = poll_fn(|cx| Poll::Ready(self.send_response(cx, reply, false))).await;
        self.clock.forwarded = Moment::now();
        let then = if matches!(sent, Ok(Finish::Complete)) { Then::Relay(connection) } else { Then::Close };
        Ended { status: 101, at: self.clock.forwarded, then }
    }

    /// Returns the message that this client gets instead of `head` and the bytes behind it, or `None` if
    /// nothing changes.
    pub fn rewritten(&self, head: &[u8]) -> Option<Vec<u8>> {
        if !self.is_rewritten {
            return None;
        }
        let bytes = self.state.input.filled();
        let responder = self.upstream.plan.responder();
        Rewriter::new(&self.view.plan.table, responder, &self.state.request, bytes)?.head(head)
    }

    /// Forwards the response whose head has been received.
    pub async fn pass_on(&mut self, connection: Box<Connection>) -> Ended {
        if self.state.response_state.response.status == 101 {
            Box::pin(self.upgrade(connection)).await
        } else {
            self.reply(connection).await
        }
    }

    /// Ends an exchange that has no response to forward.
    pub async fn stop(&mut self, stop: Stop) -> Ended {
        match stop {
            Stop::Failure(failure) => Box::pin(self.respond_with_error(&failure)).await,
            Stop::ClientGone => {
                let at = Moment::now();
                self.client.note_closed(at);
                Ended { status: 0, at, then: Then::Close }
            }
            Stop::Stale | Stop::NotPermitted | Stop::Refused => {
                Ended { status: 0, at: self.clock.forwarded, then: Then::Close }
            }
        }
    }

    /// Makes the call, and forwards its response.
    pub async fn run(&mut self, target: &CallTarget) -> Ended {
        match self.obtain_response(target, false).await {
            Ok(connection) => self.pass_on(connection).await,
            Err(stop) => self.stop(stop).await,
        }
    }
}

/// Sends the client of a gRPC call the gateway's own error, with the fields that remedies have added. The
/// response state holds it in the form of HTTP, because remedies decide by its status.
async fn deliver_in_grpc(call: &mut Call<'_>, failure: &Failure) -> Ended {
    let mut failure = failure.clone();
    if let Some(inbound) = &call.inbound {
        let trace = inbound.trace.as_ref().map(|trace| (&b"x-egret-trace"[..], trace.as_bytes()));
        failure = failure.with_fields(inbound.fields.added().chain(trace));
    }
    call.respond_with_error(&failure).await
}

/// Sends the response that the response state holds. `failure` is the gateway's own error, if it is one. A
/// response that `is_stored` came from a provider, so it may name that provider's paths.
pub(crate) async fn deliver(call: &mut Call<'_>, failure: Option<&Failure>, is_stored: bool) -> Ended {
    if let Some(failure) = failure
        && call.is_grpc()
    {
        return Box::pin(deliver_in_grpc(call, failure)).await;
    }
    // The time spent waiting until now does not count towards the gateway's footprint.
    call.note_response(Moment::now());
    if let Some(failure) = failure {
        call.client.connection.worker.counters().generated(failure.kind);
        call.note_failed(failure.kind);
        call.record_failure();
        call.warn_of(failure, call.state.response_state.response.status);
    }
    let persistent = call.can_persist_without_provider();
    let version = call.state.request.version;
    let reply = Reply { version, persistent, framing: Framing::Length };
    let ResponseState { output, response, .. } = &*call.state.response_state;
    let status = response.status;
    if is_stored {
        call.upstream.counters().stored(status);
    } else {
        call.upstream.counters().generated(status);
    }
    let message = {
        let mut edits = call.client.connection.worker.pools.edits.borrow_mut();
        let inbound = call.inbound.as_deref();
        let id = &call.state.request_id;
        edit_generated(response, output.filled(), reply, id, inbound, &mut edits);
        let mut message = response.render(output.filled(), &edits).to_vec();
        let changed = inbound.and_then(|inbound| inbound.body.as_deref());
        message.extend_from_slice(changed.unwrap_or(&output.filled()[response.len..]));
        message
    };
    let mut share = Share::default();
    share.cover_anyway(&call.client.connection.worker.pools.buffers.budget, message.len());
    let rewritten = if is_stored { call.rewritten(&message) } else { None };
    let sent = rewritten.as_deref().unwrap_or(&message);
    call.send_message(sent, &message, status, persistent).await
}
