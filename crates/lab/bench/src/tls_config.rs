//! TLS with ab's options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use egret_net::tls::{ClientConfigError, Identity, Verification, client_config, system_roots};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::options::Options;
use crate::sessions::Sessions;
use crate::tls::openssl_name;

/// The reason why the TLS options cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// An unsupported protocol version.
    #[error("-f {0}: only TLS1.2, TLS1.3 and ALL are supported; older protocols are insecure")]
    Protocol(String),
    /// An unknown cipher suite.
    #[error("-Z {0}: unknown cipher suite; expected {known}", known = known_ciphers())]
    Cipher(String),
    /// An unusable file.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// Any other problem.
    #[error("{0}")]
    Other(String),
}

/// Compiles the options to a TLS configuration.
pub(crate) fn compile(options: &Options) -> Result<Arc<ClientConfig>, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(ciphers) = &options.ciphers {
        provider.cipher_suites = cipher_suites(ciphers)?;
    }
    let verification = if options.insecure || options.ab_compat {
        // ab never verifies certificates. The signature is part of the cost of TLS, so a measurement
        // includes it.
        Verification::SignatureOnly
    } else {
        Verification::Authorities(roots(options)?)
    };
    let identity = options.identity.as_deref().map(identity).transpose()?;
    let versions = versions(options.protocol.as_deref())?;
    let built = client_config(Arc::new(provider), &versions, verification, identity);
    let mut config = built.map_err(|error| match (error, &options.identity) {
        (ClientConfigError::Identity(error), Some(file)) => {
            TlsError::File(file.clone(), format!("the key does not match the certificate: {error}"))
        }
        (ClientConfigError::Identity(error) | ClientConfigError::Suites(error), _) => {
            TlsError::Other(format!("these ciphers do not match this protocol: {error}"))
        }
    })?;
    config.alpn_protocols = vec![if options.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    // Unless asked for, every connection makes a full handshake, as with ab. Resumed sessions would make
    // the later part look faster.
    config.resumption = if options.resume {
        Resumption::store(Arc::new(Sessions::default()))
    } else {
        Resumption::disabled()
    };
    config.enable_sni = !options.no_server_name;
    Ok(Arc::new(config))
}

fn roots(options: &Options) -> Result<Arc<RootCertStore>, TlsError> {
    let Some(file) = &options.cacert else { return Ok(system_roots()) };
    let mut roots = RootCertStore::clone(&system_roots());
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(TlsError::File(file.clone(), "contains no PEM certificate".to_owned()));
    }
    Ok(Arc::new(roots))
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

fn known_ciphers() -> String {
    suites().iter().map(|suite| openssl_name(suite.suite())).collect::<Vec<_>>().join(":")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parsed;

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
        let options = parsed("--insecure -f TLS1.3 -Z ECDHE-RSA-AES256-GCM-SHA384");
        assert!(compile(&options).unwrap_err().to_string().contains("do not match"));
    }

    #[test]
    fn an_unusable_file_is_named_with_the_reason() {
        let message = |line: &str| compile(&parsed(line)).unwrap_err().to_string();
        let authority = message("--cacert /no/such.pem");
        assert!(authority.starts_with("/no/such.pem: cannot be read"), "{authority}");
        let identity = message("-E /no/such.pem --insecure");
        assert!(identity.starts_with("/no/such.pem: contains no PEM private key"), "{identity}");
        let empty = message("--cacert /dev/null");
        assert_eq!(empty, "/dev/null: contains no PEM certificate");
    }
}
