//! Protocol versions (RFC 9112 §2.3).

/// Protocol version of a message. Every other version is rejected.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `HTTP/1.0` (RFC 1945).
    Http10,
    /// `HTTP/1.1` (RFC 9112).
    #[default]
    Http11,
}
