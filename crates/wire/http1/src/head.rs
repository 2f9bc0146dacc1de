//! Heads of requests and responses: start line, fields, and their meaning for the connection and the body.

mod authority;
mod connection;
mod diagnose;
mod error;
mod fields;
mod framing;
mod known;
mod limits;
mod method;
mod request;
mod response;
mod scan;
mod target;

pub use authority::Authority;
pub use connection::MAX_CONNECTION_OPTIONS;
pub use error::HeadError;
pub use fields::Field;
pub use framing::{RequestFraming, ResponseFraming};
pub use known::KnownField;
pub use limits::{HeadLimits, MAX_FIELDS, MAX_HEAD, MAX_METHOD};
pub use method::Method;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::TargetForm;

/// Protocol version of a message. Every other version is rejected.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `HTTP/1.0` (RFC 1945).
    Http10,
    /// `HTTP/1.1` (RFC 9112).
    #[default]
    Http11,
}

/// Outcome of a call of `parse`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The head is complete and its fields are set.
    Complete,
    /// More bytes are needed: call again with the same bytes and those received after them.
    Partial,
}
