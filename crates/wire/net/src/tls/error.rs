//! TLS errors, distinguished as far as that helps to fix them.

use std::fmt;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError};

/// The reason why there is no TLS connection, or why it ended. Never holds a byte that the provider chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsError {
    /// The provider's certificate was rejected.
    Certificate(CertificateProblem),
    /// The provider refused, with an alert of this number (RFC 8446 §6.2).
    Alert(u8),
    /// The provider does not use TLS on this port.
    NotTls,
    /// The two sides have no version or cipher suite in common.
    Incompatible,
    /// The provider violated the TLS protocol.
    Protocol,
    /// The host is not a name that a certificate can carry.
    Name,
    /// The connection was closed during the handshake.
    Closed,
    /// The connection failed.
    Io(ErrorKind),
}

/// The reason why a certificate was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateProblem {
    /// Not signed by a trusted authority.
    UnknownIssuer,
    /// Expired.
    Expired,
    /// Not valid yet.
    NotYetValid,
    /// Issued for a different name.
    WrongName,
    /// Revoked by its authority.
    Revoked,
    /// Not meant for a server.
    Purpose,
    /// A signature in the chain is invalid.
    Signature,
    /// Another reason, such as an encoding that cannot be parsed.
    Other,
}

impl CertificateProblem {
    /// Returns a short name for metrics, logs and `Proxy-Status`.
    pub fn slug(self) -> &'static str {
        match self {
            Self::UnknownIssuer => "unknown-issuer",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::WrongName => "wrong-name",
            Self::Revoked => "revoked",
            Self::Purpose => "purpose",
            Self::Signature => "signature",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownIssuer => {
                "it is not signed by a trusted authority; add one with the provider's `tls.ca`"
            }
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet; check the clock of this machine",
            Self::WrongName => {
                "it was issued for another name; set the expected one with the provider's `tls.server_name`"
            }
            Self::Revoked => "it has been revoked",
            Self::Purpose => "it is not meant for a server",
            Self::Signature => "its signature is invalid",
            Self::Other => "it cannot be parsed or used",
        })
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(problem) => write!(f, "the provider's certificate was rejected: {problem}"),
            Self::Alert(number) => match alert_hint(AlertDescription::from(*number)) {
                Some(hint) => write!(f, "the provider refused TLS (alert {number}): {hint}"),
                None => write!(f, "the provider refused TLS (alert {number})"),
            },
            Self::NotTls => {
                f.write_str("the provider does not speak TLS on this port; is its URL `http://`?")
            }
            Self::Incompatible => f.write_str(
                "the provider offers no secure TLS version or cipher suite; at least TLS 1.2 is required",
            ),
            Self::Protocol => f.write_str("the provider violated the TLS protocol"),
            Self::Name => {
                f.write_str("the host is not a name that a certificate can carry; set `tls.server_name`")
            }
            Self::Closed => f.write_str("the provider closed the connection during the TLS handshake"),
            Self::Io(kind) => write!(f, "the connection failed during TLS: {kind}"),
        }
    }
}

impl std::error::Error for TlsError {}

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
