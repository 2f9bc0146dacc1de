//! Gathers bodies that a flow needs before they are forwarded. A body is received whole, up to a limit, and
//! stays in the buffer it was received in, so it is forwarded or sent again like any other.
//!
//! All gathered bodies of the process together take at most `limits.gathered` bytes of memory. A body's
//! memory is allocated while it arrives: it doubles, up to the announced length. So a client that has sent
//! only a head takes no memory from others, and no client holds more than twice the bytes that it has sent.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use egret_clock::Moment;
use egret_http1::{BodyDecoder, BodyError, RequestFraming, ResponseFraming, Span};

use crate::exchange::call::{Exchange, Stop};
use crate::exchange::pace::RateWindow;
use crate::failure::{ErrorKind, Failure};
use crate::upstream::Connection;
use egret_net::budget::{Budget, Exhausted, Share};
use egret_net::buffer::{BUFFER_BYTES, Buffer};

/// Asks a client that waits for it to send its body (RFC 9110 §10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Memory allocated at once for a body whose length needs at least that much. Most bodies fit.
const FIRST_BYTES: usize = 64 << 10;
/// Memory is allocated in multiples of this.
const PAGE_BYTES: usize = 4096;

/// A gathered body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Its position among the received bytes, if it arrived in one piece.
    place: Option<Span>,
    /// The received part without framing, if it arrived in chunks.
    decoded: Vec<u8>,
    /// The share of the budget for gathered bodies that `decoded` takes.
    share: Share,
    pub is_whole: bool,
    /// Length of the received body with its framing, once it is complete.
    pub framed_len: usize,
}

impl Body {
    /// Returns the whole body, if it is complete. `received` is the message as received.
    pub fn whole<'a>(&'a self, received: &'a [u8]) -> Option<&'a [u8]> {
        let body = match self.place {
            Some(place) => place.of(received),
            None => &self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Returns the whole body mutably, if it is complete.
    fn whole_mut<'a>(&'a mut self, received: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let body = match self.place {
            Some(place) => received.get_mut(place.range()).unwrap_or_default(),
            None => &mut self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Drops the body and releases its share of the budget.
    pub fn clear(&mut self) {
        self.place = None;
        self.decoded.clear();
        self.decoded.shrink_to(BUFFER_BYTES);
        self.share.release();
        self.is_whole = false;
        self.framed_len = 0;
    }

    /// Makes room for `len` more bytes.
    fn reserve(&mut self, len: usize, budget: &Arc<Budget>) -> Result<(), Exhausted> {
        let (held, needed) = (self.decoded.capacity(), self.decoded.len() + len);
        if needed > held {
            let bytes = needed.max(2 * held).next_multiple_of(PAGE_BYTES);
            self.share.cover(budget, bytes)?;
            self.decoded.reserve_exact(bytes - self.decoded.len());
        }
        Ok(())
    }
}

/// The state of a body that is being gathered.
struct Gathering {
    decoder: BodyDecoder,
    is_chunked: bool,
    /// Offset of the body.
    start: usize,
    /// Number of decoded bytes, with framing.
    used: usize,
    /// Number of decoded bytes, without framing.
    len: usize,
    /// Maximum length without framing.
    most: usize,
    /// Maximum length with framing, plus the bytes in front of the body.
    received_most: usize,
    spans: Vec<Span>,
}

/// The progress of a gathered body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathered {
    Some,
    All,
    TooMuch,
    /// The budget for gathered bodies is used up.
    NoRoom,
}

impl Gathering {
    /// Starts a body that begins at offset `start` of the received bytes and has at most `most` bytes.
    fn new(framing: impl Into<ResponseFraming>, start: usize, most: usize) -> Self {
        let framing = framing.into();
        let mut decoder = BodyDecoder::none();
        decoder.restart(framing);
        // Chunks of one byte each are mostly framing.
        let framed_most = match framing {
            ResponseFraming::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            _ => most.saturating_mul(2),
        };
        Self {
            decoder,
            is_chunked: framing == ResponseFraming::Chunked,
            start,
            used: 0,
            len: 0,
            most,
            // One more byte, so data after the body is noticed.
            received_most: start.saturating_add(framed_most).saturating_add(1),
            spans: Vec::new(),
        }
    }

    /// Decodes the new part of the body in `received`, the message received so far.
    fn take(
        &mut self,
        received: &[u8],
        body: &mut Body,
        budget: &Arc<Budget>,
    ) -> Result<Gathered, BodyError> {
        let bytes = &received[self.start + self.used..];
        self.spans.clear();
        self.used += self.decoder.decode(bytes, &mut self.spans)?;
        let len: usize = self.spans.iter().map(|span| span.len()).sum();
        self.len += len;
        if self.len > self.most || self.used > self.most.saturating_mul(2) {
            return Ok(Gathered::TooMuch);
        }
        if self.is_chunked {
            if body.reserve(len, budget).is_err() {
                return Ok(Gathered::NoRoom);
            }
            self.spans.iter().for_each(|span| body.decoded.extend_from_slice(span.of(bytes)));
        } else {
            body.place = Some(Span::new(self.start, self.start + self.used));
        }
        Ok(if self.decoder.is_done() { Gathered::All } else { Gathered::Some })
    }

    /// Returns the size that a full buffer must grow to.
    fn next_bytes(&self, buffer: &Buffer) -> usize {
        let doubled = (2 * buffer.capacity()).max(FIRST_BYTES);
        let most = self.received_most.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        doubled.min(most).max(buffer.capacity() + PAGE_BYTES)
    }
}

impl Exchange<'_> {
    /// Receives the request's whole body, and leaves it in the input too. A body of more than `most` bytes
    /// passes through ungathered.
    pub(super) async fn gather_body(&mut self, most: usize) -> Result<(), Stop> {
        let framing = self.state.request.framing;
        if most == 0 || matches!(framing, RequestFraming::Length(length) if length > most as u64) {
            return Ok(());
        }
        let Some(flow_run) = &mut self.flow_run else { return Ok(()) };
        flow_run.body.clear();
        let tells = self.state.request.expect_continue && !mem::replace(&mut flow_run.told_to_continue, true);
        if tells && !self.client.send_all(CONTINUE).await {
            return Err(Stop::ClientGone);
        }
        let mut gathering = Gathering::new(framing, self.state.request.len, most);
        self.deadlines.rate = RateWindow::starting(Moment::now(), 0);
        self.note_progress(self.view.plan.timeouts.idle);
        poll_fn(|cx| self.poll_gather(cx, &mut gathering)).await
    }

    fn poll_gather(&mut self, cx: &mut Context<'_>, gathering: &mut Gathering) -> Poll<Result<(), Stop>> {
        let Some(flow_run) = &mut self.flow_run else { return Poll::Ready(Ok(())) };
        let buffers = &self.client.worker.pools.buffers;
        let no_room = || Poll::Ready(Err(Stop::Failure(Failure::bodies_full())));
        let mut progressed = false;
        loop {
            let input = &mut self.state.input;
            match gathering.take(input.filled(), &mut flow_run.body, &buffers.budget) {
                Ok(Gathered::Some) => {}
                Ok(Gathered::NoRoom) => return no_room(),
                Ok(ended) => {
                    flow_run.body.is_whole = ended == Gathered::All;
                    flow_run.body.framed_len = gathering.used;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(Stop::Failure(Failure::bad_request_body(error)))),
            }
            if input.is_full() && buffers.grow_gathered(input, gathering.next_bytes(input)).is_err() {
                return no_room();
            }
            match self.client.stream.poll_read(cx, input.spare()) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    input.advance(count);
                    progressed = true;
                    self.client.worker.counters().received_bytes.add(count as u64);
                }
                Poll::Ready(_) => return Poll::Ready(Err(Stop::ClientGone)),
                Poll::Pending => break,
            }
        }
        if progressed {
            self.note_progress(self.view.plan.timeouts.idle);
        }
        self.poll_late_body(cx, gathering.len as u64)
    }

    /// Stays pending until the client is too late with its body.
    fn poll_late_body(&mut self, cx: &mut Context<'_>, gathered: u64) -> Poll<Result<(), Stop>> {
        let now = Moment::now();
        if !self.client.timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let is_late = self.deadlines.phase <= now
            || !self.deadlines.rate.keeps_up(now, gathered, self.view.plan.limits.body_rate.bytes());
        if is_late {
            let detail = "the request body, which a flow buffers, did not arrive in time (`limits.body_rate`, `timeouts.idle`)";
            return Poll::Ready(Err(Stop::Failure(Failure::new(ErrorKind::RequestTimeout, detail))));
        }
        self.deadlines.rearm(&self.client.timer, cx, now);
        Poll::Pending
    }

    /// Receives the response's whole body, and leaves it in the response state too. A body of more than
    /// `most` bytes passes through ungathered, and so does one for which the budget has no room: the call has
    /// been made, and the remedy that needs the body decides what follows.
    pub(super) async fn gather_response(
        &mut self,
        connection: &mut Connection,
        most: usize,
    ) -> Result<(), Stop> {
        let Some(flow_run) = &mut self.flow_run else { return Ok(()) };
        flow_run.response_body.clear();
        let framing = self.state.response_state.response.framing;
        if most == 0 || matches!(framing, ResponseFraming::Length(length) if length > most as u64) {
            return Ok(());
        }
        flow_run.gathers_response = true;
        let mut gathering = Gathering::new(framing, self.state.response_state.response.len, most);
        self.note_progress(self.timeouts().idle);
        let gathered = poll_fn(|cx| self.poll_gather_response(cx, &mut gathering, connection)).await;
        if let Some(flow_run) = &mut self.flow_run {
            flow_run.gathers_response = false;
            flow_run.response_body.framed_len = gathering.used;
            flow_run.response_body.is_whole =
                gathered.as_ref().is_ok_and(|gathered| *gathered == Gathered::All);
            if let Some(echoes) = &flow_run.echoes
                && let Some(body) =
                    flow_run.response_body.whole_mut(self.state.response_state.output.filled_mut())
            {
                echoes.mask(body);
            }
        }
        // The exchange has waited for the provider until now.
        self.clock.first_byte = Moment::now();
        gathered.map(|_| ())
    }

    /// Forwards the request's body and receives the response's, until that is complete or too large.
    fn poll_gather_response(
        &mut self,
        cx: &mut Context<'_>,
        gathering: &mut Gathering,
        connection: &mut Connection,
    ) -> Poll<Result<Gathered, Stop>> {
        if let Poll::Ready(Err(_)) = self.state.response_state.down.poll_backlog(cx, &mut self.client.stream)
        {
            return Poll::Ready(Err(Stop::ClientGone));
        }
        let before = (self.state.up.moved_bytes, self.received_bytes);
        if self.is_uploading()
            && let Err(stop) = self.poll_request(cx, connection)
        {
            return Poll::Ready(Err(stop));
        }
        if let Poll::Ready(gathered) = self.poll_response_body(cx, gathering, connection) {
            return Poll::Ready(gathered.map_err(Stop::Failure));
        }
        if (self.state.up.moved_bytes, self.received_bytes) != before {
            self.note_progress(self.timeouts().idle);
        }
        if self.is_uploading() { self.poll_deadlines(cx) } else { self.poll_waiting(cx) }
    }

    /// Receives the response's body. The received part stays in the response state too.
    fn poll_response_body(
        &mut self,
        cx: &mut Context<'_>,
        gathering: &mut Gathering,
        connection: &mut Connection,
    ) -> Poll<Result<Gathered, Failure>> {
        let Some(flow_run) = &mut self.flow_run else { return Poll::Ready(Ok(Gathered::TooMuch)) };
        let buffers = &self.client.worker.pools.buffers;
        let output = &mut self.state.response_state.output;
        loop {
            match gathering.take(output.filled(), &mut flow_run.response_body, &buffers.budget) {
                Ok(Gathered::Some) => {}
                Ok(ended) => return Poll::Ready(Ok(ended)),
                Err(error) => return Poll::Ready(Err(Failure::bad_response(error))),
            }
            if output.is_full() && buffers.grow_gathered(output, gathering.next_bytes(output)).is_err() {
                return Poll::Ready(Ok(Gathered::NoRoom));
            }
            match ready!(connection.stream.poll_read(cx, output.spare())) {
                Ok(count) if count > 0 => {
                    self.received_bytes += count as u64;
                    output.advance(count);
                }
                Ok(_) if gathering.decoder.end_of_input().is_ok() => {
                    return Poll::Ready(Ok(Gathered::All));
                }
                Ok(_) | Err(_) => {
                    let detail = "the provider closed the connection during a response that a flow buffers";
                    return Poll::Ready(Err(Failure::new(ErrorKind::ProviderClosed, detail)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gathers `message`, whose body begins at `start`, while it arrives in pieces that end at `cuts`.
    fn gathered(
        message: &[u8],
        framing: ResponseFraming,
        start: usize,
        most: usize,
        cuts: &[usize],
        budget: &Arc<Budget>,
    ) -> (Gathered, Body, usize) {
        let mut gathering = Gathering::new(framing, start, most);
        let (mut body, mut end) = (Body::default(), start);
        let mut cuts = cuts.iter().copied();
        loop {
            let ended = gathering.take(&message[..end], &mut body, budget).unwrap();
            if ended != Gathered::Some || end == message.len() {
                body.is_whole = ended == Gathered::All;
                return (ended, body, gathering.used);
            }
            end = message.len().min(end + cuts.next().unwrap_or(message.len()));
        }
    }

    fn in_chunks(content: &[u8], len: usize) -> Vec<u8> {
        let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        content.chunks(len).map(chunk).chain([b"0\r\n\r\n".to_vec()]).collect::<Vec<_>>().concat()
    }

    #[test]
    fn a_body_with_a_length_stays_where_it_came_and_one_in_chunks_takes_its_share() {
        let budget = Arc::new(Budget::default());
        let (_, body, used) =
            gathered(b"HEADabcdeNEXT", ResponseFraming::Length(5), 4, 100, &[2, 2], &budget);
        assert_eq!((body.whole(b"HEADabcdeNEXT"), used, budget.taken()), (Some(&b"abcde"[..]), 5, 0));
        let message = [b"HEAD".to_vec(), in_chunks(b"abcde", 2)].concat();
        let (_, mut body, used) = gathered(&message, ResponseFraming::Chunked, 4, 100, &[3; 9], &budget);
        assert_eq!((body.whole(&message), used), (Some(&b"abcde"[..]), message.len() - 4));
        assert_eq!(budget.taken(), PAGE_BYTES);
        body.clear();
        assert_eq!((body.whole(&message), budget.taken()), (None, 0));
        budget.set_most(PAGE_BYTES - 1);
        let (ended, ..) = gathered(&message, ResponseFraming::Chunked, 4, 100, &[], &budget);
        assert_eq!((ended, budget.taken()), (Gathered::NoRoom, 0));
    }

    #[test]
    fn memory_doubles_up_to_what_the_length_says() {
        let pool = egret_net::buffer::BufferPool::default();
        let mut buffer = Buffer::default();
        pool.lend(&mut buffer);
        let steps = |length: u64, buffer: &mut Buffer| -> Vec<usize> {
            let gathering = Gathering::new(ResponseFraming::Length(length), 100, 1 << 20);
            let mut steps = Vec::new();
            while buffer.capacity() <= 100 + usize::try_from(length).unwrap() {
                let bytes = gathering.next_bytes(buffer);
                pool.grow_gathered(buffer, bytes).unwrap();
                steps.push(bytes >> 10);
            }
            steps
        };
        assert_eq!(steps(20_000, &mut buffer), [20]);
        pool.take_back(&mut buffer);
        pool.lend(&mut buffer);
        assert_eq!(steps(1 << 20, &mut buffer), [64, 128, 256, 512, 1024, 1028]);
    }

    proptest! {
        /// However it is cut, a gathered body is either the one that was sent or too much, and its memory is
        /// released.
        #[test]
        fn a_body_is_gathered_however_it_is_cut(
            content in prop::collection::vec(any::<u8>(), 0..600),
            len in 1_usize..200,
            most in 0_usize..700,
            chunked: bool,
            cuts in prop::collection::vec(1_usize..100, 0..40),
        ) {
            let budget = Arc::new(Budget::default());
            let framing =
                if chunked { ResponseFraming::Chunked } else { ResponseFraming::Length(content.len() as u64) };
            let framed = if chunked { in_chunks(&content, len) } else { content.clone() };
            let message = [b"HEAD".to_vec(), framed.clone()].concat();
            let (ended, body, used) = gathered(&message, framing, 4, most, &cuts, &budget);
            if content.len() > most || framed.len() > 2 * most {
                prop_assert_eq!(ended, Gathered::TooMuch);
                prop_assert_eq!(body.whole(&message), None);
            } else {
                prop_assert_eq!(ended, Gathered::All);
                prop_assert_eq!((body.whole(&message), used), (Some(&content[..]), framed.len()));
            }
            let held = if chunked && ended == Gathered::All { content.len() } else { 0 };
            prop_assert!(budget.taken() >= held);
            drop(body);
            prop_assert_eq!(budget.taken(), 0);
        }
    }
}
