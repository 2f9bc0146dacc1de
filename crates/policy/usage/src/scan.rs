//! Reads the usage of one response as it passes.

use std::ops::Range;

use egret_coding::PassingDecoder;
use egret_message::Fields;

use crate::aws_events::AwsEvents;
use crate::fast_path::unread_gaps;
use crate::json::{Json, line};
use crate::record::UsageRecord;
use crate::shape::Shape;
use crate::sse::{Sse, SsePart};
use crate::tally::Tally;

/// Reads the usage of one response as it passes.
#[derive(Debug)]
pub struct UsageScan {
    source: Source,
    scanner: Scanner,
    tally: Tally,
}

/// Origin of the text.
#[derive(Debug)]
enum Source {
    /// The bytes that pass.
    Plain,
    /// The bytes that pass, without their content codings.
    Coded(PassingDecoder),
}

/// Division of the text into documents.
#[derive(Debug)]
enum Scanner {
    /// It is told by the first byte.
    Unknown,
    Sse(Sse, Documents),
    Json(Json),
    /// Each line is a document.
    Lines(Documents),
    Aws(AwsEvents),
    /// There is nothing to read.
    Nothing,
    /// It cannot be read, or no further.
    Unreadable,
}

const _: () = assert!(size_of::<Scanner>() <= 256);

impl UsageScan {
    /// Returns a scan of the response with these fields. Returns `None` if such a response tells no usage:
    /// its media type is none of those that providers answer with, and its fields have no figures.
    pub fn of_response(fields: Fields<'_>) -> Option<Self> {
        let mut tally = Tally::default();
        let is_told = tally.read_fields(fields);
        let scanner = match scanner_of(fields, &tally) {
            Scanner::Nothing if !is_told => return None,
            scanner => scanner,
        };
        if !fields.is_encoded() {
            return Some(Self { source: Source::Plain, scanner, tally });
        }
        let codings: Vec<&[u8]> = fields.all(b"content-encoding").collect();
        Some(match PassingDecoder::of(&codings.join(&b","[..])) {
            Some(decoder) => Self { source: Source::Coded(decoder), scanner, tally },
            None => Self { source: Source::Plain, scanner: Scanner::Unreadable, tally },
        })
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { source, scanner, tally } = self;
        match source {
            _ if matches!(scanner, Scanner::Nothing | Scanner::Unreadable) => {}
            Source::Plain => scanner.push(bytes, tally),
            Source::Coded(decoder) => {
                let pass = &mut |piece: &[u8]| {
                    scanner.push(piece, tally);
                    Ok(())
                };
                if decoder.push(bytes, pass).is_err() {
                    self.give_up();
                }
            }
        }
    }

    /// Reads no more, and frees the memory. The figures so far stay.
    pub fn give_up(&mut self) {
        self.scanner.stop(&mut self.tally);
        self.source = Source::Plain;
    }

    /// Returns an upper bound of the memory in use beside that of the struct, in bytes.
    pub fn held_bytes(&self) -> usize {
        let decoder = match &self.source {
            Source::Coded(decoder) => decoder.held_bytes(),
            Source::Plain => 0,
        };
        let before = if matches!(self.scanner, Scanner::Aws(_)) { size_of::<Tally>() } else { 0 };
        decoder + before
    }

    /// Returns the record of the response. `is_whole` is `true` if its body has come to its end. A body that
    /// breaks off behind the provider's last event counts as whole.
    pub fn finish(mut self, is_whole: bool) -> UsageRecord {
        let is_readable = !matches!(self.scanner, Scanner::Unreadable);
        if let Scanner::Aws(events) = &mut self.scanner {
            events.undo(&mut self.tally);
        }
        self.tally.record(is_whole && is_readable)
    }
}

impl Scanner {
    fn push(&mut self, mut bytes: &[u8], tally: &mut Tally) {
        if let Self::Unknown = self {
            bytes = bytes.trim_ascii_start();
            if let Some(first) = bytes.first() {
                *self = sniffed(*first);
            }
        }
        match self {
            Self::Sse(sse, documents) => documents.push_events(sse, bytes, tally),
            Self::Json(json) => json.push(bytes, tally),
            Self::Lines(documents) => documents.push_lines(bytes, tally),
            Self::Aws(events) => {
                if events.push(bytes, tally).is_err() {
                    *self = Self::Unreadable;
                }
            }
            Self::Unknown | Self::Nothing | Self::Unreadable => {}
        }
    }

    fn stop(&mut self, tally: &mut Tally) {
        if let Self::Aws(events) = self {
            events.undo(tally);
        }
        *self = Self::Unreadable;
    }
}

/// Documents that follow each other. Whole ones that report nothing are not read byte by byte.
#[derive(Debug, Default)]
struct Documents {
    json: Json,
    /// The shape of the last event or line, if its document reported nothing.
    shape: Option<Shape>,
}

impl Documents {
    fn push_events(&mut self, sse: &mut Sse, mut bytes: &[u8], tally: &mut Tally) {
        while self.json.is_between() {
            if sse.is_between()
                && let Some(rest) = self.behind_like(bytes)
            {
                bytes = rest;
                continue;
            }
            let Some((data, rest)) = sse.whole_event(bytes) else { break };
            let event = &bytes[..bytes.len() - rest.len()];
            // Behind the data are the end of its line and the empty line.
            self.push_whole(event, event.len() - 2 - data.len()..event.len() - 2, tally);
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.shape = None;
        }
        sse.push(bytes, &mut |part| match part {
            SsePart::Data(data) => self.json.push(data, tally),
            SsePart::End => self.json.reset(),
        });
    }

    fn push_lines(&mut self, mut bytes: &[u8], tally: &mut Tally) {
        loop {
            if self.json.is_between()
                && let Some(rest) = self.behind_like(bytes)
            {
                bytes = rest;
                continue;
            }
            let (text, Some(rest)) = line(bytes) else { break };
            self.push_whole(&bytes[..bytes.len() - rest.len()], 0..text.len(), tally);
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.shape = None;
        }
        self.json.push(bytes, tally);
    }

    /// Returns the bytes behind an event or a line that differs from the last one in its gaps alone.
    #[inline]
    fn behind_like<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        self.shape.as_ref()?.rest_behind(bytes)
    }

    /// Takes an event or a line, with its document, or the rest of one, at `place`.
    fn push_whole(&mut self, whole: &[u8], place: Range<usize>, tally: &mut Tally) {
        let (first, document) = (place.start, &whole[place]);
        let gaps = if self.json.is_between() { unread_gaps(document, tally) } else { None };
        self.shape = gaps.map(|gaps| Shape::of(whole, &gaps.behind(first)));
        if self.shape.is_none() {
            self.json.push(document, tally);
            self.json.push(b"\n", tally);
            self.json.reset();
        }
    }
}

/// Returns how the body of the response with these fields is read.
fn scanner_of(fields: Fields<'_>, tally: &Tally) -> Scanner {
    let Some(value) = fields.get(b"content-type") else { return Scanner::Unknown };
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match &*media_type.to_ascii_lowercase() {
        b"text/event-stream" => Scanner::Sse(Sse::default(), Documents::default()),
        b"application/vnd.amazon.eventstream" => Scanner::Aws(AwsEvents::new(tally)),
        b"application/x-ndjson"
        | b"application/ndjson"
        | b"application/jsonl"
        | b"application/x-jsonlines"
        | b"application/stream+json" => Scanner::Lines(Documents::default()),
        b"application/json" => Scanner::Json(Json::default()),
        b"" | b"text/plain" => Scanner::Unknown,
        other if other.ends_with(b"+json") => Scanner::Json(Json::default()),
        _ => Scanner::Nothing,
    }
}

/// Returns how a body of no telling media type is read, by its first byte that is no white space.
fn sniffed(first: u8) -> Scanner {
    match first {
        b'{' | b'[' => Scanner::Json(Json::default()),
        b'd' | b'e' | b'i' | b'r' | b':' => Scanner::Sse(Sse::default(), Documents::default()),
        _ => Scanner::Nothing,
    }
}
