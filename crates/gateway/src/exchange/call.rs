//! One exchange: a request to a provider and its response. One task holds both sockets.
//!
//! The common case makes four system calls: receive the request, send it, receive the response, send it. The
//! rest of this file handles the uncommon cases.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{BodyError, Progress, RequestFraming, ResponseFraming, Span, Version};
use tracing::debug;

use crate::downstream::connection::{Client, End};
use crate::exchange::body::{Kept, PipeError, SecretMask};
use crate::exchange::flows::FlowRun;
use crate::exchange::forward::{Drafted, Reply, edit_request, edit_response, survey};
use crate::exchange::hedge::Hedge;
use crate::exchange::pace::RateWindow;
use crate::exchange::pace::Taking;
use crate::exchange::pace::hidden_bytes;
use crate::exchange::rewrite::Rewriter;
use crate::exchange::route::{Question, Route};
use crate::exchange::state::{RequestState, ResponseState};
use crate::exchange::target::CallTarget;
use crate::exchange::timing::{Clock, Deadlines};
use crate::failure::{ErrorKind, Failure};
use crate::observe::access_log::Record;
use crate::observe::recorder::Recording;
use crate::plan::UpstreamTimeouts;
use crate::upstream::{Connection, Upstream};
use crate::worker::local::{View, Worker};
use egret_net::event_loop::now;

/// Time that an exchange waits for its provider before it starts to watch the client's socket too. Nearly
/// every response arrives sooner, and waking on two sockets costs more than waking on one.
const UNWATCHED: Duration = Duration::from_millis(50);

/// Serves the request whose head has just been parsed into `state`.
pub(crate) async fn run(client: &mut Client, state: &mut RequestState) -> End {
    let begun = now::turned();
    client.requests = client.requests.saturating_add(1);
    let view = client.worker.view();
    state.reset_up();
    let end = match route(client, state, &view) {
        Ok(Route::Forward(forward)) => {
            let _place = match ExchangeSlot::take(&client.worker, view.plan.limits.exchanges) {
                Ok(place) => place,
                Err(failure) => {
                    let end = Box::pin(refuse(client, state, &view, &failure, Some(&forward), begun)).await;
                    state.return_response_state(&client.worker.pools);
                    return end;
                }
            };
            let upstream = Rc::clone(&forward.upstream);
            let RequestState { input, request, .. } = &mut *state;
            upstream.plan.upgrades.settle(request, input.filled());
            let mut exchange = Exchange::new(client, state, view, upstream, begun);
            exchange.is_rewritten = forward.is_rewritten;
            if exchange.view.plan.flows.is_empty() {
                exchange.run(&forward).await
            } else {
                exchange.run_with_flows(&forward).await
            }
        }
        Ok(Route::Tunnel(authority)) => {
            Box::pin(crate::exchange::tunnel::connect(client, state, &view, authority, begun)).await
        }
        Err(failure) => Box::pin(refuse(client, state, &view, &failure, None, begun)).await,
    };
    // The response of a failed exchange must never reach this client.
    state.return_response_state(&client.worker.pools);
    end
}

/// A slot among the exchanges and tunnels that may run at once. It is released on drop. `None` if their
/// number is unlimited.
pub struct ExchangeSlot(Option<Rc<Worker>>);

impl ExchangeSlot {
    pub fn take(worker: &Rc<Worker>, most: u32) -> Result<Self, Failure> {
        if most == 0 {
            return Ok(Self(None));
        }
        let place = Self(Some(Rc::clone(worker)));
        let before = worker.shared.exchanges.fetch_add(1, Relaxed);
        if before < most {
            return Ok(place);
        }
        let detail = "the limit of concurrent exchanges and tunnels is reached (`gateway.limits.exchanges`)";
        Err(Failure::new(ErrorKind::TooManyInFlight, detail))
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        if let Some(worker) = &self.0 {
            worker.shared.exchanges.fetch_sub(1, Relaxed);
        }
    }
}

fn route(client: &Client, state: &mut RequestState, view: &View) -> Result<Route, Failure> {
    let RequestState { input, request, .. } = state;
    let bytes = input.filled();
    let fields = survey(request, bytes, &client.worker.shared.via, &view.plan.named_fields)?;
    Question { view, client, request, bytes, fields: &fields }.route()
}

/// Responds with an error to a request that could not be routed or admitted.
pub(crate) async fn refuse(
    client: &mut Client,
    state: &mut RequestState,
    view: &Rc<View>,
    failure: &Failure,
    forward: Option<&CallTarget>,
    begun: Moment,
) -> End {
    let nowhere = Rc::clone(&view.nowhere);
    let mut exchange = Exchange::new(client, state, Rc::clone(view), nowhere, begun);
    exchange.find_diagnoses(forward);
    exchange.answer(failure).await
}

/// Records that a tunnel was opened, if flows with diagnoses match it. The tunnel's contents are not
/// inspected.
pub(crate) fn record_tunnel(
    client: &mut Client,
    state: &mut RequestState,
    view: &Rc<View>,
    (upstream, connection): (&Rc<Upstream>, &Connection),
    answer: &[u8],
    begun: Moment,
) {
    let mut exchange = Exchange::new(client, state, Rc::clone(view), Rc::clone(upstream), begun);
    exchange.find_diagnoses(Some(&CallTarget::whole(Rc::clone(upstream), Span::default())));
    if let Some(recording) = &mut exchange.recording {
        recording.note_connection(connection);
        recording.note_answer(answer, &exchange.client.worker);
        exchange.clock.first_byte = Moment::now();
        exchange.finish_recording(true, exchange.clock.first_byte);
    }
}

/// The reason why there is no response to forward.
pub enum Stop {
    /// The client gets an error response.
    Failure(Failure),
    /// The client has disconnected, so no response is sent.
    ClientGone,
    /// The reused connection was closed before the provider read the request, as far as the gateway can know.
    Stale,
}

/// The outcome of a response that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Complete,
    /// The response is incomplete, and the client can see that it is.
    CutShort,
    ClientGone,
}

#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
pub struct Exchange<'a> {
    pub client: &'a mut Client,
    pub state: &'a mut RequestState,
    pub view: Rc<View>,
    pub upstream: Rc<Upstream>,
    pub clock: Clock,
    pub deadlines: Deadlines,
    /// Number of request-body bytes that were sent but are kept in the input, behind the head, so they can be
    /// sent again.
    pub kept_body: usize,
    /// `true` once part of the body has left the input, so the request cannot be sent again.
    pub unrepeatable: bool,
    /// The provider has stopped reading the request, but may still respond.
    pub sink_closed: bool,
    pub informational: u8,
    /// `true` if the call is made to a host that credentials may be sent to.
    pub takes_credentials: bool,
    /// `true` if the client named the provider by base URL, so the response is rewritten to match.
    is_rewritten: bool,
    /// The error that the gateway responded with.
    pub failed: Option<ErrorKind>,
    /// Number of bytes sent to the provider, and received from it, so far.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// The exchange's run through its flows. `None` if none of them has remedies.
    pub flow_run: Option<Box<FlowRun>>,
    /// The recording that diagnoses receive. `None` if no diagnosis matches.
    pub recording: Option<Recording>,
}

impl<'a> Exchange<'a> {
    pub fn new(
        client: &'a mut Client,
        state: &'a mut RequestState,
        view: Rc<View>,
        upstream: Rc<Upstream>,
        begun: Moment,
    ) -> Self {
        let total = begun.after(upstream.plan.timeouts.total);
        Self {
            clock: Clock::new(begun),
            deadlines: Deadlines::new(total),
            kept_body: 0,
            unrepeatable: false,
            sink_closed: false,
            informational: 0,
            takes_credentials: true,
            is_rewritten: false,
            failed: None,
            sent_bytes: 0,
            received_bytes: 0,
            flow_run: None,
            recording: None,
            client,
            state,
            view,
            upstream,
        }
    }

    pub async fn run(&mut self, forward: &CallTarget) -> End {
        match self.obtain_response(forward).await {
            Ok(connection) => self.pass_on(connection).await,
            Err(stop) => self.stop(stop).await,
        }
    }

    /// Forwards the response whose head has been received.
    pub async fn pass_on(&mut self, connection: Box<Connection>) -> End {
        if self.state.response_state.response.status == 101 {
            Box::pin(self.upgrade(connection)).await
        } else {
            self.reply(connection).await
        }
    }

    /// Ends an exchange that has no response to forward.
    pub async fn stop(&mut self, stop: Stop) -> End {
        match stop {
            Stop::Failure(failure) => Box::pin(self.answer(&failure)).await,
            Stop::ClientGone | Stop::Stale => {
                self.record(0, self.clock.forwarded);
                End::Close
            }
        }
    }

    pub fn timeouts(&self) -> UpstreamTimeouts {
        let timeouts = self.upstream.plan.timeouts;
        let Some(flow_run) = &self.flow_run else { return timeouts };
        UpstreamTimeouts { first_byte: flow_run.draft.call.first_byte.or(timeouts.first_byte), ..timeouts }
    }

    /// Sends the request and receives the head of the final response. Retries once if a reused connection
    /// turns out to be stale.
    pub async fn obtain_response(&mut self, forward: &CallTarget) -> Result<Box<Connection>, Stop> {
        let mut connection = match self.upstream.take_idle(self.clock.begun) {
            Some(connection) => {
                self.upstream.counters().pool_hits.add(1);
                connection
            }
            None => self.connect(false).await?,
        };
        loop {
            match self.attempt(forward, &mut connection).await {
                Ok(()) => return Ok(connection),
                Err(Stop::Stale) => {
                    debug!(
                        provider = self.upstream.plan.stats.name(),
                        "a reused connection was stale: sending the request again"
                    );
                    self.upstream.counters().repeats.add(1);
                    self.sent_bytes += self.state.up.moved_bytes;
                    self.state.reset_up();
                    self.kept_body = 0;
                    self.sink_closed = false;
                    // A new connection cannot be stale, so the request is not sent a third time.
                    connection = self.connect(true).await?;
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Makes one of the gateway's own calls that must not be repeated. It uses a new connection, because a
    /// reused one may be dead.
    pub async fn run_afresh(&mut self, forward: &CallTarget) -> End {
        let obtained = async {
            let mut connection = self.connect(true).await?;
            self.attempt(forward, &mut connection).await?;
            Ok::<_, Stop>(connection)
        };
        match obtained.await {
            Ok(connection) => self.pass_on(connection).await,
            Err(stop) => self.stop(stop).await,
        }
    }

    /// Obtains a connection that does not come from this worker's idle pool. Opens a new one if `fresh`.
    async fn connect(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
        let (upstream, worker) = (Rc::clone(&self.upstream), Rc::clone(&self.client.worker));
        let mut connecting = Box::pin(async move {
            if fresh {
                upstream.open(&worker.shared.network).await
            } else {
                upstream.connect(&worker.shared.network).await
            }
        });
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
        .await?;
        self.clock.dial = times;
        self.clock.waited_nanos += times.total_nanos();
        Ok(connection)
    }

    async fn attempt(&mut self, forward: &CallTarget, connection: &mut Connection) -> Result<(), Stop> {
        poll_fn(|cx| Poll::Ready(self.send_request(cx, forward, connection))).await?;
        self.clock.sent = now::exact();
        self.state.return_response_state(&self.client.worker.pools);
        self.start_waiting(self.clock.sent);
        match poll_fn(|cx| self.poll_response(cx, connection)).await {
            Err(Stop::Failure(failure)) if self.is_saved_by_hedge(connection).await? => {
                debug!(error = failure.kind.slug(), "the second call succeeded after the first one failed");
                Ok(())
            }
            ended => {
                self.end_hedge();
                ended
            }
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
        let mut applied = self.authenticate(forward)?;
        self.prepare_echoes(applied.as_mut())?;
        let RequestState { input, request, up, .. } = &mut *self.state;
        let worker = &self.client.worker;
        let mut edits = worker.pools.edits.borrow_mut();
        let client = if self.view.plan.forwarded_for { self.client.peer_address() } else { None };
        let client = client.map(|address| address.ip());
        let drafted = self.flow_run.as_ref().map(|flow_run| Drafted::new(&flow_run.draft, applied.as_ref()));
        edit_request(request, input.filled(), forward, &worker.shared.via, client, drafted, &mut edits);
        let changed = drafted.and_then(|drafted| drafted.body);
        if let Some(body) = changed {
            up.reset(RequestFraming::Length(body.len() as u64), false);
        }
        let is_changed = changed.is_some();
        let head = request.render(input.filled(), &edits);
        let body = changed.unwrap_or(&input.filled()[request.len..]);
        let shared = (&worker.pools.buffers, &self.view.plan.trailers);
        let used = match up.send(cx, Some(&head), body, &mut connection.stream, shared) {
            Ok(used) => used,
            Err(PipeError::Malformed(error)) => return Err(Stop::Failure(Failure::bad_request_body(error))),
            Err(PipeError::SourceGone | PipeError::SinkGone) => {
                self.sink_closed = true;
                return Ok(());
            }
        };
        self.kept_body = used;
        let hedge = self.flow_run.as_ref().and_then(|flow_run| flow_run.draft.call.hedge);
        let hedge = hedge
            .filter(|_| up.is_received())
            .map(|after| Hedge::new([head.to_vec().as_slice(), &body[..used]].concat(), after));
        if let Some(flow_run) = &mut self.flow_run {
            if hedge.is_some() {
                flow_run.hedge = hedge;
            }
            if is_changed {
                // The body that was received stays in the input, so a repeated call can be built from it.
                self.kept_body = flow_run.body.framed_len;
            }
        }
        Ok(())
    }

    /// Sets the deadline of the phase that begins at `now`.
    fn start_waiting(&mut self, now: Moment) {
        let timeouts = self.timeouts();
        let sends = self.is_sending();
        self.deadlines.phase = now.after(if sends { timeouts.idle } else { timeouts.first_byte });
        self.deadlines.rate =
            if sends { RateWindow::starting(now, self.state.up.moved_bytes) } else { RateWindow::NONE };
        self.deadlines.watch = now + UNWATCHED;
        self.deadlines.arm(&self.client.timer);
    }

    /// Returns `true` while the request is being sent, `false` once the gateway waits for the provider to
    /// respond. A client that waits for 100 (Continue) is not late.
    fn is_sending(&self) -> bool {
        let waits_for_continue =
            self.state.request.expect_continue && self.informational == 0 && !self.unrepeatable;
        self.is_uploading() && !waits_for_continue
    }

    fn poll_response(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<Result<(), Stop>> {
        if self.state.has_response_state()
            && let Poll::Ready(Err(_)) =
                self.state.response_state.down.poll_backlog(cx, &mut self.client.stream)
        {
            return Poll::Ready(Err(Stop::ClientGone));
        }
        if self.is_uploading()
            && let Err(stop) = self.poll_request(cx, connection)
        {
            return Poll::Ready(Err(stop));
        }
        loop {
            match self.poll_response_head(cx, connection) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(stop)) => return Poll::Ready(Err(stop)),
                Poll::Pending => break,
            }
        }
        if self.flow_run.is_some() && self.poll_hedge(cx, connection).is_ready() {
            return Poll::Ready(Ok(()));
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
        !self.state.up.is_complete() && !self.sink_closed
    }

    /// Forwards more of the request's body.
    pub fn poll_request(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Result<(), Stop> {
        let before = self.state.up.moved_bytes;
        match self.poll_up(cx, connection) {
            Poll::Ready(Ok(())) => {
                self.clock.uploaded = Moment::now();
                self.start_waiting(self.clock.uploaded);
            }
            Poll::Ready(Err(PipeError::Malformed(BodyError::Incomplete) | PipeError::SourceGone)) => {
                return Err(Stop::ClientGone);
            }
            Poll::Ready(Err(PipeError::Malformed(error))) => {
                return Err(Stop::Failure(Failure::bad_request_body(error)));
            }
            Poll::Ready(Err(PipeError::SinkGone)) => {
                // The provider may have responded before it stopped reading.
                self.sink_closed = true;
                self.start_waiting(Moment::now());
            }
            Poll::Pending if self.state.up.moved_bytes != before => self.note_progress(self.timeouts().idle),
            Poll::Pending => {}
        }
        Ok(())
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<Result<(), PipeError>> {
        let replay_bytes = self.flow_run.as_ref().map_or(0, |flow_run| flow_run.replay_bytes());
        let RequestState { input, request, up, .. } = &mut *self.state;
        let mut kept = Kept { len: request.len + self.kept_body, most: 0, has_gap: self.unrepeatable };
        if !self.unrepeatable && self.kept_body <= replay_bytes {
            kept.most = request.len + replay_bytes;
        } else if !up.is_received() && self.kept_body > 0 {
            // From here on the body only passes through the input.
            self.unrepeatable = true;
            input.remove(request.len, kept.len);
            kept = Kept::first(request.len);
        }
        let shared = (&self.client.worker.pools.buffers, &self.view.plan.trailers);
        let before = up.read_bytes;
        let polled = up.poll(cx, &mut self.client.stream, (input, &mut kept), &mut connection.stream, shared);
        if kept.has_gap && kept.len > request.len {
            // With a gap in it, the kept part of the body is useless.
            input.remove(request.len, kept.len);
            kept.len = request.len;
        }
        self.kept_body = kept.len - request.len;
        self.unrepeatable |= kept.has_gap;
        self.client.worker.counters().received_bytes.add(up.read_bytes - before);
        polled
    }

    pub fn note_progress(&mut self, idle: Option<Duration>) {
        let now = Moment::now();
        self.deadlines.phase = now.after(idle);
        self.deadlines.arm(&self.client.timer);
    }

    /// Reads what the client sends ahead, as long as the input has room, and notices when the client
    /// disconnects.
    fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        while !self.client.half_closed && !self.state.input.is_full() {
            match self.client.stream.poll_read(cx, self.state.input.spare()) {
                Poll::Ready(Ok(0)) => {
                    self.client.half_closed = true;
                    self.give_half_closed_client_time(Moment::now());
                    self.deadlines.arm(&self.client.timer);
                }
                Poll::Ready(Ok(count)) => {
                    self.client.worker.counters().received_bytes.add(count as u64);
                    self.state.input.advance(count);
                }
                Poll::Ready(Err(_)) => return Err(Stop::ClientGone),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn give_half_closed_client_time(&mut self, now: Moment) {
        self.deadlines.half_close = now.after(self.view.plan.timeouts.half_close);
        self.deadlines.half_close_moved_bytes = self.state.response_state.down.moved_bytes;
    }

    /// Receives more of the response. Returns `true` once the head of a final response is complete.
    fn poll_response_head(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<bool, Stop>> {
        // A connection that waits for its provider needs no response state yet.
        if !self.state.has_response_state() {
            match connection.stream.poll_readable(cx) {
                Poll::Ready(()) => self.state.take_response_state(&self.client.worker.pools),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.state.response_state.output.is_full() {
            self.client
                .worker
                .pools
                .buffers
                .grow(&mut self.state.response_state.output, self.view.plan.head_limits.head + 1);
        }
        match connection.stream.poll_read(cx, self.state.response_state.output.spare()) {
            Poll::Ready(Ok(count)) if count > 0 => {
                // An informational response does not end the wait for the provider: the final response is
                // still to come.
                if self.state.response_state.output.filled().is_empty() {
                    self.clock.first_byte = now::turned();
                }
                self.received_bytes += count as u64;
                self.state.response_state.output.advance(count);
                Poll::Ready(self.parse_response(cx))
            }
            Poll::Ready(ended) => Poll::Ready(Err(self.provider_closed(connection, ended.err()))),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Parses the received bytes and forwards informational responses. Returns `true` once the head of a
    /// final response is complete.
    fn parse_response(&mut self, cx: &mut Context<'_>) -> Result<bool, Stop> {
        let bad = |error| Stop::Failure(Failure::bad_response(error));
        while !self.state.response_state.output.filled().is_empty() {
            let RequestState { input, request, up, response_state, .. } = &mut *self.state;
            let ResponseState { output, response, .. } = &mut **response_state;
            let progress =
                response.parse(output.filled(), &self.view.plan.head_limits, request.method).map_err(bad)?;
            match (progress, response.status) {
                (Progress::Partial, _) => return Ok(false),
                (Progress::Complete, 101) => {
                    let (request, response) = ((&*request, input.filled()), (&*response, output.filled()));
                    // The rest of the request belongs to the old protocol (RFC 9110 §7.8).
                    if up.is_complete() && self.upstream.plan.upgrades.are_agreed_on(request, response) {
                        return Ok(true);
                    }
                    let detail = "the provider switched protocols without a matching request, or before it had received the request";
                    return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
                }
                (Progress::Complete, 100..=199) => self.pass_on_informational(cx)?,
                (Progress::Complete, 200..=599) => return Ok(true),
                (Progress::Complete, _) => {
                    let detail = "the provider's status code is not between 100 and 599";
                    return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
                }
            }
        }
        Ok(false)
    }

    fn pass_on_informational(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        self.informational = self.informational.saturating_add(1);
        if self.informational > self.view.plan.limits.informational {
            let detail = "the provider sent too many informational responses (`limits.informational`)";
            return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
        }
        self.mask_fields();
        let RequestState { request, response_state, .. } = &mut *self.state;
        let ResponseState { output, response, down } = &mut **response_state;
        if request.version == Version::Http11 {
            let reply = Reply { version: request.version, persistent: true, chunked: false };
            let worker = &self.client.worker;
            let mut edits = worker.pools.edits.borrow_mut();
            edit_response(response, output.filled(), reply, &worker.shared.via, None, &mut edits);
            let head = response.render(output.filled(), &edits);
            if !down.is_blocked_on_sink() {
                down.reset(ResponseFraming::None, false);
            }
            let shared = (&worker.pools.buffers, &self.view.plan.trailers);
            let sent = down.send(cx, Some(&head), &[], &mut self.client.stream, shared);
            sent.map_err(|_| Stop::ClientGone)?;
        }
        output.remove(0, response.len);
        self.start_waiting(Moment::now());
        Ok(())
    }

    /// Returns the reason to stop, after the provider closed the connection before it sent a complete
    /// response head.
    fn provider_closed(&self, connection: &Connection, error: Option<io::Error>) -> Stop {
        let request = &self.state.request;
        let whole = self.state.up.is_received() && !self.unrepeatable;
        if connection.reused && self.received_bytes == 0 && whole && request.method.is_idempotent() {
            return Stop::Stale;
        }
        let how = match error {
            Some(error) => {
                format!("the connection to the provider failed before a response arrived: {}", error.kind())
            }
            None => "the provider closed the connection before a response arrived".to_owned(),
        };
        Stop::Failure(Failure::new(ErrorKind::ProviderClosed, how))
    }

    /// Handles an expired timer. Returns `None` if the exchange continues.
    fn expired_while_waiting(&mut self, cx: &Context<'_>) -> Option<Stop> {
        let now = Moment::now();
        let due = |deadline: Moment| deadline <= now;
        let failure = |kind, detail| Some(Stop::Failure(Failure::new(kind, detail)));
        let up = &self.state.up;
        let waits_for_client = self.is_sending() && !up.is_blocked_on_sink();
        if due(self.deadlines.half_close) {
            return Some(Stop::ClientGone);
        }
        if due(self.deadlines.total) {
            return failure(ErrorKind::TotalTimeout, "the exchange took longer than `timeouts.total`");
        }
        if due(self.deadlines.phase) {
            return if waits_for_client {
                failure(
                    ErrorKind::RequestTimeout,
                    "the request body did not arrive in time (`timeouts.idle`)",
                )
            } else if up.is_blocked_on_sink() && !self.sink_closed {
                failure(ErrorKind::IdleTimeout, "the provider stopped reading the request (`timeouts.idle`)")
            } else if self.flow_run.as_ref().is_some_and(|flow_run| flow_run.gathers_response) {
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

    /// Forwards the response.
    async fn reply(&mut self, mut connection: Box<Connection>) -> End {
        if let Some(recording) = &mut self.recording {
            recording.note_connection(&connection);
        }
        let framing = self.response_framing();
        let reply = Reply::new(self.state.request.version, framing, self.can_persist());
        let mut finish = match poll_fn(|cx| Poll::Ready(self.send_response(cx, reply))).await {
            Ok(finish) => finish,
            Err(failure) => return Box::pin(self.answer(&failure)).await,
        };
        self.clock.forwarded = now::exact();
        let mut ended = self.clock.forwarded;
        if finish == Finish::Complete && !self.state.response_state.down.is_complete() {
            self.deadlines.rate = RateWindow::NONE;
            self.deadlines.taking = Taking::NOTHING;
            self.note_progress(self.timeouts().idle);
            finish = poll_fn(|cx| self.poll_bodies(cx, Some(&mut connection))).await;
            ended = Moment::now();
        }
        if finish != Finish::Complete
            && self.state.response_state.down.is_filling()
            && self.state.up.is_complete()
        {
            Box::pin(self.fill_alone(&mut connection)).await;
        }
        if finish == Finish::Complete && self.state.response_state.down.is_filled() {
            return Box::pin(self.send_filled(connection, reply)).await;
        }
        self.finish(Some(connection), finish, reply, ended)
    }

    /// Receives the rest of a response into the cache, although its client is gone or has stopped reading.
    async fn fill_alone(&mut self, connection: &mut Connection) {
        debug!(
            provider = self.upstream.plan.stats.name(),
            "storing the rest of a response without its client"
        );
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.half_close = Moment::NEVER;
        self.note_fill_progress();
        poll_fn(|cx| {
            let ResponseState { output, down, .. } = &mut *self.state.response_state;
            let shared = (&self.client.worker.pools.buffers, &self.view.plan.trailers);
            let before = down.read_bytes;
            let polled = down.poll_fill_alone(cx, &mut connection.stream, output, shared);
            if polled.is_ready() {
                return Poll::Ready(());
            }
            if down.read_bytes != before {
                self.note_fill_progress();
            }
            if self.client.timer.poll_expired(cx) {
                let now = Moment::now();
                if self.deadlines.total <= now || self.deadlines.fill <= now {
                    self.state.response_state.down.stop_filling();
                    return Poll::Ready(());
                }
                self.deadlines.rearm(&self.client.timer, cx, now);
            }
            Poll::Pending
        })
        .await;
    }

    /// Sends the client the rest of a response that is already stored. Meanwhile the provider's connection
    /// can serve other requests.
    async fn send_filled(&mut self, connection: Box<Connection>, reply: Reply) -> End {
        let mut connection = Some(connection);
        if self.is_reusable()
            && let Some(connection) = connection.take()
        {
            self.keep(connection, Moment::now());
        }
        self.note_progress(self.timeouts().idle);
        let finish = poll_fn(|cx| self.poll_bodies(cx, None)).await;
        self.finish(connection, finish, reply, Moment::now())
    }

    fn note_fill_progress(&mut self) {
        self.deadlines.fill = Moment::now().after(self.timeouts().idle);
        self.deadlines.arm(&self.client.timer);
    }

    /// Returns the framing of the response that is sent: the provider's own, or that of a body set by a
    /// remedy.
    fn response_framing(&self) -> ResponseFraming {
        match self.flow_run.as_ref().and_then(|flow_run| flow_run.draft.response_body.as_ref()) {
            Some(body) => ResponseFraming::Length(body.len() as u64),
            None => self.state.response_state.response.framing,
        }
    }

    /// Returns `true` if the client's connection could stay open after a response that starts now.
    fn can_persist(&self) -> bool {
        let limit = self.view.plan.limits.requests_per_connection;
        self.state.request.persistent
            && self.state.up.is_complete()
            && !self.sink_closed
            && !self.client.half_closed
            && !self.client.worker.draining.get()
            && (limit == 0 || self.client.requests < limit)
    }

    /// Writes the head, and the part of the body that has been received, in one system call. If the body is
    /// malformed from its start, the client can still get an error response.
    fn send_response(&mut self, cx: &mut Context<'_>, reply: Reply) -> Result<Finish, Failure> {
        let framing = self.response_framing();
        let ResponseState { output, response, down } = &mut *self.state.response_state;
        let worker = &self.client.worker;
        let mut edits = worker.pools.edits.borrow_mut();
        edit_response(
            response,
            output.filled(),
            reply,
            &worker.shared.via,
            self.flow_run.as_deref(),
            &mut edits,
        );
        down.start(framing, reply.chunked);
        let mut changed = None;
        if let Some(flow_run) = &mut self.flow_run {
            down.shield = flow_run.echoes.as_ref().map(|echoes| Box::new(SecretMask::new(echoes)));
            flow_run.tap(&output.filled()[..response.len], down, &worker.pools.buffers.budget);
            changed =
                flow_run.draft.response_body.clone().map(|body| (body, flow_run.response_body.framed_len));
        }
        let head = response.render(output.filled(), &edits);
        if let Some(recording) = &mut self.recording {
            recording.tap_response(response, output.filled(), &head, down, worker);
        }
        if self.is_rewritten
            && let Some(rewriter) = Rewriter::new(
                &self.view.plan,
                &self.upstream.plan,
                &self.state.request,
                self.state.input.filled(),
            )
        {
            rewriter.edit(&response.fields, output.filled(), &mut edits);
        }
        let head = response.render(output.filled(), &edits);
        let body = changed.as_ref().map_or(&output.filled()[response.len..], |(body, _)| body);
        let shared = (&worker.pools.buffers, &self.view.plan.trailers);
        let sent = down.send(cx, Some(&head), body, &mut self.client.stream, shared);
        match sent {
            Ok(used) => {
                let used = changed.map_or(used, |(_, received)| received);
                output.remove(0, response.len + used);
                Ok(Finish::Complete)
            }
            Err(PipeError::Malformed(error)) => {
                down.stop_filling();
                Err(Failure::bad_response(error))
            }
            Err(PipeError::SourceGone | PipeError::SinkGone) => Ok(Finish::ClientGone),
        }
    }

    /// Forwards both bodies until the response's body is complete, or until all of it is stored. In the
    /// second case `connection` is `None` from then on.
    fn poll_bodies(&mut self, cx: &mut Context<'_>, mut connection: Option<&mut Connection>) -> Poll<Finish> {
        let before = self.state.up.moved_bytes + self.state.response_state.down.moved_bytes;
        if let Some(connection) = connection.as_deref_mut().filter(|_| self.is_uploading()) {
            match self.poll_up(cx, connection) {
                Poll::Ready(Err(PipeError::SinkGone)) => self.sink_closed = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Finish::ClientGone),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        } else if self.watch_client(cx).is_err() {
            return Poll::Ready(Finish::ClientGone);
        }
        let ResponseState { output, down, .. } = &mut *self.state.response_state;
        let shared = (&self.client.worker.pools.buffers, &self.view.plan.trailers);
        let (kept, received) = (&mut Kept::first(0), down.read_bytes);
        let sink = &mut self.client.stream;
        let polled = match &mut connection {
            Some(connection) => down.poll(cx, &mut connection.stream, (output, kept), sink, shared),
            None => down.poll_rest(cx, sink, shared),
        };
        match polled {
            Poll::Ready(Ok(())) => return Poll::Ready(Finish::Complete),
            Poll::Ready(Err(PipeError::SinkGone)) => return Poll::Ready(Finish::ClientGone),
            Poll::Ready(Err(error)) => {
                debug!(provider = self.upstream.plan.stats.name(), ?error, "a response was cut short");
                return Poll::Ready(Finish::CutShort);
            }
            Poll::Pending => {}
        }
        let ResponseState { down, .. } = &*self.state.response_state;
        let (is_filling, has_received) = (down.is_filling(), down.read_bytes != received);
        if connection.is_some() && down.is_filled() && self.state.up.is_complete() {
            return Poll::Ready(Finish::Complete);
        }
        let (waits, taken) = (down.is_blocked_on_sink(), down.moved_bytes);
        if waits != self.deadlines.taking.is_waiting() {
            self.deadlines.taking.note(waits, Moment::now(), taken);
            self.deadlines.arm(&self.client.timer);
        }
        if self.state.up.moved_bytes + taken != before {
            self.note_progress(self.timeouts().idle);
        }
        if !is_filling {
            self.deadlines.fill = Moment::NEVER;
        } else if has_received || self.deadlines.fill == Moment::NEVER {
            self.note_fill_progress();
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
        let down = &mut self.state.response_state.down;
        if due(self.deadlines.total) || due(self.deadlines.fill) {
            // The data that the provider has not sent is given up.
            down.stop_filling();
            return Some(Finish::CutShort);
        }
        if due(self.deadlines.phase) {
            if !down.is_filling() || down.is_blocked_on_sink() {
                return Some(Finish::CutShort);
            }
            // The client has received everything there is so far.
            self.deadlines.phase = Moment::NEVER;
        }
        let (taken, rate) = (down.moved_bytes, self.view.plan.limits.body_rate.bytes());
        if !self.deadlines.taking.keeps_up(now, taken, rate, || hidden_bytes(self.client.stream.socket())) {
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
            && self.state.up.is_complete()
            && !self.sink_closed
            // Bytes after the response were not requested. Parsing them as the next response would pair it
            // with the wrong request.
            && output.filled().is_empty()
    }

    /// Keeps both connections open if possible, and updates the counters.
    fn finish(
        &mut self,
        connection: Option<Box<Connection>>,
        finish: Finish,
        reply: Reply,
        ended: Moment,
    ) -> End {
        if let Some(connection) = connection.filter(|_| self.is_reusable()) {
            self.keep(connection, ended);
        }
        let response = &self.state.response_state.response;
        self.client.worker.counters().sent_bytes.add(self.state.response_state.down.moved_bytes);
        let until_close = !reply.chunked
            && matches!(response.framing, ResponseFraming::Chunked | ResponseFraming::UntilClose);
        if finish != Finish::Complete
            && let Some(recording) = &mut self.recording
        {
            recording.note_cut();
        }
        self.record(self.state.response_state.response.status, ended);
        if finish == Finish::CutShort && until_close {
            // An orderly close would mark the response as complete.
            self.client.abort();
        }
        if finish != Finish::Complete {
            return End::Close;
        }
        self.client.last_active = ended;
        self.drop_request();
        match (reply.persistent, self.state.up.is_complete() && self.state.input.filled().is_empty()) {
            (true, _) => End::Persist,
            (false, true) => End::Close,
            (false, false) => End::Linger,
        }
    }

    /// Returns a connection to the pool, if its response allows reuse.
    pub fn keep(&self, connection: Box<Connection>, now: Moment) {
        let response = &self.state.response_state.response;
        self.upstream.keep(connection, now, response.keep_alive_timeout_s, response.keep_alive_max);
        self.client.worker.has_kept();
    }

    /// Removes the request from the input. Bytes after it stay.
    pub fn drop_request(&mut self) {
        let RequestState { input, request, .. } = &mut *self.state;
        input.remove(0, request.len + self.kept_body);
        self.client.worker.pools.buffers.shrink(input);
        self.kept_body = 0;
    }

    /// Sends an error response in the provider's place.
    pub async fn answer(&mut self, failure: &Failure) -> End {
        // The time spent waiting until now does not count towards the gateway's footprint.
        self.clock.first_byte = Moment::now();
        self.client.worker.counters().generated(failure.kind);
        self.failed = Some(failure.kind);
        self.state.take_response_state(&self.client.worker.pools);
        if self.state.response_state.down.is_blocked_on_sink() {
            // Half of an informational response has been sent, so no other response can follow it.
            self.record(0, Moment::now());
            return End::Close;
        }
        let persistent = self.can_persist_without_provider();
        let with_body = self.state.request.method != egret_http1::Method::Head;
        let answers = &self.view.plan.errors;
        let (answer, status) = (failure.answer(answers, with_body, persistent), failure.status(answers));
        self.send_answer((&answer, &answer), status, persistent).await
    }

    /// Sends a whole message. Records `recorded` instead of it, because the client may get a rewritten copy.
    pub async fn send_answer(
        &mut self,
        (answer, recorded): (&[u8], &[u8]),
        status: u16,
        persistent: bool,
    ) -> End {
        let sent = self.client.send_all(answer).await;
        self.state.response_state.down.moved_bytes += answer.len() as u64;
        self.clock.forwarded = Moment::now();
        if let Some(recording) = &mut self.recording {
            recording.note_answer(recorded, &self.client.worker);
            if !sent {
                recording.note_cut();
            }
        }
        self.record(status, self.clock.forwarded);
        if !sent {
            return End::Close;
        }
        if !persistent {
            return End::Linger;
        }
        self.client.last_active = self.clock.forwarded;
        self.drop_request();
        End::Persist
    }

    /// Returns `true` if the whole request has been received, so the start of the next one is known.
    pub fn can_persist_without_provider(&mut self) -> bool {
        let RequestState { request, up, .. } = &mut *self.state;
        // Bytes after a CONNECT were meant for the tunnel. Somebody other than the client may have chosen
        // them.
        if self.unrepeatable || request.method == egret_http1::Method::Connect {
            return false;
        }
        self.sent_bytes += up.moved_bytes;
        up.reset(request.framing, false);
        self.tap_request();
        let RequestState { input, request, up, .. } = &mut *self.state;
        match up.skip(&input.filled()[request.len..]) {
            Some(used) => self.kept_body = used,
            None => return false,
        }
        self.sink_closed = false;
        self.can_persist()
    }

    /// Switches both sides to the agreed protocol. From here on bytes are relayed unchanged.
    async fn upgrade(&mut self, mut connection: Box<Connection>) -> End {
        let reply = Reply { version: Version::Http11, persistent: true, chunked: false };
        if let Some(recording) = &mut self.recording {
            recording.note_connection(&connection);
        }
        let sent = poll_fn(|cx| Poll::Ready(self.send_response(cx, reply))).await;
        self.clock.forwarded = Moment::now();
        self.record(101, self.clock.forwarded);
        if !matches!(sent, Ok(Finish::Complete)) {
            return End::Close;
        }
        self.drop_request();
        crate::exchange::tunnel::relay(self.client, self.state, &mut connection.stream, &self.upstream).await;
        End::Close
    }

    /// Returns the message that this client gets instead of `head` and the bytes behind it, or `None` if
    /// nothing changes.
    pub fn rewritten(&self, head: &[u8]) -> Option<Vec<u8>> {
        if !self.is_rewritten {
            return None;
        }
        let bytes = self.state.input.filled();
        Rewriter::new(&self.view.plan, &self.upstream.plan, &self.state.request, bytes)?.head(head)
    }

    fn log(&self, status: u16, ended: Moment) {
        let RequestState { input, request, response_state, .. } = &*self.state;
        self.client.worker.shared.access_log.write_if_on(self.client.worker.counters(), || Record {
            client: self.client.peer_address(),
            provider: self.upstream.plan.stats.name(),
            method: request.method_text.of(input.filled()),
            target: request.target.of(input.filled()),
            status,
            duration: ended.since(self.clock.begun),
            footprint: Duration::from_nanos(self.clock.footprint_nanos()),
            sent_bytes: response_state.down.moved_bytes,
            error: self.failed.map(ErrorKind::slug),
        });
    }

    pub fn record(&mut self, status: u16, ended: Moment) {
        if self.recording.is_some() {
            self.finish_recording(status != 0, ended);
        }
        self.end_flow_run(ended);
        let counters = self.upstream.counters();
        counters.exchange(self.state.request.method, status);
        if status != 0 {
            counters.latency.record(ended.nanos_since(self.clock.begun) / 1000);
            counters.footprint.record(self.clock.footprint_nanos() / 1000);
        }
        counters.sent_bytes.add(self.sent_bytes + self.state.up.moved_bytes);
        counters.received_bytes.add(self.received_bytes + self.state.response_state.down.read_bytes);
        self.log(status, ended);
    }
}
