//! The reasons why an exporter cannot be opened.

use std::{fmt, io};

use egret_aws::BucketError;

use crate::http::ClientError;
use crate::server_url::UrlError;
use crate::zmtp::AddressError;

/// An exporter of the config that cannot be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Name of the exporter.
    pub exporter: String,
    /// The reason. It contains no secret.
    pub cause: OpenCause,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exporters.{}: {}", self.exporter, self.cause)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The reason why an exporter cannot be opened.
#[derive(Debug)]
pub enum OpenCause {
    /// The URL of its server is not valid.
    Url(UrlError),
    /// The address of its ZeroMQ socket is not valid.
    Address(AddressError),
    /// The value of this header field is not valid.
    HeaderValue(String),
    /// Its HTTP client cannot be created.
    Client(ClientError),
    /// Its bucket has no URL.
    Bucket(BucketError),
    /// There is no access key for its bucket.
    NoAccessKey,
    /// Its thread cannot be started.
    Start(io::Error),
}

impl fmt::Display for OpenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Address(error) => error.fmt(f),
            Self::HeaderValue(name) => write!(f, "headers.{name}: the value is not valid in a header field"),
            Self::Client(error) => error.fmt(f),
            Self::Bucket(error) => error.fmt(f),
            Self::NoAccessKey => f.write_str(
                "no credentials: set `access_key` and `secret_key`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenCause {}

impl From<UrlError> for OpenCause {
    fn from(error: UrlError) -> Self {
        Self::Url(error)
    }
}

impl From<AddressError> for OpenCause {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl From<ClientError> for OpenCause {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<BucketError> for OpenCause {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

impl From<io::Error> for OpenCause {
    fn from(error: io::Error) -> Self {
        Self::Start(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_exporter_and_the_reason() {
        for (cause, expected) in [
            (OpenCause::Url(UrlError::Query), "exporters.a: the URL must not have a query or fragment"),
            (
                OpenCause::Address(AddressError),
                "exporters.a: not a socket address: expected `tcp://host:port`",
            ),
            (
                OpenCause::HeaderValue("x-api-key".to_owned()),
                "exporters.a: headers.x-api-key: the value is not valid in a header field",
            ),
        ] {
            assert_eq!(OpenError { exporter: "a".to_owned(), cause }.to_string(), expected);
        }
    }
}
