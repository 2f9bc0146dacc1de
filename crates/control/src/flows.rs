//! Flows and quotas as the API shows them.

use std::collections::BTreeMap;

use egret_flow::cache::{CacheEvent, CacheSnapshot, EntryStats};
use egret_flow::diagnosis::OnPressure;
use egret_flow::quota::{GroupSnapshot, QuotaKind, QuotaSnapshot};
use egret_flow::remedy::Mode;
use egret_flow::tally::Decision;
use egret_flow::{DiagnosisCounts, DiagnosisStats, FlowStats, RemedyStats};
use serde::Serialize;

/// A flow: an entry of `/api/v1/flows`.
#[derive(Debug, Serialize)]
pub struct FlowView<'a> {
    name: &'a str,
    /// How often `when` had no value.
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
    recorded: u64,
    dropped: u64,
    shed: u64,
    failed: u64,
    queued: u64,
}

#[derive(Debug, Serialize)]
struct RemedyView<'a> {
    remedy: &'a str,
    does: &'a str,
    mode: Mode,
    decisions: BTreeMap<&'static str, u64>,
    waits: u64,
    waited_us: u64,
    /// What it has stored and served, if it stores answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheView>,
}

#[derive(Debug, Serialize)]
struct CacheView {
    counts: BTreeMap<&'static str, u64>,
    entries: usize,
    bytes: u64,
    evicted: u64,
}

/// A quota: an entry of `/api/v1/quotas`.
#[derive(Debug, Serialize)]
pub struct QuotaView<'a> {
    name: &'a str,
    kind: QuotaKind,
    /// Of all groups, those that are not shown included.
    groups_count: usize,
    groups: Vec<GroupView<'a>>,
}

#[derive(Debug, Serialize)]
struct GroupView<'a> {
    name: &'a str,
    used: u64,
    limit: u64,
    remaining: u64,
    /// When all that is used will have come back, in microseconds since the epoch.
    reset_us: u64,
    store_failed: bool,
}

impl<'a> From<&'a FlowStats> for FlowView<'a> {
    fn from(flow: &'a FlowStats) -> Self {
        let FlowStats { name, match_failures, remedies, diagnoses } = flow;
        Self {
            name,
            match_failures: *match_failures,
            remedies: remedies.iter().map(RemedyView::from).collect(),
            diagnoses: diagnoses.iter().map(DiagnosisView::from).collect(),
        }
    }
}

impl<'a> From<&'a DiagnosisStats> for DiagnosisView<'a> {
    fn from(stats: &'a DiagnosisStats) -> Self {
        let DiagnosisStats { diagnosis, does, on_pressure, counts, .. } = stats;
        let DiagnosisCounts { recorded, dropped, shed, failed, queued } = *counts;
        Self { diagnosis, does, on_pressure: *on_pressure, recorded, dropped, shed, failed, queued }
    }
}

impl<'a> From<&'a RemedyStats> for RemedyView<'a> {
    fn from(stats: &'a RemedyStats) -> Self {
        let RemedyStats { remedy, does, mode, tally, cache } = stats;
        let decisions = Decision::ALL.iter().map(|decision| decision.word()).zip(tally.decisions);
        Self {
            remedy,
            does,
            mode: *mode,
            decisions: decisions.collect(),
            waits: tally.waits.iter().sum(),
            waited_us: tally.waited_us,
            cache: cache.as_ref().map(CacheView::from),
        }
    }
}

impl From<&CacheSnapshot> for CacheView {
    fn from(snapshot: &CacheSnapshot) -> Self {
        let EntryStats { entries, bytes, evicted, .. } = snapshot.entries;
        let counts = CacheEvent::ALL.iter().map(|count| count.word()).zip(snapshot.counts);
        Self { counts: counts.collect(), entries, bytes, evicted }
    }
}

impl<'a> From<&'a QuotaSnapshot> for QuotaView<'a> {
    fn from(quota: &'a QuotaSnapshot) -> Self {
        let QuotaSnapshot { name, kind, groups, groups_count } = quota;
        let groups = groups.iter().map(GroupView::from).collect();
        Self { name, kind: *kind, groups_count: *groups_count, groups }
    }
}

impl<'a> From<&'a GroupSnapshot> for GroupView<'a> {
    fn from(group: &'a GroupSnapshot) -> Self {
        Self {
            name: &group.name,
            used: group.used,
            limit: group.limit,
            remaining: group.remaining,
            reset_us: group.reset.as_micros(),
            store_failed: group.has_store_failed,
        }
    }
}
