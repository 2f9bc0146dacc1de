//! Metrics as Prometheus text, exposition format 0.0.4.
//!
//! All values are in base units, seconds and bytes; counters end in `_total`. The writer is hand-written
//! because the format has only three kinds of lines, and because seconds printed from whole microseconds stay
//! exact.

mod text;

use std::collections::BTreeMap;

use egret_accounts::{AccountSnapshot, Ending};
use egret_cache::{AGE_BOUNDS_S, CacheEvent};
use egret_cluster::{ClusterStatus, RENEWAL_BOUNDS_US};
use egret_diagnosis::{DiagnosisCounts, DiagnosisStats, Family, Sample, SampleValue};
use egret_export::ExporterSnapshot;
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats};
use egret_observe::stats::{
    BOUNDS_US, Count, EndpointSnapshot, HistogramSnapshot, InterceptionSnapshot, ProviderSnapshot,
    StatsSnapshot,
};
use egret_quota::{AlertCount, GroupSnapshot, SharedSnapshot};
use egret_remedy::{Decision, FaultKind, ScriptSnapshot, WAIT_BOUNDS_US};
use egret_store::entries::{DiskStats, EntryStats};
use text::{Buckets, DurationBuckets, MetricsText, Seconds};

use crate::findings::Finding;
use crate::observed::Observed;
use crate::process::Process;
use crate::source::FetchStatus;

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders all metrics of one moment.
pub fn render(observed: &Observed, ready: bool, version: &str, findings: &[Finding]) -> String {
    let Observed { stats, flows, exporters, alerts, cluster, issuers, process, .. } = observed;
    let mut text = MetricsText::new();
    exchanges(&mut text, &stats.providers);
    providers(&mut text, &stats.providers);
    remedies(&mut text, &flows.flows);
    faults(&mut text, &flows.flows);
    scripts(&mut text, &flows.flows);
    caches(&mut text, &flows.flows);
    quotas(&mut text, flows);
    alerted(&mut text, alerts);
    if let Some(status) = cluster {
        membership(&mut text, status);
    }
    accounts(&mut text, &flows.accounts);
    let help = "1 unless the last attempt to renew the secret of the command failed.";
    fetched(&mut text, "egret_secret_command_up", "command", help, &observed.secret_commands);
    let help = "1 unless the last attempt to fetch the secret from its secret manager again failed.";
    fetched(&mut text, "egret_managed_secret_up", "secret", help, &observed.managed_secrets);
    exported(&mut text, exporters);
    diagnoses(&mut text, stats, &flows.flows);
    figures(&mut text, &flows.flows);
    clients(&mut text, stats);
    let help = "1 unless the last attempt to fetch the keys of the issuer failed.";
    fetched(&mut text, "egret_issuer_up", "issuer", help, issuers);
    interception(&mut text, &stats.interception);
    generated(&mut text, stats);
    dns(&mut text, stats);
    gateway(&mut text, stats, ready, version);
    troubles(&mut text, findings);
    machine(&mut text, process);
    text.into_string()
}

fn exchanges(text: &mut MetricsText, providers: &[ProviderSnapshot]) {
    text.family("egret_exchanges_total", "counter", "Finished exchanges.");
    for provider in providers {
        for exchanges in &provider.exchanges {
            let mut labels = labels(provider);
            labels.extend([("method", exchanges.method), ("status", exchanges.status)]);
            text.sample("egret_exchanges_total", &labels, exchanges.count);
        }
    }
    let latency = "Time from when the worker turned to the request, just before it read the end of the head, to the last byte of the response sent to the client.";
    histograms(text, "egret_exchange_latency_seconds", latency, providers, |provider| &provider.latency);
    let footprint =
        "Part of the latency spent in the gateway, without waiting for the provider or the bodies.";
    histograms(text, "egret_exchange_footprint_seconds", footprint, providers, |provider| {
        &provider.footprint
    });
}

/// Returns the labels of a provider, or of a host without one.
fn labels(provider: &ProviderSnapshot) -> Vec<(&'static str, &str)> {
    let host = provider.host.as_deref().map(|host| ("host", host));
    [("provider", &*provider.name)].into_iter().chain(host).collect()
}

fn histograms(
    text: &mut MetricsText,
    name: &str,
    help: &str,
    providers: &[ProviderSnapshot],
    read: fn(&ProviderSnapshot) -> &HistogramSnapshot,
) {
    text.family(name, "histogram", help);
    for provider in providers {
        let histogram = read(provider);
        let labels = labels(provider);
        let buckets = DurationBuckets { bounds_us: &BOUNDS_US, counts: &histogram.buckets };
        text.histogram(name, &labels, buckets, histogram.sum_us);
    }
}

/// Reads a figure of a provider.
type Read = fn(&ProviderSnapshot) -> u64;

/// Counters of each provider: name, type, help and reader.
const PROVIDER_FIGURES: [(&str, &str, &str, Read); 12] = [
    (
        "egret_provider_sent_bytes_total",
        "counter",
        "Bytes sent to the provider, heads and framing included.",
        |p| p.sent_bytes,
    ),
    (
        "egret_provider_received_bytes_total",
        "counter",
        "Bytes received from the provider, heads and framing included.",
        |p| p.received_bytes,
    ),
    ("egret_provider_connects_total", "counter", "Connections opened.", |p| p.connects),
    ("egret_provider_connect_failures_total", "counter", "Connections that could not be opened.", |p| {
        p.connect_failures
    }),
    ("egret_provider_tls_handshakes_total", "counter", "Completed TLS handshakes.", |p| p.tls_handshakes),
    ("egret_provider_tls_failures_total", "counter", "TLS handshakes that failed.", |p| p.tls_failures),
    ("egret_provider_pool_hits_total", "counter", "Exchanges that used an idle connection.", |p| p.pool_hits),
    (
        "egret_provider_pool_steals_total",
        "counter",
        "Idle connections taken over from another worker.",
        |p| p.pool_steals,
    ),
    (
        "egret_provider_repeats_total",
        "counter",
        "Requests repeated because a reused connection was dead.",
        |p| p.repeats,
    ),
    ("egret_provider_tunnels_total", "counter", "Tunnels opened by CONNECT or Upgrade.", |p| p.tunnels),
    ("egret_provider_connections", "gauge", "Connections open now, idle or in use.", |p| p.connections_open),
    ("egret_provider_connections_idle", "gauge", "Idle connections now.", |p| p.connections_idle),
];

/// Reads a figure of an endpoint.
type ReadEndpoint = fn(&EndpointSnapshot) -> u64;

/// Figures of each endpoint of a provider that has several: name, type, help and reader.
const ENDPOINT_FIGURES: [(&str, &str, &str, ReadEndpoint); 3] = [
    ("egret_endpoint_calls_total", "counter", "Calls that went to the endpoint.", |e| e.calls),
    ("egret_endpoint_failures_total", "counter", "Calls to the endpoint that failed.", |e| e.failures),
    ("egret_endpoint_excluded", "gauge", "Workers that leave the endpoint out now.", |e| e.excluded),
];

fn providers(text: &mut MetricsText, providers: &[ProviderSnapshot]) {
    let name = "egret_provider_call_failures_total";
    text.family(name, "counter", "Calls that failed, by status or error, also if a retry succeeded.");
    for provider in providers {
        for error in &provider.call_errors {
            let mut labels = labels(provider);
            labels.push(("error", error.name));
            text.sample(name, &labels, error.count);
        }
    }
    for (name, kind, help, read) in PROVIDER_FIGURES {
        text.family(name, kind, help);
        for provider in providers {
            text.sample(name, &labels(provider), read(provider));
        }
    }
    for (name, kind, help, read) in ENDPOINT_FIGURES {
        text.family(name, kind, help);
        for (provider, endpoint) in providers.iter().flat_map(|p| p.endpoints.iter().map(move |e| (p, e))) {
            let mut labels = labels(provider);
            labels.push(("endpoint", &endpoint.url));
            text.sample(name, &labels, read(endpoint));
        }
    }
}

/// The findings: one series for each finding, which an alert can watch as it is.
fn troubles(text: &mut MetricsText, findings: &[Finding]) {
    let name = "egret_finding";
    text.family(name, "gauge", "1 while something is wrong; without a finding there is no sample.");
    for Finding { kind, severity, subject, .. } in findings {
        let labels = [("kind", kind.slug()), ("severity", severity.word()), ("subject", subject)];
        text.sample(name, &labels, 1u64);
    }
}

fn remedies(text: &mut MetricsText, flows: &[FlowStats]) {
    text.family(
        "egret_remedy_decisions_total",
        "counter",
        "Decisions of remedies. One exchange may have several, for example one for each attempt.",
    );
    for (flow, remedy) in each_remedy(flows) {
        for (decision, count) in Decision::ALL.iter().zip(remedy.decisions.counts) {
            let labels = [
                ("flow", flow),
                ("remedy", &remedy.remedy),
                ("mode", remedy.mode.word()),
                ("decision", decision.word()),
            ];
            text.sample("egret_remedy_decisions_total", &labels, count);
        }
    }
    let name = "egret_remedy_wait_seconds";
    text.family(
        name,
        "histogram",
        "Time that exchanges waited for a remedy; only remedies that delay exchanges.",
    );
    for (flow, remedy) in each_remedy(flows) {
        let counts = &remedy.decisions;
        if counts.waits.iter().any(|count| *count > 0) {
            let labels = [("flow", flow), ("remedy", &*remedy.remedy)];
            text.histogram(
                name,
                &labels,
                DurationBuckets { bounds_us: &WAIT_BOUNDS_US, counts: &counts.waits },
                counts.waited_us,
            );
        }
    }
    let name = "egret_flow_match_failures_total";
    text.family(name, "counter", "Exchanges for which a flow's `when` could not be evaluated.");
    for flow in flows {
        text.sample(name, &[("flow", &flow.name)], flow.match_failures);
    }
}

/// Writes whether each fault is on, and the failures that it has injected.
fn faults(text: &mut MetricsText, flows: &[FlowStats]) {
    let all: Vec<_> = each_remedy(flows)
        .filter_map(|(flow, remedy)| Some((flow, &*remedy.remedy, remedy.state.fault?)))
        .collect();
    if all.is_empty() {
        return;
    }
    let name = "egret_fault_active";
    text.family(name, "gauge", "1 while a fault lets calls fail.");
    for (flow, remedy, fault) in &all {
        text.sample(name, &[("flow", flow), ("remedy", remedy)], u64::from(fault.is_active));
    }
    let name = "egret_faults_injected_total";
    text.family(name, "counter", "Failures that faults have injected.");
    for (flow, remedy, fault) in &all {
        for (kind, count) in FaultKind::ALL.iter().zip(fault.counts) {
            text.sample(name, &[("flow", flow), ("remedy", remedy), ("fault", kind.word())], count);
        }
    }
}

/// Reads a counter of a script.
type ReadScript = fn(&ScriptSnapshot) -> u64;

/// Figures of each script: name, help and reader.
const SCRIPT_FIGURES: [(&str, &str, ReadScript); 2] = [
    ("egret_script_overruns_total", "Calls of scripts that ran out of time or memory.", |script| {
        script.overruns
    }),
    ("egret_script_rests_total", "Times that scripts rested for 30 seconds after ten overruns.", |script| {
        script.rests
    }),
];

fn scripts(text: &mut MetricsText, flows: &[FlowStats]) {
    let all: Vec<_> = each_remedy(flows)
        .filter_map(|(flow, remedy)| Some(([("flow", flow), ("remedy", &*remedy.remedy)], remedy.script?)))
        .collect();
    for (name, help, read) in SCRIPT_FIGURES.iter().filter(|_| !all.is_empty()) {
        text.family(name, "counter", help);
        for (labels, script) in &all {
            text.sample(name, labels, read(script));
        }
    }
}

fn each_remedy(flows: &[FlowStats]) -> impl Iterator<Item = (&str, &RemedyStats)> {
    flows.iter().flat_map(|flow| flow.remedies.iter().map(|remedy| (flow.name.as_str(), remedy)))
}

/// Reads a figure of the entries of a cache.
type ReadEntries = fn(&EntryStats) -> u64;

/// Figures of the entries of each cache: name, type, help and reader.
const CACHE_FIGURES: [(&str, &str, &str, ReadEntries); 3] = [
    ("egret_cache_entries", "gauge", "Responses stored now.", |stored| stored.entries as u64),
    ("egret_cache_bytes", "gauge", "Memory of the stored responses in bytes, overhead included.", |stored| {
        stored.bytes
    }),
    ("egret_cache_evictions_total", "counter", "Responses evicted to make room for others.", |stored| {
        stored.evicted
    }),
];

/// Reads a figure of a cache's disk.
type ReadDisk = fn(&DiskStats) -> u64;

/// Figures of each cache's disk, if it has one: name, type, help and reader.
const DISK_FIGURES: [(&str, &str, &str, ReadDisk); 8] = [
    ("egret_cache_disk_up", "gauge", "1 if the disk of the cache works and its content is known.", |disk| {
        u64::from(disk.is_open)
    }),
    ("egret_cache_disk_entries", "gauge", "Responses on the disk now, or waiting to be written.", |disk| {
        disk.entries as u64
    }),
    ("egret_cache_disk_bytes", "gauge", "Bytes of their files.", |disk| disk.bytes),
    ("egret_cache_disk_loads_total", "counter", "Responses read back into memory.", |disk| disk.loads),
    ("egret_cache_disk_writes_total", "counter", "Responses written.", |disk| disk.writes),
    ("egret_cache_disk_evictions_total", "counter", "Responses evicted to make room for others.", |disk| {
        disk.evicted
    }),
    (
        "egret_cache_disk_skipped_total",
        "counter",
        "Responses not written because too many were waiting or they were too large.",
        |disk| disk.skipped,
    ),
    (
        "egret_cache_disk_dropped_total",
        "counter",
        "Files deleted because they could not be read back.",
        |disk| disk.dropped,
    ),
];

fn caches(text: &mut MetricsText, flows: &[FlowStats]) {
    let caches: Vec<_> = each_remedy(flows)
        .filter_map(|(flow, remedy)| Some(([("flow", flow), ("remedy", &*remedy.remedy)], remedy.cache?)))
        .collect();
    if caches.is_empty() {
        return;
    }
    let name = "egret_cache_events_total";
    text.family(name, "counter", "Cache events: hits and misses per request, and stored responses.");
    for (labels, cache) in &caches {
        for (count, value) in CacheEvent::ALL.iter().zip(cache.counts) {
            text.sample(name, &[&labels[..], &[("event", count.word())]].concat(), value);
        }
    }
    for (name, kind, help, read) in CACHE_FIGURES {
        text.family(name, kind, help);
        for (labels, cache) in &caches {
            text.sample(name, labels, read(&cache.entries));
        }
    }
    let disks: Vec<_> =
        caches.iter().filter_map(|(labels, cache)| Some((labels, cache.disk.as_ref()?))).collect();
    for (name, kind, help, read) in DISK_FIGURES.iter().filter(|_| !disks.is_empty()) {
        text.family(name, kind, help);
        for (labels, disk) in &disks {
            text.sample(name, *labels, read(disk));
        }
    }
    let name = "egret_cache_age_seconds";
    text.family(name, "histogram", "Age of stored responses when they were served.");
    for (labels, cache) in &caches {
        let bounds = AGE_BOUNDS_S.iter().map(u64::to_string).collect();
        text.buckets(name, labels, Buckets { bounds, counts: &cache.ages }, cache.ages_s);
    }
}

/// Reads a figure of a quota group.
type ReadGroup = fn(&GroupSnapshot) -> u64;

/// Figures of each quota group: name, help and reader.
const GROUP_FIGURES: [(&str, &str, ReadGroup); 4] = [
    ("egret_quota_used", "Units used in the window.", |group| group.used),
    ("egret_quota_reserved", "Units of these that calls under way hold.", |group| group.reserved),
    (
        "egret_quota_limit",
        "Units available per window, or calls at once; an adaptive limit as it is now.",
        |group| group.limit,
    ),
    ("egret_quota_store_failed", "1 while the quota's store does not respond.", |group| {
        u64::from(group.has_store_failed)
    }),
];

/// Reads a figure of a group that a cluster shares.
type ReadShared = fn(SharedSnapshot) -> i64;

/// Figures of each of these groups: name, help and reader.
const SHARED_FIGURES: [(&str, &str, ReadShared); 4] = [
    ("egret_quota_hold", "Units that this gateway holds of a quota that the cluster shares.", |shared| {
        units(shared.hold)
    }),
    (
        "egret_quota_pool",
        "Units that no gateway holds, as the store told last; negative if a limit was lowered, or exceeded by costs.",
        |shared| shared.pool,
    ),
    ("egret_quota_kept", "Units that this gateway uses although it is cut off from the store.", |shared| {
        units(shared.fallback)
    }),
    (
        "egret_quota_config_differs",
        "1 while another gateway has a different limit in its config; the lowest one holds.",
        |shared| i64::from(shared.config_differs),
    ),
];

fn units(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn quotas(text: &mut MetricsText, flows: &FlowsSnapshot) {
    let groups: Vec<_> = flows
        .quotas
        .iter()
        .flat_map(|quota| quota.groups.iter().map(move |group| (quota.name.as_str(), group)))
        .collect();
    for (name, help, read) in GROUP_FIGURES {
        text.family(name, "gauge", help);
        for (quota, group) in &groups {
            text.sample(name, &[("quota", quota), ("group", &group.name)], read(group));
        }
    }
    let shared: Vec<_> =
        groups.into_iter().filter_map(|(quota, group)| Some((quota, group, group.shared?))).collect();
    for (name, help, read) in SHARED_FIGURES.iter().filter(|_| !shared.is_empty()) {
        text.family(name, "gauge", help);
        for (quota, group, shared) in &shared {
            text.sample(name, &[("quota", quota), ("group", &group.name)], read(*shared));
        }
    }
}

/// Writes the figures of the membership in a cluster.
fn membership(text: &mut MetricsText, status: &ClusterStatus) {
    let up = "1 while the store of the cluster responds for every segment.";
    text.gauge("egret_cluster_up", up, u64::from(status.is_up()));
    let members = "Gateways in the cluster, as the store told last.";
    text.gauge("egret_cluster_members", members, status.members());
    let name = "egret_cluster_learning_seconds";
    text.family(name, "gauge", "Remaining time for which the store only learns what the gateways hold.");
    text.sample(name, &[], Seconds(status.recovery_ms().saturating_mul(1_000)));
    text.counter("egret_cluster_calls_total", "Calls to the store that were answered.", status.calls());
    let failures = "Failures of the store: of attempts to connect, and of calls.";
    text.counter("egret_cluster_failures_total", failures, status.failures());
    let name = "egret_cluster_renewal_seconds";
    text.family(name, "histogram", "Time from a call to the store to its reply.");
    let counts = status.renewals();
    let buckets = DurationBuckets { bounds_us: &RENEWAL_BOUNDS_US, counts: &counts };
    text.histogram(name, &[], buckets, status.renewals_us());
}

/// Reads a figure of an account, if it is known.
type ReadAccount = fn(&AccountSnapshot) -> Option<u64>;

/// Figures of each account besides its calls: name, help and reader.
const ACCOUNT_FIGURES: [(&str, &str, ReadAccount); 3] = [
    ("egret_account_in_flight", "Exchanges that use the account now.", |account| {
        Some(u64::from(account.in_flight))
    }),
    (
        "egret_account_cooling",
        "1 while the account is not used because the provider refused it or no token could be obtained.",
        |account| Some(u64::from(account.cooling.is_some())),
    ),
    (
        "egret_account_remaining",
        "Remaining calls as reported by the provider; absent without such a report.",
        |account| account.remaining,
    ),
];

fn accounts(text: &mut MetricsText, accounts: &[AccountSnapshot]) {
    if accounts.is_empty() {
        return;
    }
    let name = "egret_account_calls_total";
    text.family(name, "counter", "Calls made with the account, by outcome.");
    for account in accounts {
        for (ending, count) in Ending::ALL.iter().zip(account.endings) {
            text.sample(name, &[("account", &account.name), ("outcome", ending.word())], count);
        }
    }
    for (name, help, read) in ACCOUNT_FIGURES {
        text.family(name, "gauge", help);
        for account in accounts {
            if let Some(value) = read(account) {
                text.sample(name, &[("account", &account.name)], value);
            }
        }
    }
}

/// Shows by a metric for which of the `statuses` the last attempt has succeeded.
fn fetched(text: &mut MetricsText, name: &str, label: &str, help: &str, statuses: &[FetchStatus]) {
    if statuses.is_empty() {
        return;
    }
    text.family(name, "gauge", help);
    for status in statuses {
        text.sample(name, &[(label, &status.name)], u64::from(status.failure.is_none()));
    }
}

/// Reads a figure of an exporter.
type ReadExporter = fn(&ExporterSnapshot) -> u64;

fn alerted(text: &mut MetricsText, alerts: &[AlertCount]) {
    let name = "egret_quota_alerts_total";
    text.family(name, "counter", "Alerts told, by the percentage of the quota's limit that was used.");
    for AlertCount { quota, percent, count } in alerts {
        text.sample(name, &[("quota", &**quota), ("percent", &percent.to_string())], count);
    }
}

/// Figures of each exporter: name, type, help and reader.
const EXPORTER_FIGURES: [(&str, &str, &str, ReadExporter); 7] = [
    ("egret_exporter_put_total", "counter", "Entries given to the exporter.", |e| e.put),
    (
        "egret_exporter_written_total",
        "counter",
        "Entries written to a file or accepted by a collector.",
        |e| e.written,
    ),
    ("egret_exporter_written_bytes_total", "counter", "Bytes written or accepted.", |e| e.written_bytes),
    ("egret_exporter_retries_total", "counter", "Retries after a failed attempt.", |e| e.retries),
    ("egret_exporter_repaired_total", "counter", "Files repaired that a crash had left incomplete.", |e| {
        e.repaired
    }),
    ("egret_exporter_spooled_bytes", "gauge", "Bytes spooled on disk, waiting to be sent.", |e| {
        e.spooled_bytes
    }),
    ("egret_exporter_up", "gauge", "1 unless the last attempt to write or send failed.", |e| u64::from(e.up)),
];

fn exported(text: &mut MetricsText, exporters: &[ExporterSnapshot]) {
    for (name, kind, help, read) in EXPORTER_FIGURES {
        text.family(name, kind, help);
        for exporter in exporters {
            text.sample(name, &[("exporter", &exporter.name)], read(exporter));
        }
    }
    let name = "egret_exporter_dropped_total";
    text.family(name, "counter", "Lost entries, by reason.");
    for exporter in exporters {
        for (reason, count) in &exporter.dropped {
            text.sample(name, &[("exporter", &exporter.name), ("reason", reason)], count);
        }
    }
}

fn diagnoses(text: &mut MetricsText, stats: &StatsSnapshot, flows: &[FlowStats]) {
    let name = "egret_diagnosis_exchanges_total";
    text.family(name, "counter", "Exchanges selected for the diagnosis, by result; each is counted once.");
    for (flow, diagnosis) in each_diagnosis(flows) {
        let DiagnosisCounts { recorded, dropped, shed, skipped, failed, .. } = diagnosis.counts;
        for (result, count) in [
            ("recorded", recorded),
            ("dropped", dropped),
            ("shed", shed),
            ("skipped", skipped),
            ("failed", failed),
        ] {
            let labels = [("flow", flow), ("diagnosis", &*diagnosis.diagnosis), ("result", result)];
            text.sample(name, &labels, count);
        }
    }
    let name = "egret_diagnosis_queued";
    text.family(name, "gauge", "Finished exchanges that wait for the diagnosis.");
    for (flow, diagnosis) in each_diagnosis(flows) {
        text.sample(name, &[("flow", flow), ("diagnosis", &diagnosis.diagnosis)], diagnosis.counts.queued);
    }
    let help = "1 while diagnoses are suspended because they cannot keep up.";
    text.gauge("egret_diagnoses_shedding", help, u64::from(stats.diagnoses_shedding));
    let help = "Number of times that diagnoses were suspended.";
    text.counter("egret_diagnoses_sheds_total", help, stats.diagnoses_sheds);
}

fn each_diagnosis(flows: &[FlowStats]) -> impl Iterator<Item = (&str, &DiagnosisStats)> {
    flows.iter().flat_map(|flow| flow.diagnoses.iter().map(|diagnosis| (flow.name.as_str(), diagnosis)))
}

/// Writes the figures counted by diagnoses. Several flows may use the same name.
fn figures(text: &mut MetricsText, flows: &[FlowStats]) {
    /// A family, and its samples with the names of their flows.
    type OfFlows<'a> = (&'a Family, Vec<(&'a str, &'a Sample)>);
    let mut families: BTreeMap<&str, OfFlows<'_>> = BTreeMap::new();
    for (flow, diagnosis) in each_diagnosis(flows) {
        for family in &diagnosis.metrics {
            let (_, samples) = families.entry(&family.name).or_insert((family, Vec::new()));
            samples.extend(family.samples.iter().map(|sample| (flow, sample)));
        }
    }
    for (name, (Family { kind, help, .. }, samples)) in families {
        text.family(name, kind.word(), help);
        for (flow, sample) in samples {
            let own = sample.labels.iter().map(|(label, value)| (&**label, value.as_str()));
            let labels: Vec<_> = [("flow", flow)].into_iter().chain(own).collect();
            match &sample.value {
                SampleValue::Number(number) => text.sample(name, &labels, number),
                SampleValue::Histogram { bounds, counts, sum } => {
                    let bounds = bounds.iter().map(f64::to_string).collect();
                    text.buckets(name, &labels, Buckets { bounds, counts }, sum);
                }
            }
        }
    }
}

fn clients(text: &mut MetricsText, stats: &StatsSnapshot) {
    let clients = &stats.clients;
    text.counter("egret_client_connections_accepted_total", "Client connections accepted.", clients.accepted);
    text.counter(
        "egret_client_connections_refused_total",
        "Client connections rejected at the limit.",
        clients.refused,
    );
    text.counter(
        "egret_client_tls_failures_total",
        "Client connections whose TLS handshake failed.",
        clients.tls_failures,
    );
    text.gauge("egret_client_connections", "Client connections open now.", clients.open);
    text.gauge(
        "egret_client_connections_idle",
        "Client connections that are waiting for a request now.",
        clients.idle,
    );
    text.gauge("egret_client_tunnels", "Tunnels open now.", clients.tunnels);
    text.counts(
        "egret_client_gone_total",
        "Exchanges whose client closed its connection before the response was complete, by the end of the call.",
        "call",
        &[
            Count { name: "cancelled", count: clients.gone_cancelled },
            Count { name: "finished", count: clients.gone_finished },
        ],
    );
    text.counts(
        "egret_client_http2_floods_total",
        "Client connections of HTTP/2 that were ended because of a flood of frames, by kind.",
        "kind",
        &stats.floods,
    );
    text.counter("egret_client_received_bytes_total", "Bytes received from clients.", clients.received_bytes);
    text.counter("egret_client_sent_bytes_total", "Bytes sent to clients.", clients.sent_bytes);
}

fn interception(text: &mut MetricsText, interception: &InterceptionSnapshot) {
    text.counter(
        "egret_intercept_connections_total",
        "Tunnels whose HTTPS or HTTP the gateway served itself.",
        interception.connections,
    );
    text.counter("egret_intercept_exchanges_total", "Requests inside those tunnels.", interception.exchanges);
    text.counter(
        "egret_intercept_refused_total",
        "Tunnels whose client refused the gateway's certificate.",
        interception.refused,
    );
    text.counter(
        "egret_intercept_unknown_total",
        "Tunnels to intercepted hosts closed because they carry neither TLS nor HTTP/1.",
        interception.unknown,
    );
    text.counter(
        "egret_intercept_name_mismatches_total",
        "Tunnels closed because the client named another server in TLS than in its CONNECT.",
        interception.sni_mismatches,
    );
    text.counter(
        "egret_intercept_bypasses_total",
        "Tunnels relayed unread to a configured provider, whose flows did not apply.",
        interception.provider_tunnels,
    );
    if let Some(expires_s) = interception.ca_expires_s {
        text.gauge("egret_ca_expires_seconds", "Time until the authority's certificates expire.", expires_s);
    }
}

fn generated(text: &mut MetricsText, stats: &StatsSnapshot) {
    text.counts(
        "egret_generated_answers_total",
        "Responses generated by the gateway itself, by error.",
        "error",
        &stats.generated,
    );
    text.counts(
        "egret_denials_total",
        "Denied targets, including those let through by report mode.",
        "reason",
        &stats.denials,
    );
    text.counts(
        "egret_client_unproven_total",
        "Requests and connections refused because the client has not proven who it is.",
        "reason",
        &stats.unproven,
    );
}

fn dns(text: &mut MetricsText, stats: &StatsSnapshot) {
    let dns = &stats.dns;
    text.counter("egret_dns_lookups_total", "Host name look-ups requested.", dns.lookups);
    text.counter("egret_dns_cache_hits_total", "Look-ups served from the cache.", dns.hits);
    text.counter("egret_dns_coalesced_total", "Look-ups that joined one already in progress.", dns.coalesced);
    text.counter("egret_dns_failures_total", "Look-ups that failed, cached failures included.", dns.failures);
    text.gauge("egret_dns_cache_entries", "Names in the cache now.", dns.entries);
}

fn gateway(text: &mut MetricsText, stats: &StatsSnapshot, ready: bool, version: &str) {
    text.family("egret_config_reloads_total", "counter", "Configurations read since start, by result.");
    text.sample("egret_config_reloads_total", &[("result", "applied")], stats.reloads);
    text.sample("egret_config_reloads_total", &[("result", "refused")], stats.reloads_refused);
    let dropped = "Access-log lines dropped because the log could not keep up.";
    text.counter("egret_access_log_dropped_total", dropped, stats.access_log_dropped);
    let gathered = "Memory of bodies that are buffered because a flow inspects them or may resend them.";
    text.gauge("egret_gathered_bytes", gathered, stats.gathered_bytes);
    text.gauge(
        "egret_ready",
        "1 while new exchanges are accepted, 0 while starting or draining.",
        u64::from(ready),
    );
    text.gauge("egret_uptime_seconds", "Time since the gateway started.", stats.uptime_s);
    text.family("egret_build_info", "gauge", "Always 1; the labels identify the running version.");
    text.sample("egret_build_info", &[("version", version)], 1);
}

fn machine(text: &mut MetricsText, process: &Process) {
    if let Some(cpu_ms) = process.cpu_ms {
        text.family(
            "egret_process_cpu_seconds_total",
            "counter",
            "CPU time of all threads, user and system.",
        );
        text.sample("egret_process_cpu_seconds_total", &[], Seconds(cpu_ms * 1_000));
    }
    if let Some(bytes) = process.resident_bytes {
        text.gauge("egret_process_resident_memory_bytes", "Resident memory.", bytes);
    }
    if let Some(fds) = process.open_fds {
        text.gauge("egret_process_open_fds", "Open file descriptors.", fds);
    }
    if let Some(fds) = process.max_fds {
        text.gauge("egret_process_max_fds", "Limit of open file descriptors.", fds);
    }
    if let Some(threads) = process.threads {
        text.gauge("egret_process_threads", "Threads.", threads);
    }
}

#[cfg(test)]
mod tests;
