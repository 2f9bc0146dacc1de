//! The TLS details of ab's report.

use rustls::{ClientConnection, NamedGroup, ProtocolVersion};

/// The negotiated parameters of a TLS session, in the terms of ab's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsParameters {
    /// Protocol, cipher suite, bits of the certificate's key, bits of the cipher:
    /// `TLSv1.3,TLS_AES_256_GCM_SHA384,2048,256`.
    pub protocol: String,
    /// The key exchange: `X25519 253 bits`.
    pub exchange: Option<String>,
}

impl TlsParameters {
    /// Reads the parameters of a session after its handshake.
    pub fn of(session: &ClientConnection) -> Self {
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLS",
        };
        let suite =
            session.negotiated_cipher_suite().map(|suite| openssl_name(suite.suite())).unwrap_or_default();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let key_bits = certificate.and_then(|certificate| key_bits(certificate)).unwrap_or(0);
        let cipher_bits = if suite.contains("128") { 128 } else { 256 };
        Self {
            protocol: format!("{version},{suite},{key_bits},{cipher_bits}"),
            exchange: session.negotiated_key_exchange_group().and_then(|group| exchange_name(group.name())),
        }
    }
}

fn exchange_name(group: NamedGroup) -> Option<String> {
    let name = match group {
        NamedGroup::X25519 => return Some("X25519 253 bits".to_owned()),
        NamedGroup::secp256r1 => "prime256v1 256 bits",
        NamedGroup::secp384r1 => "secp384r1 384 bits",
        NamedGroup::secp521r1 => "secp521r1 521 bits",
        other => return other.as_str().map(str::to_owned),
    };
    Some(format!("ECDH {name}"))
}

/// The name of a suite in OpenSSL, and so in ab: `TLS_AES_128_GCM_SHA256`, `ECDHE-RSA-AES128-GCM-SHA256`.
pub(crate) fn openssl_name(suite: rustls::CipherSuite) -> String {
    let name = suite.as_str().unwrap_or("unknown");
    if let Some(suite) = name.strip_prefix("TLS13_") {
        return format!("TLS_{suite}");
    }
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "_");
    // OpenSSL omits the parts that are implied.
    let name = name.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    name.replace('_', "-")
}

/// The object identifier `id-ecPublicKey` (RFC 5480 §2.1.1), as bytes of DER.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// The object identifier `rsaEncryption` (RFC 3279 §2.3.1), as bytes of DER.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Size in bits of the public key in a certificate: the RSA modulus, or the field of the elliptic curve.
///
/// The path is `Certificate`, `TBSCertificate`, then after `version` (optional), `serialNumber`, `signature`,
/// `issuer`, `validity` and `subject`: `SubjectPublicKeyInfo` (RFC 5280 §4.1).
fn key_bits(certificate: &[u8]) -> Option<usize> {
    let (_, certificate, _) = der(certificate)?;
    let (_, mut rest, _) = der(certificate)?;
    if rest.first() == Some(&0xa0) {
        rest = der(rest)?.2;
    }
    for _ in 0..5 {
        rest = der(rest)?.2;
    }
    let (_, info, _) = der(rest)?;
    let (_, algorithm, key) = der(info)?;
    let (_, algorithm, _) = der(algorithm)?;
    // A bit string; its first byte is the number of unused bits.
    let (_, key, _) = der(key)?;
    let key = key.get(1..)?;
    match algorithm {
        // An uncompressed point is a byte, then two coordinates.
        EC_PUBLIC_KEY => match key.len().checked_sub(1)? / 2 {
            // P-521, the only curve whose size is no multiple of eight.
            66 => Some(521),
            bytes => Some(bytes * 8),
        },
        RSA_ENCRYPTION => {
            let (_, numbers, _) = der(key)?;
            let (_, modulus, _) = der(numbers)?;
            let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
            let top = modulus.get(zeros)?;
            Some((modulus.len() - zeros) * 8 - top.leading_zeros() as usize)
        }
        // The key of Ed25519 and its kin is a string of bytes.
        _ => Some(key.len() * 8),
    }
}

/// Splits the first DER element off: its tag, its content, and the rest.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, length) = (*bytes.first()?, *bytes.get(1)?);
    let (length, start) = if length < 0x80 {
        (usize::from(length), 2)
    } else {
        let count = usize::from(length & 0x7f);
        let digits = bytes.get(2..2 + count).filter(|_| count <= 4)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), 2 + count)
    };
    let end = start.checked_add(length)?;
    Some((tag, bytes.get(start..end)?, bytes.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_that_is_cut_short_has_no_key() {
        assert_eq!(key_bits(&[]), None);
        assert_eq!(key_bits(&[0x30, 0x82, 0xff, 0xff, 0x30]), None);
        assert_eq!(der(&[0x04, 0x81, 0x02, 1, 2, 3]), Some((4, &[1, 2][..], &[3][..])));
    }

    #[test]
    fn the_size_of_a_certificates_key_is_read() {
        let made = |algorithm| {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap()
        };
        assert_eq!(key_bits(made(&rcgen::PKCS_ECDSA_P256_SHA256).der()), Some(256));
        assert_eq!(key_bits(made(&rcgen::PKCS_ECDSA_P384_SHA384).der()), Some(384));
        assert_eq!(key_bits(made(&rcgen::PKCS_ED25519).der()), Some(256));
        assert_eq!(key_bits(made(&rcgen::PKCS_ECDSA_P521_SHA512).der()), Some(521));
        let certificate = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        for end in 0..certificate.der().len() {
            // A certificate that is cut short has the key or none; it never panics.
            assert!(matches!(key_bits(&certificate.der()[..end]), None | Some(256)), "{end}");
        }
    }

    #[test]
    fn a_key_of_any_first_byte_has_the_size_of_its_algorithm() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        let mut certificate = params.self_signed(&key).unwrap().der().to_vec();
        let raw = key.public_key_raw();
        let start = certificate.windows(raw.len()).position(|bytes| bytes == raw).unwrap();
        for first in [0x04, 0x30] {
            certificate[start] = first;
            assert_eq!(key_bits(&certificate), Some(256), "{first:#x}");
        }
    }

    #[test]
    fn key_exchanges_have_the_names_that_ab_prints() {
        for (group, name) in [
            (NamedGroup::X25519, "X25519 253 bits"),
            (NamedGroup::secp256r1, "ECDH prime256v1 256 bits"),
            (NamedGroup::secp384r1, "ECDH secp384r1 384 bits"),
        ] {
            assert_eq!(exchange_name(group).as_deref(), Some(name));
        }
    }
}
