//! The HTTP client of exporters and of single documents: one kept connection, one request at a time, with
//! time limits.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use egret_items::opaque;
use egret_net::config::ProxyConfig;
use egret_net::tls::{
    CaError, ClientConfigError, Verification, add_authorities, client_config, provider, system_roots,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{
    CACHE_CONTROL, HOST, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use rustls::DEFAULT_VERSIONS;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::tunnel::{Connection, RouteError, Tunnel, TunnelError};

/// Maximum number of bytes read of a response body.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
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
    /// The way through a proxy, if there is one.
    tunnel: Option<Tunnel>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Header fields sent with every request.
    fields: Vec<(HeaderName, HeaderValue)>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

opaque!(Http { address });

/// The response of a server.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Wait that the server asks for before the next request.
    pub retry_after: Option<Duration>,
    /// Time for which the response stays fresh (`max-age`, RFC 9111 §5.2.2.1).
    pub max_age: Option<Duration>,
    /// Body of the response; empty if it is too long or could not be read.
    pub body: Bytes,
}

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest<'a> {
    /// GET, POST or PUT.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Header fields besides `Host`, `User-Agent` and `Content-Length`.
    pub fields: &'a [(HeaderName, &'a str)],
    /// Body of the request.
    pub body: Bytes,
}

/// The reason why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host is not valid in a header field.
    #[error("{0}")]
    Host(InvalidHeaderValue),
    /// This host has no name for TLS.
    #[error("{0}: {1}")]
    ServerName(String, InvalidDnsNameError),
    /// The authorities in this file cannot be trusted.
    #[error("ca: {0}: {1}")]
    Ca(PathBuf, CaError),
    /// TLS is not available.
    #[error("{0}")]
    Tls(ClientConfigError),
    /// It is not known how the server is reached.
    #[error("{0}")]
    Route(#[from] RouteError),
}

/// A request that failed. It contains no secret.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {reason}")]
pub struct RequestError {
    /// Host and port of the server.
    address: String,
    reason: RequestFailure,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
enum RequestFailure {
    /// There was no connection in time.
    #[error("no connection within 10 s")]
    NoConnection,
    /// There was no response in time.
    #[error("no response within 60 s")]
    NoResponse,
    /// The connection, or its TLS handshake, failed.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The proxy opened no tunnel.
    #[error("{0}")]
    Tunnel(TunnelError),
    /// The connection failed during the exchange.
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(#[from] hyper::http::Error),
}

impl Http {
    /// Returns a client of the server of `url`, which it reaches through `proxy` if that is for this server.
    /// `ca` is a file of authorities that it trusts in addition to the system's.
    pub fn new(url: &Url, ca: Option<&Path>, proxy: Option<&ProxyConfig>) -> Result<Self, ClientError> {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
        let tls = if url.scheme() == "https" { Some((connector(ca)?, server_name(host)?)) } else { None };
        let tunnel = match proxy {
            Some(proxy) => Tunnel::to(host, port, tls.is_some(), proxy)?,
            None => None,
        };
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let host_value = HeaderValue::try_from(authority).map_err(ClientError::Host)?;
        Ok(Self {
            address: format!("{host}:{port}"),
            host: host_value,
            tunnel,
            tls,
            fields: Vec::new(),
            connection: None,
        })
    }

    /// Adds header fields to every request.
    pub fn add_fields(&mut self, fields: Vec<(HeaderName, HeaderValue)>) {
        self.fields.extend(fields);
    }

    /// Sends a request. If a kept connection fails, the request is sent once more on a new one.
    pub async fn send(&mut self, request: HttpRequest<'_>) -> Result<HttpResponse, RequestError> {
        let exchange = async {
            if let Some(kept) = self.connection.take().filter(|connection| !connection.is_closed())
                && let Ok(response) = self.exchange(kept, request.clone()).await
            {
                return Ok(response);
            }
            let new = timeout(CONNECT_MAX, self.connect()).await;
            let new = new.unwrap_or(Err(RequestFailure::NoConnection))?;
            self.exchange(new, request).await
        };
        let response = timeout(REQUEST_MAX, exchange).await.unwrap_or(Err(RequestFailure::NoResponse));
        response.map_err(|reason| RequestError { address: self.address.clone(), reason })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, RequestFailure> {
        let stream: Box<dyn Connection> = if let Some(tunnel) = &self.tunnel {
            tunnel.open().await.map_err(RequestFailure::Tunnel)?
        } else {
            let stream = TcpStream::connect(&self.address).await?;
            let _ = stream.set_nodelay(true);
            Box::new(stream)
        };
        match &self.tls {
            None => drive(stream).await,
            Some((connector, name)) => drive(connector.connect(name.clone(), stream).await?).await,
        }
    }

    async fn exchange(
        &mut self,
        mut connection: SendRequest<Full<Bytes>>,
        request: HttpRequest<'_>,
    ) -> Result<HttpResponse, RequestFailure> {
        let mut head = Request::builder()
            .method(request.method)
            .uri(request.target)
            .header(HOST, self.host.clone())
            .header(USER_AGENT, concat!("egret/", env!("CARGO_PKG_VERSION")));
        for (name, value) in request.fields {
            head = head.header(name, *value);
        }
        for (name, value) in &self.fields {
            head = head.header(name, value);
        }
        let request = head.body(Full::new(request.body))?;
        connection.ready().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if body.is_ok() {
            self.connection = Some(connection);
        }
        Ok(HttpResponse {
            status: head.status.as_u16(),
            max_age: max_age(&head.headers),
            retry_after: retry_after.map(|secs: u64| Duration::from_secs(secs.min(RETRY_AFTER_SECS_MAX))),
            body: body.unwrap_or_default(),
        })
    }
}

fn max_age(fields: &HeaderMap) -> Option<Duration> {
    let values = fields.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let seconds =
        |directive: &str| directive.trim().to_ascii_lowercase().strip_prefix("max-age=")?.parse().ok();
    values.flat_map(|value| value.split(',')).find_map(seconds).map(Duration::from_secs)
}

/// Opens an HTTP connection on a stream, and drives it in a task.
async fn drive<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, RequestFailure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn server_name(host: &str) -> Result<ServerName<'static>, ClientError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|error| ClientError::ServerName(host.to_owned(), error))
}

/// Returns a connector for TLS 1.2 and 1.3. It trusts the system's authorities, or Mozilla's if the system
/// has none, and those of `ca`.
fn connector(ca: Option<&Path>) -> Result<TlsConnector, ClientError> {
    let mut roots = system_roots();
    if let Some(file) = ca {
        let added = add_authorities(file, Arc::make_mut(&mut roots));
        added.map_err(|error| ClientError::Ca(file.to_owned(), error))?;
    }
    let verification = Verification::Authorities(roots);
    let config = client_config(provider(), DEFAULT_VERSIONS, verification, None).map_err(ClientError::Tls)?;
    Ok(Arc::new(config).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_response_is_read_from_its_directives() {
        let age = |values: &[&'static str]| {
            let fields = values.iter().map(|value| (CACHE_CONTROL, HeaderValue::from_static(value)));
            max_age(&fields.collect()).map(|age| age.as_secs())
        };
        assert_eq!(age(&["public, Max-Age=3600 , must-revalidate"]), Some(3_600));
        assert_eq!(age(&["no-transform", "max-age=5"]), Some(5));
        for none in
            ["", "no-store", "max-age", "max-age=", "max-age=x", "max-age=\"5\"", "s-maxage=5", "max-age=-1"]
        {
            assert_eq!(age(&[none]), None, "{none}");
        }
    }

    #[test]
    fn a_file_of_authorities_that_is_of_no_use_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let shown = file.display();
        let url = Url::parse("https://collector.example").unwrap();
        let error = || Http::new(&url, Some(&file), None).unwrap_err().to_string();
        assert!(error().starts_with(&format!("ca: {shown}: No such file")), "{}", error());
        std::fs::write(&file, "none").unwrap();
        assert_eq!(error(), format!("ca: {shown}: the file contains no certificate"));
    }
}
