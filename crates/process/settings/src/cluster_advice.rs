//! Advice about the config of a cluster and of the quotas that it shares.

use egret_config::{Duration, Problem};
use egret_flow::config::FlowConfig;
use egret_quota::{QuotaConfig, QuotaKind, StoreKind};

use crate::config::Config;

/// Returns warnings about a config with a cluster.
pub fn advise(config: &Config) -> Vec<Problem> {
    let Some(cluster) = &config.cluster else { return Vec::new() };
    let mut advice = egret_quota::advise(&config.quotas, cluster.members_expected);
    if cluster.key.is_none() {
        let message = "without `key`, every reader of the store can guess the names of groups, and gateways share no \
                       tokens: make a key with `openssl rand -hex 32`";
        advice.push(Problem::new("cluster", message));
    }
    for (number, flow) in config.flows.iter().enumerate() {
        advice.extend(endless_calls(config, number, flow));
    }
    advice
}

/// Warns of a flow whose calls hold slots of all gateways, and may last for ever.
fn endless_calls(config: &Config, number: usize, flow: &FlowConfig) -> Option<Problem> {
    let mut drawn = flow.remedies.iter().enumerate().filter_map(|(at, remedy)| {
        let limit = remedy.limit.as_ref().map(|limit| (&limit.quota, "limit"));
        let queue = remedy.queue.as_ref().map(|queue| (&queue.quota, "queue"));
        let (quota, key) = limit.or(queue)?;
        has_shared_slots(config, quota).then(|| format!("flows[{number}].remedies[{at}].{key}.quota"))
    });
    let path = drawn.next().filter(|_| !has_deadline(config, flow))?;
    let message = "slots that gateways share need calls that end: a gateway that is cut off from the store loses its \
                   slots to others, while its calls go on; set `timeouts.total` of the provider, or the remedy \
                   `timeout` with `total`";
    Some(Problem::new(path, message))
}

/// Returns `true` if a quota or one of its ancestors limits the calls of all gateways at once.
fn has_shared_slots(config: &Config, name: &str) -> bool {
    let parent = |quota: &&QuotaConfig| quota.parent.as_ref().and_then(|parent| config.quotas.get(parent));
    // An invalid config may have a circle.
    let mut lineage = std::iter::successors(config.quotas.get(name), parent).take(config.quotas.len());
    lineage.any(|quota| quota.kind == QuotaKind::Concurrency && quota.store == StoreKind::Redis)
}

/// Returns `true` if every call of the flow ends in time.
fn has_deadline(config: &Config, flow: &FlowConfig) -> bool {
    let is_set = |total: Duration| !total.is_zero();
    let common = config.gateway.timeouts.total;
    let of_provider = |name: &String| {
        let own = config.providers.get(name).and_then(|provider| provider.timeouts.total);
        is_set(own.unwrap_or(common))
    };
    let by_remedy = flow.remedies.iter().filter_map(|remedy| remedy.timeout.as_ref());
    let providers = &flow.matching.provider;
    let by_provider = if providers.is_empty() {
        is_set(common) && config.providers.keys().all(of_provider)
    } else {
        providers.iter().all(of_provider)
    };
    by_provider || by_remedy.filter_map(|timeout| timeout.total).any(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "cluster: { name: a, redis: { url: 'redis://h:1' }, members_expected: 4 KEY }\n\
                        quotas: { q: { limit: 9, kind: concurrency, store: redis } }\n\
                        providers: { p: { url: https://p.example TIMEOUTS } }\n\
                        flows: [{ name: f, match: { provider: p }, remedies: [REMEDY{ queue: { quota: q } }] }]\n";

    fn paths(key: &str, timeouts: &str, remedy: &str) -> Vec<String> {
        let text = HEAD.replace("KEY", key).replace("TIMEOUTS", timeouts).replace("REMEDY", remedy);
        let config = Config::parse("egret.yaml", &text).unwrap();
        crate::advice::advise(&config).into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_missing_key_or_deadline_of_a_cluster_warns() {
        let key = ", key: '${env:PATH}'";
        let timeouts = ", timeouts: { total: 30s }";
        assert_eq!(paths("", timeouts, ""), ["cluster"]);
        assert_eq!(paths(key, "", ""), ["flows[0].remedies[0].queue.quota"]);
        assert_eq!(paths(key, timeouts, ""), Vec::<String>::new());
        assert_eq!(paths(key, "", "{ timeout: { total: 30s } }, "), Vec::<String>::new());
        assert_eq!(
            paths(key, "", "{ timeout: { first_byte: 30s } }, "),
            ["flows[0].remedies[1].queue.quota"]
        );
    }
}
