//! Metrics as Prometheus text, exposition format 0.0.4.
//!
//! All values are in base units, seconds and bytes; counters end in `_total`. The writer is hand-written
//! because the format has only three kinds of lines, and because seconds printed from whole microseconds stay
//! exact.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use egret_accounts::{AccountSnapshot, Ending};
use egret_cache::{AGE_BOUNDS_S, CacheEvent};
use egret_diagnosis::diagnosis::{Family, Sample, SampleValue};
use egret_diagnosis::observers::{DiagnosisCounts, DiagnosisStats};
use egret_export::ExporterSnapshot;
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats};
use egret_gateway::stats::{BOUNDS_US, Count, HistogramSnapshot, ProviderSnapshot, StatsSnapshot};
use egret_quota::GroupSnapshot;
use egret_remedy::tally::{Decision, WAIT_BOUNDS_US};
use egret_store::entries::{DiskStats, EntryStats};

use crate::process::Process;

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Label names and values of one sample.
type Labels<'a> = &'a [(&'static str, &'a str)];

/// Renders all metrics of one moment.
pub fn render(
    stats: &StatsSnapshot,
    flows: &FlowsSnapshot,
    exporters: &[ExporterSnapshot],
    ready: bool,
    version: &str,
    process: &Process,
) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    exchanges(&mut text, &stats.providers);
    providers(&mut text, &stats.providers);
    remedies(&mut text, &flows.flows);
    caches(&mut text, &flows.flows);
    quotas(&mut text, flows);
    accounts(&mut text, &flows.accounts);
    exported(&mut text, exporters);
    diagnoses(&mut text, stats, &flows.flows);
    figures(&mut text, &flows.flows);
    clients(&mut text, stats);
    answers(&mut text, stats);
    dns(&mut text, stats);
    gateway(&mut text, stats, ready, version);
    machine(&mut text, process);
    text.0
}

fn exchanges(text: &mut Text, providers: &[ProviderSnapshot]) {
    text.family("egret_exchanges_total", "counter", "Finished exchanges.");
    for provider in providers {
        for exchanges in &provider.exchanges {
            let labels =
                [("provider", &*provider.name), ("method", exchanges.method), ("status", exchanges.status)];
            text.sample("egret_exchanges_total", &labels, exchanges.count);
        }
    }
    let latency =
        "Time from the end of the request head to the last byte of the response sent to the client.";
    text.histograms("egret_exchange_latency_seconds", latency, providers, |provider| &provider.latency);
    let footprint =
        "Part of the latency spent in the gateway, without waiting for the provider or the bodies.";
    text.histograms("egret_exchange_footprint_seconds", footprint, providers, |provider| &provider.footprint);
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

fn providers(text: &mut Text, providers: &[ProviderSnapshot]) {
    for (name, kind, help, read) in PROVIDER_FIGURES {
        text.family(name, kind, help);
        for provider in providers {
            text.sample(name, &[("provider", &provider.name)], read(provider));
        }
    }
}

fn remedies(text: &mut Text, flows: &[FlowStats]) {
    text.family("egret_remedy_decisions_total", "counter", "Decisions of remedies, one per exchange.");
    for (flow, remedy) in each_remedy(flows) {
        for (decision, count) in Decision::ALL.iter().zip(remedy.tally.decisions) {
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
        let tally = &remedy.tally;
        if tally.waits.iter().any(|count| *count > 0) {
            let labels = [("flow", flow), ("remedy", &*remedy.remedy)];
            text.histogram(name, &labels, (&WAIT_BOUNDS_US, &tally.waits), tally.waited_us);
        }
    }
    let name = "egret_flow_match_failures_total";
    text.family(name, "counter", "Exchanges for which a flow's `when` could not be evaluated.");
    for flow in flows {
        text.sample(name, &[("flow", &flow.name)], flow.match_failures);
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

fn caches(text: &mut Text, flows: &[FlowStats]) {
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
        text.classes(name, labels, (bounds, &cache.ages), cache.ages_s);
    }
}

/// Reads a figure of a quota group.
type ReadGroup = fn(&GroupSnapshot) -> u64;

/// Figures of each quota group: name, help and reader.
const GROUP_FIGURES: [(&str, &str, ReadGroup); 3] = [
    ("egret_quota_used", "Units used in the window.", |group| group.used),
    ("egret_quota_limit", "Units available per window.", |group| group.limit),
    ("egret_quota_store_failed", "1 while the quota's store does not respond.", |group| {
        u64::from(group.has_store_failed)
    }),
];

fn quotas(text: &mut Text, flows: &FlowsSnapshot) {
    for (name, help, read) in GROUP_FIGURES {
        text.family(name, "gauge", help);
        for quota in &flows.quotas {
            for group in &quota.groups {
                text.sample(name, &[("quota", &quota.name), ("group", &group.name)], read(group));
            }
        }
    }
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

fn accounts(text: &mut Text, accounts: &[AccountSnapshot]) {
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

/// Reads a figure of an exporter.
type ReadExporter = fn(&ExporterSnapshot) -> u64;

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

fn exported(text: &mut Text, exporters: &[ExporterSnapshot]) {
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

fn diagnoses(text: &mut Text, stats: &StatsSnapshot, flows: &[FlowStats]) {
    let name = "egret_diagnosis_exchanges_total";
    text.family(name, "counter", "Exchanges selected for the diagnosis, by result; each is counted once.");
    for (flow, diagnosis) in each_diagnosis(flows) {
        let DiagnosisCounts { recorded, dropped, shed, failed, .. } = diagnosis.counts;
        for (result, count) in
            [("recorded", recorded), ("dropped", dropped), ("shed", shed), ("failed", failed)]
        {
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
fn figures(text: &mut Text, flows: &[FlowStats]) {
    /// A family, and its samples with the names of their flows.
    type OfFlows<'a> = (&'a Family, Vec<(&'a str, &'a Sample)>);
    let mut families: BTreeMap<&str, OfFlows<'_>> = BTreeMap::new();
    for (flow, diagnosis) in each_diagnosis(flows) {
        for family in &diagnosis.figures {
            let (_, samples) = families.entry(&family.name).or_insert((family, Vec::new()));
            samples.extend(family.samples.iter().map(|sample| (flow, sample)));
        }
    }
    for (name, (Family { kind, help, .. }, samples)) in families {
        text.family(name, kind.word(), help);
        for (flow, sample) in samples {
            let own = sample.labels.iter().map(|(label, value)| (*label, value.as_str()));
            let labels: Vec<_> = [("flow", flow)].into_iter().chain(own).collect();
            match &sample.value {
                SampleValue::Number(number) => text.sample(name, &labels, number),
                SampleValue::Histogram { bounds, counts, sum } => {
                    let bounds = bounds.iter().map(f64::to_string).collect();
                    text.classes(name, &labels, (bounds, counts), sum);
                }
            }
        }
    }
}

fn clients(text: &mut Text, stats: &StatsSnapshot) {
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
    text.counter("egret_client_received_bytes_total", "Bytes received from clients.", clients.received_bytes);
    text.counter("egret_client_sent_bytes_total", "Bytes sent to clients.", clients.sent_bytes);
}

fn answers(text: &mut Text, stats: &StatsSnapshot) {
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
}

fn dns(text: &mut Text, stats: &StatsSnapshot) {
    let dns = &stats.dns;
    text.counter("egret_dns_lookups_total", "Host name look-ups requested.", dns.lookups);
    text.counter("egret_dns_cache_hits_total", "Look-ups served from the cache.", dns.hits);
    text.counter("egret_dns_coalesced_total", "Look-ups that joined one already in progress.", dns.coalesced);
    text.counter("egret_dns_failures_total", "Look-ups that failed, cached failures included.", dns.failures);
    text.gauge("egret_dns_cache_entries", "Names in the cache now.", dns.entries);
}

fn gateway(text: &mut Text, stats: &StatsSnapshot, ready: bool, version: &str) {
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

fn machine(text: &mut Text, process: &Process) {
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
    if let Some(threads) = process.threads {
        text.gauge("egret_process_threads", "Threads.", threads);
    }
}

/// Writes the three kinds of lines. All samples of a family must be written together after its HELP and TYPE.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counts(&mut self, name: &str, help: &str, label: &'static str, counts: &[Count]) {
        self.family(name, "counter", help);
        for count in counts {
            self.sample(name, &[(label, count.name)], count.count);
        }
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        providers: &[ProviderSnapshot],
        read: fn(&ProviderSnapshot) -> &HistogramSnapshot,
    ) {
        self.family(name, "histogram", help);
        for provider in providers {
            let histogram = read(provider);
            let labels = [("provider", provider.name.as_str())];
            self.histogram(name, &labels, (&BOUNDS_US, &histogram.buckets), histogram.sum_us);
        }
    }

    /// Writes a histogram of individual bucket counts, which are cumulated in the output.
    fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        (bounds_us, buckets): (&[u64], &[u64]),
        sum_us: u64,
    ) {
        let bounds = bounds_us.iter().map(|bound_us| Seconds(*bound_us).to_string()).collect();
        self.classes(name, labels, (bounds, buckets), Seconds(sum_us));
    }

    /// Writes a histogram whose last bucket is unbounded.
    fn classes(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        (bounds, counts): (Vec<String>, &[u64]),
        sum: impl fmt::Display,
    ) {
        let bucket = format!("{name}_bucket");
        let mut seen = 0;
        for (bound, count) in bounds.into_iter().chain(["+Inf".to_owned()]).zip(counts) {
            seen += count;
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), seen);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, seen);
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl fmt::Display) {
        self.line(format_args!("{name}{} {value}", Braced(labels)));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Formats labels as they follow a name: `{a="1",b="2"}`; writes nothing if there are none.
struct Braced<'a>(Labels<'a>);

impl fmt::Display for Braced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}=\"{}\"", if index == 0 { '{' } else { ',' }, Escaped(value))?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// Formats a label value: backslash, quote and line feed are escaped, other characters are kept.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Formats whole microseconds as seconds, exactly and without trailing zeros.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if micros == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{micros:06}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests;
