//! How entries stand in a file, and where a torn one is still whole.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use egret_har::sink::Content;
use serde::de::IgnoredAny;

use super::ENTRY_BYTES_MAX;

/// How entries stand in a file: each on a line, the end of which is written with it, so that a torn line costs no other.
#[derive(Debug)]
pub struct Format {
    /// Of the files' names.
    pub extension: &'static str,
    /// What a file begins with.
    pub header: String,
    /// What stands before an entry.
    before: &'static str,
    /// Bytes of `before` that the first entry goes without.
    pub first_skips: usize,
    /// What stands behind an entry.
    after: &'static str,
    /// What a file ends with, written anew with each batch.
    pub closing: &'static str,
    /// Whether entries are JSON.
    is_json: bool,
    /// What its entries are.
    pub content: Content,
}

/// A file as far as it is whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// Where its last whole entry ends.
    pub end: u64,
    /// Entries up to there.
    pub entries: u64,
}

impl Format {
    /// A HAR file.
    pub fn har(version: &str) -> Self {
        let creator = serde_json::json!({ "name": "Egret", "version": version });
        let har = egret_har::har::VERSION;
        Self {
            extension: "har",
            header: format!("{{\"log\":{{\"version\":\"{har}\",\"creator\":{creator},\"entries\":[\n"),
            before: ",",
            first_skips: 1,
            after: "\n",
            closing: "]}}\n",
            is_json: true,
            content: Content::Entries,
        }
    }

    /// An entry a line and nothing else.
    pub fn ndjson() -> Self {
        let header = String::new();
        let (before, after, closing) = ("", "\n", "");
        let (is_json, content) = (true, Content::Entries);
        Self { extension: "ndjson", header, before, first_skips: 0, after, closing, is_json, content }
    }

    /// A text a line and nothing else.
    pub fn lines() -> Self {
        Self { extension: "log", is_json: false, content: Content::Lines, ..Self::ndjson() }
    }

    /// Appends an entry as it stands behind another one. A line break in it could only be between its values.
    pub fn push(&self, entry: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.before.as_bytes());
        let start = out.len();
        out.extend_from_slice(entry);
        if entry.contains(&b'\n') {
            out[start..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        out.extend_from_slice(self.after.as_bytes());
    }

    /// Whether a file of that length ends as it should; one that a write was torn in does not.
    pub fn is_closed(&self, file: &mut (impl Read + Seek), length: u64) -> io::Result<bool> {
        let tail = if self.closing.is_empty() { self.after } else { self.closing }.as_bytes();
        if length < tail.len() as u64 {
            return Ok(false);
        }
        file.seek(SeekFrom::Start(length - tail.len() as u64))?;
        let mut found = vec![0; tail.len()];
        file.read_exact(&mut found)?;
        Ok(found == tail)
    }

    /// How far a file is whole; nothing where it does not even begin as one does.
    pub fn whole(&self, file: &mut (impl Read + Seek)) -> io::Result<Option<Whole>> {
        file.seek(SeekFrom::Start(0))?;
        let mut lines = Lines { reader: BufReader::with_capacity(1 << 16, file), line: Vec::new(), end: 0 };
        let mut whole = Whole { end: 0, entries: 0 };
        if !self.header.is_empty() {
            lines.next()?;
            // An older Egret may have written another version into it.
            if !lines.line.starts_with(br#"{"log":{"#) || !lines.line.ends_with(b"\"entries\":[\n") {
                return Ok(None);
            }
            whole.end = lines.end;
        }
        while lines.next()? {
            let Some(line) = lines.line.strip_suffix(b"\n") else { break };
            let entry = line.strip_prefix(self.before.as_bytes()).unwrap_or(line);
            let is_object =
                || entry.first() == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(entry).is_ok();
            if self.is_json && !is_object() {
                break;
            }
            whole = Whole { end: lines.end, entries: whole.entries + 1 };
        }
        Ok(Some(whole))
    }
}

/// Lines of a file, one at a time, and none longer than any entry is.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Where the line ends in the file.
    end: u64,
}

impl<R: Read> Lines<R> {
    /// False at the end of the file.
    fn next(&mut self) -> io::Result<bool> {
        self.line.clear();
        let limit = ENTRY_BYTES_MAX as u64 + 2;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        self.end += read as u64;
        Ok(read > 0)
    }
}
