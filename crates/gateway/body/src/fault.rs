//! The fault that a test of the application puts into a body: it breaks off, or passes slowly.

use std::future::Future as _;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::Span;
use egret_net::event_loop::{Alarm, sleep_until};
use egret_remedy::{BodyFault, Cut};

/// Interval at which a slow body checks whether the fault was switched off, and the time that a part of it
/// should take.
const STEP: Duration = Duration::from_millis(50);
/// Time in which what was sent before a cut leaves the gateway.
const FLUSH: Duration = Duration::from_millis(20);
const NANOS: u64 = 1_000_000_000;

/// The body that a fault acts on.
#[derive(Debug, Clone, Copy)]
pub struct FaultedBody {
    /// `true` for an event stream: only that has events.
    pub is_event_stream: bool,
    /// `true` if it is sent in one piece, which cannot be slow.
    pub is_one_piece: bool,
    /// Its beginning.
    pub now: Moment,
}

/// The fault of one body.
#[derive(Debug)]
pub(crate) struct FaultStage {
    fault: Arc<BodyFault>,
    ends_at: Moment,
    /// Number of bytes until the cut; `u64::MAX` if it does not depend on them.
    bytes_left: u64,
    events: Option<Events>,
    /// Bytes per second, if the body passes slowly.
    rate: Option<u64>,
    /// Time at which the next part of a slow body is due.
    due: Moment,
    alarm: Option<Alarm>,
    is_cut: bool,
}

/// The events of an event stream that are still to pass.
#[derive(Debug)]
struct Events {
    left: u64,
    scan: EventEnds,
}

impl FaultStage {
    /// Creates the stage of this body.
    pub fn new(fault: &Arc<BodyFault>, body: FaultedBody) -> Self {
        let FaultedBody { is_event_stream, is_one_piece, now } = body;
        let (bytes_left, events) = match fault.cut {
            Some(Cut::Bytes(bytes)) => (bytes, None),
            Some(Cut::Events(events)) if is_event_stream => {
                (u64::MAX, Some(Events { left: events, scan: EventEnds::default() }))
            }
            Some(Cut::Events(_)) | None => (u64::MAX, None),
        };
        let ends_at = now.after(Some(fault.ends_in));
        let rate = fault.bytes_per_second.filter(|_| !is_one_piece);
        let fault = Arc::clone(fault);
        Self { fault, ends_at, bytes_left, events, rate, due: now, alarm: None, is_cut: false }
    }

    /// Returns `true` if the body has broken off.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn is_over(&self, now: Moment) -> bool {
        !self.fault.is_on() || self.ends_at <= now
    }

    /// Ready with the number of bytes that may pass now.
    pub fn poll_allowance(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<usize> {
        let Some(rate) = self.rate else { return Poll::Ready(usize::MAX) };
        if self.is_over(now) {
            return Poll::Ready(usize::MAX);
        }
        if self.due <= now {
            let part = u128::from(rate) * STEP.as_nanos() / u128::from(NANOS);
            return Poll::Ready(usize::try_from(part).unwrap_or(usize::MAX).max(1));
        }
        self.wait_until(cx, self.due.min(now + STEP))
    }

    /// Ready once what was sent before the cut has had time to leave.
    pub fn poll_cut(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let due = self.due;
        if due <= now { Poll::Ready(()) } else { self.wait_until(cx, due) }
    }

    /// Wakes the task at `at`.
    fn wait_until<T>(&mut self, cx: &mut Context<'_>, at: Moment) -> Poll<T> {
        let alarm = self.alarm.insert(sleep_until(at));
        if Pin::new(alarm).poll(cx).is_ready() {
            // It was due while it was being set.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Cuts the data in `spans` of `input`, and notes when more of it may pass.
    pub fn pass(&mut self, input: &[u8], spans: &mut Vec<Span>, now: Moment) {
        if self.is_cut {
            spans.clear();
            return;
        }
        if self.is_over(now) {
            return;
        }
        let mut passed = 0;
        for number in 0..spans.len() {
            let data = spans[number].of(input);
            let (len, is_cut) = self.uncut(data);
            passed += len as u64;
            if is_cut {
                // A part of a span, whose length fits.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                spans[number].end = spans[number].start.saturating_add(len);
                spans.truncate(number + 1);
                self.is_cut = true;
                break;
            }
        }
        self.is_cut |= self.bytes_left == 0;
        if self.is_cut {
            self.fault.count_cut();
            self.due = now + FLUSH;
        } else if let Some(rate) = self.rate {
            let nanos = u128::from(passed) * u128::from(NANOS) / u128::from(rate.max(1));
            let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.due = self.due.max(now) + time;
        }
    }

    /// Returns how much of `data` passes, and whether the body ends there.
    fn uncut(&mut self, data: &[u8]) -> (usize, bool) {
        if let Some(events) = &mut self.events {
            return events.uncut(data);
        }
        let len = data.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        if self.bytes_left != u64::MAX {
            self.bytes_left -= len as u64;
        }
        (len, self.bytes_left == 0)
    }
}

impl Events {
    fn uncut(&mut self, data: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while self.left > 0 {
            let Some(end) = self.scan.next_end(&data[at..]) else { return (data.len(), false) };
            at += end;
            self.left -= 1;
        }
        (at, true)
    }
}

/// Finds the ends of events in a stream of the HTML standard, section 9.2: the line end of an empty line
/// after a field `data`.
#[derive(Debug, Default)]
struct EventEnds {
    line: EventLine,
    has_data: bool,
    after_cr: bool,
    /// Number of bytes of a byte order mark seen at the start; above 3 once the first other byte was seen.
    mark: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventLine {
    /// It has this number of bytes, all those of `data` so far.
    Start(u8),
    /// A field `data`.
    Data,
    /// Another field, or a comment.
    Other,
}

impl Default for EventLine {
    fn default() -> Self {
        Self::Start(0)
    }
}

impl EventEnds {
    /// Reads up to the end of the next event, and returns the number of bytes up to there. A line feed that
    /// belongs to it, but has not arrived, is the start of what follows.
    fn next_end(&mut self, data: &[u8]) -> Option<usize> {
        for (at, byte) in data.iter().enumerate() {
            if mem::take(&mut self.after_cr) && *byte == b'\n' || self.is_mark(*byte) {
                continue;
            }
            if !matches!(byte, b'\r' | b'\n') {
                self.line = self.line.with(*byte);
                continue;
            }
            self.after_cr = *byte == b'\r';
            let line = mem::take(&mut self.line);
            if line == EventLine::Start(0) {
                if mem::take(&mut self.has_data) {
                    let is_pair = self.after_cr && data.get(at + 1) == Some(&b'\n');
                    self.after_cr &= !is_pair;
                    return Some(at + 1 + usize::from(is_pair));
                }
            } else {
                self.has_data |= matches!(line, EventLine::Data | EventLine::Start(4));
            }
        }
        None
    }

    fn is_mark(&mut self, byte: u8) -> bool {
        let is_mark = b"\xef\xbb\xbf".get(usize::from(self.mark)) == Some(&byte);
        self.mark = if is_mark { self.mark + 1 } else { u8::MAX };
        is_mark
    }
}

impl EventLine {
    fn with(self, byte: u8) -> Self {
        match self {
            Self::Start(4) if byte == b':' => Self::Data,
            Self::Start(len) if b"data".get(usize::from(len)) == Some(&byte) => Self::Start(len + 1),
            Self::Data => Self::Data,
            Self::Start(_) | Self::Other => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes up to the end of each event, however the stream is cut.
    fn ends(stream: &[u8], pieces: usize) -> Vec<usize> {
        let (mut scan, mut found, mut before) = (EventEnds::default(), Vec::new(), 0);
        for piece in stream.chunks(pieces) {
            let mut at = 0;
            while let Some(end) = scan.next_end(&piece[at..]) {
                at += end;
                found.push(before + at);
            }
            before += piece.len();
        }
        found
    }

    #[test]
    fn events_end_at_an_empty_line_after_data() {
        let streams: [(&[u8], &[usize]); 5] = [
            (b"data: a\n\ndata: b\n\n", &[9, 18]),
            (b": wait\n\nid: 1\n\ndata\n\n", &[21]),
            (b"database: a\n\ndata:a\n\n", &[21]),
            (b"\xef\xbb\xbfdata: a\n\n\n\ndata: b\n\n", &[12, 23]),
            (b"data: a\r\rdata: b\r\r", &[9, 18]),
        ];
        for (stream, expected) in streams {
            for pieces in 1..=stream.len() {
                assert_eq!(ends(stream, pieces), expected, "{stream:?} in pieces of {pieces}");
            }
        }
        assert_eq!(ends(b"data: a\r\n\r\ndata: b\r\n\r\n", 22), [11, 22]);
        assert_eq!(ends(b"data: a\r\n\r\ndata: b\r\n\r\n", 1), [10, 21]);
    }
}
