//! Egret's own log on standard error: written by one thread for all others.
//!
//! A logging thread enqueues a finished line and continues. A blocked terminal or pipe stops only the
//! writer's thread; lines that find the queue full are counted and dropped.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogConfig, LogFormat, LogLevel};
use crate::failure::Failure;
use crate::output;

/// Capacity of the queue, in lines.
const LINES_MAX: usize = 1024;

/// Maximum length of a line in bytes; longer ones are cut.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of a batch of lines that are written together.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Maximum time that the program waits at exit for the last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The running log. Dropping it waits until all lines so far are written.
pub struct Logging {
    level: reload::Handle<Targets, Registry>,
    queue: SyncSender<Entry>,
}

enum Entry {
    Line(Vec<u8>),
    /// Acknowledged once everything before it is written.
    Flush(SyncSender<()>),
}

impl Logging {
    /// Starts the writer and installs it as the program's log.
    pub fn start(config: LogConfig) -> Result<Self, Failure> {
        let (queue, entries) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let sink = Sink { queue: queue.clone(), dropped: Arc::clone(&dropped) };
        std::thread::Builder::new()
            .name("egret-log".into())
            .spawn(move || write_lines(&entries, &dropped, &mut io::stderr()))
            .map_err(|error| Failure::Failed(format!("cannot start the log's thread: {error}")))?;
        let (filter, level) = reload::Layer::new(targets(config.level));
        let lines = tracing_subscriber::fmt::layer().with_writer(sink);
        let lines = match config.format {
            LogFormat::Text => lines.with_ansi(output::has_colors()).with_target(false).boxed(),
            LogFormat::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
            }
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init()
            .map_err(|error| Failure::Failed(format!("cannot start the log: {error}")))?;
        Ok(Self { level, queue })
    }

    /// Changes the log level.
    pub fn set_level(&self, level: LogLevel) {
        if let Err(error) = self.level.reload(targets(level)) {
            tracing::warn!(%error, "cannot change the log level");
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (written, wait) = sync_channel(1);
        // If the queue is full, nothing reads the lines, so waiting is useless.
        if self.queue.try_send(Entry::Flush(written)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Returns the filter. Libraries log details for their authors: levels below `info` are enabled only at
/// `trace`.
fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let libraries = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::INFO) };
    Targets::new().with_default(libraries).with_target("egret", level)
}

/// Enqueues lines.
struct Sink {
    queue: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = &'a Sink;

    fn make_writer(&'a self) -> &'a Sink {
        self
    }
}

impl Write for &Sink {
    /// Enqueues a whole line: the formatter writes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line[..line.len().min(LINE_BYTES_MAX)].to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        if self.queue.try_send(Entry::Line(kept)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until all senders are dropped. If standard error is closed, lines are lost, because a log
/// must not stop the gateway.
fn write_lines(entries: &Receiver<Entry>, dropped: &AtomicU64, out: &mut dyn Write) {
    let mut batch = Vec::new();
    while let Ok(entry) = entries.recv() {
        let mut next = Some(entry);
        let mut flushed = None;
        while let Some(entry) = next {
            match entry {
                Entry::Line(line) => batch.extend_from_slice(&line),
                Entry::Flush(done) => flushed = Some(done),
            }
            next = if batch.len() < BATCH_BYTES_MAX && flushed.is_none() {
                entries.try_recv().ok()
            } else {
                None
            };
        }
        match dropped.swap(0, Relaxed) {
            0 => {}
            count => batch.extend_from_slice(format!("{count} log lines were dropped here\n").as_bytes()),
        }
        let _ = out.write_all(&batch).and_then(|()| out.flush());
        batch.clear();
        if let Some(done) = flushed {
            let _ = done.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Sink, Receiver<Entry>) {
        let (queue, entries) = sync_channel(2);
        (Sink { queue, dropped: Arc::default() }, entries)
    }

    #[test]
    fn lines_are_written_whole_and_dropped_ones_are_counted() {
        let (sink, entries) = queue();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            (&sink).write_all(line.as_bytes()).unwrap();
        }
        let dropped = Arc::clone(&sink.dropped);
        drop(sink);
        let mut out = Vec::new();
        write_lines(&entries, &dropped, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "one\ntwo\n2 log lines were dropped here\n");
    }

    #[test]
    fn a_flush_is_answered_once_the_lines_before_it_are_written() {
        let (sink, entries) = queue();
        (&sink).write_all(b"one\n").unwrap();
        let (done, wait) = sync_channel(1);
        sink.queue.send(Entry::Flush(done)).unwrap();
        drop(sink);
        let mut out = Vec::new();
        write_lines(&entries, &AtomicU64::new(0), &mut out);
        assert_eq!(out, b"one\n");
        assert!(wait.try_recv().is_ok());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (sink, entries) = queue();
        (&sink).write_all(&vec![b'x'; 1 << 20]).unwrap();
        drop(sink);
        let mut out = Vec::new();
        write_lines(&entries, &AtomicU64::new(0), &mut out);
        assert_eq!(out.len(), LINE_BYTES_MAX + 1);
        assert_eq!(out.last(), Some(&b'\n'));
    }

    #[test]
    fn libraries_are_quiet_unless_everything_is_asked_for() {
        let enabled = |level, target, at| targets(level).would_enable(target, at);
        assert!(enabled(LogLevel::Debug, "egret_gateway::pool", &tracing::Level::DEBUG));
        assert!(!enabled(LogLevel::Debug, "rustls::client", &tracing::Level::DEBUG));
        assert!(enabled(LogLevel::Trace, "rustls::client", &tracing::Level::TRACE));
        assert!(!enabled(LogLevel::Error, "egret", &tracing::Level::WARN));
    }
}
