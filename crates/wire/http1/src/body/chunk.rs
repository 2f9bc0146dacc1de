//! Chunk header lines (RFC 9112 §7.1): reads them incrementally and writes them on the stack.

use super::error::BodyError;

/// Maximum bytes of chunk extensions in one body. Extensions are skipped, never forwarded (RFC 9112 §7.1.1).
pub const MAX_CHUNK_EXTENSIONS: usize = 1024;

/// The chunk that ends a body. Trailers and an empty line come after it.
pub const LAST_CHUNK: &[u8] = b"0\r\n";

/// Maximum hexadecimal digits of a size, leading zeros included.
const MAX_DIGITS: u8 = 16;
/// Largest chunk: half of what 16 digits can express, so the sum of two sizes never overflows.
const MAX_CHUNK: u64 = u64::MAX / 2;

/// Reads a chunk header line: keeps the size, counts and drops the extensions.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct ChunkLine {
    size: u64,
    digits: u8,
    part: LinePart,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum LinePart {
    #[default]
    Size,
    Extension,
    LineFeed,
}

impl ChunkLine {
    /// Consumes bytes of `input` up to the end of the line. Returns the number of bytes consumed, and the
    /// size once the line is complete. `extensions` counts the extension bytes of the whole body.
    pub fn consume(
        &mut self,
        input: &[u8],
        extensions: &mut usize,
    ) -> Result<(usize, Option<u64>), BodyError> {
        let mut at = 0;
        if self.part == LinePart::Size {
            at = self.consume_size(input)?;
        }
        if self.part == LinePart::Extension {
            at += self.consume_extension(&input[at..], extensions)?;
        }
        match (self.part, input.get(at)) {
            (LinePart::LineFeed, Some(b'\n')) if self.size > MAX_CHUNK => Err(BodyError::ChunkTooLarge),
            (LinePart::LineFeed, Some(b'\n')) => Ok((at + 1, Some(self.size))),
            (LinePart::LineFeed, Some(_)) => Err(BodyError::ChunkSize),
            (_, _) => Ok((at, None)),
        }
    }

    /// Consumes digits and the byte after them.
    #[inline]
    fn consume_size(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        for (at, &byte) in input.iter().enumerate() {
            match char::from(byte).to_digit(16) {
                Some(digit) if self.digits < MAX_DIGITS => {
                    self.digits += 1;
                    self.size = self.size << 4 | u64::from(digit);
                }
                None if self.digits > 0 && (byte == b'\r' || byte == b';') => {
                    self.part = if byte == b'\r' { LinePart::LineFeed } else { LinePart::Extension };
                    return Ok(at + 1);
                }
                _ => return Err(BodyError::ChunkSize),
            }
        }
        Ok(input.len())
    }

    /// Consumes an extension and the CR after it.
    fn consume_extension(&mut self, input: &[u8], extensions: &mut usize) -> Result<usize, BodyError> {
        for (at, &byte) in input.iter().enumerate() {
            if byte == b'\r' {
                self.part = LinePart::LineFeed;
                return Ok(at + 1);
            }
            if byte.is_ascii_control() {
                return Err(BodyError::ChunkExtension);
            }
            *extensions += 1;
            if *extensions > MAX_CHUNK_EXTENSIONS {
                return Err(BodyError::ChunkExtensionsTooLong);
            }
        }
        Ok(input.len())
    }
}

/// A chunk header line, on the stack.
#[derive(Copy, Clone, Debug)]
pub struct ChunkHead {
    /// Filled from the end.
    bytes: [u8; 18],
    start: u8,
}

impl ChunkHead {
    /// The line with its CRLF, such as `1a2b\r\n`.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Returns the header line of a chunk of `len` bytes. A `len` of 0 would end the body: see [`LAST_CHUNK`].
pub fn chunk_head(len: usize) -> ChunkHead {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let mut head = ChunkHead { bytes: *b"0000000000000000\r\n", start: 16 };
    let mut rest = len;
    while rest > 0 {
        head.start -= 1;
        head.bytes[usize::from(head.start)] = b"0123456789abcdef"[rest & 0xf];
        rest >>= 4;
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_lower_case_hexadecimal_without_leading_zeros() {
        let rows = [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0x1a2b, "1a2b\r\n"), (65536, "10000\r\n")];
        for (len, expected) in rows {
            assert_eq!(chunk_head(len).as_bytes(), expected.as_bytes());
        }
        assert_eq!(chunk_head(usize::MAX).as_bytes(), format!("{:x}\r\n", usize::MAX).as_bytes());
    }
}
