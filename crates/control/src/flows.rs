//! Flows, quotas and accounts in the form of the API.

use std::collections::BTreeMap;

use egret_accounts::token::TokenSnapshot;
use egret_accounts::{AccountSnapshot, Ending};
use egret_cache::{CacheEvent, CacheSnapshot};
use egret_clock::Timestamp;
use egret_diagnosis::{DiagnosisCounts, DiagnosisStats, OnPressure};
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats};
use egret_quota::{GroupSnapshot, QuotaKind, QuotaSnapshot, QuotaUnit};
use egret_remedy::{
    CircuitState, CircuitsSnapshot, Decision, HedgesSnapshot, Mode, QueueSnapshot, ScriptSnapshot, Transition,
};
use egret_store::entries::{DiskStats, EntryStats};
use serde::Serialize;

use crate::faults::FaultView;
use crate::findings::Decisions;

/// A flow: an entry of `/api/v1/flows`.
#[derive(Debug, Serialize)]
pub struct FlowView<'a> {
    name: &'a str,
    /// Number of exchanges for which `when` or `when_response` could not be evaluated.
    match_failures: u64,
    /// Outermost first.
    remedies: Vec<RemedyView<'a>>,
    diagnoses: Vec<DiagnosisView<'a>>,
}

#[derive(Debug, Serialize)]
struct DiagnosisView<'a> {
    diagnosis: &'a str,
    does: &'a str,
    on_pressure: OnPressure,
    #[serde(flatten)]
    counts: DiagnosisCounts,
}

#[derive(Debug, Serialize)]
struct RemedyView<'a> {
    remedy: &'a str,
    does: &'a str,
    mode: Mode,
    decisions: BTreeMap<&'static str, u64>,
    /// The decisions of the last minute.
    last_minute: BTreeMap<&'static str, u64>,
    /// Share of each decision, from 0 to 1; all 0 before the first one.
    shares: BTreeMap<&'static str, f64>,
    waits: u64,
    waited_us: u64,
    /// The cache's content and counts, if the remedy stores responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheView>,
    /// The script's counts, if the remedy is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<ScriptSnapshot>,
    /// Name of the quota that the remedy draws from; `/api/v1/quotas` has its gauges.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<&'a str>,
    /// The exchanges that wait, if the remedy queues them.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueView>,
    /// The circuits, if the remedy is a breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    circuits: Option<CircuitsView<'a>>,
    /// The switch and the counts, if the remedy injects failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultView>,
    /// The second calls, if the remedy makes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    hedges: Option<HedgesSnapshot>,
}

#[derive(Debug, Serialize)]
struct QueueView {
    waiting: usize,
    size: usize,
    /// Time for which the oldest of them has waited.
    oldest_us: u64,
}

#[derive(Debug, Serialize)]
struct CircuitsView<'a> {
    /// `closed`, `open`, or `half-open` while probes decide: that of the worst circuit.
    state: &'static str,
    /// Number of circuits that count failures.
    circuits: usize,
    open: usize,
    half_open: usize,
    /// Latest time until which one of them stays open, in microseconds since the epoch.
    until_us: Option<u64>,
    /// Number of transitions so far, including those not shown.
    transitions_count: u64,
    /// The last transitions, the newest first.
    transitions: Vec<TransitionView<'a>>,
}

#[derive(Debug, Serialize)]
struct TransitionView<'a> {
    /// Time of the transition, in microseconds since the epoch.
    at_us: u64,
    /// The provider whose calls the circuit counts, or the host if it has none.
    provider: &'a str,
    /// The new state: `closed`, `open` or `half-open`.
    to: &'static str,
    /// Time until which the circuit opened, in microseconds since the epoch.
    until_us: Option<u64>,
    /// The reason in words.
    reason: String,
    /// The status code or the error of the call that led to it.
    outcome: Option<String>,
}

impl<'a> From<&'a Transition> for TransitionView<'a> {
    fn from(Transition { at, provider, to, reason, outcome }: &'a Transition) -> Self {
        let until = if let CircuitState::Open(until) = to { Some(until.as_micros()) } else { None };
        Self {
            at_us: at.as_micros(),
            provider,
            to: to.word(),
            until_us: until,
            reason: reason.to_string(),
            outcome: outcome.map(|outcome| outcome.to_string()),
        }
    }
}

impl From<QueueSnapshot> for QueueView {
    fn from(QueueSnapshot { waiting, size, oldest }: QueueSnapshot) -> Self {
        Self { waiting, size, oldest_us: u64::try_from(oldest.as_micros()).unwrap_or(u64::MAX) }
    }
}

impl<'a> From<&'a CircuitsSnapshot> for CircuitsView<'a> {
    fn from(snapshot: &'a CircuitsSnapshot) -> Self {
        let CircuitsSnapshot { circuits, open, half_open, until, transitions_count, transitions } = snapshot;
        let (circuits, open, half_open) = (*circuits, *open, *half_open);
        let state = match (open, half_open) {
            (0, 0) => "closed",
            (0, _) => "half-open",
            _ => "open",
        };
        Self {
            state,
            circuits,
            open,
            half_open,
            until_us: until.map(Timestamp::as_micros),
            transitions_count: *transitions_count,
            transitions: transitions.iter().rev().map(TransitionView::from).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct CacheView {
    counts: BTreeMap<&'static str, u64>,
    /// Share of the requests that a stored response served, from 0 to 1; `null` before the first one.
    hit_ratio: Option<f64>,
    entries: usize,
    bytes: u64,
    evicted: u64,
    /// The content of the cache's disk, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskStats>,
}

/// A quota: an entry of `/api/v1/quotas`.
#[derive(Debug, Serialize)]
pub struct QuotaView<'a> {
    name: &'a str,
    kind: QuotaKind,
    /// `usd` for a quota of money, whose figures are nano-dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<QuotaUnit>,
    /// Number of all groups, including those not shown.
    groups_count: usize,
    groups: Vec<GroupView<'a>>,
}

#[derive(Debug, Serialize)]
struct GroupView<'a> {
    name: &'a str,
    used: u64,
    /// Units of these that calls under way hold.
    reserved: u64,
    limit: u64,
    remaining: u64,
    /// Time at which all used units will be available again, in microseconds since the epoch.
    reset_us: u64,
    store_failed: bool,
    /// The latencies that an adaptive limit goes by, once they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<LatencyView>,
}

#[derive(Debug, Serialize)]
struct LatencyView {
    /// The provider's latency while few calls are in flight.
    baseline_us: u64,
    latest_us: u64,
}

/// The response of `/api/v1/accounts`.
#[derive(Debug, Serialize)]
pub struct AccountsView<'a> {
    accounts: Vec<AccountView<'a>>,
    /// Number of all accounts, including those not shown.
    accounts_count: usize,
}

#[derive(Debug, Serialize)]
struct AccountView<'a> {
    name: &'a str,
    kind: &'static str,
    providers: &'a [String],
    /// `usable`, or `cooling` until `until_us`.
    state: &'static str,
    /// End of the cooling period, in microseconds since the epoch.
    until_us: Option<u64>,
    /// The status code that caused it, or `token` if no token could be obtained.
    reason: Option<String>,
    in_flight: u32,
    calls: u64,
    /// Calls that the provider refused, by status code.
    refused: BTreeMap<&'static str, u64>,
    /// Calls without a response.
    failed: u64,
    /// Remaining calls as reported by the provider.
    remaining: Option<u64>,
    /// Time at which the provider's allowance resets, in microseconds since the epoch.
    reset_us: Option<u64>,
    /// The token fetched for the account, if its credential is one. Never contains the token itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<TokenView>,
}

#[derive(Debug, Serialize)]
struct TokenView {
    state: &'static str,
    expires_us: Option<u64>,
    /// The error of the last fetch, if it failed.
    trouble: Option<String>,
    /// Time before which no other fetch is attempted, in microseconds since the epoch.
    retry_us: Option<u64>,
    fetched: u64,
    failed: u64,
}

impl From<&TokenSnapshot> for TokenView {
    fn from(token: &TokenSnapshot) -> Self {
        Self {
            state: token.state.word(),
            expires_us: token.expires_at.map(Timestamp::as_micros),
            trouble: token.error.map(|trouble| trouble.to_string()),
            retry_us: token.retry_at.map(Timestamp::as_micros),
            fetched: token.fetched,
            failed: token.failed,
        }
    }
}

impl<'a> From<&'a FlowsSnapshot> for AccountsView<'a> {
    fn from(flows: &'a FlowsSnapshot) -> Self {
        let accounts = flows.accounts.iter().map(AccountView::from).collect();
        Self { accounts, accounts_count: flows.accounts_count }
    }
}

impl<'a> From<&'a AccountSnapshot> for AccountView<'a> {
    fn from(account: &'a AccountSnapshot) -> Self {
        let AccountSnapshot { name, kind, providers, cooling, in_flight, endings, remaining, reset, token } =
            account;
        let by_ending = Ending::ALL.into_iter().zip(*endings);
        let refused = by_ending.clone().filter(|(ending, _)| ending.is_refusal());
        Self {
            name,
            kind,
            providers,
            state: if cooling.is_some() { "cooling" } else { "usable" },
            until_us: cooling.map(|cooling| cooling.until.as_micros()),
            reason: cooling.map(|cooling| cooling.reason()),
            in_flight: *in_flight,
            calls: endings.iter().sum(),
            refused: refused.map(|(ending, count)| (ending.word(), count)).collect(),
            failed: by_ending.filter(|(ending, _)| *ending == Ending::Failed).map(|(_, count)| count).sum(),
            remaining: *remaining,
            reset_us: reset.map(Timestamp::as_micros),
            token: token.as_ref().map(TokenView::from),
        }
    }
}

impl<'a> FlowView<'a> {
    /// Returns the flow. `before` has the decisions of a minute ago, by flow and remedy.
    pub(crate) fn new(flow: &'a FlowStats, before: &BTreeMap<(String, String), Decisions>) -> Self {
        let FlowStats { name, match_failures, remedies, diagnoses } = flow;
        let remedy = |stats: &'a RemedyStats| {
            let key = (name.clone(), stats.remedy.clone());
            RemedyView::new(stats, before.get(&key).copied().unwrap_or_default())
        };
        Self {
            name,
            match_failures: *match_failures,
            remedies: remedies.iter().map(remedy).collect(),
            diagnoses: diagnoses.iter().map(DiagnosisView::from).collect(),
        }
    }
}

impl<'a> From<&'a DiagnosisStats> for DiagnosisView<'a> {
    fn from(stats: &'a DiagnosisStats) -> Self {
        let DiagnosisStats { diagnosis, description: does, on_pressure, counts, .. } = stats;
        Self { diagnosis, does, on_pressure: *on_pressure, counts: *counts }
    }
}

impl<'a> RemedyView<'a> {
    fn new(stats: &'a RemedyStats, before: Decisions) -> Self {
        let RemedyStats { remedy, description: does, mode, decisions: counts, cache, script, state } = stats;
        let decisions = Decision::ALL.iter().map(|decision| decision.word()).zip(counts.counts);
        let total: u64 = counts.counts.iter().sum();
        let grown = decisions.clone().zip(before);
        Self {
            remedy,
            does,
            mode: *mode,
            shares: decisions.clone().map(|(word, count)| (word, share(count, total))).collect(),
            decisions: decisions.collect(),
            last_minute: grown.map(|((word, now), then)| (word, now.saturating_sub(then))).collect(),
            waits: counts.waits.iter().sum(),
            waited_us: counts.waited_us,
            cache: cache.as_ref().map(CacheView::from),
            script: *script,
            quota: state.quota.as_deref(),
            queue: state.queue.map(QueueView::from),
            circuits: state.circuits.as_ref().map(CircuitsView::from),
            fault: state.fault.map(FaultView::from),
            hedges: state.hedges,
        }
    }
}

/// Returns the share of `count` in `total`, rounded to a millionth; 0 if there is nothing.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 would be off by less than the rounding")]
fn share(count: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (count as f64 / total as f64 * 1e6).round() / 1e6 }
}

impl From<&CacheSnapshot> for CacheView {
    fn from(snapshot: &CacheSnapshot) -> Self {
        let EntryStats { entries, bytes, evicted, .. } = snapshot.entries;
        let counts = CacheEvent::ALL.iter().map(|count| count.word()).zip(snapshot.counts);
        let count = |event: CacheEvent| {
            let counted = CacheEvent::ALL.iter().zip(snapshot.counts).find(|(known, _)| **known == event);
            counted.map_or(0, |(_, count)| count)
        };
        let served: u64 =
            [CacheEvent::Hit, CacheEvent::Stale, CacheEvent::Revalidated].map(count).iter().sum();
        let asked = served + count(CacheEvent::Miss);
        let hit_ratio = (asked > 0).then(|| share(served, asked));
        Self { counts: counts.collect(), hit_ratio, entries, bytes, evicted, disk: snapshot.disk }
    }
}

impl<'a> From<&'a QuotaSnapshot> for QuotaView<'a> {
    fn from(quota: &'a QuotaSnapshot) -> Self {
        let QuotaSnapshot { name, kind, unit, groups, groups_count, .. } = quota;
        let unit = Some(*unit).filter(|unit| *unit == QuotaUnit::Usd);
        let groups = groups.iter().map(GroupView::from).collect();
        Self { name, kind: *kind, unit, groups_count: *groups_count, groups }
    }
}

impl<'a> From<&'a GroupSnapshot> for GroupView<'a> {
    fn from(group: &'a GroupSnapshot) -> Self {
        Self {
            name: &group.name,
            used: group.used,
            reserved: group.reserved,
            limit: group.limit,
            remaining: group.remaining,
            reset_us: group.reset.as_micros(),
            store_failed: group.has_store_failed,
            latency: group
                .latencies_us
                .map(|[baseline_us, latest_us]| LatencyView { baseline_us, latest_us }),
        }
    }
}
