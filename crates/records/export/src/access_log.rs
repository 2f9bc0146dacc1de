//! The access log: one line for every finished exchange, formatted by the worker and written by a thread.
//!
//! A log that cannot keep up drops lines and counts them; it never delays an exchange. Queries are left out,
//! because many APIs carry keys there.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use egret_clock::rfc3339;
use egret_files::{is_symbolic_link, private_file};
use egret_json::printable::{printable_json, push_quoted, push_value};
use egret_message::ClientAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};
use tracing::warn;

/// Maximum number of lines that wait to be written.
const QUEUE_LINES: usize = 16_384;
/// The kernel's own names of open files. They are symbolic links that only the kernel creates.
const OPEN_FILES: [&str; 3] = ["/dev/stdout", "/dev/stderr", "/dev/fd"];
const OFF: u8 = 0;
const TEXT: u8 = 1;
const JSON: u8 = 2;

/// One line for every finished exchange, written by a separate thread.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// The destination of the lines: `off`, `stdout`, or the path of a file to append to.
    pub output: AccessLogOutput,
    /// The format of a line.
    pub format: AccessLogFormat,
}

/// The destination of access-log lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogOutput {
    /// No log, at no cost.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file to append to. A reload opens it again, so it can be rotated.
    File(PathBuf),
}

impl<'de> Deserialize<'de> for AccessLogOutput {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "off" => Self::Off,
            "stdout" => Self::Stdout,
            path => Self::File(path.into()),
        })
    }
}

impl Serialize for AccessLogOutput {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Stdout => serializer.serialize_str("stdout"),
            Self::File(path) => path.serialize(serializer),
        }
    }
}

impl JsonSchema for AccessLogOutput {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AccessLogOutput".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "`off`, `stdout` or the path of a file." })
    }
}

/// The format of an access-log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One line of `key=value` pairs.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The fields of a line.
#[derive(Debug, Default)]
pub struct LogLine<'a> {
    /// The client's address, or `None` if the kernel does not know it.
    pub client: Option<ClientAddress>,
    /// The configured name, `-` for other hosts, or empty if the request could not be parsed.
    pub provider: &'a str,
    /// The provider's host, with the port if it is not the default one. Empty if none was found.
    pub host: &'a [u8],
    /// The name that the client gives itself.
    pub consumer: Option<&'a [u8]>,
    /// The id of the request.
    pub request_id: Option<&'a str>,
    /// The received method.
    pub method: &'a [u8],
    /// The received target. Its query is left out of the line.
    pub target: &'a [u8],
    /// The status code, or 0 if the client disconnected before there was one.
    pub status: u16,
    /// Time from the first byte of the request to the last byte of the response.
    pub duration: Duration,
    /// The part of the duration spent in the gateway.
    pub footprint: Duration,
    /// Number of bytes sent to the client.
    pub sent_bytes: u64,
    /// Number of bytes sent to the provider, heads and repeated calls included.
    pub upstream_sent_bytes: u64,
    /// Number of bytes received from the provider, heads and failed calls included.
    pub upstream_received_bytes: u64,
    /// The slug of the error that the gateway responded with.
    pub error: Option<&'static str>,
    /// The name of the status of a gRPC call.
    pub grpc_status: Option<&'static str>,
    /// Time until the client closed the connection, if it did before the response was complete.
    pub client_closed: Option<Duration>,
    /// `true` if the request came out of a tunnel that the gateway intercepts.
    pub is_intercepted: bool,
}

/// The workers' end of the log.
#[derive(Debug)]
pub struct AccessLog {
    state: AtomicU8,
    queue: SyncSender<AccessLogEntry>,
}

#[derive(Debug)]
enum AccessLogEntry {
    Line(String),
    Reopen(AccessLogOutput),
}

impl AccessLog {
    /// Opens the output and starts the thread that writes to it.
    pub fn start(config: &AccessLogConfig) -> io::Result<Self> {
        let mut output = open(&config.output)?;
        let (queue, entries) = sync_channel(QUEUE_LINES);
        std::thread::Builder::new()
            .name("egret-access".to_owned())
            .spawn(move || write_all(&entries, &mut *output))?;
        Ok(Self { state: AtomicU8::new(state(config)), queue })
    }

    /// Applies a new config. A file is opened again, so it can be rotated.
    pub fn reconfigure(&self, config: &AccessLogConfig) -> io::Result<()> {
        // If it cannot be opened, the old one stays in use.
        drop(open(&config.output)?);
        // Does not wait: a log that hangs must not block the reload.
        if self.queue.try_send(AccessLogEntry::Reopen(config.output.clone())).is_ok() {
            self.state.store(state(config), Relaxed);
        }
        Ok(())
    }

    /// Queues a line if the log is on. Returns `false` if it does not fit: then the line is dropped.
    pub fn write_if_on<'a>(&self, line: impl FnOnce() -> LogLine<'a>) -> bool {
        let line = match self.state.load(Relaxed) {
            OFF => return true,
            JSON => line().json(),
            _ => line().text(),
        };
        self.queue.try_send(AccessLogEntry::Line(line)).is_ok()
    }
}

fn state(config: &AccessLogConfig) -> u8 {
    match (&config.output, config.format) {
        (AccessLogOutput::Off, _) => OFF,
        (_, AccessLogFormat::Text) => TEXT,
        (_, AccessLogFormat::Json) => JSON,
    }
}

fn open(output: &AccessLogOutput) -> io::Result<Box<dyn Write + Send>> {
    Ok(match output {
        AccessLogOutput::Off => Box::new(io::sink()),
        AccessLogOutput::Stdout => Box::new(io::stdout()),
        AccessLogOutput::File(path) => Box::new(open_file(path)?),
    })
}

/// Opens the file. A new file is readable by its owner alone, because paths may contain keys.
fn open_file(path: &Path) -> io::Result<File> {
    if OPEN_FILES.iter().any(|own| path.starts_with(own)) {
        return File::options().append(true).open(path);
    }
    private_file().append(true).create(true).open(path).map_err(|error| {
        if is_symbolic_link(&error) {
            io::Error::new(error.kind(), "it is a symbolic link: give the path of the file itself")
        } else {
            error
        }
    })
}

fn write_all(entries: &Receiver<AccessLogEntry>, first: &mut (dyn Write + Send)) {
    let mut reopened: Option<Box<dyn Write + Send>> = None;
    let mut pending = String::new();
    while let Ok(entry) = entries.recv() {
        // All waiting lines are written at once.
        let mut next = Some(entry);
        while let Some(entry) = next {
            match entry {
                AccessLogEntry::Line(line) => pending.push_str(&line),
                AccessLogEntry::Reopen(output) => match open(&output) {
                    Ok(opened) => {
                        flush(&mut pending, reopened.as_deref_mut().unwrap_or(first));
                        reopened = Some(opened);
                    }
                    Err(error) => warn!(%error, "cannot reopen the access log"),
                },
            }
            next = if pending.len() < 64 * 1024 { entries.try_recv().ok() } else { None };
        }
        flush(&mut pending, reopened.as_deref_mut().unwrap_or(first));
    }
}

fn flush(pending: &mut String, output: &mut (dyn Write + Send)) {
    if let Err(error) = output.write_all(pending.as_bytes()).and_then(|()| output.flush()) {
        warn!(%error, "cannot write the access log");
    }
    pending.clear();
}

impl LogLine<'_> {
    /// Returns the target without its query. The strict parser accepts only visible ASCII.
    fn path(&self) -> String {
        let end = self.target.iter().position(|byte| *byte == b'?').unwrap_or(self.target.len());
        String::from_utf8_lossy(&self.target[..end]).into_owned()
    }

    fn method(&self) -> String {
        String::from_utf8_lossy(self.method).into_owned()
    }

    fn host(&self) -> String {
        String::from_utf8_lossy(self.host).into_owned()
    }

    fn consumer(&self) -> Option<String> {
        self.consumer.map(|consumer| String::from_utf8_lossy(consumer).into_owned())
    }

    fn text(&self) -> String {
        let mut line = format!("time={}", rfc3339::write(SystemTime::now()));
        // Writing to a `String` cannot fail.
        if let Some(client) = self.client {
            let _ = write!(line, " client={client}");
        }
        // Clients choose these, and may put quotation marks, spaces and `=` into them.
        let pair = |line: &mut String, key: &str, value: &str| {
            line.extend([" ", key, "="]);
            push_value(value, line);
        };
        if let Some(id) = self.request_id {
            pair(&mut line, "request_id", id);
        }
        if let Some(consumer) = self.consumer() {
            line.push_str(" consumer=");
            push_quoted(&consumer, &mut line);
        }
        for (key, value) in [
            ("provider", self.provider),
            ("host", &self.host()),
            ("method", &self.method()),
            ("path", &self.path()),
        ] {
            pair(&mut line, key, or_dash(value));
        }
        let _ = write!(
            line,
            " status={} duration_us={} footprint_us={} sent_bytes={} upstream_sent_bytes={} \
             upstream_received_bytes={}",
            self.status,
            self.duration.as_micros(),
            self.footprint.as_micros(),
            self.sent_bytes,
            self.upstream_sent_bytes,
            self.upstream_received_bytes,
        );
        if let Some(error) = self.error {
            let _ = write!(line, " error={error}");
        }
        if let Some(status) = self.grpc_status {
            let _ = write!(line, " grpc_status={status}");
        }
        if let Some(closed) = self.client_closed {
            let _ = write!(line, " client_closed_us={}", closed.as_micros());
        }
        if self.is_intercepted {
            line.push_str(" intercepted=true");
        }
        line.push('\n');
        line
    }

    fn json(&self) -> String {
        let mut line = serde_json::json!({
            "time": rfc3339::write(SystemTime::now()),
            "client": self.client,
            "request_id": self.request_id,
            "consumer": self.consumer(),
            "provider": self.provider,
            "host": self.host(),
            "method": self.method(),
            "path": self.path(),
            "status": self.status,
            "duration_us": u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
            "footprint_us": u64::try_from(self.footprint.as_micros()).unwrap_or(u64::MAX),
            "sent_bytes": self.sent_bytes,
            "upstream_sent_bytes": self.upstream_sent_bytes,
            "upstream_received_bytes": self.upstream_received_bytes,
            "error": self.error,
            "client_closed_us": self.client_closed.map(|closed| u64::try_from(closed.as_micros()).unwrap_or(u64::MAX)),
            "intercepted": self.is_intercepted,
        });
        if let Some(status) = self.grpc_status {
            line["grpc_status"] = status.into();
        }
        let mut line = printable_json(&line.to_string()).into_owned();
        line.push('\n');
        line
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> LogLine<'static> {
        LogLine {
            client: "127.0.0.1:50000".parse().ok().map(ClientAddress::Internet),
            provider: "stripe",
            host: b"api.stripe.com",
            consumer: Some(b"web \"shop\""),
            request_id: Some("req-1"),
            method: b"GET",
            target: b"/v1/charges?key=sk_live_1",
            status: 200,
            duration: Duration::from_micros(1500),
            footprint: Duration::from_micros(40),
            sent_bytes: 312,
            upstream_sent_bytes: 140,
            upstream_received_bytes: 250,
            error: None,
            grpc_status: None,
            client_closed: None,
            is_intercepted: false,
        }
    }

    #[test]
    fn a_line_says_whether_its_request_was_intercepted() {
        let line = LogLine { is_intercepted: true, ..sample() };
        assert!(line.text().ends_with(" intercepted=true\n") && !sample().text().contains("intercepted"));
        let value: serde_json::Value = serde_json::from_str(&line.json()).unwrap();
        assert_eq!(value["intercepted"], true);
    }

    #[test]
    fn a_line_has_the_status_of_a_grpc_call_alone() {
        let line = LogLine { grpc_status: Some("unavailable"), ..sample() };
        assert!(line.text().ends_with(" grpc_status=unavailable\n") && !sample().text().contains("grpc"));
        let value: serde_json::Value = serde_json::from_str(&line.json()).unwrap();
        assert_eq!(value["grpc_status"], "unavailable");
        assert!(!sample().json().contains("grpc"));
    }

    #[test]
    fn a_text_line_leaves_the_query_out() {
        let line = sample().text();
        let (_, rest) = line.split_once(' ').unwrap();
        assert_eq!(
            rest,
            "client=127.0.0.1:50000 request_id=req-1 consumer=\"web \\\"shop\\\"\" provider=stripe \
             host=api.stripe.com method=GET path=/v1/charges status=200 duration_us=1500 footprint_us=40 \
             sent_bytes=312 upstream_sent_bytes=140 upstream_received_bytes=250\n"
        );
    }

    /// Returns the pairs of a line, as a strict reader of logfmt does: a value is in quotes, escaped as in
    /// JSON, or has no quotes, white space or `=`.
    fn pairs(line: &str) -> Vec<(String, String)> {
        let mut rest = line.strip_suffix('\n').unwrap();
        let mut pairs = Vec::new();
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=').unwrap();
            assert!(
                !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{key:?}"
            );
            let (value, after) = if value.starts_with('"') {
                let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
                let text = values.next().unwrap().unwrap();
                (text, &value[values.byte_offset()..])
            } else {
                let (text, after) = value.split_at(value.find(' ').unwrap_or(value.len()));
                assert!(
                    text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'='),
                    "{text:?}"
                );
                (text.to_owned(), after)
            };
            pairs.push((key.to_owned(), value));
            assert!(after.is_empty() || after.starts_with(' '), "{after:?}");
            rest = after.strip_prefix(' ').unwrap_or(after);
        }
        pairs
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_back_from_its_own_field(
            id in ".{0,20}", consumer in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20),
            host in "[ -~]{1,20}", method in "[!-~]{1,10}", path in "/[!->@-~]{0,20}",
        ) {
            let line = LogLine {
                request_id: Some(&id), consumer: Some(&consumer), host: host.as_bytes(), method: method.as_bytes(),
                target: path.as_bytes(), ..sample()
            };
            let text = line.text();
            let read = pairs(&text);
            let names: Vec<&str> = read.iter().map(|(name, _)| &**name).collect();
            proptest::prop_assert_eq!(&names[1..9], ["client", "request_id", "consumer", "provider", "host", "method", "path", "status"]);
            let value = |name: &str| &read.iter().find(|(known, _)| known == name).unwrap().1;
            let consumer = String::from_utf8_lossy(&consumer);
            for (name, expected) in [("request_id", &*id), ("consumer", &consumer), ("host", &host), ("method", &method),
                ("path", &path), ("status", "200")] {
                proptest::prop_assert_eq!(value(name), expected, "{}", &text);
            }
            proptest::prop_assert!(!text.trim_end_matches('\n').chars().any(egret_json::printable::is_unprintable));
        }
    }

    #[test]
    fn a_json_line_is_one_object_and_leaves_the_query_out() {
        let line = sample().json();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["path"], &value["status"]), (&"/v1/charges".into(), &200.into()));
        assert_eq!((&value["host"], &value["request_id"]), (&"api.stripe.com".into(), &"req-1".into()));
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains("sk_live"));
    }

    #[test]
    fn a_moment_prints_as_rfc_3339() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_042);
        assert_eq!(rfc3339::write(time), "1994-11-06T08:49:37.042Z");
    }
}
