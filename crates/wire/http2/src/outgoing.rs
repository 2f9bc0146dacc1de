//! The text of a request of HTTP/1.1 as a request of HTTP/2 (RFC 9113 §8.3.1).

use egret_http1::{
    HeadLimits, KnownField, MAX_FIELDS, MAX_HEAD, Method, Progress, RequestFraming, RequestHead,
};
use h2::ext::Protocol;
use http::{HeaderMap, Request, Uri};

use crate::response::{Untranslatable, append, is_about_connection};
use crate::websocket::{KEY_FIELD, WEBSOCKET, websocket_accept, websocket_key};

/// Fields whose values may enter the table that all requests of a connection share. Clients of the gateway
/// share the connection, and could guess the values of others by how well their own are compressed (RFC 7541
/// §7.1.3), so only values are listed here that many calls have in common and that are no secret.
const COMMON_FIELDS: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "te",
    "user-agent",
    "via",
    "x-goog-api-client",
];

/// A request that can be sent.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The request, whose secrets are never compressed.
    pub request: Request<()>,
    /// Its method, which decides whether the response has a body.
    pub method: Method,
    /// The framing of its body in HTTP/1.1.
    pub framing: RequestFraming,
    /// Number of bytes of the head in the text.
    pub len: usize,
    /// The value of `Sec-WebSocket-Accept` for the client, if the request opens a WebSocket (RFC 8441).
    pub accept: Option<String>,
}

/// Translates the text of a request's head, which bytes of its body may follow. The fields about the
/// connection are dropped. The request is sent on a connection with TLS if `is_tls`.
pub fn outgoing_request(text: &[u8], is_tls: bool) -> Result<OutgoingRequest, Untranslatable> {
    let limits = HeadLimits { start_line: MAX_HEAD, head: MAX_HEAD, fields: MAX_FIELDS };
    let mut head = RequestHead::new();
    match head.parse(text, &limits) {
        Ok(Progress::Complete) => {}
        Ok(Progress::Partial) | Err(_) => return Err(Untranslatable),
    }
    let host = head.host.ok_or(Untranslatable)?;
    // CONNECT and an absolute target have forms of their own, which no request to a provider takes.
    let target = head.target.of(text);
    if head.authority.is_some() || head.method == Method::Connect {
        return Err(Untranslatable);
    }
    let uri = Uri::builder()
        .scheme(if is_tls { "https" } else { "http" })
        .authority(host.of(text))
        .path_and_query(target)
        .build()
        .map_err(|_| Untranslatable)?;
    // The library drops what it takes for a fragment.
    if uri.path_and_query().is_none_or(|kept| kept.as_str().as_bytes() != target) {
        return Err(Untranslatable);
    }
    let mut request = Request::new(());
    let accept = websocket_key(&head, text).map(websocket_accept);
    *request.method_mut() = if accept.is_some() {
        request.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
        http::Method::CONNECT
    } else {
        http::Method::from_bytes(head.method_text.of(text)).map_err(|_| Untranslatable)?
    };
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    for field in &head.fields {
        let (name, value) = (field.name.of(text), field.value.of(text));
        match field.known {
            KnownField::Host => {}
            // RFC 9113 §8.2.2: nothing but `trailers` may be asked for.
            KnownField::Te if !value.eq_ignore_ascii_case(b"trailers") => {}
            KnownField::Te => append(request.headers_mut(), b"te", b"trailers")?,
            _ if is_about_connection(name) => {}
            _ if accept.is_some() && name.eq_ignore_ascii_case(KEY_FIELD.as_bytes()) => {}
            _ => append(request.headers_mut(), name, value)?,
        }
    }
    never_index(request.headers_mut());
    Ok(OutgoingRequest { request, method: head.method, framing: head.framing, len: head.len, accept })
}

/// Keeps all but the common `fields` out of the table that all requests of a connection share.
pub(crate) fn never_index(fields: &mut HeaderMap) {
    for (name, value) in fields {
        value.set_sensitive(!COMMON_FIELDS.contains(&name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_becomes_a_request_without_connection_fields() {
        let text = b"POST /p?q=1 HTTP/1.1\r\nHost: h:81\r\nConnection: TE, X-B\r\nTE: trailers\r\nX-A: 1\r\n\
            x-a: 2\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nVia: 1.1 egret\r\n\r\n3\r\nabc";
        let translated = outgoing_request(text, true).unwrap();
        assert_eq!(&text[translated.len..], b"3\r\nabc");
        assert_eq!((translated.method, translated.framing), (Method::Post, RequestFraming::Chunked));
        let request = translated.request;
        assert_eq!(
            (request.method().as_str(), request.uri().to_string()),
            ("POST", "https://h:81/p?q=1".into())
        );
        let fields: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes(), value.is_sensitive()))
            .collect();
        let expected: [(&str, &[u8], bool); 4] = [
            ("te", b"trailers", false),
            ("x-a", b"1", true),
            ("x-a", b"2", true),
            ("via", b"1.1 egret", false),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_upgrade_to_websocket_becomes_an_extended_connect() {
        let text = b"GET /chat?a=1 HTTP/1.1\r\nHost: h:81\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        let translated = outgoing_request(text, true).unwrap();
        assert_eq!(translated.accept.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        let request = translated.request;
        assert_eq!(
            (request.method(), request.uri().to_string()),
            (&http::Method::CONNECT, "https://h:81/chat?a=1".into())
        );
        assert_eq!(request.extensions().get::<Protocol>().map(Protocol::as_str), Some("websocket"));
        let names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["sec-websocket-version"]);
    }

    #[test]
    fn credentials_are_never_compressed() {
        for name in ["authorization", "cookie", "x-api-key", "api-key", "x-own-credential", "proxy-token"] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: s3cret\r\n\r\n");
            let translated = outgoing_request(text.as_bytes(), true).unwrap();
            assert!(translated.request.headers()[name].is_sensitive(), "{name}");
        }
    }

    #[test]
    fn trailers_are_never_compressed() {
        let mut trailers = crate::response::trailer_map(b"x-signature: s3cret\r\n").unwrap();
        never_index(&mut trailers);
        assert!(trailers["x-signature"].is_sensitive());
    }

    #[test]
    fn a_request_without_a_form_in_http_2_is_refused() {
        for text in [
            "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "",
        ] {
            assert!(outgoing_request(text.as_bytes(), false).is_err(), "{text:?}");
        }
        let options = outgoing_request(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", false).unwrap();
        assert_eq!(options.request.uri().path_and_query().map(http::uri::PathAndQuery::as_str), Some("*"));
    }
}
