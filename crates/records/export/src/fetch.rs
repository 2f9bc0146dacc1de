//! Fetches documents, and makes other requests of Egret's own, with the HTTP client of exporters.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use egret_config::Secret;
use egret_items::opaque;
use egret_net::config::ProxyConfig;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderName};
use url::{Position, Url};
use zeroize::Zeroizing;

use crate::http::{ClientError, Http, HttpRequest, RequestError};

/// A document.
#[derive(Debug)]
pub struct Fetched {
    /// Its bytes.
    pub body: Bytes,
    /// Time for which its server says that it stays the same (`max-age`, RFC 9111 §5.2.2.1).
    pub max_age: Option<Duration>,
}

/// The reason why there is no document. It contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL or the authorities cannot be used.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// There was no response.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The response has another status than 200. Redirects are not followed.
    #[error("the server responded with {0}")]
    Status(u16),
    /// The method, or the name of a header field, is not valid.
    #[error("the request is not valid")]
    Invalid,
    /// The document is too long, or was cut off.
    #[error("the response has no content, or more than 256 KiB, or was cut off")]
    Content,
}

/// A request of Egret's own.
pub struct ServerRequest<'a> {
    /// GET, POST or PUT.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Header fields besides `Host`, `User-Agent` and `Content-Length`.
    pub fields: &'a [(&'a str, &'a str)],
    /// Body of the request, which is wiped once it was sent.
    pub body: Zeroizing<Vec<u8>>,
}

/// The response to a request of Egret's own.
pub struct ServerResponse {
    /// Status code. Redirects are not followed.
    pub status: u16,
    /// The body; empty if it is longer than 256 KiB, or was cut off.
    pub body: Bytes,
}

opaque!(ServerResponse { status });

impl fmt::Debug for ServerRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// A client of one server. Requests are sent one after the other, on one connection if the server keeps it.
#[derive(Debug)]
pub struct ServerClient(Http);

impl ServerClient {
    /// Returns a client of the server of `url`, which it reaches through `proxy` if that is for this server.
    /// `ca` is a file of authorities that it trusts in addition to the system's.
    ///
    /// # Errors
    ///
    /// Fails if the URL, the authorities or the proxy cannot be used.
    pub fn new(url: &Url, ca: Option<&Path>, proxy: Option<&ProxyConfig>) -> Result<Self, FetchError> {
        Ok(Self(Http::new(url, ca, proxy)?))
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// Fails if there is no response within a minute, and if the request is not valid.
    pub async fn send(&mut self, request: ServerRequest<'_>) -> Result<ServerResponse, FetchError> {
        let name = |name: &str| HeaderName::try_from(name).map_err(|_| FetchError::Invalid);
        let named = request.fields.iter().map(|(field, value)| Ok((name(field)?, *value)));
        let fields = named.collect::<Result<Vec<_>, FetchError>>()?;
        let request = HttpRequest {
            method: Method::try_from(request.method).map_err(|_| FetchError::Invalid)?,
            target: request.target.to_owned(),
            fields: &fields,
            body: Bytes::from_owner(request.body),
        };
        let response = self.0.send(request).await?;
        Ok(ServerResponse { status: response.status, body: response.body })
    }
}

/// Fetches the document at `url`, through `proxy` if that is for its server. `ca` is a file of authorities
/// that are trusted in addition to the system's. `token` is sent as `Authorization: Bearer` (RFC 6750 §2.1).
pub async fn fetch(
    url: &Url,
    ca: Option<&Path>,
    proxy: Option<&ProxyConfig>,
    token: Option<&Secret>,
) -> Result<Fetched, FetchError> {
    let mut http = Http::new(url, ca, proxy)?;
    let bearer = token.map(|token| Zeroizing::new(format!("Bearer {}", token.expose())));
    let field = bearer.as_ref().map(|bearer| (AUTHORIZATION, bearer.as_str()));
    let request = HttpRequest {
        method: Method::GET,
        target: url[Position::BeforePath..Position::AfterQuery].to_owned(),
        fields: field.as_slice(),
        body: Bytes::new(),
    };
    let response = http.send(request).await?;
    match response.status {
        200 if response.body.is_empty() => Err(FetchError::Content),
        200 => Ok(Fetched { body: response.body, max_age: response.max_age }),
        status => Err(FetchError::Status(status)),
    }
}

#[cfg(test)]
mod tests {
    use egret_tests::provider::Provider;
    use tokio::runtime::Builder;

    use super::*;

    /// Fetches a document from a server with this response.
    fn fetched(response: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Fetched, FetchError> {
        let server = Provider::responding(response);
        let url = Url::parse(&format!("{}/keys?a=b", server.url())).unwrap();
        let token = Secret::from_value("${env:TOKEN}", "hunter2".to_owned());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let fetched = runtime.block_on(fetch(&url, None, None, Some(&token)));
        let request = server.only_request();
        assert_eq!(request.line, "GET /keys?a=b HTTP/1.1");
        assert_eq!(request.values("authorization"), ["Bearer hunter2"]);
        fetched
    }

    #[test]
    fn a_client_sends_its_requests_on_one_connection() {
        let server = Provider::responding("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        let url = Url::parse(&server.url()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut client = ServerClient::new(&url, None, None).unwrap();
        let mut send = |fields: &[(&str, &str)]| {
            let body = Zeroizing::new(b"{}".to_vec());
            let request = ServerRequest { method: "POST", target: "/a?b", fields, body };
            runtime.block_on(client.send(request))
        };
        for _ in 0..2 {
            let response = send(&[("x-token", "hunter2")]).unwrap();
            assert_eq!((response.status, &response.body[..]), (403, &b"no"[..]));
        }
        let requests = server.requests();
        assert_eq!((requests.len(), server.connections()), (2, 1));
        assert_eq!((&*requests[0].line, &*requests[0].body), ("POST /a?b HTTP/1.1", &b"{}"[..]));
        assert_eq!(requests[0].values("x-token"), ["hunter2"]);
        for wrong in [("x token", "a"), ("x-token", "hunter2\n")] {
            let error = send(&[wrong]).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_document_is_fetched_with_its_age() {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=900\r\nContent-Length: 2\r\n\r\n";
        let document = fetched(format!("{head}{{}}")).unwrap();
        assert_eq!((&document.body[..], document.max_age), (&b"{}"[..], Some(Duration::from_mins(15))));
    }

    #[test]
    fn other_responses_are_no_documents() {
        let status = |line: &str| {
            let response = format!("HTTP/1.1 {line}\r\nLocation: /other\r\nContent-Length: 1\r\n\r\n1");
            fetched(response).unwrap_err().to_string()
        };
        assert_eq!(status("302 Found"), "the server responded with 302");
        assert_eq!(status("503 Service Unavailable"), "the server responded with 503");
        let long = "a".repeat((256 << 10) + 1);
        for body in ["", &long] {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            assert!(matches!(fetched(response), Err(FetchError::Content)));
        }
    }
}
