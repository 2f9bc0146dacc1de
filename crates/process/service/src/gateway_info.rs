//! The gateway of a config as programs must know it that send their calls through it.

use std::collections::BTreeMap;

use egret_control::{GatewayInfo, InterceptionInfo, ListenerInfo, ProviderInfo};
use egret_message::ListenAddress;
use egret_settings::authority::configured;
use egret_settings::config::Config;

use crate::interception::Certificates;

/// Describes a gateway with this config that listens on these addresses, in the order of the config. It is
/// not ready yet.
pub fn describe(config: &Config, addresses: &[ListenAddress]) -> GatewayInfo {
    GatewayInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: false,
        listeners: listeners(config, addresses),
        providers: providers(config),
        interception: None,
    }
}

fn listeners(config: &Config, addresses: &[ListenAddress]) -> Vec<ListenerInfo> {
    let listeners = config.gateway.listen.iter().zip(addresses);
    let info = listeners.map(|(listener, address)| ListenerInfo {
        address: *address,
        tls: listener.tls.is_some(),
        provider: listener.provider.clone(),
        redirect: listener.redirect,
        socks5: listener.socks5,
        asks_for_token: listener
            .clients
            .as_ref()
            .is_some_and(|clients| clients.ca.is_none() && clients.users.is_empty()),
    });
    info.collect()
}

fn providers(config: &Config) -> BTreeMap<String, ProviderInfo> {
    let signs = |name: &String| {
        config.accounts.values().any(|account| account.sigv4.is_some() && account.provider.contains(name))
    };
    let info = config.providers.iter().map(|(name, provider)| {
        (name.clone(), ProviderInfo { url: provider.base_url().to_owned(), signs: signs(name) })
    });
    info.collect()
}

/// Describes the interception by a gateway with this config and these certificates. Hosts that its authority
/// may not speak for are left out: their tunnels are relayed.
pub fn interception(config: &Config, certificates: &Certificates) -> Option<InterceptionInfo> {
    let key = config.interception.as_ref()?;
    let authority = certificates.configs().authority();
    let hosts = configured(config);
    let covered = hosts.iter().filter(|host| authority.constraints().covers_pattern(host));
    Some(InterceptionInfo {
        hosts: covered.map(ToString::to_string).collect(),
        tunnel: key.tunnel.clone(),
        certificate: authority.root().pem(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
gateway: { listen: ['127.0.0.1:0', { address: '127.0.0.1:0', provider: s3 }] }
providers:
  s3: { url: 'https://s3.eu-central-1.amazonaws.com' }
  other: { url: 'https://api.example.com/v1' }
accounts:
  aws:
    provider: s3
    sigv4: { access_key_id: '${env:CARGO_PKG_NAME}', secret_access_key: '${env:CARGO_PKG_NAME}', region: eu-central-1, service: s3 }
interception: { hosts: ['*.example.net'], tunnel: [api.example.com] }
";

    #[test]
    fn a_config_is_described_with_the_real_addresses() {
        let config = Config::parse("egret.yaml", CONFIG).unwrap();
        let addresses = [7001, 7002].map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port)).into());
        let info = describe(&config, &addresses);
        let listeners: Vec<_> =
            info.listeners.iter().map(|listener| (listener.address, listener.provider.as_deref())).collect();
        assert_eq!(listeners, [(addresses[0], None), (addresses[1], Some("s3"))]);
        assert!(info.providers["s3"].signs && !info.providers["other"].signs);
        assert_eq!(info.providers["other"].url, "https://api.example.com/v1");
    }

    #[test]
    fn an_interception_is_described_by_its_hosts_and_its_root() {
        let config = Config::parse("egret.yaml", CONFIG).unwrap();
        let certificates = Certificates::of(&config, None).unwrap().unwrap();
        let info = interception(&config, &certificates).unwrap();
        assert_eq!(info.hosts, ["s3.eu-central-1.amazonaws.com", "*.example.net"]);
        assert_eq!(info.tunnel, ["api.example.com"]);
        assert!(info.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!serde_json::to_string(&info).unwrap().contains("PRIVATE"));
        let without = Config { interception: None, ..config };
        assert_eq!(interception(&without, &certificates), None);
    }
}
