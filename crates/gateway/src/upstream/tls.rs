//! TLS towards providers: what is trusted, what is shown, and the stream itself. And from clients, where a listener speaks it.

mod error;
mod stream;
mod trust;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use egret_config::{CERTIFICATES_BYTES_MAX, Problem, Secret, read_file};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::config::{ListenTlsConfig, ProviderTlsConfig, TlsVerify};
use crate::upstream::authority::Host;
use trust::Trust;

pub use error::TlsError;
pub use stream::{DetachedTlsStream, TlsStream, accept, handshake};

/// Sessions kept for resumption per [`ClientTls`], eight to a host; their table is allocated at once.
const SESSIONS_MAX: usize = 256;

/// How to speak TLS to one provider, or to all hosts that are not configured. Sessions are resumed between all connections
/// made with clones of the same value, so keep it over a reload that does not change it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Compiles the `tls` keys at `path` (`providers.NAME.tls`) and reads the files that they name. All
    /// problems are reported at once.
    ///
    /// Trusted are the system's authorities, or Mozilla's where the system has none, and those of `ca`; and
    /// of `ca` the very certificates that are self-signed. TLS 1.2 and 1.3 are spoken, HTTP/1.1 is negotiated
    /// (RFC 7301), sessions are resumed.
    pub fn compile(config: &ProviderTlsConfig, path: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let trust = trust(config, path, &mut problems);
        let identity = identity(config, path, &mut problems);
        let server_name = config.server_name.as_deref().and_then(|name| {
            let parsed = Host::parse(name.as_bytes()).map_err(|error| error.to_string());
            let problem = |error: String| {
                Problem::new(format!("{path}.server_name"), format!("`{name}` is no server name: {error}"))
            };
            parsed.and_then(|host| server_name(&host)).map_err(|error| problems.push(problem(error))).ok()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| vec![Problem::new(path, format!("TLS is not available: {error}"))])?;
        let verifier = if config.verify == TlsVerify::Full {
            trust
                .verifier()
                .map_err(|error| vec![Problem::new(path, format!("TLS is not available: {error}"))])?
        } else {
            Arc::new(NoVerification)
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                vec![Problem::new(
                    format!("{path}.key"),
                    format!("the key cannot be used with the certificate: {error}"),
                )]
            })?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// The name to ask for and to find in the certificate: the configured one or the host's own.
    fn server_name(&self, host: &Host) -> Result<ServerName<'static>, TlsError> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host).map_err(|_| TlsError::Name),
        }
    }
}

/// How a listener speaks TLS with its clients.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Compiles the `tls` keys at `path` (`gateway.listen[0].tls`) and reads the files that they name. All problems are reported at
    /// once.
    ///
    /// TLS 1.2 and 1.3 are spoken and HTTP/1.1 is negotiated; no certificate is asked of clients.
    pub fn compile(config: &ListenTlsConfig, path: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let chain = certificates(&config.certificate, &format!("{path}.certificate"), &mut problems);
        let key = private_key(&config.key, path, &mut problems);
        let (Some(key), true) = (key, problems.is_empty()) else { return Err(problems) };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| vec![Problem::new(path, format!("TLS is not available: {error}"))])?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| {
            let message = format!("the key cannot be used with the certificate: {error}");
            vec![Problem::new(format!("{path}.key"), message)]
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config) })
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, String> {
    match host {
        Host::Name(name) => ServerName::try_from(name.to_string()).map_err(|error| error.to_string()),
        Host::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
    }
}

/// One provider of cryptography for the whole process.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())).clone()
}

/// The system's authorities, or Mozilla's where it has none; read once, since that takes milliseconds.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Stores hold certificates that are too old to parse; the others still count.
        let (_, ignored) = roots.add_parsable_certificates(found.certs);
        if ignored > 0 || !found.errors.is_empty() {
            tracing::debug!(message = "Some of the system's certificates cannot be used.", ignored, errors = ?found.errors);
        }
        if roots.is_empty() {
            tracing::info!(message = "The system has no certificate authorities; Mozilla's are used.");
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Arc::new(roots)
    };
    ROOTS.get_or_init(load).clone()
}

/// Whom the certificate has to be from.
fn trust(config: &ProviderTlsConfig, path: &str, problems: &mut Vec<Problem>) -> Trust {
    let path = format!("{path}.ca");
    if config.ca.is_some() && config.verify == TlsVerify::DangerouslyOff {
        problems.push(Problem::new(
            path.as_str(),
            "`verify: dangerously-off` trusts everybody: leave out one of the two",
        ));
        return Trust::load(None, &path, problems);
    }
    Trust::load(config.ca.as_deref(), &path, problems)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(config: &ProviderTlsConfig, path: &str, problems: &mut Vec<Problem>) -> Option<Identity> {
    let (file, key) = match (&config.certificate, &config.key) {
        (None, None) => return None,
        (Some(file), Some(key)) => (file, key),
        (Some(_), None) => {
            problems.push(Problem::new(path, "`certificate` needs `key` beside it"));
            return None;
        }
        (None, Some(_)) => {
            problems.push(Problem::new(path, "`key` needs `certificate` beside it"));
            return None;
        }
    };
    let chain = certificates(file, &format!("{path}.certificate"), problems);
    Some((chain, private_key(key, path, problems)?))
}

fn private_key(key: &Secret, path: &str, problems: &mut Vec<Problem>) -> Option<PrivateKeyDer<'static>> {
    // The parser's error may quote the key, so it is not repeated.
    let parsed = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).ok();
    if parsed.is_none() {
        problems.push(Problem::new(format!("{path}.key"), format!("{key} holds no private key in PEM")));
    }
    parsed
}

/// The certificates of a PEM file, at least one.
fn certificates(file: &Path, path: &str, problems: &mut Vec<Problem>) -> Vec<CertificateDer<'static>> {
    let read = read_file(file, CERTIFICATES_BYTES_MAX).map_err(|error| error.to_string());
    let found = read.and_then(|bytes| {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        found.map_err(|error| error.to_string())
    });
    let message = match found {
        Ok(found) if !found.is_empty() => return found,
        Ok(_) => format!("{} holds no certificate in PEM", file.display()),
        Err(error) => format!("cannot read certificates from {}: {error}", file.display()),
    };
    problems.push(Problem::new(path, message));
    Vec::new()
}

/// Believes everybody, for `verify: dangerously-off`.
#[derive(Debug)]
struct NoVerification;

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
