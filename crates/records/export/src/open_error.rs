//! The reasons why an exporter cannot be opened.

use std::io;

use egret_aws::BucketError;

use crate::http::ClientError;
use crate::server_url::UrlError;
use crate::zmtp::AddressError;

/// An exporter of the config that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("exporters.{exporter}: {cause}")]
pub struct OpenError {
    /// Name of the exporter.
    pub exporter: String,
    /// The reason. It contains no secret.
    #[source]
    pub cause: OpenCause,
}

/// The reason why an exporter cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenCause {
    /// The URL of its server is not valid.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// The address of its ZeroMQ socket is not valid.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// The value of this header field is not valid.
    #[error("headers.{0}: the value is not valid in a header field")]
    HeaderValue(String),
    /// The key of its signatures is not the Base64 that its prefix promises.
    #[error("the secret is not Base64 after `whsec_`")]
    SigningKey,
    /// Its HTTP client cannot be created.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// Its bucket has no URL.
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// There is no access key for its bucket.
    #[error(
        "no credentials: set `access_key` and `secret_key`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoAccessKey,
    /// Its thread cannot be started.
    #[error("{0}")]
    Start(#[from] io::Error),
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
