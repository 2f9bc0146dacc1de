//! The HTTP client of exporters: one kept connection, one request at a time, with time limits.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use egret_config::{CERTIFICATES_BYTES_MAX, read_file};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

/// Maximum number of bytes read of a response body.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Time limit for a connection and its TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit for a whole request, including the connection.
const REQUEST_MAX: Duration = Duration::from_mins(1);
/// Maximum wait that a server can ask for.
const RETRY_AFTER_SECS_MAX: u64 = 300;

/// A client of one server.
pub struct Http {
    /// Host and port: `collector.example:443`.
    address: String,
    host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Header fields sent with every request.
    fields: Vec<(HeaderName, HeaderValue)>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The response of a server.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Wait that the server asks for before the next request.
    pub retry_after: Option<Duration>,
    /// Body of the response; empty if it is too long or could not be read.
    pub body: Bytes,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// POST or PUT.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Header fields besides `Host`, `User-Agent` and `Content-Length`.
    pub fields: &'a [(HeaderName, &'static str)],
    /// Body of the request.
    pub body: Bytes,
}

/// Parses and checks the URL of a server.
pub fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("expected an `http` or `https` URL".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL must not contain a user or password: put secrets in their own keys".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL must not have a query or fragment".to_owned());
    }
    Ok(url)
}

impl Http {
    /// Returns a client of the server of `url`. `ca` is a file of authorities that it trusts in addition to
    /// the system's.
    pub fn new(url: &Url, ca: Option<&Path>) -> Result<Self, String> {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
        let tls = if url.scheme() == "https" { Some((connector(ca)?, server_name(host)?)) } else { None };
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let host_value = HeaderValue::try_from(authority).map_err(|error| error.to_string())?;
        Ok(Self {
            address: format!("{host}:{port}"),
            host: host_value,
            tls,
            fields: Vec::new(),
            connection: None,
        })
    }

    /// Adds header fields to every request.
    pub fn add_fields(&mut self, fields: Vec<(HeaderName, HeaderValue)>) {
        self.fields.extend(fields);
    }

    /// Sends a request. If a kept connection fails, the request is sent once more on a new one. Errors
    /// contain no secrets.
    pub async fn send(&mut self, call: Call<'_>) -> Result<Answer, String> {
        let exchange = async {
            if let Some(kept) = self.connection.take().filter(|connection| !connection.is_closed())
                && let Ok(answer) = self.exchange(kept, call.clone()).await
            {
                return Ok(answer);
            }
            let new = tokio::time::timeout(CONNECT_MAX, self.connect()).await;
            let new = new.map_err(|_| "no connection within 10 s".to_owned())??;
            self.exchange(new, call).await
        };
        let answer = tokio::time::timeout(REQUEST_MAX, exchange).await;
        let answer = answer.unwrap_or_else(|_| Err("no response within 60 s".to_owned()));
        answer.map_err(|error| format!("{}: {error}", self.address))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => drive(stream).await,
            Some((connector, name)) => {
                drive(connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?).await
            }
        }
    }

    async fn exchange(
        &mut self,
        mut connection: SendRequest<Full<Bytes>>,
        call: Call<'_>,
    ) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.target)
            .header(HOST, self.host.clone())
            .header(USER_AGENT, concat!("egret/", env!("CARGO_PKG_VERSION")));
        for (name, value) in call.fields {
            request = request.header(name, *value);
        }
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(call.body)).map_err(|error| error.to_string())?;
        connection.ready().await.map_err(|error| error.to_string())?;
        let response = connection.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if body.is_ok() {
            self.connection = Some(connection);
        }
        Ok(Answer {
            status: head.status.as_u16(),
            retry_after: retry_after.map(|secs: u64| Duration::from_secs(secs.min(RETRY_AFTER_SECS_MAX))),
            body: body.unwrap_or_default(),
        })
    }
}

/// Opens an HTTP connection on a stream, and drives it in a task.
async fn drive<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|error| format!("{host}: {error}"))
}

/// Returns a connector for TLS 1.2 and 1.3. It trusts the system's authorities, or Mozilla's if the system
/// has none, and those of `ca`.
fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = system_roots().clone();
    if let Some(file) = ca {
        let failed = |error: &dyn std::fmt::Display| format!("ca: {}: {error}", file.display());
        let mut count = 0;
        let bytes = read_file(file, CERTIFICATES_BYTES_MAX).map_err(|error| failed(&error))?;
        for certificate in CertificateDer::pem_slice_iter(&bytes) {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
            count += 1;
        }
        if count == 0 {
            return Err(failed(&"the file contains no certificate"));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(|error| format!("TLS is not available: {error}"))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}

fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        roots
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_could_hold_a_secret_or_is_none_is_refused() {
        assert!(check_url("http://127.0.0.1:8080/api").is_ok());
        for (url, why) in [
            ("collector:80", "expected an `http` or `https` URL"),
            ("ftp://a/", "expected an `http` or `https` URL"),
            ("http://u:hunter2@a/", "a user or password"),
            ("http://a/?key=hunter2", "a query"),
            ("a b", "not a URL"),
        ] {
            let error = check_url(url).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
