//! The parts of a call that most calls have no need of: a connection that has to be opened, informational
//! responses, a client that leaves, a timer that expires; and all that flows, gathering and diagnoses change
//! in a call or note of it.

use std::future::poll_fn;
use std::io::ErrorKind as IoErrorKind;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use egret_clock::Moment;
use egret_diagnosis::CallWire;
use egret_http1::{KnownField, Method, Version};
use egret_leg::{Framing, Outgoing, OutgoingHead, Received, Reply};
use egret_message::grpc::{self, GrpcOutcome, GrpcStatus};
use egret_message::{Fields, Outcome, RequestId};
use egret_net::event_loop::now;
use egret_net::pace::{RateWindow, Taking};
use egret_observe::failure::{ErrorKind, ErrorShape, Failure};
use egret_store::coalescer::Followers;
use egret_usage::UsageRecord;
use tracing::debug;

use crate::exchange::call::Call;
use crate::exchange::forward::edit_response;
use crate::exchange::stop::{Stop, overdue, too_many_informational};
use crate::recorder::Recording;
use crate::state::changes::{Inbound, Outbound};
use crate::state::flow_run::ExchangeView;
use crate::state::request::{Deadlines, RequestState, ResponseState};
use egret_body::mask_fields;
use egret_upstream::{CallTarget, Connection, DialTimes, Upstream};

impl Call<'_> {
    /// Notes the status of the gRPC call, if the request is one.
    pub fn note_grpc_status(&mut self, status: Option<GrpcStatus>) {
        if let Some(grpc) = &mut self.grpc {
            grpc.status = status;
        }
    }

    /// Notes the status of the gRPC call that the provider's response has, if the request is one.
    pub fn note_provider_grpc_status(&mut self, status: Option<GrpcStatus>) {
        if let Some(grpc) = &mut self.grpc {
            grpc.note_provider_status(status, &self.upstream.plan.stats.errors);
        }
    }

    /// Notes the status that the head of the response has, if the request is a gRPC call.
    pub fn note_grpc_head(&mut self) {
        if self.grpc.is_some() {
            let ResponseState { output, response, .. } = &*self.state.response_state;
            let status = GrpcStatus::in_head(Fields::received(&response.fields, output.filled()));
            self.note_provider_grpc_status(status);
        }
    }

    /// Notes the status that the trailers of the response have, if the request is a gRPC call, unless it was
    /// known before.
    pub fn note_grpc_trailers(&mut self) {
        if self.grpc_outcome() == GrpcOutcome::Pending {
            let status = GrpcStatus::in_trailers(self.state.response_state.down.trailers());
            self.note_provider_grpc_status(status);
        }
    }

    /// Makes the further calls to `upstream`.
    pub fn switch_to(&mut self, upstream: Rc<Upstream>) {
        self.upstream = upstream;
    }

    /// Lends the next call its changes. Up to `replay_max` bytes of the body are kept for a further one.
    pub fn lend_outbound(&mut self, outbound: Box<Outbound>, replay_max: usize) {
        self.outbound = Some(outbound);
        self.upload.keep_for_replay(replay_max);
    }

    /// Takes back the changes of a call that has ended.
    pub fn take_outbound(&mut self) -> Option<Box<Outbound>> {
        self.outbound.take()
    }

    /// Lends the response its changes.
    pub fn lend_inbound(&mut self, inbound: Box<Inbound>) {
        self.inbound = Some(inbound);
    }

    /// Takes back the changes of the response.
    pub fn take_inbound(&mut self) -> Option<Box<Inbound>> {
        self.inbound.take()
    }

    /// Notes the requests that wait for the response, if there are any.
    pub fn add_followers(&mut self, followers: Option<Followers>) {
        if followers.is_some() {
            self.followers = followers;
        }
    }

    /// Records the exchange from now on, if diagnoses want it.
    pub fn record(&mut self, recording: Option<Recording>) {
        self.recording = recording;
    }

    /// Returns `true` if the exchange must wait for a place for its record.
    pub fn waits_for_place(&mut self) -> bool {
        let records = &self.client.connection.worker.records;
        self.recording.as_mut().is_some_and(|recording| recording.waits_for_place(records))
    }

    /// Records an attempt that is about to be repeated, with the status of its response or the slug of its
    /// error.
    pub fn note_attempt(&mut self, status: u16, error: Option<&'static str>) {
        self.record_failure();
        let started = self.client.request_since(self.clock.begun);
        if let Some(recording) = &mut self.recording {
            recording.note_attempt(started, self.clock.sent, status, error);
        }
    }

    /// Records the exchange from now on, because a call has failed, for the list of failed exchanges.
    #[cold]
    pub fn record_failure(&mut self) {
        let worker = &self.client.connection.worker;
        // A call of the gateway's own has no client who could miss its response.
        if self.recording.is_none() && !self.client.leg.is_none() && worker.takes_failure() {
            self.recording = Some(Recording::of_failure(worker));
        }
    }

    /// Records the usage that the response has reported, if it was read.
    pub fn note_usage(&mut self, usage: Option<&UsageRecord>) {
        if let Some(recording) = &mut self.recording {
            recording.note_usage(usage.cloned().map(Box::new));
        }
    }

    /// Returns the exchange as remedies see it at this time, as long as no call has an outcome.
    pub fn exchange_at(&self, at: Moment) -> ExchangeView<'_> {
        let worker = &self.client.connection.worker;
        ExchangeView {
            now: worker.shared.clock.timestamp(at),
            worker: worker.number,
            state: self.state,
            repeatable: self.upload.is_repeatable(),
            outcome: Outcome::None,
            usage: None,
            grpc: self.grpc_outcome(),
        }
    }

    /// Notes that a call was not sent, or has to be sent again, and returns the time.
    pub fn note_not_sent(&mut self) -> Moment {
        self.clock.dial = DialTimes::default();
        self.clock.sent = now::exact();
        self.clock.sent
    }

    /// Notes that the response began at `now`: the time until then counts as waiting.
    pub fn note_response(&mut self, now: Moment) {
        self.clock.first_byte = now;
    }

    /// Notes that `sent_bytes` of the response were sent in a way of its own, and that this was all.
    pub fn note_forwarded(&mut self, sent_bytes: u64) -> Moment {
        self.client.connection.worker.counters().sent_bytes.add(sent_bytes);
        self.state.response_state.down.moved_bytes += sent_bytes;
        self.clock.forwarded = now::exact();
        self.clock.forwarded
    }

    /// Records a tunnel over `connection`, which was opened with this response.
    pub fn note_established(&mut self, connection: &Connection, response: &[u8], now: Moment) {
        self.clock.first_byte = now;
        if let Some(recording) = &mut self.recording {
            recording.note_connection(connection);
            recording.note_generated(response, &self.client.connection.worker.records);
        }
    }

    /// Records a stored response: its head, and its body in pieces. If it `is_cut`, the client has not
    /// received all of it.
    pub fn note_stored(&mut self, head: &[u8], body: &[&[u8]], is_cut: bool) {
        if let Some(recording) = &mut self.recording {
            recording.note_stored(head, body, &self.client.connection.worker.records);
            if is_cut {
                recording.note_cut();
            }
        }
    }

    /// Notes the gateway's own error that the client gets.
    pub fn note_failed(&mut self, kind: ErrorKind) {
        self.failed = Some(kind);
    }

    /// Disarms the deadlines of phases. While a remedy holds the exchange, only its total timeout applies.
    pub fn disarm_phase(&mut self) {
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.arm(&self.client.timer);
    }

    /// Starts to wait for a request body that is gathered.
    pub fn await_body(&mut self) {
        self.deadlines.rate = RateWindow::starting(Moment::now(), 0);
        self.note_progress(self.view.plan.timeouts.idle);
    }

    /// Returns `true` if the client is too late with a body of which `gathered` bytes have arrived. If it
    /// returns `false`, the task is woken for the next check.
    pub fn is_body_late(&mut self, cx: &Context<'_>, gathered: u64) -> bool {
        if !self.client.timer.poll_expired(cx) {
            return false;
        }
        let now = Moment::now();
        let rate = self.view.plan.limits.body_rate.bytes();
        let is_late = self.deadlines.phase <= now || !self.deadlines.rate.keeps_up(now, gathered, rate);
        if !is_late {
            self.deadlines.rearm(&self.client.timer, cx, now);
        }
        is_late
    }

    /// Begins to judge how fast the client takes the response, and no longer how fast it sends the request.
    pub fn begin_forwarding(&mut self) {
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.taking = Taking::NOTHING;
    }

    /// Replaces the deadlines for a response whose client has left: it is read until `end` at most.
    pub fn read_on_until(&mut self, end: Moment) {
        self.deadlines = Deadlines::new(self.deadlines.total.min(end));
    }

    /// Notes that the response is gathered for remedies before it is forwarded, or no longer.
    pub fn note_gathering(&mut self, is_gathering: bool) {
        self.is_gathering = is_gathering;
        if is_gathering {
            self.note_progress(self.timeouts().idle);
        } else {
            // The exchange has waited for the provider until now.
            self.clock.first_byte = Moment::now();
        }
    }

    /// Receives more of a response that is gathered.
    pub fn poll_gathered(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<Received> {
        let received = ready!(connection.leg.poll_receive(cx, &mut self.state.response_state.output));
        if let Received::Data(count) = received {
            self.received_bytes += count as u64;
        }
        Poll::Ready(received)
    }

    /// Prepares for the repetition of a call, whose time counts as waiting.
    pub fn prepare_repetition(&mut self) {
        self.clock.dial = DialTimes::default();
        self.note_waited(self.clock.sent, Moment::now());
        self.upload.repeat(self.state);
        self.note_grpc_status(None);
        let counters = self.upstream.counters();
        counters.sent_bytes.add(self.upload.take_sent_bytes());
        counters.received_bytes.add(mem::take(&mut self.received_bytes));
        self.informational = 0;
    }

    /// Obtains the connection for a request that the provider has not processed, a `fresh` one or any.
    pub(super) async fn connect_again(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
        debug!(
            provider = self.upstream.plan.stats.name(),
            "the provider has not processed a request: sending it again"
        );
        self.refusals += 1;
        self.upstream.counters().repeats.add(1);
        self.note_waited(self.clock.sent, Moment::now());
        self.upload.repeat(self.state);
        match self.take_connection(Moment::now(), fresh) {
            Some(connection) => Ok(connection),
            None => self.connect(fresh).await,
        }
    }

    /// Obtains a connection that does not come from this worker's idle pool. A `fresh` one has not been idle.
    pub(super) async fn connect(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
        let (upstream, worker) = (Rc::clone(&self.upstream), Rc::clone(&self.client.connection.worker));
        let (needs, limits) = (self.needs(), self.view.plan.head_limits);
        let since = now::exact();
        if upstream.uses_http2(needs, since) {
            // The call may leave before a connection that others can share is open.
            worker.has_kept();
        }
        let mut connecting =
            Box::pin(async move { upstream.obtain(&worker.shared.network, needs, limits, fresh).await });
        // Connecting has its own limits. Here only `total` and the client's disconnect can end it.
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.arm(&self.client.timer);
        let (connection, times) = poll_fn(|cx| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(connected.map_err(Stop::Failure));
            }
            self.poll_waiting(cx)
        })
        .await
        .inspect_err(|stop| {
            self.clock.sent = since;
            if let Stop::Failure(failure) = stop {
                self.upstream.plan.stats.errors.failed_call(failure);
            }
        })?;
        self.clock.dial = times;
        if connection.leg.is_stream() {
            // It may have been another call that opened the connection.
            self.note_waited(since, Moment::now());
        } else {
            self.clock.waited_nanos += times.total_nanos();
        }
        Ok(connection)
    }

    /// Counts a call whose response has ended too early.
    #[cold]
    pub fn count_cut(&self, kind: ErrorKind, detail: &'static str) {
        self.upstream.plan.stats.errors.failed_call(&Failure::new(kind, detail));
    }

    /// Records the request of a call that has failed, as it was sent but without secrets, and the
    /// response if it `has_response`.
    #[cold]
    pub(super) fn note_failed_call(
        &mut self,
        forward: &CallTarget,
        connection: &Connection,
        has_response: bool,
    ) {
        self.record_failure();
        let mut recording = self.recording.take();
        if let Some(recording) = &mut recording {
            let RequestState { input, request, response_state, .. } = &*self.state;
            let mut edits = self.client.connection.worker.pools.edits.borrow_mut();
            let outbound = self.outbound.as_ref().map(|outbound| outbound.shown());
            self.edit_request(forward, outbound.as_ref(), &mut edits);
            let head = request.render(input.filled(), &edits);
            let wire =
                CallWire { tls: forward.upstream.plan.origin.tls, is_http2: connection.leg.is_stream() };
            recording.note_sent(wire, &head);
            if has_response {
                recording.note_received(&response_state.response, response_state.output.filled());
            }
        }
        self.recording = recording;
    }

    /// Reads what the client sends ahead, as long as the input has room, and notices when the client closes
    /// the connection. Fails if that ends the call.
    pub fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        while !self.client.has_closed() && !self.state.input.is_full() {
            match self.client.leg.poll_receive(cx, &mut self.state.input) {
                Poll::Ready(Received::Data(count)) => {
                    self.client.connection.worker.counters().received_bytes.add(count as u64);
                }
                Poll::Ready(Received::End) => self.note_close(true)?,
                // Many clients end TLS without saying so.
                Poll::Ready(Received::Gone(error)) => {
                    self.note_close(error.kind() == IoErrorKind::UnexpectedEof)?;
                }
                Poll::Pending => break,
            }
        }
        if self.state.input.is_full() {
            self.client.leg.gather();
        }
        Ok(())
    }

    /// Notes that the client has closed the connection. If it may have closed its sending side only, it
    /// `may_read` the response. Fails if that ends the call.
    #[cold]
    fn note_close(&mut self, may_read: bool) -> Result<(), Stop> {
        debug!(
            provider = self.upstream.plan.stats.name(),
            "a client has closed its connection before its response"
        );
        self.client.note_closed(Moment::now());
        let goes_on = may_read && self.view.plan.finishes_without_client(self.state.request.method);
        let reads_on = self.outbound.as_ref().is_some_and(|outbound| outbound.reads_on);
        if goes_on || reads_on || self.is_awaited() { Ok(()) } else { Err(Stop::ClientGone) }
    }

    /// Returns `true` if other requests wait for the response.
    pub fn is_awaited(&self) -> bool {
        self.followers.as_ref().is_some_and(Followers::is_waiting)
    }

    pub fn give_half_closed_client_time(&mut self, now: Moment) {
        self.deadlines.half_close = now.after(self.view.plan.timeouts.half_close);
        self.deadlines.half_close_moved_bytes = self.state.response_state.down.moved_bytes;
    }

    /// Passes an informational response on, which arrived in HTTP/2 or not.
    pub(super) fn pass_on_informational(&mut self, cx: &mut Context<'_>, is_http2: bool) -> Result<(), Stop> {
        self.informational = self.informational.saturating_add(1);
        if self.informational > self.view.plan.limits.informational {
            return Err(Stop::Failure(too_many_informational()));
        }
        let RequestState { request, response_state, .. } = &mut *self.state;
        let ResponseState { output, response, down } = &mut **response_state;
        if let Some(mask) = self.outbound.as_ref().and_then(|outbound| outbound.mask.as_ref()) {
            mask_fields(response, output.filled_mut(), mask);
        }
        if request.version == Version::Http11 {
            let reply = Reply { version: request.version, persistent: true, framing: Framing::Length };
            let no_id = RequestId::default();
            let worker = &self.client.connection.worker;
            let mut edits = worker.pools.edits.borrow_mut();
            let via = worker.shared.via.line(response.version, is_http2);
            edit_response(response, output.filled(), reply, via, &no_id, None, &mut edits);
            let head = response.render(output.filled(), &edits);
            let message = Outgoing::head(OutgoingHead::Edited(&head));
            let sent = self.client.leg.send(cx, &message, &worker.pools.buffers, &mut down.moved_bytes);
            sent.map_err(|_| Stop::ClientGone)?;
        }
        output.remove(0, response.len);
        self.start_waiting(Moment::now());
        Ok(())
    }

    /// Waits until the client has received the informational responses.
    pub fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        if !self.state.has_response_state() {
            return Poll::Ready(Ok(()));
        }
        let moved_bytes = &mut self.state.response_state.down.moved_bytes;
        self.client.leg.poll_backlog(cx, moved_bytes).map_err(|_| Stop::ClientGone)
    }

    /// Handles an expired timer. Returns `None` if the exchange continues.
    pub(super) fn expired_while_waiting(&mut self, cx: &Context<'_>) -> Option<Stop> {
        let now = Moment::now();
        let up = &self.state.up;
        let waits_for_client = self.is_sending() && !up.is_blocked_on_sink();
        let stop = overdue(self, now, waits_for_client);
        if stop.is_some() {
            return stop;
        }
        let (moved_bytes, rate) = (up.moved_bytes, self.view.plan.limits.body_rate.bytes());
        if waits_for_client && !self.deadlines.rate.keeps_up(now, moved_bytes, rate) {
            let detail = "the request body arrives too slowly (`limits.body_rate`)";
            return Some(Stop::Failure(Failure::new(ErrorKind::RequestTimeout, detail)));
        }
        self.deadlines.rearm(&self.client.timer, cx, now);
        None
    }

    /// Takes over a response that was received elsewhere, and began at `first_byte`: its head, and the bytes
    /// behind it.
    pub fn adopt_response(&mut self, response_state: Box<ResponseState>, first_byte: Moment) {
        self.received_bytes += response_state.output.filled().len() as u64;
        self.state.return_response_state(&self.client.connection.worker.pools);
        self.state.set_response_state(response_state);
        self.clock.first_byte = first_byte;
    }

    /// Returns the shape of an error response to the request, as remedies see it.
    pub fn error_shape(&self) -> ErrorShape {
        let request = &self.state.request;
        let with_body = request.method != Method::Head;
        self.view.plan.errors.shape(self.error_format, self.request_fields(), with_body)
    }

    /// Returns the shape of an error response to the request, as the client gets it.
    pub fn client_error_shape(&self) -> ErrorShape {
        let shape = self.error_shape();
        if self.is_grpc() { shape.in_grpc() } else { shape }
    }

    /// Returns `true` if the request is a gRPC call, whose client reads errors in that form alone.
    pub fn is_grpc(&self) -> bool {
        let (request, bytes) = (&self.state.request, self.state.input.filled());
        let mut kinds = request.fields.iter().filter(|field| field.known == KnownField::ContentType);
        kinds.any(|field| grpc::is_grpc(field.value.of(bytes)))
    }

    fn request_fields(&self) -> Fields<'_> {
        Fields::received(&self.state.request.fields, self.state.input.filled())
    }

    /// Counts that the gateway responds with `failure`, and logs it if the operator should know of it.
    pub fn warn_of(&self, failure: &Failure, status: u16) {
        // A call of the gateway's own tells its failure elsewhere.
        if !self.client.leg.is_none() {
            let stats = &self.upstream.plan.stats;
            stats.errors.respond(stats.name(), failure, status, &self.state.request_id);
        }
    }
}
