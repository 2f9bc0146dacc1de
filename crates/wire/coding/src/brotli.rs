//! The coding `br` (RFC 7932).

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use crate::receiver::{DecodeError, Receiver};

/// Bound of the memory besides the window: the tables of prefix codes.
const TABLES_BYTES: usize = 128 << 10;

/// The largest window of the format.
const WINDOW_BYTES_MAX: usize = 16 << 20;

/// Decodes `br`.
pub(crate) struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    written: usize,
    has_begun: bool,
    has_ended: bool,
}

impl Default for Brotli {
    fn default() -> Self {
        // Strict: without the windows of up to 1 GiB, which no RFC has.
        let state = BrotliState::new_strict(
            StandardAlloc::default(),
            StandardAlloc::default(),
            StandardAlloc::default(),
        );
        Self { state, written: 0, has_begun: false, has_ended: false }
    }
}

impl Brotli {
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        piece: &mut [u8],
        take: &mut Receiver<'_>,
    ) -> Result<(), DecodeError> {
        self.has_begun |= !bytes.is_empty();
        let (mut left, mut at) = (bytes.len(), 0);
        while !self.has_ended {
            let (mut room, mut len) = (piece.len(), 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut at,
                bytes,
                &mut room,
                &mut len,
                piece,
                &mut self.written,
                &mut self.state,
            );
            if let Some(piece @ [_, ..]) = piece.get(..len) {
                take(piece)?;
            }
            match result {
                BrotliResult::NeedsMoreInput => return Ok(()),
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::ResultSuccess => self.has_ended = true,
                BrotliResult::ResultFailure => return Err(DecodeError::Corrupt),
            }
        }
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.has_ended || !self.has_begun
    }

    /// The window grows with what has been decoded.
    pub(crate) fn held_bytes(&self) -> usize {
        TABLES_BYTES + self.written.saturating_mul(2).min(WINDOW_BYTES_MAX)
    }
}
