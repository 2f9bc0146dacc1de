//! Which certificates of a provider are believed: those that an authority has signed, and those that `tls.ca`
//! holds themselves.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use egret_config::Problem;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{certificates, provider, system_roots};

/// Whom a provider's certificate has to be from.
#[derive(Debug)]
pub(super) struct Trust {
    roots: Arc<RootCertStore>,
    pins: Vec<Pin>,
}

/// One certificate that is believed where a provider shows just that, whoever has signed it.
#[derive(Debug)]
struct Pin {
    certificate: CertificateDer<'static>,
    /// It alone.
    root: RootCertStore,
}

impl Trust {
    /// The system's authorities, and what `file` holds if one is named: authorities, and self-signed
    /// certificates of servers. What is wrong with it is noted at `path`.
    pub fn load(file: Option<&Path>, path: &str, problems: &mut Vec<Problem>) -> Self {
        let system = system_roots();
        let Some(file) = file else { return Self { roots: system, pins: Vec::new() } };
        let (mut roots, mut pins) = (RootCertStore::clone(&system), Vec::new());
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
            let kind = Kind::of(&certificate, &alone);
            if kind == Kind::Authority {
                roots.extend(alone.roots.iter().cloned());
            }
            if kind != Kind::Neither {
                is_useful = true;
                pins.push(Pin { certificate, root: alone });
            }
        }
        if !is_useful {
            let message = format!(
                "{} holds no authority, and no self-signed certificate of a server: put the certificate of the authority into it \
                 that has signed the provider's",
                file.display()
            );
            problems.push(Problem::new(path, message));
        }
        Self { roots: Arc::new(roots), pins }
    }

    /// What judges a provider's certificate.
    pub fn verifier(self) -> Result<Arc<dyn ServerCertVerifier>, String> {
        let builder = WebPkiServerVerifier::builder_with_provider(self.roots, provider());
        let signed = builder.build().map_err(|error| error.to_string())?;
        Ok(if self.pins.is_empty() { signed } else { Arc::new(Verifier { pins: self.pins, signed }) })
    }
}

/// What a certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It signs others: `cA` is set in its basic constraints (RFC 5280 §4.2.1.9), or it is too old to have any.
    Authority,
    /// It is a server's, signed with its own key.
    Server,
    /// Somebody else has signed it, or it is not for a server.
    Neither,
}

impl Kind {
    /// The kind of `certificate`, by what is said of it where a server shows it that nobody but itself
    /// vouches for. `alone` holds it alone.
    fn of(certificate: &CertificateDer<'_>, alone: &RootCertStore) -> Self {
        // One of version 1 has no extension that could say so, and cannot be shown by a server either.
        let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return Self::Authority };
        let mut judged = judge(&parsed, alone, UnixTime::since_unix_epoch(Duration::ZERO));
        // The kind does not change with time: it is asked for at the moment from which on it is valid.
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

/// Judges dates, use and signature of a certificate that a server shows, but no name.
fn judge(
    certificate: &ParsedCertificate<'_>,
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(certificate, roots, &[], now, algorithms)
}

/// Whether a certificate was refused since it is one of an authority. Its dates are good then: they are
/// judged before.
fn is_of_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Believes the certificates that are pinned, for their names and dates, and those that an authority has
/// signed.
#[derive(Debug)]
struct Verifier {
    pins: Vec<Pin>,
    signed: Arc<WebPkiServerVerifier>,
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
        let Some(pin) = self.pins.iter().find(|pin| pin.certificate == *end_entity) else {
            return self.signed.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        match judge(&certificate, &pin.root, now) {
            // Many a self-signed certificate is made out as an authority's: `openssl req -x509` does so
            // unless told otherwise.
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
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
