//! A certificate for a proxy that serves TLS, made for each turn.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// A certificate and its key, in PEM.
pub(crate) struct MadeCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Makes a certificate for `localhost` and the address, with a key of P-256 and signed by itself. It may sign
/// certificates too, for proxies that intercept.
pub(crate) fn make(address: &str) -> Result<MadeCertificate, rcgen::Error> {
    let mut names = vec!["localhost".to_owned()];
    if address != "localhost" {
        names.push(address.to_owned());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Proxy of Egret's lab");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(MadeCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_its_key_are_pem() {
        for address in ["127.0.0.1", "localhost", "10.0.0.7", "::1"] {
            let made = make(address).unwrap();
            assert!(made.certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{address}");
            assert!(made.key.starts_with("-----BEGIN PRIVATE KEY-----"), "{address}");
        }
    }
}
