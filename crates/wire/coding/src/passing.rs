//! Takes the codings off a body that passes through, with a bound on what it may decode to.

use crate::{ContentDecoder, DecodeError, Receiver};

/// A body may decode to this many bytes, and to so many times as many as were received. More is an attack:
/// text of events is coded to a tenth.
const DECODED_BYTES_MIN: u64 = 1 << 20;
const DECODED_RATIO_MAX: u64 = 64;

/// Takes all content codings off a body of any length. It stops at a body that grows too much.
#[derive(Debug)]
pub struct PassingDecoder {
    decoder: ContentDecoder,
    received: u64,
    decoded: u64,
}

impl PassingDecoder {
    /// Returns a decoder for a list of codings, as [`ContentDecoder::of`] does.
    pub fn of(codings: &[u8]) -> Option<Self> {
        ContentDecoder::of(codings).map(|decoder| Self { decoder, received: 0, decoded: 0 })
    }

    /// Decodes the next bytes of the body, and passes what they decode to on to `take`. Fails with
    /// [`DecodeError::Stopped`] at more than 1 MiB and more than 64 times what was received.
    pub fn push(&mut self, bytes: &[u8], take: &mut Receiver<'_>) -> Result<(), DecodeError> {
        let Self { decoder, received, decoded } = self;
        *received += bytes.len() as u64;
        let max = DECODED_BYTES_MIN.max(DECODED_RATIO_MAX.saturating_mul(*received));
        decoder.push(bytes, &mut |piece| {
            *decoded += piece.len() as u64;
            if *decoded > max { Err(DecodeError::Stopped) } else { take(piece) }
        })
    }

    /// Returns an upper bound of the memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
    }
}
