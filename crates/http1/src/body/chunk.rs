//! The lines around chunks (RFC 9112 §7.1): reading them byte by byte, writing them on the stack.

use super::BodyError;

/// Most bytes of chunk extensions in one body. They are read past, never forwarded (RFC 9112 §7.1.1).
pub const MAX_CHUNK_EXTENSIONS: usize = 1024;

/// The chunk that ends a body. Trailers and an empty line come after it.
pub const LAST_CHUNK: &[u8] = b"0\r\n";

/// Most hexadecimal digits of a size, leading zeros among them.
const MAX_DIGITS: u8 = 16;
/// Largest chunk. Half of what the digits can say, so that no sum of two sizes overflows.
const MAX_CHUNK: u64 = u64::MAX / 2;

/// Reads the line before a chunk: the size, and extensions that are counted and dropped.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct ChunkLine {
    size: u64,
    digits: u8,
    part: Part,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    Extension,
    LineFeed,
}

impl ChunkLine {
    /// Takes in the next byte; the size once the line is complete. `extensions` counts the bytes of all extensions of
    /// the body.
    #[inline]
    pub fn take(&mut self, byte: u8, extensions: &mut usize) -> Result<Option<u64>, BodyError> {
        match (self.part, byte) {
            (Part::Size, b'\r') if self.digits > 0 => self.part = Part::LineFeed,
            (Part::Size, b';') if self.digits > 0 => self.part = Part::Extension,
            (Part::Size, _) => self.take_digit(byte)?,
            (Part::Extension, b'\r') => self.part = Part::LineFeed,
            (Part::Extension, _) => {
                if byte < b' ' || byte == 0x7f {
                    return Err(BodyError::ChunkExtension);
                }
                *extensions += 1;
                if *extensions > MAX_CHUNK_EXTENSIONS {
                    return Err(BodyError::ChunkExtensionsTooLong);
                }
            }
            (Part::LineFeed, b'\n') if self.size <= MAX_CHUNK => return Ok(Some(self.size)),
            (Part::LineFeed, b'\n') => return Err(BodyError::ChunkTooLarge),
            (Part::LineFeed, _) => return Err(BodyError::ChunkSize),
        }
        Ok(None)
    }

    #[inline]
    fn take_digit(&mut self, byte: u8) -> Result<(), BodyError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(BodyError::ChunkSize),
        };
        if self.digits == MAX_DIGITS {
            return Err(BodyError::ChunkSize);
        }
        self.digits += 1;
        self.size = self.size << 4 | u64::from(digit);
        Ok(())
    }
}

/// The line that goes before a chunk, on the stack.
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

/// The line before a chunk of `len` bytes. A `len` of 0 would end the body: see [`LAST_CHUNK`].
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
