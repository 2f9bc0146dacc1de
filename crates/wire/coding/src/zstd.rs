//! The coding `zstd` (RFC 8878): a sequence of frames, each a sequence of blocks.

use std::io::Read as _;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::part::Part;
use crate::receiver::{DecodeError, Receiver};

/// Maximum size of the window (RFC 9659).
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Maximum length of a block.
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// Bound of the memory besides the window: a block before and after it is decoded, and the tables.
const BLOCKS_BYTES: usize = 4 * BLOCK_BYTES_MAX;

/// Length of a block's header, and of the checksum behind the last block.
const BLOCK_HEADER_BYTES: usize = 3;
const CHECKSUM_BYTES: usize = 4;

/// Decodes `zstd`.
pub(crate) struct Zstd {
    frame: FrameDecoder,
    next: NextPart,
    /// The part that is next, as far as it has been received.
    pending: Part,
}

/// The part of the coded data that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextPart {
    /// The header of a frame.
    Header,
    /// The rest of a frame that has no content, of this length.
    Skipped(usize),
    /// A block of a frame, which ends with a checksum if `is_checked`.
    Block { is_checked: bool },
}

impl Default for Zstd {
    fn default() -> Self {
        Self { frame: FrameDecoder::new(), next: NextPart::Header, pending: Part::default() }
    }
}

impl Zstd {
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        piece: &mut [u8],
        take: &mut Receiver<'_>,
    ) -> Result<(), DecodeError> {
        loop {
            if let NextPart::Skipped(len) = self.next {
                let skipped = len.min(bytes.len());
                bytes = &bytes[skipped..];
                if skipped < len {
                    self.next = NextPart::Skipped(len - skipped);
                    return Ok(());
                }
                self.next = NextPart::Header;
            }
            let needed = self.needed()?;
            if !self.pending.fill(&mut bytes, needed) {
                return Ok(());
            }
            // Now that the first bytes are known, the part may turn out to be longer.
            if self.needed()? <= self.pending.0.len() {
                self.decode(piece, take)?;
                self.pending.0.clear();
            }
        }
    }

    /// Returns the length of the next part, as far as the bytes that have been received tell.
    fn needed(&self) -> Result<usize, DecodeError> {
        match (self.next, &*self.pending.0) {
            (NextPart::Header, header @ [a, b, c, d, descriptor, ..]) => {
                if is_skippable(header) {
                    return Ok(8);
                }
                if [*a, *b, *c, *d] != [0x28, 0xb5, 0x2f, 0xfd] {
                    return Err(DecodeError::Corrupt);
                }
                Ok(header_len(*descriptor))
            }
            (NextPart::Header | NextPart::Skipped(_), _) => Ok(5),
            (NextPart::Block { is_checked }, [a, b, c, ..]) => {
                let size = u32::from_le_bytes([*a, *b, *c, 0]) >> 3;
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let len = match a >> 1 & 3 {
                    // A byte to be repeated.
                    1 => 1,
                    0 | 2 if size <= BLOCK_BYTES_MAX => size,
                    _ => return Err(DecodeError::Corrupt),
                };
                let is_last = a & 1 == 1;
                Ok(BLOCK_HEADER_BYTES + len + if is_last && is_checked { CHECKSUM_BYTES } else { 0 })
            }
            (NextPart::Block { .. }, _) => Ok(BLOCK_HEADER_BYTES),
        }
    }

    /// Decodes the part that has been received.
    fn decode(&mut self, piece: &mut [u8], take: &mut Receiver<'_>) -> Result<(), DecodeError> {
        if self.next == NextPart::Header {
            self.next = match &*self.pending.0 {
                skipped @ [.., a, b, c, d] if is_skippable(skipped) => NextPart::Skipped(
                    usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX),
                ),
                header => {
                    // A new one, since a used one takes the memory for the whole window at once.
                    self.frame = FrameDecoder::new();
                    self.frame.set_max_window_size(WINDOW_BYTES_MAX);
                    self.frame.reset(header).map_err(|_| DecodeError::Corrupt)?;
                    NextPart::Block {
                        is_checked: header.get(4).is_some_and(|descriptor| descriptor & 4 != 0),
                    }
                }
            };
            return Ok(());
        }
        let decoded = self.frame.decode_blocks(&*self.pending.0, BlockDecodingStrategy::UptoBlocks(1));
        decoded.map_err(|_| DecodeError::Corrupt)?;
        loop {
            let len = self.frame.read(piece).map_err(|_| DecodeError::Corrupt)?;
            let Some(piece @ [_, ..]) = piece.get(..len) else { break };
            take(piece)?;
        }
        if self.frame.is_finished() {
            self.next = NextPart::Header;
        }
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next == NextPart::Header && self.pending.0.is_empty()
    }

    /// The window is filled as blocks are decoded; a block of few bytes may decode to many.
    pub(crate) fn held_bytes(&self) -> usize {
        let max = usize::try_from(2 * WINDOW_BYTES_MAX).unwrap_or(usize::MAX);
        BLOCKS_BYTES + self.frame.blocks_decoded().saturating_mul(BLOCK_BYTES_MAX).min(max)
    }
}

/// Returns `true` if a frame begins here that has no content (RFC 8878 §3.1.2).
fn is_skippable(header: &[u8]) -> bool {
    matches!(header, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Returns the length of a frame's header with that descriptor (RFC 8878 §3.1.1.1).
fn header_len(descriptor: u8) -> usize {
    let is_single = descriptor & 0x20 != 0;
    let window = usize::from(!is_single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = [usize::from(is_single), 2, 4, 8][usize::from(descriptor >> 6)];
    5 + window + dictionary + content
}
