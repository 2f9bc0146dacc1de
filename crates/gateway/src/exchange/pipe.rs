//! One direction of a body: received, checked, framed for the other side and sent, with back-pressure and no more than one
//! buffer in between.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use egret_flow::accounts::{EchoMask, Echoes};
use egret_flow::cache::Stored;
use egret_http1::{
    BodyDecoder, BodyError, ChunkHead, LAST_CHUNK, Rendering, ResponseFraming, Span, TrailerNames, chunk_head,
};
use egret_store::entries::Filling;
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
    pub shield: Option<Box<Shield>>,
    /// Where a copy of the body goes, if somebody wants one.
    pub tap: Option<Tap>,
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
        !self.backlog.is_empty() || self.held
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
        if ends {
            names.filter(self.decoder.trailers(), &mut self.trailers);
        }
        let input = match &mut self.shield {
            Some(shield) => {
                shield.mask_trailers(&mut self.trailers);
                shield.pass(input, &mut self.spans, is_done)
            }
            None => input,
        };
        let data_len: usize = self.spans.iter().map(|span| span.len()).sum();
        if let Some(tap) = &mut self.tap {
            self.spans.iter().for_each(|span| tap.take(span.of(input)));
            if is_done {
                tap.finish();
            }
        }
        let message = Message {
            head,
            chunk: (self.chunked && data_len > 0).then(|| chunk_head(data_len)),
            input,
            spans: &self.spans,
            trailers: ends.then_some(&self.trailers),
        };
        if message.max_len(data_len) <= GATHER_BYTES_MAX {
            let mut gathered = buffers.gathered.borrow_mut();
            gathered.clear();
            message.for_each_piece(|piece| gathered.extend_from_slice(piece));
            let sent = send_now(cx, &[IoSlice::new(&gathered)], &self.backlog, sink)?;
            self.backlog.extend_from_slice(&gathered[sent..]);
            self.moved_bytes += sent as u64;
        } else {
            let mut slices = SmallVec::<[IoSlice<'_>; 16]>::new();
            message.for_each_piece(|piece| slices.push(IoSlice::new(piece)));
            let sent = send_now(cx, &slices, &self.backlog, sink)?;
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, sent);
            for slice in rest {
                self.backlog.extend_from_slice(slice);
            }
            self.moved_bytes += sent as u64;
        }
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

/// What in a body must not be shown is masked here, before anybody sees any of it.
#[derive(Debug)]
pub(crate) struct Shield {
    echoes: Arc<Echoes>,
    mask: EchoMask,
    /// What of the body goes on.
    masked: Vec<u8>,
}

impl Shield {
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
    /// Where all of it is stored.
    filling: Option<Filling<Stored>>,
}

impl Tap {
    /// Has all of the body stored. Where it breaks off, or is more than may be stored, nothing is.
    pub fn store(&mut self, filling: Filling<Stored>) {
        self.filling = Some(filling);
    }

    /// All of the body has passed.
    fn finish(&mut self) {
        if let Some(filling) = self.filling.take() {
            filling.finish();
        }
    }

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
        if self.filling.as_mut().is_some_and(|filling| filling.push(data).is_err()) {
            self.filling = None;
        }
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
        shield: Option<Shield>,
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
            Some(Shield::new(&Arc::new(echoes)))
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
        let shield = Some(Shield::new(&Arc::new(echoes)));
        let (arrived, ended) =
            shielded(shield, ResponseFraming::Length(9), false, vec![b"a\nsk_li".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert_eq!(arrived, b"a\n");
    }
}
