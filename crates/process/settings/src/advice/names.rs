//! Names that nothing refers to.

use std::collections::BTreeSet;

use egret_config::Problem;
use egret_export::ExporterConfig;
use egret_remedy::NamedPart;

use crate::config::Config;

/// Returns a warning for each quota, account, exporter and provider that no call can ever use.
pub fn advise(config: &Config) -> Vec<Problem> {
    let remedies = || config.flows.iter().flat_map(|flow| &flow.remedies);
    let named: Vec<NamedPart<'_>> = remedies().flat_map(egret_remedy::RemedyConfig::names).collect();
    let diagnoses = config.flows.iter().flat_map(|flow| &flow.diagnoses);
    let of_diagnoses = diagnoses.filter_map(|diagnosis| diagnosis.exporter());
    let exporters: BTreeSet<&str> = of_diagnoses.chain(config.alerts.export.as_deref()).collect();
    let mut advice = Vec::new();
    let quotas = used_quotas(config, &named);
    for name in config.quotas.keys().filter(|name| !quotas.contains(name.as_str())) {
        let message = "no flow draws from this quota: use it in a `limit` or `queue`, or remove it";
        advice.push(Problem::new(format!("quotas.{name}"), message));
    }
    let accounts: BTreeSet<&str> = named.iter().filter_map(account).collect();
    for name in config.accounts.keys().filter(|name| !accounts.contains(name.as_str())) {
        let message =
            "no flow makes calls with this account: use it in `authenticate` or `accounts`, or remove it";
        advice.push(Problem::new(format!("accounts.{name}"), message));
    }
    for (name, exporter) in config.exporters.iter().filter(|(name, _)| !exporters.contains(name.as_str())) {
        let message = match exporter {
            ExporterConfig::Webhook(_) => {
                "nothing is sent to this exporter: name it in `alerts.export`, or remove it"
            }
            _ => {
                "no diagnosis sends anything to this exporter: name it in `export` of a diagnosis, or remove it"
            }
        };
        advice.push(Problem::new(format!("exporters.{name}"), message));
    }
    if config.alerts.export.is_some() && !config.has_alerts() {
        let message = "no quota raises an alert: set `quotas.*.alerts`, or remove this key";
        advice.push(Problem::new("alerts.export", message));
    }
    let unreachable = unreachable_providers(config, &named);
    for name in &unreachable {
        let message = "no request can reach this provider: each listener sends all of its requests to another one; add a listener \
                       without `provider`, or one for this provider";
        advice.push(Problem::new(format!("providers.{name}"), message));
    }
    for (number, flow) in config.flows.iter().enumerate() {
        let providers = &flow.matching.provider;
        if !providers.is_empty() && providers.iter().all(|name| unreachable.contains(name.as_str())) {
            let message = "no request can reach these providers, so the flow never applies: see the warning at the provider";
            let path = format!("flows[{number}].match.provider");
            let provider = providers.first().map(|name| format!("providers.{name}")).unwrap_or_default();
            advice.push(Problem::new(path, message).related(provider));
        }
    }
    advice
}

/// The account that a remedy names.
fn account<'a>(named: &NamedPart<'a>) -> Option<&'a str> {
    match named {
        NamedPart::Account(name) => Some(name),
        _ => None,
    }
}

/// The quotas that a remedy draws from, and their parents.
fn used_quotas<'a>(config: &'a Config, named: &[NamedPart<'a>]) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    for name in named {
        let NamedPart::Quota(name) = name else { continue };
        let mut next = Some(*name);
        // A quota that is known has known parents.
        while let Some(name) = next.filter(|name| used.insert(*name)) {
            next = config.quotas.get(name).and_then(|quota| quota.parent.as_deref());
        }
    }
    used
}

/// The providers that no listener leads to, and that no remedy calls instead of another one.
fn unreachable_providers<'a>(config: &'a Config, named: &[NamedPart<'_>]) -> BTreeSet<&'a str> {
    let listeners = &config.gateway.listen;
    if listeners.iter().any(|listener| listener.provider.is_none()) {
        return BTreeSet::new();
    }
    let of_listeners = listeners.iter().flat_map(|listener| [&listener.provider, &listener.https_provider]);
    let of_remedies = named.iter().filter_map(|named| match named {
        NamedPart::Provider(name) => Some(*name),
        _ => None,
    });
    let reached: BTreeSet<&str> = of_listeners.flatten().map(String::as_str).chain(of_remedies).collect();
    config.providers.keys().map(String::as_str).filter(|name| !reached.contains(name)).collect()
}
