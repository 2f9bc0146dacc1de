//! Advice about a valid config: what is probably not what was meant. There is no warning about a config that
//! may be right.

pub mod clear;
mod clients;
mod names;
mod ports;
mod tunnels;

use egret_cluster::ClusterConfig;
use egret_config::{Loaded, Problem, Report, SourceSet};

use crate::config::Config;
use crate::{cluster_advice, config_advice};

/// Reads a config and the files that it includes, with the warnings about it.
pub fn load(sources: &SourceSet) -> Result<Loaded<Config>, Report> {
    Config::document(sources)?.load(Config::problems, advise).map_err(config_advice::complete)
}

/// Returns the warnings about a valid config.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = cluster_advice::advise(config);
    advice.extend(config.cluster.iter().flat_map(ClusterConfig::warnings));
    advice.extend(egret_flow::advice::advise(&config.flows, &config.quotas));
    advice.extend(clear::advise(config));
    advice.extend(clients::advise(config));
    advice.extend(names::advise(config));
    advice.extend(ports::advise(config));
    advice.extend(tunnels::advise(config));
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_token_that_each_gateway_of_a_cluster_uses_for_itself_is_warned_of() {
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
