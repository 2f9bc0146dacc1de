//! Budgets that count less than they seem to: of money without prices, and forgotten by a restart.

use egret_config::Problem;
use egret_match::providers::ProviderUrl;
use egret_presets::PresetName;
use egret_quota::{QuotaConfig, QuotaKind, QuotaUnit, StoreKind};

use crate::config::Config;

const UNPRICED: &str = "without prices, only calls whose provider states their cost are charged: run `egret prices import`, \
                        and name its file in `prices.file`";

/// Returns a warning for each quota of money if there are no prices, and no provider states costs.
pub fn advise(config: &Config) -> Vec<Problem> {
    let prices = &config.prices;
    if prices.file.is_some() || !prices.overrides.is_empty() || has_stated_costs(config) {
        return Vec::new();
    }
    let of_money = config.quotas.iter().filter(|(_, quota)| quota.unit == QuotaUnit::Usd);
    of_money.map(|(name, _)| Problem::new(format!("quotas.{name}"), UNPRICED)).collect()
}

/// Returns `true` if a provider states what a call has cost.
fn has_stated_costs(config: &Config) -> bool {
    config.providers.values().any(|provider| {
        let host = ProviderUrl::parse(provider.base_url()).map(|url| url.origin.authority.host.to_string());
        host.is_ok_and(|host| PresetName::of_host(&host) == Some(PresetName::Openrouter))
    })
}

/// Returns a sentence for each quota of a day or a month whose count a restart forgets. It can be meant.
pub fn forgotten(config: &Config) -> Vec<String> {
    let is_forgotten = |(_, quota): &(&String, &QuotaConfig)| {
        quota.kind == QuotaKind::Calendar && quota.store == StoreKind::Memory
    };
    let forgotten = config.quotas.iter().filter(is_forgotten);
    forgotten
        .map(|(name, _)| {
            format!("quotas.{name}: a restart forgets what was used, unless it has `store: file`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: &str =
        "quotas: { month: { limit: 5, unit: usd, cost: { usage: usd }, kind: calendar, period: month } }\n";

    fn paths(more: &str) -> Vec<String> {
        let config = Config::parse("egret.yaml", &format!("{BUDGET}{more}")).unwrap();
        advise(&config).into_iter().map(|warning| warning.path).collect()
    }

    #[test]
    fn money_without_prices_warns_unless_a_provider_states_costs() {
        assert_eq!(paths("providers: { p: 'https://api.openai.com' }"), ["quotas.month"]);
        assert_eq!(paths("providers: { p: { preset: openai } }"), ["quotas.month"]);
        let none: [&str; 0] = [];
        assert_eq!(paths("providers: { p: { preset: openrouter } }"), none);
        assert_eq!(paths("providers: { p: 'https://openrouter.ai/api' }"), none);
        assert_eq!(paths("prices: { overrides: { m: { input: 1, output: 2 } } }"), none);
    }

    #[test]
    fn a_period_that_a_restart_forgets_is_named() {
        let forgotten = |budget: &str| forgotten(&Config::parse("egret.yaml", budget).unwrap());
        assert_eq!(forgotten(BUDGET).len(), 1);
        assert_eq!(forgotten(&BUDGET.replace("kind", "store: file, kind")), [] as [&str; 0]);
        assert_eq!(forgotten("quotas: { a: { limit: 5, window: 1m } }"), [] as [&str; 0]);
    }
}
