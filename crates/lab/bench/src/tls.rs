//! TLS with ab's options, and the TLS details of ab's report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use egret_net::tls::{ClientConfigError, Identity, Verification, client_config, system_roots};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};

use crate::sessions::Sessions;

/// TLS options.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Accepts any certificate.
    pub insecure: bool,
    /// Additional trusted certificate authorities, in PEM.
    pub authorities: Option<PathBuf>,
    /// ab's `-f`: `TLS1.2`, `TLS1.3` or `ALL`.
    pub protocol: Option<String>,
    /// ab's `-Z`: cipher suite names separated by colons.
    pub ciphers: Option<String>,
    /// ab's `-E`: a client certificate and its key, in PEM.
    pub identity: Option<PathBuf>,
    /// ab's `-I`: does not send the server's name.
    pub no_server_name: bool,
    /// Resumes sessions on new connections.
    pub resume: bool,
}

/// The reason why the TLS options cannot be met.
#[derive(Debug)]
pub enum TlsError {
    /// An unsupported protocol version.
    Protocol(String),
    /// An unknown cipher suite.
    Cipher(String),
    /// An unusable file.
    File(PathBuf, String),
    /// Any other problem.
    Other(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(name) => {
                write!(
                    f,
                    "-f {name}: only TLS1.2, TLS1.3 and ALL are supported; older protocols are insecure"
                )
            }
            Self::Cipher(name) => {
                let known: Vec<String> = suites().iter().map(|suite| openssl_name(suite.suite())).collect();
                write!(f, "-Z {name}: unknown cipher suite; expected {}", known.join(":"))
            }
            Self::File(path, reason) => write!(f, "{}: {reason}", path.display()),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for TlsError {}

impl TlsOptions {
    /// Compiles the options to a TLS configuration.
    pub(crate) fn compile(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        if let Some(ciphers) = &self.ciphers {
            provider.cipher_suites = cipher_suites(ciphers)?;
        }
        let verification = if self.insecure {
            // Part of the cost of TLS, so a measurement includes it.
            Verification::SignatureOnly
        } else {
            Verification::Authorities(self.roots()?)
        };
        let identity = self.identity.as_deref().map(identity).transpose()?;
        let versions = versions(self.protocol.as_deref())?;
        let built = client_config(Arc::new(provider), &versions, verification, identity);
        let mut config = built.map_err(|error| match (error, &self.identity) {
            (ClientConfigError::Identity(error), Some(file)) => {
                TlsError::File(file.clone(), format!("the key does not match the certificate: {error}"))
            }
            (ClientConfigError::Identity(error) | ClientConfigError::Suites(error), _) => {
                TlsError::Other(format!("these ciphers do not match this protocol: {error}"))
            }
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Unless asked for, every connection makes a full handshake, as with ab. Resumed sessions would make
        // the later part look faster.
        config.resumption = if self.resume {
            Resumption::store(Arc::new(Sessions::default()))
        } else {
            Resumption::disabled()
        };
        config.enable_sni = !self.no_server_name;
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let Some(file) = &self.authorities else { return Ok(system_roots()) };
        let mut roots = RootCertStore::clone(&system_roots());
        let (added, _) = roots.add_parsable_certificates(certificates(file)?);
        if added == 0 {
            return Err(TlsError::File(file.clone(), "contains no PEM certificate".to_owned()));
        }
        Ok(Arc::new(roots))
    }
}

fn versions(name: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    match name.map(str::to_ascii_uppercase).as_deref() {
        None | Some("ALL") => Ok(vec![&TLS13, &TLS12]),
        Some("TLS1.2") => Ok(vec![&TLS12]),
        Some("TLS1.3") => Ok(vec![&TLS13]),
        Some(other) => Err(TlsError::Protocol(other.to_owned())),
    }
}

fn suites() -> &'static [rustls::SupportedCipherSuite] {
    aws_lc_rs::ALL_CIPHER_SUITES
}

fn cipher_suites(names: &str) -> Result<Vec<rustls::SupportedCipherSuite>, TlsError> {
    let find = |name: &str| {
        let found = suites().iter().find(|suite| {
            openssl_name(suite.suite()).eq_ignore_ascii_case(name)
                || suite.suite().as_str().is_some_and(|own| own.eq_ignore_ascii_case(name))
        });
        found.copied().ok_or_else(|| TlsError::Cipher(name.to_owned()))
    };
    names.split([':', ',']).filter(|name| !name.is_empty()).map(find).collect()
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(file).map_err(|error| unreadable(file, &error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates.map_err(|error| TlsError::File(file.to_owned(), format!("not PEM: {error}")))
}

fn identity(file: &Path) -> Result<Identity, TlsError> {
    let key = PrivateKeyDer::from_pem_file(file)
        .map_err(|error| TlsError::File(file.to_owned(), format!("contains no PEM private key: {error}")))?;
    Ok((certificates(file)?, key))
}

fn unreadable(file: &Path, error: &io::Error) -> TlsError {
    TlsError::File(file.to_owned(), format!("cannot be read: {error}"))
}

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
fn openssl_name(suite: rustls::CipherSuite) -> String {
    let name = suite.as_str().unwrap_or("unknown");
    if let Some(suite) = name.strip_prefix("TLS13_") {
        return format!("TLS_{suite}");
    }
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "_");
    // OpenSSL omits the parts that are implied.
    let name = name.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    name.replace('_', "-")
}

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
    let (_, _, key) = der(info)?;
    // A bit string; its first byte is the number of unused bits.
    let (_, key, _) = der(key)?;
    let key = key.get(1..)?;
    match key.first()? {
        // An uncompressed point of an elliptic curve: two coordinates.
        0x04 => Some((key.len() - 1) / 2 * 8),
        0x30 => {
            let (_, numbers, _) = der(key)?;
            let (_, modulus, _) = der(numbers)?;
            let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
            let top = modulus.get(zeros)?;
            Some((modulus.len() - zeros) * 8 - top.leading_zeros() as usize)
        }
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
    fn suites_have_the_names_that_ab_prints() {
        let names: Vec<String> = suites().iter().map(|suite| openssl_name(suite.suite())).collect();
        for name in [
            "TLS_AES_256_GCM_SHA384",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn protocols_and_suites_are_chosen_by_name() {
        assert_eq!(versions(Some("tls1.2")).unwrap().len(), 1);
        assert_eq!(versions(None).unwrap().len(), 2);
        for name in ["SSL3", "TLS1", "TLS1.1"] {
            assert!(matches!(versions(Some(name)), Err(TlsError::Protocol(_))), "{name}");
        }
        assert_eq!(cipher_suites("TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES256-GCM-SHA384").unwrap().len(), 2);
        let error = cipher_suites("RC4-MD5").unwrap_err().to_string();
        assert!(error.contains("RC4-MD5") && error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
    }

    #[test]
    fn a_suite_of_the_wrong_protocol_is_told() {
        let options = TlsOptions {
            insecure: true,
            protocol: Some("TLS1.3".into()),
            ciphers: Some("ECDHE-RSA-AES256-GCM-SHA384".into()),
            ..TlsOptions::default()
        };
        assert!(options.compile().unwrap_err().to_string().contains("do not match"));
    }

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
        let certificate = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        for end in 0..certificate.der().len() {
            // A certificate that is cut short has the key or none; it never panics.
            assert!(matches!(key_bits(&certificate.der()[..end]), None | Some(256)), "{end}");
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

    #[test]
    fn an_unusable_file_is_named_with_the_reason() {
        let message = |options: TlsOptions| options.compile().unwrap_err().to_string();
        let missing = Some(PathBuf::from("/no/such.pem"));
        let authority = message(TlsOptions { authorities: missing.clone(), ..TlsOptions::default() });
        assert!(authority.starts_with("/no/such.pem: cannot be read"), "{authority}");
        let identity = message(TlsOptions { identity: missing, insecure: true, ..TlsOptions::default() });
        assert!(identity.starts_with("/no/such.pem: contains no PEM private key"), "{identity}");
        let empty = message(TlsOptions { authorities: Some("/dev/null".into()), ..TlsOptions::default() });
        assert_eq!(empty, "/dev/null: contains no PEM certificate");
    }
}
