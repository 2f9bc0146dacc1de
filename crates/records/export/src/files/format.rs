//! File formats, and the detection of complete entries in a torn file.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use egret_har::sink::Content;
use serde::de::IgnoredAny;

/// Maximum length of an entry. The gateway never produces longer ones.
pub const ENTRY_BYTES_MAX: usize = 64 << 20;
/// A file format. Each entry is one line and is written together with its line end, so a torn line affects no
/// other.
#[derive(Debug)]
pub struct FileFormat {
    /// Extension of file names.
    pub extension: &'static str,
    /// Text at the beginning of a file.
    pub header: String,
    /// Text before each entry.
    before: &'static str,
    /// Number of bytes of `before` that are left out before the first entry.
    pub first_skips: usize,
    /// Text after each entry.
    after: &'static str,
    /// Text at the end of a file, written again with each batch.
    pub closing: &'static str,
    /// `true` if entries are JSON.
    is_json: bool,
    /// Content of the entries.
    pub content: Content,
}

/// The complete part of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// Offset of the end of the last complete entry.
    pub end: u64,
    /// Number of complete entries.
    pub entries: u64,
}

impl FileFormat {
    /// Returns the format of HAR files.
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

    /// Returns the format with one HAR entry per line.
    pub fn ndjson() -> Self {
        let header = String::new();
        let (before, after, closing) = ("", "\n", "");
        let (is_json, content) = (true, Content::Entries);
        Self { extension: "ndjson", header, before, first_skips: 0, after, closing, is_json, content }
    }

    /// Returns the format with one line of text per entry.
    pub fn lines() -> Self {
        Self { extension: "log", is_json: false, content: Content::Lines, ..Self::ndjson() }
    }

    /// Appends an entry in the form that follows another one. A line break in an entry can only be white
    /// space between values, so it is replaced by a blank.
    pub fn push(&self, entry: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.before.as_bytes());
        let start = out.len();
        out.extend_from_slice(entry);
        for at in memchr::memchr_iter(b'\n', entry) {
            out[start + at] = b' ';
        }
        out.extend_from_slice(self.after.as_bytes());
    }

    /// Returns `true` if a file of this length ends correctly. A file torn by an incomplete write does not.
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

    /// Returns the complete part of a file, or `None` if its beginning is not valid.
    pub fn whole(&self, file: &mut (impl Read + Seek)) -> io::Result<Option<Whole>> {
        file.seek(SeekFrom::Start(0))?;
        let mut lines = Lines { reader: BufReader::with_capacity(1 << 16, file), line: Vec::new(), end: 0 };
        let mut whole = Whole { end: 0, entries: 0 };
        if !self.header.is_empty() {
            lines.next()?;
            // The file may have been written by an Egret of another version.
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

/// Reads the lines of a file one at a time, up to the maximum length of an entry.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Offset of the end of the line.
    end: u64,
}

impl<R: Read> Lines<R> {
    /// Reads the next line. Returns `false` at the end of the file.
    fn next(&mut self) -> io::Result<bool> {
        self.line.clear();
        let limit = ENTRY_BYTES_MAX as u64 + 2;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        self.end += read as u64;
        Ok(read > 0)
    }
}
