//! The way to a server through the company's proxy of the config, `gateway.upstream_proxy`.

use std::io;
use std::sync::Arc;

use egret_config::Problem;
use egret_message::authority::{Authority, AuthorityError, Host};
use egret_net::config::ProxyConfig;
use egret_net::policy::EgressPolicy;
use egret_net::proxy::handshake::{Handshake, HandshakeError, Step};
use egret_net::proxy::{Proxy, ProxyRules};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

/// Maximum number of bytes that are received at once. A handshake asks for a few.
const PIECE_BYTES: usize = 512;

/// A connection of any kind.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A server that is reached through a proxy.
pub struct Tunnel {
    proxy: Arc<Proxy>,
    /// The server.
    target: Authority,
}

/// The reason why there is no tunnel.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy}: {cause}")]
pub struct TunnelError {
    /// The proxy's URL, without credentials.
    proxy: String,
    cause: TunnelCause,
}

#[derive(Debug, thiserror::Error)]
enum TunnelCause {
    /// It cannot be connected to, or its TLS is wrong, or it has closed the connection.
    #[error("{0}")]
    Connect(io::Error),
    /// It refused, or sent something else.
    #[error("{0}")]
    Handshake(HandshakeError),
}

/// The reason why it cannot be said how a server is reached.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// This is no host with a port.
    #[error("{0}")]
    Host(AuthorityError),
    /// The config of the proxy is wrong.
    #[error("{}: {}", .0.path, .0.message)]
    Proxy(Box<Problem>),
}

impl Tunnel {
    /// Returns the tunnel to a server, or `None` if it is called directly.
    pub fn to(host: &str, port: u16, tls: bool, config: &ProxyConfig) -> Result<Option<Self>, RouteError> {
        let target = Authority::parse(host.as_bytes(), Some(port)).map_err(RouteError::Host)?;
        let policy = Arc::new(EgressPolicy::for_proxies(Vec::new()));
        let variable = |name: &str| std::env::var(name).ok();
        let rules = ProxyRules::compile(config, "gateway.upstream_proxy", &policy, variable);
        let rules = match rules {
            Ok(rules) => rules,
            // The check of the config reports all of them.
            Err(problems) => match problems.into_iter().next() {
                Some(problem) => return Err(RouteError::Proxy(Box::new(problem))),
                None => ProxyRules::default(),
            },
        };
        Ok(rules.choose(tls, &target).map(|proxy| Self { proxy, target }))
    }

    /// Opens the tunnel.
    pub async fn open(&self) -> Result<Box<dyn Connection>, TunnelError> {
        let failed = |cause| TunnelError { proxy: self.proxy.to_string(), cause };
        let mut stream = self.connect().await.map_err(|error| failed(TunnelCause::Connect(error)))?;
        let asked = self.asked().await.map_err(|error| failed(TunnelCause::Connect(error)))?;
        shake_hands(&mut *stream, self.proxy.handshake(&asked)).await.map_err(failed)?;
        Ok(stream)
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let own = self.proxy.authority();
        let stream = TcpStream::connect(own.to_string()).await?;
        let _ = stream.set_nodelay(true);
        let Some(config) = self.proxy.tls_config() else { return Ok(Box::new(stream)) };
        let name = match &own.host {
            Host::Ip(ip) => ServerName::from(*ip),
            Host::Name(name) => ServerName::try_from(name.to_string()).map_err(io::Error::other)?,
        };
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
    }

    /// Returns the server as the proxy is asked for it: by its address if the proxy looks no names up.
    async fn asked(&self) -> io::Result<Authority> {
        let Authority { host, port } = &self.target;
        match host.name().filter(|_| !self.proxy.looks_names_up()) {
            None => Ok(self.target.clone()),
            Some(name) => {
                let mut addresses = lookup_host((name.to_string(), *port)).await?;
                let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
                Ok(Authority { host: Host::Ip(address.ip()), port: *port })
            }
        }
    }
}

async fn shake_hands(stream: &mut dyn Connection, mut handshake: Handshake) -> Result<(), TunnelCause> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        match handshake.step() {
            Step::Send(bytes) => stream.write_all(&bytes).await.map_err(TunnelCause::Connect)?,
            Step::Receive(wanted) => {
                let room = &mut piece[..wanted.min(PIECE_BYTES)];
                let count = stream.read(room).await.map_err(TunnelCause::Connect)?;
                if count == 0 {
                    return Err(TunnelCause::Connect(io::ErrorKind::UnexpectedEof.into()));
                }
                handshake.receive(&piece[..count]).map_err(TunnelCause::Handshake)?;
            }
            Step::Done => return stream.flush().await.map_err(TunnelCause::Connect),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_this_machine_are_called_without_a_proxy() {
        let config = ProxyConfig { url: "http://proxy.example:3128".to_owned(), ..ProxyConfig::default() };
        let has_tunnel = |host: &str| Tunnel::to(host, 443, true, &config).unwrap().is_some();
        for host in ["127.0.0.1", "[::1]", "localhost"] {
            assert!(!has_tunnel(host), "{host}");
        }
        for host in ["collector.example", "10.0.0.1", "[2001:db8::1]"] {
            assert!(has_tunnel(host), "{host}");
        }
        let wrong = ProxyConfig { url: "ftp://proxy.example".to_owned(), ..ProxyConfig::default() };
        let error = Tunnel::to("collector.example", 443, true, &wrong).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("gateway.upstream_proxy.url: this is not the URL of a proxy"), "{error}");
    }
}
