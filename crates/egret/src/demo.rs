//! `egret run --demo`: a provider to call without the Internet, and the lines to paste.

use std::net::{Ipv4Addr, SocketAddr};

use egret_gateway::config::{PoolConfig, ProviderConfig, ProviderTimeoutsConfig, ProviderTlsConfig};
use egret_lab::provider::{Options, Provider};

use crate::Failure;

/// What the built-in provider is called in the config.
pub const NAME: &str = "demo";

/// Where the built-in provider listens unless told otherwise.
pub const PROVIDER_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// Starts the built-in provider, on a free port where its own is taken: nothing depends on the number.
pub fn start() -> Result<Provider, Failure> {
    Provider::start(PROVIDER_ADDRESS, Options::default())
        .or_else(|_| Provider::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Options::default()))
        .map_err(|error| Failure::Failed(format!("the built-in provider cannot listen on loopback: {error}")))
}

/// The built-in provider as a config gives it.
pub fn provider_config(address: SocketAddr) -> ProviderConfig {
    ProviderConfig {
        url: format!("http://{address}"),
        hosts: Vec::new(),
        timeouts: ProviderTimeoutsConfig::default(),
        tls: ProviderTlsConfig::default(),
        pool: PoolConfig::default(),
        upgrades: None,
    }
}

/// A heading and three lines to paste: through the base URL, through the proxy, and what was counted.
pub fn lines(gateway: SocketAddr, provider: SocketAddr, control: SocketAddr) -> String {
    format!(
        "Egret runs. Paste these into another terminal to see traffic go through it:\n\
         curl -i http://{gateway}/{NAME}/get\n\
         curl -i -x http://{gateway} http://{provider}/anything\n\
         curl http://{control}/metrics\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_three_lines_to_paste_under_one_heading() {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let lines = lines(address(8000), address(9000), address(8001));
        let curls: Vec<&str> = lines.lines().skip(1).collect();
        assert_eq!(
            curls,
            [
                "curl -i http://127.0.0.1:8000/demo/get",
                "curl -i -x http://127.0.0.1:8000 http://127.0.0.1:9000/anything",
                "curl http://127.0.0.1:8001/metrics",
            ]
        );
    }
}
