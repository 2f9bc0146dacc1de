//! A call: sends a request to a provider, and obtains the head of the response. One task holds both sockets.
//!
//! The common case makes four system calls: receive the request, send it, receive the response, send it. A
//! call knows no remedy: flows change it by plain data.

use std::future::poll_fn;
use std::io::{self, ErrorKind as IoErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use egret_clock::{Moment, planted};
use egret_diagnosis::CallWire;
use egret_http1::{BodyError, Edits, KnownField, Method, RequestFraming, Version};
use egret_http2::{Lost, is_websocket_accepted, websocket_key};
use egret_leg::http1::ResponseTo;
use egret_leg::{Framing, HeadRoom, NoHead, Outgoing, OutgoingHead, Received, Reply};
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_message::{Fields, Outcome, RequestId, grpc};
use egret_net::event_loop::now;
use egret_net::pace::RateWindow;
use egret_net::tls::TlsError;
use egret_observe::failure::config::ErrorFormat;
use egret_observe::failure::{ErrorKind, ErrorShape, Failure};
use egret_observe::provider_errors::is_failed_status;
use egret_plan::{RequestIds, UpstreamTimeouts};
use egret_store::coalescer::Followers;
use egret_usage::UsageRecord;
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::exchange::forward::{Disclosed, edit_request, edit_response};
use crate::exchange::grpc::{GrpcCall, TOTAL};
use crate::exchange::upload::Upload;
use crate::recorder::Recording;
use crate::state::changes::{Inbound, Outbound};
use crate::state::flow_run::ExchangeView;
use crate::state::request::{Clock, Deadlines, RequestState, ResponseState};
use egret_body::{Begun, PipeError, mask_fields};
use egret_upstream::{CallTarget, Connection, DialTimes, Needs, Upstream, View};

/// Time that an exchange waits for its provider before it starts to watch the client's socket too. Nearly
/// every response arrives sooner, and waking on two sockets costs more than waking on one.
const UNWATCHED: Duration = Duration::from_millis(50);

/// The detail of the error for a recorded request of another generation.
pub(crate) const OTHER_GENERATION: &str = "the config was changed over the API since the request was recorded, so it is not sent again: repeat the call itself";

/// The reason why there is no response to forward.
pub(crate) enum Stop {
    /// The client gets an error response.
    Failure(Failure),
    /// The client has disconnected, so no response is sent.
    ClientGone,
    /// The reused connection was closed before the provider read the request, as far as the gateway can know.
    Stale,
    /// A permit has ended before the request was sent. The connection is kept.
    NotPermitted,
    /// The provider says that it has not processed the request, which can be sent again.
    Refused,
}

/// Maximum number of times that a request is sent again because the provider has not processed it.
const REFUSALS_MAX: u8 = 2;

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

/// The failure of a provider that has switched protocols unasked.
pub(super) fn unexpected_switch() -> Failure {
    let detail =
        "the provider switched protocols without a matching request, or before it had received the request";
    Failure::new(ErrorKind::BadResponse, detail)
}

/// The failure of a provider that has not opened a WebSocket, for a client that would take its response for
/// one.
fn not_opened() -> Failure {
    let detail = "the provider did not open the WebSocket: its response is a success, but no switch that answers the key";
    Failure::new(ErrorKind::BadResponse, detail)
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
    refusals: u8,
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

    /// Ends the whole exchange at `end`, or at the client's own deadline if that is earlier.
    pub fn end_at(&mut self, end: Moment) {
        self.deadlines.total = self.grpc.as_ref().map_or(end, |grpc| end.min(grpc.deadline));
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

    /// Takes the recording of an exchange that has ended.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Notes that the request has waited from `since` until `now`.
    pub fn note_waited(&mut self, since: Moment, now: Moment) {
        self.clock.waited_nanos += now.nanos_since(since);
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
        counters.received_bytes.add(std::mem::take(&mut self.received_bytes));
        self.informational = 0;
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
        fresh: bool,
    ) -> Result<Box<Connection>, Stop> {
        if self.client.connection.pin.is_some() {
            self.check_pin()?;
        }
        let mut connection = match self.take_connection(self.clock.begun, fresh) {
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
                    // A new connection cannot be stale, so the request is not sent a third time.
                    self.connect(true).await?
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

    /// Obtains the connection for a request that the provider has not processed, a `fresh` one or any.
    async fn connect_again(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
        debug!(
            provider = self.upstream.plan.stats.name(),
            "the provider has not processed a request: sending it again"
        );
        self.upstream.counters().repeats.add(1);
        self.note_waited(self.clock.sent, Moment::now());
        self.upload.repeat(self.state);
        match self.take_connection(Moment::now(), fresh) {
            Some(connection) => Ok(connection),
            None => self.connect(fresh).await,
        }
    }

    /// Refuses a call of a recorded request that is sent again, unless it goes to the provider of the
    /// recorded one. Every call of an exchange passes here, so nothing in the config can take it elsewhere.
    #[cold]
    fn check_pin(&self) -> Result<(), Stop> {
        let Some(pin) = &self.client.connection.pin else { return Ok(()) };
        if pin.routed.destination == self.upstream.plan.destination {
            return self.check_generation();
        }
        let detail = "a recorded request is sent again to the provider of the recorded call only, and the config now leads elsewhere";
        Err(Stop::Failure(Failure::new(ErrorKind::ResendElsewhere, detail)))
    }

    /// Refuses a recorded request that is sent again under another generation of the config. No flow and no
    /// diagnosis sees it then.
    pub fn check_generation(&self) -> Result<(), Stop> {
        match &self.client.connection.pin {
            Some(pin) if pin.routed.generation != self.view.plan.generation => {
                Err(Stop::Failure(Failure::new(ErrorKind::ResendElsewhere, OTHER_GENERATION)))
            }
            _ => Ok(()),
        }
    }

    /// Obtains a connection that does not come from this worker's idle pool. A `fresh` one has not been idle.
    async fn connect(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
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

    /// Counts a call whose response has ended too early.
    #[cold]
    pub fn count_cut(&self, kind: ErrorKind, detail: &'static str) {
        self.upstream.plan.stats.errors.failed_call(&Failure::new(kind, detail));
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

    /// Records the request of a call that has failed, as it was sent but without secrets, and the
    /// response if it `has_response`.
    #[cold]
    fn note_failed_call(&mut self, forward: &CallTarget, connection: &Connection, has_response: bool) {
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

    /// Collects the changes to the request for a call of `forward`, those of remedies included.
    #[inline]
    fn edit_request(&self, forward: &CallTarget, outbound: Option<&Outbound>, edits: &mut Edits) {
        let RequestState { input, request, request_id, .. } = &*self.state;
        let plan = &self.view.plan;
        let disclosed = Disclosed {
            client: if plan.forwarded_for { self.client.peer_ip() } else { None },
            request_id: if plan.request_ids == RequestIds::Sent { request_id.made() } else { None },
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
    fn start_waiting(&mut self, now: Moment) {
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
                    return Poll::Ready(Err(self.provider_closed(connection, None)));
                }
                Err(NoHead::Gone(error)) => {
                    return Poll::Ready(Err(self.provider_closed(connection, Some(error))));
                }
            }
            match response_kind(self.state.response_state.response.status).map_err(Stop::Failure)? {
                ResponseKind::Final => return Poll::Ready(self.check_final()),
                ResponseKind::Informational => self.pass_on_informational(cx, connection.leg.is_stream())?,
                ResponseKind::Switching => return Poll::Ready(self.check_switch()),
            }
        }
    }

    /// Checks that the client has asked for the protocol to which the provider switches.
    fn check_switch(&self) -> Result<(), Stop> {
        let RequestState { input, request, up, response_state, .. } = &*self.state;
        let ResponseState { output, response, .. } = &**response_state;
        let upgrades = &self.upstream.plan.upgrades;
        // The rest of the request belongs to the old protocol (RFC 9110 §7.8).
        let is_agreed =
            up.is_complete() && upgrades.are_agreed_on(request, input.filled(), response, output.filled());
        if !is_agreed {
            return Err(Stop::Failure(unexpected_switch()));
        }
        // A client that has opened a stream does not know the key, so nobody else checks the answer to it.
        let is_answer = |key: &[u8]| is_websocket_accepted(&response.fields, output.filled(), key);
        let is_unproven = self.client.leg.opens_websocket()
            && !websocket_key(request, input.filled()).is_some_and(is_answer);
        if is_unproven { Err(Stop::Failure(not_opened())) } else { Ok(()) }
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

    /// Passes an informational response on, which arrived in HTTP/2 or not.
    fn pass_on_informational(&mut self, cx: &mut Context<'_>, is_http2: bool) -> Result<(), Stop> {
        self.informational = self.informational.saturating_add(1);
        if self.informational > self.view.plan.limits.informational {
            let detail = "the provider sent too many informational responses (`limits.informational`)";
            return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
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

    /// Returns the reason to stop, after the provider closed the connection before it sent a complete
    /// response head.
    fn provider_closed(&mut self, connection: &Connection, error: Option<io::Error>) -> Stop {
        match error.as_ref().and_then(Lost::carried_by) {
            None | Some(Lost::Connection) => {}
            Some(lost) => return self.provider_refused(lost),
        }
        let request = &self.state.request;
        let whole = self.state.up.is_received() && self.upload.is_repeatable();
        let may_repeat = (connection.reused && request.method.is_idempotent()) || planted!(PostRepeated);
        if may_repeat && self.received_bytes == 0 && whole {
            return Stop::Stale;
        }
        let how = match error {
            Some(error) => format!(
                "the connection to the provider failed before a response arrived: {}",
                TlsError::reason_of(&error)
            ),
            None => "the provider closed the connection before a response arrived".to_owned(),
        };
        Stop::Failure(Failure::new(ErrorKind::ProviderClosed, how))
    }

    /// Returns the reason to stop, after the provider has ended the stream of the call.
    #[cold]
    fn provider_refused(&mut self, lost: Lost) -> Stop {
        if lost == Lost::Http11Required {
            self.upstream.note_http1();
        }
        let is_unprocessed = matches!(lost, Lost::NotProcessed | Lost::Http11Required);
        let can_repeat = self.received_bytes == 0 && self.upload.is_repeatable();
        if is_unprocessed && can_repeat && self.refusals < REFUSALS_MAX {
            self.refusals += 1;
            return Stop::Refused;
        }
        let kind = match lost {
            Lost::Untranslatable => ErrorKind::BadRequest,
            Lost::Violation(_) | Lost::Flood(_) => ErrorKind::BadResponse,
            _ => ErrorKind::ProviderClosed,
        };
        Stop::Failure(Failure::new(kind, format!("there is no response: {lost}")))
    }

    /// Handles an expired timer. Returns `None` if the exchange continues.
    fn expired_while_waiting(&mut self, cx: &Context<'_>) -> Option<Stop> {
        let now = Moment::now();
        let due = |deadline: Moment| deadline <= now;
        let failure = |kind, detail| Some(Stop::Failure(Failure::new(kind, detail)));
        let up = &self.state.up;
        let waits_for_client = self.is_sending() && !up.is_blocked_on_sink();
        if due(self.deadlines.total) {
            let detail = self.grpc.as_ref().map_or(TOTAL, |grpc| grpc.total_detail(now));
            return failure(ErrorKind::TotalTimeout, detail);
        }
        if due(self.deadlines.phase) {
            return if waits_for_client {
                failure(
                    ErrorKind::RequestTimeout,
                    "the request body did not arrive in time (`timeouts.idle`)",
                )
            } else if up.is_blocked_on_sink() && !self.upload.is_refused() {
                failure(ErrorKind::IdleTimeout, "the provider stopped reading the request (`timeouts.idle`)")
            } else if self.is_gathering {
                failure(
                    ErrorKind::IdleTimeout,
                    "the provider stalled during a response that a flow buffers (`timeouts.idle`)",
                )
            } else {
                failure(
                    ErrorKind::FirstByteTimeout,
                    "the provider did not respond in time (`timeouts.first_byte`)",
                )
            };
        }
        let moved_bytes = up.moved_bytes;
        if waits_for_client
            && !self.deadlines.rate.keeps_up(now, moved_bytes, self.view.plan.limits.body_rate.bytes())
        {
            return failure(
                ErrorKind::RequestTimeout,
                "the request body arrives too slowly (`limits.body_rate`)",
            );
        }
        self.deadlines.rearm(&self.client.timer, cx, now);
        None
    }

    /// Takes over a response that was received elsewhere: its head, and the bytes behind it.
    pub fn adopt_response(&mut self, response_state: Box<ResponseState>) {
        self.received_bytes += response_state.output.filled().len() as u64;
        self.state.return_response_state(&self.client.connection.worker.pools);
        self.state.set_response_state(response_state);
        self.clock.first_byte = Moment::now();
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
