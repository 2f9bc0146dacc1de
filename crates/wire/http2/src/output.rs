//! The bytes that a connection is to send, and the data of messages on its way there.
//!
//! These hold at all times:
//!
//! - Data of messages in it ≤ `OUTPUT_BYTES_MAX`, with the heads of its frames.
//! - Answers to frames of the peer in it ≤ `ANSWER_BYTES_MAX`, and one answer: no frame is read beyond that.
//! - Heads of messages in it ≤ one for each stream, once it is longer than `OUTPUT_BYTES_MAX`.

use egret_http1::Span;

use crate::scratch;

/// Number of bytes that wait for the socket before no more data is added: what one call of the system, or of
/// TLS, takes at once.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Number of bytes of answers, about a thousand, that wait for the socket before no more frames are read.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Number of sent bytes at the start that are removed while others wait.
const SENT_BYTES_MAX: usize = 32 << 10;

/// The bytes that wait for the socket.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Number of bytes at the start that were sent.
    sent: usize,
    /// Number of bytes of answers since all was sent.
    answers: usize,
    /// `true` if bytes were added since the task of the connection has looked.
    is_new: bool,
}

impl Output {
    /// Returns the bytes that wait.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Returns `true` if none wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes of data that may be added, with the heads of their frames.
    #[inline]
    pub fn room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.bytes.len() - self.sent)
    }

    /// Returns `true` if so many answers wait that no more frames are to be read.
    #[inline]
    pub fn is_full_of_answers(&self) -> bool {
        self.answers > ANSWER_BYTES_MAX
    }

    /// Returns the place for more bytes.
    #[inline]
    pub fn writer(&mut self) -> &mut Vec<u8> {
        if self.bytes.is_empty() {
            self.begin();
        }
        &mut self.bytes
    }

    fn begin(&mut self) {
        self.is_new = true;
        if self.bytes.capacity() == 0 {
            self.bytes = scratch::take_output();
        }
    }

    /// Adds an answer to a frame of the peer.
    pub fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(self.writer());
        self.answers += self.bytes.len() - before;
    }

    /// Notes that `count` bytes were sent.
    pub fn note_sent(&mut self, count: usize) {
        debug_assert!(count <= self.bytes.len() - self.sent);
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.clear();
        } else if self.sent > SENT_BYTES_MAX {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Removes all bytes, and gives their memory back.
    pub fn clear(&mut self) {
        (self.sent, self.answers, self.is_new) = (0, 0, false);
        scratch::give_output(std::mem::take(&mut self.bytes));
    }

    /// Returns `true` if bytes were added since the last call, and none waited before.
    #[inline]
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }
}

/// Data of a message: parts of a received body.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    first: &'a [u8],
    spans: &'a [Span],
    input: &'a [u8],
}

impl<'a> Data<'a> {
    /// The parts `spans` of `input`.
    pub fn new(spans: &'a [Span], input: &'a [u8]) -> Self {
        Self { first: &[], spans, input }
    }

    /// All `bytes`.
    pub fn whole(bytes: &'a [u8]) -> Self {
        Self { first: bytes, spans: &[], input: &[] }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.first.len() + self.spans.iter().map(|span| span.of(self.input).len()).sum::<usize>()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next bytes, `max` at most. They are empty only behind the end, if `max` is not 0.
    fn take(&mut self, max: usize) -> &'a [u8] {
        while self.first.is_empty() {
            let Some((span, rest)) = self.spans.split_first() else { return &[] };
            (self.first, self.spans) = (span.of(self.input), rest);
        }
        let (taken, rest) = self.first.split_at(max.min(self.first.len()));
        self.first = rest;
        taken
    }

    /// Moves the next `count` bytes to `out`, or fewer if there are fewer.
    pub(crate) fn move_to(&mut self, mut count: usize, out: &mut impl Extend<&'a u8>) {
        while count > 0 {
            let taken = self.take(count);
            if taken.is_empty() {
                return;
            }
            out.extend(taken);
            count -= taken.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_fill_the_output_until_it_is_sent() {
        let mut output = Output::default();
        assert!(!output.take_new() && output.is_empty());
        while !output.is_full_of_answers() {
            output.answer(|out| out.extend([0; 17]));
        }
        assert!(output.take_new() && !output.take_new());
        assert_eq!(output.waiting().len(), ANSWER_BYTES_MAX.next_multiple_of(17));
        output.note_sent(output.waiting().len() - 1);
        assert!(output.is_full_of_answers() && output.waiting() == [0]);
        output.note_sent(1);
        assert!(output.is_empty() && !output.is_full_of_answers());
    }

    #[test]
    fn sent_bytes_leave_room_and_little_memory() {
        let mut output = Output::default();
        for round in 0..100_u8 {
            let room = output.room();
            output.writer().extend(vec![round; room]);
            assert_eq!((output.room(), output.waiting().len()), (0, OUTPUT_BYTES_MAX));
            output.note_sent(1_000);
            assert_eq!(output.room(), 1_000);
            assert!(output.bytes.len() <= OUTPUT_BYTES_MAX + SENT_BYTES_MAX + 1_000);
        }
    }

    proptest! {
        #[test]
        fn data_is_taken_in_order_and_whole(
            spans in vec((0..30_usize, 0..10_usize), 0..10),
            counts in vec(1..20_usize, 1..10),
        ) {
            let input: Vec<u8> = (0..40).collect();
            let spans: Vec<_> = spans.iter().map(|(start, len)| Span::new(*start, start + len)).collect();
            let all: Vec<u8> = spans.iter().flat_map(|span| span.of(&input)).copied().collect();
            let mut data = Data::new(&spans, &input);
            let mut moved: Vec<u8> = Vec::new();
            for count in counts.iter().cycle().take(200) {
                prop_assert_eq!(data.len(), all.len() - moved.len());
                data.move_to(*count, &mut moved);
            }
            prop_assert_eq!(moved, all);
        }
    }
}
