//! The membership in a cluster in the form of the API.

use egret_cluster::{ClusterStatus, ShardStatus};
use egret_quota::{GroupSnapshot, OnStoreError, QuotaSnapshot};
use serde::Serialize;

/// The membership: the content of `/api/v1/cluster`.
#[derive(Debug, Serialize)]
pub struct ClusterView<'a> {
    name: &'a str,
    member: &'a str,
    /// Number of gateways, by the last reply.
    members: u64,
    /// `true` if the store responds for every shard.
    up: bool,
    /// The reason why it does not.
    error: Option<&'a str>,
    calls: u64,
    failures: u64,
    /// Remaining recovery window of the store.
    learning_us: u64,
    #[serde(rename = "segments")]
    shards: Vec<ShardView<'a>>,
    quotas: Vec<SharedQuotaView<'a>>,
}

#[derive(Debug, Serialize)]
struct ShardView<'a> {
    number: usize,
    /// The process of this gateway in the shard, in hexadecimal digits.
    instance: String,
    up: bool,
    error: Option<&'a str>,
    master: Option<&'a str>,
    members: u64,
    groups: usize,
    calls: u64,
    failures: u64,
    learning_us: u64,
}

/// A quota that the cluster shares.
#[derive(Debug, Serialize)]
struct SharedQuotaView<'a> {
    name: &'a str,
    /// Treatment of calls while the store does not respond.
    on_store_error: OnStoreError,
    /// Number of all groups, including those not shown.
    groups_count: usize,
    groups: Vec<SharedGroupView<'a>>,
}

#[derive(Debug, Serialize)]
struct SharedGroupView<'a> {
    name: &'a str,
    limit: u64,
    used: u64,
    /// Units that this gateway holds.
    hold: u64,
    /// Units that no gateway holds.
    pool: i64,
    /// Units that this gateway uses although it is cut off from the store.
    kept: u64,
    /// `held` by the lease; or, while the gateway is cut off, `kept` or `over`, as `on_store_error` decides.
    state: &'static str,
    config_differs: bool,
}

impl<'a> ClusterView<'a> {
    /// Shows a membership, and those of the quotas that are shared.
    pub fn new(status: &'a ClusterStatus, quotas: &'a [QuotaSnapshot]) -> Self {
        Self {
            name: &status.cluster,
            member: &status.member,
            members: status.members(),
            up: status.is_up(),
            error: status.error(),
            calls: status.calls(),
            failures: status.failures(),
            learning_us: micros(status.recovery_ms()),
            shards: {
                let numbered = status.shards.iter().enumerate();
                numbered.map(|(number, shard)| ShardView::new(number, shard)).collect()
            },
            quotas: quotas.iter().filter_map(SharedQuotaView::new).collect(),
        }
    }
}

impl<'a> ShardView<'a> {
    fn new(number: usize, shard: &'a ShardStatus) -> Self {
        Self {
            number,
            instance: format!("{:016x}", shard.instance),
            up: shard.is_up,
            error: shard.error.as_deref(),
            master: shard.master.as_deref(),
            members: shard.members,
            groups: shard.groups,
            calls: shard.calls,
            failures: shard.failures,
            learning_us: micros(shard.recovery_ms()),
        }
    }
}

impl<'a> SharedQuotaView<'a> {
    /// Shows a quota with a group that is shared.
    fn new(quota: &'a QuotaSnapshot) -> Option<Self> {
        let groups: Vec<_> = quota.groups.iter().filter_map(SharedGroupView::new).collect();
        let view = Self {
            name: &quota.name,
            on_store_error: quota.on_store_error,
            groups_count: quota.groups_count,
            groups,
        };
        (!view.groups.is_empty()).then_some(view)
    }
}

impl<'a> SharedGroupView<'a> {
    fn new(group: &'a GroupSnapshot) -> Option<Self> {
        let shared = group.shared?;
        let state = match (group.has_store_failed, shared.fallback) {
            (false, _) => "held",
            (true, 0) => "over",
            (true, _) => "kept",
        };
        Some(Self {
            name: &group.name,
            limit: group.limit,
            used: group.used,
            hold: shared.hold,
            pool: shared.pool,
            kept: shared.fallback,
            state,
            config_differs: shared.config_differs,
        })
    }
}

fn micros(ms: u64) -> u64 {
    ms.saturating_mul(1_000)
}
