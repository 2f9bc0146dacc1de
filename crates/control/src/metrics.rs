//! Metrics as Prometheus text, exposition format 0.0.4.
//!
//! All values are in base units, seconds and bytes; counters end in `_total`. The writer is hand-written
//! because the format has only three kinds of lines, and because seconds printed from whole microseconds stay
//! exact.

mod text;

use std::collections::BTreeMap;

use egret_accounts::{AccountSnapshot, Ending};
use egret_cache::{AGE_BOUNDS_S, CacheEvent, CacheSnapshot};
use egret_cluster::{ClusterStatus, RENEWAL_BOUNDS_US};
use egret_diagnosis::{DiagnosisCounts, DiagnosisStats, Family, Sample, SampleValue};
use egret_export::ExporterSnapshot;
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats};
use egret_net::counter::DnsSnapshot;
use egret_observe::stats::{
    BOUNDS_US, ClientsSnapshot, Count, EndpointSnapshot, HistogramSnapshot, InterceptionSnapshot,
    ProviderSnapshot, StatsSnapshot,
};
use egret_quota::{AlertCount, GroupSnapshot, SharedSnapshot};
use egret_remedy::{Decision, FaultKind, FaultSnapshot, ScriptSnapshot, WAIT_BOUNDS_US};
use egret_store::entries::DiskStats;
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
    tabulate(&mut text, DNS_FIGURES, &[(Vec::new(), &stats.dns)]);
    gateway(&mut text, stats, ready, version);
    troubles(&mut text, findings);
    machine(&mut text, process);
    text.into_string()
}

/// Figures of the things of one kind: name, type and help of each family, and the reader of a value.
type Figures<T> = &'static [(&'static str, &'static str, &'static str, fn(&T) -> i128)];

/// Lists figures: type, name, value and help of each.
macro_rules! figures {
    ($($kind:ident $name:literal = |$of:ident| $value:expr, $help:literal;)+) => {
        &[$(($name, stringify!($kind), $help, |$of| i128::from($value))),+]
    };
}

/// A thing that has figures, with its labels.
type Labelled<'a, T> = (Vec<(&'static str, &'a str)>, &'a T);

/// Writes the figures of all things of a kind.
fn tabulate<T>(text: &mut MetricsText, figures: Figures<T>, things: &[Labelled<'_, T>]) {
    for (name, kind, help, read) in figures {
        text.family(name, kind, help);
        for (labels, thing) in things {
            text.sample(name, labels, read(thing));
        }
    }
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

/// Figures of each provider.
const PROVIDER_FIGURES: Figures<ProviderSnapshot> = figures! {
    counter "egret_provider_sent_bytes_total" = |provider| provider.sent_bytes,
        "Bytes sent to the provider, heads and framing included.";
    counter "egret_provider_received_bytes_total" = |provider| provider.received_bytes,
        "Bytes received from the provider, heads and framing included.";
    counter "egret_provider_connects_total" = |provider| provider.connects,
        "Connections opened.";
    counter "egret_provider_connect_failures_total" = |provider| provider.connect_failures,
        "Connections that could not be opened.";
    counter "egret_provider_tls_handshakes_total" = |provider| provider.tls_handshakes,
        "Completed TLS handshakes.";
    counter "egret_provider_tls_failures_total" = |provider| provider.tls_failures,
        "TLS handshakes that failed.";
    counter "egret_provider_pool_hits_total" = |provider| provider.pool_hits,
        "Exchanges that used an idle connection.";
    counter "egret_provider_pool_steals_total" = |provider| provider.pool_steals,
        "Idle connections taken over from another worker.";
    counter "egret_provider_repeats_total" = |provider| provider.repeats,
        "Requests repeated because a reused connection was dead.";
    counter "egret_provider_tunnels_total" = |provider| provider.tunnels,
        "Tunnels opened by CONNECT or Upgrade.";
    gauge "egret_provider_connections" = |provider| provider.connections_open,
        "Connections open now, idle or in use.";
    gauge "egret_provider_connections_idle" = |provider| provider.connections_idle,
        "Idle connections now.";
};

/// Figures of each endpoint of a provider that has several.
const ENDPOINT_FIGURES: Figures<EndpointSnapshot> = figures! {
    counter "egret_endpoint_calls_total" = |endpoint| endpoint.calls,
        "Calls that went to the endpoint.";
    counter "egret_endpoint_failures_total" = |endpoint| endpoint.failures,
        "Calls to the endpoint that failed.";
    gauge "egret_endpoint_excluded" = |endpoint| endpoint.excluded,
        "Workers that leave the endpoint out now.";
};

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
    let each: Vec<_> = providers.iter().map(|provider| (labels(provider), provider)).collect();
    tabulate(text, PROVIDER_FIGURES, &each);
    let endpoints = providers.iter().flat_map(|p| p.endpoints.iter().map(move |e| (p, e)));
    let endpoints: Vec<_> = endpoints
        .map(|(provider, endpoint)| {
            ([labels(provider), vec![("endpoint", &*endpoint.url)]].concat(), endpoint)
        })
        .collect();
    tabulate(text, ENDPOINT_FIGURES, &endpoints);
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

/// Returns what `read` finds of each remedy, with the remedy's labels.
fn of_remedies<'a, T>(
    flows: &'a [FlowStats],
    read: impl Fn(&'a RemedyStats) -> Option<&'a T>,
) -> Vec<Labelled<'a, T>> {
    let labelled = |(flow, remedy): (&'a str, &'a RemedyStats)| {
        Some((vec![("flow", flow), ("remedy", &*remedy.remedy)], read(remedy)?))
    };
    each_remedy(flows).filter_map(labelled).collect()
}

/// Figures of each fault.
const FAULT_FIGURES: Figures<FaultSnapshot> = figures! {
    gauge "egret_fault_active" = |fault| fault.is_active,
        "1 while a fault lets calls fail.";
};

/// Writes whether each fault is on, and the failures that it has injected.
fn faults(text: &mut MetricsText, flows: &[FlowStats]) {
    let all = of_remedies(flows, |remedy| remedy.state.fault.as_ref());
    if all.is_empty() {
        return;
    }
    tabulate(text, FAULT_FIGURES, &all);
    let name = "egret_faults_injected_total";
    text.family(name, "counter", "Failures that faults have injected.");
    for (labels, fault) in &all {
        for (kind, count) in FaultKind::ALL.iter().zip(fault.counts) {
            text.sample(name, &[&labels[..], &[("fault", kind.word())]].concat(), count);
        }
    }
}

/// Figures of each script.
const SCRIPT_FIGURES: Figures<ScriptSnapshot> = figures! {
    counter "egret_script_overruns_total" = |script| script.overruns,
        "Calls of scripts that ran out of time or memory.";
    counter "egret_script_rests_total" = |script| script.rests,
        "Times that scripts rested for 30 seconds after ten overruns.";
};

fn scripts(text: &mut MetricsText, flows: &[FlowStats]) {
    let all = of_remedies(flows, |remedy| remedy.script.as_ref());
    if !all.is_empty() {
        tabulate(text, SCRIPT_FIGURES, &all);
    }
}

fn each_remedy(flows: &[FlowStats]) -> impl Iterator<Item = (&str, &RemedyStats)> {
    flows.iter().flat_map(|flow| flow.remedies.iter().map(|remedy| (flow.name.as_str(), remedy)))
}

/// Figures of the entries of each cache.
const CACHE_FIGURES: Figures<CacheSnapshot> = figures! {
    gauge "egret_cache_entries" = |cache| cache.entries.entries as u64,
        "Responses stored now.";
    gauge "egret_cache_bytes" = |cache| cache.entries.bytes,
        "Memory of the stored responses in bytes, overhead included.";
    counter "egret_cache_evictions_total" = |cache| cache.entries.evicted,
        "Responses evicted to make room for others.";
};

/// Figures of each cache's disk, if it has one.
const DISK_FIGURES: Figures<DiskStats> = figures! {
    gauge "egret_cache_disk_up" = |disk| disk.is_open,
        "1 if the disk of the cache works and its content is known.";
    gauge "egret_cache_disk_entries" = |disk| disk.entries as u64,
        "Responses on the disk now, or waiting to be written.";
    gauge "egret_cache_disk_bytes" = |disk| disk.bytes,
        "Bytes of their files.";
    counter "egret_cache_disk_loads_total" = |disk| disk.loads,
        "Responses read back into memory.";
    counter "egret_cache_disk_writes_total" = |disk| disk.writes,
        "Responses written.";
    counter "egret_cache_disk_evictions_total" = |disk| disk.evicted,
        "Responses evicted to make room for others.";
    counter "egret_cache_disk_skipped_total" = |disk| disk.skipped,
        "Responses not written because too many were waiting or they were too large.";
    counter "egret_cache_disk_dropped_total" = |disk| disk.dropped,
        "Files deleted because they could not be read back.";
};

fn caches(text: &mut MetricsText, flows: &[FlowStats]) {
    let caches = of_remedies(flows, |remedy| remedy.cache.as_ref());
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
    tabulate(text, CACHE_FIGURES, &caches);
    let disks = of_remedies(flows, |remedy| remedy.cache.as_ref()?.disk.as_ref());
    if !disks.is_empty() {
        tabulate(text, DISK_FIGURES, &disks);
    }
    let name = "egret_cache_age_seconds";
    text.family(name, "histogram", "Age of stored responses when they were served.");
    for (labels, cache) in &caches {
        let bounds = AGE_BOUNDS_S.iter().map(u64::to_string).collect();
        text.buckets(name, labels, Buckets { bounds, counts: &cache.ages }, cache.ages_s);
    }
}

/// Figures of each quota group.
const GROUP_FIGURES: Figures<GroupSnapshot> = figures! {
    gauge "egret_quota_used" = |group| group.used,
        "Units used in the window.";
    gauge "egret_quota_reserved" = |group| group.reserved,
        "Units of these that calls under way hold.";
    gauge "egret_quota_limit" = |group| group.limit,
        "Units available per window, or calls at once; an adaptive limit as it is now.";
    gauge "egret_quota_store_failed" = |group| group.has_store_failed,
        "1 while the quota's store does not respond.";
};

/// Figures of each group that a cluster shares.
const SHARED_FIGURES: Figures<SharedSnapshot> = figures! {
    gauge "egret_quota_hold" = |shared| shared.hold,
        "Units that this gateway holds of a quota that the cluster shares.";
    gauge "egret_quota_pool" = |shared| shared.pool,
        "Units that no gateway holds, as the store told last; negative if a limit was lowered, or exceeded by costs.";
    gauge "egret_quota_kept" = |shared| shared.fallback,
        "Units that this gateway uses although it is cut off from the store.";
    gauge "egret_quota_config_differs" = |shared| shared.config_differs,
        "1 while another gateway has a different limit in its config; the lowest one holds.";
};

fn quotas(text: &mut MetricsText, flows: &FlowsSnapshot) {
    let groups = flows.quotas.iter().flat_map(|quota| quota.groups.iter().map(move |group| (quota, group)));
    let groups: Vec<_> = groups
        .map(|(quota, group)| (vec![("quota", quota.name.as_str()), ("group", &*group.name)], group))
        .collect();
    tabulate(text, GROUP_FIGURES, &groups);
    let shared = groups.into_iter().filter_map(|(labels, group)| Some((labels, group.shared.as_ref()?)));
    let shared: Vec<_> = shared.collect();
    if !shared.is_empty() {
        tabulate(text, SHARED_FIGURES, &shared);
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

/// Figures of each account besides its calls.
const ACCOUNT_FIGURES: Figures<AccountSnapshot> = figures! {
    gauge "egret_account_in_flight" = |account| account.in_flight,
        "Exchanges that use the account now.";
    gauge "egret_account_cooling" = |account| account.cooling.is_some(),
        "1 while the account is not used because the provider refused it or no token could be obtained.";
};

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
    let each: Vec<_> = accounts.iter().map(|account| (vec![("account", &*account.name)], account)).collect();
    tabulate(text, ACCOUNT_FIGURES, &each);
    let name = "egret_account_remaining";
    text.family(name, "gauge", "Remaining calls as reported by the provider; absent without such a report.");
    for (labels, remaining) in each.iter().filter_map(|(labels, account)| Some((labels, account.remaining?)))
    {
        text.sample(name, labels, remaining);
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

fn alerted(text: &mut MetricsText, alerts: &[AlertCount]) {
    let name = "egret_quota_alerts_total";
    text.family(name, "counter", "Alerts told, by the percentage of the quota's limit that was used.");
    for AlertCount { quota, percent, count } in alerts {
        text.sample(name, &[("quota", &**quota), ("percent", &percent.to_string())], count);
    }
}

/// Figures of each exporter.
const EXPORTER_FIGURES: Figures<ExporterSnapshot> = figures! {
    counter "egret_exporter_put_total" = |exporter| exporter.put,
        "Entries given to the exporter.";
    counter "egret_exporter_written_total" = |exporter| exporter.written,
        "Entries written to a file or accepted by a collector.";
    counter "egret_exporter_written_bytes_total" = |exporter| exporter.written_bytes,
        "Bytes written or accepted.";
    counter "egret_exporter_retries_total" = |exporter| exporter.retries,
        "Retries after a failed attempt.";
    counter "egret_exporter_repaired_total" = |exporter| exporter.repaired,
        "Files repaired that a crash had left incomplete.";
    gauge "egret_exporter_spooled_bytes" = |exporter| exporter.spooled_bytes,
        "Bytes spooled on disk, waiting to be sent.";
    gauge "egret_exporter_up" = |exporter| exporter.up,
        "1 unless the last attempt to write or send failed.";
};

fn exported(text: &mut MetricsText, exporters: &[ExporterSnapshot]) {
    let each: Vec<_> =
        exporters.iter().map(|exporter| (vec![("exporter", &*exporter.name)], exporter)).collect();
    tabulate(text, EXPORTER_FIGURES, &each);
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

/// Figures of the connections of clients.
const CLIENT_FIGURES: Figures<ClientsSnapshot> = figures! {
    counter "egret_client_connections_accepted_total" = |clients| clients.accepted,
        "Client connections accepted.";
    counter "egret_client_connections_refused_total" = |clients| clients.refused,
        "Client connections rejected at the limit.";
    counter "egret_client_tls_failures_total" = |clients| clients.tls_failures,
        "Client connections whose TLS handshake failed.";
    gauge "egret_client_connections" = |clients| clients.open,
        "Client connections open now.";
    gauge "egret_client_connections_idle" = |clients| clients.idle,
        "Client connections that are waiting for a request now.";
    gauge "egret_client_tunnels" = |clients| clients.tunnels,
        "Tunnels open now.";
};

fn clients(text: &mut MetricsText, stats: &StatsSnapshot) {
    let clients = &stats.clients;
    tabulate(text, CLIENT_FIGURES, &[(Vec::new(), clients)]);
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

/// Figures of intercepted tunnels.
const INTERCEPTION_FIGURES: Figures<InterceptionSnapshot> = figures! {
    counter "egret_intercept_connections_total" = |interception| interception.connections,
        "Tunnels whose HTTPS or HTTP the gateway served itself.";
    counter "egret_intercept_exchanges_total" = |interception| interception.exchanges,
        "Requests inside those tunnels.";
    counter "egret_intercept_refused_total" = |interception| interception.refused,
        "Tunnels whose client refused the gateway's certificate.";
    counter "egret_intercept_unknown_total" = |interception| interception.unknown,
        "Tunnels to intercepted hosts closed because they carry neither TLS nor HTTP/1.";
    counter "egret_intercept_name_mismatches_total" = |interception| interception.sni_mismatches,
        "Tunnels closed because the client named another server in TLS than in its CONNECT.";
    counter "egret_intercept_bypasses_total" = |interception| interception.provider_tunnels,
        "Tunnels relayed unread to a configured provider, whose flows did not apply.";
};

fn interception(text: &mut MetricsText, interception: &InterceptionSnapshot) {
    tabulate(text, INTERCEPTION_FIGURES, &[(Vec::new(), interception)]);
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

/// Figures of the look-ups of names.
const DNS_FIGURES: Figures<DnsSnapshot> = figures! {
    counter "egret_dns_lookups_total" = |dns| dns.lookups,
        "Host name look-ups requested.";
    counter "egret_dns_cache_hits_total" = |dns| dns.hits,
        "Look-ups served from the cache.";
    counter "egret_dns_coalesced_total" = |dns| dns.coalesced,
        "Look-ups that joined one already in progress.";
    counter "egret_dns_failures_total" = |dns| dns.failures,
        "Look-ups that failed, cached failures included.";
    gauge "egret_dns_cache_entries" = |dns| dns.entries,
        "Names in the cache now.";
};

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
