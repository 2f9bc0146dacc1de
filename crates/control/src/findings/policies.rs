//! Findings about remedies and what they share: circuits, queues, quotas, accounts.

use egret_accounts::AccountSnapshot;
use egret_cache::CacheSnapshot;
use egret_clock::Timestamp;
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats};
use egret_quota::{QuotaSnapshot, QuotaUnit};
use egret_remedy::{CircuitState, CircuitsSnapshot, Decision, QueueSnapshot};

use super::sample::{CountersSample, grown};
use super::trouble::{FindingKind, Severity, Trouble, WINDOW_S, number_of, percent};

/// A queue that is filled to this percentage fills.
const QUEUE_PERCENT: u64 = 80;
/// A quota with less than this percentage left is near its end, if its units come back later than in this
/// time.
const QUOTA_LEFT_PERCENT: u64 = 10;
const QUOTA_RESET_MIN_S: u64 = 900;

/// Returns the troubles of the flows and of what they share.
pub(super) fn troubles(
    now: Timestamp,
    flows: &FlowsSnapshot,
    current: &CountersSample,
    before: &CountersSample,
) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for flow in &flows.flows {
        for remedy in &flow.remedies {
            troubles.extend(of_remedy(flow, remedy));
        }
    }
    for (key, counts) in &current.decisions {
        // A flow that the earlier sample does not have is newer, and has counted from zero since.
        let known = before.decisions.get(key).map_or(0, |counts| counts[Decision::Fail as usize]);
        troubles.extend(undecided(&key.0, &key.1, grown(counts[Decision::Fail as usize], known)));
    }
    troubles.extend(flows.quotas.iter().filter_map(|quota| near_end(now, quota)));
    troubles.extend(flows.quotas.iter().filter_map(store_failed));
    troubles.extend(flows.quotas.iter().filter_map(differing_limits));
    troubles.extend(flows.accounts.iter().filter_map(unusable));
    troubles
}

fn of_remedy(flow: &FlowStats, remedy: &RemedyStats) -> Vec<Trouble> {
    let RemedyStats { cache, state, .. } = remedy;
    let circuits = state.circuits.as_ref().and_then(|circuits| open_circuits(&flow.name, circuits));
    let queue = state.queue.and_then(|queue| filling(&flow.name, queue));
    let disk = cache.as_ref().and_then(|cache| failed_disk(&flow.name, cache));
    [circuits, queue, disk].into_iter().flatten().collect()
}

fn open_circuits(flow: &str, circuits: &CircuitsSnapshot) -> Option<Trouble> {
    let CircuitsSnapshot { open, half_open, transitions, .. } = circuits;
    if *open == 0 {
        return None;
    }
    let opened = transitions.iter().rev().find(|transition| matches!(transition.to, CircuitState::Open(_)));
    let provider = opened.map_or("", |opened| &*opened.provider);
    let cause = opened.map(|opened| {
        let outcome = opened.outcome.map(|outcome| format!(", the last outcome: {outcome}"));
        format!("; it opened because of this: {}{}", opened.reason, outcome.unwrap_or_default())
    });
    Some(Trouble {
        kind: FindingKind::CircuitOpen,
        severity: Severity::Error,
        subject: flow.to_owned(),
        summary: format!("flow {flow}: the circuit breaker refuses calls to {provider}"),
        evidence: format!(
            "{} open, {half_open} testing{}",
            number_of(*open as u64, "circuit"),
            cause.unwrap_or_default()
        ),
        advice: "see why the provider fails; the circuit closes by itself once its test calls succeed"
            .to_owned(),
        since: opened.map(|opened| opened.at),
    })
}

fn filling(flow: &str, queue: QueueSnapshot) -> Option<Trouble> {
    let QueueSnapshot { waiting, size, oldest } = queue;
    if waiting == 0 || percent(waiting as u64, size as u64) < QUEUE_PERCENT {
        return None;
    }
    let is_full = waiting >= size;
    let state = if is_full { "is full, so calls are refused" } else { "fills" };
    Some(Trouble {
        kind: FindingKind::QueueFilling,
        severity: if is_full { Severity::Error } else { Severity::Warning },
        subject: flow.to_owned(),
        summary: format!("flow {flow}: the queue {state}"),
        evidence: format!(
            "{waiting} of {size} places are taken, the oldest call has waited for {} ms",
            oldest.as_millis()
        ),
        advice: "call less, raise the quota if the provider allows it, or raise `queue.size`".to_owned(),
        since: None,
    })
}

fn failed_disk(flow: &str, cache: &CacheSnapshot) -> Option<Trouble> {
    let disk = cache.disk.filter(|disk| !disk.is_open)?;
    Some(Trouble {
        kind: FindingKind::CacheDiskFailing,
        severity: Severity::Warning,
        subject: flow.to_owned(),
        summary: format!("flow {flow}: the disk of the cache does not work, or is still being read"),
        evidence: format!("{} responses are known on it", disk.entries),
        advice: "responses are stored in memory only; the log has the error of the disk".to_owned(),
        since: None,
    })
}

fn undecided(flow: &str, remedy: &str, count: u64) -> Option<Trouble> {
    (count > 0).then(|| Trouble {
        kind: FindingKind::RemedyFailing,
        severity: Severity::Warning,
        subject: format!("{flow} / {remedy}"),
        summary: format!("flow {flow}: the remedy `{remedy}` cannot decide"),
        evidence: format!("{count} times in the last {WINDOW_S} s; the log has the reason"),
        advice: "calls go on without it unless it fails closed; fix its expression or its store".to_owned(),
        since: None,
    })
}

fn near_end(now: Timestamp, quota: &QuotaSnapshot) -> Option<Trouble> {
    let is_long = |reset: Timestamp| reset.since(now).as_secs() >= QUOTA_RESET_MIN_S;
    let low = quota.groups.iter().filter(|group| {
        let left = percent(group.remaining, group.limit);
        group.limit > 0 && left < QUOTA_LEFT_PERCENT && is_long(group.reset)
    });
    let group = low.min_by_key(|group| group.remaining)?;
    let of_group = if group.name.is_empty() { String::new() } else { format!(" of group {}", group.name) };
    let minutes = group.reset.since(now).as_secs() / 60;
    Some(Trouble {
        kind: FindingKind::QuotaNearEnd,
        severity: if group.remaining == 0 { Severity::Error } else { Severity::Warning },
        subject: quota.name.clone(),
        summary: format!("quota {} is nearly used up", quota.name),
        evidence: format!(
            "{} of {}{of_group} are left; all used ones are back in {minutes} min",
            quota.unit.amount(group.remaining),
            quota.unit.words(group.limit)
        ),
        advice: match quota.unit {
            QuotaUnit::Usd => "call less, cache responses, or raise the budget".to_owned(),
            QuotaUnit::Units => {
                "call less, cache responses, or raise the limit if the provider allows it".to_owned()
            }
        },
        since: None,
    })
}

fn store_failed(quota: &QuotaSnapshot) -> Option<Trouble> {
    let failed = quota.groups.iter().filter(|group| group.has_store_failed).count();
    (failed > 0).then(|| Trouble {
        kind: FindingKind::StoreAway,
        severity: Severity::Error,
        subject: format!("quota {}", quota.name),
        summary: format!("quota {}: its store does not respond", quota.name),
        evidence: format!("{} cut off from it", number_of(failed as u64, "group")),
        advice: "check the disk of `data_dir` or the store of the cluster; `on_store_error` decides how calls go on".to_owned(),
        since: None,
    })
}

fn differing_limits(quota: &QuotaSnapshot) -> Option<Trouble> {
    let differs = quota.groups.iter().any(|group| group.shared.is_some_and(|shared| shared.config_differs));
    differs.then(|| Trouble {
        kind: FindingKind::LimitsDiffer,
        severity: Severity::Warning,
        subject: quota.name.clone(),
        summary: format!("quota {}: another gateway of the cluster has a different limit", quota.name),
        evidence: "the lowest one holds".to_owned(),
        advice: "make the quota the same in the configs of all gateways".to_owned(),
        since: None,
    })
}

fn unusable(account: &AccountSnapshot) -> Option<Trouble> {
    let AccountSnapshot { name, providers, cooling, token, .. } = account;
    let error = token.as_ref().and_then(|token| token.error);
    let evidence = match (cooling, error) {
        (_, Some(error)) => format!("its token cannot be fetched: {error}"),
        (Some(cooling), None) => format!("it cools down because of {}", cooling.reason()),
        (None, None) => return None,
    };
    Some(Trouble {
        kind: FindingKind::AccountUnusable,
        severity: if error.is_some() { Severity::Error } else { Severity::Warning },
        subject: name.clone(),
        summary: format!("account {name} of {} is not used for a while", providers.join(", ")),
        evidence,
        advice: "check its credential; other accounts of the same remedy take over meanwhile".to_owned(),
        since: None,
    })
}
