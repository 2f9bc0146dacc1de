//! The authorities that a program trusts anyway, to which Egret's root is added.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use egret_config::{CERTIFICATES_BYTES_MAX, read_file};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::pem;

/// The files in which systems keep all their authorities, in the order in which Go looks for them
/// (`crypto/x509/root_linux.go`).
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Gentoo, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL 6
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/pki/tls/cacert.pem",            // OpenELEC
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
    "/etc/ssl/cert.pem",                  // Alpine, macOS
];

/// The authorities that a program trusts without Egret. Most programs that can be told which ones to trust
/// then trust no others, so Egret's root alone would not do for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    source: BundleSource,
    certificates: Vec<CertificateDer<'static>>,
}

/// The source of the authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// A file in PEM.
    File(PathBuf),
    /// Mozilla's list, which is part of this program.
    Mozilla,
}

impl fmt::Display for BundleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Mozilla => f.write_str("Mozilla's list"),
        }
    }
}

/// The file that was asked for cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot read certificates from {path}, which `SSL_CERT_FILE` names: {error}")]
pub struct BundleError {
    path: PathBuf,
    error: io::Error,
}

impl Bundle {
    /// Reads the authorities: those of the inherited `SSL_CERT_FILE`, else the system's, else Mozilla's.
    ///
    /// # Errors
    ///
    /// Fails only if there is an inherited file that holds no certificate: its owner must learn of it.
    pub fn find(inherited: Option<&Path>) -> Result<Self, BundleError> {
        if let Some(path) = inherited {
            return Self::read(path).map_err(|error| BundleError { path: path.to_owned(), error });
        }
        let mut system = SYSTEM_FILES.iter().filter_map(|path| Self::read(Path::new(path)).ok());
        Ok(system.next().unwrap_or_else(Self::mozilla))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let bytes = read_file(path, CERTIFICATES_BYTES_MAX)?;
        // One bad section must not take away the others, which programs use all the same.
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok).collect();
        if certificates.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "it holds no certificate in PEM"));
        }
        Ok(Self { source: BundleSource::File(path.to_owned()), certificates })
    }

    fn mozilla() -> Self {
        let certificates = webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec();
        Self { source: BundleSource::Mozilla, certificates }
    }

    /// The source of the authorities.
    pub fn source(&self) -> &BundleSource {
        &self.source
    }

    /// The authorities with Egret's root before them, which is there once.
    pub fn with_root<'a>(
        &'a self,
        root: &'a CertificateDer<'static>,
    ) -> impl Iterator<Item = &'a CertificateDer<'static>> {
        std::iter::once(root).chain(self.certificates.iter().filter(move |other| *other != root))
    }

    /// The authorities with Egret's root, in PEM.
    pub fn pem(&self, root: &CertificateDer<'static>) -> String {
        self.with_root(root).map(|certificate| pem::certificate(certificate)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_file_comes_first_and_must_be_good() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("own.pem");
        assert!(Bundle::find(Some(&file)).unwrap_err().to_string().contains("`SSL_CERT_FILE`"));
        std::fs::write(&file, "nothing").unwrap();
        assert!(Bundle::find(Some(&file)).unwrap_err().to_string().contains("no certificate"));
        let (one, two) = (CertificateDer::from(vec![1]), CertificateDer::from(vec![2]));
        // A comment, a bad section, no line end at the end of the file, and a root that is there already.
        let bad = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let text = format!("# own\n{}{bad}{}", pem::certificate(&one), pem::certificate(&two).trim_end());
        std::fs::write(&file, text).unwrap();
        let bundle = Bundle::find(Some(&file)).unwrap();
        assert_eq!(bundle.source(), &BundleSource::File(file));
        assert_eq!(bundle.pem(&two), pem::certificate(&two) + &pem::certificate(&one));
    }

    #[test]
    fn without_a_file_there_is_a_list_anyway() {
        let (found, mozilla) = (Bundle::find(None).unwrap(), Bundle::mozilla());
        for bundle in [&found, &mozilla] {
            assert!(bundle.certificates.len() > 50, "{}", bundle.source());
        }
    }
}
