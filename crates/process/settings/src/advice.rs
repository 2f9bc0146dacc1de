//! Advice about a valid config: what is probably not what was meant. There is no warning about a config that
//! may be right.

mod accounts;
pub mod budgets;
pub mod clear;
mod clients;
mod control;
mod names;
mod paths;
mod ports;
pub mod presets;
mod tunnels;

use egret_cluster::ClusterConfig;
use egret_config::{Loaded, Problem, Report, SourceSet};

use crate::config::Config;
use crate::{cluster_advice, config_advice, fetched_secrets};

/// Reads a config and the files that it includes, with the warnings about it.
pub fn load(sources: &SourceSet) -> Result<Loaded<Config>, Report> {
    fetched_secrets::supply(sources, || Config::document(sources))
        .and_then(|document| document.load(Config::problems, advise))
        .map_err(config_advice::complete)
}

/// Returns the warnings about a valid config.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = cluster_advice::advise(config);
    advice.extend(config.cluster.iter().flat_map(ClusterConfig::warnings));
    advice.extend(egret_flow::advice::advise(&config.flows, &config.quotas));
    advice.extend(accounts::advise(config));
    advice.extend(budgets::advise(config));
    advice.extend(clear::advise(config));
    advice.extend(clients::advise(config));
    advice.extend(control::advise(config));
    advice.extend(names::advise(config));
    advice.extend(paths::advise(config));
    advice.extend(ports::advise(config));
    advice.extend(tunnels::advise(config));
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_one_flow_for_different_providers_are_warned_of() {
        let warnings = |second: &str| -> Vec<String> {
            let text = format!(
                "providers: {{ one: {{ url: 'https://one.example' }}, two: {{ url: 'https://two.example' }} }}\n\
                 accounts:\n  a: {{ provider: one, bearer: {{ token: '${{env:PATH}}' }} }}\n  \
                 b: {{ provider: {second}, bearer: {{ token: '${{env:PATH}}' }} }}\n\
                 flows: [{{ name: f, remedies: [authenticate: {{ account: a }}, authenticate: {{ account: b }}] }}]\n"
            );
            let config = Config::parse("egret.yaml", &text).unwrap();
            advise(&config).into_iter().map(|warning| warning.path).collect()
        };
        assert_eq!(warnings("two"), ["flows[0].remedies[1].authenticate.account"]);
        assert_eq!(warnings("[one, two]"), [] as [&str; 0]);
    }

    #[test]
    fn an_unshared_refresh_token_in_a_cluster_warns() {
        let text = "cluster: { name: c, redis: { url: 'redis://h:1' } }\n\
                    providers: { one: { url: 'https://one.example' } }\n\
                    accounts:\n  a:\n    provider: one\n    oauth2: { token_url: 'https://id.example/', client_id: me, \
                    grant: refresh_token, refresh_token: '${env:CARGO_PKG_NAME}' }\n";
        let mut config = Config::parse("egret.yaml", text).unwrap();
        // Nothing uses the account, which is a warning of its own.
        let paths = |config: &Config| -> Vec<String> {
            let warnings = advise(config).into_iter().map(|warning| warning.path);
            warnings.filter(|path| path != "accounts.a").collect()
        };
        assert_eq!(paths(&config), ["cluster", "accounts.a.oauth2.refresh_token"]);
        let cluster = config.cluster.as_mut().unwrap();
        cluster.key = Some(egret_config::Secret::from_value("${env:KEY}", "0".repeat(32)));
        assert_eq!(paths(&config), [] as [&str; 0]);
    }
}
