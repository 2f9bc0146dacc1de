//! Endpoints for caches: validators, freshness, and byte ranges.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use data_encoding::HEXLOWER;
use egret_clock::http_date;

use crate::call::ProviderCall;
use crate::echo::{self, EchoedRequest};
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::pace::slowed;
use crate::parameters::Parameters;
use crate::respond::{self, field_value, json_bytes};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/cache", || any(cache))
        .about("304 if `If-Modified-Since` or `If-None-Match` is given; otherwise the response of `/get`, with `Last-Modified` and `ETag`."),
    Endpoint::new("any", "/cache/{seconds}", || any(cache_for))
        .about("The response of `/get`, with `Cache-Control: public, max-age=SECONDS`.")
        .parameters("`seconds`, a whole number")
        .example("/cache/60"),
    Endpoint::new("any", "/etag/{etag}", || any(etag))
        .about("A resource with this entity tag, modified now. Honours `If-None-Match`, `If-Match`, `If-Range` and `Range`.")
        .example("/etag/abc"),
    Endpoint::new("any", "/range/{n}", || any(range))
        .about("`n` bytes of the repeated alphabet. `Range` may ask for one range or several.")
        .parameters("`n` 1 to 1048576; `duration` of the transfer (0)")
        .example("/range/26"),
];

async fn cache(call: ProviderCall) -> Response {
    let conditions = [header::IF_MODIFIED_SINCE, header::IF_NONE_MATCH];
    if conditions.iter().any(|name| !call.field(name).is_empty()) {
        return respond::empty(StatusCode::NOT_MODIFIED);
    }
    let now = http_date::write_system_time(SystemTime::now());
    let tag = HEXLOWER.encode(now.as_bytes());
    let response = respond::with(echo::echo_request(call).await, header::LAST_MODIFIED, field_value(&now));
    respond::with(response, header::ETAG, field_value(&format!("\"{tag}\"")))
}

async fn cache_for(Path(seconds): Path<String>, call: ProviderCall) -> EndpointResult {
    let seconds: i64 =
        seconds.parse().map_err(|_| ProviderError::parameter("seconds", "not a whole number"))?;
    let fresh = field_value(&format!("public, max-age={seconds}"));
    Ok(respond::with(echo::echo_request(call).await, header::CACHE_CONTROL, fresh))
}

async fn etag(Path(tag): Path<String>, call: ProviderCall) -> Response {
    let resource = Resource {
        content: json_bytes(&EchoedRequest::of(&call)),
        etag: field_value(&format!("\"{tag}\"")),
        modified: Some(SystemTime::now()),
        per_byte: Duration::ZERO,
        always: HeaderMap::new(),
    };
    resource.respond(&call)
}

async fn range(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    let max = call.state.options().body_bytes_max;
    let count: i64 = n.parse().map_err(|_| ProviderError::parameter("count", "not a whole number"))?;
    let duration = Parameters::of(&call).duration("duration", Duration::ZERO)?;
    let etag = field_value(&format!("range{count}"));
    let always = HeaderMap::from_iter([(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))]);
    let Some(count) = usize::try_from(count).ok().filter(|count| (1..=max).contains(count)) else {
        let refused = ProviderError::parameter("count", format!("{count} not in range [1, {max}]"));
        let mut response = respond::with(refused.into_response(), header::ETAG, etag);
        response.headers_mut().extend(always);
        return Ok(response);
    };
    let content: Vec<u8> = (b'a'..=b'z').cycle().take(count).collect();
    let per_byte = duration / u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Resource { content: content.into(), etag, modified: None, per_byte, always }.respond(&call))
}

/// Content with validators that supports range requests (RFC 9110 §13 and §14).
struct Resource {
    content: Bytes,
    etag: HeaderValue,
    modified: Option<SystemTime>,
    /// Time per byte.
    per_byte: Duration,
    /// Fields that error responses carry as well.
    always: HeaderMap,
}

/// Maximum number of ranges in a request. A multipart response with more is not worthwhile.
const RANGES_MAX: usize = 1_000;

/// The result of parsing a Range field.
#[derive(Debug, PartialEq, Eq)]
enum RangeSelection {
    /// The whole content: there is no Range field, or it asks for more bytes than exist.
    All,
    /// The given parts.
    Parts(Vec<Range<usize>>),
    /// Only parts beyond the end.
    Beyond,
    /// Not a list of ranges.
    Invalid,
}

impl Resource {
    fn respond(mut self, call: &ProviderCall) -> Response {
        if let Some(status) = self.failed_condition(call) {
            return self.without_content(status);
        }
        self.always.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let range = if self.range_applies(call) { call.field(&header::RANGE) } else { "" };
        match select_ranges(range, self.content.len()) {
            RangeSelection::All => {
                let content = self.content.clone();
                self.found(StatusCode::OK, respond::TEXT, content)
            }
            RangeSelection::Invalid => self.refused("invalid range"),
            RangeSelection::Beyond => {
                let size = field_value(&format!("bytes */{}", self.content.len()));
                respond::with(self.refused("invalid range: failed to overlap"), header::CONTENT_RANGE, size)
            }
            RangeSelection::Parts(parts) => match &parts[..] {
                [part] => {
                    let content = self.content.slice(part.clone());
                    let response = self.found(StatusCode::PARTIAL_CONTENT, respond::TEXT, content);
                    respond::with(response, header::CONTENT_RANGE, field_value(&self.content_range(part)))
                }
                parts => {
                    let boundary = format!("{:032x}", call.state.sequences.next().draw());
                    let content_type = field_value(&format!("multipart/byteranges; boundary={boundary}"));
                    let content = self.multipart(parts, &boundary);
                    self.found(StatusCode::PARTIAL_CONTENT, content_type, content)
                }
            },
        }
    }

    /// Returns the status code of a failed condition.
    fn failed_condition(&self, call: &ProviderCall) -> Option<StatusCode> {
        let read = matches!(*call.method(), Method::GET | Method::HEAD);
        let if_match = call.field(&header::IF_MATCH);
        if !if_match.is_empty() && !self.is_listed(if_match, false) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let if_none_match = call.field(&header::IF_NONE_MATCH);
        if !if_none_match.is_empty() && self.is_listed(if_none_match, true) {
            return Some(if read { StatusCode::NOT_MODIFIED } else { StatusCode::PRECONDITION_FAILED });
        }
        None
    }

    /// Returns `true` if a list of entity tags contains this one. A weak comparison ignores `W/`; in a strong
    /// comparison a weak tag never matches.
    fn is_listed(&self, list: &str, weakly: bool) -> bool {
        let own = String::from_utf8_lossy(self.etag.as_bytes());
        list.split(',').map(str::trim).any(|tag| {
            let tag = if weakly { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
            tag == "*" || (tag.starts_with('"') && tag == own)
        })
    }

    /// Returns `true` if there is no If-Range field, or its validator matches.
    fn range_applies(&self, call: &ProviderCall) -> bool {
        let condition = call.field(&header::IF_RANGE);
        condition.is_empty() || self.is_listed(condition, false)
    }

    fn without_content(self, status: StatusCode) -> Response {
        let mut response = respond::with(respond::empty(status), header::ETAG, self.etag);
        let fields = response.headers_mut();
        fields.extend(self.always);
        if status != StatusCode::NOT_MODIFIED {
            fields.insert(header::CONTENT_TYPE, respond::TEXT);
            fields.extend(
                self.modified.map(|moment| {
                    (header::LAST_MODIFIED, field_value(&http_date::write_system_time(moment)))
                }),
            );
        }
        response
    }

    fn refused(self, reason: &str) -> Response {
        let mut response = ProviderError::text(StatusCode::RANGE_NOT_SATISFIABLE, reason).into_response();
        response.headers_mut().extend(self.always);
        response
    }

    fn found(&self, status: StatusCode, content_type: HeaderValue, content: Bytes) -> Response {
        let length = content.len();
        let body = if self.per_byte.is_zero() { Body::from(content) } else { slowed(content, self.per_byte) };
        let response = respond::of(status, content_type, body);
        let mut response = respond::with(response, header::ETAG, self.etag.clone());
        let fields = response.headers_mut();
        fields.extend(self.always.clone());
        fields.insert(header::CONTENT_LENGTH, length.into());
        fields.extend(
            self.modified
                .map(|moment| (header::LAST_MODIFIED, field_value(&http_date::write_system_time(moment)))),
        );
        response
    }

    fn content_range(&self, part: &Range<usize>) -> String {
        format!("bytes {}-{}/{}", part.start, part.end - 1, self.content.len())
    }

    fn multipart(&self, parts: &[Range<usize>], boundary: &str) -> Bytes {
        let mut bytes = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\r\n" };
            let range = self.content_range(part);
            let head = format!(
                "{line_end}--{boundary}\r\nContent-Range: {range}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
            );
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(&self.content[part.clone()]);
        }
        bytes.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        bytes.into()
    }
}

/// Parses a Range field.
fn select_ranges(field: &str, length: usize) -> RangeSelection {
    if field.is_empty() {
        return RangeSelection::All;
    }
    let Some(list) = field.strip_prefix("bytes=") else { return RangeSelection::Invalid };
    let mut parts = Vec::new();
    let mut beyond = false;
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let Some((first, last)) = range.split_once('-') else { return RangeSelection::Invalid };
        let part = match (number(first.trim()), number(last.trim())) {
            (Ok(None), Ok(Some(suffix))) => length.saturating_sub(suffix)..length,
            (Ok(Some(first)), Ok(None)) => first..length,
            (Ok(Some(first)), Ok(Some(last))) if first <= last => first..last.saturating_add(1).min(length),
            _ => return RangeSelection::Invalid,
        };
        if part.start < length && parts.len() < RANGES_MAX {
            parts.push(part);
        } else {
            beyond = true;
        }
    }
    let total: usize = parts.iter().map(Range::len).sum();
    match (parts.is_empty(), beyond) {
        (true, true) => RangeSelection::Beyond,
        // Overlapping ranges that exceed the content are an attack or a mistake.
        (true, false) => RangeSelection::All,
        (false, _) if total > length => RangeSelection::All,
        (false, _) => RangeSelection::Parts(parts),
    }
}

/// Parses digits. Returns `None` for an empty text.
fn number(digits: &str) -> Result<Option<usize>, ()> {
    match digits {
        "" => Ok(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map(Some).map_err(|_| ())
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{TestProvider, get, get_with, request};
    use crate::options::Options;

    #[test]
    fn ranges_are_read_as_parts_of_what_there_is() {
        let parts = |field| match select_ranges(field, 10) {
            RangeSelection::Parts(parts) => {
                parts.iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
            }
            other => panic!("{field}: {other:?}"),
        };
        assert_eq!(parts("bytes=0-3"), [(0, 4)]);
        assert_eq!(parts("bytes=8-"), [(8, 10)]);
        assert_eq!(parts("bytes=-3"), [(7, 10)]);
        assert_eq!(parts("bytes=-30"), [(0, 10)]);
        assert_eq!(parts("bytes=5-99"), [(5, 10)]);
        assert_eq!(parts("bytes=0-0, 2-3,99-"), [(0, 1), (2, 4)]);
        for field in ["", "bytes=0-9,0-9", "bytes="] {
            assert_eq!(select_ranges(field, 10), RangeSelection::All, "{field}");
        }
        for field in ["chars=0-1", "bytes=3", "bytes=3-1", "bytes=x-", "bytes=-", "bytes=+1-2"] {
            assert_eq!(select_ranges(field, 10), RangeSelection::Invalid, "{field}");
        }
        assert_eq!(select_ranges("bytes=10-,99-100", 10), RangeSelection::Beyond);
    }

    proptest! {
        #[test]
        fn selected_ranges_are_parts_of_the_content(field in "bytes=[0-9,-]{0,20}", length in 1_usize..50) {
            if let RangeSelection::Parts(parts) = select_ranges(&field, length) {
                prop_assert!(!parts.is_empty());
                for part in parts {
                    prop_assert!(part.start < part.end && part.end <= length, "{part:?}");
                }
            }
        }

        #[test]
        fn a_range_is_answered_with_exactly_its_bytes(count in 1_usize..100, first in 0_usize..120, length in 1_usize..50) {
            let range = format!("bytes={first}-{}", first + length - 1);
            let target = format!("/range/{count}");
            let [whole, part] = block_on(async { [get(&target).await, get_with(&target, &[("range", &range)]).await] });
            prop_assert_eq!((whole.status, whole.content.len()), (200, count));
            if first < count {
                let end = count.min(first + length);
                prop_assert_eq!(part.status, 206);
                prop_assert_eq!(&part.content, &whole.content[first..end]);
                prop_assert_eq!(part.field("content-range"), format!("bytes {first}-{}/{count}", end - 1));
            } else {
                prop_assert_eq!(part.status, 416);
                prop_assert_eq!(part.field("content-range"), format!("bytes */{count}"));
            }
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[tokio::test]
    async fn several_ranges_come_as_parts_between_boundaries() {
        let response = get_with("/range/26", &[("range", "bytes=0-1,-2")]).await;
        assert_eq!(response.status, 206);
        let boundary =
            response.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let head = |range| {
            format!("Content-Range: bytes {range}/26\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n")
        };
        let expected = format!(
            "--{boundary}\r\n{}ab\r\n--{boundary}\r\n{}yz\r\n--{boundary}--\r\n",
            head("0-1"),
            head("24-25")
        );
        assert_eq!(response.text(), expected);
    }

    #[tokio::test]
    async fn conditions_are_evaluated_before_the_range() {
        let status = |name: &'static str, value: &'static str| async move {
            let range = ("range", "bytes=0-0");
            get_with("/etag/abc", &[(name, value), range]).await.status
        };
        assert_eq!(status("if-none-match", "\"abc\"").await, 304);
        assert_eq!(status("if-none-match", "W/\"abc\"").await, 304, "a weak comparison");
        assert_eq!(status("if-none-match", "\"other\", *").await, 304);
        assert_eq!(status("if-none-match", "\"other\"").await, 206);
        assert_eq!(status("if-match", "\"abc\"").await, 206);
        assert_eq!(status("if-match", "W/\"abc\"").await, 412, "a strong comparison");
        assert_eq!(status("if-range", "\"abc\"").await, 206);
        assert_eq!(status("if-range", "\"other\"").await, 200, "the whole content");
        let put = request("PUT", "/etag/abc", &[("if-none-match", "*")], "");
        assert_eq!(TestProvider::new(Options::default()).send(put).await.status, 412);
    }

    #[tokio::test]
    async fn freshness_and_validators_are_those_of_the_path() {
        let fresh = get("/cache/60").await;
        assert_eq!((fresh.status, fresh.field("cache-control")), (200, "public, max-age=60"));
        let cached = get("/cache").await;
        assert!(!cached.field("etag").is_empty() && !cached.field("last-modified").is_empty());
        for condition in ["if-none-match", "if-modified-since"] {
            assert_eq!(get_with("/cache", &[(condition, "x")]).await.status, 304);
        }
        assert_eq!(get("/cache/soon").await.status, 400);
    }
}
