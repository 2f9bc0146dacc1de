//! Reads HAR 1.x files: requests and responses for playback and replay.
//!
//! It keeps the parts of an entry that a client or a provider needs to repeat it, and reads no others: a file
//! without cookies or sizes, or with such that are malformed, can still be played back. [`crate::Har`] reads
//! whole files and rejects these. Unknown fields are skipped, as HAR 1.2 requires of a reader.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use egret_clock::rfc3339;
use serde::Deserialize;

use crate::base64;
use crate::har::{ReadError, check_version, without_mark};

/// Maximum size of a file, in bytes: the file is held in memory while it is parsed.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of entries in a file.
pub const ENTRIES_MAX: usize = 100_000;

/// Maximum number of header field lines in a message.
pub const FIELDS_MAX: usize = 256;

/// Maximum size of a message's body, in bytes after decoding.
pub const REPLAYED_BODY_BYTES_MAX: usize = 16 << 20;

/// A request and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedRequest {
    /// The method, as recorded.
    pub method: String,
    /// The absolute URL, as recorded.
    pub url: String,
    /// The request's header field lines, in order, without HTTP/2 pseudo-fields such as `:authority`.
    pub request_fields: Vec<(String, String)>,
    /// The request's content; empty if there was none.
    pub request_body: Vec<u8>,
    /// The response's status code; 0 if the recorder saw no response.
    pub status: u16,
    /// The response's header field lines, in order, without pseudo-fields. They describe the content as it
    /// was sent, possibly compressed; [`ReplayedRequest::response_body`] is decompressed.
    pub response_fields: Vec<(String, String)>,
    /// The response's content, decompressed; empty if it was not recorded.
    pub response_body: Vec<u8>,
    /// Start of the request.
    pub started: SystemTime,
    /// Durations of the phases.
    pub times: PhaseTimes,
}

/// Durations of the phases of an exchange. `None` if a phase did not occur or was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseTimes {
    /// Total duration.
    pub total: Duration,
    /// Time spent waiting for a connection.
    pub blocked: Option<Duration>,
    /// Time to resolve the name.
    pub dns: Option<Duration>,
    /// Time to connect, including the TLS handshake.
    pub connect: Option<Duration>,
    /// Time of the TLS handshake alone.
    pub tls: Option<Duration>,
    /// Time to send the request.
    pub send: Option<Duration>,
    /// Time from the end of the request to the first byte of the response.
    pub wait: Option<Duration>,
    /// Time from the first to the last byte of the response.
    pub receive: Option<Duration>,
}

/// The reason why a file is not accepted as HAR.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// The file exceeds [`FILE_BYTES_MAX`].
    #[error("larger than {} MiB: split it", FILE_BYTES_MAX >> 20)]
    TooLarge,
    /// The content is not HAR 1.x.
    #[error("{0}")]
    Format(#[source] ReadError),
    /// The file has more entries than [`ENTRIES_MAX`].
    #[error("{0} entries, more than {ENTRIES_MAX}: split it")]
    TooManyEntries(usize),
    /// An entry is invalid. Entries are counted from 0, as in `log.entries[0]`.
    #[error("log.entries[{0}]: {1}")]
    Entry(usize, #[source] EntryError),
}

/// A problem in one entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// `startedDateTime` is not a date and time with a zone.
    #[error("startedDateTime {0:?} is not a date and time with a zone (ISO 8601)")]
    Started(String),
    /// A message has more field lines than [`FIELDS_MAX`].
    #[error("a message with more than {FIELDS_MAX} header fields")]
    TooManyFields,
    /// A body is larger than [`REPLAYED_BODY_BYTES_MAX`].
    #[error("a body larger than {} MiB", REPLAYED_BODY_BYTES_MAX >> 20)]
    BodyTooLarge,
    /// A body is declared to be base64 and is not.
    #[error("a body declared as base64 is not base64")]
    NotBase64,
    /// A body has an unknown encoding.
    #[error("a body in the unknown encoding {0:?}")]
    UnknownEncoding(String),
}

/// Reads a file. The entries are returned in the order in which their requests started, whatever their order
/// in the file.
pub fn read(path: &Path) -> Result<Vec<ReplayedRequest>, Error> {
    let file = File::open(path).map_err(Error::Unreadable)?;
    let mut bytes = Vec::new();
    let length = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::Unreadable)?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    parse(&bytes)
}

/// Parses the content of a file; see [`read`].
pub fn parse(bytes: &[u8]) -> Result<Vec<ReplayedRequest>, Error> {
    let ReplayFile { log } = serde_json::from_slice(without_mark(bytes))
        .map_err(|error| Error::Format(ReadError::Malformed(error)))?;
    check_version(&log.version).map_err(Error::Format)?;
    if log.entries.len() > ENTRIES_MAX {
        return Err(Error::TooManyEntries(log.entries.len()));
    }
    let mut entries = log
        .entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| entry.checked().map_err(|error| Error::Entry(index, error)))
        .collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.started);
    Ok(entries)
}

#[derive(Deserialize)]
struct ReplayFile {
    log: ReplayLog,
}

#[derive(Deserialize)]
struct ReplayLog {
    #[serde(default)]
    version: String,
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    started_date_time: String,
    #[serde(default)]
    time: f64,
    request: RawRequest,
    response: RawResponse,
    #[serde(default)]
    timings: RawTimings,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<RawPair>,
    post_data: Option<RawBody>,
}

#[derive(Deserialize)]
struct RawResponse {
    // Recorders write 0 or -1 if there was no response.
    status: i64,
    #[serde(default)]
    headers: Vec<RawPair>,
    #[serde(default)]
    content: RawBody,
}

#[derive(Deserialize)]
struct RawPair {
    name: String,
    #[serde(default)]
    value: String,
}

/// A body: `postData` or `content`, with the fields that HAR 1.3's draft and other producers add to
/// `postData`.
#[derive(Default, Deserialize)]
struct RawBody {
    text: Option<String>,
    #[serde(alias = "_encoding")]
    encoding: Option<String>,
    #[serde(default)]
    params: Vec<RawPair>,
}

#[derive(Default, Deserialize)]
struct RawTimings {
    blocked: Option<f64>,
    dns: Option<f64>,
    connect: Option<f64>,
    ssl: Option<f64>,
    send: Option<f64>,
    wait: Option<f64>,
    receive: Option<f64>,
}

impl RawEntry {
    fn checked(self) -> Result<ReplayedRequest, EntryError> {
        let Some(started) = rfc3339::read(&self.started_date_time) else {
            return Err(EntryError::Started(self.started_date_time));
        };
        Ok(ReplayedRequest {
            method: self.request.method,
            url: self.request.url,
            request_fields: fields(self.request.headers)?,
            request_body: self.request.post_data.unwrap_or_default().decoded()?,
            status: u16::try_from(self.response.status).unwrap_or(0),
            response_fields: fields(self.response.headers)?,
            response_body: self.response.content.decoded()?,
            started,
            times: self.timings.checked(self.time),
        })
    }
}

fn fields(pairs: Vec<RawPair>) -> Result<Vec<(String, String)>, EntryError> {
    if pairs.len() > FIELDS_MAX {
        return Err(EntryError::TooManyFields);
    }
    let fields = pairs.into_iter().filter(|pair| !pair.name.starts_with(':'));
    Ok(fields.map(|pair| (pair.name, pair.value)).collect())
}

impl RawBody {
    fn decoded(self) -> Result<Vec<u8>, EntryError> {
        let bytes = match (self.text, self.encoding.as_deref()) {
            (None, _) => form(&self.params).into_bytes(),
            (Some(text), None | Some("" | "plain" | "utf-8" | "utf8")) => text.into_bytes(),
            (Some(text), Some("base64")) => base64::decode_padded(&text).ok_or(EntryError::NotBase64)?,
            (Some(_), Some(other)) => return Err(EntryError::UnknownEncoding(other.to_owned())),
        };
        if bytes.len() > REPLAYED_BODY_BYTES_MAX { Err(EntryError::BodyTooLarge) } else { Ok(bytes) }
    }
}

/// Encodes parameters as a browser does. HAR contains them either decoded or as they were sent, so bytes that
/// need no escape, and `%` and `+`, are kept.
fn form(params: &[RawPair]) -> String {
    let mut text = String::new();
    for RawPair { name, value } in params {
        text.push_str(if text.is_empty() { "" } else { "&" });
        push_escaped(&mut text, name);
        text.push('=');
        push_escaped(&mut text, value);
    }
    text
}

fn push_escaped(text: &mut String, part: &str) {
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'*' | b'%' | b'+' => {
                text.push(char::from(byte));
            }
            b' ' => text.push('+'),
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

impl RawTimings {
    fn checked(&self, total: f64) -> PhaseTimes {
        PhaseTimes {
            total: duration(Some(total)).unwrap_or_default(),
            blocked: duration(self.blocked),
            dns: duration(self.dns),
            connect: duration(self.connect),
            tls: duration(self.ssl),
            send: duration(self.send),
            wait: duration(self.wait),
            receive: duration(self.receive),
        }
    }
}

/// Converts milliseconds; -1 means that there is no value.
fn duration(millis: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(millis? / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &str) -> String {
        format!(
            r#"{{"log":{{"version":"1.2","creator":{{"name":"t","version":"1"}},"entries":[{entries}]}}}}"#
        )
    }

    fn entry(started: &str, request: &str, response: &str) -> String {
        format!(
            r#"{{"startedDateTime":"{started}","time":12.5,"_extra":1,"cache":{{}},
                "request":{{"method":"POST","url":"http://a.test/x?y=1","httpVersion":"HTTP/1.1","headers":[{{"name":":path","value":"/x"}},{{"name":"X-A","value":"1"}}],{request}"headersSize":-1,"bodySize":-1}},
                "response":{{"status":201,"headers":[{{"name":"Set-Cookie","value":"a=1"}},{{"name":"Set-Cookie","value":"b=2"}}],"content":{{{response}}},"redirectURL":""}},
                "timings":{{"blocked":-1,"send":0.5,"wait":10,"receive":2,"ssl":-1}}}}"#
        )
    }

    #[test]
    fn an_entry_is_read_whole() {
        let text = log(&entry(
            "2026-01-02T03:04:05.250+01:00",
            r#""postData":{"mimeType":"text/plain","text":"hello"},"#,
            r#""size":3,"mimeType":"a/b","text":"AP/+","encoding":"base64""#,
        ));
        let entries = parse(text.as_bytes()).unwrap();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((entry.method.as_str(), entry.url.as_str()), ("POST", "http://a.test/x?y=1"));
        assert_eq!(entry.request_fields, [("X-A".to_owned(), "1".to_owned())]);
        assert_eq!(entry.request_body, b"hello");
        assert_eq!((entry.status, entry.response_fields.len()), (201, 2));
        assert_eq!(entry.response_body, [0, 0xff, 0xfe]);
        assert_eq!(entry.started, SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_319_445_250));
        assert_eq!(entry.times.total, Duration::from_micros(12_500));
        assert_eq!(entry.times.wait, Some(Duration::from_millis(10)));
        assert_eq!((entry.times.blocked, entry.times.tls, entry.times.dns), (None, None, None));
    }

    #[test]
    fn entries_come_in_the_order_of_their_start() {
        let later = entry("2026-01-02T03:04:06Z", "", r#""text":"later""#);
        let sooner = entry("2026-01-02T03:04:05Z", "", r#""text":"sooner""#);
        let entries = parse(format!("\u{feff}{}", log(&format!("{later},{sooner}"))).as_bytes()).unwrap();
        let bodies: Vec<&[u8]> = entries.iter().map(|entry| &entry.response_body[..]).collect();
        assert_eq!(bodies, [b"sooner".as_slice(), b"later"]);
    }

    #[test]
    fn parameters_stand_for_a_form_that_was_not_recorded_as_text() {
        let params = r#""postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"a b","value":"ä&"},{"name":"c"}]},"#;
        let entries = parse(log(&entry("2026-01-02T03:04:05Z", params, "")).as_bytes()).unwrap();
        assert_eq!(entries[0].request_body, b"a+b=%C3%A4%26&c=");
    }

    #[test]
    fn a_malformed_file_is_refused_with_its_place() {
        let told = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert!(told("{\n  \"log\": 1\n}").contains("line 2"));
        assert!(told("not json").contains("not a HAR file"));
        assert!(told(r#"{"log":{"version":"2.0","entries":[]}}"#).contains("\"2.0\""));
        let good = entry("2026-01-02T03:04:05Z", "", "");
        let undated = entry("yesterday", "", "");
        assert!(told(&log(&format!("{good},{undated}"))).starts_with("log.entries[1]: startedDateTime"));
        let broken = entry("2026-01-02T03:04:05Z", "", r#""text":"?","encoding":"base64""#);
        assert!(told(&log(&broken)).contains("base64"));
        let unknown = entry("2026-01-02T03:04:05Z", "", r#""text":"?","encoding":"rot13""#);
        assert!(told(&log(&unknown)).contains("rot13"));
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_unreadable() {
        let error = read(Path::new("/no/such/file.har")).unwrap_err();
        assert!(matches!(error, Error::Unreadable(_)), "{error}");
    }

    #[test]
    fn a_message_beyond_the_limits_is_refused() {
        let pair = || RawPair { name: "a".into(), value: String::new() };
        assert_eq!(fields((0..=FIELDS_MAX).map(|_| pair()).collect()), Err(EntryError::TooManyFields));
        let content = RawBody { text: Some("x".repeat(REPLAYED_BODY_BYTES_MAX + 1)), ..RawBody::default() };
        assert_eq!(content.decoded(), Err(EntryError::BodyTooLarge));
    }
}
