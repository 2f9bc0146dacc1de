//! The certificates that are accepted from a provider: those signed by an authority, and those in `tls.ca`
//! themselves.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use egret_clock::planted;
use egret_config::Problem;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::certificates;
use super::client::{is_distrusted, provider, system_roots};

/// The trusted authorities and certificates for a provider. The system's authorities are among them, and are
/// read when the first certificate is verified: a start does not wait for hundreds of files.
#[derive(Debug)]
pub struct Trust {
    /// The authorities beside the system's.
    added: Vec<TrustAnchor<'static>>,
    pins: Vec<Pin>,
}

/// A certificate that is accepted if a provider shows exactly this one, regardless of its issuer.
#[derive(Debug)]
struct Pin {
    certificate: CertificateDer<'static>,
    /// A store with this certificate only.
    root: RootCertStore,
}

impl Trust {
    /// Returns the system's authorities, plus the authorities and self-signed server certificates in `file`,
    /// if one is given. Its problems are reported at `path`.
    pub fn load(file: Option<&Path>, path: &str, problems: &mut Vec<Problem>) -> Self {
        let (mut added, mut pins) = (Vec::new(), Vec::new());
        let Some(file) = file else { return Self { added, pins } };
        let found = certificates(file, path, problems);
        let mut is_useful = found.is_empty();
        for (index, certificate) in found.into_iter().enumerate() {
            let mut alone = RootCertStore::empty();
            if let Err(error) = alone.add(certificate.clone()) {
                let number = index + 1;
                let message = format!("certificate {number} of {} cannot be used: {error}", file.display());
                problems.push(Problem::new(path, message));
                is_useful = true;
                continue;
            }
            if alone.roots.iter().any(is_distrusted) {
                let message = format!(
                    "certificate {} of {} is the authority of intercepted hosts, which is never trusted for a provider",
                    index + 1,
                    file.display()
                );
                problems.push(Problem::new(path, message));
                is_useful = true;
                continue;
            }
            let kind = CertificateKind::of(&certificate, &alone);
            if kind == CertificateKind::Authority {
                added.extend(alone.roots.iter().cloned());
            }
            if kind != CertificateKind::Neither {
                is_useful = true;
                pins.push(Pin { certificate, root: alone });
            }
        }
        if !is_useful {
            let message = format!(
                "{} contains neither an authority nor a self-signed server certificate: add the certificate of the authority \
                 that signed the provider's",
                file.display()
            );
            problems.push(Problem::new(path, message));
        }
        Self { added, pins }
    }

    /// Returns the verifier for a provider's certificate.
    pub fn verifier(self) -> Arc<dyn ServerCertVerifier> {
        let Self { added, pins } = self;
        Arc::new(Verifier { added, pins, signed: OnceLock::new() })
    }
}

/// The use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateKind {
    /// It signs others: `cA` is set in its basic constraints (RFC 5280 §4.2.1.9), or it is too old to have
    /// any.
    Authority,
    /// A server certificate, signed with its own key.
    Server,
    /// Signed by another key, or not for a server.
    Neither,
}

impl CertificateKind {
    /// Returns the kind of `certificate`. It is verified like a server's certificate that only itself vouches
    /// for. `alone` holds only this certificate.
    fn of(certificate: &CertificateDer<'_>, alone: &RootCertStore) -> Self {
        // A version 1 certificate has no extension that could say so. A server cannot show one either.
        let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return Self::Authority };
        let mut judged = judge(&parsed, alone, UnixTime::since_unix_epoch(Duration::ZERO));
        // The kind does not change with time, so it is determined at the start of the validity.
        if let Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before,
            ..
        })) = judged
        {
            judged = judge(&parsed, alone, not_before);
        }
        match judged {
            Ok(()) => Self::Server,
            Err(error) if is_of_authority(&error) => Self::Authority,
            Err(_) => Self::Neither,
        }
    }
}

/// Verifies dates, use and signature of a server's certificate, but not its name.
fn judge(
    certificate: &ParsedCertificate<'_>,
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(certificate, roots, &[], now, algorithms)
}

/// Returns `true` if a certificate was rejected because it belongs to an authority. Its dates are valid then,
/// because they are checked first.
fn is_of_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Accepts pinned certificates, within their names and dates, and certificates signed by an authority.
#[derive(Debug)]
struct Verifier {
    added: Vec<TrustAnchor<'static>>,
    pins: Vec<Pin>,
    /// Verifies signatures of the system's authorities and `added`.
    signed: OnceLock<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn signed(&self) -> Result<&WebPkiServerVerifier, rustls::Error> {
        if let Some(signed) = self.signed.get() {
            return Ok(signed);
        }
        let mut roots = system_roots();
        if !self.added.is_empty() {
            Arc::make_mut(&mut roots).extend(self.added.iter().cloned());
        }
        let built = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        let built = built.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(self.signed.get_or_init(|| built))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // A defect that the simulation plants: its worlds begin with the year 2026.
        let of_beginning = || UnixTime::since_unix_epoch(Duration::from_hours(490_896));
        let now = if planted!(ExpiryIgnored) { of_beginning() } else { now };
        let Some(pin) = self.pins.iter().find(|pin| pin.certificate == *end_entity) else {
            return self.signed()?.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        match judge(&certificate, &pin.root, now) {
            // Many self-signed certificates are marked as an authority's: `openssl req -x509` does so by
            // default.
            Err(error) if !is_of_authority(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        verify_server_name(&certificate, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
