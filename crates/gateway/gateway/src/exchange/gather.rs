//! Gathers bodies that a flow needs before they are forwarded. A body is received whole, up to a limit, and
//! stays in the buffer it was received in, so it is forwarded or sent again like any other.
//!
//! All gathered bodies of the process together take at most `limits.gathered` bytes of memory. A body's
//! memory is allocated while it arrives: it doubles, up to the announced length. So a client that has sent
//! only a head takes no memory from others, and no client holds more than twice the bytes that it has sent.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use egret_accounts::SecretPatterns;
use egret_http1::{RequestFraming, ResponseFraming};
use egret_leg::Received;
use egret_match::is_event_stream;
use egret_message::Fields;
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_net::event_loop::sleep_until;
use egret_observe::failure::{ErrorKind, Failure};
use egret_usage::ContentScan;

use crate::exchange::call::Call;
use crate::exchange::stop::Stop;
use crate::state::request::ResponseState;
use egret_body::{Awaited, Beginning, Gathered, GatheredBody, Gathering};
use egret_upstream::Connection;

/// Asks a client that waits for it to send its body (RFC 9110 §10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Maximum length of a response's beginning that is held back, its head included.
const HELD_BYTES_MAX: usize = 512 << 10;
/// Memory that is added to a full buffer for it.
const HELD_STEP_BYTES: usize = 16 << 10;

/// The detail of the failure of a provider that has sent no event with content in time.
const NO_EVENT: &str = "the provider sent no event with content in time (`timeout.first_event` of a flow)";

/// Receives the request's whole body into `body`, and leaves it in the input too. A body of more than `max`
/// bytes passes through ungathered. `told_to_continue` is true once the client has been sent 100 (Continue).
pub(crate) async fn gather_request(
    call: &mut Call<'_>,
    body: &mut GatheredBody,
    told_to_continue: &mut bool,
    max: usize,
) -> Result<(), Stop> {
    let framing = call.state.request.framing;
    if max == 0 || matches!(framing, RequestFraming::Length(length) if length > max as u64) {
        return Ok(());
    }
    body.clear();
    let sends_continue = call.state.request.expect_continue && !mem::replace(told_to_continue, true);
    if sends_continue && !call.client.send_all(CONTINUE).await {
        return Err(Stop::ClientGone);
    }
    let mut gathering = Gathering::new(framing, call.state.request.len, max);
    call.await_body();
    poll_fn(|cx| poll_request(cx, call, body, &mut gathering)).await
}

fn poll_request(
    cx: &mut Context<'_>,
    call: &mut Call<'_>,
    body: &mut GatheredBody,
    gathering: &mut Gathering,
) -> Poll<Result<(), Stop>> {
    let buffers = &call.client.connection.worker.pools.buffers;
    let no_room = || Poll::Ready(Err(Stop::Failure(Failure::bodies_full())));
    let mut progressed = false;
    loop {
        let input = &mut call.state.input;
        match gathering.take(input.filled(), body, &buffers.budget) {
            Ok(Gathered::Some) => {}
            Ok(Gathered::NoRoom) => return no_room(),
            Ok(ended) => {
                body.is_whole = ended == Gathered::All;
                body.framed_len = gathering.framed_len();
                return Poll::Ready(Ok(()));
            }
            Err(error) => return Poll::Ready(Err(Stop::Failure(Failure::bad_request_body(error)))),
        }
        if input.is_full() && buffers.grow_gathered(input, gathering.next_bytes(input)).is_err() {
            return no_room();
        }
        match call.client.leg.poll_receive(cx, input) {
            Poll::Ready(Received::Data(count)) => {
                progressed = true;
                call.client.connection.worker.counters().received_bytes.add(count as u64);
            }
            Poll::Ready(Received::End | Received::Gone(_)) => return Poll::Ready(Err(Stop::ClientGone)),
            Poll::Pending => break,
        }
    }
    if progressed {
        call.note_progress(call.view.plan.timeouts.idle);
    }
    if call.is_body_late(cx, gathering.content_len() as u64) {
        let detail = "the request body, which a flow buffers, did not arrive in time (`limits.body_rate`, `timeouts.idle`)";
        return Poll::Ready(Err(Stop::Failure(Failure::new(ErrorKind::RequestTimeout, detail))));
    }
    Poll::Pending
}

/// Receives the response's whole body into `body`, with the secrets of `mask` masked, and leaves it in the
/// response state too. A body of more than `max` bytes passes through ungathered, and so does one for which
/// the budget has no room: the call has been made, and the remedy that needs the body decides what follows.
pub(crate) async fn gather_response(
    call: &mut Call<'_>,
    body: &mut GatheredBody,
    mask: Option<&Arc<SecretPatterns>>,
    connection: &mut Connection,
    max: usize,
) -> Result<(), Stop> {
    body.clear();
    let framing = call.state.response_state.response.framing;
    if max == 0 || matches!(framing, ResponseFraming::Length(length) if length > max as u64) {
        return Ok(());
    }
    let mut gathering = Gathering::new(framing, call.state.response_state.response.len, max);
    call.note_gathering(true);
    let gathered = poll_fn(|cx| poll_response(cx, call, body, &mut gathering, connection)).await;
    call.note_gathering(false);
    body.framed_len = gathering.framed_len();
    body.is_whole = gathered.as_ref().is_ok_and(|gathered| *gathered == Gathered::All);
    if let Some(mask) = mask
        && let Some(body) = body.whole_mut(call.state.response_state.output.filled_mut())
    {
        mask.mask(body);
    }
    gathered.map(|_| ())
}

/// Forwards the request's body and receives the response's, until that is complete or too large.
fn poll_response(
    cx: &mut Context<'_>,
    call: &mut Call<'_>,
    body: &mut GatheredBody,
    gathering: &mut Gathering,
    connection: &mut Connection,
) -> Poll<Result<Gathered, Stop>> {
    if let Poll::Ready(Err(stop)) = call.poll_informational(cx) {
        return Poll::Ready(Err(stop));
    }
    let before = (call.state.up.moved_bytes, call.received_bytes);
    if call.is_uploading()
        && let Err(stop) = call.poll_request(cx, connection)
    {
        return Poll::Ready(Err(stop));
    }
    if let Poll::Ready(gathered) = poll_response_body(cx, call, body, gathering, connection) {
        return Poll::Ready(gathered.map_err(Stop::Failure));
    }
    if (call.state.up.moved_bytes, call.received_bytes) != before {
        call.note_progress(call.timeouts().idle);
    }
    if call.is_uploading() { call.poll_deadlines(cx) } else { call.poll_waiting(cx) }
}

/// Receives the response's body. The received part stays in the response state too.
fn poll_response_body(
    cx: &mut Context<'_>,
    call: &mut Call<'_>,
    body: &mut GatheredBody,
    gathering: &mut Gathering,
    connection: &mut Connection,
) -> Poll<Result<Gathered, Failure>> {
    loop {
        let buffers = &call.client.connection.worker.pools.buffers;
        let output = &mut call.state.response_state.output;
        match gathering.take(output.filled(), body, &buffers.budget) {
            Ok(Gathered::Some) => {}
            Ok(ended) => return Poll::Ready(Ok(ended)),
            Err(error) => return Poll::Ready(Err(Failure::bad_response(error))),
        }
        if output.is_full() && buffers.grow_gathered(output, gathering.next_bytes(output)).is_err() {
            return Poll::Ready(Ok(Gathered::NoRoom));
        }
        match ready!(call.poll_gathered(cx, connection)) {
            Received::Data(_) => {}
            Received::End if gathering.ends_here() => {
                return Poll::Ready(Ok(Gathered::All));
            }
            Received::End | Received::Gone(_) => {
                let detail = "the provider closed the connection during a response that a flow buffers";
                return Poll::Ready(Err(Failure::new(ErrorKind::ProviderClosed, detail)));
            }
        }
    }
}

/// Receives the response of a gRPC call until its first message begins, or to its end if there is no message.
/// So remedies know the status of a call that has failed before it had anything to say. All bytes stay in
/// the response state.
///
/// A client that is still sending may wait for the head, so the response is not held back then.
pub(crate) async fn await_first_message(
    call: &mut Call<'_>,
    connection: &mut Connection,
) -> Result<(), Stop> {
    let framing = call.state.response_state.response.framing;
    let has_trailers = framing == ResponseFraming::Chunked;
    if call.grpc_outcome() != GrpcOutcome::Pending || !has_trailers || call.is_uploading() {
        return Ok(());
    }
    let mut beginning = Beginning::new(&call.state.response_state.response, Awaited::Message);
    call.note_gathering(true);
    let begun = poll_fn(|cx| poll_beginning(cx, call, &mut beginning, connection)).await;
    call.note_gathering(false);
    begun
}

/// Receives a stream of events until its first event with content ends, or to its end if there is none. Fails
/// if that takes longer than `limit`, from when the request was sent. All bytes stay in the response state.
///
/// A client that is still sending may wait for the head, so the response is not held back then.
pub(crate) async fn await_first_event(
    call: &mut Call<'_>,
    connection: &mut Connection,
    limit: Duration,
) -> Result<(), Stop> {
    let ResponseState { output, response, .. } = &*call.state.response_state;
    let fields = Fields::received(&response.fields, output.filled());
    if !is_event_stream(fields) || fields.is_encoded() || call.is_uploading() {
        return Ok(());
    }
    let mut beginning = Beginning::new(response, Awaited::Event(ContentScan::default()));
    let mut alarm = pin!(sleep_until(call.clock.sent.max(call.clock.uploaded) + limit));
    call.note_gathering(true);
    let begun = poll_fn(|cx| {
        let polled = poll_beginning(cx, call, &mut beginning, connection);
        if polled.is_pending() && alarm.as_mut().poll(cx).is_ready() {
            call.count_cut(ErrorKind::FirstByteTimeout, NO_EVENT);
            return Poll::Ready(Err(Stop::Failure(Failure::new(ErrorKind::FirstByteTimeout, NO_EVENT))));
        }
        polled
    })
    .await;
    call.note_gathering(false);
    begun
}

/// Forwards what is left of the request, and receives the beginning of the response.
fn poll_beginning(
    cx: &mut Context<'_>,
    call: &mut Call<'_>,
    beginning: &mut Beginning,
    connection: &mut Connection,
) -> Poll<Result<(), Stop>> {
    if let Poll::Ready(Err(stop)) = call.poll_informational(cx) {
        return Poll::Ready(Err(stop));
    }
    let before = call.received_bytes;
    if let Poll::Ready(status) = poll_status(cx, call, beginning, connection) {
        call.note_provider_grpc_status(status);
        return Poll::Ready(Ok(()));
    }
    if call.received_bytes != before {
        call.note_progress(call.timeouts().idle);
    }
    call.poll_waiting(cx)
}

/// Ready once the beginning or the response has ended, with the status of its trailers. A response that
/// breaks off is ready too: forwarding it finds that out again. So is one that is too long to be held back.
fn poll_status(
    cx: &mut Context<'_>,
    call: &mut Call<'_>,
    beginning: &mut Beginning,
    connection: &mut Connection,
) -> Poll<Option<GrpcStatus>> {
    loop {
        let buffers = &call.client.connection.worker.pools.buffers;
        let output = &mut call.state.response_state.output;
        if let Poll::Ready(status) = beginning.take(output.filled()) {
            return Poll::Ready(status);
        }
        if output.is_full() {
            let len = output.filled().len();
            if len >= HELD_BYTES_MAX || buffers.grow_gathered(output, len + HELD_STEP_BYTES).is_err() {
                return Poll::Ready(None);
            }
        }
        match ready!(call.poll_gathered(cx, connection)) {
            Received::Data(_) => {}
            Received::End | Received::Gone(_) => return Poll::Ready(None),
        }
    }
}
