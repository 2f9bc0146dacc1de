//! Providers, as flows and accounts refer to them.

/// A provider that flows may name.
#[derive(Debug, Clone, Copy)]
pub struct KnownProvider<'a> {
    /// The name.
    pub name: &'a str,
    /// Host of the provider's URL, in lower case; `None` if the URL is invalid.
    pub host: Option<&'a str>,
    /// `true` if the provider is called over TLS.
    pub tls: bool,
}

/// Provider name of requests to hosts without a configured provider.
pub const OTHER_HOSTS: &str = "-";
