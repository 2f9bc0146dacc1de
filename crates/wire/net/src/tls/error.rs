//! TLS errors, distinguished as far as that helps to fix them.

use std::io::{self, ErrorKind};

use egret_items::words;
use rustls::{AlertDescription, CertificateError};

/// The reason why there is no TLS connection, or why it ended. Never holds a byte that the provider chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The provider's certificate was rejected.
    #[error("the provider's certificate was rejected: {0}")]
    Certificate(CertificateProblem),
    /// The provider refused, with an alert of this number (RFC 8446 §6.2).
    #[error("the provider refused TLS (alert {0}){hint}", hint = hint(*.0))]
    Alert(u8),
    /// The provider does not use TLS on this port.
    #[error("the provider does not speak TLS on this port; is its URL `http://`?")]
    NotTls,
    /// The two sides have no version or cipher suite in common.
    #[error("the provider offers no secure TLS version or cipher suite; at least TLS 1.2 is required")]
    Incompatible,
    /// The provider violated the TLS protocol.
    #[error("the provider violated the TLS protocol")]
    Protocol,
    /// The host is not a name that a certificate can carry.
    #[error("the host is not a name that a certificate can carry; set `tls.server_name`")]
    Name,
    /// The connection was closed during the handshake.
    #[error("the provider closed the connection during the TLS handshake")]
    Closed,
    /// The connection failed.
    #[error("the connection failed during TLS: {0}")]
    Io(ErrorKind),
}

words! {
    /// The reason why a certificate was rejected. Its slug is a short name for metrics, logs and
    /// `Proxy-Status`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum CertificateProblem: slug {
        /// Not signed by a trusted authority.
        #[error("it is not signed by a trusted authority; add one with the provider's `tls.ca`")]
        UnknownIssuer => "unknown-issuer",
        /// Expired.
        #[error("it has expired")]
        Expired => "expired",
        /// Not valid yet.
        #[error("it is not valid yet; check the clock of this machine")]
        NotYetValid => "not-yet-valid",
        /// Issued for a different name.
        #[error("it was issued for another name; set the expected one with the provider's `tls.server_name`")]
        WrongName => "wrong-name",
        /// Revoked by its authority.
        #[error("it has been revoked")]
        Revoked => "revoked",
        /// Not meant for a server.
        #[error("it is not meant for a server")]
        Purpose => "purpose",
        /// A signature in the chain is invalid.
        #[error("its signature is invalid")]
        Signature => "signature",
        /// Another reason, such as an encoding that cannot be parsed.
        #[error("it cannot be parsed or used")]
        Other => "other",
    }
}

impl TlsError {
    /// Returns `true` if the provider speaks none of the protocols that were offered (RFC 7301 §3.2).
    pub fn is_other_protocol(self) -> bool {
        self == Self::Alert(u8::from(AlertDescription::NoApplicationProtocol))
    }

    /// Returns the reason why a connection failed: that of TLS, such as a client certificate that a provider
    /// demands only after the handshake (TLS 1.3), or else the kind of the error.
    pub fn reason_of(error: &io::Error) -> String {
        let carried = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        carried.map_or_else(|| error.kind().to_string(), Self::to_string)
    }
}

fn hint(alert: u8) -> String {
    alert_hint(AlertDescription::from(alert)).map(|hint| format!(": {hint}")).unwrap_or_default()
}

fn alert_hint(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::HandshakeFailure => "it accepts no cipher suite, or requires a client certificate",
        AlertDescription::CertificateRequired => {
            "it requires a client certificate; set `tls.certificate` and `tls.key`, or list the host in \
             `interception.tunnel` if it is intercepted"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => "it does not accept the client certificate",
        AlertDescription::ProtocolVersion => "it supports no secure version of TLS",
        AlertDescription::UnrecognisedName => "it does not know the requested server name",
        AlertDescription::NoApplicationProtocol => "it does not support HTTP/1.1",
        _ => return None,
    })
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error.into()),
            rustls::Error::NoCertificatesPresented => Self::Certificate(CertificateProblem::Other),
            rustls::Error::AlertReceived(alert) => Self::Alert(alert.into()),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::PeerIncompatible(_) => Self::Incompatible,
            rustls::Error::UnsupportedNameType => Self::Name,
            _ => Self::Protocol,
        }
    }
}

impl From<CertificateError> for CertificateProblem {
    fn from(error: CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName
            }
            CertificateError::Revoked => Self::Revoked,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::Purpose
            }
            CertificateError::BadSignature => Self::Signature,
            _ => Self::Other,
        }
    }
}

/// Wraps TLS errors of an established connection in I/O errors.
impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Io(kind) => kind.into(),
            TlsError::Closed => ErrorKind::UnexpectedEof.into(),
            error => Self::new(ErrorKind::InvalidData, error),
        }
    }
}

/// Unwraps the TLS error in an I/O error, or converts the latter's kind.
impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        let carried = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        carried.copied().unwrap_or_else(|| Self::Io(error.kind()))
    }
}
