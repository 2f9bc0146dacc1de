//! The URL of a proxy that runs already.

use crate::http::authority;

/// Maximum length of a URL, in bytes.
const URL_BYTES_MAX: usize = 1_024;

/// The URL of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalUrl {
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path that precedes the requested path; empty or starting with a slash.
    pub path: String,
}

/// The reason why a URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    /// The URL does not start with `http://`.
    #[error("expected a URL that starts with `http://`: load clients measure the proxy without TLS")]
    Scheme,
    /// The URL contains a user, a query, a fragment, or characters that a URL does not have.
    #[error("expected a URL of host, port and path only, without a user, query or spaces")]
    Part,
    /// The host or port is missing or malformed.
    #[error("expected a host and a port from 1 to 65535, such as `http://127.0.0.1:8000`")]
    Authority,
    /// The text is not exactly one reference to an environment variable.
    #[error("expected a URL or exactly `${{env:NAME}}`")]
    Reference,
    /// The environment variable of this name is not set.
    #[error(
        "the environment variable {0} is not set: set it to the proxy's URL, such as `http://127.0.0.1:8000`"
    )]
    NotSet(String),
}

impl ExternalUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("http://").ok_or(UrlError::Scheme)?;
        let is_odd = |c: char| !c.is_ascii_graphic() || "@?#\"'<>\\^`{|}$".contains(c);
        if text.len() > URL_BYTES_MAX || rest.contains(is_odd) {
            return Err(UrlError::Part);
        }
        let (server, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| UrlError::Authority)?)
            }
            _ => (server, 80),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_valid = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', '[', ']']),
        };
        if !is_valid || port == 0 {
            return Err(UrlError::Authority);
        }
        Ok(Self {
            host: bracketed.unwrap_or(host).to_owned(),
            port,
            path: path.trim_end_matches('/').to_owned(),
        })
    }

    /// The URL without a slash at its end.
    pub fn base(&self) -> String {
        format!("http://{}{}", authority(&self.host, self.port), self.path)
    }
}

/// The environment variable that a text refers to, if it is a reference.
pub(crate) fn variable(text: &str) -> Result<Option<&str>, UrlError> {
    if !text.contains("${") {
        return Ok(None);
    }
    let name = text.strip_prefix("${env:").and_then(|rest| rest.strip_suffix('}'));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name {
        Some(name) if !name.is_empty() && name.chars().all(plain) => Ok(Some(name)),
        _ => Err(UrlError::Reference),
    }
}

/// Replaces a reference by the value of its environment variable, and parses the URL.
pub(crate) fn resolved(
    text: &str,
    environment: impl FnOnce(&str) -> Option<String>,
) -> Result<ExternalUrl, UrlError> {
    match variable(text)? {
        Some(name) => {
            ExternalUrl::parse(&environment(name).ok_or_else(|| UrlError::NotSet(name.to_owned()))?)
        }
        None => ExternalUrl::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_host_port_and_path() {
        for (text, base) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("http://proxy/", "http://proxy:80"),
            ("http://[::1]:8000/a/b/", "http://[::1]:8000/a/b"),
            ("http://[::1]", "http://[::1]:80"),
        ] {
            assert_eq!(ExternalUrl::parse(text).unwrap().base(), base);
        }
        for (text, error) in [
            ("https://proxy", UrlError::Scheme),
            ("proxy:8000", UrlError::Scheme),
            ("http://me:secret@proxy", UrlError::Part),
            ("http://proxy/?a=b", UrlError::Part),
            ("http://pro xy", UrlError::Part),
            ("http://proxy/$(id)", UrlError::Part),
            ("http://:80", UrlError::Authority),
            ("http://proxy:0", UrlError::Authority),
            ("http://proxy:65536", UrlError::Authority),
            ("http://[::1:80", UrlError::Authority),
            ("http://[proxy]:80", UrlError::Authority),
            ("http://a:b:80", UrlError::Authority),
        ] {
            assert_eq!(ExternalUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_reference_is_replaced_or_its_variable_is_named() {
        let environment = |name: &str| (name == "HERE").then(|| "http://h:1".to_owned());
        assert_eq!(resolved("${env:HERE}", environment).unwrap().base(), "http://h:1");
        let error = resolved("${env:GONE}", environment).unwrap_err().to_string();
        assert!(error.starts_with("the environment variable GONE is not set"), "{error}");
        for text in ["${env:}", "${file:/x}", "http://${env:HERE}", "${env:A B}"] {
            assert_eq!(resolved(text, environment), Err(UrlError::Reference), "{text}");
        }
    }
}
