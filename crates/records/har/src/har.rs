//! HAR 1.2 as plain data. Fields that it does not name, those that begin with `_` among them, are kept as they were read.
//!
//! Times are milliseconds, sizes are bytes; -1 says that one is not known or does not apply.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version that is written.
pub const VERSION: &str = "1.2";

/// What [`Timings`] and sizes say where there is nothing to say.
pub const NONE: f64 = -1.0;

/// The fields of an object that HAR 1.2 does not name.
pub type Extra = Map<String, Value>;

/// A HAR file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Har {
    /// The one thing that it holds.
    pub log: Log,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// The version of the format. An empty one means 1.1.
    pub version: String,
    /// The program that recorded it.
    pub creator: Creator,
    /// The browser that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser: Option<Creator>,
    /// The pages to which entries belong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<Vec<Page>>,
    /// The exchanges.
    pub entries: Vec<Entry>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Creator {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A page that a browser loaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// When it began to load, see [`egret_clock::rfc3339`].
    pub started_date_time: String,
    /// By which entries name it; no two pages have the same.
    pub id: String,
    /// Its title.
    pub title: String,
    /// How long it took to load.
    pub page_timings: PageTimings,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How long a page took to load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageTimings {
    /// Until its content was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_content_load: Option<f64>,
    /// Until all of it was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_load: Option<f64>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One request and its response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The page to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pageref: Option<String>,
    /// When the request was started, see [`egret_clock::rfc3339`].
    pub started_date_time: String,
    /// How long it took: [`Timings::total_ms`].
    pub time: f64,
    /// The request.
    pub request: Request,
    /// The response.
    pub response: Response,
    /// What a cache had.
    pub cache: Cache,
    /// How long its phases took.
    pub timings: Timings,
    /// The address that answered, IPv4 or IPv6 without brackets.
    #[serde(rename = "serverIPAddress", skip_serializing_if = "Option::is_none")]
    pub server_ip_address: Option<String>,
    /// By which exchanges on one connection are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its absolute URL, without a fragment.
    pub url: String,
    /// Such as `HTTP/1.1`.
    pub http_version: String,
    /// The cookies in its `Cookie` fields.
    pub cookies: Vec<Cookie>,
    /// Its header fields, in order.
    pub headers: Vec<NameValue>,
    /// The parameters in its URL.
    pub query_string: Vec<NameValue>,
    /// Its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_data: Option<PostData>,
    /// From its first byte through the empty line after the header; -1 where it is not known.
    pub headers_size: i64,
    /// Of its body as it was sent; -1 where it is not known.
    pub body_size: i64,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// Its status; recorders write 0 where there was no response.
    pub status: i64,
    /// Its reason phrase.
    pub status_text: String,
    /// Such as `HTTP/1.1`.
    pub http_version: String,
    /// The cookies in its `Set-Cookie` fields.
    pub cookies: Vec<Cookie>,
    /// Its header fields, in order.
    pub headers: Vec<NameValue>,
    /// Its content.
    pub content: Content,
    /// Its `Location`; empty where it has none.
    #[serde(rename = "redirectURL")]
    pub redirect_url: String,
    /// From its first byte through the empty line after the header; -1 where it is not known.
    pub headers_size: i64,
    /// Of its body as it was received; 0 if it came from a cache, -1 where it is not known.
    pub body_size: i64,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A cookie.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The path for which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The host for which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Until when it is kept, see [`egret_clock::rfc3339`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether scripts cannot see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_only: Option<bool>,
    /// Whether it is only sent over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A header field, or a parameter of a URL.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NameValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The content of a request. HAR 1.2 has no encoding for it; where it is no text, `encoding` or `_encoding` among the other fields
/// says `base64`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PostData {
    /// Its media type.
    pub mime_type: String,
    /// The parameters of a form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Vec<Param>>,
    /// The content as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A parameter of a form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its value, or the content of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The name of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// The media type of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The content of a response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Its length with any compression taken off.
    pub size: i64,
    /// What compression spared; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<i64>,
    /// Its media type.
    pub mime_type: String,
    /// The content, with any compression taken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How `text` is encoded: `base64` where the content is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a cache had, where it is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cache {
    /// Before the request.
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub before_request: Option<Cached>,
    /// After the request.
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub after_request: Option<Cached>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a cache is known to have had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cached {
    /// Nothing, which is written `null`.
    Nothing,
    /// This entry.
    State(Box<CacheState>),
}

/// What is there is known, `null` as well.
fn known<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Cached>, D::Error> {
    Cached::deserialize(deserializer).map(Some)
}

/// An entry of a cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheState {
    /// Until when it is fresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// When it was last used.
    pub last_access: String,
    /// Its entity tag.
    pub e_tag: String,
    /// How often it was used.
    pub hit_count: i64,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How long the phases of an exchange took, in milliseconds. A phase that is absent or -1 did not happen, or was not measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timings {
    /// Waiting for a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<f64>,
    /// Resolving the host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<f64>,
    /// Connecting, `ssl` included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<f64>,
    /// Sending the request.
    pub send: f64,
    /// From there to the first byte of the response.
    pub wait: f64,
    /// From there to its last byte.
    pub receive: f64,
    /// The TLS handshake, which is part of `connect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssl: Option<f64>,
    /// A comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why bytes are not read as HAR.
#[derive(Debug)]
pub enum ReadError {
    /// They are no JSON, or not shaped as HAR is. The message has line and column.
    Malformed(serde_json::Error),
    /// They are of a major version other than 1.
    Version(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a HAR file: {error}"),
            Self::Version(version) => write!(f, "HAR version {version:?} is not known: 1.1 and 1.2 are"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::Version(_) => None,
        }
    }
}

impl Har {
    /// One with nothing recorded yet.
    pub fn new(creator: Creator) -> Self {
        let log = Log {
            version: VERSION.to_owned(),
            creator,
            browser: None,
            pages: None,
            entries: Vec::new(),
            comment: None,
            extra: Extra::new(),
        };
        Self { log, extra: Extra::new() }
    }

    /// Reads a file, which may begin with a byte order mark.
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let har: Self = serde_json::from_slice(without_mark(bytes)).map_err(ReadError::Malformed)?;
        let version = &har.log.version;
        if version.is_empty() || version.split('.').next() == Some("1") {
            return Ok(har);
        }
        Err(ReadError::Version(har.log.version))
    }

    /// Appends the file to `out`.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(out, self)
    }
}

/// Without the byte order mark that a file may begin with.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

impl Timings {
    /// What an entry's `time` has to be: all phases that happened. `ssl` is part of `connect`, and not added again.
    pub fn total_ms(&self) -> f64 {
        let optional = [self.blocked, self.dns, self.connect].into_iter().flatten();
        optional.chain([self.send, self.wait, self.receive]).filter(|ms| *ms > 0.0).sum()
    }
}

impl NameValue {
    /// A field or parameter.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), comment: None, extra: Extra::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn all_that_is_read_is_written_again() {
        let har = Har::read(fixture::FULL.as_bytes()).unwrap();
        let mut written = Vec::new();
        har.write(&mut written).unwrap();
        let before: Value = serde_json::from_str(fixture::FULL).unwrap();
        let after: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        assert!(Har::read(format!("\u{feff}{}", fixture::FULL).as_bytes()).is_ok());
    }

    #[test]
    fn what_is_not_har_1_is_refused() {
        let other = fixture::FULL.replacen("\"1.2\"", "\"2.0\"", 1);
        assert!(matches!(Har::read(other.as_bytes()), Err(ReadError::Version(version)) if version == "2.0"));
        let error = Har::read(br#"{"log": {"version": "1.2"}}"#).unwrap_err();
        assert!(error.to_string().contains("creator"), "{error}");
        assert!(Har::read(fixture::FULL.replacen("\"1.2\"", "\"\"", 1).as_bytes()).is_ok());
    }

    #[test]
    fn ssl_is_not_added_and_what_did_not_happen_is_skipped() {
        let timings = Timings {
            blocked: Some(1.5),
            dns: Some(NONE),
            connect: Some(20.0),
            ssl: Some(12.0),
            send: 0.5,
            wait: 100.0,
            receive: 3.0,
            ..Timings::default()
        };
        assert!((timings.total_ms() - 125.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_known_of_a_cache_is_told_from_known_to_be_nothing() {
        let cache: Cache = serde_json::from_str(r#"{"beforeRequest":null}"#).unwrap();
        assert_eq!(
            (cache.before_request.clone(), cache.after_request.clone()),
            (Some(Cached::Nothing), None)
        );
        assert_eq!(serde_json::to_string(&cache).unwrap(), r#"{"beforeRequest":null}"#);
    }
}
