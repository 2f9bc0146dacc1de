//! The reply: forwards the response of a call to the client, or sends the client a response of the gateway's
//! own.

use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Moment;
use egret_http1::{ResponseFraming, TrailerNames, Version};
use egret_leg::{Framing, OutgoingHead, Reply};
use egret_match::rewrite::Rewriter;
use egret_message::Fields;
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_net::event_loop::{now, spawn};
use egret_observe::counters::is_failed_status;
use egret_observe::failure::{ErrorKind, Failure};
use egret_store::entries::StoredBody;

use crate::exchange::call::Call;
use crate::exchange::fill::{Fill, Reuse};
use crate::exchange::forward::edit_response;
use crate::exchange::stop::Stop;
use crate::exchange::stream::{BodySource, Forwarding};
use crate::state::request::ResponseState;
use egret_body::{Begun, Filling, Stages, StoredSource};
use egret_upstream::{CallTarget, Connection, View};

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

/// Returns the names of the trailers of a response that are forwarded.
pub(super) fn trailers_of(view: &View, is_grpc: bool) -> &TrailerNames {
    if is_grpc { &view.plan.grpc_trailers } else { &view.plan.trailers }
}

/// Forwards the response.
async fn reply(call: &mut Call<'_>, connection: Box<Connection>) -> Ended {
    // A gRPC call may turn out to have failed at its end, where its head is gone.
    if is_failed_status(call.state.response_state.response.status) || call.grpc.is_some() {
        call.record_failure();
    }
    if let Some(recording) = &mut call.recording {
        recording.note_connection(&connection);
    }
    if call.grpc_outcome() == GrpcOutcome::Pending {
        call.note_grpc_head();
    }
    let is_http2 = connection.leg.is_stream();
    let framing = announced_framing(call);
    let reply = Reply::new(call.state.request.version, framing, can_persist(call));
    let mut finish = match poll_fn(|cx| Poll::Ready(send_response(call, cx, reply, is_http2))).await {
        Ok(finish) => finish,
        Err(failure) => return Box::pin(respond_with_error(call, &failure)).await,
    };
    call.clock.forwarded = now::exact();
    let mut ended = call.clock.forwarded;
    // A fault acts on what passes from the provider to the client.
    let stages = call.state.response_state.down.stages().filter(|stages| !stages.are_inseparable());
    let source = match stages.and_then(Stages::storing).map(|storing| Arc::clone(storing.body())) {
        Some(body) if !call.upload.is_going_on(call.state) => fill(call, connection, &body),
        _ => BodySource::Provider(connection),
    };
    let mut forwarding = Forwarding { call, source };
    if finish == Finish::Complete && !forwarding.call.state.response_state.down.is_complete() {
        finish = forwarding.run().await;
        ended = Moment::now();
    }
    if finish == Finish::ClientGone && forwarding.reads_on() {
        Box::pin(forwarding.read_on()).await;
        ended = Moment::now();
    }
    let Forwarding { call, source } = forwarding;
    settle(call, source, finish, reply, ended)
}

/// Lets a task of its own receive the rest of a response into the cache. The client is served from there.
fn fill(call: &mut Call<'_>, connection: Box<Connection>, body: &Arc<StoredBody>) -> BodySource {
    let ResponseState { output, response, down } = &mut *call.state.response_state;
    let (source, lead) = StoredSource::leading(body);
    if let Some(inbound) = &mut call.inbound {
        inbound.lead = Some(Rc::clone(&lead));
    }
    let filling = Filling::new(down.split(), mem::take(output), lead);
    let fill = Fill {
        filling,
        reuse: Reuse::after(response).filter(|_| !call.upload.is_refused()),
        connection,
        upstream: Rc::clone(&call.upstream),
        view: Rc::clone(&call.view),
        client: Rc::clone(&call.client.connection),
        idle: call.timeouts().idle,
        total: call.deadlines.total,
    };
    spawn(fill.run());
    BodySource::Store(source)
}

/// Returns the framing of the response that is sent: the provider's own, or that of a body set by a
/// remedy.
fn response_framing(call: &Call<'_>) -> ResponseFraming {
    match call.inbound.as_ref().and_then(|inbound| inbound.body.as_ref()) {
        Some(body) => ResponseFraming::Length(body.len() as u64),
        None => call.state.response_state.response.framing,
    }
}

/// Returns the framing that the client's is derived from: one without a length, if a part is left out.
fn announced_framing(call: &Call<'_>) -> ResponseFraming {
    match &call.inbound {
        None => call.state.response_state.response.framing,
        Some(inbound) if inbound.hides_usage => ResponseFraming::UntilClose,
        Some(_) => response_framing(call),
    }
}

/// Returns `true` if the client's connection could stay open after a response that starts now.
fn can_persist(call: &Call<'_>) -> bool {
    call.state.request.persistent
        && call.upload.is_complete(call.state)
        && !call.client.has_closed()
        && !call.client.connection.worker.draining.get()
        && call.client.connection.may_go_on(call.view.plan.limits.requests_per_connection)
}

/// Writes the head, and the part of the body that has been received, in one system call. If the body is
/// malformed from its start, the client can still get an error response. With `is_http2`, the response
/// arrived in HTTP/2.
fn send_response(
    call: &mut Call<'_>,
    cx: &mut Context<'_>,
    reply: Reply,
    is_http2: bool,
) -> Result<Finish, Failure> {
    let framing = response_framing(call);
    let ResponseState { output, response, down } = &mut *call.state.response_state;
    let worker = &call.client.connection.worker;
    let mut edits = worker.pools.edits.borrow_mut();
    let via = worker.shared.via.line(response.version, is_http2);
    let id = &call.state.request_id;
    edit_response(response, output.filled(), reply, via, id, call.inbound.as_deref(), &mut edits);
    down.start(framing, reply.framing);
    let mut changed = None;
    if let Some(inbound) = &mut call.inbound {
        let budget = &worker.pools.buffers.budget;
        inbound.add_stages(&response.fields, &output.filled()[..response.len], down, budget);
        changed = inbound.body.clone().map(|body| (body, inbound.framed_len));
    }
    if matches!(response.status, 429 | 503) {
        call.has_retry_after =
            Fields::received(&response.fields, output.filled()).get(b"retry-after").is_some();
    }
    let head = response.render(output.filled(), &edits);
    if let Some(recording) = &mut call.recording {
        if recording.wants_usage() {
            let budget = &worker.pools.buffers.budget;
            down.add_stages().read_usage(Fields::received(&response.fields, output.filled()), budget);
        }
        recording.tap_response(response, output.filled(), &head, down, &worker.records);
    }
    if call.is_rewritten
        && let Some(rewriter) = Rewriter::new(
            &call.view.plan.table,
            call.upstream.plan.responder(),
            &call.state.request,
            call.state.input.filled(),
        )
    {
        rewriter.edit(&response.fields, output.filled(), &mut edits);
    }
    let head = response.render(output.filled(), &edits);
    let body = changed.as_ref().map_or(&output.filled()[response.len..], |(body, _)| body);
    let shared = (&worker.pools.buffers, trailers_of(&call.view, call.grpc.is_some()));
    match down.begin(cx, OutgoingHead::Edited(&head), body, &mut call.client.leg, shared) {
        Ok(Begun { used, is_sink_gone }) => {
            let used = changed.map_or(used, |(_, received)| received);
            output.remove(0, response.len + used);
            Ok(if is_sink_gone { Finish::ClientGone } else { Finish::Complete })
        }
        Err(error) => {
            down.add_stages().stop_storing();
            Err(Failure::bad_response(error))
        }
    }
}

/// Returns `true` if the provider's connection can serve another request: it has delivered this response
/// completely, and nothing after it.
fn is_reusable(call: &Call<'_>) -> bool {
    let ResponseState { output, response, down } = &*call.state.response_state;
    down.is_received()
        && response.persistent
        && response.framing != ResponseFraming::UntilClose
        && call.upload.is_complete(call.state)
        // Bytes after the response were not requested. Parsing them as the next response would pair it
        // with the wrong request.
        && output.filled().is_empty()
}

/// Keeps both connections open if possible, and updates the counters.
fn settle(call: &mut Call<'_>, source: BodySource, finish: Finish, reply: Reply, ended: Moment) -> Ended {
    match source {
        BodySource::Provider(connection) if is_reusable(call) => keep(call, connection, ended),
        BodySource::Provider(_) => {}
        BodySource::Store(stored) => call.received_bytes += stored.take_received_bytes(),
    }
    call.client.connection.worker.counters().sent_bytes.add(call.state.response_state.down.moved_bytes);
    if finish != Finish::Complete
        && let Some(recording) = &mut call.recording
    {
        recording.note_cut();
    }
    if finish == Finish::ClientGone {
        call.client.note_closed(ended);
    }
    let then = match finish {
        // An orderly close would mark the response as complete.
        Finish::CutShort if reply.framing == Framing::UntilClose => Then::Abort,
        Finish::CutShort | Finish::ClientGone => Then::Close,
        Finish::Complete => Then::Next { persistent: reply.persistent },
    };
    Ended { status: call.state.response_state.response.status, at: ended, then }
}

/// Returns a connection to the pool, if its response allows reuse.
pub(crate) fn keep(call: &Call<'_>, connection: Box<Connection>, now: Moment) {
    let response = &call.state.response_state.response;
    call.upstream.keep(connection, now, response.keep_alive_timeout_s, response.keep_alive_max);
    call.client.connection.worker.has_kept();
}

/// Sends an error response in the provider's place.
pub(crate) async fn respond_with_error(call: &mut Call<'_>, failure: &Failure) -> Ended {
    // The time spent waiting until now does not count towards the gateway's footprint.
    call.clock.first_byte = Moment::now();
    call.client.connection.worker.counters().generated(failure.kind);
    call.failed = Some(failure.kind);
    call.record_failure();
    call.state.take_response_state(&call.client.connection.worker.pools);
    if call.client.leg.is_blocked() {
        // Half of an informational response has been sent, so no other response can follow it.
        return Ended { status: 0, at: Moment::now(), then: Then::Close };
    }
    let persistent = can_persist_without_provider(call);
    let (errors, shape) = (&call.view.plan.errors, call.client_error_shape());
    let status = failure.status_in(errors, shape);
    let message = failure.response(errors, shape, persistent, &call.state.request_id);
    call.warn_of(failure, failure.status(errors));
    call.upstream.counters().generated(status);
    let grpc_status = GrpcStatus::of_http(failure.status(errors));
    call.note_grpc_status(Some(grpc_status));
    send_message(call, &message, &message, status, persistent).await
}

/// Ends the exchange without a response, and resets the client's connection or its stream.
pub(crate) fn reset_client(call: &mut Call<'_>, kind: ErrorKind) -> Ended {
    let at = Moment::now();
    // The time spent waiting until now does not count towards the gateway's footprint.
    call.clock.first_byte = at;
    call.clock.forwarded = at;
    call.note_failed(kind);
    call.record_failure();
    Ended { status: 0, at, then: Then::Abort }
}

/// Sends a whole message. Records `recorded` instead of it, because the client may get a rewritten copy.
pub(crate) async fn send_message(
    call: &mut Call<'_>,
    message: &[u8],
    recorded: &[u8],
    status: u16,
    persistent: bool,
) -> Ended {
    let sent = call.client.send_all(message).await;
    call.state.response_state.down.moved_bytes += message.len() as u64;
    call.clock.forwarded = Moment::now();
    if let Some(recording) = &mut call.recording {
        recording.note_generated(recorded, &call.client.connection.worker.records);
        if !sent {
            recording.note_cut();
        }
    }
    let then = match (sent, persistent) {
        (false, _) => Then::Close,
        (true, false) => Then::Linger,
        (true, true) => Then::Persist,
    };
    Ended { status, at: call.clock.forwarded, then }
}

/// Returns `true` if the whole request has been received, so the start of the next one is known.
pub(crate) fn can_persist_without_provider(call: &mut Call<'_>) -> bool {
    // Bytes after a CONNECT were meant for the tunnel. Somebody other than the client may have chosen
    // them.
    if !call.upload.is_repeatable() || call.state.request.method == egret_http1::Method::Connect {
        return false;
    }
    call.upload.repeat(call.state);
    call.tap_request();
    call.upload.skip(call.state) && can_persist(call)
}

/// Switches both sides to the agreed protocol. From here on bytes are relayed unchanged.
async fn upgrade(call: &mut Call<'_>, connection: Box<Connection>) -> Ended {
    let reply = Reply { version: Version::Http11, persistent: true, framing: Framing::Length };
    if let Some(recording) = &mut call.recording {
        recording.note_connection(&connection);
    }
    let sent = poll_fn(|cx| Poll::Ready(send_response(call, cx, reply, false))).await;
    call.clock.forwarded = Moment::now();
    let then = if matches!(sent, Ok(Finish::Complete)) { Then::Relay(connection) } else { Then::Close };
    Ended { status: 101, at: call.clock.forwarded, then }
}

/// Returns the message that this client gets instead of `head` and the bytes behind it, or `None` if
/// nothing changes.
pub(crate) fn rewritten(call: &Call<'_>, head: &[u8]) -> Option<Vec<u8>> {
    if !call.is_rewritten {
        return None;
    }
    let bytes = call.state.input.filled();
    let responder = call.upstream.plan.responder();
    Rewriter::new(&call.view.plan.table, responder, &call.state.request, bytes)?.head(head)
}

/// Forwards the response whose head has been received.
pub(crate) async fn pass_on(call: &mut Call<'_>, connection: Box<Connection>) -> Ended {
    if call.state.response_state.response.status == 101 {
        Box::pin(upgrade(call, connection)).await
    } else {
        reply(call, connection).await
    }
}

/// Ends an exchange that has no response to forward.
pub(crate) async fn stop(call: &mut Call<'_>, stop: Stop) -> Ended {
    match stop {
        Stop::Failure(failure) => Box::pin(respond_with_error(call, &failure)).await,
        Stop::ClientGone => {
            let at = Moment::now();
            call.client.note_closed(at);
            Ended { status: 0, at, then: Then::Close }
        }
        Stop::Stale | Stop::NotPermitted | Stop::Refused => {
            Ended { status: 0, at: call.clock.forwarded, then: Then::Close }
        }
    }
}

/// Makes the call, and forwards its response.
pub(crate) async fn run(call: &mut Call<'_>, target: &CallTarget) -> Ended {
    match call.obtain_response(target, false).await {
        Ok(connection) => pass_on(call, connection).await,
        Err(why) => stop(call, why).await,
    }
}
