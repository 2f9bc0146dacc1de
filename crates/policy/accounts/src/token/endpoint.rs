//! The URL of a token endpoint, and messages to it.

use egret_http1::is_target;
use zeroize::Zeroizing;

/// Capacity for the parts of a request that do not depend on the config. Allocated at once, because a
/// reallocation would leave a copy of the secrets behind.
pub(super) const REQUEST_BYTES: usize = 4096;

/// The address of a token endpoint. The gateway validates its authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEndpoint {
    /// `true` if it is called over TLS.
    pub tls: bool,
    /// Host and optional port, as in the config.
    pub authority: Box<str>,
    /// Path and query, in origin-form.
    pub target: Box<str>,
}

/// Reason why a URL cannot be a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// A scheme other than `http` and `https`, or none.
    #[error("a token endpoint's URL must begin with `https://`, or with `http://` on a trusted network")]
    Scheme,
    /// No host.
    #[error("a token endpoint's URL must contain a host")]
    Host,
    /// A fragment (RFC 6749 §3.2).
    #[error("a token endpoint's URL must not contain a fragment (RFC 6749 §3.2)")]
    Fragment,
    /// A character that is not allowed in a request target.
    #[error("a token endpoint's URL must be ASCII without spaces: percent-encode it")]
    Target,
}

impl TokenEndpoint {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(EndpointError::Scheme),
        };
        if rest.contains('#') {
            return Err(EndpointError::Fragment);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return Err(EndpointError::Host);
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        if !is_target(target.as_bytes()) || !is_target(authority.as_bytes()) {
            return Err(EndpointError::Target);
        }
        Ok(Self { tls, authority: authority.into(), target: target.into() })
    }
}

/// Returns a request with these header fields and this body. Its length is one of the fields, if it needs
/// one.
pub(super) fn message(
    method: &str,
    target: &str,
    endpoint: &TokenEndpoint,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Zeroizing<Vec<u8>> {
    let field_bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let bytes = REQUEST_BYTES + target.len() + endpoint.authority.len() + field_bytes + body.len();
    let mut message = Zeroizing::new(Vec::with_capacity(bytes));
    let start =
        [method, " ", target, " HTTP/1.1\r\nHost: ", &*endpoint.authority, "\r\nUser-Agent: egret\r\n"];
    let lines = fields.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]);
    for piece in start.into_iter().chain(lines).chain(["\r\n"]) {
        message.extend_from_slice(piece.as_bytes());
    }
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_authority_and_a_target() {
        for (url, tls, authority, target) in [
            ("https://id.example", true, "id.example", "/"),
            ("http://127.0.0.1:8080/realms/a/token?x=1", false, "127.0.0.1:8080", "/realms/a/token?x=1"),
            ("https://[::1]?x", true, "[::1]", "/?x"),
        ] {
            let expected = TokenEndpoint { tls, authority: authority.into(), target: target.into() };
            assert_eq!(TokenEndpoint::parse(url), Ok(expected));
        }
    }
}
