//! Reads the messages of an AWS event stream (`application/vnd.amazon.eventstream`).
//!
//! A message is, in network order: its length, the length of its headers, the CRC-32 of these eight bytes,
//! the headers, the payload, and the CRC-32 of all before. A payload is JSON; that of `InvokeModel` has
//! another document in Base64.

use crc32fast::Hasher;

use crate::base64::Base64;
use crate::json::{Json, Sink};
use crate::names::{Node, Use};
use crate::tally::Tally;

/// Maximum length of a message: AWS allows 16 MiB of payload and 128 KiB of headers.
const MESSAGE_BYTES_MAX: u32 = (16 << 20) + (128 << 10) + OVERHEAD_BYTES;

/// Bytes of a message beside its headers and its payload.
const OVERHEAD_BYTES: u32 = PRELUDE_BYTES + 4;

const PRELUDE_BYTES: u32 = 12;

/// Longest name or value of a header that is looked at.
const HEADER_BYTES_MAX: usize = 16;

const MESSAGE_TYPE: &[u8] = b":message-type";

/// The type of a header's value that is a text.
const TEXT: u8 = 7;

/// This is no event stream, or was changed on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corrupt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePart {
    Prelude,
    NameLength,
    Name,
    ValueType,
    /// The length of a value, of which this is known so far.
    ValueLength,
    Value,
    Payload,
    Checksum,
}

/// The position in an AWS event stream.
#[derive(Debug)]
pub(crate) struct AwsEvents {
    place: FramePart,
    /// Bytes that the place still has.
    left: u32,
    /// Bytes of headers, and then of the payload, that the message still has.
    headers: u32,
    payload: u32,
    crc: Hasher,
    /// The bytes of the place, as far as they are looked at.
    kept: [u8; HEADER_BYTES_MAX],
    kept_len: u8,
    /// `true` if the header is the type of the message.
    is_type: bool,
    json: Json,
    inner: Json,
    base64: Base64,
    /// The figures before this message.
    before: Box<Tally>,
}

impl AwsEvents {
    /// Begins before the first message.
    pub fn new(tally: &Tally) -> Self {
        Self {
            place: FramePart::Prelude,
            left: PRELUDE_BYTES,
            headers: 0,
            payload: 0,
            crc: Hasher::new(),
            kept: [0; HEADER_BYTES_MAX],
            kept_len: 0,
            is_type: false,
            json: Json::default(),
            inner: Json::default(),
            base64: Base64::default(),
            before: Box::new(tally.clone()),
        }
    }

    /// Takes the next bytes of the stream. After an error, the figures are those of the messages before.
    pub fn push(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<(), Corrupt> {
        let result = self.read(bytes, tally);
        if result.is_err() {
            self.undo(tally);
        }
        result
    }

    /// Takes back the figures of a message that has not ended.
    pub fn undo(&mut self, tally: &mut Tally) {
        tally.clone_from(&*self.before);
    }

    fn read(&mut self, mut bytes: &[u8], tally: &mut Tally) -> Result<(), Corrupt> {
        loop {
            if self.left == 0 {
                self.next(tally)?;
                continue;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let len = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (piece, rest) = bytes.split_at(len);
            self.take(piece, tally);
            bytes = rest;
        }
    }

    /// Takes a piece of what the place has.
    fn take(&mut self, piece: &[u8], tally: &mut Tally) {
        let len = u32::try_from(piece.len()).unwrap_or(self.left);
        self.left -= len.min(self.left);
        if self.place != FramePart::Checksum {
            self.crc.update(piece);
        }
        if !matches!(self.place, FramePart::Prelude | FramePart::Payload | FramePart::Checksum) {
            self.headers = self.headers.saturating_sub(len);
        }
        if self.place == FramePart::Payload {
            let Self { json, inner, base64, .. } = self;
            json.push(piece, &mut Outer { tally, inner, base64 });
            return;
        }
        for byte in piece {
            if let Some(place) = self.kept.get_mut(usize::from(self.kept_len)) {
                *place = *byte;
                self.kept_len += 1;
            }
        }
    }

    /// Goes on behind a place that has ended.
    fn next(&mut self, tally: &mut Tally) -> Result<(), Corrupt> {
        let (place, left) = match self.place {
            FramePart::Prelude => {
                self.prelude()?;
                self.header()
            }
            FramePart::NameLength => (FramePart::Name, u32::from(self.kept[0])),
            FramePart::Name => {
                self.is_type = self.kept() == MESSAGE_TYPE;
                (FramePart::ValueType, 1)
            }
            FramePart::ValueType => self.value()?,
            FramePart::ValueLength => {
                (FramePart::Value, u32::from(u16::from_be_bytes([self.kept[0], self.kept[1]])))
            }
            FramePart::Value => {
                if self.is_type && matches!(self.kept(), b"exception" | b"error") {
                    tally.note_error();
                }
                self.header()
            }
            FramePart::Payload => (FramePart::Checksum, 4),
            FramePart::Checksum => {
                self.checksum(tally)?;
                (FramePart::Prelude, PRELUDE_BYTES)
            }
        };
        let is_header = !matches!(place, FramePart::Prelude | FramePart::Payload | FramePart::Checksum);
        if is_header && left > self.headers {
            return Err(Corrupt);
        }
        (self.place, self.left, self.kept_len) = (place, left, 0);
        Ok(())
    }

    fn kept(&self) -> &[u8] {
        self.kept.get(..usize::from(self.kept_len)).unwrap_or_default()
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.kept.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    /// Reads the lengths of a message. They are believed only with the right checksum.
    fn prelude(&mut self) -> Result<(), Corrupt> {
        let (total, headers, checksum) = (self.word(0), self.word(4), self.word(8));
        let mut crc = Hasher::new();
        crc.update(&self.kept[..8]);
        if crc.finalize() != checksum || total > MESSAGE_BYTES_MAX {
            return Err(Corrupt);
        }
        let content = total.checked_sub(OVERHEAD_BYTES).ok_or(Corrupt)?;
        (self.headers, self.payload) = (headers, content.checked_sub(headers).ok_or(Corrupt)?);
        self.json.reset();
        self.inner.reset();
        self.base64 = Base64::default();
        Ok(())
    }

    /// The next header, or the payload.
    fn header(&self) -> (FramePart, u32) {
        if self.headers > 0 { (FramePart::NameLength, 1) } else { (FramePart::Payload, self.payload) }
    }

    /// The value of a header, by its type.
    fn value(&mut self) -> Result<(FramePart, u32), Corrupt> {
        self.is_type &= self.kept[0] == TEXT;
        Ok(match self.kept[0] {
            0 | 1 => (FramePart::Value, 0),
            2 => (FramePart::Value, 1),
            3 => (FramePart::Value, 2),
            4 => (FramePart::Value, 4),
            5 | 8 => (FramePart::Value, 8),
            6 | TEXT => (FramePart::ValueLength, 2),
            9 => (FramePart::Value, 16),
            _ => return Err(Corrupt),
        })
    }

    /// Ends a message: it counts if its checksum is right.
    fn checksum(&mut self, tally: &Tally) -> Result<(), Corrupt> {
        if std::mem::take(&mut self.crc).finalize() != self.word(0) {
            return Err(Corrupt);
        }
        *self.before = tally.clone();
        Ok(())
    }
}

/// Receives what is in a payload, and reads the document within.
struct Outer<'a> {
    tally: &'a mut Tally,
    inner: &'a mut Json,
    base64: &'a mut Base64,
}

impl Sink for Outer<'_> {
    fn number(&mut self, wanted: Use, number: &[u8]) {
        self.tally.number(wanted, number);
    }

    fn text(&mut self, wanted: Use, text: &[u8]) {
        self.tally.text(wanted, text);
    }

    fn flag(&mut self, wanted: Use, first: u8) {
        self.tally.flag(wanted, first);
    }

    fn base64(&mut self, piece: &[u8]) {
        let Self { tally, inner, base64 } = self;
        base64.push(piece, &mut |document| inner.push(document, &mut **tally));
    }

    fn open(&mut self, node: Node) {
        self.tally.open(node);
    }

    fn close(&mut self, parent: Node, node: Node) {
        self.tally.close(parent, node);
    }

    fn end(&mut self) {
        self.tally.end();
    }

    fn done(&mut self) {}
}
