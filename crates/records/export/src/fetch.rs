//! Fetches a document, with the HTTP client of exporters.

use std::path::Path;
use std::time::Duration;

use egret_config::Secret;
use egret_net::config::ProxyConfig;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
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
    /// The document is too long, or was cut off.
    #[error("the response has no content, or more than 256 KiB, or was cut off")]
    Content,
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
