//! The config keys of the control port: `control:`.

use std::net::SocketAddr;

use egret_config::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Health, metrics, the API and the page. They tell where the application calls: keep them on loopback, or set a token.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// The address to listen on; port 0 lets the system choose. Anything but loopback needs `token`.
    pub listen: SocketAddr,
    /// What clients must send as `Authorization: Bearer`, on every path but `/healthz`, `/readyz` and the page's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Host names, without port, under which clients may call besides `localhost` and the address listened on. A request for
    /// any other host is refused with 421, since a web page may have caused it (DNS rebinding).
    pub allowed_hosts: Vec<String>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 8001)), token: None, allowed_hosts: Vec::new() }
    }
}

impl ControlConfig {
    /// Whether everybody on the network could read the port.
    pub(crate) fn is_exposed(&self) -> bool {
        self.token.is_none() && !self.listen.ip().to_canonical().is_loopback()
    }
}
