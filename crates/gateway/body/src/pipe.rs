//! One direction of a body: receives it, validates it, frames it for the other side and sends it, with
//! backpressure and at most one buffer in between. A body that is being stored is received at the sender's
//! pace, and the other side is served from the store.

use std::mem;
use std::task::{Context, Poll, ready};

use egret_http1::{BodyDecoder, BodyError, ResponseFraming, Span, TrailerNames};
use egret_leg::{Framing, Gone, Leg, Outgoing, OutgoingHead, Received};
use egret_net::buffer::{Buffer, BufferPool, STREAM_BYTES};
use egret_store::entries::Next;

use crate::stage::Stages;
use crate::stored_source::StoredSource;

/// Number of spans whose memory is kept between bodies. A peer may send far more chunks, of one byte each.
const SPARE_SPANS: usize = 256;

/// The reason why a body stopped. The direction decides which peer it refers to.
#[derive(Debug)]
pub enum PipeError {
    /// The sender broke the framing of the body, or closed before its end.
    Malformed(BodyError),
    /// The sender's connection is gone.
    SourceGone,
    /// The receiver's connection is gone.
    SinkGone,
    /// A fault has cut the body to test the receiver.
    Cut,
}

impl From<Gone> for PipeError {
    fn from(_: Gone) -> Self {
        Self::SinkGone
    }
}

/// Parts that all pipes of a worker share: its buffers, and the names of the trailers to forward.
pub type Shared<'a> = (&'a BufferPool, &'a TrailerNames);

/// The bytes kept at the front of a buffer that a body passes through.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
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

/// The beginning of a message.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// Number of bytes of the body that were consumed, with their framing.
    pub used: usize,
    /// `true` if the receiver's connection is gone.
    pub is_sink_gone: bool,
}

/// One direction of a body. Reused from exchange to exchange.
#[derive(Debug)]
pub struct Pipe {
    decoder: BodyDecoder,
    /// The framing for the receiver.
    framing: Framing,
    spans: Vec<Span>,
    trailers: Vec<u8>,
    /// `true` while the receiver has not accepted all that was sent.
    is_blocked: bool,
    /// `true` if the receiver is gone, and the stages alone see the rest of the body.
    has_no_sink: bool,
    /// The stages that see the body while it passes. `None` if it has had none.
    stages: Option<Stages>,
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
            has_no_sink: false,
            stages: None,
            moved_bytes: 0,
            read_bytes: 0,
        }
    }
}

impl Pipe {
    /// Prepares for a body that is received in `framing` and sent in `sent_in`.
    #[inline]
    pub fn start(&mut self, framing: impl Into<ResponseFraming>, sent_in: Framing) {
        self.decoder.restart(framing);
        self.framing = sent_in;
        self.has_no_sink = false;
        self.trailers.clear();
        self.clear_stages();
    }

    /// Prepares for the body of another message.
    #[inline]
    pub fn reset(&mut self, framing: impl Into<ResponseFraming>, sent_in: Framing) {
        self.start(framing, sent_in);
        self.is_blocked = false;
        self.spans.clear();
        self.spans.shrink_to(SPARE_SPANS);
        self.moved_bytes = 0;
        self.read_bytes = 0;
    }

    /// Returns the stages, unless the body has had none.
    #[inline]
    pub fn stages(&self) -> Option<&Stages> {
        self.stages.as_ref()
    }

    /// Returns the stages to change them, unless the body has had none.
    #[inline]
    pub fn stages_mut(&mut self) -> Option<&mut Stages> {
        self.stages.as_mut()
    }

    /// Returns the stages to add some.
    pub fn add_stages(&mut self) -> &mut Stages {
        self.stages.get_or_insert_default()
    }

    /// Removes all stages.
    #[inline]
    pub fn clear_stages(&mut self) {
        // Most bodies have none, and dropping an option costs a call even then.
        if self.stages.is_some() {
            self.stages = None;
        }
    }

    /// Ready with the number of bytes that may pass now.
    #[inline]
    fn poll_allowance(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.stages.as_mut().map_or(Poll::Ready(usize::MAX), |stages| stages.poll_allowance(cx))
    }

    /// Decodes the body in `input` without sending it. Returns its framed length, or `None` if it is
    /// incomplete or malformed.
    pub fn skip(&mut self, input: &[u8]) -> Option<usize> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).ok()?;
        pass(&mut self.stages, input, &mut self.spans, self.decoder.is_done());
        self.decoder.is_done().then_some(used)
    }

    /// Returns `true` if the whole body has been received. Some of it may still wait to be sent.
    #[inline]
    pub fn is_received(&self) -> bool {
        self.decoder.is_done()
    }

    /// Returns `true` if the whole body has been received and sent.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.decoder.is_done() && !self.is_blocked_on_sink() && !self.stages().is_some_and(Stages::is_cut)
    }

    /// Returns `true` if the pipe waits for the receiver to read more.
    #[inline]
    pub fn is_blocked_on_sink(&self) -> bool {
        self.is_blocked
    }

    /// Sends nothing more: the receiver is gone, and the stages alone see the rest of the body.
    pub fn drop_sink(&mut self) {
        self.has_no_sink = true;
        self.is_blocked = false;
    }

    /// Begins the message with `head`, and sends it with the part of the body that `input` holds, in one
    /// write. A body that passes slowly follows later. If the receiver is gone, the stages have seen that
    /// part nevertheless.
    #[inline]
    pub fn begin(
        &mut self,
        cx: &mut Context<'_>,
        head: OutgoingHead<'_>,
        input: &[u8],
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Result<Begun, BodyError> {
        sink.start(self.framing);
        self.spans.clear();
        let allowed = match self.poll_allowance(cx) {
            Poll::Ready(allowed) => input.len().min(allowed),
            Poll::Pending => 0,
        };
        let input = &input[..allowed];
        let used = self.decoder.decode(input, &mut self.spans)?;
        let is_sink_gone = self.emit(cx, head, input, sink, shared).is_err();
        Ok(Begun { used, is_sink_gone })
    }

    /// Sends the part of the body that `input` holds. Returns the number of bytes of `input` that were
    /// consumed.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Result<usize, PipeError> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).map_err(PipeError::Malformed)?;
        self.emit(cx, OutgoingHead::Sent, input, sink, shared)?;
        Ok(used)
    }

    /// Frames `self.spans` of `input`, and the end of the body if it was reached, behind `head`, and sends it
    /// all.
    #[inline]
    fn emit(
        &mut self,
        cx: &mut Context<'_>,
        head: OutgoingHead<'_>,
        input: &[u8],
        sink: &mut Leg,
        (buffers, names): Shared<'_>,
    ) -> Result<(), Gone> {
        let is_done = self.decoder.is_done();
        if is_done && self.framing == Framing::Chunked {
            self.filter_trailers(names);
        }
        let (input, is_done) = pass(&mut self.stages, input, &mut self.spans, is_done);
        if self.has_no_sink {
            return Ok(());
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
        loop {
            let Poll::Ready(sent) = self.poll_backlog(cx, sink) else {
                source.gather();
                return Poll::Pending;
            };
            sent?;
            if let Some(stages) = self.stages.as_mut().filter(|stages| stages.is_cut()) {
                return stages.poll_cut(cx).map(|()| Err(PipeError::Cut));
            }
            if self.decoder.is_done() {
                return Poll::Ready(Ok(()));
            }
            let allowed = ready!(self.poll_allowance(cx));
            if buffer.filled().len() == kept.len && buffer.is_full() && !kept.grow(buffer, shared.0) {
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
            let input = &buffer.filled()[kept.len..];
            let used = self.send(cx, &input[..input.len().min(allowed)], sink, shared)?;
            if !kept.take(used) {
                buffer.remove(kept.len, kept.len + used);
            }
            if full && buffer.filled().len() == kept.len {
                shared.0.grow_on(buffer);
            }
        }
    }

    /// Receives more of a body that only its stages see. Ready once there is more of it, or all.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        buffer: &mut Buffer,
        (buffers, names): Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        if buffer.filled().is_empty() {
            if buffer.is_full() {
                buffers.grow_on(buffer);
            }
            match ready!(source.poll_receive(cx, buffer)) {
                Received::Data(received) => self.read_bytes += received as u64,
                Received::End => self.decoder.end_of_input().map_err(PipeError::Malformed)?,
                Received::Gone(_) => return Poll::Ready(Err(PipeError::SourceGone)),
            }
        }
        let was_full = buffer.is_full();
        self.spans.clear();
        let decoded = self.decoder.decode(buffer.filled(), &mut self.spans);
        let used = decoded.map_err(PipeError::Malformed)?;
        if self.decoder.is_done() {
            self.filter_trailers(names);
        }
        pass(&mut self.stages, buffer.filled(), &mut self.spans, self.decoder.is_done());
        buffer.remove(0, used);
        if was_full && buffer.filled().is_empty() {
            buffers.grow_on(buffer);
        }
        Poll::Ready(Ok(()))
    }

    /// Forwards a body that is being stored, at the receiver's pace. Ready once it is complete.
    pub fn poll_stored(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut StoredSource,
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            ready!(self.poll_backlog(cx, sink))?;
            if self.decoder.is_done() {
                return Poll::Ready(Ok(()));
            }
            match ready!(source.poll_next(cx)) {
                Next::Block(block) => {
                    self.send(cx, &block, sink, shared)?;
                }
                Next::End => {
                    source.add_trailers(&mut self.trailers);
                    self.decoder.end_of_input().map_err(PipeError::Malformed)?;
                    self.spans.clear();
                    self.emit(cx, OutgoingHead::Sent, &[], sink, shared)?;
                }
                Next::Broken => return Poll::Ready(Err(PipeError::SourceGone)),
            }
        }
    }

    /// Takes the receiving side, with the stages that must see all of the body. From now on this pipe
    /// forwards the same body as a store has it.
    #[must_use]
    pub fn split(&mut self) -> Self {
        let framing = self.framing;
        let mut receiving = mem::take(self);
        self.start(ResponseFraming::UntilClose, framing);
        self.is_blocked = receiving.is_blocked;
        self.moved_bytes = receiving.moved_bytes;
        if let Some(stages) = &mut receiving.stages {
            let own = self.add_stages();
            if let Some(taken) = stages.take_tap() {
                own.tap(|tap| *tap = taken);
            }
            own.adopt_usage(stages);
        }
        receiving
    }

    /// The trailers to forward, of a body that has ended.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Takes the trailers to forward.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        mem::take(&mut self.trailers)
    }

    /// Notes the trailers to forward, if the body has any.
    fn filter_trailers(&mut self, names: &TrailerNames) {
        names.filter(self.decoder.trailers(), &mut self.trailers);
        if let Some(stages) = &self.stages {
            stages.pass_trailers(&mut self.trailers);
        }
    }

    /// Waits until the receiver has accepted all that was sent.
    #[inline]
    fn poll_backlog(&mut self, cx: &mut Context<'_>, sink: &mut Leg) -> Poll<Result<(), PipeError>> {
        if !self.has_no_sink {
            ready!(sink.poll_backlog(cx, &mut self.moved_bytes))?;
            self.is_blocked = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Passes the data in `spans` of `input` through `stages`, if there are any, as [`Stages::pass`] does.
#[inline]
fn pass<'s>(
    stages: &'s mut Option<Stages>,
    input: &'s [u8],
    spans: &mut Vec<Span>,
    is_done: bool,
) -> (&'s [u8], bool) {
    match stages {
        None => (input, is_done),
        Some(stages) => stages.pass(input, spans, is_done),
    }
}

#[cfg(test)]
mod tests;
