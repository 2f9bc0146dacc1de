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
pub struct InterceptionPlan {
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
        is_for(&self.rules, host, is_provider)
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

/// Returns `true` if `rules` say that a tunnel to `host` is to be intercepted. The host has a configured
/// provider if `is_provider`.
pub fn is_for(rules: &Interception, host: &Host, is_provider: bool) -> bool {
    if is_provider { !rules.tunnels(host) } else { rules.intercepts(host) }
}

#[cfg(test)]
mod tests {
    use egret_ca::{Authority, Constraints, InterceptionConfig, Owner};
    use egret_message::host_pattern::{HostPattern, HostPatterns};

    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    /// Compiles a config, with an authority that may speak for the hosts below `api.example`.
    fn plan(config: &str) -> Result<Option<InterceptionPlan>, Vec<Problem>> {
        let constraints = Constraints::new([HostPattern::parse("*.api.example").unwrap()]).unwrap();
        let now = Timestamp::from_secs(1_700_000_000);
        let authority = Authority::make(&constraints, &Owner::new("tests"), 30, now).unwrap();
        let configs = ServerConfigs::new(Arc::new(authority), HostPatterns::default(), true).unwrap();
        let config: InterceptionConfig = serde_json::from_str(config).unwrap();
        let mut problems = Vec::new();
        let parts = InterceptionParts { config: &config, configs: Some(&configs) };
        let plan = InterceptionPlan::compile(Some(parts), &mut problems);
        if problems.is_empty() { Ok(plan) } else { Err(problems) }
    }

    #[test]
    fn providers_and_named_hosts_are_intercepted_unless_tunnel_names_them() {
        let config =
            r#"{ "hosts": ["*.example", "bank.test"], "tunnel": ["a.example", "bank.test", "own.test"] }"#;
        let plan = plan(config).unwrap().unwrap();
        for (text, is_provider, expected) in [
            ("b.example", false, true),
            ("a.example", false, false),
            ("bank.test", false, false),
            ("other.test", false, false),
            ("other.test", true, true),
            ("own.test", true, false),
        ] {
            assert_eq!(plan.is_for(&host(text), is_provider), expected, "{text}");
        }
        assert!(!plan.refuses_unknown && !plan.gives_way);
    }

    #[test]
    fn without_the_key_nothing_is_intercepted_and_mistakes_are_reported() {
        assert!(InterceptionPlan::compile(None, &mut Vec::new()).is_none());
        let problems = plan(r#"{ "hosts": ["https://a.example"] }"#).unwrap_err();
        assert_eq!(problems[0].path, "interception.hosts[0]");
        let plan = plan(r#"{ "unknown": "refuse", "on_refusal": "tunnel" }"#).unwrap().unwrap();
        assert!(plan.refuses_unknown && plan.gives_way);
    }

    #[test]
    fn the_time_until_the_authority_expires_ends_at_zero() {
        let plan = plan("{}").unwrap().unwrap();
        let days = |days: u64| Timestamp::from_secs(1_700_000_000 + days * 86_400);
        assert_eq!(plan.expires_s(days(29)), 86_400);
        assert_eq!(plan.expires_s(days(31)), 0);
        assert!(plan.tls_for(&host("a.b.example")).is_err());
    }
}
