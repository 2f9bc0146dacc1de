//! Tries to reach providers from here: the name, a connection, and the TLS handshake. No request is sent.

use std::fmt::Display;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_net::config::{ProviderTlsConfig, TlsVerify};
use egret_net::tls::{Trust, Verification, client_config, provider};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, DEFAULT_VERSIONS};
use serde_json::{Value, json};

/// Timeout for the connection, and for each read and write of the handshake.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result for one provider.
pub struct Probed {
    /// The times of the steps that succeeded.
    pub facts: Value,
    /// The reason why a step failed.
    pub error: Option<String>,
}

/// The reason why a step failed.
#[derive(Debug)]
struct ProbeError(String);

impl ProbeError {
    fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }

    /// Returns a function that adds `step` to the reason.
    fn during<E: Display>(step: &str) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{step}: {error}"))
    }
}

/// Probes a provider.
pub fn probe(url: &str, tls: &ProviderTlsConfig) -> Probed {
    let mut facts = json!({});
    let error = steps(url, tls, &mut facts).err().map(|ProbeError(reason)| reason);
    Probed { facts, error }
}

fn steps(url: &str, tls: &ProviderTlsConfig, facts: &mut Value) -> Result<(), ProbeError> {
    let (is_tls, host, port) = destination(url).ok_or_else(|| ProbeError::new("the URL is invalid"))?;
    let since = Instant::now();
    let millis = move || u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let found = (host, port).to_socket_addrs().map_err(ProbeError::during("the name cannot be resolved"))?;
    let address = found.into_iter().next().ok_or_else(|| ProbeError::new("the name has no address"))?;
    facts["address"] = json!(address.to_string());
    facts["resolved_after_ms"] = json!(millis());
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)
        .map_err(ProbeError::during(&format!("cannot connect to {address}")))?;
    facts["connected_after_ms"] = json!(millis());
    if is_tls {
        let timeouts = stream.set_read_timeout(Some(TIMEOUT)).and(stream.set_write_timeout(Some(TIMEOUT)));
        timeouts.map_err(ProbeError::new)?;
        let name = tls.server_name.as_deref().unwrap_or(host);
        let mut connection = connection(name, tls)?;
        connection.complete_io(&mut stream).map_err(ProbeError::during("the TLS handshake failed"))?;
        facts["handshake_after_ms"] = json!(millis());
        facts["tls"] = json!(connection.protocol_version().map(|version| format!("{version:?}")));
    }
    Ok(())
}

/// Prepares a handshake that verifies the provider as the gateway does.
fn connection(name: &str, tls: &ProviderTlsConfig) -> Result<ClientConnection, ProbeError> {
    let mut problems = Vec::new();
    let trust = Trust::load(tls.ca.as_deref(), "tls.ca", &mut problems);
    if let Some(problem) = problems.pop() {
        return Err(ProbeError(problem.message));
    }
    let verification = match tls.verify {
        TlsVerify::Full => Verification::Verifier(trust.verifier()),
        TlsVerify::DangerouslyOff => Verification::Off,
    };
    let config = client_config(provider(), DEFAULT_VERSIONS, verification, None);
    let config = config.map_err(ProbeError::new)?;
    let name = ServerName::try_from(name.to_owned()).map_err(ProbeError::new)?;
    ClientConnection::new(Arc::new(config), name).map_err(ProbeError::new)
}

/// Returns the parts of a URL: `true` for `https`, the host without brackets, and the port.
fn destination(url: &str) -> Option<(bool, &str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let end = authority.rfind(']').map_or(0, |end| end + 1);
    let default = if is_tls { 443 } else { 80 };
    let (host, port) = match authority[end..].rfind(':') {
        Some(colon) => (&authority[..end + colon], authority[end + colon + 1..].parse().ok()?),
        None => (authority, default),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((is_tls, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_its_destination() {
        for (url, expected) in [
            ("https://a.example", Some((true, "a.example", 443))),
            ("http://a.example:81/x:y", Some((false, "a.example", 81))),
            ("https://[::1]:8443/", Some((true, "::1", 8443))),
            ("http://[::1]", Some((false, "::1", 80))),
            ("ftp://a.example", None),
            ("https://", None),
        ] {
            assert_eq!(destination(url), expected, "{url}");
        }
    }

    #[test]
    fn a_failed_step_is_told_with_the_steps_before_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let reached = probe(&url, &ProviderTlsConfig::default());
        assert!(reached.error.is_none() && reached.facts["connected_after_ms"].is_u64());
        drop(listener);
        let missed = probe(&url, &ProviderTlsConfig::default());
        assert!(missed.error.unwrap().contains("cannot connect"));
        assert!(missed.facts["resolved_after_ms"].is_u64() && missed.facts["connected_after_ms"].is_null());
    }
}
