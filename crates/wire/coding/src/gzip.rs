//! The coding `gzip` (RFC 1952): a sequence of members.

use flate2::Crc;

use crate::deflate::Inflate;
use crate::part::Part;
use crate::receiver::{DecodeError, Receiver};

/// Maximum length of a member's header, which may have a file name and a comment.
const HEADER_BYTES_MAX: usize = 4096;

/// Length of a member's trailer: checksum and length of its content.
const TRAILER_BYTES: usize = 8;

const MAGIC: &[u8] = &[0x1f, 0x8b, 8];

/// Decodes `gzip`.
pub(crate) struct Gzip {
    /// The header or the trailer of the member, as far as it has been received.
    frame: Part,
    /// The content of the member, once its header is complete.
    content: Option<Inflate>,
    checksum: Crc,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { frame: Part::default(), content: None, checksum: Crc::new() }
    }
}

impl Gzip {
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        piece: &mut [u8],
        take: &mut Receiver<'_>,
    ) -> Result<(), DecodeError> {
        while !bytes.is_empty() {
            let Self { frame, content, checksum } = self;
            bytes = match content {
                None => {
                    let (before, mut rest) = (frame.0.len(), bytes);
                    let is_full = frame.fill(&mut rest, HEADER_BYTES_MAX);
                    let Some(len) = header_len(&frame.0)? else {
                        return if is_full { Err(DecodeError::Corrupt) } else { Ok(()) };
                    };
                    frame.0.clear();
                    *content = Some(Inflate::new(false));
                    bytes.get(len - before..).unwrap_or_default()
                }
                Some(inflate) if !inflate.has_ended => inflate.push(bytes, piece, &mut |piece| {
                    checksum.update(piece);
                    take(piece)
                })?,
                Some(_) => {
                    if frame.fill(&mut bytes, TRAILER_BYTES) {
                        self.end_member()?;
                    }
                    bytes
                }
            };
        }
        Ok(())
    }

    /// Verifies the trailer, and prepares for another member.
    fn end_member(&mut self) -> Result<(), DecodeError> {
        let expected = [self.checksum.sum().to_le_bytes(), self.checksum.amount().to_le_bytes()].concat();
        if self.frame.0 != expected {
            return Err(DecodeError::Corrupt);
        }
        *self = Self::default();
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.content.is_none() && self.frame.0.is_empty()
    }
}

/// Returns the length of a header that `bytes` begin with, or `None` if it is incomplete.
fn header_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(DecodeError::Corrupt);
    }
    let Some(flags) = bytes.get(3) else { return Ok(None) };
    let (has_checksum, has_extra, has_name, has_comment) =
        (flags & 2 != 0, flags & 4 != 0, flags & 8 != 0, flags & 16 != 0);
    if flags & 0xe0 != 0 {
        return Err(DecodeError::Corrupt);
    }
    let mut len = 10;
    if has_extra {
        let Some(&[low, high]) = bytes.get(len..len + 2) else { return Ok(None) };
        len += 2 + usize::from(u16::from_le_bytes([low, high]));
    }
    for is_there in [has_name, has_comment] {
        if is_there {
            let text = bytes.get(len..).unwrap_or_default();
            let Some(end) = text.iter().position(|byte| *byte == 0) else { return Ok(None) };
            len += end + 1;
        }
    }
    len += if has_checksum { 2 } else { 0 };
    Ok((len <= bytes.len()).then_some(len))
}
