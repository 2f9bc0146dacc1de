//! Advice about quotas that are valid and share badly among gateways, and the time for which calls count.

use std::time::Duration;

use egret_config::Problem;

use super::backing::is_long;
use super::config::{QuotaConfig, QuotaConfigs, QuotaKind, ShareDefault, StoreKind};
use super::quota::rule;
use super::share::cool_down_ms;

/// Returns advice about the quotas that so many gateways share.
pub fn advise(quotas: &QuotaConfigs, members: u64) -> Vec<Problem> {
    let shared = quotas.iter().filter(|(_, quota)| quota.store == StoreKind::Redis);
    shared.filter_map(|(name, quota)| advise_one(&format!("quotas.{name}"), quota, members)).collect()
}

fn advise_one(path: &str, quota: &QuotaConfig, members: u64) -> Option<Problem> {
    let (units, key) = smallest(quota);
    if units < members {
        let message = format!(
            "{members} gateways share {units} unit{}: all but {units} of them wait for a turn, which takes \
             seconds",
            if units == 1 { "" } else { "s" }
        );
        return Some(Problem::new(format!("{path}.{key}"), message));
    }
    let burst = quota.burst.unwrap_or(quota.limit);
    (quota.kind == QuotaKind::TokenBucket && burst < members.saturating_mul(2)).then(|| {
        let key = if quota.burst.is_some() { "burst" } else { "limit" };
        let message = format!(
            "{members} gateways share a bucket of {burst}: a part of one unit is useless to each, so the bucket \
             moves whole from one to the next; use `kind: sliding`"
        );
        Problem::new(format!("{path}.{key}"), message)
    })
}

/// Time after which no call of a quota that gateways share counts any more, whichever it is. Those of long
/// windows are left out: a store that forgets them lends as soon as the gateways have claimed what they used.
pub fn longest_cool_down(quotas: &QuotaConfigs) -> Duration {
    let shared = quotas.values().filter(|quota| quota.store == StoreKind::Redis);
    let rules = shared.filter_map(rule).filter(|rule| !is_long(rule));
    Duration::from_millis(rules.map(|rule| cool_down_ms(&rule)).max().unwrap_or_default())
}

/// The units of the smallest group, and the key that sets them.
fn smallest(quota: &QuotaConfig) -> (u64, String) {
    let whole = (quota.limit, "limit".to_owned());
    let Some(shares) = &quota.shares else { return whole };
    let listed = shares.groups.iter();
    let listed = listed.map(|(name, share)| (share.of(quota.limit), format!("shares.groups.{name}")));
    let default = match shares.default {
        ShareDefault::Block => None,
        ShareDefault::Allow => Some(shares.rest_of(quota.limit)),
        ShareDefault::Share(share) => Some(share.of(quota.limit)),
    };
    let default = default.map(|units| (units, "shares.default".to_owned()));
    listed.chain(default).chain([whole]).min_by_key(|(units, _)| *units).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn advice(quota: &Value) -> Vec<String> {
        let quotas = serde_json::from_value(json!({ "q": quota })).unwrap();
        let advice = advise(&quotas, 4);
        advice.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn quotas_that_share_badly_are_named_with_the_reason() {
        for (quota, expected) in [
            (json!({ "limit": 4, "window": "1s", "store": "redis" }), ""),
            (json!({ "limit": 3, "window": "1s" }), ""),
            (
                json!({ "limit": 3, "window": "1s", "store": "redis" }),
                "quotas.q.limit: 4 gateways share 3 units: all but 3",
            ),
            (
                json!({ "limit": 10, "window": "1s", "store": "redis", "group_by": "consumer",
                        "shares": { "groups": { "a": "10%", "b": "40%" } } }),
                "quotas.q.shares.groups.a: 4 gateways share 1 unit: all but 1",
            ),
            (json!({ "limit": 8, "window": "1s", "kind": "token-bucket", "store": "redis" }), ""),
            (json!({ "limit": 8, "window": "1h", "store": "redis" }), ""),
            (json!({ "limit": 8, "kind": "concurrency", "store": "redis" }), ""),
            (
                json!({ "limit": 100, "burst": 7, "window": "1s", "kind": "token-bucket", "store": "redis" }),
                "quotas.q.burst: 4 gateways share a bucket of 7",
            ),
        ] {
            let advice = advice(&quota);
            let is_expected = |line: &String| !expected.is_empty() && line.starts_with(expected);
            assert_eq!(advice.len(), usize::from(!expected.is_empty()), "{advice:?}");
            assert!(advice.iter().all(is_expected), "{advice:?}, expected {expected}");
        }
    }
}
