//! The body of a received message, which is read framed as its head says: the form in which the gateway
//! receives bodies.
//!
//! These hold at all times:
//!
//! - Bytes in `data` + `taken` ≤ the part of the peer's window that it has used: the window opens again when
//!   the reader asks for more, so a slow receiver slows down the sender.
//! - `chunk_left` ≤ bytes in `data`.

use std::collections::VecDeque;
use std::mem;

use egret_http1::{LAST_CHUNK, chunk_head};

/// Memory for unread bytes that is kept once all are read.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The way in which the body follows the text of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// It has the length that the head says.
    Length,
    /// It is sent in chunks, as the head says.
    Chunked,
    /// Bytes of a tunnel, which end with the stream.
    Tunnel,
}

/// The end of a body.
#[derive(Debug, PartialEq, Eq)]
enum BodyEnd {
    /// It has not arrived.
    Awaited,
    /// It has arrived, with the lines of the trailers.
    Arrived(Vec<u8>),
    /// All of it was read, or is in `around`.
    Read,
}

/// The unread part of a body.
#[derive(Debug)]
pub(crate) struct Body {
    framing: BodyFraming,
    /// Bytes that the peer has sent, which its window covers.
    data: VecDeque<u8>,
    /// Number of bytes of the chunk whose head was read.
    chunk_left: usize,
    /// The framing that is read next.
    around: VecDeque<u8>,
    end: BodyEnd,
    /// Number of bytes that were read and that the peer's window still covers.
    taken: usize,
}

impl Default for Body {
    /// The body of a message whose head has not arrived.
    fn default() -> Self {
        let (data, around) = (VecDeque::new(), VecDeque::new());
        Self { framing: BodyFraming::None, data, chunk_left: 0, around, end: BodyEnd::Awaited, taken: 0 }
    }
}

impl Body {
    /// Begins the body of a message.
    pub fn begin(&mut self, framing: BodyFraming) {
        self.framing = framing;
    }

    /// Returns `true` if the message has a body.
    pub fn is_any(&self) -> bool {
        self.framing != BodyFraming::None
    }

    /// Returns `true` if the body ends with the stream.
    pub fn is_tunnel(&self) -> bool {
        self.framing == BodyFraming::Tunnel
    }

    /// Returns `true` if no byte of the peer is unread.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns `true` if all of it was read.
    pub fn is_read(&self) -> bool {
        self.framing == BodyFraming::None || (self.end == BodyEnd::Read && self.around.is_empty())
    }

    /// Adds bytes that have arrived.
    pub fn push(&mut self, data: &[u8]) {
        debug_assert!(self.is_any() && self.end == BodyEnd::Awaited);
        self.data.extend(data);
    }

    /// Notes the end, with the lines of the trailers.
    pub fn end(&mut self, trailers: Vec<u8>) {
        if self.end == BodyEnd::Awaited {
            self.end = BodyEnd::Arrived(trailers);
        }
    }

    /// Takes the number of bytes that were read since the last call.
    pub fn take_read(&mut self) -> usize {
        mem::take(&mut self.taken)
    }

    /// Number of bytes that the peer's window covers.
    pub fn covered(&self) -> usize {
        self.data.len() + self.taken
    }

    /// Moves as much as there is into `buffer`. Returns the number of bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut count = 0;
        loop {
            count += take(&mut self.around, &mut buffer[count..]);
            if count == buffer.len() {
                break;
            }
            if self.chunk_left > 0 {
                let most = buffer.len().min(count + self.chunk_left);
                let taken = take(&mut self.data, &mut buffer[count..most]);
                self.chunk_left -= taken;
                self.taken += taken;
                count += taken;
                if self.chunk_left == 0 && self.framing == BodyFraming::Chunked {
                    self.around.extend(b"\r\n");
                }
            } else if !self.data.is_empty() {
                self.begin_chunk();
            } else if !self.read_end() {
                break;
            }
        }
        if self.data.is_empty() && self.data.capacity() > KEPT_BYTES_MAX {
            self.data = VecDeque::new();
        }
        count
    }

    /// Makes all that has arrived one chunk.
    fn begin_chunk(&mut self) {
        self.chunk_left = self.data.len();
        if self.framing == BodyFraming::Chunked {
            self.around.extend(chunk_head(self.chunk_left).as_bytes());
        }
    }

    /// Reads the end. Returns `false` if it has not arrived, or was read.
    fn read_end(&mut self) -> bool {
        if !matches!(self.end, BodyEnd::Arrived(_)) {
            return false;
        }
        if let BodyEnd::Arrived(trailers) = mem::replace(&mut self.end, BodyEnd::Read)
            && self.framing == BodyFraming::Chunked
        {
            self.around.extend(LAST_CHUNK);
            self.around.extend(&trailers);
            self.around.extend(b"\r\n");
        }
        true
    }
}

/// Moves bytes from the front of `from`. Returns their number.
fn take(from: &mut VecDeque<u8>, into: &mut [u8]) -> usize {
    let (first, second) = from.as_slices();
    let len = first.len().min(into.len());
    into[..len].copy_from_slice(&first[..len]);
    let more = second.len().min(into.len() - len);
    into[len..len + more].copy_from_slice(&second[..more]);
    if len + more == from.len() {
        from.clear();
    } else {
        from.drain(..len + more);
    }
    len + more
}

#[cfg(test)]
mod tests {
    use egret_http1::{BodyDecoder, RequestFraming};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn body(framing: BodyFraming) -> Body {
        let mut body = Body::default();
        body.begin(framing);
        body
    }

    /// Reads all there is in pieces of `len` bytes.
    fn read_in(body: &mut Body, len: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; len]);
        loop {
            match body.read(&mut buffer) {
                0 => return all,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn data_that_arrives_together_is_one_chunk() {
        let mut body = body(BodyFraming::Chunked);
        body.push(b"ab");
        body.push(b"c");
        assert_eq!(read_in(&mut body, 64), b"3\r\nabc\r\n");
        assert_eq!((body.take_read(), body.take_read(), body.is_read()), (3, 0, false));
        body.end(b"a: 1\r\n".to_vec());
        assert!(!body.is_read());
        assert_eq!(read_in(&mut body, 64), b"0\r\na: 1\r\n\r\n");
        assert!(body.is_read());
    }

    #[test]
    fn other_bodies_are_read_as_they_arrive() {
        for framing in [BodyFraming::Length, BodyFraming::Tunnel] {
            let mut body = body(framing);
            body.push(b"abc");
            body.end(Vec::new());
            assert_eq!((body.covered(), read_in(&mut body, 2)), (3, b"abc".to_vec()));
            assert!(body.is_read());
        }
        assert!(body(BodyFraming::None).is_read());
    }

    proptest! {
        #[test]
        fn chunks_hold_all_bytes_however_they_are_read(
            frames in vec((vec(any::<u8>(), 1..300), 1..40_usize, any::<bool>()), 0..20),
        ) {
            let mut body = body(BodyFraming::Chunked);
            let (mut sent, mut text, mut credit) = (Vec::new(), Vec::new(), 0);
            for (data, len, is_read) in &frames {
                body.push(data);
                sent.extend_from_slice(data);
                let mut buffer = vec![0; *len];
                if *is_read {
                    let count = body.read(&mut buffer);
                    text.extend_from_slice(&buffer[..count]);
                    credit += body.take_read();
                }
                prop_assert_eq!(credit + body.covered(), sent.len());
            }
            body.end(Vec::new());
            text.extend(read_in(&mut body, 7));
            prop_assert_eq!(credit + body.take_read(), sent.len());
            let (mut decoder, mut spans) = (BodyDecoder::from(RequestFraming::Chunked), Vec::new());
            prop_assert_eq!(decoder.decode(&text, &mut spans), Ok(text.len()));
            prop_assert!(decoder.is_done());
            let read: Vec<u8> = spans.iter().flat_map(|span| span.of(&text)).copied().collect();
            prop_assert_eq!(read, sent);
        }
    }
}
