//! One direction of a body: received, checked, framed for the other side and sent, with back-pressure and no more than one
//! buffer in between. A body that is stored on its way is received at the pace of who sends it, and the other
//! side is served from what is stored.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use egret_flow::accounts::{EchoMask, Echoes};
use egret_flow::cache::Stored;
use egret_http1::{
    BodyDecoder, BodyError, ChunkHead, LAST_CHUNK, Rendering, ResponseFraming, Span, TrailerNames, chunk_head,
};
use egret_store::entries::{Body, Filling};
use smallvec::SmallVec;

use crate::upstream::stream::Stream;
use crate::worker::budget::{Budget, Share};
use crate::worker::buffer::{Buffer, BufferPool, STREAM_BYTES};

/// Up to here the pieces of a message are put together here, so that the system is handed one; beyond, by the system in a vectored
/// write, so that nothing large is copied.
pub(crate) const GATHER_BYTES_MAX: usize = 2048;

/// The line before a chunk, the line end after it, and the last chunk with the empty line that ends the trailers.
const CHUNK_FRAMING_BYTES_MAX: usize = 32;

/// Pieces of a body between two sockets that memory is kept for; a peer may send far more, of a byte each.
const SPARE_SPANS: usize = 256;

/// What stops a body. Which peer is meant depends on the direction.
#[derive(Debug)]
pub(crate) enum PipeError {
    /// The side that sends the body broke its framing, or ended before the body did.
    Malformed(BodyError),
    /// The side that sends the body is gone.
    SourceGone,
    /// The side that the body goes to is gone.
    SinkGone,
}

/// What all pipes of a worker use: its buffers, and the trailers that may pass.
pub(crate) type Shared<'a> = (&'a BufferPool, &'a TrailerNames);

/// What stays at the front of a buffer that a body passes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Bytes that stay.
    pub len: usize,
    /// Up to here the body stays as well, once it has been sent.
    pub most: usize,
    /// Whether some of the body is missing from what has stayed.
    pub has_gap: bool,
}

impl Kept {
    /// Just the first `len` bytes; the body only passes through.
    pub fn first(len: usize) -> Self {
        Self { len, most: len, has_gap: false }
    }

    /// Has a full buffer grow, if the body is to stay in it. Where all bodies together that do would take too
    /// much, no more of it stays.
    fn grow(&mut self, buffer: &mut Buffer, buffers: &BufferPool) -> bool {
        if self.has_gap || self.len >= self.most {
            return false;
        }
        let bytes = (2 * buffer.filled().len()).min(self.most + STREAM_BYTES);
        let has_grown = buffers.grow_gathered(buffer, bytes.max(buffer.filled().len() + 1)).is_ok();
        self.has_gap |= !has_grown;
        has_grown
    }

    /// Has the next `count` bytes stay too, unless they would be too many.
    fn take(&mut self, count: usize) -> bool {
        let fits = !self.has_gap && self.len + count <= self.most;
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
    chunked: bool,
    spans: Vec<Span>,
    trailers: Vec<u8>,
    /// Framed bytes that the other side did not take at once.
    backlog: Vec<u8>,
    backlog_sent: usize,
    /// Whether the other side's TLS still holds some of what it took.
    held: bool,
    /// What masks the body, if something in it must not be shown.
    pub shield: Option<Box<SecretMask>>,
    /// Where a copy of the body goes, if somebody wants one.
    pub tap: Option<Tap>,
    /// Where the body is stored, if it is.
    fill: Option<Fill>,
    /// Framed bytes that the other side took, head included: moves whenever there is progress.
    pub moved_bytes: u64,
    /// Bytes that [`poll`](Self::poll) has received.
    pub read_bytes: u64,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            decoder: BodyDecoder::none(),
            chunked: false,
            spans: Vec::new(),
            trailers: Vec::new(),
            backlog: Vec::new(),
            backlog_sent: 0,
            held: false,
            shield: None,
            tap: None,
            fill: None,
            moved_bytes: 0,
            read_bytes: 0,
        }
    }
}

impl Pipe {
    /// Makes ready for a body that is delimited by `framing`. What is still on its way out stays and goes first.
    pub fn start(&mut self, framing: impl Into<ResponseFraming>, chunked: bool) {
        self.decoder.restart(framing);
        self.chunked = chunked;
        self.trailers.clear();
        self.shield = None;
        self.fill = None;
    }

    /// Makes ready for a body that is delimited by `framing` and that goes out in chunks or as it is.
    pub fn reset(&mut self, framing: impl Into<ResponseFraming>, chunked: bool) {
        self.start(framing, chunked);
        self.backlog.clear();
        // A slow reader may have left a large one; the next exchange need not carry it.
        self.backlog.shrink_to(STREAM_BYTES);
        self.backlog_sent = 0;
        self.held = false;
        self.tap = None;
        self.spans.clear();
        self.spans.shrink_to(SPARE_SPANS);
        self.moved_bytes = 0;
        self.read_bytes = 0;
    }

    /// Walks over the body in `input` without sending it. How long it is there, if all of it is.
    pub fn skip(&mut self, input: &[u8]) -> Option<usize> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).ok()?;
        if let Some(tap) = &mut self.tap {
            self.spans.iter().for_each(|span| tap.take(span.of(input)));
        }
        self.decoder.is_done().then_some(used)
    }

    /// Whether the whole body has been received; some of it may still be on its way out.
    pub fn is_received(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether the whole body has been received and sent.
    pub fn is_complete(&self) -> bool {
        self.decoder.is_done() && !self.is_blocked_on_sink()
    }

    /// Whether what is waited for is that the other side takes more.
    pub fn is_blocked_on_sink(&self) -> bool {
        !self.backlog.is_empty() || self.held || self.fill.as_ref().is_some_and(Fill::is_ahead)
    }

    /// Has all of the body stored. Where it breaks off, or is more than may be stored, nothing is.
    pub fn store(&mut self, filling: Filling<Stored>) {
        self.fill = Some(Fill::new(filling));
    }

    /// Whether the body is being stored, and some of it is still to come.
    pub fn is_filling(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.filling.is_some())
    }

    /// Whether all of the body is stored, while the other side has still to take some of it.
    pub fn is_filled(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.filling.is_none() && fill.error.is_none())
            && self.decoder.is_done()
    }

    /// Gives up storing the body.
    pub fn stop_filling(&mut self) {
        self.fill = None;
    }

    /// Sends `head`, if one goes first, and after it what `input` holds of the body, in one go. What the other side does not take
    /// is kept. Returns how much of `input` was used up.
    pub fn send(
        &mut self,
        cx: &mut Context<'_>,
        head: Option<&Rendering<'_>>,
        input: &[u8],
        sink: &mut Stream,
        shared: Shared<'_>,
    ) -> Result<usize, PipeError> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).map_err(PipeError::Malformed)?;
        self.emit(cx, head, input, sink, shared)?;
        Ok(used)
    }

    /// Frames `self.spans` of `input`, and the end of the body if it has been reached, after `head`, and sends it all.
    fn emit(
        &mut self,
        cx: &mut Context<'_>,
        head: Option<&Rendering<'_>>,
        input: &[u8],
        sink: &mut Stream,
        (buffers, names): Shared<'_>,
    ) -> Result<(), PipeError> {
        let is_done = self.decoder.is_done();
        let ends = self.chunked && is_done;
        let input =
            show(input, &mut self.spans, (&self.decoder, ends, names), &mut self.shield, &mut self.trailers);
        let data_len: usize = self.spans.iter().map(|span| span.len()).sum();
        if let Some(fill) = &mut self.fill {
            fill.take(input, &self.spans, is_done);
            fill.passed += data_len as u64;
            // Whole, or not stored: either way what there is of it goes out here.
            if fill.filling.is_none() {
                self.fill = None;
            }
        }
        if let Some(tap) = &mut self.tap {
            self.spans.iter().for_each(|span| tap.take(span.of(input)));
        }
        let message = Message {
            head,
            chunk: (self.chunked && data_len > 0).then(|| chunk_head(data_len)),
            input,
            spans: &self.spans,
            trailers: ends.then_some(&self.trailers),
        };
        self.moved_bytes += message.send(cx, data_len, &mut self.backlog, sink, buffers)?;
        self.held = sink.is_holding();
        Ok(())
    }

    /// Moves the body on as far as both sides allow. Ready when it is complete. The body is read into `buffer` after the bytes that
    /// `kept` says stay; so do bytes after the end of the body.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        (buffer, kept): (&mut Buffer, &mut Kept),
        sink: &mut Stream,
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
                // A head that fills the buffer leaves no place for the body. There is more where this came from, too.
                shared.0.grow(buffer, buffer.filled().len() + STREAM_BYTES);
            }
            if buffer.filled().len() == kept.len {
                let received =
                    ready!(source.poll_read(cx, buffer.spare())).map_err(|_| PipeError::SourceGone)?;
                buffer.advance(received);
                self.read_bytes += received as u64;
                if received == 0 {
                    self.decoder.end_of_input().map_err(PipeError::Malformed)?;
                    self.spans.clear();
                    self.emit(cx, None, &[], sink, shared)?;
                    continue;
                }
            }
            let full = buffer.is_full();
            let used = self.send(cx, None, &buffer.filled()[kept.len..], sink, shared)?;
            if !kept.take(used) {
                buffer.remove(kept.len, kept.len + used);
            }
            if full && buffer.filled().len() == kept.len {
                // There is more where this came from: fewer, larger pieces.
                shared.0.grow(buffer, STREAM_BYTES);
            }
        }
    }

    /// Receives a body at the pace of its source, stores it, and sends what is stored at the pace of its
    /// sink. Ready when both have all of it, or when it is not stored any more and the sink has what was.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        buffer: &mut Buffer,
        sink: &mut Stream,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            let is_level = self.poll_level(cx, sink, shared)?.is_ready();
            let Some(fill) = &mut self.fill else { return Poll::Ready(Ok(())) };
            if fill.filling.is_some() {
                ready!(self.poll_store(cx, source, buffer, shared));
            } else if is_level {
                let ended = fill.error.take().map_or(Ok(()), Err);
                self.fill = None;
                return Poll::Ready(ended);
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Receives and stores the rest of a body that nobody takes. Ready when that is over.
    pub fn poll_fill_alone(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        buffer: &mut Buffer,
        shared: Shared<'_>,
    ) -> Poll<()> {
        while self.is_filling() {
            ready!(self.poll_store(cx, source, buffer, shared));
        }
        Poll::Ready(())
    }

    /// Sends the rest of a body all of which is stored. Ready when the other side has it.
    pub fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Stream,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        ready!(self.poll_level(cx, sink, shared))?;
        self.fill = None;
        self.poll_backlog(cx, sink)
    }

    /// Sends what is stored. Ready when the other side has got as far.
    fn poll_level(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Stream,
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
            let message = Message {
                head: None,
                chunk: (self.chunked && !data.is_empty()).then(|| chunk_head(data.len())),
                input: data,
                spans: &[Span::new(0, data.len())],
                trailers: (self.chunked && is_end).then_some(&self.trailers),
            };
            self.moved_bytes += message.send(cx, data.len(), &mut self.backlog, sink, buffers)?;
            self.held = sink.is_holding();
        }
    }

    /// Receives more of the body into what is stored. Ready when there is more of it, or there will not be.
    fn poll_store(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        buffer: &mut Buffer,
        (buffers, names): Shared<'_>,
    ) -> Poll<()> {
        let is_full = buffer.is_full();
        if buffer.filled().is_empty() {
            if is_full {
                buffers.grow(buffer, STREAM_BYTES);
            }
            let Ok(received) = ready!(source.poll_read(cx, buffer.spare())) else {
                self.break_off(PipeError::SourceGone);
                return Poll::Ready(());
            };
            buffer.advance(received);
            self.read_bytes += received as u64;
            if received == 0
                && let Err(error) = self.decoder.end_of_input()
            {
                self.break_off(PipeError::Malformed(error));
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
        let ends = self.chunked && is_done;
        let data =
            show(input, &mut self.spans, (&self.decoder, ends, names), &mut self.shield, &mut self.trailers);
        if let Some(fill) = &mut self.fill {
            fill.take(data, &self.spans, is_done);
        }
        buffer.remove(0, used);
        if was_full && buffer.filled().is_empty() {
            // There is more where this came from: fewer, larger pieces.
            buffers.grow(buffer, STREAM_BYTES);
        }
        Poll::Ready(())
    }

    /// Nothing more comes of a body that is being stored, though something is missing.
    fn break_off(&mut self, error: PipeError) {
        if let Some(fill) = &mut self.fill {
            fill.filling = None;
            fill.error = Some(error);
        }
    }

    /// Sends what was kept. Ready when nothing is left.
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, sink: &mut Stream) -> Poll<Result<(), PipeError>> {
        while self.backlog_sent < self.backlog.len() {
            let slice = IoSlice::new(&self.backlog[self.backlog_sent..]);
            let sent = ready!(sink.poll_write(cx, &[slice])).map_err(|_| PipeError::SinkGone)?;
            if sent == 0 {
                return Poll::Ready(Err(PipeError::SinkGone));
            }
            self.backlog_sent += sent;
            self.moved_bytes += sent as u64;
        }
        self.backlog.clear();
        self.backlog_sent = 0;
        ready!(sink.poll_flush(cx)).map_err(|_| PipeError::SinkGone)?;
        self.held = false;
        Poll::Ready(Ok(()))
    }
}

/// What of `input` may be seen, to which `spans` leads then; and the trailers, if the body ends with it.
#[inline]
fn show<'i>(
    input: &'i [u8],
    spans: &mut Vec<Span>,
    (decoder, ends, names): (&BodyDecoder, bool, &TrailerNames),
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

/// A body on its way into a cache.
#[derive(Debug)]
struct Fill {
    /// None once all of the body is stored, or is not going to be.
    filling: Option<Filling<Stored>>,
    /// What is stored of it, which stays here for the other side even if it is not stored any more.
    body: Arc<Body>,
    /// Bytes of the body that have gone on to the other side.
    passed: u64,
    /// Whether the end of the body has gone on, too.
    has_ended: bool,
    /// Why nothing more comes of the body, though something is missing.
    error: Option<PipeError>,
}

impl Fill {
    fn new(filling: Filling<Stored>) -> Self {
        let body = Arc::clone(&filling.entry().body);
        Self { filling: Some(filling), body, passed: 0, has_ended: false, error: None }
    }

    /// Stores what `spans` of `input` hold of the body, the end of which has come if `is_done`.
    fn take(&mut self, input: &[u8], spans: &[Span], is_done: bool) {
        let Some(mut filling) = self.filling.take() else { return };
        let joined: Vec<u8>;
        let data = match spans {
            [] => &[],
            [span] => span.of(input),
            // Chunks of a byte each would be blocks of a byte each.
            spans => {
                joined = spans.iter().flat_map(|span| span.of(input)).copied().collect();
                &joined
            }
        };
        match filling.push(data) {
            Ok(()) if is_done => {
                filling.finish();
            }
            Ok(()) => self.filling = Some(filling),
            Err(_) => filling.give_up(data),
        }
    }

    /// Whether there is more of the body than has gone on.
    fn is_ahead(&self) -> bool {
        self.body.received() > self.passed
    }
}

/// What in a body must not be shown is masked here, before anybody sees any of it.
#[derive(Debug)]
pub(crate) struct SecretMask {
    echoes: Arc<Echoes>,
    mask: EchoMask,
    /// What of the body goes on.
    masked: Vec<u8>,
}

impl SecretMask {
    /// One for a body in which `echoes` are masked.
    pub fn new(echoes: &Arc<Echoes>) -> Self {
        Self { echoes: Arc::clone(echoes), mask: EchoMask::new(Arc::clone(echoes)), masked: Vec::new() }
    }

    /// Takes what `spans` of `input` hold of the body, the end of which has come if `is_done`. Returns what can go on, to which `spans`
    /// leads then.
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

/// What is told of a body that passes: how long it is, and copies of its beginning and of its end, as much as is wanted of each.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    start: Vec<u8>,
    start_max: usize,
    end: Vec<u8>,
    end_max: usize,
    /// What the end takes of what all gathered bodies may.
    share: Share,
    /// Where that is taken from; none where nothing is wanted of the end, or no more since there was no room.
    budget: Option<Arc<Budget>>,
    passed_bytes: u64,
}

impl Tap {
    /// Wants the first `most` bytes. Uses the memory of `bytes`.
    pub fn keep_start(&mut self, mut bytes: Vec<u8>, most: usize) {
        bytes.clear();
        (self.start, self.start_max) = (bytes, most);
    }

    /// Wants the last `most` bytes, if `budget` has room for them; where it has not, nothing is kept. Uses
    /// the memory of `bytes`.
    pub fn keep_end(&mut self, mut bytes: Vec<u8>, most: usize, budget: &Arc<Budget>) {
        bytes.clear();
        (self.end, self.end_max) = (bytes, most);
        self.budget = Some(Arc::clone(budget));
    }

    fn take(&mut self, data: &[u8]) {
        self.passed_bytes += data.len() as u64;
        if self.start.len() < self.start_max {
            self.start.extend_from_slice(&data[..data.len().min(self.start_max - self.start.len())]);
        }
        if let Some(budget) = &self.budget {
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
            // Not each time, so that the cost stays in proportion.
            if self.end.len() > self.end_max.saturating_mul(2) {
                self.end.drain(..self.end.len() - self.end_max);
            }
        }
    }

    /// Bytes of the body so far.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// The beginning of the body.
    pub fn take_start(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.start)
    }

    /// Whether its end is wanted.
    pub fn wants_end(&self) -> bool {
        self.end_max > 0
    }

    /// The end of the body so far.
    pub fn end(&self) -> &[u8] {
        &self.end[self.end.len().saturating_sub(self.end_max)..]
    }

    /// Whether the end is all of it.
    pub fn is_whole(&self) -> bool {
        self.end().len() as u64 == self.passed_bytes
    }

    /// The memory of the end, for another.
    pub fn into_end(self) -> Vec<u8> {
        self.end
    }
}

/// What is sent in one go: a head, if one goes before it, and a part of a body with its framing.
struct Message<'m, 'h> {
    head: Option<&'m Rendering<'h>>,
    /// The line before a chunk.
    chunk: Option<ChunkHead>,
    input: &'m [u8],
    /// Where in `input` the data is.
    spans: &'m [Span],
    /// The trailers, where a body in chunks ends with this.
    trailers: Option<&'m Vec<u8>>,
}

impl Message<'_, '_> {
    /// A length that all pieces together do not exceed, with `data_len` bytes of data.
    fn max_len(&self, data_len: usize) -> usize {
        let framing = CHUNK_FRAMING_BYTES_MAX + self.trailers.map_or(0, Vec::len);
        self.head.map_or(0, Rendering::max_len) + data_len + framing
    }

    /// Sends it, `data_len` bytes of data among it, unless `backlog` has to go first; what is not taken at
    /// once is added to that. Returns how much was taken.
    #[inline]
    fn send(
        &self,
        cx: &mut Context<'_>,
        data_len: usize,
        backlog: &mut Vec<u8>,
        sink: &mut Stream,
        buffers: &BufferPool,
    ) -> Result<u64, PipeError> {
        if self.max_len(data_len) <= GATHER_BYTES_MAX {
            let mut gathered = buffers.gathered.borrow_mut();
            gathered.clear();
            self.for_each_piece(|piece| gathered.extend_from_slice(piece));
            let sent = send_now(cx, &[IoSlice::new(&gathered)], backlog, sink)?;
            backlog.extend_from_slice(&gathered[sent..]);
            return Ok(sent as u64);
        }
        let mut slices = SmallVec::<[IoSlice<'_>; 16]>::new();
        self.for_each_piece(|piece| slices.push(IoSlice::new(piece)));
        let sent = send_now(cx, &slices, backlog, sink)?;
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, sent);
        for slice in rest {
            backlog.extend_from_slice(slice);
        }
        Ok(sent as u64)
    }

    /// Goes over all pieces in order; none is empty.
    fn for_each_piece<'p>(&'p self, mut take: impl FnMut(&'p [u8])) {
        if let Some(head) = self.head {
            head.for_each_piece(&mut take);
        }
        if let Some(chunk) = &self.chunk {
            take(chunk.as_bytes());
        }
        for span in self.spans {
            take(span.of(self.input));
        }
        if self.chunk.is_some() {
            take(b"\r\n");
        }
        if let Some(trailers) = self.trailers {
            take(LAST_CHUNK);
            if !trailers.is_empty() {
                take(trailers);
            }
            take(b"\r\n");
        }
    }
}

/// Hands `slices` to the system in one call, unless `backlog` has to go first. Returns how much it took.
fn send_now(
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
    backlog: &[u8],
    sink: &mut Stream,
) -> Result<usize, PipeError> {
    if !backlog.is_empty() || slices.iter().all(|slice| slice.is_empty()) {
        return Ok(0);
    }
    match sink.poll_write(cx, slices) {
        Poll::Ready(sent) => sent.map_err(|_| PipeError::SinkGone),
        Poll::Pending => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use egret_clock::Timestamp;
    use egret_store::entries::Kept as _;
    use egret_store::entries::{Entries, EntryKey, EntryLimits};
    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::*;
    use crate::event_loop::{ends, run, spawn, turn};

    /// What arrives on the other side when `pieces` are received one after the other, and how it ended.
    fn piped(
        framing: ResponseFraming,
        chunked: bool,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>) {
        shielded(None, framing, chunked, pieces)
    }

    /// The same with a shield.
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
                    // The pipe may have refused what came before.
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
            let (mut source, mut sink) = (Stream::Plain(source), Stream::Plain(sink));
            let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut pipe = Pipe::default();
            pipe.reset(framing, chunked);
            pipe.shield = shield.map(Box::new);
            let shared = (&buffers, &names);
            let ended = poll_fn(|cx| {
                pipe.poll(cx, &mut source, (&mut buffer, &mut Kept::first(0)), &mut sink, shared)
            })
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
    fn what_follows_the_body_is_not_sent_on() {
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
    fn a_malformed_chunk_is_an_error_and_nothing_of_its_read_is_sent() {
        let (arrived, ended) = piped(ResponseFraming::Chunked, true, vec![b"3\r\nabc\r\nzz\r\n".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::ChunkSize))), "{ended:?}");
        assert_eq!(arrived, b"");
    }

    #[test]
    fn secrets_are_masked_however_they_are_cut_and_the_framing_stays() {
        let shield = || {
            let echoes = Echoes::new([&b"sk_live_0123456789"[..]]).unwrap();
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
    fn what_is_held_back_of_a_body_that_breaks_off_goes_nowhere() {
        let echoes = Echoes::new([&b"sk_live_0123456789"[..]]).unwrap();
        let shield = Some(SecretMask::new(&Arc::new(echoes)));
        let (arrived, ended) =
            shielded(shield, ResponseFraming::Length(9), false, vec![b"a\nsk_li".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert_eq!(arrived, b"a\n");
    }

    /// Where a body of at most `most` bytes is stored.
    fn filling(most: u64) -> Filling<Stored> {
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
        let limits = EntryLimits { bytes: 64 << 20, body_bytes: most, ..EntryLimits::default() };
        let place = EntryKey { id: 1, group: 1 };
        Entries::new(limits).begin(place, stored, &[].into(), None, Timestamp::from_secs(1)).unwrap()
    }

    /// What arrives on the other side, which takes nothing before the body has ended in the store; how it
    /// ended; and what is stored.
    fn stored(
        framing: ResponseFraming,
        chunked: bool,
        most: u64,
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
            let filling = filling(most);
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
            let (mut source, mut sink) = (Stream::Plain(source), Stream::Plain(sink));
            let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut pipe = Pipe::default();
            pipe.reset(framing, chunked);
            pipe.store(filling);
            let shared = (&buffers, &names);
            let ended = poll_fn(|cx| {
                pipe.poll(cx, &mut source, (&mut buffer, &mut Kept::first(0)), &mut sink, shared)
            })
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
        for most in [1, 100_000, 2_900_000] {
            let (arrived, ended, kept) = stored(ResponseFraming::UntilClose, false, most, vec![body.clone()]);
            assert!(ended.is_ok() && arrived == body && kept.is_none(), "{most}");
        }
    }

    #[test]
    fn what_came_of_a_body_that_breaks_off_arrives_and_is_not_stored() {
        let body = vec![b'x'; 2_000_000];
        let (arrived, ended, kept) =
            stored(ResponseFraming::Length(3_000_000), false, 4 << 20, vec![body.clone()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert!(arrived == body && kept.is_none());
    }

    proptest! {
        #[test]
        fn what_is_stored_on_its_way_arrives_as_what_is_not(
            sizes in prop::collection::vec(0_usize..70_000, 0..8),
            most in 1_u64..300_000,
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
            let (arrived, ended, kept) = stored(ResponseFraming::Chunked, chunked, most, framed);
            prop_assert_eq!(ended.is_ok(), !is_cut);
            prop_assert_eq!(kept.is_some(), !is_cut && body.len() as u64 <= most);
            prop_assert!(kept.is_none_or(|kept| kept == body));
            let arrived = if chunked { unframed(&arrived, is_cut) } else { arrived };
            prop_assert!(arrived == body, "{} of {}", arrived.len(), body.len());
        }
    }

    /// The content of a body in chunks.
    fn unframed(framed: &[u8], is_cut: bool) -> Vec<u8> {
        let (mut decoder, mut spans) = (BodyDecoder::none(), Vec::new());
        decoder.restart(ResponseFraming::Chunked);
        assert_eq!(decoder.decode(framed, &mut spans).unwrap(), framed.len());
        assert_eq!(decoder.is_done(), !is_cut);
        spans.iter().flat_map(|span| span.of(framed)).copied().collect()
    }
}
