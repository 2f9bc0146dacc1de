//! The name in a client's certificate, whose signature and dates have been verified by TLS.

use egret_clock::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::config::NameFrom;
use crate::proven::is_usable;

/// A name, and the time from which its certificate proves nothing any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CertificateName {
    pub name: String,
    pub until: Timestamp,
}

impl CertificateName {
    /// Reads a certificate in DER. Returns `None` if it has no usable name of that kind.
    pub fn read(der: &[u8], from: NameFrom) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let name = match from {
            NameFrom::CommonName => {
                certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned()
            }
            NameFrom::Dns => alternative_name(&certificate, |name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            })?,
            NameFrom::Uri => alternative_name(&certificate, |name| match name {
                GeneralName::URI(uri) => Some((*uri).to_owned()),
                _ => None,
            })?,
        };
        let until = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
        is_usable(&name).then(|| Self { name, until: Timestamp::from_secs(until) })
    }
}

/// Returns the first of the subject's alternative names that `read` takes.
fn alternative_name(
    certificate: &X509Certificate<'_>,
    read: impl Fn(&GeneralName<'_>) -> Option<String>,
) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(read)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(sans: Vec<SanType>, common_name: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = sans;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(uri: &str) -> SanType {
        SanType::URI(uri.try_into().unwrap())
    }

    fn name(der: &[u8], from: NameFrom) -> Option<String> {
        Some(CertificateName::read(der, from)?.name)
    }

    #[test]
    fn each_part_of_a_certificate_may_hold_the_name() {
        let sans = vec![uri("spiffe://prod/checkout"), dns("Checkout.internal"), dns("other.internal")];
        let der = certificate(sans, "Checkout Service");
        assert_eq!(name(&der, NameFrom::Dns).unwrap(), "checkout.internal");
        assert_eq!(name(&der, NameFrom::Uri).unwrap(), "spiffe://prod/checkout");
        assert_eq!(name(&der, NameFrom::CommonName).unwrap(), "Checkout Service");
        let until = CertificateName::read(&der, NameFrom::Dns).unwrap().until;
        assert_eq!(until, Timestamp::from_secs(1_893_456_000));
    }

    #[test]
    fn a_certificate_without_a_usable_name_proves_nothing() {
        let empty = certificate(Vec::new(), "");
        for from in [NameFrom::Dns, NameFrom::Uri, NameFrom::CommonName] {
            assert_eq!(name(&empty, from), None);
            assert_eq!(name(b"junk", from), None);
        }
        for odd in ["a\r\nx-egret-host: b", " a", "é", "*", &"x".repeat(256)] {
            assert_eq!(name(&certificate(Vec::new(), odd), NameFrom::CommonName), None, "{odd}");
        }
        assert_eq!(name(&certificate(vec![dns("*.internal")], "a"), NameFrom::Dns), None);
        assert_eq!(name(&certificate(vec![dns("a.internal")], "a"), NameFrom::Uri), None);
    }
}
