//! `egret run --demo`: a provider to call without the Internet, and commands to try.

use std::any::Any;
use std::net::SocketAddr;

use egret_plan::config::ProviderConfig;
use egret_settings::failure::Failure;

/// Name of the built-in provider in the config.
pub const NAME: &str = "demo";

/// Starts the built-in provider, of which this crate knows nothing else.
pub type StartProvider = fn() -> Result<DemoProvider, Failure>;

/// The built-in provider while it runs.
pub struct DemoProvider {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// Dropped to stop it.
    pub running: Box<dyn Any>,
}

/// Returns the config of the built-in provider.
pub fn provider_config(address: SocketAddr) -> ProviderConfig {
    ProviderConfig { url: format!("http://{address}"), ..ProviderConfig::default() }
}

/// A debug build, as `make run` makes it, is no measure of Egret.
const BUILD: &str = if cfg!(debug_assertions) {
    "This build is slow, because it is not optimized: `make build` makes the fast one.\n"
} else {
    ""
};

/// Returns a heading, three commands (through the base URL, through the proxy, and to the metrics), the
/// address of the control page, and a remark if this build is slow.
pub fn lines(gateway: SocketAddr, provider: SocketAddr, control: SocketAddr) -> String {
    format!(
        "Egret is running. Paste these commands into another terminal to send traffic through it:\n\
         curl -i http://{gateway}/{NAME}/get\n\
         curl -i -x http://{gateway} http://{provider}/anything\n\
         curl http://{control}/metrics\n\
         The control page shows the traffic: http://{control}/\n\
         {BUILD}"
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn there_are_three_lines_to_paste_under_one_heading_and_the_page() {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let lines = lines(address(8000), address(9000), address(8001));
        let rest: Vec<&str> = lines.lines().skip(1).take(4).collect();
        assert_eq!(
            rest,
            [
                "curl -i http://127.0.0.1:8000/demo/get",
                "curl -i -x http://127.0.0.1:8000 http://127.0.0.1:9000/anything",
                "curl http://127.0.0.1:8001/metrics",
                "The control page shows the traffic: http://127.0.0.1:8001/",
            ]
        );
    }

    #[test]
    fn a_build_without_optimization_is_called_slow() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8000));
        let slow = lines(address, address, address).contains("make build");
        assert_eq!(slow, cfg!(debug_assertions));
    }
}
