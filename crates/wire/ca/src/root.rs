//! The root certificate, as a person recognizes it.

use aws_lc_rs::digest::{SHA256, digest};
use egret_clock::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::pem;

/// The certificate that clients trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    der: CertificateDer<'static>,
    name: String,
    not_after: Timestamp,
}

impl Root {
    /// Reads a certificate. `None` if it cannot be parsed.
    pub(crate) fn read(der: CertificateDer<'static>) -> Option<Self> {
        let (name, not_after) = {
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
            (name, certificate.validity().not_after.timestamp())
        };
        Some(Self { der, name, not_after: Timestamp::from_secs(u64::try_from(not_after).ok()?) })
    }

    /// The certificate.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        pem::certificate(&self.der)
    }

    /// The common name, such as `Egret root 1f2e3d4c`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time from which the certificate is not valid any more.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// SHA-256 of the certificate, as pairs of hexadecimal digits with colons between them.
    pub fn fingerprint(&self) -> String {
        let digest = digest(&SHA256, &self.der);
        let pairs: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        pairs.join(":")
    }
}
