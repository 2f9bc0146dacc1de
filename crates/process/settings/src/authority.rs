//! The hosts that a config intercepts, and the owner and the time by which an authority for them is made.

use egret_ca::Owner;
use egret_clock::{Clock, Moment, Timestamp};
use egret_match::providers::ProviderUrl;
use egret_message::host_pattern::HostPattern;

use crate::config::Config;

/// Returns the hosts that the config intercepts, those of providers included, without those that it tunnels.
pub fn configured(config: &Config) -> Vec<HostPattern> {
    let interception = config.interception.clone().unwrap_or_default();
    // The config is valid, so there is a result.
    let compiled = interception.compile("interception").unwrap_or_default();
    let providers = config.providers.values();
    let hosts = providers
        .filter_map(|provider| Some(ProviderUrl::parse(provider.base_url()).ok()?.origin.authority.host));
    let hosts = hosts.filter(|host| !compiled.tunnels(host)).map(HostPattern::from);
    hosts.chain(compiled.hosts().iter().cloned()).collect()
}

/// Returns the hosts that the config tunnels.
pub fn tunnelled(config: &Config) -> Vec<HostPattern> {
    let interception = config.interception.clone().unwrap_or_default();
    interception.compile("interception").unwrap_or_default().tunnel().to_vec()
}

/// The user and the host, by which the root is recognized in a trust store.
pub fn owner() -> Owner {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user =
        std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "egret".to_owned());
    Owner::new(&format!("{user}@{host}"))
}

/// The system's time. Tests may simulate it.
pub fn now() -> Timestamp {
    Clock::new().timestamp(Moment::now())
}
