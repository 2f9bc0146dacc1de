//! Endpoints for content: bytes, codings, and fields in the header and trailer section.

use std::io::Write as _;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use data_encoding::BASE64URL;
use egret_har::base64;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures_util::stream;
use serde::Serialize;

use crate::call::ProviderCall;
use crate::echo::{self, EchoedRequest};
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::pace::trailing;
use crate::parameters::{Parameters, number};
use crate::query::Values;
use crate::random::Draw as _;
use crate::respond::{self, field_value, html_escaped, is_dangerous, json_bytes};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/bytes/{n}", || any(bytes))
        .about("`n` random bytes, the same for the same seed.")
        .parameters("`n` 0 to 1048576; `seed`")
        .example("/bytes/1024"),
    Endpoint::new("any", "/stream-bytes/{n}", || any(stream_bytes))
        .about("As `/bytes`, in chunks of `chunk_size` bytes.")
        .parameters("`n` 0 to 1048576; `chunk_size` (10240); `seed`")
        .example("/stream-bytes/30000"),
    Endpoint::new("any", "/base64/{data}", || any(decoded))
        .about(
            "The data decoded from base64, in either alphabet. HTML-escaped if a browser might execute it.",
        )
        .parameters("`content-type` (`text/plain; charset=utf-8`)")
        .example("/base64/ZWdyZXQ="),
    Endpoint::new("any", "/base64/{operation}/{data}", || any(transcoded))
        .about("The data encoded in the URL-safe alphabet, or decoded.")
        .parameters("`operation` `encode` or `decode`; `content-type`")
        .example("/base64/encode/egret"),
    Endpoint::new("any", "/gzip", || any(gzip))
        .about("The request as JSON, compressed with gzip regardless of `Accept-Encoding`."),
    Endpoint::new("any", "/deflate", || any(deflate)).about("As `/gzip`, with deflate (zlib)."),
    Endpoint::new("any", "/brotli", || any(brotli)).about("501, as in httpbin for Go."),
    Endpoint::new("any", "/response-headers", || any(response_headers))
        .about("These fields, also as JSON. Framing fields are omitted.")
        .parameters("any: each becomes a header field")
        .example("/response-headers?X-A=1&X-A=2"),
    Endpoint::new("any", "/trailers", || any(trailers))
        .about("The response of `/anything`, chunked, with these trailers, even if the client does not ask for trailers.")
        .parameters("any: each becomes a trailer; 400 for a name that is not allowed in trailers")
        .example("/trailers?X-Checksum=abc"),
];

/// Default chunk size of `/stream-bytes`, in bytes.
const CHUNK_BYTES: usize = 10 << 10;

async fn bytes(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    let bytes = random_bytes(&n, &call)?;
    if bytes.is_empty() {
        return Ok(respond::empty(StatusCode::OK));
    }
    Ok(respond::of(StatusCode::OK, respond::BYTES, bytes))
}

fn random_bytes(n: &str, call: &ProviderCall) -> Result<Vec<u8>, ProviderError> {
    let count = number(n, 0..=call.state.options().body_bytes_max)
        .map_err(|error| ProviderError::parameter("byte count", error))?;
    Ok(Parameters::of(call).random()?.bytes(count))
}

async fn stream_bytes(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    let mut rest = Bytes::from(random_bytes(&n, &call)?);
    if rest.is_empty() {
        return Ok(respond::empty(StatusCode::OK));
    }
    // As in httpbin for Go, a size that is not positive means a single chunk.
    let size: Option<i64> = Parameters::of(&call).parsed("chunk_size")?;
    let size = size.map_or(CHUNK_BYTES, |size| usize::try_from(size).unwrap_or(0));
    let size = if size == 0 { rest.len() } else { size };
    let chunks = std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| Ok::<_, std::convert::Infallible>(rest.split_to(size.min(rest.len()))))
    });
    Ok(respond::of(StatusCode::OK, respond::BYTES, Body::from_stream(stream::iter(chunks))))
}

async fn decoded(Path(data): Path<String>, call: ProviderCall) -> EndpointResult {
    transcode("decode", &data, &call)
}

async fn transcoded(Path((operation, data)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    transcode(&operation, &data, &call)
}

fn transcode(operation: &str, data: &str, call: &ProviderCall) -> EndpointResult {
    let content = match operation {
        "encode" => BASE64URL.encode(data.as_bytes()).into_bytes(),
        "decode" => base64::decode_padded(data)
            .ok_or_else(|| ProviderError::bad_request("base64 decode failed: illegal base64 data"))?,
        other => return Err(ProviderError::bad_request(format!("invalid operation: {other}"))),
    };
    let content_type = call.query.get("content-type").map_or(respond::TEXT, field_value);
    if is_dangerous(&String::from_utf8_lossy(content_type.as_bytes())) {
        let escaped = html_escaped(&String::from_utf8_lossy(&content));
        return Ok(respond::of(StatusCode::OK, content_type, escaped));
    }
    Ok(respond::of(StatusCode::OK, content_type, content))
}

#[derive(Serialize)]
struct Compressed {
    #[serde(flatten)]
    request: EchoedRequest,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deflated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gzipped: bool,
}

impl Compressed {
    fn of(call: &ProviderCall, gzipped: bool) -> Bytes {
        // httpbin for Go leaves the URL empty here.
        let request = EchoedRequest { url: String::new(), ..EchoedRequest::of(call) };
        json_bytes(&Self { request, deflated: !gzipped, gzipped })
    }
}

async fn gzip(call: ProviderCall) -> EndpointResult {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(&Compressed::of(&call, true)).and_then(|()| encoder.finish());
    encoded(compressed, "gzip")
}

async fn deflate(call: ProviderCall) -> EndpointResult {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(&Compressed::of(&call, false)).and_then(|()| encoder.finish());
    encoded(compressed, "deflate")
}

fn encoded(compressed: std::io::Result<Vec<u8>>, coding: &'static str) -> EndpointResult {
    let content = compressed
        .map_err(|error| ProviderError::with_detail(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let response = respond::of(StatusCode::OK, respond::JSON, content);
    Ok(respond::with(response, header::CONTENT_ENCODING, HeaderValue::from_static(coding)))
}

async fn brotli(_: ProviderCall) -> ProviderError {
    ProviderError::of(StatusCode::NOT_IMPLEMENTED)
}

async fn response_headers(call: ProviderCall) -> Response {
    let mut values = call.query.values();
    let content_type = call.query.get("Content-Type").unwrap_or("application/json; charset=utf-8").to_owned();
    let dangerous = is_dangerous(&content_type);
    if call.query.get("Content-Type").is_none() {
        values.insert("Content-Type".to_owned(), vec![content_type]);
    }
    let mut fields = HeaderMap::new();
    for (name, values) in &values {
        // An invalid field name cannot be sent; httpbin for Go drops it as well.
        let Ok(name) = name.parse::<HeaderName>() else { continue };
        if !matches!(name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION) {
            for value in values {
                fields.append(name.clone(), field_value(value));
            }
        }
    }
    let shown = if dangerous { escaped(&values) } else { values };
    let mut response = Response::new(Body::from(json_bytes(&shown)));
    *response.headers_mut() = fields;
    response
}

fn escaped(values: &Values) -> Values {
    let escaped = |values: &Vec<String>| values.iter().map(|value| html_escaped(value)).collect();
    values.iter().map(|(name, values)| (html_escaped(name), escaped(values))).collect()
}

/// Fields that must not be trailers: they control framing or routing, or must be known before the content.
const NEVER_TRAILERS: [HeaderName; 12] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::HOST,
    header::MAX_FORWARDS,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
];

async fn trailers(call: ProviderCall) -> EndpointResult {
    let mut trailers = HeaderMap::new();
    let mut names = Vec::new();
    for (name, value) in call.query.pairs() {
        let parsed: Result<HeaderName, _> = name.parse();
        if parsed.as_ref().is_ok_and(|name| NEVER_TRAILERS.contains(name)) {
            return Err(ProviderError::bad_request(format!("forbidden trailer: {name}")));
        }
        if let Ok(parsed) = parsed
            && trailers.insert(parsed, field_value(value)).is_none()
        {
            names.push(field_value(name));
        }
    }
    let (mut parts, body) = echo::anything(call).await?.into_parts();
    for name in names {
        parts.headers.append(header::TRAILER, name);
    }
    Ok(Response::from_parts(parts, trailing(body, move || trailers)))
}

#[cfg(test)]
mod tests {
    use crate::entry_point::CallOutcome;
    use crate::fixture::{TestProvider, get, request};
    use crate::options::Options;

    #[tokio::test]
    async fn random_bytes_are_those_of_the_seed_in_chunks_of_the_size() {
        let bytes = get("/bytes/1000?seed=7").await;
        assert_eq!((bytes.content.len(), bytes.field("content-type")), (1_000, "application/octet-stream"));
        assert_eq!(bytes.content, get("/bytes/1000?seed=7").await.content);
        assert_ne!(bytes.content, get("/bytes/1000?seed=8").await.content);
        let streamed = get("/stream-bytes/1000?seed=7&chunk_size=300").await;
        assert_eq!((streamed.content, streamed.pieces), (bytes.content, vec![300, 300, 300, 100]));
        assert_eq!(get("/stream-bytes/9?seed=1&chunk_size=-1").await.pieces, [9]);
        assert_eq!(get("/bytes/0").await.content.len(), 0);
        let detail = "invalid byte count: \"1048577\" is not a whole number from 0 to 1048576";
        assert_eq!(get("/bytes/1048577").await.json()["detail"], detail);
    }

    #[tokio::test]
    async fn base64_is_decoded_and_escaped_where_a_browser_might_run_it() {
        assert_eq!(get("/base64/ZWdyZXQ=").await.text(), "egret");
        assert_eq!(get("/base64/encode/a+b").await.text(), "YSti");
        let script = "/base64/PGI-?content-type=text/html";
        assert_eq!(get(script).await.text(), "&lt;b&gt;");
        assert_eq!(get("/base64/PGI-").await.text(), "<b>", "plain text is not run");
        for target in ["/base64/Zg", "/base64/!!!!", "/base64/rot13/a"] {
            assert_eq!(get(target).await.status, 400, "{target}");
        }
    }

    #[tokio::test]
    async fn compressed_content_holds_the_request() {
        use std::io::Read as _;

        let gzip = get("/gzip?a=1").await;
        assert_eq!(gzip.field("content-encoding"), "gzip");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&gzip.content[..]).read_to_string(&mut text).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["gzipped"], &json["args"]["a"][0]), (&true.into(), &"1".into()));
        let deflate = get("/deflate").await;
        assert_eq!(deflate.field("content-encoding"), "deflate");
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(&deflate.content[..]).read_to_string(&mut text).unwrap();
        assert!(text.contains("\"deflated\": true"), "{text}");
    }

    #[tokio::test]
    async fn fields_of_the_query_are_sent_but_never_framing() {
        let response = get("/response-headers?X-A=1&X-A=2&Content-Length=9&Transfer-Encoding=chunked").await;
        let values: Vec<_> = response.fields.get_all("x-a").iter().collect();
        assert_eq!((values.len(), response.field("content-length")), (2, "178"), "its own length");
        assert_eq!(response.field("transfer-encoding"), "");
        assert_eq!(response.json()["X-A"], serde_json::json!(["1", "2"]));
        let html = get("/response-headers?Content-Type=text/html&X=%3Cb%3E").await;
        assert!(html.text().contains("&lt;b&gt;") && !html.text().contains("<b>"), "{html:?}");
    }

    #[tokio::test]
    async fn trailers_follow_the_content_unless_they_are_forbidden() {
        let provider = TestProvider::new(Options::default());
        let CallOutcome::Takeover(taken_over) =
            provider.call(request("GET", "/trailers?X-Sum=abc", &[], "")).await
        else {
            panic!("hyper would drop the trailers");
        };
        assert!(format!("{taken_over:?}").contains("Chunks"), "{taken_over:?}");
        for name in ["Content-Length", "authorization", "Trailer"] {
            let response = get(&format!("/trailers?{name}=1")).await;
            assert_eq!(response.json()["detail"], format!("forbidden trailer: {name}"));
        }
    }
}
