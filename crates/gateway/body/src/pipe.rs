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
    /// The stages that see the body while it passes.
    pub stages: Stages,
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
            stages: Stages::default(),
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
        self.stages.clear();
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

    /// Decodes the body in `input` without sending it. Returns its framed length, or `None` if it is
    /// incomplete or malformed.
    pub fn skip(&mut self, input: &[u8]) -> Option<usize> {
        self.spans.clear();
        let used = self.decoder.decode(input, &mut self.spans).ok()?;
        self.stages.pass(input, &mut self.spans, self.decoder.is_done());
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
        self.decoder.is_done() && !self.is_blocked_on_sink() && !self.stages.is_cut()
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
        let allowed = match self.stages.poll_allowance(cx) {
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
        let (input, is_done) = self.stages.pass(input, &mut self.spans, is_done);
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
            if self.stages.is_cut() {
                return self.stages.poll_cut(cx).map(|()| Err(PipeError::Cut));
            }
            if self.decoder.is_done() {
                return Poll::Ready(Ok(()));
            }
            let allowed = ready!(self.stages.poll_allowance(cx));
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
        self.stages.pass(buffer.filled(), &mut self.spans, self.decoder.is_done());
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
        if let Some(tap) = receiving.stages.take_tap() {
            self.stages.tap(|own| *own = tap);
        }
        self.stages.adopt_usage(&mut receiving.stages);
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
        self.stages.pass_trailers(&mut self.trailers);
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use std::sync::Arc;

    use egret_accounts::SecretPatterns;
    use egret_message::{Changes, Fields};
    use egret_net::budget::Budget;
    use tokio::sync::oneshot;

    use super::*;
    use egret_leg::sockets::{ends, run, turn};
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
        arriving(None, framing, chunked, pieces)
    }

    /// Does the same with a mask.
    fn arriving(
        echoes: Option<SecretPatterns>,
        framing: ResponseFraming,
        chunked: bool,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>) {
        let mask = |stages: &mut Stages| echoes.into_iter().for_each(|echoes| stages.mask(&Arc::new(echoes)));
        staged(mask, framing, chunked, pieces)
    }

    /// Does the same with the stages that `add` adds.
    fn staged(
        add: impl FnOnce(&mut Stages),
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
            add(&mut pipe.stages);
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
        let echoes = || SecretPatterns::new([&b"sk_live_0123456789"[..]]).ok();
        let text = b"key=sk_live_0123456789&end=sk_live_01".to_vec();
        let masked = b"key=******************&end=sk_live_01";
        for cut in 0..text.len() {
            let length = ResponseFraming::Length(text.len() as u64);
            let pieces = || vec![text[..cut].to_vec(), text[cut..].to_vec()];
            let (arrived, ended) = arriving(echoes(), length, false, pieces());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let (arrived, ended) = arriving(echoes(), ResponseFraming::UntilClose, false, pieces());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            let chunks: Vec<_> =
                pieces().iter().filter(|piece| !piece.is_empty()).map(|piece| chunk(piece)).collect();
            let end = b"0\r\nX-Key: sk_live_0123456789\r\n\r\n".to_vec();
            let (arrived, ended) =
                arriving(echoes(), ResponseFraming::Chunked, false, [chunks.concat(), end.clone()].to_vec());
            assert!(ended.is_ok());
            assert_eq!(arrived, masked, "cut at {cut}");
            let (arrived, _) =
                arriving(echoes(), ResponseFraming::Chunked, true, [chunks, vec![end]].concat());
            assert!(arrived.ends_with(b"0\r\nX-Key: ******************\r\n\r\n"));
        }
    }

    #[test]
    fn a_report_is_left_out_however_it_is_framed_and_cut() {
        let hide = |stages: &mut Stages| {
            let mut changes = Changes::default();
            changes.add(b"content-type", b"text/event-stream");
            stages.hide_usage(Fields::new(&[], b"", &changes), &Arc::new(Budget::default()));
            assert!(stages.are_inseparable());
        };
        let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let text = "data: {\"choices\":[{}],\"usage\":null}\n\n";
        let stream =
            format!("{text}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":1}}}}\n\ndata: [DONE]\n\n");
        let expected = format!("{text}data: [DONE]\n\n");
        let stream = stream.as_bytes();
        for cut in 1..stream.len() {
            let pieces = || vec![stream[..cut].to_vec(), stream[cut..].to_vec()];
            let chunks: Vec<_> =
                pieces().iter().map(|piece| chunk(piece)).chain([b"0\r\n\r\n".to_vec()]).collect();
            let length = ResponseFraming::Length(stream.len() as u64);
            for (framing, pieces) in [
                (length, pieces()),
                (ResponseFraming::UntilClose, pieces()),
                (ResponseFraming::Chunked, chunks.clone()),
                (ResponseFraming::Chunked, vec![chunks.concat()]),
            ] {
                let (arrived, ended) = staged(hide, framing, false, pieces.clone());
                assert!(ended.is_ok());
                assert_eq!(String::from_utf8(arrived).unwrap(), expected, "{framing:?}, cut at {cut}");
                let (arrived, ended) = staged(hide, framing, true, pieces);
                assert!(ended.is_ok() && arrived.ends_with(b"\r\n0\r\n\r\n"));
                assert_eq!(arrived.windows(5).filter(|window| window == b"\r\n0\r\n").count(), 1);
            }
        }
    }

    #[test]
    fn usage_is_read_before_its_report_is_left_out() {
        let mut changes = Changes::default();
        changes.add(b"content-type", b"text/event-stream");
        let mut stages = Stages::default();
        stages.hide_usage(Fields::new(&[], b"", &changes), &Arc::new(Budget::default()));
        stages.tap(|tap| tap.keep_start(Vec::new(), 100));
        let input = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n";
        let mut spans = vec![Span::new(0, input.len())];
        assert_eq!(stages.pass(input, &mut spans, true), (&b""[..], true));
        assert!(spans.is_empty());
        let usage = stages.take_usage(true).unwrap();
        assert_eq!((usage.input, usage.output), (1, 2));
        assert_eq!(stages.take_tap().unwrap().passed_bytes(), 0);
    }

    #[test]
    fn withheld_bytes_of_a_broken_body_are_dropped() {
        let echoes = SecretPatterns::new([&b"sk_live_0123456789"[..]]).unwrap();
        let (arrived, ended) =
            arriving(Some(echoes), ResponseFraming::Length(9), false, vec![b"a\nsk_li".to_vec()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert_eq!(arrived, b"a\n");
    }
}
