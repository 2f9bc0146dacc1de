//! One direction of a body: receives it, validates it, frames it for the other side and sends it, with
//! backpressure and at most one buffer in between. A body that is being stored is received at the sender's
//! pace, and the other side is served from the store.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use egret_accounts::{PatternMask, SecretPatterns};
use egret_cache::Stored;
use egret_http1::{BodyDecoder, BodyError, ResponseFraming, Span, TrailerNames};
use egret_match::{EventScan, seen_at_end};
use egret_message::Fields;
use egret_net::budget::{Budget, Share};
use egret_net::buffer::{Buffer, BufferPool, STREAM_BYTES};
use egret_store::entries::{BodyRelay, BodyWriter, StoredBody};

use crate::leg::{Framing, Gone, Leg, Outgoing, OutgoingHead, Received};

/// Number of spans whose memory is kept between bodies. A peer may send far more chunks, of one byte each.
const SPARE_SPANS: usize = 256;

/// The reason why a body stopped. The direction decides which peer it refers to.
#[derive(Debug)]
pub(crate) enum PipeError {
    /// The sender broke the framing of the body, or closed before its end.
    Malformed(BodyError),
    /// The sender's connection is gone.
    SourceGone,
    /// The receiver's connection is gone.
    SinkGone,
}

impl From<Gone> for PipeError {
    fn from(_: Gone) -> Self {
        Self::SinkGone
    }
}

/// Parts that all pipes of a worker share: its buffers, and the names of the trailers to forward.
pub(crate) type Shared<'a> = (&'a BufferPool, &'a TrailerNames);

/// The bytes kept at the front of a buffer that a body passes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Number of bytes kept.
    pub len: usize,
    /// Up to this number of bytes, the body is kept as well once it has been sent.
    pub max: usize,
    /// `true` if the kept bytes lack part of the body.
    pub has_gap: bool,
}

impl Kept {
    /// Keeps only the first `len` bytes; the body passes through.
    pub fn first(len: usize) -> Self {
        Self { len, max: len, has_gap: false }
    }

    /// Grows a full buffer, if the body is to be kept in it. If the memory for all gathered bodies is used
    /// up, no more of it is kept.
    fn grow(&mut self, buffer: &mut Buffer, buffers: &BufferPool) -> bool {
        if self.has_gap || self.len >= self.max {
            return false;
        }
        let bytes = (2 * buffer.filled().len()).min(self.max + STREAM_BYTES);
        let has_grown = buffers.grow_gathered(buffer, bytes.max(buffer.filled().len() + 1)).is_ok();
        self.has_gap |= !has_grown;
        has_grown
    }

    /// Keeps the next `count` bytes too, unless that exceeds the maximum. Returns `true` if they are kept.
    fn take(&mut self, count: usize) -> bool {
        let fits = !self.has_gap && self.len + count <= self.max;
        if fits {
            self.len += count;
        } else {
            self.has_gap |= count > 0;
        }
        fits
    }
}

/// One direction of a body. Reused from exchange to exchange.
#[derive(Debug)]
pub(crate) struct Pipe {
    decoder: BodyDecoder,
    /// The framing for the receiver.
    framing: Framing,
    spans: Vec<Span>,
    trailers: Vec<u8>,
    /// `true` while the receiver has not accepted all that was sent.
    is_blocked: bool,
    /// Masks the secrets in the body, if there are any to hide.
    pub shield: Option<Box<SecretMask>>,
    /// Receives a copy of the body, if one is needed.
    pub tap: Option<Tap>,
    /// Stores the body, if it is cached.
    fill: Option<Fill>,
    /// Number of framed bytes that the receiver accepted, the head included. It grows whenever there is
    /// progress.
    pub moved_bytes: u64,
    /// Number of bytes that [`poll`](Self::poll) has received.
    pub read_bytes: u64,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            decoder: BodyDecoder::none(),
            framing: Framing::Length,
            spans: Vec::new(),
            trailers: Vec::new(),
            is_blocked: false,
            shield: None,
            tap: None,
            fill: None,
            moved_bytes: 0,
            read_bytes: 0,
        }
    }
}

impl Pipe {
    /// Prepares for a body that is received in `framing` and sent in `sent_in`.
    pub fn start(&mut self, framing: impl Into<ResponseFraming>, sent_in: Framing) {
        self.decoder.restart(framing);
        self.framing = sent_in;
        self.trailers.clear();
        self.shield = None;
        self.fill = None;
    }

    /// Prepares for the body of another message.
    pub fn reset(&mut self, framing: impl Into<ResponseFraming>, sent_in: Framing) {
        self.start(framing, sent_in);
        self.is_blocked = false;
        self.tap = None;
        self.spans.clear();
        self.spans.shrink_to(SPARE_SPANS);
        self.moved_bytes = 0;
        self.read_bytes = 0;
    }

    /// Decodes the body in `input` without sending it. Returns its framed length, or `None` if it is
    /// incomplete or malformed.
    pub fn skip(&mut self, input: &[u8]) -> Option<usize> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).ok()?;
        if let Some(tap) = &mut self.tap {
            self.spans.iter().for_each(|span| tap.take(span.of(input)));
        }
        self.decoder.is_done().then_some(used)
    }

    /// Returns `true` if the whole body has been received. Some of it may still wait to be sent.
    pub fn is_received(&self) -> bool {
        self.decoder.is_done()
    }

    /// Returns `true` if the whole body has been received and sent.
    pub fn is_complete(&self) -> bool {
        self.decoder.is_done() && !self.is_blocked_on_sink()
    }

    /// Returns `true` if the pipe waits for the receiver to read more.
    pub fn is_blocked_on_sink(&self) -> bool {
        self.is_blocked || self.fill.as_ref().is_some_and(Fill::is_ahead)
    }

    /// Starts to store the body. Nothing is stored if it breaks off or exceeds the limit.
    pub fn store(&mut self, filling: BodyWriter<Stored>) {
        self.fill = Some(Fill::new(filling));
    }

    /// Returns `true` if the body is being stored and is not complete yet.
    pub fn is_filling(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.filling.is_some())
    }

    /// Returns `true` if the whole body is stored, while part of it may still wait for the receiver.
    pub fn is_filled(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.filling.is_none() && fill.error.is_none())
            && self.decoder.is_done()
    }

    /// Stops storing the body.
    pub fn stop_filling(&mut self) {
        self.fill = None;
    }

    /// Begins the message with `head`, and sends it with the part of the body that `input` holds, in one
    /// write. Returns the number of bytes of `input` that were consumed.
    pub fn begin(
        &mut self,
        cx: &mut Context<'_>,
        head: OutgoingHead<'_>,
        input: &[u8],
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Result<usize, PipeError> {
        sink.start(self.framing);
        self.send(cx, head, input, sink, shared)
    }

    /// Sends a head, if there is one, and the part of the body that `input` holds. Returns the number of
    /// bytes of `input` that were consumed.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        head: OutgoingHead<'_>,
        input: &[u8],
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Result<usize, PipeError> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).map_err(PipeError::Malformed)?;
        self.emit(cx, head, input, sink, shared)?;
        Ok(used)
    }

    /// Frames `self.spans` of `input`, and the end of the body if it was reached, behind `head`, and sends it
    /// all.
    fn emit(
        &mut self,
        cx: &mut Context<'_>,
        head: OutgoingHead<'_>,
        input: &[u8],
        sink: &mut Leg,
        (buffers, names): Shared<'_>,
    ) -> Result<(), PipeError> {
        let is_done = self.decoder.is_done();
        let ends = is_done && self.framing == Framing::Chunked;
        let input =
            show(input, &mut self.spans, &self.decoder, ends, names, &mut self.shield, &mut self.trailers);
        if let Some(fill) = &mut self.fill {
            fill.take(input, &self.spans, is_done);
            fill.passed += self.spans.iter().map(|span| span.len() as u64).sum::<u64>();
            // The body is now either complete or not stored. Either way the received part is sent here.
            if fill.filling.is_none() && fill.relay.is_none() {
                self.fill = None;
            }
        }
        if let Some(tap) = &mut self.tap {
            self.spans.iter().for_each(|span| tap.take(span.of(input)));
        }
        let end = is_done.then_some(&*self.trailers);
        let message = Outgoing { head, input, spans: &self.spans, end };
        sink.send(cx, &message, buffers, &mut self.moved_bytes)?;
        self.is_blocked = sink.is_blocked();
        Ok(())
    }

    /// Forwards the body as far as both sides allow. Ready once it is complete. The body is read into
    /// `buffer` behind the bytes that `kept` retains. Bytes after the end of the body stay there.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        buffer: &mut Buffer,
        kept: &mut Kept,
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        if self.fill.is_some() {
            ready!(self.poll_fill(cx, source, buffer, sink, shared))?;
        }
        loop {
            ready!(self.poll_backlog(cx, sink))?;
            if self.decoder.is_done() {
                return Poll::Ready(Ok(()));
            }
            if buffer.is_full() && !kept.grow(buffer, shared.0) {
                // A head that fills the buffer leaves no room for the body. More data is also likely to
                // follow.
                shared.0.grow(buffer, buffer.filled().len() + STREAM_BYTES);
            }
            if buffer.filled().len() == kept.len {
                match ready!(source.poll_receive(cx, buffer)) {
                    Received::Data(received) => self.read_bytes += received as u64,
                    Received::End => {
                        self.decoder.end_of_input().map_err(PipeError::Malformed)?;
                        self.spans.clear();
                        self.emit(cx, OutgoingHead::Sent, &[], sink, shared)?;
                        continue;
                    }
                    Received::Gone(_) => return Poll::Ready(Err(PipeError::SourceGone)),
                }
            }
            let full = buffer.is_full();
            let used = self.send(cx, OutgoingHead::Sent, &buffer.filled()[kept.len..], sink, shared)?;
            if !kept.take(used) {
                buffer.remove(kept.len, kept.len + used);
            }
            if full && buffer.filled().len() == kept.len {
                // More data is likely to follow: fewer, larger reads.
                shared.0.grow(buffer, STREAM_BYTES);
            }
        }
    }

    /// Receives a body at the sender's pace, stores it, and sends the stored bytes at the receiver's pace.
    /// Ready once both have all of it, or once storing has stopped and the receiver has the part that was
    /// stored. From then on the rest is received at the receiver's pace, and still passed on to others.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        buffer: &mut Buffer,
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            let is_level = self.poll_level(cx, sink, shared)?.is_ready();
            let Some(fill) = &mut self.fill else { return Poll::Ready(Ok(())) };
            if fill.filling.is_some() {
                ready!(self.poll_store(cx, source, buffer, shared));
            } else if is_level && fill.relay.is_some() {
                return Poll::Ready(Ok(()));
            } else if is_level {
                let ended = fill.error.take().map_or(Ok(()), Err);
                self.fill = None;
                return Poll::Ready(ended);
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Receives and stores the rest of a body without sending it. Ready once the body has ended or storing
    /// has stopped.
    pub fn poll_fill_alone(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        buffer: &mut Buffer,
        shared: Shared<'_>,
    ) -> Poll<()> {
        while self.is_filling() {
            ready!(self.poll_store(cx, source, buffer, shared));
        }
        Poll::Ready(())
    }

    /// Sends the rest of a body that is completely stored. Ready once the receiver has it.
    pub fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        ready!(self.poll_level(cx, sink, shared))?;
        self.fill = None;
        self.poll_backlog(cx, sink)
    }

    /// Sends the stored bytes. Ready once the receiver has all of them.
    fn poll_level(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Leg,
        (buffers, _): Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            ready!(self.poll_backlog(cx, sink))?;
            let Some(fill) = &mut self.fill else { return Poll::Ready(Ok(())) };
            let block = fill.body.block_after(fill.passed);
            let data = block.as_deref().unwrap_or_default();
            fill.passed += data.len() as u64;
            let is_end = self.decoder.is_done() && fill.error.is_none() && !fill.is_ahead();
            if data.is_empty() && (!is_end || fill.has_ended) {
                return Poll::Ready(Ok(()));
            }
            fill.has_ended = is_end;
            if let Some(tap) = &mut self.tap {
                tap.take(data);
            }
            let spans = if data.is_empty() { &[][..] } else { &[Span::new(0, data.len())] };
            let end = is_end.then_some(&*self.trailers);
            let message = Outgoing { head: OutgoingHead::Sent, input: data, spans, end };
            sink.send(cx, &message, buffers, &mut self.moved_bytes)?;
            self.is_blocked = sink.is_blocked();
        }
    }

    /// Receives and stores more of the body. Ready once there is more of it, or there will not be any.
    fn poll_store(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        buffer: &mut Buffer,
        (buffers, names): Shared<'_>,
    ) -> Poll<()> {
        let is_full = buffer.is_full();
        if buffer.filled().is_empty() {
            if is_full {
                buffers.grow(buffer, STREAM_BYTES);
            }
            let ended = match ready!(source.poll_receive(cx, buffer)) {
                Received::Data(received) => {
                    self.read_bytes += received as u64;
                    Ok(())
                }
                Received::End => self.decoder.end_of_input().map_err(PipeError::Malformed),
                Received::Gone(_) => Err(PipeError::SourceGone),
            };
            if let Err(error) = ended {
                self.break_off(error);
                return Poll::Ready(());
            }
        }
        let was_full = buffer.is_full();
        let input = buffer.filled();
        self.spans.clear();
        let used = match self.decoder.decode(input, &mut self.spans) {
            Ok(used) => used,
            Err(error) => {
                self.break_off(PipeError::Malformed(error));
                return Poll::Ready(());
            }
        };
        let is_done = self.decoder.is_done();
        let ends = is_done && self.framing == Framing::Chunked;
        let data =
            show(input, &mut self.spans, &self.decoder, ends, names, &mut self.shield, &mut self.trailers);
        if let Some(fill) = &mut self.fill {
            fill.take(data, &self.spans, is_done);
        }
        buffer.remove(0, used);
        if was_full && buffer.filled().is_empty() {
            // More data is likely to follow: fewer, larger reads.
            buffers.grow(buffer, STREAM_BYTES);
        }
        Poll::Ready(())
    }

    /// Notes that a body that is being stored ends incomplete.
    fn break_off(&mut self, error: PipeError) {
        if let Some(fill) = &mut self.fill {
            fill.filling = None;
            fill.error = Some(error);
        }
    }

    /// Waits until the receiver has accepted all that was sent.
    fn poll_backlog(&mut self, cx: &mut Context<'_>, sink: &mut Leg) -> Poll<Result<(), PipeError>> {
        ready!(sink.poll_backlog(cx, &mut self.moved_bytes))?;
        self.is_blocked = false;
        Poll::Ready(Ok(()))
    }
}

/// Masks `input` if needed. Returns the bytes to forward, and sets `spans` to the data within them. Filters
/// the trailers if the body ends.
#[inline]
fn show<'i>(
    input: &'i [u8],
    spans: &mut Vec<Span>,
    decoder: &BodyDecoder,
    ends: bool,
    names: &TrailerNames,
    shield: &'i mut Option<Box<SecretMask>>,
    trailers: &mut Vec<u8>,
) -> &'i [u8] {
    if ends {
        names.filter(decoder.trailers(), trailers);
    }
    match shield {
        Some(shield) => {
            shield.mask_trailers(trailers);
            shield.pass(input, spans, decoder.is_done())
        }
        None => input,
    }
}

/// A body that is being stored in a cache.
#[derive(Debug)]
struct Fill {
    /// `None` once the body is completely stored, or will not be stored.
    filling: Option<BodyWriter<Stored>>,
    /// Passes a body that will not be stored on to those who have begun to read it.
    relay: Option<BodyRelay>,
    /// The stored bytes. They stay here for the receiver even if the cache drops them.
    body: Arc<StoredBody>,
    /// Number of bytes of the body that were passed to the receiver.
    passed: u64,
    /// `true` once the end of the body was passed on too.
    has_ended: bool,
    /// The reason why the body ended incomplete.
    error: Option<PipeError>,
}

impl Fill {
    fn new(filling: BodyWriter<Stored>) -> Self {
        let body = Arc::clone(&filling.entry().body);
        Self { filling: Some(filling), relay: None, body, passed: 0, has_ended: false, error: None }
    }

    /// Stores the body's data in `spans` of `input`, or passes it on. The body has ended if `is_done`.
    fn take(&mut self, input: &[u8], spans: &[Span], is_done: bool) {
        // This holds the body too.
        let relay = self.relay.take().filter(|relay| relay.has_readers(1));
        let filling = self.filling.take();
        if relay.is_none() && filling.is_none() {
            return;
        }
        let joined: Vec<u8>;
        let data = match spans {
            [] => &[],
            [span] => span.of(input),
            // Joined, because chunks of one byte each would be stored as blocks of one byte each.
            spans => {
                joined = spans.iter().flat_map(|span| span.of(input)).copied().collect();
                &joined
            }
        };
        let relay = match (filling, relay) {
            (Some(mut filling), _) => match filling.push(data) {
                Ok(()) if is_done => {
                    filling.finish();
                    return;
                }
                Ok(()) => {
                    self.filling = Some(filling);
                    return;
                }
                Err(_) => filling.give_up(data),
            },
            (None, Some(mut relay)) => {
                relay.push(data);
                relay
            }
            (None, None) => return,
        };
        if is_done { relay.finish() } else { self.relay = Some(relay) }
    }

    /// Returns `true` if bytes of the body still wait to be passed on.
    fn is_ahead(&self) -> bool {
        self.body.received() > self.passed
    }
}

/// Masks the secrets in a body before any of it is seen.
#[derive(Debug)]
pub(crate) struct SecretMask {
    echoes: Arc<SecretPatterns>,
    mask: PatternMask,
    /// The masked bytes to forward.
    masked: Vec<u8>,
}

impl SecretMask {
    /// Creates a mask for a body in which `echoes` are hidden.
    pub fn new(echoes: &Arc<SecretPatterns>) -> Self {
        Self { echoes: Arc::clone(echoes), mask: PatternMask::new(Arc::clone(echoes)), masked: Vec::new() }
    }

    /// Takes the body's data in `spans` of `input`. The body has ended if `is_done`. Returns the bytes to
    /// forward, and sets `spans` to the data within them.
    fn pass(&mut self, input: &[u8], spans: &mut Vec<Span>, is_done: bool) -> &[u8] {
        self.masked.clear();
        self.mask.push_all(spans.drain(..).map(|span| span.of(input)), &mut self.masked);
        if is_done {
            self.mask.finish(&mut self.masked);
        }
        if !self.masked.is_empty() {
            spans.push(Span::new(0, self.masked.len()));
        }
        &self.masked
    }

    fn mask_trailers(&self, lines: &mut [u8]) {
        self.echoes.mask(lines);
    }
}

/// Observes a passing body: counts its length, and copies its beginning and its end, each up to its own
/// limit. Reads a stream of events instead of copying its end.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    start: Vec<u8>,
    start_max: usize,
    end: Vec<u8>,
    end_max: usize,
    /// Reads the events, if the body is a stream of them whose end would otherwise be kept.
    events: Option<Box<EventScan>>,
    /// The share of the budget for gathered bodies that the end or the events take.
    share: Share,
    /// The budget of that share. `None` if the end is not needed, or was dropped because there was no room.
    budget: Option<Arc<Budget>>,
    passed_bytes: u64,
}

impl Tap {
    /// Keeps the first `max` bytes, in the memory of `bytes`.
    pub fn keep_start(&mut self, mut bytes: Vec<u8>, max: usize) {
        bytes.clear();
        (self.start, self.start_max) = (bytes, max);
    }

    /// Keeps the last `max` bytes, in the memory of `bytes`. Keeps nothing if `budget` has no room for them.
    pub fn keep_end(&mut self, mut bytes: Vec<u8>, max: usize, budget: &Arc<Budget>) {
        bytes.clear();
        (self.end, self.end_max) = (bytes, max);
        self.budget = Some(Arc::clone(budget));
    }

    /// Reads the events of the body. Reads no more of them if `budget` has no room.
    pub fn read_events(&mut self, events: EventScan, budget: &Arc<Budget>) {
        self.events = Some(Box::new(events));
        self.budget = Some(Arc::clone(budget));
    }

    fn take(&mut self, data: &[u8]) {
        self.passed_bytes += data.len() as u64;
        if self.start.len() < self.start_max {
            self.start.extend_from_slice(&data[..data.len().min(self.start_max - self.start.len())]);
        }
        if let Some(budget) = &self.budget {
            if let Some(events) = &mut self.events {
                events.push(data);
                if self.share.cover(budget, events.held_bytes()).is_err() {
                    events.give_up();
                    self.budget = None;
                    self.share.release();
                }
                return;
            }
            let data = &data[data.len().saturating_sub(self.end_max)..];
            let (held, needed) = (self.end.capacity(), self.end.len() + data.len());
            if needed > held {
                let bytes = needed.max(2 * held);
                if self.share.cover(budget, bytes).is_err() {
                    self.budget = None;
                    self.end = Vec::new();
                    self.share.release();
                    return;
                }
                self.end.reserve_exact(bytes - self.end.len());
            }
            self.end.extend_from_slice(data);
            // Done only when the buffer has doubled, so the cost stays proportional.
            if self.end.len() > self.end_max.saturating_mul(2) {
                self.end.drain(..self.end.len() - self.end_max);
            }
        }
    }

    /// Returns the length of the body so far.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// Takes the beginning of the body.
    pub fn take_start(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.start)
    }

    /// Returns `true` if the end of the body is kept, or its events are read.
    pub fn wants_end(&self) -> bool {
        self.end_max > 0 || self.events.is_some()
    }

    /// Returns the body that expressions see, for a response with these fields.
    pub fn seen_body(&mut self, fields: Fields<'_>) -> Option<Cow<'_, [u8]>> {
        if let Some(events) = self.events.take() {
            return events.finish().map(Cow::Owned);
        }
        let end = &self.end[self.end.len().saturating_sub(self.end_max)..];
        let is_whole = end.len() as u64 == self.passed_bytes;
        if is_whole { seen_at_end(fields, end) } else { None }
    }

    /// Returns the memory of the end, to be reused.
    pub fn into_end(self) -> Vec<u8> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use egret_clock::Timestamp;
    use egret_store::entries::StoredValue as _;
    use egret_store::entries::{Entries, EntryKey, EntryLimits, Next};
    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::*;
    use crate::sockets::{ends, run, turn};
    use egret_net::event_loop::spawn;

    fn sent_in(chunked: bool) -> Framing {
        if chunked { Framing::Chunked } else { Framing::UntilClose }
    }

    /// Returns the bytes that arrive when `pieces` are received one after the other, and the result.
    fn piped(
        framing: ResponseFraming,
        chunked: bool,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>) {
        shielded(None, framing, chunked, pieces)
    }

    /// Does the same with a mask.
    fn shielded(
        shield: Option<SecretMask>,
        framing: ResponseFraming,
        chunked: bool,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>) {
        run(async {
            let (sender, source) = ends();
            let (sink, receiver) = ends();
            spawn(async move {
                for piece in pieces {
                    // The pipe may have rejected an earlier piece.
                    if sender.send_all(&piece).await.is_err() {
                        return;
                    }
                    turn().await;
                }
            });
            let (tell, received) = oneshot::channel();
            spawn(async move {
                let (mut bytes, mut piece) = (Vec::new(), vec![0; 4096]);
                while let count @ 1.. = receiver.receive(&mut piece).await.unwrap() {
                    bytes.extend_from_slice(&piece[..count]);
                }
                tell.send(bytes).unwrap();
            });
            let (mut source, mut sink) = (Leg::plain(source), Leg::plain(sink));
            let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut pipe = Pipe::default();
            sink.start(sent_in(chunked));
            pipe.reset(framing, sent_in(chunked));
            pipe.shield = shield.map(Box::new);
            let shared = (&buffers, &names);
            let ended =
                poll_fn(|cx| pipe.poll(cx, &mut source, &mut buffer, &mut Kept::first(0), &mut sink, shared))
                    .await;
            drop(sink);
            (received.await.unwrap(), ended)
        })
    }

    #[test]
    fn a_body_with_a_length_arrives_as_it_is_however_large() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let (arrived, ended) = piped(ResponseFraming::Length(3_000_000), false, vec![body.clone()]);
        assert!(ended.is_ok());
        assert!(arrived == body);
    }

    #[test]
    fn bytes_after_the_body_are_not_forwarded() {
        let (arrived, ended) = piped(ResponseFraming::Length(4), false, vec![b"bodyGET / HTTP/1.1".to_vec()]);
        assert!(ended.is_ok());
        assert_eq!(arrived, b"body");
    }

    #[test]
    fn chunks_are_framed_anew_without_extensions_and_unlisted_trailers() {
        let pieces =
            vec![b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\nAuthorization: no\r\n\r\n".to_vec()];
        let (arrived, ended) = piped(ResponseFraming::Chunked, true, pieces);
        assert!(ended.is_ok());
        assert_eq!(arrived, b"5\r\nabcde\r\n0\r\nX-Sum: 1\r\n\r\n");
    }

    #[test]
    fn a_body_until_close_goes_out_in_chunks_and_ends() {
        let (arrived, ended) = piped(ResponseFraming::UntilClose, true, vec![b"abc".to_vec()]);
        assert!(ended.is_ok());
        assert_eq!(arrived, b"3\r\nabc\r\n0\r\n\r\n");
    }

    #[test]
    fn chunks_for_an_http_1_0_client_go_out_bare() {
        let (arrived, ended) =
            piped(ResponseFraming::Chunked, false, vec![b"3\r\nabc\r\n0\r\n\r\n".to_vec()]);
        assert!(ended.is_ok());
        assert_eq!(arrived, b"abc");
    }

    #[test]
    fn a_body_cut_short_is_an_error_and_gets_no_end() {
        for (framing, piece) in [(ResponseFraming::Chunked, "3\r\nab"), (ResponseFraming::Length(3), "ab")] {
            let (arrived, ended) = piped(framing, true, vec![piece.into()]);
            assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
            assert_eq!(arrived, b"2\r\nab\r\n");
        }
    }

    #[test]
    fn a_malformed_chunk_is_an_error_and_not_forwarded() {
        let (arrived, ended) = piped(ResponseFraming::Chunked, true, vec![b"3\r\nabc\r\nzz\r\n".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::ChunkSize))), "{ended:?}");
        assert_eq!(arrived, b"");
    }

    #[test]
    fn secrets_are_masked_however_they_are_cut_and_the_framing_stays() {
        let shield = || {
            let echoes = SecretPatterns::new([&b"sk_live_0123456789"[..]]).unwrap();
            Some(SecretMask::new(&Arc::new(echoes)))
        };
        let text = b"key=sk_live_0123456789&end=sk_live_01".to_vec();
        let masked = b"key=******************&end=sk_live_01";
        for cut in 0..text.len() {
            let length = ResponseFraming::Length(text.len() as u64);
            let pieces = || vec![text[..cut].to_vec(), text[cut..].to_vec()];
            let (arrived, ended) = shielded(shield(), length, false, pieces());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let (arrived, ended) = shielded(shield(), ResponseFraming::UntilClose, false, pieces());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            let chunks: Vec<_> =
                pieces().iter().filter(|piece| !piece.is_empty()).map(|piece| chunk(piece)).collect();
            let end = b"0\r\nX-Key: sk_live_0123456789\r\n\r\n".to_vec();
            let (arrived, ended) =
                shielded(shield(), ResponseFraming::Chunked, false, [chunks.concat(), end.clone()].to_vec());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let (arrived, _) =
                shielded(shield(), ResponseFraming::Chunked, true, [chunks, vec![end]].concat());
            assert!(arrived.ends_with(b"0\r\nX-Key: ******************\r\n\r\n"));
        }
    }

    #[test]
    fn withheld_bytes_of_a_broken_body_are_dropped() {
        let echoes = SecretPatterns::new([&b"sk_live_0123456789"[..]]).unwrap();
        let shield = Some(SecretMask::new(&Arc::new(echoes)));
        let (arrived, ended) =
            shielded(shield, ResponseFraming::Length(9), false, vec![b"a\nsk_li".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert_eq!(arrived, b"a\n");
    }

    /// Returns an entry that stores a body of at most `max` bytes.
    fn filling(max: u64) -> BodyWriter<Stored> {
        let lines = b"date: Sun, 22 Nov 2026 00:31:16 GMT\r\n";
        let mut kept =
            [1_795_307_476_000_000_u64, 1_795_307_476_000_000, 0, u64::MAX].map(u64::to_le_bytes).concat();
        kept.extend_from_slice(&200_u16.to_le_bytes());
        kept.extend_from_slice(&[0; 16]);
        for part in [&b"http://h:80/"[..], lines] {
            kept.extend_from_slice(&(part.len() as u64).to_le_bytes());
            kept.extend_from_slice(part);
        }
        let stored = Stored::load(&kept, &Box::default()).unwrap();
        let limits = EntryLimits { bytes: 64 << 20, body_bytes: max, ..EntryLimits::default() };
        let place = EntryKey { id: 1, group: 1 };
        Entries::new(limits).begin(place, stored, &[].into(), None, Timestamp::from_secs(1)).unwrap()
    }

    /// Returns the bytes that arrive at a receiver that starts to read only after the body has ended in the
    /// store, the result, and the stored body.
    fn stored(
        framing: ResponseFraming,
        chunked: bool,
        max: u64,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>, Option<Vec<u8>>) {
        run(async {
            let (sender, source) = ends();
            let (sink, receiver) = ends();
            spawn(async move {
                for piece in pieces {
                    if sender.send_all(&piece).await.is_err() {
                        return;
                    }
                }
            });
            let filling = filling(max);
            let entry = Arc::clone(filling.entry());
            let (tell, received) = oneshot::channel();
            let ended = Arc::clone(&entry);
            spawn(async move {
                poll_fn(|cx| ended.body.poll_ended(cx)).await;
                let (mut bytes, mut piece) = (Vec::new(), vec![0; 4096]);
                while let count @ 1.. = receiver.receive(&mut piece).await.unwrap() {
                    bytes.extend_from_slice(&piece[..count]);
                }
                tell.send(bytes).unwrap();
            });
            let (mut source, mut sink) = (Leg::plain(source), Leg::plain(sink));
            let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut pipe = Pipe::default();
            sink.start(sent_in(chunked));
            pipe.reset(framing, sent_in(chunked));
            pipe.store(filling);
            let shared = (&buffers, &names);
            let ended =
                poll_fn(|cx| pipe.poll(cx, &mut source, &mut buffer, &mut Kept::first(0), &mut sink, shared))
                    .await;
            drop(sink);
            let kept = entry.body.blocks().map(<[_]>::concat);
            (received.await.unwrap(), ended, kept)
        })
    }

    #[test]
    fn a_body_that_is_stored_is_received_though_its_sink_takes_nothing() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let length = ResponseFraming::Length(3_000_000);
        let (arrived, ended, kept) = stored(length, false, 4 << 20, vec![body.clone()]);
        assert!(ended.is_ok() && arrived == body && kept == Some(body.clone()));
        let (arrived, ended, kept) = stored(ResponseFraming::UntilClose, false, 4 << 20, vec![body.clone()]);
        assert!(ended.is_ok() && arrived == body && kept == Some(body.clone()));
        let framed =
            [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\nX-Sum: 1\r\n\r\n"].concat();
        let (arrived, ended, kept) = stored(ResponseFraming::Chunked, true, 4 << 20, vec![framed]);
        assert!(ended.is_ok() && arrived.ends_with(b"\r\n0\r\nX-Sum: 1\r\n\r\n") && kept == Some(body));
    }

    #[test]
    fn a_body_that_outgrows_the_store_arrives_as_a_whole() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        for max in [1, 100_000, 2_900_000] {
            let (arrived, ended, kept) = stored(ResponseFraming::UntilClose, false, max, vec![body.clone()]);
            assert!(ended.is_ok() && arrived == body && kept.is_none(), "{max}");
        }
    }

    /// Returns what another reader of the entry gets of a chunked body of which `sent` is received, in small
    /// pieces; `None` if it sees that the body is broken.
    fn passed_on(sent: Vec<u8>, max: u64) -> Option<Vec<u8>> {
        run(async {
            let (sender, source) = ends();
            let (sink, receiver) = ends();
            spawn(async move {
                for piece in sent.chunks(10_000) {
                    if sender.send_all(piece).await.is_err() {
                        return;
                    }
                    turn().await;
                }
            });
            spawn(async move {
                let mut piece = vec![0; 4096];
                while receiver.receive(&mut piece).await.is_ok_and(|count| count > 0) {}
            });
            let filling = filling(max);
            let entry = Arc::clone(filling.entry());
            let (tell, read) = oneshot::channel();
            spawn(async move {
                let mut bytes = Vec::new();
                let is_whole = loop {
                    match poll_fn(|cx| entry.body.poll_next(bytes.len() as u64, cx)).await {
                        Next::Block(block) => bytes.extend_from_slice(&block),
                        Next::End => break true,
                        Next::Broken => break false,
                    }
                };
                tell.send(is_whole.then_some(bytes)).unwrap();
            });
            let (mut source, mut sink) = (Leg::plain(source), Leg::plain(sink));
            let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut pipe = Pipe::default();
            sink.start(Framing::Chunked);
            pipe.reset(ResponseFraming::Chunked, Framing::Chunked);
            pipe.store(filling);
            let shared = (&buffers, &names);
            let _ =
                poll_fn(|cx| pipe.poll(cx, &mut source, &mut buffer, &mut Kept::first(0), &mut sink, shared))
                    .await;
            pipe.stop_filling();
            read.await.unwrap()
        })
    }

    #[test]
    fn a_body_that_outgrows_the_store_reaches_its_readers() {
        // Less than is kept for a reader who falls behind.
        let body: Vec<u8> = (0..900_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat();
        for max in [1, 100_000, 899_999, 4 << 20] {
            let whole = passed_on([&chunk[..], b"0\r\n\r\n"].concat(), max);
            assert!(whole.is_some_and(|read| read == body), "{max}");
            assert!(passed_on(chunk.clone(), max).is_none(), "{max}: it breaks off");
        }
    }

    #[test]
    fn a_broken_body_is_forwarded_and_not_stored() {
        let body = vec![b'x'; 2_000_000];
        let (arrived, ended, kept) =
            stored(ResponseFraming::Length(3_000_000), false, 4 << 20, vec![body.clone()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert!(arrived == body && kept.is_none());
    }

    proptest! {
        #[test]
        fn storing_a_body_does_not_change_it(
            sizes in prop::collection::vec(0_usize..70_000, 0..8),
            max in 1_u64..300_000,
            is_cut in any::<bool>(),
            chunked in any::<bool>(),
        ) {
            let mut framed: Vec<Vec<u8>> = Vec::new();
            let mut body = Vec::new();
            for size in sizes.iter().filter(|size| **size > 0) {
                let data = vec![size.to_le_bytes()[0]; *size];
                framed.push([format!("{size:x}\r\n").as_bytes(), &data, b"\r\n"].concat());
                body.extend(data);
            }
            if !is_cut {
                framed.push(b"0\r\n\r\n".to_vec());
            }
            let (arrived, ended, kept) = stored(ResponseFraming::Chunked, chunked, max, framed);
            prop_assert_eq!(ended.is_ok(), !is_cut);
            prop_assert_eq!(kept.is_some(), !is_cut && body.len() as u64 <= max);
            prop_assert!(kept.is_none_or(|kept| kept == body));
            let arrived = if chunked { unframed(&arrived, is_cut) } else { arrived };
            prop_assert!(arrived == body, "{} of {}", arrived.len(), body.len());
        }
    }

    /// Returns the content of a chunked body.
    fn unframed(framed: &[u8], is_cut: bool) -> Vec<u8> {
        let (mut decoder, mut spans) = (BodyDecoder::none(), Vec::new());
        decoder.restart(ResponseFraming::Chunked);
        assert_eq!(decoder.decode(framed, &mut spans).unwrap(), framed.len());
        assert_eq!(decoder.is_done(), !is_cut);
        spans.iter().flat_map(|span| span.of(framed)).copied().collect()
    }
}
