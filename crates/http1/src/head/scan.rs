//! Watching a head that has not come in whole, without reading any byte twice.

use memchr::memchr;

use super::{HeadError, HeadLimits, Progress};

/// How far a partial head has been looked through.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Bytes looked through.
    scanned: usize,
    /// Where the line that is not yet complete starts.
    line_start: usize,
    /// Complete lines, the start line among them.
    lines: usize,
}

impl Scan {
    /// Whether nothing was looked through so far.
    pub fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// Looks through the bytes that are new in `buffer`: complete once the empty line that ends the head is there.
    /// What can be refused without the rest is refused: bare line feeds, and every limit.
    pub fn advance(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
        let window = limits.window(buffer);
        if self.scanned > window.len() {
            *self = Self::default(); // not the bytes of the last call: start again
        }
        while let Some(found) = memchr(b'\n', &window[self.scanned..]) {
            let line_feed = self.scanned + found;
            if line_feed == self.line_start || window[line_feed - 1] != b'\r' {
                return Err(HeadError::BareLineFeed);
            }
            if self.end_line(line_feed - 1, limits)? == Progress::Complete {
                return Ok(Progress::Complete);
            }
            self.line_start = line_feed + 1;
            self.scanned = self.line_start;
        }
        self.scanned = window.len();
        // The CR of a line that ends in time may be in already.
        if self.lines == 0 && window.len() - self.line_start > limits.start_line.saturating_add(1) {
            return Err(HeadError::StartLineTooLong);
        }
        if window.len() < buffer.len() || window.len() == limits.head {
            return Err(HeadError::HeadTooLong);
        }
        Ok(Progress::Partial)
    }

    /// Takes in a line that ends before `carriage_return`.
    fn end_line(&mut self, carriage_return: usize, limits: &HeadLimits) -> Result<Progress, HeadError> {
        let len = carriage_return - self.line_start;
        match self.lines {
            // One empty line before the start line is passed over (RFC 9112 §2.2).
            0 if len == 0 && self.line_start == 0 => return Ok(Progress::Partial),
            0 if len == 0 => return Err(HeadError::EmptyLine),
            0 if len > limits.start_line => return Err(HeadError::StartLineTooLong),
            0 => {}
            _ if len == 0 => return Ok(Progress::Complete),
            fields if fields > limits.fields() => return Err(HeadError::TooManyFields),
            _ => {}
        }
        self.lines += 1;
        Ok(Progress::Partial)
    }
}
