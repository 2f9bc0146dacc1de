//! Tests of the metrics text, which is read back by a strict parser of the format.

use std::collections::{BTreeMap, BTreeSet};

use egret_accounts::CoolingSnapshot;
use egret_clock::Timestamp;
use egret_observe::stats::{Count, ExchangeCount, Histogram};
use egret_quota::{OnStoreError, QuotaKind, QuotaSnapshot};
use egret_remedy::{DecisionSums, Mode, RemedyState};
use proptest::prelude::*;

use super::*;
use crate::findings::{FindingKind, Severity};
use crate::source::FetchFailure;

/// A parsed family: its type and its samples, in order.
#[derive(Debug)]
struct Family {
    kind: String,
    samples: Vec<MetricSample>,
}

#[derive(Debug, Clone, PartialEq)]
struct MetricSample {
    name: String,
    labels: BTreeMap<String, String>,
    value: String,
}

impl MetricSample {
    fn number(&self) -> f64 {
        self.value.parse().unwrap()
    }
}

/// Parses the whole text. Panics at the first violation of the format or its conventions.
fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let mut families = BTreeMap::new();
    let mut series = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, words) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).unwrap();
        assert!(is_name(name) && name.starts_with("egret_") && !words.is_empty(), "{help}");
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap();
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = parse_sample(line);
            let suffix = sample.name.strip_prefix(name).unwrap();
            let allowed: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line} in {name}");
            assert!(series.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
            samples.push(sample);
        }
        let family = Family { kind: kind.to_owned(), samples };
        assert!(families.insert(name.to_owned(), family).is_none(), "{name} twice");
    }
    families
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn parse_sample(line: &str) -> MetricSample {
    let name: String = line.chars().take_while(|character| !matches!(character, '{' | ' ')).collect();
    assert!(is_name(&name), "{line}");
    let (labels, rest) = parse_labels(&line[name.len()..]);
    let value = rest.strip_prefix(' ').unwrap().to_owned();
    assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
    assert!(value.parse::<f64>().unwrap().is_finite());
    MetricSample { name, labels, value }
}

/// Returns the labels in braces, if any, and the rest of the text.
fn parse_labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, behind) = rest.split_once("=\"").unwrap();
        assert!(is_name(name), "{text}");
        let (value, behind) = parse_value(behind);
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice in {text}");
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None => return (labels, behind.strip_prefix('}').unwrap()),
        }
    }
}

/// Returns a value up to its closing quote, unescaped, and the text after the quote.
fn parse_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                other => panic!("\\{other} is no escape"),
            }),
            _ => value.push(character),
        }
    }
    panic!("no closing quote in {text}");
}

fn provider(name: &str, values_us: &[u64]) -> ProviderSnapshot {
    let histogram = Histogram::default();
    for value in values_us {
        histogram.record(*value);
    }
    let mut provider = ProviderSnapshot {
        name: name.to_owned(),
        exchanges: vec![ExchangeCount { method: "GET", status: "2xx", count: 7 }],
        sent_bytes: 11,
        ..ProviderSnapshot::default()
    };
    histogram.add_to(&mut provider.latency);
    provider
}

fn render_providers(providers: Vec<ProviderSnapshot>) -> BTreeMap<String, Family> {
    let stats = StatsSnapshot { providers, ..StatsSnapshot::default() };
    parse(&render(&Observed { stats, ..Observed::default() }, true, "1.2.3", &[]))
}

fn only(families: &BTreeMap<String, Family>, name: &str) -> String {
    let [sample] = families[name].samples.as_slice() else { panic!("{name} has several samples") };
    sample.value.clone()
}

#[test]
fn every_figure_is_shown_in_its_family() {
    let stats = StatsSnapshot {
        uptime_s: 90,
        providers: vec![provider("stripe", &[]), provider("-", &[])],
        generated: vec![Count { name: "egress-denied", count: 4 }],
        denials: vec![Count { name: "metadata", count: 5 }],
        reloads: 2,
        reloads_refused: 3,
        ..StatsSnapshot::default()
    };
    let process = Process {
        cpu_ms: Some(1_230),
        resident_bytes: Some(4_096),
        open_fds: Some(9),
        max_fds: Some(1_024),
        threads: Some(4),
    };
    let families = parse(&render(&Observed { stats, process, ..Observed::default() }, false, "1.2.3", &[]));

    let exchange = MetricSample {
        name: "egret_exchanges_total".into(),
        labels: [("provider", "stripe"), ("method", "GET"), ("status", "2xx")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        value: "7".into(),
    };
    assert_eq!(families["egret_exchanges_total"].samples[0], exchange);
    for (name, value) in [
        ("egret_uptime_seconds", "90"),
        ("egret_ready", "0"),
        ("egret_build_info", "1"),
        ("egret_generated_answers_total", "4"),
        ("egret_denials_total", "5"),
        ("egret_process_cpu_seconds_total", "1.23"),
        ("egret_process_resident_memory_bytes", "4096"),
        ("egret_process_open_fds", "9"),
        ("egret_process_max_fds", "1024"),
        ("egret_process_threads", "4"),
        ("egret_dns_lookups_total", "0"),
        ("egret_client_connections", "0"),
    ] {
        assert_eq!(only(&families, name), value, "{name}");
    }
    let reloads: Vec<_> =
        families["egret_config_reloads_total"].samples.iter().map(|sample| &*sample.value).collect();
    assert_eq!(reloads, ["2", "3"]);
    assert_eq!(families["egret_provider_sent_bytes_total"].samples[1].labels["provider"], "-");
}

#[test]
fn metrics_show_decisions_and_quotas() {
    let decisions = DecisionSums {
        counts: [9, 2, 1, 0, 0],
        waits: [0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        waited_us: 61_000_000,
    };
    let remedy = |name: &str, decisions| RemedyStats {
        remedy: name.to_owned(),
        description: "waits".to_owned(),
        mode: Mode::Enforce,
        decisions,
        cache: None,
        script: None,
        state: RemedyState::default(),
    };
    let remedies = vec![remedy("queue", decisions), remedy("retry", DecisionSums::default())];
    let group = GroupSnapshot {
        name: "gold".to_owned(),
        used: 3,
        reserved: 1,
        limit: 5,
        remaining: 2,
        reset: Timestamp::from_micros(1),
        has_store_failed: true,
        latencies_us: None,
        shared: None,
    };
    let quota = QuotaSnapshot {
        unit: egret_quota::QuotaUnit::Units,
        name: "live".to_owned(),
        kind: QuotaKind::Fixed,
        on_store_error: OnStoreError::Closed,
        groups: vec![group],
        groups_count: 1,
    };
    let flow = FlowStats { name: "charges".to_owned(), match_failures: 4, remedies, diagnoses: Vec::new() };
    let flows = FlowsSnapshot { flows: vec![flow], quotas: vec![quota], ..FlowsSnapshot::default() };
    let families = parse(&render(&Observed { flows, ..Observed::default() }, true, "1", &[]));

    let decisions = &families["egret_remedy_decisions_total"].samples;
    assert_eq!(decisions.len(), 10);
    let labels = [("flow", "charges"), ("remedy", "queue"), ("mode", "enforce"), ("decision", "wait")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert!(decisions.contains(&MetricSample {
        name: "egret_remedy_decisions_total".into(),
        labels,
        value: "2".into()
    }));
    let waits = &families["egret_remedy_wait_seconds"].samples;
    assert_eq!(waits.len(), 12, "only for the remedy that delayed the exchange");
    assert_eq!((waits[1].labels["le"].as_str(), waits[1].value.as_str()), ("0.005", "1"));
    assert_eq!(waits[9].value, "2");
    assert_eq!((waits[10].value.as_str(), waits[11].value.as_str()), ("61", "2"));
    assert_eq!(only(&families, "egret_flow_match_failures_total"), "4");
    assert_eq!(only(&families, "egret_quota_used"), "3");
    assert_eq!(only(&families, "egret_quota_reserved"), "1");
    assert_eq!(only(&families, "egret_quota_limit"), "5");
    assert_eq!(only(&families, "egret_quota_store_failed"), "1");
    assert_eq!(families["egret_quota_used"].samples[0].labels["group"], "gold");
}

#[test]
fn how_accounts_stand_is_shown_and_nothing_where_there_are_none() {
    let cooling = CoolingSnapshot { until: Timestamp::from_secs(9), status: Some(401) };
    let account = |name: &str, cooling, remaining| AccountSnapshot {
        name: name.to_owned(),
        cooling,
        in_flight: 2,
        endings: [7, 1, 0, 3, 0],
        remaining,
        ..AccountSnapshot::default()
    };
    let accounts = vec![account("a", Some(cooling), None), account("b", None, Some(41))];
    let flows = FlowsSnapshot { accounts, accounts_count: 2, ..FlowsSnapshot::default() };
    let families = parse(&render(&Observed { flows, ..Observed::default() }, true, "1", &[]));
    let calls = &families["egret_account_calls_total"].samples;
    let of_a: Vec<_> = calls[..5].iter().map(|call| (&*call.labels["outcome"], &*call.value)).collect();
    assert_eq!(of_a, [("answered", "7"), ("401", "1"), ("403", "0"), ("429", "3"), ("failed", "0")]);
    let values = |name: &str| -> Vec<(String, String)> {
        let samples = families[name].samples.iter();
        samples.map(|sample| (sample.labels["account"].clone(), sample.value.clone())).collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(values("egret_account_in_flight"), [pair("a", "2"), pair("b", "2")]);
    assert_eq!(values("egret_account_cooling"), [pair("a", "1"), pair("b", "0")]);
    assert_eq!(values("egret_account_remaining"), [pair("b", "41")]);
    assert!(render_providers(Vec::new()).keys().all(|name| !name.starts_with("egret_account")));
}

#[test]
fn metrics_show_written_and_dropped_records() {
    let exporter = ExporterSnapshot {
        name: "archive".to_owned(),
        up: true,
        put: 9,
        written: 7,
        dropped: BTreeMap::from([("full", 2), ("rejected", 0)]),
        ..ExporterSnapshot::default()
    };
    let observed = Observed { exporters: vec![exporter], ..Observed::default() };
    let families = parse(&render(&observed, true, "1", &[]));
    for (name, value) in
        [("egret_exporter_put_total", "9"), ("egret_exporter_written_total", "7"), ("egret_exporter_up", "1")]
    {
        assert_eq!(only(&families, name), value, "{name}");
    }
    let dropped = &families["egret_exporter_dropped_total"].samples;
    assert_eq!((dropped[0].labels["reason"].as_str(), dropped[0].value.as_str()), ("full", "2"));
    assert_eq!(dropped[0].labels["exporter"], "archive");
}

#[test]
fn failed_fetches_of_secrets_and_keys_have_a_metric() {
    let failure = FetchFailure { since: Timestamp::from_secs(9), error: String::new() };
    let status = |failure| vec![FetchStatus { name: "a".to_owned(), has_last: true, failure }];
    let observed = Observed {
        secret_commands: status(Some(failure.clone())),
        managed_secrets: status(Some(failure)),
        issuers: status(None),
        ..Observed::default()
    };
    let families = parse(&render(&observed, true, "1", &[]));
    for (metric, label, value) in [
        ("egret_secret_command_up", "command", "0"),
        ("egret_managed_secret_up", "secret", "0"),
        ("egret_issuer_up", "issuer", "1"),
    ] {
        assert_eq!(only(&families, metric), value);
        assert_eq!(families[metric].samples[0].labels[label], "a");
    }
}

#[test]
fn unknown_process_figures_are_left_out() {
    let families = render_providers(Vec::new());
    assert!(families.keys().all(|name| !name.starts_with("egret_process_")));
}

#[test]
fn a_histogram_cumulates_in_seconds_and_ends_in_infinity() {
    let values_us = [1, 10, 11, 150_000, 299_999_999, 400_000_000];
    let families = render_providers(vec![provider("stripe", &values_us), provider("-", &[])]);
    let family = &families["egret_exchange_latency_seconds"];
    assert_eq!(family.kind, "histogram");
    for name in ["stripe", "-"] {
        let of_provider: Vec<_> =
            family.samples.iter().filter(|sample| sample.labels["provider"] == name).collect();
        let (buckets, [sum, count]) = of_provider.split_at(of_provider.len() - 2) else { panic!() };
        let bounds: Vec<f64> =
            buckets.iter().map(|bucket| bucket.labels["le"].replace('+', "").parse().unwrap()).collect();
        let counts: Vec<f64> = buckets.iter().map(|bucket| bucket.number()).collect();
        assert_eq!(buckets.len(), BOUNDS_US.len() + 1);
        assert!(bounds.is_sorted() && counts.is_sorted());
        assert_eq!(buckets.last().unwrap().labels["le"], "+Inf");
        assert_eq!(buckets.last().unwrap().value, count.value);
        assert_eq!(
            (&*sum.name, &*count.name),
            ("egret_exchange_latency_seconds_sum", "egret_exchange_latency_seconds_count")
        );
    }
    let samples = &family.samples;
    assert_eq!((samples[0].labels["le"].as_str(), samples[0].value.as_str()), ("0.00001", "2"));
    assert_eq!(
        (samples[26].value.as_str(), samples[27].value.as_str(), samples[28].value.as_str()),
        ("6", "700.150021", "6")
    );
}

#[test]
fn seconds_are_exact() {
    for (micros, text) in [(0, "0"), (1, "0.000001"), (10, "0.00001"), (1_500_000, "1.5"), (60_000_000, "60")]
    {
        assert_eq!(Seconds(micros).to_string(), text);
    }
    assert_eq!(Seconds(u64::MAX).to_string(), "18446744073709.551615");
}

proptest! {
    #[test]
    fn any_name_survives_as_a_label(name in "\\PC*|[\\\\\"\n\r\t{},= a]{0,12}") {
        let families = render_providers(vec![provider(&name, &[5])]);
        for family in families.values().filter(|family| !family.samples.is_empty()) {
            for label in family.samples.iter().filter_map(|sample| sample.labels.get("provider")) {
                prop_assert_eq!(label, &name);
            }
        }
        prop_assert_eq!(&families["egret_exchanges_total"].samples[0].labels["provider"], &name);
    }
}

#[test]
fn each_finding_has_a_series_that_an_alert_can_watch() {
    let text = |text: &str| text.to_owned();
    let finding = Finding {
        kind: FindingKind::ProviderFailing,
        severity: Severity::Error,
        subject: text("shop"),
        since_us: 1,
        summary: text("calls to shop fail"),
        evidence: String::new(),
        advice: String::new(),
    };
    let families = parse(&render(&Observed::default(), true, "1", &[finding]));
    let [sample] = families["egret_finding"].samples.as_slice() else { panic!("one finding") };
    let labels = [("kind", "provider-failing"), ("severity", "error"), ("subject", "shop")];
    assert_eq!(sample.labels, labels.map(|(name, value)| (text(name), text(value))).into());
    assert_eq!(sample.value, "1");
}
