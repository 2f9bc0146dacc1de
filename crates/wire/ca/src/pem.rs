//! Certificates as text (RFC 7468).

use data_encoding::BASE64;

/// Length of a line (RFC 7468 §2).
const LINE_CHARS: usize = 64;

/// Returns a certificate in PEM.
pub fn certificate(der: &[u8]) -> String {
    let encoded = BASE64.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(LINE_CHARS.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    proptest! {
        #[test]
        fn a_certificate_reads_back(der in prop::collection::vec(any::<u8>(), 1..300)) {
            let text = super::certificate(&der);
            prop_assert!(text.lines().all(|line| line.len() <= super::LINE_CHARS));
            prop_assert_eq!(&*CertificateDer::from_pem_slice(text.as_bytes()).unwrap(), &der[..]);
        }
    }
}
