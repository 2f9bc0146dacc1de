//! Egret's own log on standard error: written by one thread for all others.
//!
//! A logging thread enqueues a finished line and continues. A blocked terminal or pipe stops only the
//! writer's thread; lines that find the queue full are counted and dropped.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use egret_json::printable::{is_unprintable, printable, printable_json, push_quoted};
use egret_settings::config::{LogConfig, LogFormat, LogLevel};
use egret_settings::failure::Failure;
use egret_settings::output;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

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
    queue: SyncSender<LogEntry>,
}

enum LogEntry {
    Line(Vec<u8>),
    /// Acknowledged once everything before it is written.
    Flush(SyncSender<()>),
}

impl Logging {
    /// Starts the writer and installs it as the program's log.
    pub fn start(config: LogConfig) -> Result<Self, Failure> {
        let (queue, entries) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let is_json = matches!(config.format, LogFormat::Json);
        let sink = LogSink { queue: queue.clone(), dropped: Arc::clone(&dropped), is_json };
        std::thread::Builder::new()
            .name("egret-log".into())
            .spawn(move || write_lines(&entries, &dropped, &mut io::stderr()))
            .map_err(|error| Failure::Failed(format!("cannot start the log's thread: {error}")))?;
        let (filter, level) = reload::Layer::new(targets(config.level));
        let lines = tracing_subscriber::fmt::layer().with_writer(sink);
        let lines = match config.format {
            LogFormat::Text => {
                let fields = debug_fn(write_field).delimited(" ");
                lines.with_ansi(output::has_colors()).with_target(false).fmt_fields(fields).boxed()
            }
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
        if self.queue.try_send(LogEntry::Flush(written)).is_ok() {
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
    // It warns of what clients do, as often as they do it.
    let of_clients = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::ERROR) };
    Targets::new().with_default(libraries).with_target("h2", of_clients).with_target("egret", level)
}

/// Writes the message or a field of a line of text. Texts of clients and providers cannot end the line, nor
/// be read as other fields: a value that could be is in quotes.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        return writer.write_str(&printable(&text));
    }
    let (name, is_doubtful) = (field.name(), |letter| is_unprintable(letter) || matches!(letter, '"' | '='));
    if writer.has_ansi_escapes() {
        write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
    } else {
        write!(writer, "{name}=")?;
    }
    if is_quoted(&text) || !text.contains(is_doubtful) {
        return writer.write_str(&text);
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(&text, &mut quoted);
    writer.write_str(&quoted)
}

/// Returns `true` if a text is one text in quotes, as `Debug` writes it.
fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return false };
    let mut is_escaped = false;
    for letter in inner.chars() {
        match letter {
            '"' if !is_escaped => return false,
            letter if is_unprintable(letter) => return false,
            letter => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    !is_escaped
}

/// Enqueues lines.
struct LogSink {
    queue: SyncSender<LogEntry>,
    dropped: Arc<AtomicU64>,
    /// `true` if lines are JSON.
    is_json: bool,
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = &'a LogSink;

    fn make_writer(&'a self) -> &'a LogSink {
        self
    }
}

impl Write for &LogSink {
    /// Enqueues a whole line: the formatter writes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let escaped = self.is_json.then(|| printable_json(&String::from_utf8_lossy(line)).into_owned());
        let text = escaped.as_deref().map_or(line, str::as_bytes);
        let mut kept = text[..text.len().min(LINE_BYTES_MAX)].to_vec();
        if kept.len() < text.len() {
            kept.push(b'\n');
        }
        if self.queue.try_send(LogEntry::Line(kept)).is_err() {
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
fn write_lines(entries: &Receiver<LogEntry>, dropped: &AtomicU64, out: &mut dyn Write) {
    let mut batch = Vec::new();
    while let Ok(entry) = entries.recv() {
        let mut next = Some(entry);
        let mut flushed = None;
        while let Some(entry) = next {
            match entry {
                LogEntry::Line(line) => batch.extend_from_slice(&line),
                LogEntry::Flush(done) => flushed = Some(done),
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

    fn queue() -> (LogSink, Receiver<LogEntry>) {
        let (queue, entries) = sync_channel(2);
        (LogSink { queue, dropped: Arc::default(), is_json: false }, entries)
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
        sink.queue.send(LogEntry::Flush(done)).unwrap();
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
    fn a_field_cannot_be_read_as_others() {
        let (sink, entries) = queue();
        let fields = debug_fn(write_field).delimited(" ");
        let lines = tracing_subscriber::fmt::layer().with_writer(sink).without_time().with_target(false);
        let subscriber = tracing_subscriber::registry().with(lines.with_ansi(false).fmt_fields(fields));
        tracing::subscriber::with_default(subscriber, || {
            let hostile = "a\" status=999\n\u{202e}WARN";
            tracing::warn!(host = %hostile, name = "x \"y\"", cause = %"no such file", count = 3, "a message");
        });
        let Ok(LogEntry::Line(line)) = entries.try_recv() else { panic!("no line") };
        assert_eq!(
            String::from_utf8(line).unwrap(),
            " WARN a message host=\"a\\\" status=999\\u000a\\u202eWARN\" name=\"x \\\"y\\\"\" cause=no such file count=3\n"
        );
    }

    #[test]
    fn json_lines_are_printable() {
        let (sink, entries) = queue();
        (&LogSink { is_json: true, ..sink }).write_all("{\"a\":\"\u{9b}\"}\n".as_bytes()).unwrap();
        let Ok(LogEntry::Line(line)) = entries.try_recv() else { panic!("no line") };
        assert_eq!(line, b"{\"a\":\"\\u009b\"}\n");
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
