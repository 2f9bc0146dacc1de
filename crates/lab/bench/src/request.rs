//! Serializes requests.

use std::fmt::Write;

use bytes::Bytes;
use data_encoding::BASE64;
use egret_http1::Method;

use crate::error::Error;
use crate::session::Http2Request;
use crate::url::Url;

/// The parts of a request, except its URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestParts {
    /// The method.
    pub method: String,
    /// The user's header field lines, `Name: value`. They replace default fields of the same name.
    pub fields: Vec<String>,
    /// The cookies, each `NAME=VALUE`.
    pub cookies: Vec<String>,
    /// `USER:PASSWORD` for the target.
    pub authorization: Option<String>,
    /// `USER:PASSWORD` for the proxy.
    pub proxy_authorization: Option<String>,
    /// The body with its content type.
    pub body: Option<RequestBody>,
    /// Keeps the connection open.
    pub keep_alive: bool,
    /// Uses HTTP/1.0 and sends exactly the request that ab sends.
    pub ab_compat: bool,
    /// Uses the absolute form of the target, for a forward proxy.
    pub absolute: bool,
}

/// A request body.
#[derive(Debug, Clone)]
pub(crate) struct RequestBody {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The value of `Content-Type`.
    pub content_type: String,
    /// Sends the body chunked.
    pub chunked: bool,
}

/// Number of data bytes in a chunk.
const CHUNK_BYTES: usize = 16 << 10;

impl RequestParts {
    /// Renders the request for `url`, with its fields in ab's order.
    pub fn render(&self, url: &Url) -> Vec<u8> {
        let target = if self.absolute { url.to_string() } else { url.path.clone() };
        let version = if self.ab_compat { "1.0" } else { "1.1" };
        let mut head = format!("{} {target} HTTP/{version}\r\n", self.method);
        for (name, value) in self.own_fields(url) {
            if !self.fields.iter().any(|line| names(line, name)) {
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        for line in &self.fields {
            head += line;
            head += "\r\n";
        }
        head += "\r\n";
        let mut bytes = head.into_bytes();
        if let Some(body) = &self.body {
            body.append_to(&mut bytes);
        }
        bytes
    }

    /// The request for `url` of HTTP/2, with the same fields, apart from those about the connection.
    pub fn for_http2(&self, url: &Url) -> Result<Http2Request, Error> {
        let own = self.own_fields(url).into_iter();
        let own = own.filter(|(name, value)| *name != "Host" && !is_of_connection(name, value));
        let own = own.filter(|(name, _)| !self.fields.iter().any(|line| names(line, name)));
        // A recording of HTTP/1.1 may have such fields.
        let given = self.fields.iter().filter(|line| !is_about_connection(line));
        let given = given.filter_map(|line| line.split_once(':'));
        let given = given.map(|(name, value)| (name.trim(), value.trim().to_owned()));
        let (hosts, given): (Vec<_>, Vec<_>) = given.partition(|(name, _)| name.eq_ignore_ascii_case("host"));
        let authority = hosts.first().map_or_else(|| url.authority(), |(_, host)| host.clone());
        let scheme = if url.secure { "https" } else { "http" };
        let mut head = http::Request::builder()
            .method(self.method.as_str())
            .uri(format!("{scheme}://{authority}{}", url.path))
            .version(http::Version::HTTP_2);
        for (name, value) in own.chain(given) {
            head = head.header(name, value);
        }
        let head = head.body(()).map_err(|error| {
            Error::Usage(format!(
                "the request cannot be sent over HTTP/2: {error}: see the URL, -H, -C and -T"
            ))
        })?;
        let body = self.body.as_ref().map(|body| Bytes::from(body.bytes.clone())).unwrap_or_default();
        Ok(Http2Request { head, body })
    }

    fn own_fields(&self, url: &Url) -> Vec<(&'static str, String)> {
        let mut fields = vec![("Host", url.authority())];
        match (self.keep_alive, self.ab_compat) {
            (true, true) => fields.push(("Connection", "Keep-Alive".to_owned())),
            // Connections persist by default in HTTP/1.1 and close by default in HTTP/1.0.
            (true, false) | (false, true) => {}
            (false, false) => fields.push(("Connection", "close".to_owned())),
        }
        if !self.cookies.is_empty() {
            fields.push(("Cookie", self.cookies.join("; ")));
        }
        if let Some(credentials) = &self.authorization {
            fields.push(("Authorization", basic(credentials)));
        }
        // The proxy's credentials must not be sent through a tunnel to the target.
        if let Some(credentials) = self.proxy_authorization.as_ref().filter(|_| self.absolute) {
            fields.push(("Proxy-Authorization", basic(credentials)));
        }
        if let Some(body) = &self.body {
            let framing = if body.chunked {
                ("Transfer-Encoding", "chunked".to_owned())
            } else {
                ("Content-Length", body.bytes.len().to_string())
            };
            fields.extend([framing, ("Content-Type", body.content_type.clone())]);
        }
        let agent = if self.ab_compat {
            "ApacheBench/2.3"
        } else {
            concat!("egret-bench/", env!("CARGO_PKG_VERSION"))
        };
        fields.extend([("User-Agent", agent.to_owned()), ("Accept", "*/*".to_owned())]);
        fields
    }

    /// Renders a CONNECT request for a tunnel to the host of `url`.
    pub fn tunnel(&self, url: &Url) -> Vec<u8> {
        let authority = format!("{}:{}", url.bracketed_host(), url.port);
        let credentials = self.proxy_authorization.as_ref().map(|credentials| basic(credentials));
        let line = credentials.map(|value| format!("Proxy-Authorization: {value}\r\n")).unwrap_or_default();
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{line}\r\n").into_bytes()
    }
}

impl RequestBody {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        if !self.chunked {
            return bytes.extend_from_slice(&self.bytes);
        }
        for piece in self.bytes.chunks(CHUNK_BYTES) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(egret_http1::LAST_CHUNK);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Returns `true` if a field line is valid in a request.
pub(crate) fn is_field_line(line: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(token)
        && !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Returns `true` if a field line is about the connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
pub(crate) fn is_about_connection(line: &str) -> bool {
    line.split_once(':').is_some_and(|(name, value)| is_of_connection(name.trim(), value.trim()))
}

fn is_of_connection(name: &str, value: &str) -> bool {
    const NAMES: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    let is_other_te = name.eq_ignore_ascii_case("te") && !value.eq_ignore_ascii_case("trailers");
    is_other_te || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Returns `true` if a method is valid in a request.
pub(crate) fn is_method(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

/// The method, as far as it affects the framing of the response.
pub(crate) fn method_of(name: &str) -> Method {
    if name == "HEAD" { Method::Head } else { Method::Get }
}

fn names(line: &str, name: &str) -> bool {
    line.split(':').next().is_some_and(|own| own.trim().eq_ignore_ascii_case(name))
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", BASE64.encode(credentials.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(parts: &RequestParts, url: &str) -> String {
        String::from_utf8(parts.render(&url.parse().unwrap())).unwrap()
    }

    #[test]
    fn a_plain_request_closes_unless_kept() {
        let parts = RequestParts { method: "GET".into(), ..RequestParts::default() };
        let expected = format!(
            "GET /x HTTP/1.1\r\nHost: a:8080\r\nConnection: close\r\nUser-Agent: egret-bench/{}\r\nAccept: */*\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text(&parts, "http://a:8080/x"), expected);
        let kept = RequestParts { keep_alive: true, ..parts };
        assert!(!text(&kept, "http://a/").contains("Connection"));
        let compat = RequestParts { ab_compat: true, ..kept };
        let compat = text(&compat, "http://a/");
        assert!(compat.starts_with("GET / HTTP/1.0\r\n") && compat.contains("Connection: Keep-Alive\r\n"));
        assert!(compat.contains("User-Agent: ApacheBench/2.3\r\n"));
    }

    #[test]
    fn a_users_own_field_replaces_ours_whatever_its_case() {
        let fields = vec!["host: b".to_owned(), "USER-AGENT: me".to_owned(), "X-A: 1".to_owned()];
        let parts = RequestParts { method: "GET".into(), fields, ..RequestParts::default() };
        let text = text(&parts, "http://a/");
        assert!(text.contains("\r\nhost: b\r\nUSER-AGENT: me\r\nX-A: 1\r\n"), "{text}");
        assert!(!text.contains("Host: a") && !text.contains("egret-bench"), "{text}");
    }

    #[test]
    fn bodies_have_a_length_or_chunks() {
        let body =
            RequestBody { bytes: vec![b'x'; 20_000], content_type: "text/plain".into(), chunked: false };
        let whole =
            RequestParts { method: "POST".into(), body: Some(body.clone()), ..RequestParts::default() };
        let chunked = RequestParts {
            body: Some(RequestBody { chunked: true, ..body }),
            method: "POST".into(),
            ..RequestParts::default()
        };
        assert!(text(&whole, "http://a/").contains("Content-Length: 20000\r\nContent-Type: text/plain\r\n"));
        let text = text(&chunked, "http://a/");
        assert!(text.contains("Transfer-Encoding: chunked\r\n") && !text.contains("Content-Length"));
        assert!(
            text.contains("\r\n\r\n4000\r\nxxx") && text.ends_with("xxx\r\n0\r\n\r\n"),
            "{}",
            &text[..200]
        );
    }

    #[test]
    fn a_request_of_http2_has_no_fields_about_the_connection() {
        let lines = ["Connection: x", "keep-alive: 5", "Upgrade: h2c", "TE: gzip", "te: trailers", "X-A: 1"];
        let fields = lines.map(str::to_owned).to_vec();
        let parts = RequestParts { method: "GET".into(), fields, ..RequestParts::default() };
        let request = parts.for_http2(&"http://a:81/x".parse().unwrap()).unwrap();
        let mut names: Vec<_> = request.head.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "te", "user-agent", "x-a"]);
        assert_eq!(request.head.uri(), "http://a:81/x");
    }

    #[test]
    fn a_proxy_gets_an_absolute_target_and_credentials() {
        let proxy_authorization = Some("u:p".to_owned());
        let parts = RequestParts {
            method: "GET".into(),
            absolute: true,
            proxy_authorization,
            ..RequestParts::default()
        };
        let forwarded = text(&parts, "http://a:81/x");
        assert!(forwarded.starts_with("GET http://a:81/x HTTP/1.1\r\n"));
        assert!(forwarded.contains("Proxy-Authorization: Basic dTpw\r\n"));
        let tunnel = String::from_utf8(parts.tunnel(&"https://[::1]/".parse().unwrap())).unwrap();
        assert_eq!(
            tunnel,
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        );
        let inside = RequestParts { absolute: false, ..parts };
        assert!(!text(&inside, "https://a/").contains("Proxy-Authorization"));
    }

    #[test]
    fn a_field_line_cannot_smuggle_another() {
        assert!(is_field_line("X-A: b") && is_field_line("X-A:"));
        for line in ["", "X-A", ": b", "X A: b", "X-A: b\r\nC: d", "X-A: b\nC: d"] {
            assert!(!is_field_line(line), "{line:?}");
        }
        assert!(is_method("PATCH") && !is_method("GE T") && !is_method(""));
    }

    proptest! {
        #[test]
        fn every_rendered_head_is_one_that_the_parser_accepts(
            keep_alive: bool,
            ab_compat: bool,
            body in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
            value in "[ -~]{0,20}",
        ) {
            let body = body.map(|bytes| RequestBody { bytes, content_type: "a/b".into(), chunked: false });
            let has_body = body.is_some();
            let parts = RequestParts {
                method: "PUT".into(),
                fields: vec![format!("X-Own: {value}")],
                keep_alive,
                ab_compat,
                body,
                ..RequestParts::default()
            };
            let bytes = parts.render(&"http://a.test:81/x?y=1".parse().unwrap());
            let mut head = egret_http1::RequestHead::new();
            let parsed = head.parse(&bytes, &egret_http1::HeadLimits::default());
            prop_assert_eq!(parsed, Ok(egret_http1::Progress::Complete));
            let field = |name: &[u8]| head.fields.iter().find(|field| field.name.of(&bytes).eq_ignore_ascii_case(name));
            prop_assert_eq!(field(b"x-own").unwrap().value.of(&bytes), value.trim().as_bytes());
            prop_assert_eq!(field(b"host").unwrap().value.of(&bytes), b"a.test:81");
            prop_assert_eq!(field(b"content-length").is_some(), has_body);
            prop_assert_eq!(head.persistent, keep_alive);
        }
    }

    #[test]
    fn a_request_of_http2_has_no_fields_of_a_connection() {
        let body = RequestBody { bytes: b"abc".to_vec(), content_type: "a/b".into(), chunked: false };
        let fields = vec!["HOST: b.test".to_owned(), "X-A: 1".to_owned(), "x-a: 2".to_owned()];
        let parts =
            RequestParts { method: "POST".into(), fields, body: Some(body), ..RequestParts::default() };
        let request = parts.for_http2(&"https://a.test/x?y=1".parse().unwrap()).unwrap();
        assert_eq!(request.head.uri(), "https://b.test/x?y=1");
        let names: Vec<&str> = request.head.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-length", "content-type", "user-agent", "accept", "x-a", "x-a"]);
        assert_eq!((request.head.method().as_str(), &request.body[..]), ("POST", &b"abc"[..]));
        let broken = RequestParts { method: "GET".into(), fields: vec!["X-A: \u{1}".to_owned()], ..parts };
        assert!(broken.for_http2(&"http://a.test/".parse().unwrap()).is_err());
    }

    #[test]
    fn cookies_and_credentials_are_sent_as_ab_sends_them() {
        let parts = RequestParts {
            method: "GET".into(),
            cookies: vec!["a=1".into(), "b=2".into()],
            authorization: Some("user:pa:ss".into()),
            ..RequestParts::default()
        };
        let text = text(&parts, "http://a/");
        assert!(text.contains("\r\nCookie: a=1; b=2\r\nAuthorization: Basic dXNlcjpwYTpzcw==\r\n"), "{text}");
    }
}
