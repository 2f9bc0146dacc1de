//! The tunnels that the gateway serves itself, by the config key `interception`.

use std::sync::Arc;

use egret_ca::{Interception, MintError, OnRefusal, ServerConfigs, UnknownProtocol};
use egret_clock::Timestamp;
use egret_config::Problem;
use egret_message::authority::Host;
use rustls::ServerConfig;

use crate::config::InterceptionParts;

/// The compiled key, with the certificates for its hosts.
#[derive(Debug)]
pub(crate) struct InterceptionPlan {
    rules: Interception,
    configs: ServerConfigs,
    /// `true` if a tunnel is closed when it carries neither TLS nor HTTP.
    pub refuses_unknown: bool,
    /// `true` if hosts are no longer intercepted for clients that have refused the certificate.
    pub gives_way: bool,
}

impl InterceptionPlan {
    /// Compiles the key, and adds its mistakes to `problems`. Returns `None` if nothing is intercepted.
    pub fn compile(parts: Option<InterceptionParts<'_>>, problems: &mut Vec<Problem>) -> Option<Self> {
        let InterceptionParts { config, configs } = parts?;
        match config.compile("interception") {
            Ok(rules) => Some(Self {
                rules,
                configs: configs?.clone(),
                refuses_unknown: config.unknown == UnknownProtocol::Refuse,
                gives_way: config.on_refusal == OnRefusal::Tunnel,
            }),
            Err(found) => {
                problems.extend(found);
                None
            }
        }
    }

    /// Returns `true` if a tunnel to `host` is to be intercepted. The host has a configured provider if
    /// `is_provider`.
    pub fn is_for(&self, host: &Host, is_provider: bool) -> bool {
        if is_provider { !self.rules.tunnels(host) } else { self.rules.intercepts(host) }
    }

    /// Returns the seconds until the authority's certificates expire, 0 afterwards.
    pub fn expires_s(&self, now: Timestamp) -> u64 {
        self.configs.authority().not_after().since(now).as_secs()
    }

    /// Returns the TLS settings with a certificate for `host`.
    ///
    /// # Errors
    ///
    /// Fails if the authority may not speak for the host.
    pub fn tls_for(&self, host: &Host) -> Result<Arc<ServerConfig>, MintError> {
        self.configs.get(host)
    }
}
