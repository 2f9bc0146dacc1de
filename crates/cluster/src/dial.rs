//! Sockets to the servers of the store, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use egret_config::{CERTIFICATES_BYTES_MAX, read_file};
use egret_net::tls::{
    CaError, Identity, Verification, add_authorities, client_config, provider, system_roots,
};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::config::{Address, RedisConfig, RedisTlsConfig};
use super::connection::StoreTrouble;
use super::guard::Stream;

/// Maximum number of addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Opens a stream to a server.
pub(super) async fn open(config: &RedisConfig, address: &Address) -> Result<Box<dyn Stream>, StoreTrouble> {
    let (host, port) = match address {
        Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Tcp(host, port) => (host, *port),
    };
    if !config.has_tls() {
        return Ok(Box::new(tcp(host, port).await?));
    }
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(tls(config.tls.as_ref())?));
    let stream = connector.connect(name, tcp(host, port).await?).await?;
    Ok(Box::new(stream))
}

/// Connects to all addresses of a host at once, and returns the first connection.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?.take(ADDRESSES_MAX);
    let mut dials: JoinSet<io::Result<TcpStream>> = addresses.map(dial).collect();
    let mut trouble = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(dialled) = dials.join_next().await {
        match dialled.map_err(io::Error::other).flatten() {
            Ok(stream) => return Ok(stream),
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}

async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads the files for each connection: they may have been renewed.
fn tls(config: Option<&RedisTlsConfig>) -> Result<ClientConfig, StoreTrouble> {
    let roots = match config.and_then(|tls| tls.ca.as_deref()) {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            add_authorities(file, &mut roots).map_err(|error| named(file, &error))?;
            Arc::new(roots)
        }
        None => system_roots(),
    };
    let identity = config.map(identity).transpose()?.flatten();
    let verification = Verification::Authorities(roots);
    let mut config = client_config(provider(), DEFAULT_VERSIONS, verification, identity)
        .map_err(|error| StoreTrouble::File(error.to_string()))?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn identity(tls: &RedisTlsConfig) -> Result<Option<Identity>, StoreTrouble> {
    let (Some(file), Some(key)) = (&tls.certificate, &tls.key) else { return Ok(None) };
    let bytes =
        read_file(file, CERTIFICATES_BYTES_MAX).map_err(|error| named(file, &CaError::Read(error)))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| named(file, &CaError::Pem(error)))?;
    // The parser's error may quote the key.
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| StoreTrouble::File("`tls.key` contains no private key in PEM".to_owned()))?;
    Ok(Some((chain, key)))
}

fn named(file: &Path, error: &CaError) -> StoreTrouble {
    StoreTrouble::File(format!("{}: {error}", file.display()))
}
