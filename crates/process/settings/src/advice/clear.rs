//! Credentials that are sent over the network in the clear.

use egret_accounts::AccountConfig;
use egret_config::Problem;
use egret_export::ExporterConfig;
use egret_flow::config::FlowConfig;
use egret_plan::config::is_in_clear;

use crate::config::Config;
use crate::secret_managers::ManagerConfig;

/// Returns a warning for each credential that others on the network path could read.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = Vec::new();
    for (name, account) in &config.accounts {
        advice.extend(of_account(config, name, account));
    }
    advice.extend(config.secrets.managers().filter_map(|manager| of_manager(&manager)));
    for (name, exporter) in &config.exporters {
        advice.extend(of_exporter(name, exporter));
    }
    for (number, flow) in config.flows.iter().enumerate() {
        advice.extend(of_flow(config, number, flow));
    }
    advice
}

/// Returns `true` if calls of a provider are sent in the clear.
fn is_clear_provider(config: &Config, provider: &str) -> bool {
    config.providers.get(provider).is_some_and(|provider| is_in_clear(provider.base_url()))
}

fn of_account(config: &Config, name: &str, account: &AccountConfig) -> Vec<Problem> {
    let mut advice = Vec::new();
    let at = format!("accounts.{name}");
    if account.sends_secret() {
        for provider in account.provider.iter().filter(|provider| is_clear_provider(config, provider)) {
            let message = format!(
                "the credential is sent to `{provider}` in the clear because its URL is `http`: anyone on the network path can read it; use `https`"
            );
            advice.push(Problem::new(format!("{at}.provider"), message));
        }
    }
    if let Some((url, key)) = account.token_url()
        && is_in_clear(&url)
    {
        let message = "tokens are fetched in the clear because this URL is `http`: anyone on the network path can read them, and \
                       the credentials sent to get them; use `https`";
        advice.push(Problem::new(format!("{at}.{key}"), message));
    }
    let Some(oauth2) = &account.oauth2 else { return advice };
    let shares_no_tokens = config.cluster.as_ref().is_some_and(|cluster| cluster.key.is_none());
    if shares_no_tokens && oauth2.refresh_token.is_some() {
        let message = "each gateway of the cluster uses this refresh token for itself; an endpoint that accepts it only once then \
                       revokes the grant: set `cluster.key`, with which the gateways share tokens";
        advice.push(Problem::new(format!("{at}.oauth2.refresh_token"), message));
    }
    advice
}

fn of_manager(manager: &ManagerConfig) -> Option<Problem> {
    let message = "secrets are fetched in the clear because this URL is `http`: anyone on the network path can read them, and \
                   the login; use `https`";
    let at = format!("secrets.{}.url", manager.kind().word());
    is_in_clear(&manager.url()).then(|| Problem::new(at, message))
}

fn of_exporter(name: &str, exporter: &ExporterConfig) -> Option<Problem> {
    let (url, key, has_secret) = match exporter {
        ExporterConfig::Otlp(otlp) => (Some(&otlp.endpoint), "endpoint", !otlp.headers.is_empty()),
        ExporterConfig::Alf(alf) => {
            (alf.transport.http.as_ref(), "transport.http", alf.service_token.is_some())
        }
        _ => return None,
    };
    let message = "the exporter's credentials are sent in the clear because this URL is `http`: anyone on the network path can \
                   read them; use `https`";
    let is_warned = has_secret && url.is_some_and(|url| is_in_clear(url));
    is_warned.then(|| Problem::new(format!("exporters.{name}.{key}"), message))
}

/// Returns a warning for each value from the environment that a flow adds to requests in the clear.
fn of_flow(config: &Config, number: usize, flow: &FlowConfig) -> Vec<Problem> {
    let Some(provider) = flow.matching.provider.iter().find(|provider| is_clear_provider(config, provider))
    else {
        return Vec::new();
    };
    let mut advice = Vec::new();
    for (at, remedy) in flow.remedies.iter().enumerate() {
        let Some(transform) = &remedy.transform else { continue };
        let request = &transform.request;
        if request.provider.is_some() {
            continue;
        }
        for (part, changes) in [("headers", &request.headers), ("query", &request.query)] {
            for (kind, values) in [("set", &changes.set), ("add", &changes.add)] {
                for (name, _) in values.iter().filter(|(_, value)| value.contains("${env:")) {
                    let path =
                        format!("flows[{number}].remedies[{at}].transform.request.{part}.{kind}.{name}");
                    let message = format!(
                        "this value from the environment is sent to `{provider}` in the clear because its URL is `http`: anyone on the network path can read it; use `https`"
                    );
                    advice.push(Problem::new(path, message));
                }
            }
        }
    }
    advice
}
