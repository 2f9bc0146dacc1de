//! Messages of HTTP/1.1 as the peers read and write them: a second, simple reader beside the gateway's own.

use std::collections::VecDeque;

use egret_clock::mixed;

/// Longest head that a peer reads.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The byte of a body at a place. A body is known by its number.
pub fn byte_at(body: u64, place: u64) -> u8 {
    mixed(body ^ (place / 8).wrapping_mul(0x9e37)).to_le_bytes()
        [usize::try_from(place % 8).unwrap_or_default()]
}

/// The body with this number.
pub fn body(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|place| byte_at(number, place)).collect()
}

/// A head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its first line.
    pub start: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// The head of a response with this status, in another version of HTTP.
    pub fn new(status: u16, fields: Vec<(String, String)>) -> Self {
        Self { start: format!("HTTP/1.1 {status} Some"), fields }
    }

    /// Takes a head from `bytes`, if all of it is there.
    pub fn take(bytes: &mut VecDeque<u8>) -> Result<Option<Self>, String> {
        let text = bytes.make_contiguous();
        let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") else {
            return if text.len() > HEAD_BYTES_MAX {
                Err("a head without an end".to_owned())
            } else {
                Ok(None)
            };
        };
        let text = String::from_utf8(text[..end].to_vec()).map_err(|_| "a head that is no text")?;
        bytes.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let field = |line: &str| {
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("a line without a colon: {line}"))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let fields = lines.map(field).collect::<Result<_, String>>()?;
        Ok(Some(Self { start, fields }))
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The number in a field.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        self.start.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }

    /// Returns `true` if the connection ends with this message.
    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The framing of the body, where there is one.
    pub fn framing(&self, is_response: bool) -> Result<Framing, String> {
        let count = |name: &str| self.fields.iter().filter(|(known, _)| known == name).count();
        if count("content-length") > 1 || count("transfer-encoding") > 1 {
            return Err("a field of the framing twice".to_owned());
        }
        match (self.field("transfer-encoding"), self.field("content-length")) {
            (Some(_), Some(_)) => Err("a length beside chunks".to_owned()),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
            (Some(coding), None) => Err(format!("the unknown coding {coding}")),
            (None, Some(length)) => {
                length.parse().map(Framing::Length).map_err(|_| format!("the bad length {length}"))
            }
            (None, None) if is_response => Ok(Framing::UntilClose),
            (None, None) => Ok(Framing::Length(0)),
        }
    }
}

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this number of bytes.
    Length(u64),
    /// With an empty chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// The part of chunks that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    End,
}

/// Reads a body.
#[derive(Debug)]
pub struct BodyReader {
    framing: Framing,
    chunk: Chunk,
    /// Number of bytes of the body so far.
    pub len: u64,
}

impl BodyReader {
    /// Begins to read a body.
    pub fn new(framing: Framing) -> Self {
        Self { framing, chunk: Chunk::Size, len: 0 }
    }

    /// Returns `true` if all of the body was read. Without a framing it is never known before the connection
    /// ends.
    pub fn is_complete(&self) -> bool {
        match self.framing {
            Framing::Length(length) => self.len == length,
            Framing::Chunked => self.chunk == Chunk::End,
            Framing::UntilClose => false,
        }
    }

    /// Returns `true` if the end of the connection is that of the body.
    pub fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Takes what belongs to the body from `bytes`, and passes each byte with its place to `pass`.
    pub fn take(
        &mut self,
        bytes: &mut VecDeque<u8>,
        mut pass: impl FnMut(u64, u8) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let most = match self.framing {
                Framing::Length(length) => length - self.len,
                Framing::UntilClose => u64::MAX,
                Framing::Chunked => match self.chunk {
                    Chunk::Data(left) => left,
                    Chunk::End => return Ok(()),
                    Chunk::Size | Chunk::DataEnd | Chunk::Trailers => {
                        if !self.take_line(bytes)? {
                            return Ok(());
                        }
                        continue;
                    }
                },
            };
            let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
            for byte in bytes.drain(..count) {
                pass(self.len, byte)?;
                self.len += 1;
            }
            match &mut self.chunk {
                Chunk::Data(left) if self.framing == Framing::Chunked => {
                    *left -= count as u64;
                    if *left > 0 {
                        return Ok(());
                    }
                    self.chunk = Chunk::DataEnd;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Takes a line between the data of chunks. Returns `false` if it has not arrived.
    fn take_line(&mut self, bytes: &mut VecDeque<u8>) -> Result<bool, String> {
        let text = bytes.make_contiguous();
        let Some(end) = text.windows(2).position(|window| window == b"\r\n") else { return Ok(false) };
        let line = String::from_utf8_lossy(&text[..end]).into_owned();
        bytes.drain(..end + 2);
        self.chunk = match self.chunk {
            Chunk::Size => match u64::from_str_radix(&line, 16) {
                Ok(0) => Chunk::Trailers,
                Ok(size) => Chunk::Data(size),
                Err(_) => return Err(format!("the bad size of a chunk {line:?}")),
            },
            Chunk::DataEnd if line.is_empty() => Chunk::Size,
            Chunk::Trailers if line.is_empty() => Chunk::End,
            Chunk::Trailers => Chunk::Trailers,
            Chunk::DataEnd | Chunk::Data(_) | Chunk::End => return Err(format!("{line:?} behind a chunk")),
        };
        Ok(true)
    }
}

/// Writes a body in chunks of at most this size.
pub fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut written = Vec::with_capacity(body.len() + 64);
    for chunk in body.chunks(size.max(1)) {
        written.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        written.extend_from_slice(chunk);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"0\r\n\r\n");
    written
}
