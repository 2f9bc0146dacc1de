//! Origins: the scheme and the authority that a request is sent to (RFC 9110 §4.3.1).

use crate::authority::{Authority, AuthorityError};

/// A destination of requests: a scheme and an authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `true` for `https`, `false` for `http`.
    pub tls: bool,
    /// The host and the port.
    pub authority: Authority,
}

impl Origin {
    /// Parses an authority. Without a port, it gets the default port of the scheme.
    pub fn parse(tls: bool, authority: &[u8]) -> Result<Self, AuthorityError> {
        Ok(Self { tls, authority: Authority::parse(authority, Some(default_port(tls)))? })
    }

    /// Returns the value of `Host` in requests to this origin. It leaves out the scheme's default port.
    pub fn host_field(&self) -> Box<[u8]> {
        let text = self.authority.to_string();
        let default_suffix = format!(":{}", default_port(self.tls));
        text.strip_suffix(&default_suffix).unwrap_or(&text).as_bytes().into()
    }
}

/// Returns 443 or 80.
pub const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_field_leaves_out_the_default_port() {
        for (tls, authority, expected) in [
            (true, "api.example", "api.example"),
            (true, "api.example:443", "api.example"),
            (true, "api.example:80", "api.example:80"),
            (false, "[::1]:80", "[::1]"),
            (false, "[::1]:8080", "[::1]:8080"),
        ] {
            let origin = Origin::parse(tls, authority.as_bytes()).unwrap();
            assert_eq!(&*origin.host_field(), expected.as_bytes(), "{authority}");
        }
    }
}
