//! Tunnels to configured providers, which flows do not see.

use egret_config::Problem;
use egret_match::providers::ProviderUrl;

use crate::config::Config;

/// Returns a warning for each flow whose provider is exempted from interception: calls made through
/// `HTTPS_PROXY` pass the flow by. Without interception somebody may use another way into the gateway, so
/// that a running gateway warns once such a tunnel is opened.
pub fn advise(config: &Config) -> Vec<Problem> {
    let Some(interception) = &config.interception else { return Vec::new() };
    let Ok(rules) = interception.compile("interception") else { return Vec::new() };
    let is_tunnelled = |name: &&String| {
        let url =
            config.providers.get(*name).and_then(|provider| ProviderUrl::parse(provider.base_url()).ok());
        url.is_some_and(|url| url.origin.tls && rules.tunnels(&url.origin.authority.host))
    };
    let mut advice = Vec::new();
    for (number, flow) in config.flows.iter().enumerate() {
        let Some(provider) = flow.matching.provider.iter().find(is_tunnelled) else { continue };
        let message = format!(
            "`interception.tunnel` exempts the host of `{provider}`, so this flow does not apply to its calls through `HTTPS_PROXY`: remove the host there, or let the application call the provider by base URL"
        );
        let path = format!("flows[{number}].match.provider");
        advice.push(Problem::new(path, message).related("interception.tunnel"));
    }
    advice
}
