//! The coding `deflate`: zlib (RFC 1950), and the raw deflate (RFC 1951) that some servers send instead.

use flate2::{Decompress, FlushDecompress, Status};

use crate::part::Part;
use crate::receiver::{DecodeError, Receiver};

/// Bound of the memory of an inflating state: its window of 32 KiB and its tables.
pub(crate) const STATE_BYTES: usize = 64 << 10;

/// Decodes `deflate`.
#[derive(Default)]
pub(crate) struct Deflate {
    /// The first two bytes, which show the format.
    start: Part,
    inflate: Option<Inflate>,
}

impl Deflate {
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        piece: &mut [u8],
        take: &mut Receiver<'_>,
    ) -> Result<(), DecodeError> {
        let Self { start, inflate } = self;
        let inflate = match inflate {
            Some(inflate) => inflate,
            None if !start.fill(&mut bytes, 2) => return Ok(()),
            none => {
                let is_zlib = matches!(start.0[..], [first, second]
                    if first & 15 == 8 && u16::from_be_bytes([first, second]) % 31 == 0);
                let inflate = none.insert(Inflate::new(is_zlib));
                inflate.push(&start.0, piece, take)?;
                inflate
            }
        };
        inflate.push(bytes, piece, take).map(|_| ())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.inflate.as_ref().map_or(self.start.0.is_empty(), |inflate| inflate.has_ended)
    }
}

/// Inflates one deflate stream.
pub(crate) struct Inflate {
    state: Decompress,
    /// `true` once the end of the stream was reached.
    pub(crate) has_ended: bool,
}

impl Inflate {
    /// Returns the state for a stream in zlib's format, or for a raw one.
    pub(crate) fn new(is_zlib: bool) -> Self {
        Self { state: Decompress::new(is_zlib), has_ended: false }
    }

    /// Inflates `bytes`. Returns those that come after the end of the stream.
    pub(crate) fn push<'b>(
        &mut self,
        mut bytes: &'b [u8],
        piece: &mut [u8],
        take: &mut Receiver<'_>,
    ) -> Result<&'b [u8], DecodeError> {
        while !self.has_ended {
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(bytes, piece, FlushDecompress::None);
            let status = status.map_err(|_| DecodeError::Corrupt)?;
            let read = usize::try_from(self.state.total_in() - read).unwrap_or(usize::MAX);
            let written = usize::try_from(self.state.total_out() - written).unwrap_or(usize::MAX);
            bytes = bytes.get(read..).unwrap_or_default();
            if let Some(piece @ [_, ..]) = piece.get(..written) {
                take(piece)?;
            }
            self.has_ended = status == Status::StreamEnd;
            if written < piece.len() && (bytes.is_empty() || read == 0) {
                break;
            }
        }
        Ok(bytes)
    }
}
