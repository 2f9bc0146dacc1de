//! `type: stdout`: writes lines to standard output on a thread of its own, because writing blocks while a
//! pipe is not read.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use egret_har::sink::{Content, Exported, Sink};

use crate::background;
use crate::counters::{Counters, DropReason, ExporterSnapshot};
use crate::exporter::Exporter;

/// Maximum number of bytes that wait while the output is not read.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Writes lines to standard output.
#[derive(Debug)]
pub struct StdoutExporter {
    shared: Arc<SharedLines>,
}

#[derive(Debug)]
struct SharedLines {
    pending: Mutex<Pending>,
    /// Signals that lines are due, or that the thread should end or has ended.
    changed: Condvar,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    count: u64,
    /// Number of lines being written.
    writing: u64,
    is_due: bool,
    is_closing: bool,
    has_ended: bool,
}

impl StdoutExporter {
    /// Starts the thread, which writes to `out`.
    pub fn open(counters: Counters, out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(SharedLines { pending: Mutex::default(), changed: Condvar::new(), counters });
        let writer = Arc::clone(&shared);
        background::spawn("egret-stdout", move || {
            writer.write(out);
            writer.pending().has_ended = true;
            writer.changed.notify_all();
        })?;
        Ok(Self { shared })
    }
}

impl SharedLines {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let mut pending = self.pending();
            while !pending.is_due && !pending.is_closing {
                pending = self.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
            }
            if pending.count == 0 && pending.is_closing {
                return;
            }
            pending.is_due = false;
            std::mem::swap(&mut pending.lines, &mut batch);
            pending.writing = std::mem::take(&mut pending.count);
            drop(pending);
            let written = out.write_all(&batch).and_then(|()| out.flush());
            let count = std::mem::take(&mut self.pending().writing);
            match written {
                Ok(()) => {
                    self.counters.wrote(count, batch.len() as u64);
                    self.counters.succeeded();
                }
                Err(error) => {
                    // It is unknown how much was read, and there is no other standard output to try.
                    self.counters.dropped(DropReason::Rejected, count);
                    self.counters.failed(format!("cannot write to standard output: {error}"));
                }
            }
            batch.clear();
        }
    }
}

impl Sink for StdoutExporter {
    fn takes(&self, content: Content) -> bool {
        matches!(content, Content::Lines | Content::Entries)
    }

    fn put(&self, exchange: Exported<'_>) {
        let counters = &self.shared.counters;
        counters.put.fetch_add(1, Relaxed);
        let mut pending = self.shared.pending();
        if pending.is_closing {
            return counters.dropped(DropReason::Closed, 1);
        }
        if pending.lines.len() + exchange.entry.len() > PENDING_BYTES_MAX {
            return counters.dropped(DropReason::Full, 1);
        }
        pending.lines.extend(exchange.entry.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        pending.lines.push(b'\n');
        pending.count += 1;
    }

    fn tick(&self) {
        let mut pending = self.shared.pending();
        if pending.count > 0 {
            pending.is_due = true;
            self.shared.changed.notify_all();
        }
    }
}

impl Exporter for StdoutExporter {
    /// If the output is not read until the deadline, the thread is abandoned and its lines are lost.
    fn close(&self, deadline: Instant) {
        let mut pending = self.shared.pending();
        pending.is_closing = true;
        self.shared.changed.notify_all();
        while !pending.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                let lost = std::mem::take(&mut pending.count) + pending.writing;
                pending.lines.clear();
                return self.shared.counters.dropped(DropReason::Closed, lost);
            }
            pending =
                self.shared.changed.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.shared.counters.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;

    use super::*;

    /// Passes what is written to a channel, and blocks until it is received.
    struct Pipe(mpsc::SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn put(exporter: &StdoutExporter, line: &str) {
        exporter.put(Exported { entry: line.as_bytes(), client: None, service_token: "", environment: "" });
    }

    fn open() -> (StdoutExporter, mpsc::Receiver<Vec<u8>>) {
        let (sender, read) = mpsc::sync_channel(0);
        (StdoutExporter::open(Counters::new("out", "stdout"), Pipe(sender)).unwrap(), read)
    }

    #[test]
    fn lines_go_out_whole_and_at_the_end() {
        let (exporter, read) = open();
        put(&exporter, "one");
        put(&exporter, "two\nlines");
        exporter.tick();
        assert_eq!(read.recv().unwrap(), b"one\ntwo lines\n");
        put(&exporter, "three");
        let reader = std::thread::spawn(move || read.recv().unwrap());
        exporter.close(Instant::now() + Duration::from_mins(1));
        assert_eq!(reader.join().unwrap(), b"three\n");
        let snapshot = exporter.snapshot();
        assert_eq!((snapshot.put, snapshot.written, snapshot.written_bytes), (3, 3, 20));
    }

    #[test]
    fn a_stalled_reader_delays_no_exporter() {
        let (exporter, _read) = open();
        let line = "x".repeat(PENDING_BYTES_MAX / 2);
        for _ in 0..3 {
            put(&exporter, &line);
        }
        exporter.tick();
        exporter.close(Instant::now());
        let snapshot = exporter.snapshot();
        assert_eq!((snapshot.put, snapshot.written), (3, 0));
        assert_eq!((snapshot.dropped["full"], snapshot.dropped["closed"]), (2, 1));
    }

    #[test]
    fn an_output_that_is_closed_is_told() {
        let (exporter, read) = open();
        drop(read);
        put(&exporter, "one");
        exporter.close(Instant::now() + Duration::from_mins(1));
        let snapshot = exporter.snapshot();
        assert!(!snapshot.up && snapshot.last_error.is_some(), "{snapshot:?}");
        assert_eq!(snapshot.dropped["rejected"], 1);
    }
}
