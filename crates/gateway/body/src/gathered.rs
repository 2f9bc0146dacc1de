//! A body that is gathered whole before it is forwarded.

use std::sync::Arc;

use egret_http1::{BodyDecoder, BodyError, ResponseFraming, Span};
use egret_net::budget::{Budget, Exhausted, Share};
use egret_net::buffer::{BUFFER_BYTES, Buffer};

/// Memory is allocated in multiples of this.
const PAGE_BYTES: usize = 4096;
/// Memory allocated at once for a body whose length needs at least that much. Most bodies fit.
const FIRST_BYTES: usize = 64 << 10;

/// A gathered body.
#[derive(Debug, Default)]
pub struct GatheredBody {
    /// Its position among the received bytes, if it arrived in one piece.
    place: Option<Span>,
    /// The received part without framing, if it arrived in chunks.
    decoded: Vec<u8>,
    /// The share of the budget for gathered bodies that `decoded` takes.
    share: Share,
    /// `true` if it is complete.
    pub is_whole: bool,
    /// Length of the received body with its framing, once it is complete.
    pub framed_len: usize,
}

impl GatheredBody {
    /// Returns the whole body, if it is complete. `received` is the message as received.
    pub fn whole<'a>(&'a self, received: &'a [u8]) -> Option<&'a [u8]> {
        let body = match self.place {
            Some(place) => place.of(received),
            None => &self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Returns the whole body mutably, if it is complete.
    pub fn whole_mut<'a>(&'a mut self, received: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let body = match self.place {
            Some(place) => received.get_mut(place.range()).unwrap_or_default(),
            None => &mut self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Notes that the whole body is at `place` of the received bytes.
    pub fn note_whole(&mut self, place: Span) {
        self.place = Some(place);
        self.framed_len = place.len();
        self.is_whole = true;
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
#[derive(Debug)]
pub struct Gathering {
    decoder: BodyDecoder,
    is_chunked: bool,
    /// Offset of the body.
    start: usize,
    /// Number of decoded bytes, with framing.
    used: usize,
    /// Number of decoded bytes, without framing.
    len: usize,
    /// Maximum length without framing.
    max: usize,
    /// Maximum length with framing, plus the bytes in front of the body.
    received_max: usize,
    spans: Vec<Span>,
}

/// The progress of a gathered body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathered {
    /// More is to come.
    Some,
    /// It is complete.
    All,
    /// It is longer than the limit.
    TooMuch,
    /// The budget for gathered bodies is used up.
    NoRoom,
}

impl Gathering {
    /// Starts a body that begins at offset `start` of the received bytes and has at most `max` bytes.
    pub fn new(framing: impl Into<ResponseFraming>, start: usize, max: usize) -> Self {
        let framing = framing.into();
        let mut decoder = BodyDecoder::none();
        decoder.restart(framing);
        // Chunks of one byte each are mostly framing.
        let framed_max = match framing {
            ResponseFraming::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            _ => max.saturating_mul(2),
        };
        Self {
            decoder,
            is_chunked: framing == ResponseFraming::Chunked,
            start,
            used: 0,
            len: 0,
            max,
            // One more byte, so data after the body is noticed.
            received_max: start.saturating_add(framed_max).saturating_add(1),
            spans: Vec::new(),
        }
    }

    /// Decodes the new part of the body in `received`, the message received so far.
    pub fn take(
        &mut self,
        received: &[u8],
        body: &mut GatheredBody,
        budget: &Arc<Budget>,
    ) -> Result<Gathered, BodyError> {
        let bytes = &received[self.start + self.used..];
        self.spans.clear();
        self.used += self.decoder.decode(bytes, &mut self.spans)?;
        let len: usize = self.spans.iter().map(|span| span.len()).sum();
        self.len += len;
        if self.len > self.max || self.used > self.max.saturating_mul(2) {
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

    /// Number of bytes decoded so far, without framing.
    pub const fn content_len(&self) -> usize {
        self.len
    }

    /// Number of bytes decoded so far, with framing.
    pub const fn framed_len(&self) -> usize {
        self.used
    }

    /// Returns `true` if the body is complete when the connection ends here.
    pub fn ends_here(&mut self) -> bool {
        self.decoder.end_of_input().is_ok()
    }

    /// Returns the size that a full buffer must grow to.
    pub fn next_bytes(&self, buffer: &Buffer) -> usize {
        let doubled = (2 * buffer.capacity()).max(FIRST_BYTES);
        let max = self.received_max.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        doubled.min(max).max(buffer.capacity() + PAGE_BYTES)
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
        max: usize,
        cuts: &[usize],
        budget: &Arc<Budget>,
    ) -> (Gathered, GatheredBody, usize) {
        let mut gathering = Gathering::new(framing, start, max);
        let (mut body, mut end) = (GatheredBody::default(), start);
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
    fn only_a_chunked_body_takes_memory_of_the_budget() {
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
        budget.set_max(PAGE_BYTES - 1);
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
            max in 0_usize..700,
            chunked: bool,
            cuts in prop::collection::vec(1_usize..100, 0..40),
        ) {
            let budget = Arc::new(Budget::default());
            let framing =
                if chunked { ResponseFraming::Chunked } else { ResponseFraming::Length(content.len() as u64) };
            let framed = if chunked { in_chunks(&content, len) } else { content.clone() };
            let message = [b"HEAD".to_vec(), framed.clone()].concat();
            let (ended, body, used) = gathered(&message, framing, 4, max, &cuts, &budget);
            if content.len() > max || framed.len() > 2 * max {
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
