//! Validates files against HAR 1.2 and reports each problem with its location:
//! `log.entries[3].request.url: ...`.
//!
//! It works on JSON rather than on [`crate::Har`], so it can also report missing fields and wrong types.
//! Messages never repeat a value of the file.

use egret_clock::rfc3339;
use serde_json::{Map, Value};

use crate::base64;

/// Maximum number of problems reported per file. Validation stops there.
pub const PROBLEMS_MAX: usize = 100;

/// Maximum difference between an entry's `time` and the sum of its timings, in milliseconds: recorders round
/// each of them.
const TOTAL_TOLERANCE_MS: f64 = 1.0;

/// Custom fields that most recorders write without the underscore that HAR 1.2 requires.
const CUSTOMARY: [&str; 2] = ["sameSite", "encoding"];

/// A violation of HAR 1.2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Problem {
    /// Path of the value: `log.entries[3].request.url`.
    pub path: String,
    /// Description of the problem.
    pub message: String,
}

/// The expected type or format of a value.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Version,
    Time,
    Url,
    Address,
    Boolean,
    /// Milliseconds, not negative.
    Millis,
    /// Milliseconds, or -1.
    MillisOrNone,
    /// An integer with this minimum.
    Integer(i64),
    Object(&'static [Field]),
    /// An object, or `null`.
    ObjectOrNull(&'static [Field]),
    List(&'static Shape),
}

/// Name of a field, expected type of its value, and `Required` or `Optional`.
type Field = (&'static str, Shape, Need);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

use Need::{Optional, Required};

const HAR: &[Field] = &[("log", Shape::Object(LOG), Required)];
const LOG: &[Field] = &[
    ("version", Shape::Version, Required),
    ("creator", Shape::Object(CREATOR), Required),
    ("browser", Shape::Object(CREATOR), Optional),
    ("pages", Shape::List(&Shape::Object(PAGE)), Optional),
    ("entries", Shape::List(&Shape::Object(ENTRY)), Required),
];
const CREATOR: &[Field] = &[("name", Shape::Text, Required), ("version", Shape::Text, Required)];
const PAGE: &[Field] = &[
    ("startedDateTime", Shape::Time, Required),
    ("id", Shape::Text, Required),
    ("title", Shape::Text, Required),
    ("pageTimings", Shape::Object(PAGE_TIMINGS), Required),
];
const PAGE_TIMINGS: &[Field] =
    &[("onContentLoad", Shape::MillisOrNone, Optional), ("onLoad", Shape::MillisOrNone, Optional)];
const ENTRY: &[Field] = &[
    ("pageref", Shape::Text, Optional),
    ("startedDateTime", Shape::Time, Required),
    ("time", Shape::Millis, Required),
    ("request", Shape::Object(REQUEST), Required),
    ("response", Shape::Object(RESPONSE), Required),
    ("cache", Shape::Object(CACHE), Required),
    ("timings", Shape::Object(TIMINGS), Required),
    ("serverIPAddress", Shape::Address, Optional),
    ("connection", Shape::Text, Optional),
];
const REQUEST: &[Field] = &[
    ("method", Shape::Text, Required),
    ("url", Shape::Url, Required),
    ("httpVersion", Shape::Text, Required),
    ("cookies", Shape::List(&Shape::Object(COOKIE)), Required),
    ("headers", Shape::List(&Shape::Object(NAME_VALUE)), Required),
    ("queryString", Shape::List(&Shape::Object(NAME_VALUE)), Required),
    ("postData", Shape::Object(POST_DATA), Optional),
    ("headersSize", Shape::Integer(-1), Required),
    ("bodySize", Shape::Integer(-1), Required),
];
const RESPONSE: &[Field] = &[
    ("status", Shape::Integer(0), Required),
    ("statusText", Shape::Text, Required),
    ("httpVersion", Shape::Text, Required),
    ("cookies", Shape::List(&Shape::Object(COOKIE)), Required),
    ("headers", Shape::List(&Shape::Object(NAME_VALUE)), Required),
    ("content", Shape::Object(CONTENT), Required),
    ("redirectURL", Shape::Text, Required),
    ("headersSize", Shape::Integer(-1), Required),
    ("bodySize", Shape::Integer(-1), Required),
];
const COOKIE: &[Field] = &[
    ("name", Shape::Text, Required),
    ("value", Shape::Text, Required),
    ("path", Shape::Text, Optional),
    ("domain", Shape::Text, Optional),
    ("expires", Shape::Time, Optional),
    ("httpOnly", Shape::Boolean, Optional),
    ("secure", Shape::Boolean, Optional),
];
const NAME_VALUE: &[Field] = &[("name", Shape::Text, Required), ("value", Shape::Text, Required)];
const POST_DATA: &[Field] = &[
    ("mimeType", Shape::Text, Required),
    ("params", Shape::List(&Shape::Object(PARAM)), Optional),
    ("text", Shape::Text, Optional),
];
const PARAM: &[Field] = &[
    ("name", Shape::Text, Required),
    ("value", Shape::Text, Optional),
    ("fileName", Shape::Text, Optional),
    ("contentType", Shape::Text, Optional),
];
const CONTENT: &[Field] = &[
    ("size", Shape::Integer(-1), Required),
    ("compression", Shape::Integer(i64::MIN), Optional),
    ("mimeType", Shape::Text, Required),
    ("text", Shape::Text, Optional),
    ("encoding", Shape::Text, Optional),
];
const CACHE: &[Field] = &[
    ("beforeRequest", Shape::ObjectOrNull(CACHE_STATE), Optional),
    ("afterRequest", Shape::ObjectOrNull(CACHE_STATE), Optional),
];
const CACHE_STATE: &[Field] = &[
    ("expires", Shape::Time, Optional),
    ("lastAccess", Shape::Time, Required),
    ("eTag", Shape::Text, Required),
    ("hitCount", Shape::Integer(0), Required),
];
const TIMINGS: &[Field] = &[
    ("blocked", Shape::MillisOrNone, Optional),
    ("dns", Shape::MillisOrNone, Optional),
    ("connect", Shape::MillisOrNone, Optional),
    ("send", Shape::Millis, Required),
    ("wait", Shape::Millis, Required),
    ("receive", Shape::Millis, Required),
    ("ssl", Shape::MillisOrNone, Optional),
];

/// Returns the problems of a file in document order, at most [`PROBLEMS_MAX`].
pub fn validate(har: &Value) -> Vec<Problem> {
    let mut validator = Validator { path: String::new(), problems: Vec::new() };
    validator.value(har, Shape::Object(HAR));
    if let Some(log) = har.get("log") {
        validator.within("log", |validator| validator.log(log));
    }
    validator.problems
}

struct Validator {
    /// Path of the current value.
    path: String,
    problems: Vec<Problem>,
}

impl Validator {
    fn is_done(&self) -> bool {
        self.problems.len() >= PROBLEMS_MAX
    }

    fn report(&mut self, message: impl Into<String>) {
        if self.is_done() {
            return;
        }
        let path = if self.path.is_empty() { "the file".to_owned() } else { self.path.clone() };
        self.problems.push(Problem { path, message: message.into() });
    }

    /// Runs a check with a path extended by one step: a name, or an index such as `[0]`.
    fn within(&mut self, step: &str, check: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if len > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        check(self);
        self.path.truncate(len);
    }

    fn each(&mut self, list: Option<&Value>, mut check: impl FnMut(&mut Self, &Value)) {
        let elements = list.and_then(Value::as_array).into_iter().flatten();
        for (index, element) in elements.enumerate() {
            if self.is_done() {
                return;
            }
            self.within(&format!("[{index}]"), |validator| check(validator, element));
        }
    }

    fn value(&mut self, value: &Value, shape: Shape) {
        match shape {
            Shape::ObjectOrNull(_) if value.is_null() => {}
            Shape::Object(fields) | Shape::ObjectOrNull(fields) => match value.as_object() {
                Some(object) => self.object(object, fields),
                None => self.report("expected an object"),
            },
            Shape::List(element) if value.is_array() => {
                self.each(Some(value), |validator, value| validator.value(value, *element));
            }
            Shape::List(_) => self.report("expected a list"),
            _ => {
                if let Err(mismatch) = leaf(value, shape) {
                    self.report(mismatch.to_string());
                }
            }
        }
    }

    fn object(&mut self, object: &Map<String, Value>, fields: &'static [Field]) {
        for (name, shape, need) in fields {
            match object.get(*name) {
                Some(value) => self.within(name, |validator| validator.value(value, *shape)),
                None if *need == Required => self.report(format!("`{name}` is missing")),
                None => {}
            }
        }
        if let Some(comment) = object.get("comment") {
            self.within("comment", |validator| validator.value(comment, Shape::Text));
        }
        let is_known = |name: &str| name == "comment" || fields.iter().any(|(known, ..)| *known == name);
        for name in object.keys() {
            if !name.starts_with('_') && !is_known(name) && !CUSTOMARY.contains(&name.as_str()) {
                self.report(format!(
                    "HAR 1.2 has no field `{}`: names of custom fields must begin with `_`",
                    name.escape_debug()
                ));
            }
        }
    }

    /// Checks rules that involve several fields.
    fn log(&mut self, log: &Value) {
        let mut ids = std::collections::HashSet::new();
        self.within("pages", |validator| {
            validator.each(log.get("pages"), |validator, page| {
                if page.get("id").and_then(Value::as_str).is_some_and(|id| !ids.insert(id.to_owned())) {
                    validator.within("id", |validator| validator.report("another page has the same id"));
                }
            });
        });
        self.within("entries", |validator| {
            validator.each(log.get("entries"), |validator, entry| {
                let pageref = entry.get("pageref").and_then(Value::as_str);
                if pageref.is_some_and(|page| !ids.contains(page)) {
                    validator.within("pageref", |validator| validator.report("no page has this id"));
                }
                validator.total(entry);
                validator.encoding(entry);
            });
        });
    }

    fn total(&mut self, entry: &Value) {
        let timing = |name: &str| entry.get("timings")?.get(name)?.as_f64();
        let phases = ["blocked", "dns", "connect", "send", "wait", "receive"];
        let total: f64 = phases.into_iter().filter_map(timing).filter(|ms| *ms > 0.0).sum();
        let time = entry.get("time").and_then(Value::as_f64);
        if time.is_some_and(|time| (time - total).abs() > TOTAL_TOLERANCE_MS) {
            let message = format!("not the sum of the timings, without `ssl` and -1: expected {total} ms");
            self.within("time", |validator| validator.report(message));
        }
        let (ssl, connect) = (timing("ssl").unwrap_or(-1.0), timing("connect").unwrap_or(-1.0));
        if ssl > connect + TOTAL_TOLERANCE_MS {
            self.within("timings.ssl", |validator| {
                validator.report("greater than `connect`, which includes it");
            });
        }
    }

    fn encoding(&mut self, entry: &Value) {
        let content = entry.get("response").and_then(|response| response.get("content"));
        let field = |name: &str| content?.get(name)?.as_str();
        let Some(encoding) = field("encoding") else { return };
        if encoding != "base64" {
            self.within("response.content.encoding", |validator| {
                validator.report("unknown encoding: expected `base64`");
            });
        } else if field("text").is_some_and(|text| base64::decode(text.as_bytes()).is_none()) {
            self.within("response.content.text", |validator| {
                validator.report("not valid Base64, although `encoding` is `base64`");
            });
        }
    }
}

/// The reason why a value is not what its field requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Mismatch {
    #[error("expected `true` or `false`")]
    NotBoolean,
    #[error("expected a number of milliseconds")]
    NotMillis,
    #[error("must not be negative")]
    NegativeMillis,
    /// Negative milliseconds, where -1 is allowed.
    #[error("must be -1 or not negative")]
    InvalidMillis,
    #[error("expected an integer")]
    NotInteger,
    /// An integer below this minimum.
    #[error("must be at least {0}")]
    TooSmall(i64),
    #[error("expected a string")]
    NotString,
    #[error("unsupported major version: expected 1.2")]
    Version,
    #[error("expected a date and time with a zone, such as 2026-01-02T03:04:05.678Z")]
    Time,
    #[error("expected an IPv4 or IPv6 address without brackets or port")]
    Address,
    #[error("the URL must not have a fragment")]
    Fragment,
    #[error("expected an absolute URL")]
    RelativeUrl,
}

/// Checks a value that is neither an object nor a list.
fn leaf(value: &Value, shape: Shape) -> Result<(), Mismatch> {
    match shape {
        Shape::Boolean if value.is_boolean() => Ok(()),
        Shape::Boolean => Err(Mismatch::NotBoolean),
        Shape::Millis | Shape::MillisOrNone => millis(value, matches!(shape, Shape::MillisOrNone)),
        Shape::Integer(least) => integer(value, least),
        _ => text(value.as_str().ok_or(Mismatch::NotString)?, shape),
    }
}

fn millis(value: &Value, may_be_none: bool) -> Result<(), Mismatch> {
    let ms = value.as_f64().ok_or(Mismatch::NotMillis)?;
    if ms >= 0.0 || may_be_none && ms == crate::har::NONE {
        return Ok(());
    }
    Err(if may_be_none { Mismatch::InvalidMillis } else { Mismatch::NegativeMillis })
}

fn integer(value: &Value, least: i64) -> Result<(), Mismatch> {
    let number = value.as_i64().ok_or(Mismatch::NotInteger)?;
    if number < least { Err(Mismatch::TooSmall(least)) } else { Ok(()) }
}

fn text(text: &str, shape: Shape) -> Result<(), Mismatch> {
    let (is_right, mismatch) = match shape {
        // An empty version means 1.1.
        Shape::Version => (text.is_empty() || text.split('.').next() == Some("1"), Mismatch::Version),
        Shape::Time => (rfc3339::read(text).is_some(), Mismatch::Time),
        Shape::Address => (text.parse::<std::net::IpAddr>().is_ok(), Mismatch::Address),
        Shape::Url if text.contains('#') => (false, Mismatch::Fragment),
        Shape::Url => (is_absolute(text), Mismatch::RelativeUrl),
        _ => (true, Mismatch::NotString),
    };
    if is_right { Ok(()) } else { Err(mismatch) }
}

/// Returns `true` if a URL begins with a scheme (RFC 3986 §3.1).
fn is_absolute(url: &str) -> bool {
    url.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            && !rest.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn full() -> Value {
        serde_json::from_str(fixture::FULL).unwrap()
    }

    /// Returns the problems of the sample file after the value at a JSON pointer was replaced or removed.
    fn reported(pointer: &str, value: Option<Value>) -> Vec<String> {
        let mut har = full();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = har.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(name.to_owned(), value),
            None => parent.remove(name),
        };
        validate(&har).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_file_with_every_field_is_valid() {
        assert_eq!(validate(&full()), []);
    }

    #[test]
    fn each_required_field_is_missed() {
        for (pointer, path) in [
            ("/log", "the file"),
            ("/log/version", "log"),
            ("/log/creator", "log"),
            ("/log/entries", "log"),
            ("/log/pages/0/title", "log.pages[0]"),
            ("/log/entries/0/startedDateTime", "log.entries[0]"),
            ("/log/entries/0/cache", "log.entries[0]"),
            ("/log/entries/0/request/queryString", "log.entries[0].request"),
            ("/log/entries/0/response/redirectURL", "log.entries[0].response"),
            ("/log/entries/0/response/content/mimeType", "log.entries[0].response.content"),
            ("/log/entries/0/cache/afterRequest/eTag", "log.entries[0].cache.afterRequest"),
        ] {
            let name = pointer.rsplit_once('/').unwrap().1;
            assert_eq!(reported(pointer, None), [format!("{path}: `{name}` is missing")], "{pointer}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_place() {
        let entry = "/log/entries/0";
        for (pointer, value, expected) in [
            ("/request/url", Value::from("/v1"), "request.url: expected an absolute URL"),
            ("/request/url", Value::from("http://a/#f"), "request.url: the URL must not have a fragment"),
            ("/request/bodySize", Value::from(-2), "request.bodySize: must be at least -1"),
            ("/request/headersSize", Value::from("1"), "request.headersSize: expected an integer"),
            ("/response/status", Value::from(-1), "response.status: must be at least 0"),
            ("/timings/send", Value::from(-1), "timings.send: must not be negative"),
            ("/timings/dns", Value::from(-2), "timings.dns: must be -1 or not negative"),
            ("/timings/ssl", Value::from(30), "timings.ssl: greater than `connect`"),
            ("/time", Value::from(137.75), "time: not the sum"),
            (
                "/startedDateTime",
                Value::from("2026-01-02T03:04:05"),
                "startedDateTime: expected a date and time with a zone",
            ),
            ("/serverIPAddress", Value::from("[::1]"), "serverIPAddress: expected an IPv4 or IPv6 address"),
            ("/pageref", Value::from("page_9"), "pageref: no page has this id"),
            (
                "/response/content/encoding",
                Value::from("gzip"),
                "response.content.encoding: unknown encoding",
            ),
            ("/response/content/encoding", Value::from("base64"), "response.content.text: not valid Base64"),
            ("/request/headers", Value::from(1), "request.headers: expected a list"),
            ("/cache/afterRequest", Value::from(1), "cache.afterRequest: expected an object"),
            ("/clientIPAddress", Value::from("1.2.3.4"), "HAR 1.2 has no field `clientIPAddress`"),
        ] {
            let reported = reported(&format!("{entry}{pointer}"), Some(value));
            assert!(reported.len() == 1 && reported[0].contains(expected), "{pointer}: {reported:?}");
            assert!(reported[0].starts_with("log.entries[0]"), "{reported:?}");
        }
    }

    #[test]
    fn a_file_full_of_problems_is_not_told_in_full() {
        let har = serde_json::json!({"log": {"version": "1.2", "creator": {"name": "a", "version": "b"}, "entries": vec![1; 1_000]}});
        assert_eq!(validate(&har).len(), PROBLEMS_MAX);
        assert_eq!(validate(&Value::from(1))[0].to_string(), "the file: expected an object");
    }
}
