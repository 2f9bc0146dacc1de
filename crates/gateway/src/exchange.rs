//! One exchange: a request on its way to a provider and the response on its way back, by one task that holds both sockets.
//!
//! In the common case that is four system calls: receive the request, send it, receive the response, send it. Everything else
//! here is for the uncommon cases.

pub(crate) mod access_log;
mod authenticate;
pub(crate) mod clock;
mod echo;
pub(crate) mod failure;
pub(crate) mod flow_run;
pub(crate) mod forward;
pub(crate) mod gather;
pub(crate) mod hedge;
pub(crate) mod named_fields;
pub(crate) mod pace;
pub(crate) mod pipe;
pub(crate) mod recording;
pub(crate) mod revalidation;
pub(crate) mod rewrite;
pub(crate) mod route;
pub(crate) mod serving;
pub(crate) mod token;
pub(crate) mod tunnel;
pub(crate) mod upgrade;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{BodyError, Progress, RequestFraming, ResponseFraming, Span, Version};
use tracing::debug;

use crate::client::{Client, End, RequestState, ResponseState};
use crate::event_loop::now;
use crate::exchange::access_log::Record;
use crate::exchange::clock::{Clock, Deadlines, RateWindow};
use crate::exchange::failure::{ErrorKind, Failure};
use crate::exchange::flow_run::FlowRun;
use crate::exchange::forward::{Drafted, Reply, edit_request, edit_response, survey};
use crate::exchange::hedge::Hedge;
use crate::exchange::pace::Taking;
use crate::exchange::pipe::{Kept, PipeError, SecretMask};
use crate::exchange::recording::Recording;
use crate::exchange::rewrite::Rewriter;
use crate::exchange::route::{Forward, Question, Route};
use crate::plan::UpstreamTimeouts;
use crate::upstream::{Connection, Upstream};
use crate::worker::{View, Worker};

/// How long a client may be gone before anybody looks while its provider is waited for. Nearly every response is here sooner, and to be
/// woken by two sockets costs more than by one.
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
                    state.return_response_state(&client.worker);
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
            Box::pin(tunnel::connect(client, state, &view, authority, begun)).await
        }
        Err(failure) => Box::pin(refuse(client, state, &view, &failure, None, begun)).await,
    };
    // Nothing of an exchange that ended badly may reach this client.
    state.return_response_state(&client.worker);
    end
}

/// One of the exchanges and tunnels that may be under way at once; given up when dropped. Nothing where there
/// may be any number.
struct ExchangeSlot(Option<Rc<Worker>>);

impl ExchangeSlot {
    fn take(worker: &Rc<Worker>, most: u32) -> Result<Self, Failure> {
        if most == 0 {
            return Ok(Self(None));
        }
        let place = Self(Some(Rc::clone(worker)));
        let before = worker.shared.exchanges.fetch_add(1, Relaxed);
        if before < most {
            return Ok(place);
        }
        let detail =
            "as many exchanges and tunnels are under way as may be at once (`gateway.limits.exchanges`)";
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

/// Answers a request that goes nowhere, or does not get to where it goes.
pub(crate) async fn refuse(
    client: &mut Client,
    state: &mut RequestState,
    view: &Rc<View>,
    failure: &Failure,
    forward: Option<&Forward>,
    begun: Moment,
) -> End {
    let nowhere = Rc::clone(&view.nowhere);
    let mut exchange = Exchange::new(client, state, Rc::clone(view), nowhere, begun);
    exchange.find_diagnoses(forward);
    exchange.answer(failure).await
}

/// Has the opening of a tunnel recorded, if flows with diagnoses match it. What passes through it is nobody's business.
pub(crate) fn record_tunnel(
    client: &mut Client,
    state: &mut RequestState,
    view: &Rc<View>,
    (upstream, connection): (&Rc<Upstream>, &Connection),
    answer: &[u8],
    begun: Moment,
) {
    let mut exchange = Exchange::new(client, state, Rc::clone(view), Rc::clone(upstream), begun);
    exchange.find_diagnoses(Some(&Forward::whole(Rc::clone(upstream), Span::default())));
    if let Some(recording) = &mut exchange.recording {
        recording.note_connection(connection);
        recording.note_answer(answer, &exchange.client.worker);
        exchange.clock.first_byte = Moment::now();
        exchange.finish_recording(true, exchange.clock.first_byte);
    }
}

/// Why there is no response to pass on.
enum Stop {
    /// The client is told.
    Failure(Failure),
    /// There is nobody to tell.
    ClientGone,
    /// The reused connection had died before the provider saw the request, as far as can be known.
    Stale,
}

/// How a response that had begun ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Complete,
    /// The client sees that something is missing.
    CutShort,
    ClientGone,
}

#[expect(clippy::struct_excessive_bools, reason = "each says another thing, and none follows from another")]
struct Exchange<'a> {
    client: &'a mut Client,
    state: &'a mut RequestState,
    view: Rc<View>,
    upstream: Rc<Upstream>,
    clock: Clock,
    deadlines: Deadlines,
    /// Bytes of the request's body that are still in the input, after the head, though sent: they could be sent again.
    kept_body: usize,
    /// Whether any of the body is gone from the input, so that the request cannot be sent again.
    unrepeatable: bool,
    /// The provider takes no more of the request, but may still answer.
    sink_closed: bool,
    informational: u8,
    /// Whether the call that is made goes to a host that may be sent credentials.
    takes_credentials: bool,
    /// Whether the client has named the provider by base URL, and the response is rewritten for that.
    is_rewritten: bool,
    /// The error that the gateway answered with.
    failed: Option<ErrorKind>,
    /// Bytes sent to the provider and received from it so far.
    sent_bytes: u64,
    received_bytes: u64,
    /// What takes the exchange through its flows, if it has any with remedies.
    flow_run: Option<Box<FlowRun>>,
    /// What is kept of the exchange, if diagnoses are to see it.
    recording: Option<Recording>,
}

impl<'a> Exchange<'a> {
    fn new(
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

    async fn run(&mut self, forward: &Forward) -> End {
        match self.obtain_response(forward).await {
            Ok(connection) => self.pass_on(connection).await,
            Err(stop) => self.stop(stop).await,
        }
    }

    /// Passes on the response whose head is here.
    async fn pass_on(&mut self, connection: Box<Connection>) -> End {
        if self.state.response_state.response.status == 101 {
            Box::pin(self.upgrade(connection)).await
        } else {
            self.reply(connection).await
        }
    }

    /// Ends an exchange that has brought no response.
    async fn stop(&mut self, stop: Stop) -> End {
        match stop {
            Stop::Failure(failure) => Box::pin(self.answer(&failure)).await,
            Stop::ClientGone | Stop::Stale => {
                self.record(0, self.clock.forwarded);
                End::Close
            }
        }
    }

    fn timeouts(&self) -> UpstreamTimeouts {
        let timeouts = self.upstream.plan.timeouts;
        let Some(flow_run) = &self.flow_run else { return timeouts };
        UpstreamTimeouts { first_byte: flow_run.draft.call.first_byte.or(timeouts.first_byte), ..timeouts }
    }

    /// Sends the request until a provider's connection brings the head of a final response.
    async fn obtain_response(&mut self, forward: &Forward) -> Result<Box<Connection>, Stop> {
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
                        "a reused connection had died: sending again"
                    );
                    self.upstream.counters().repeats.add(1);
                    self.sent_bytes += self.state.up.moved_bytes;
                    self.state.reset_up();
                    self.kept_body = 0;
                    self.sink_closed = false;
                    // A new one, which cannot be stale: what fails there is not sent a third time.
                    connection = self.connect(true).await?;
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Makes a call of the gateway's own that must not be repeated, on a connection that nobody has used: a used one may turn out to be dead.
    async fn run_afresh(&mut self, forward: &Forward) -> End {
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

    /// Gets a connection that is not idle here; a new one if `fresh`.
    async fn connect(&mut self, fresh: bool) -> Result<Box<Connection>, Stop> {
        let (upstream, worker) = (Rc::clone(&self.upstream), Rc::clone(&self.client.worker));
        let mut connecting = Box::pin(async move {
            if fresh { upstream.open(&worker).await } else { upstream.connect(&worker).await }
        });
        // Connecting has its own limits; here it is only held against `total`, and against the client's patience.
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.arm(self.client);
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

    async fn attempt(&mut self, forward: &Forward, connection: &mut Connection) -> Result<(), Stop> {
        poll_fn(|cx| Poll::Ready(self.send_request(cx, forward, connection))).await?;
        self.clock.sent = now::exact();
        self.state.return_response_state(&self.client.worker);
        self.start_waiting(self.clock.sent);
        match poll_fn(|cx| self.poll_response(cx, connection)).await {
            Err(Stop::Failure(failure)) if self.is_saved_by_hedge(connection).await? => {
                debug!(error = failure.kind.slug(), "the second call has made up for the first");
                Ok(())
            }
            ended => {
                self.end_hedge();
                ended
            }
        }
    }

    /// Hands the head, and what is there of the body, to the system in one go.
    fn send_request(
        &mut self,
        cx: &mut Context<'_>,
        forward: &Forward,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        self.tap_request();
        let mut applied = self.authenticate(forward)?;
        self.prepare_echoes(applied.as_mut())?;
        let RequestState { input, request, up, .. } = &mut *self.state;
        let worker = &self.client.worker;
        let mut edits = worker.edits.borrow_mut();
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
        let shared = (&worker.buffers, &self.view.plan.trailers);
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
                // What was received in its place stays in the input, so that a repeated call is made of that.
                self.kept_body = flow_run.body.framed_len;
            }
        }
        Ok(())
    }

    /// Sets the deadline for what is waited for from `now` on.
    fn start_waiting(&mut self, now: Moment) {
        let timeouts = self.timeouts();
        let sends = self.is_sending();
        self.deadlines.phase = now.after(if sends { timeouts.idle } else { timeouts.first_byte });
        self.deadlines.rate =
            if sends { RateWindow::starting(now, self.state.up.moved_bytes) } else { RateWindow::NONE };
        self.deadlines.watch = now + UNWATCHED;
        self.deadlines.arm(self.client);
    }

    /// Whether the request is on its way, rather than the provider to answer. A client that waits for 100 (Continue) is not late.
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

    /// Pending as long as the client is there and no deadline has passed.
    fn poll_waiting<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        match self.watch_client(cx) {
            Ok(()) => self.poll_deadlines(cx),
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    /// Pending as long as no deadline has passed.
    fn poll_deadlines<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        if self.client.timer.poll_expired(cx)
            && let Some(stop) = self.expired_while_waiting(cx)
        {
            return Poll::Ready(Err(stop));
        }
        Poll::Pending
    }

    /// Whether some of the request is still to be sent.
    fn is_uploading(&self) -> bool {
        !self.state.up.is_complete() && !self.sink_closed
    }

    /// Moves the request's body on.
    fn poll_request(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Result<(), Stop> {
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
                // It may have answered before it stopped listening.
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
            // From here on the input only passes through.
            self.unrepeatable = true;
            input.remove(request.len, kept.len);
            kept = Kept::first(request.len);
        }
        let shared = (&self.client.worker.buffers, &self.view.plan.trailers);
        let before = up.read_bytes;
        let polled = up.poll(cx, &mut self.client.stream, (input, &mut kept), &mut connection.stream, shared);
        if kept.has_gap && kept.len > request.len {
            // A part of the body is of no use.
            input.remove(request.len, kept.len);
            kept.len = request.len;
        }
        self.kept_body = kept.len - request.len;
        self.unrepeatable |= kept.has_gap;
        self.client.worker.counters().received_bytes.add(up.read_bytes - before);
        polled
    }

    fn note_progress(&mut self, idle: Option<Duration>) {
        let now = Moment::now();
        self.deadlines.phase = now.after(idle);
        self.deadlines.arm(self.client);
    }

    /// Takes in what the client sends ahead, as far as there is place, and notices when it leaves.
    fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        while !self.client.half_closed && !self.state.input.is_full() {
            match self.client.stream.poll_read(cx, self.state.input.spare()) {
                Poll::Ready(Ok(0)) => {
                    self.client.half_closed = true;
                    self.give_half_closed_client_time(Moment::now());
                    self.deadlines.arm(self.client);
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

    /// Receives some of the response; true when the head of a final response is there.
    fn poll_response_head(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<bool, Stop>> {
        // A connection that waits for its provider needs nothing for a response yet.
        if !self.state.has_response_state() {
            match connection.stream.poll_readable(cx) {
                Poll::Ready(()) => self.state.take_response_state(&self.client.worker),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.state.response_state.output.is_full() {
            self.client
                .worker
                .buffers
                .grow(&mut self.state.response_state.output, self.view.plan.head_limits.head + 1);
        }
        match connection.stream.poll_read(cx, self.state.response_state.output.spare()) {
            Poll::Ready(Ok(count)) if count > 0 => {
                // The provider is still waited for when it has sent nothing but informational responses.
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

    /// Parses what has been received; passes on informational responses.
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
                    // What is still to come of the request belongs to the old protocol (RFC 9110 §7.8).
                    if up.is_complete() && self.upstream.plan.upgrades.are_agreed_on(request, response) {
                        return Ok(true);
                    }
                    let detail = "the provider changed the protocol without having been asked for that one, or too early";
                    return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
                }
                (Progress::Complete, 100..=199) => self.pass_on_informational(cx)?,
                (Progress::Complete, 200..=599) => return Ok(true),
                (Progress::Complete, _) => {
                    let detail = "the provider's status is not one of RFC 9110";
                    return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
                }
            }
        }
        Ok(false)
    }

    fn pass_on_informational(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        self.informational = self.informational.saturating_add(1);
        if self.informational > self.view.plan.limits.informational {
            let detail = "the provider sends informational responses without end (`limits.informational`)";
            return Err(Stop::Failure(Failure::new(ErrorKind::BadResponse, detail)));
        }
        self.mask_fields();
        let RequestState { request, response_state, .. } = &mut *self.state;
        let ResponseState { output, response, down } = &mut **response_state;
        if request.version == Version::Http11 {
            let reply = Reply { version: request.version, persistent: true, chunked: false };
            let worker = &self.client.worker;
            let mut edits = worker.edits.borrow_mut();
            edit_response(response, output.filled(), reply, &worker.shared.via, None, &mut edits);
            let head = response.render(output.filled(), &edits);
            if !down.is_blocked_on_sink() {
                down.reset(ResponseFraming::None, false);
            }
            let shared = (&worker.buffers, &self.view.plan.trailers);
            let sent = down.send(cx, Some(&head), &[], &mut self.client.stream, shared);
            sent.map_err(|_| Stop::ClientGone)?;
        }
        output.remove(0, response.len);
        self.start_waiting(Moment::now());
        Ok(())
    }

    /// What it means that the provider closed before its response had a whole head.
    fn provider_closed(&self, connection: &Connection, error: Option<io::Error>) -> Stop {
        let request = &self.state.request;
        let whole = self.state.up.is_received() && !self.unrepeatable;
        if connection.reused && self.received_bytes == 0 && whole && request.method.is_idempotent() {
            return Stop::Stale;
        }
        let how = match error {
            Some(error) => {
                format!("the provider's connection failed before a response was there: {}", error.kind())
            }
            None => "the provider closed the connection before a response was there".to_owned(),
        };
        Stop::Failure(Failure::new(ErrorKind::ProviderClosed, how))
    }

    /// The timer has gone off: what that means, or nothing if it is to go on.
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
                failure(ErrorKind::IdleTimeout, "the provider takes no more of the request (`timeouts.idle`)")
            } else if self.flow_run.as_ref().is_some_and(|flow_run| flow_run.gathers_response) {
                failure(
                    ErrorKind::IdleTimeout,
                    "the provider has stopped amid its response, which a flow wants to see whole (`timeouts.idle`)",
                )
            } else {
                failure(
                    ErrorKind::FirstByteTimeout,
                    "the provider has not answered in time (`timeouts.first_byte`)",
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
        self.deadlines.rearm(self.client, cx, now);
        None
    }

    /// Passes the response on.
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

    /// Receives the rest of a response into a cache, though its client is gone, or takes nothing.
    async fn fill_alone(&mut self, connection: &mut Connection) {
        debug!(
            provider = self.upstream.plan.stats.name(),
            "a response goes on into the cache without its client"
        );
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.half_close = Moment::NEVER;
        self.note_fill_progress();
        poll_fn(|cx| {
            let ResponseState { output, down, .. } = &mut *self.state.response_state;
            let shared = (&self.client.worker.buffers, &self.view.plan.trailers);
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
                self.deadlines.rearm(self.client, cx, now);
            }
            Poll::Pending
        })
        .await;
    }

    /// Sends the client the rest of a response that is stored. The provider's connection is left to others
    /// meanwhile.
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
        self.deadlines.arm(self.client);
    }

    /// How the held response is sent: unchanged, or with the body that a remedy has put in its place.
    fn response_framing(&self) -> ResponseFraming {
        match self.flow_run.as_ref().and_then(|flow_run| flow_run.draft.response_body.as_ref()) {
            Some(body) => ResponseFraming::Length(body.len() as u64),
            None => self.state.response_state.response.framing,
        }
    }

    /// Whether the client's connection could stay open after a response that starts now.
    fn can_persist(&self) -> bool {
        let limit = self.view.plan.limits.requests_per_connection;
        self.state.request.persistent
            && self.state.up.is_complete()
            && !self.sink_closed
            && !self.client.half_closed
            && !self.client.worker.draining.get()
            && (limit == 0 || self.client.requests < limit)
    }

    /// Hands the head, and what is there of the body, to the system in one go. A body that is malformed from the start can still
    /// be answered with an error.
    fn send_response(&mut self, cx: &mut Context<'_>, reply: Reply) -> Result<Finish, Failure> {
        let framing = self.response_framing();
        let ResponseState { output, response, down } = &mut *self.state.response_state;
        let worker = &self.client.worker;
        let mut edits = worker.edits.borrow_mut();
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
            flow_run.tap(&output.filled()[..response.len], down, &worker.buffers.budget);
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
        let shared = (&worker.buffers, &self.view.plan.trailers);
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

    /// Moves both bodies on until the response's is through, or all of it is stored; there is no `connection`
    /// any more then.
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
        let shared = (&self.client.worker.buffers, &self.view.plan.trailers);
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
            self.deadlines.arm(self.client);
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
            // It may be taking the response as it comes; if nothing of it moves, there is probably nobody left to take it.
            if self.state.response_state.down.moved_bytes == self.deadlines.half_close_moved_bytes {
                return Some(Finish::ClientGone);
            }
            self.give_half_closed_client_time(now);
        }
        let down = &mut self.state.response_state.down;
        if due(self.deadlines.total) || due(self.deadlines.fill) {
            // Nobody waits any longer for what the provider does not send.
            down.stop_filling();
            return Some(Finish::CutShort);
        }
        if due(self.deadlines.phase) {
            if !down.is_filling() || down.is_blocked_on_sink() {
                return Some(Finish::CutShort);
            }
            // The client has all that there is.
            self.deadlines.phase = Moment::NEVER;
        }
        let (taken, rate) = (down.moved_bytes, self.view.plan.limits.body_rate.bytes());
        if !self.deadlines.taking.keeps_up(now, taken, rate, || pace::hidden_bytes(self.client)) {
            pace::give_up(self.client);
            return Some(Finish::CutShort);
        }
        self.deadlines.rearm(self.client, cx, now);
        None
    }

    /// Whether the provider's connection is of use for another request: all of this one's response has come
    /// on it, and nothing else.
    fn is_reusable(&self) -> bool {
        let ResponseState { output, response, down } = &*self.state.response_state;
        down.is_received()
            && response.persistent
            && response.framing != ResponseFraming::UntilClose
            && self.state.up.is_complete()
            && !self.sink_closed
            // Bytes after the response were not asked for; whoever reads them as the next response is lost.
            && output.filled().is_empty()
    }

    /// Keeps what can be kept of both connections, and counts.
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
            // An orderly end would say that this was all.
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

    /// Keeps a connection for others, as far as the response on it allows.
    fn keep(&self, connection: Box<Connection>, now: Moment) {
        let response = &self.state.response_state.response;
        self.upstream.keep(connection, now, response.keep_alive_timeout_s, response.keep_alive_max);
        self.client.worker.has_kept();
    }

    /// Removes the request from the input; what follows it stays.
    fn drop_request(&mut self) {
        let RequestState { input, request, .. } = &mut *self.state;
        input.remove(0, request.len + self.kept_body);
        self.client.worker.buffers.shrink(input);
        self.kept_body = 0;
    }

    /// Answers in the provider's place.
    async fn answer(&mut self, failure: &Failure) -> End {
        // What was waited for until now is not the gateway's own time.
        self.clock.first_byte = Moment::now();
        self.client.worker.counters().generated(failure.kind);
        self.failed = Some(failure.kind);
        self.state.take_response_state(&self.client.worker);
        if self.state.response_state.down.is_blocked_on_sink() {
            // Half an informational response is out; nothing sensible can follow it.
            self.record(0, Moment::now());
            return End::Close;
        }
        let persistent = self.can_persist_without_provider();
        let with_body = self.state.request.method != egret_http1::Method::Head;
        let answers = &self.view.plan.errors;
        let (answer, status) = (failure.answer(answers, with_body, persistent), failure.status(answers));
        self.send_answer((&answer, &answer), status, persistent).await
    }

    /// Sends a whole message, and records another where the client gets it rewritten.
    async fn send_answer(
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

    /// Whether all of the request is here, so that the next one's place is known.
    fn can_persist_without_provider(&mut self) -> bool {
        let RequestState { request, up, .. } = &mut *self.state;
        // What follows a CONNECT was meant for the tunnel, and may be of somebody's choosing who is not the client.
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

    /// Both sides have agreed on another protocol: from here on bytes are just passed on.
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
        tunnel::relay(self.client, self.state, &mut connection.stream, &self.upstream).await;
        End::Close
    }

    /// The head, with what follows it, that is written to this client instead of `head`; none where nothing changes.
    fn rewritten(&self, head: &[u8]) -> Option<Vec<u8>> {
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

    fn record(&mut self, status: u16, ended: Moment) {
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
