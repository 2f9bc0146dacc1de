//! Sends responses that do not come from the called provider: those that a cache has stored, and the
//! gateway's own once they have passed through remedies. The head of a stored one is written for the request.
//! Its body is shared by everybody who receives it, without copies, and part of it may still be arriving.

use std::future::poll_fn;
use std::io::IoSlice;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use egret_cache::{ByteRange, Piece, Served};
use egret_clock::Moment;
use egret_http1::{ResponseFraming, Version, push_decimal, reason};
use egret_leg::http1::GATHER_BYTES_MAX;
use egret_leg::{Framing, OutgoingHead, Reply};
use egret_message::Via;
use egret_net::budget::Share;
use egret_net::event_loop::now;
use egret_observe::failure::{ErrorKind, Failure};
use egret_store::entries::{Next, StoredBody};
use smallvec::SmallVec;

use crate::downstream::connection::{ClientLeg, SLICES_MAX};
use crate::exchange::call::Call;
use crate::exchange::forward::edit_generated;
use crate::exchange::reply::{
    Ended, Finish, Then, can_persist_without_provider, respond_with_error, rewritten, send_message,
};
use crate::exchange::stream::{BodySource, Forwarding};
use crate::state::request::ResponseState;
use egret_body::StoredSource;

/// Appends the head of a stored response, without `Connection` and without the empty line at its end.
pub(crate) fn write_head(served: &Served, version: Version, via: &Via, out: &mut Vec<u8>) -> Framing {
    let status = served.status();
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(status.into(), out);
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    served.write_fields(out);
    out.extend_from_slice(via.line(Version::Http11, false));
    if let Some(length) = served.content_length() {
        out.extend_from_slice(b"content-length: ");
        push_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }
    let framing = framing_of(served, version);
    if framing == Framing::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    framing
}

/// The body to send.
enum SentBody<'a> {
    /// Pieces that have all been received.
    Pieces(&'a [Piece]),
    /// A body that is still being received, sent in order.
    Streamed(Framing),
}

/// Sends a stored response. If `holds_head`, the response state holds its head, which remedies have
/// inspected.
pub(crate) async fn serve(call: &mut Call<'_>, served: &Served, holds_head: bool) -> Ended {
    // The exchange has not waited since, so the remedies' time counts towards the gateway's footprint.
    call.note_response(now::turned());
    if served.body().is_broken() {
        let detail = "the shared response that this request waited for was cut short";
        return Box::pin(respond_with_error(call, &Failure::new(ErrorKind::ProviderClosed, detail))).await;
    }
    call.upstream.counters().stored(served.status());
    let worker = Rc::clone(&call.client.connection.worker);
    let mut head = mem::take(&mut *worker.pools.buffers.gathered.borrow_mut());
    head.clear();
    let (framing, persistent) = write_served_head(call, served, holds_head, &mut head);
    call.state.take_response_state(&worker.pools);
    let pieces = served.pieces();
    let whole = served.body().len().map(|end| [Piece::Stored(ByteRange { start: 0, end })]);
    let outgoing = match (&pieces, &whole) {
        _ if !served.has_body() => SentBody::Pieces(&[]),
        (Some(pieces), _) => SentBody::Pieces(pieces),
        (None, Some(whole)) => SentBody::Pieces(whole),
        (None, None) => SentBody::Streamed(framing),
    };
    let as_stored = rewritten(call, &head).map(|rewritten| mem::replace(&mut head, rewritten));
    let head_len = head.len();
    let (finish, sent_bytes) = match outgoing {
        SentBody::Pieces(pieces) => send_pieces(call.client, &mut head, pieces, served.body()).await,
        SentBody::Streamed(framing) => {
            let before = call.state.response_state.down.moved_bytes;
            // Boxed, because few bodies are still arriving.
            let finish = Box::pin(send_stored(call, &head, served.body(), framing)).await;
            let sent_bytes = mem::replace(&mut call.state.response_state.down.moved_bytes, before) - before;
            (finish, sent_bytes)
        }
    };
    let at = call.note_forwarded(sent_bytes);
    if call.recording.is_some() {
        let whole = whole.as_ref().map_or(&[][..], |whole| whole);
        let pieces = if served.has_body() { pieces.as_deref().unwrap_or(whole) } else { &[] };
        let noted = as_stored.as_deref().unwrap_or(&head[..head_len]);
        call.note_stored(noted, &slices_of(pieces, served.body()), finish != Finish::Complete);
    }
    *worker.pools.buffers.gathered.borrow_mut() = head;
    Ended { status: served.status(), at, then: fate(finish, framing, persistent) }
}

/// Writes the head of a stored response with the remedies' changes. Returns the framing of the body, and
/// `true` if the connection stays open.
fn write_served_head(
    call: &mut Call<'_>,
    served: &Served,
    holds_head: bool,
    head: &mut Vec<u8>,
) -> (Framing, bool) {
    let version = call.state.request.version;
    let worker = Rc::clone(&call.client.connection.worker);
    let can_persist = can_persist_without_provider(call);
    if holds_head {
        // Written from the head that remedies have inspected, so both are the same.
        let framing = framing_of(served, version);
        let persistent = can_persist && framing != Framing::UntilClose;
        let reply = Reply { version, persistent, framing };
        let mut edits = worker.pools.edits.borrow_mut();
        let inbound = call.inbound.as_deref();
        let ResponseState { response, output, .. } = &*call.state.response_state;
        let id = &call.state.request_id;
        edit_generated(response, output.filled(), reply, id, inbound, &mut edits);
        let rendering = response.render(output.filled(), &edits);
        rendering.for_each_piece(|piece| head.extend_from_slice(piece));
        return (framing, persistent);
    }
    let framing = write_head(served, version, &worker.shared.via, head);
    let persistent = can_persist && framing != Framing::UntilClose;
    match (persistent, version) {
        (false, _) => head.extend_from_slice(b"connection: close\r\n"),
        (true, Version::Http10) => head.extend_from_slice(b"connection: keep-alive\r\n"),
        (true, Version::Http11) => {}
    }
    head.extend_from_slice(call.state.request_id.response_line());
    if let Some(trace) = call.inbound.as_ref().and_then(|inbound| inbound.trace.as_deref()) {
        for part in ["x-egret-trace: ", trace, "\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
    }
    head.extend_from_slice(b"\r\n");
    (framing, persistent)
}

/// Sends the client a stored response: the head that is given, and the body while it arrives.
async fn send_stored(call: &mut Call<'_>, head: &[u8], body: &Arc<StoredBody>, framing: Framing) -> Finish {
    let mut source = StoredSource::new(body);
    call.state.response_state.down.start(ResponseFraming::UntilClose, framing);
    let begun = poll_fn(|cx| {
        let ResponseState { down, .. } = &mut *call.state.response_state;
        let shared = (&call.client.connection.worker.pools.buffers, &call.view.plan.trailers);
        let block = match source.poll_next(cx) {
            Poll::Ready(Next::Block(block)) => Some(block),
            Poll::Ready(Next::Broken) => return Poll::Ready(Err(Finish::CutShort)),
            // The end is found again.
            Poll::Ready(Next::End) | Poll::Pending => None,
        };
        let data = block.as_deref().unwrap_or_default();
        match down.begin(cx, OutgoingHead::Written(head), data, &mut call.client.leg, shared) {
            Ok(begun) if !begun.is_sink_gone => Poll::Ready(Ok(())),
            Ok(_) | Err(_) => Poll::Ready(Err(Finish::ClientGone)),
        }
    });
    if let Err(finish) = begun.await {
        return finish;
    }
    Forwarding { call, source: BodySource::Store(source) }.run().await
}

/// Returns the fate of the client's connection after a stored response.
fn fate(finish: Finish, framing: Framing, persistent: bool) -> Then {
    match (finish, persistent) {
        // An orderly close would mark the response as complete.
        (Finish::CutShort, _) if framing == Framing::UntilClose => Then::Abort,
        (Finish::CutShort | Finish::ClientGone, _) => Then::Close,
        (Finish::Complete, false) => Then::Linger,
        (Finish::Complete, true) => Then::Persist,
    }
}

/// Returns the framing of the body for a client of `version`.
fn framing_of(served: &Served, version: Version) -> Framing {
    if served.content_length().is_some() || !served.may_have_length() {
        return Framing::Length;
    }
    Framing::without_length(version)
}

/// Returns the bytes of all pieces.
fn slices_of<'a>(pieces: &'a [Piece], body: &'a StoredBody) -> Vec<&'a [u8]> {
    let slices = |piece: &'a Piece| -> SmallVec<[&'a [u8]; 1]> {
        match piece {
            Piece::Text(text) => [text.as_slice()].into_iter().collect(),
            Piece::Stored(range) => body.slices(range.start, range.end).collect(),
        }
    };
    pieces.iter().flat_map(slices).collect()
}

fn len_of(piece: &Piece) -> u64 {
    match piece {
        Piece::Text(text) => text.len() as u64,
        Piece::Stored(range) => range.len(),
    }
}

/// Sends `head` and the body's pieces. A small body is copied behind the head and sent with it in one write.
async fn send_pieces(
    client: &mut ClientLeg,
    head: &mut Vec<u8>,
    mut pieces: &[Piece],
    body: &StoredBody,
) -> (Finish, u64) {
    let body_len: u64 = pieces.iter().map(len_of).sum();
    let total = head.len() as u64 + body_len;
    if total <= GATHER_BYTES_MAX as u64 {
        for piece in pieces {
            match piece {
                Piece::Text(text) => head.extend_from_slice(text),
                Piece::Stored(range) => {
                    body.slices(range.start, range.end).for_each(|slice| head.extend_from_slice(slice));
                }
            }
        }
        pieces = &[];
    }
    let head = &**head;
    let (is_sent, sent) = client.send_message(total, |sent| rest_of(head, pieces, body, sent)).await;
    (if is_sent { Finish::Complete } else { Finish::ClientGone }, sent)
}

/// Returns the bytes after the first `sent` ones, as many as one vectored write takes.
fn rest_of<'a>(
    head: &'a [u8],
    pieces: &'a [Piece],
    body: &'a StoredBody,
    sent: u64,
) -> SmallVec<[IoSlice<'a>; SLICES_MAX]> {
    let mut slices = SmallVec::new();
    let mut skip = sent;
    let mut skip_in = |len: u64| {
        let skipped = skip.min(len);
        skip -= skipped;
        (skipped < len).then_some(skipped)
    };
    let within = |skipped: u64| usize::try_from(skipped).unwrap_or(usize::MAX);
    if let Some(skipped) = skip_in(head.len() as u64) {
        slices.push(IoSlice::new(&head[within(skipped)..]));
    }
    for piece in pieces {
        let Some(skipped) = skip_in(len_of(piece)) else { continue };
        match piece {
            Piece::Text(text) => slices.push(IoSlice::new(&text[within(skipped)..])),
            Piece::Stored(range) => {
                let left = SLICES_MAX.saturating_sub(slices.len());
                slices.extend(body.slices(range.start + skipped, range.end).take(left).map(IoSlice::new));
            }
        }
        if slices.len() >= SLICES_MAX {
            break;
        }
    }
    slices
}

/// Sends the client of a gRPC call the gateway's own error, with the fields that remedies have added. The
/// response state holds it in the form of HTTP, because remedies decide by its status.
async fn deliver_in_grpc(call: &mut Call<'_>, failure: &Failure) -> Ended {
    let mut failure = failure.clone();
    if let Some(inbound) = &call.inbound {
        let trace = inbound.trace.as_ref().map(|trace| (&b"x-egret-trace"[..], trace.as_bytes()));
        failure = failure.with_fields(inbound.fields.added().chain(trace));
    }
    respond_with_error(call, &failure).await
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
    let persistent = can_persist_without_provider(call);
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
    let rewritten = if is_stored { rewritten(call, &message) } else { None };
    let sent = rewritten.as_deref().unwrap_or(&message);
    send_message(call, sent, &message, status, persistent).await
}
