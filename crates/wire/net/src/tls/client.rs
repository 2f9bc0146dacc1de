//! The TLS configuration that all of Egret's clients start from: authorities, verification and identity.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use egret_clock::system_time;
use egret_config::{CERTIFICATES_BYTES_MAX, read_file};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};

/// A certificate with its issuers, and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The proof that a client demands of a server.
#[derive(Debug)]
pub enum Verification {
    /// A certificate that one of these authorities has signed for the server's name.
    Authorities(Arc<RootCertStore>),
    /// A certificate that this verifier accepts.
    Verifier(Arc<dyn ServerCertVerifier>),
    /// Any certificate, if the handshake is signed with its key.
    SignatureOnly,
    /// None.
    Off,
}

/// The reason why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// The cipher suites do not match the protocol versions.
    #[error("TLS is not available: {0}")]
    Suites(rustls::Error),
    /// The key cannot be used with the certificate.
    #[error("the key cannot be used with the certificate: {0}")]
    Identity(rustls::Error),
}

/// Returns the configuration of a TLS client, without ALPN.
pub fn client_config(
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    verification: Verification,
    identity: Option<Identity>,
) -> Result<ClientConfig, ClientConfigError> {
    let any = |verifies_signatures| {
        let provider = Arc::clone(&provider);
        Arc::new(AnyCertificate { provider, verifies_signatures }) as Arc<dyn ServerCertVerifier>
    };
    let verifier = match verification {
        Verification::Authorities(roots) => Err(roots),
        Verification::Verifier(verifier) => Ok(verifier),
        Verification::SignatureOnly => Ok(any(true)),
        Verification::Off => Ok(any(false)),
    };
    let builder = ClientConfig::builder_with_details(provider, time())
        .with_protocol_versions(versions)
        .map_err(ClientConfigError::Suites)?;
    let builder = match verifier {
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
        Err(roots) => builder.with_root_certificates(roots),
    };
    match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(ClientConfigError::Identity),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Returns the process's only cryptography provider.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())).clone()
}

/// Returns the clock by which certificates and sessions are valid.
pub fn time() -> Arc<dyn TimeProvider> {
    Arc::new(SystemClock)
}

/// The system's clock, or that of a simulated world.
#[derive(Debug)]
struct SystemClock;

impl TimeProvider for SystemClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_micros(system_time().as_micros())))
    }
}

/// The public keys that no server's certificate may be signed with, as `SubjectPublicKeyInfo`.
static DISTRUSTED: RwLock<Vec<Vec<u8>>> = RwLock::new(Vec::new());

/// Makes all TLS configurations that are created from now on distrust an authority, even if the system or the
/// config trusts it. It is for the authority of intercepted hosts: a thief of its key could otherwise
/// impersonate providers to the gateway itself. It is recognized by its key, so another certificate for the
/// same key is no way around. A certificate that cannot be parsed is trusted by nobody and changes nothing.
pub fn distrust(authority: &CertificateDer<'_>) {
    let Ok(anchor) = webpki::anchor_from_trusted_cert(authority) else { return };
    let mut distrusted = DISTRUSTED.write().unwrap_or_else(PoisonError::into_inner);
    if !distrusted.iter().any(|key| **key == *anchor.subject_public_key_info) {
        distrusted.push(anchor.subject_public_key_info.to_vec());
    }
}

/// Returns `true` if the gateway does not trust this authority, whatever the system and the config say.
pub(super) fn is_distrusted(authority: &TrustAnchor<'_>) -> bool {
    let distrusted = DISTRUSTED.read().unwrap_or_else(PoisonError::into_inner);
    distrusted.iter().any(|key| **key == *authority.subject_public_key_info)
}

/// Returns the system's authorities, or Mozilla's if it has none, without the distrusted ones.
pub fn system_roots() -> Arc<RootCertStore> {
    let roots = all_system_roots();
    if !roots.roots.iter().any(is_distrusted) {
        return roots;
    }
    let trusted = roots.roots.iter().filter(|root| !is_distrusted(root));
    Arc::new(RootCertStore { roots: trusted.cloned().collect() })
}

/// Returns the system's authorities, or Mozilla's if it has none. They are read once, because that takes
/// milliseconds.
fn all_system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // The system may hold certificates too old to parse. The others are still used.
        let (_, ignored) = roots.add_parsable_certificates(found.certs);
        if ignored > 0 || !found.errors.is_empty() {
            tracing::debug!(message = "some of the system's certificates cannot be used", ignored, errors = ?found.errors);
        }
        if roots.is_empty() {
            tracing::info!(message = "the system has no certificate authorities: using Mozilla's");
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Arc::new(roots)
    };
    ROOTS.get_or_init(load).clone()
}

/// The reason why a file of authorities is not usable.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// It cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// It is not PEM.
    #[error("{0}")]
    Pem(pem::Error),
    /// A certificate cannot be an authority.
    #[error("{0}")]
    Certificate(rustls::Error),
    /// It contains no certificate.
    #[error("the file contains no certificate")]
    Empty,
}

/// Adds the certificates in a PEM file to the authorities.
pub fn add_authorities(file: &Path, roots: &mut RootCertStore) -> Result<(), CaError> {
    let before = roots.len();
    let bytes = read_file(file, CERTIFICATES_BYTES_MAX).map_err(CaError::Read)?;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        roots.add(certificate.map_err(CaError::Pem)?).map_err(CaError::Certificate)?;
    }
    if roots.len() == before { Err(CaError::Empty) } else { Ok(()) }
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    verifies_signatures: bool,
}

impl ServerCertVerifier for AnyCertificate {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if !self.verifies_signatures {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if !self.verifies_signatures {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
