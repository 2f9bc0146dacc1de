//! TLS to providers, and from clients on listeners that use it: trust, certificates and the stream itself.

mod client;
mod clients;
mod error;
pub mod hello;
mod stream;
mod trust;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use egret_config::{CERTIFICATES_BYTES_MAX, Problem, Secret, read_file};
use egret_items::opaque;
use egret_message::authority::Host;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig};

use crate::config::{ListenTlsConfig, ProviderTlsConfig, TlsVerify};

pub use client::{
    CaError, ClientConfigError, Identity, Verification, add_authorities, client_config, distrust, provider,
    system_roots, time,
};
pub use error::TlsError;
pub use stream::{DetachedTlsStream, TlsStream, accept, accept_hello, handshake};
pub use trust::Trust;

/// Maximum number of sessions kept for resumption per [`ClientTls`], eight per host. Their table is allocated
/// at once.
const SESSIONS_MAX: usize = 256;

/// The TLS settings for one provider, or for all hosts that are not configured. All connections made with
/// clones of the same value share their sessions, so keep the value over a reload that does not change it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

opaque!(ClientTls { server_name });

impl ClientTls {
    /// Returns the settings, for a connection of another kind than the gateway's.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Compiles the `tls` keys at `path` (`providers.NAME.tls`) and reads the files that they name. Reports
    /// all problems at once.
    ///
    /// The system's authorities are trusted, or Mozilla's if the system has none, and those in `ca`.
    /// Self-signed certificates in `ca` are accepted as they are. TLS 1.2 and 1.3 are enabled, HTTP/1.1 is
    /// negotiated (RFC 7301), and sessions are resumed.
    pub fn compile(config: &ProviderTlsConfig, path: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let trust = trust(config, path, &mut problems);
        let identity = identity(config, path, &mut problems);
        let server_name = config.server_name.as_deref().and_then(|name| {
            let mut problem = |error: &dyn fmt::Display| {
                let message = format!("`{name}` is not a server name: {error}");
                problems.push(Problem::new(format!("{path}.server_name"), message));
            };
            let host = Host::parse(name.as_bytes()).map_err(|error| problem(&error)).ok()?;
            server_name(&host).map_err(|error| problem(&error)).ok()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let verification = match config.verify {
            TlsVerify::Full => Verification::Verifier(trust.verifier()),
            TlsVerify::DangerouslyOff => Verification::Off,
        };
        let built = client_config(provider(), &[&TLS13, &TLS12], verification, identity);
        let mut config = built.map_err(|error| {
            let at = match error {
                ClientConfigError::Suites(_) => path.to_owned(),
                ClientConfigError::Identity(_) => format!("{path}.key"),
            };
            vec![Problem::new(at, error.to_string())]
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// Returns the same settings with an offer of HTTP/2 before HTTP/1.1 (RFC 7301), and the same sessions.
    #[must_use]
    pub fn offering_http2(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = served_protocols(true);
        Self { config: Arc::new(config), server_name: self.server_name.clone() }
    }

    /// Returns the name to send as SNI and to expect in the certificate: the configured one, otherwise the
    /// host's own.
    fn server_name(&self, host: &Host) -> Result<ServerName<'static>, TlsError> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host).map_err(|_| TlsError::Name),
        }
    }
}

/// The TLS settings of a listener.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    client_authorities: Option<Arc<[u8]>>,
}

/// The authorities that sign the certificates of a listener's clients, as configured.
#[derive(Debug, Clone, Copy)]
pub struct ClientAuthorities<'a> {
    /// The file with their certificates, in PEM.
    pub file: &'a Path,
    /// The path of its config key, where its problems are reported.
    pub at: &'a str,
}

opaque!(ServerTls);

/// Returns the protocols that may be negotiated (RFC 7301), HTTP/2 first if `http2`.
pub fn served_protocols(http2: bool) -> Vec<Vec<u8>> {
    let all: [&[u8]; 2] = [b"h2", b"http/1.1"];
    all[usize::from(!http2)..].iter().map(|name| name.to_vec()).collect()
}

impl ServerTls {
    /// Compiles the `tls` keys at `path` (`gateway.listen[0].tls`) and reads the files that they name.
    /// Reports all problems at once.
    ///
    /// TLS 1.2 and 1.3 are enabled, and HTTP/2 or HTTP/1.1 is negotiated. With `authorities`, a client must
    /// show a certificate that one of them has signed for a client; without, none is asked for. There is
    /// neither a result nor a problem if the key is a placeholder.
    pub fn compile(
        config: &ListenTlsConfig,
        path: &str,
        authorities: Option<ClientAuthorities<'_>>,
        http2: bool,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        if config.key.is_placeholder() {
            return Err(problems);
        }
        let chain = certificates(&config.certificate, &format!("{path}.certificate"), &mut problems);
        let key = private_key(&config.key, path, &mut problems);
        let clients = authorities.map(|authorities| clients::Verified::load(authorities, &mut problems));
        let (Some(key), true) = (key, problems.is_empty()) else { return Err(problems) };
        let builder = ServerConfig::builder_with_details(provider(), time())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| vec![Problem::new(path, format!("TLS is not available: {error}"))])?;
        let (builder, client_authorities) = match clients.flatten() {
            Some(clients) => (builder.with_client_cert_verifier(clients.verifier), Some(clients.authorities)),
            None => (builder.with_no_client_auth(), None),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let message = format!("the key cannot be used with the certificate: {error}");
            vec![Problem::new(format!("{path}.key"), message)]
        })?;
        config.alpn_protocols = served_protocols(http2);
        if client_authorities.is_some() {
            clients::verify_each_time(&mut config);
        }
        Ok(Self { config: Arc::new(config), client_authorities })
    }

    /// Returns the certificates of the authorities that clients need one of, one after the other in DER.
    pub fn client_authorities(&self) -> Option<Arc<[u8]>> {
        self.client_authorities.clone()
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match host {
        Host::Name(name) => ServerName::try_from(name.to_string()),
        Host::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
    }
}

/// Returns the issuers and certificates that are trusted.
fn trust(config: &ProviderTlsConfig, path: &str, problems: &mut Vec<Problem>) -> Trust {
    let path = format!("{path}.ca");
    if config.ca.is_some() && config.verify == TlsVerify::DangerouslyOff {
        problems.push(Problem::new(
            path.as_str(),
            "`verify: dangerously-off` accepts every certificate: remove `verify` or `ca`",
        ));
        return Trust::load(None, &path, problems);
    }
    Trust::load(config.ca.as_deref(), &path, problems)
}

fn identity(config: &ProviderTlsConfig, path: &str, problems: &mut Vec<Problem>) -> Option<Identity> {
    let (file, key) = match (&config.certificate, &config.key) {
        (None, None) => return None,
        // Nothing can be said about the pair.
        (Some(_), Some(key)) if key.is_placeholder() => return None,
        (Some(file), Some(key)) => (file, key),
        (Some(_), None) => {
            problems.push(Problem::new(path, "`certificate` requires `key`"));
            return None;
        }
        (None, Some(_)) => {
            problems.push(Problem::new(path, "`key` requires `certificate`"));
            return None;
        }
    };
    let chain = certificates(file, &format!("{path}.certificate"), problems);
    Some((chain, private_key(key, path, problems)?))
}

fn private_key(key: &Secret, path: &str, problems: &mut Vec<Problem>) -> Option<PrivateKeyDer<'static>> {
    // The parser's error may quote the key, so it is not included.
    let parsed = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).ok();
    if parsed.is_none() {
        problems.push(Problem::new(format!("{path}.key"), format!("{key} contains no private key in PEM")));
    }
    parsed
}

/// Returns the certificates of a PEM file, which must hold at least one.
fn certificates(file: &Path, path: &str, problems: &mut Vec<Problem>) -> Vec<CertificateDer<'static>> {
    let read = read_file(file, CERTIFICATES_BYTES_MAX).map_err(|error| error.to_string());
    let found = read.and_then(|bytes| {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        found.map_err(|error| error.to_string())
    });
    let message = match found {
        Ok(found) if !found.is_empty() => return found,
        Ok(_) => format!("{} contains no certificate in PEM", file.display()),
        Err(error) => format!("cannot read certificates from {}: {error}", file.display()),
    };
    problems.push(Problem::new(path, message));
    Vec::new()
}

#[cfg(test)]
mod tests;
