//! HAR 1.2 as plain data. Fields that HAR 1.2 does not define, such as custom ones that begin with `_`, are
//! kept.
//!
//! Times are in milliseconds and sizes in bytes; -1 means that one is unknown or does not apply.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// HAR version of the files that are written.
pub const VERSION: &str = "1.2";

/// Value of [`Timings`] and sizes that are unknown or do not apply.
pub const NONE: f64 = -1.0;

/// Fields of an object that HAR 1.2 does not define.
pub type Extra = Map<String, Value>;

/// A HAR file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Har {
    /// The only field that HAR 1.2 defines at the top level.
    pub log: Log,
    /// Other fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Defines objects of HAR. Each has a comment and its other fields besides its own. An `Option` is not
/// written while it is `None`.
macro_rules! objects {
    ($($(#[$of_struct:meta])* pub struct $name:ident { $($fields:tt)* })+) => {
        $(objects! { @fields { $(#[$of_struct])* pub struct $name } {} $($fields)* })+
    };
    (
        @fields $item:tt { $($fields:tt)* }
        $(#[$of_field:meta])* pub $field:ident: Option<$type:ty>, $($rest:tt)*
    ) => {
        objects! {
            @fields $item
            {
                $($fields)*
                $(#[$of_field])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,
            }
            $($rest)*
        }
    };
    (@fields $item:tt { $($fields:tt)* } $(#[$of_field:meta])* pub $field:ident: $type:ty, $($rest:tt)*) => {
        objects! { @fields $item { $($fields)* $(#[$of_field])* pub $field: $type, } $($rest)* }
    };
    (@fields { $(#[$of_struct:meta])* pub struct $name:ident } { $($fields:tt)* }) => {
        $(#[$of_struct])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// A comment.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub comment: Option<String>,
            /// Other fields.
            #[serde(flatten)]
            pub extra: Extra,
        }
    };
}

objects! {
    /// The recording itself.
    pub struct Log {
        /// Version of the format. An empty version means 1.1.
        pub version: String,
        /// The program that recorded it.
        pub creator: Creator,
        /// The recorded browser.
        pub browser: Option<Creator>,
        /// Pages that entries belong to.
        pub pages: Option<Vec<Page>>,
        /// The exchanges.
        pub entries: Vec<HarEntry>,
    }

    /// Name and version of a program.
    pub struct Creator {
        /// Name of the program.
        pub name: String,
        /// Version of the program.
        pub version: String,
    }

    /// A page that a browser loaded.
    pub struct Page {
        /// Time at which it began to load, see [`egret_clock::rfc3339`].
        pub started_date_time: String,
        /// Unique id, which entries refer to.
        pub id: String,
        /// Title of the page.
        pub title: String,
        /// Load times of the page.
        pub page_timings: PageTimings,
    }

    /// Load times of a page.
    pub struct PageTimings {
        /// Time until its content was loaded.
        pub on_content_load: Option<f64>,
        /// Time until the page was loaded completely.
        pub on_load: Option<f64>,
    }

    /// One request and its response.
    pub struct HarEntry {
        /// Id of the page that it belongs to.
        pub pageref: Option<String>,
        /// Start time of the request, see [`egret_clock::rfc3339`].
        pub started_date_time: String,
        /// Total duration: the sum of the phases that happened. `ssl` is part of `connect`, so it is not
        /// added again.
        pub time: f64,
        /// The request.
        pub request: Request,
        /// The response.
        pub response: Response,
        /// Cache state before and after the request.
        pub cache: Cache,
        /// Durations of the phases.
        pub timings: Timings,
        /// IP address of the server, IPv4 or IPv6 without brackets.
        #[serde(rename = "serverIPAddress")]
        pub server_ip_address: Option<String>,
        /// Id of the connection, shared by the exchanges on it.
        pub connection: Option<String>,
    }

    /// A request.
    pub struct Request {
        /// Method of the request.
        pub method: String,
        /// Absolute URL, without a fragment.
        pub url: String,
        /// HTTP version, such as `HTTP/1.1`.
        pub http_version: String,
        /// Cookies of its `Cookie` fields.
        pub cookies: Vec<Cookie>,
        /// Header fields, in order.
        pub headers: Vec<NameValue>,
        /// Parameters of its URL.
        pub query_string: Vec<NameValue>,
        /// Body of the request.
        pub post_data: Option<PostData>,
        /// Size of the head from its first byte through the empty line; -1 if unknown.
        pub headers_size: i64,
        /// Size of the body as it was sent; -1 if unknown.
        pub body_size: i64,
    }

    /// A response.
    pub struct Response {
        /// Status code. Recorders write 0 if there was no response.
        pub status: i64,
        /// Reason phrase.
        pub status_text: String,
        /// HTTP version, such as `HTTP/1.1`.
        pub http_version: String,
        /// Cookies of its `Set-Cookie` fields.
        pub cookies: Vec<Cookie>,
        /// Header fields, in order.
        pub headers: Vec<NameValue>,
        /// Body of the response.
        pub content: Content,
        /// Value of its `Location` field; empty if absent.
        #[serde(rename = "redirectURL")]
        pub redirect_url: String,
        /// Size of the head from its first byte through the empty line; -1 if unknown.
        pub headers_size: i64,
        /// Size of the body as it was received; 0 if it came from a cache, -1 if unknown.
        pub body_size: i64,
    }

    /// A cookie.
    pub struct Cookie {
        /// Name of the cookie.
        pub name: String,
        /// Value of the cookie.
        pub value: String,
        /// Path that the cookie applies to.
        pub path: Option<String>,
        /// Host that the cookie applies to.
        pub domain: Option<String>,
        /// Expiry date, see [`egret_clock::rfc3339`].
        pub expires: Option<String>,
        /// `true` if scripts cannot read it.
        pub http_only: Option<bool>,
        /// `true` if it is only sent over TLS.
        pub secure: Option<bool>,
    }

    /// A header field, or a URL parameter.
    pub struct NameValue {
        /// Name of the field or parameter.
        pub name: String,
        /// Value of the field or parameter.
        pub value: String,
    }

    /// The body of a request. HAR 1.2 defines no encoding for it. If it is not text, the other fields contain
    /// an `encoding` or `_encoding` of `base64`.
    pub struct PostData {
        /// Media type.
        pub mime_type: String,
        /// Parameters of a form.
        pub params: Option<Vec<Param>>,
        /// The body as text.
        pub text: Option<String>,
    }

    /// A form parameter.
    pub struct Param {
        /// Name of the parameter.
        pub name: String,
        /// Value of the parameter, or content of a file.
        pub value: Option<String>,
        /// Name of an uploaded file.
        pub file_name: Option<String>,
        /// Media type of an uploaded file.
        pub content_type: Option<String>,
    }

    /// The body of a response.
    pub struct Content {
        /// Length of the decoded body.
        pub size: i64,
        /// Bytes saved by compression; absent if unknown.
        pub compression: Option<i64>,
        /// Media type.
        pub mime_type: String,
        /// The decoded body.
        pub text: Option<String>,
        /// Encoding of `text`: `base64` if the body is not text.
        pub encoding: Option<String>,
    }

    /// State of a cache around an exchange, if known.
    pub struct Cache {
        /// State before the request.
        #[serde(default, deserialize_with = "known")]
        pub before_request: Option<Cached>,
        /// State after the request.
        #[serde(default, deserialize_with = "known")]
        pub after_request: Option<Cached>,
    }

    /// A cache entry.
    pub struct CacheState {
        /// Time until which it is fresh.
        pub expires: Option<String>,
        /// Time of its last use.
        pub last_access: String,
        /// Entity tag.
        pub e_tag: String,
        /// Number of uses.
        pub hit_count: i64,
    }

    /// Durations of the phases of an exchange, in milliseconds. A phase that is absent or -1 did not happen,
    /// or was not measured.
    pub struct Timings {
        /// Time spent waiting for a connection.
        pub blocked: Option<f64>,
        /// Time of the DNS lookup.
        pub dns: Option<f64>,
        /// Time to connect, including `ssl`.
        pub connect: Option<f64>,
        /// Time to send the request.
        pub send: f64,
        /// Time from the sent request to the first byte of the response.
        pub wait: f64,
        /// Time from the first to the last byte of the response.
        pub receive: f64,
        /// Time of the TLS handshake, which is part of `connect`.
        pub ssl: Option<f64>,
    }
}

/// The known state of a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cached {
    /// No entry, written as `null`.
    Nothing,
    /// An entry.
    State(Box<CacheState>),
}

/// Deserializes a field that is present. `null` is a known state too.
fn known<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Cached>, D::Error> {
    Cached::deserialize(deserializer).map(Some)
}

/// The reason why a file could not be read as HAR.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not JSON, or does not have the structure of HAR. The message has line and column.
    #[error("not a HAR file: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The file has a major version other than 1.
    #[error("unsupported HAR version {0:?}: expected 1.1 or 1.2")]
    Version(String),
}

impl Har {
    /// Returns a HAR file without entries.
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

    /// Reads a file. It may begin with a byte order mark.
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let har: Self = serde_json::from_slice(without_mark(bytes)).map_err(ReadError::Malformed)?;
        check_version(&har.log.version)?;
        Ok(har)
    }

    /// Appends the file to `out` as JSON.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(out, self)
    }
}

/// Accepts versions 1.x, and an empty version, which means 1.1.
pub(crate) fn check_version(version: &str) -> Result<(), ReadError> {
    if version.is_empty() || version.split('.').next() == Some("1") {
        return Ok(());
    }
    Err(ReadError::Version(version.to_owned()))
}

/// Removes the byte order mark that a file may begin with.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

impl NameValue {
    /// Returns a field or parameter without a comment.
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
    fn other_versions_of_har_are_refused() {
        let other = fixture::FULL.replacen("\"1.2\"", "\"2.0\"", 1);
        assert!(matches!(Har::read(other.as_bytes()), Err(ReadError::Version(version)) if version == "2.0"));
        let error = Har::read(br#"{"log": {"version": "1.2"}}"#).unwrap_err();
        assert!(error.to_string().contains("creator"), "{error}");
        assert!(Har::read(fixture::FULL.replacen("\"1.2\"", "\"\"", 1).as_bytes()).is_ok());
    }

    #[test]
    fn an_absent_cache_entry_differs_from_a_null_one() {
        let cache: Cache = serde_json::from_str(r#"{"beforeRequest":null}"#).unwrap();
        assert_eq!(
            (cache.before_request.clone(), cache.after_request.clone()),
            (Some(Cached::Nothing), None)
        );
        assert_eq!(serde_json::to_string(&cache).unwrap(), r#"{"beforeRequest":null}"#);
    }
}
