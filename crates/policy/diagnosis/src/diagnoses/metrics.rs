//! `metrics`: histograms of the durations of exchanges, and counters and gauges of values from their
//! messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egret_clock::Timestamp;
use egret_config::{Duration, Size};
use egret_export::otlp;
use egret_har::Key;
use egret_har::sink::{Content, Exported, Sink};
use egret_match::expression::{self, Expression, Scope, Stage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::diagnosis::{Diagnosis, Tick};
use crate::family::{Family, FamilyKind, Sample, SampleValue};
use crate::finished::Finished;

/// Maximum of `series_max`.
const SERIES_MAX: u32 = 10_000;
/// Maximum number of counters and gauges of one diagnosis.
const VALUES_MAX: usize = 32;
/// Maximum number of buckets of a histogram.
const BUCKETS_MAX: usize = 40;
/// Maximum length of the name of a counter or gauge.
const NAME_BYTES_MAX: usize = 64;
/// Maximum of `bodies`.
const BODY_BYTES_MAX: Size = Size::from_kib(1024);

/// Minimum interval between exports.
const INTERVAL_MIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum number of samples in one message, well below the limit of an exporter.
const POINTS_MAX: usize = 500;

/// Upper bounds of the footprint's buckets, in microseconds. The footprint is far smaller than the durations
/// of exchanges, so it has its own buckets.
const FOOTPRINT_BOUNDS_US: [u64; 14] =
    [10, 20, 30, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000];

/// Records durations of exchanges in the histograms `egret_flow_exchange_seconds`,
/// `egret_flow_provider_seconds` and `egret_flow_footprint_seconds`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Labels besides `flow`: `provider`; `endpoint`, the path of the match that matched; `method`; `status`,
    /// as `2xx`; `consumer`, as the client names itself.
    pub labels: BTreeSet<MetricsLabel>,
    /// Upper bounds of the buckets for exchanges and for the provider's time, in ascending order.
    pub buckets: Vec<Duration>,
    /// Maximum number of label sets, up to 10000. Further exchanges are counted together under
    /// `overflow="true"`.
    #[schemars(range(min = 1, max = 10_000))]
    pub series_max: u32,
    /// Sums of values from exchanges, by name: `tokens` is exported as `egret_custom_tokens_total`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, ValueConfig>,
    /// Values from the last exchange, by name: `remaining` is exported as `egret_custom_remaining`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, ValueConfig>,
    /// Maximum length of a JSON body that expressions can read, as sent, up to `1MiB`. A longer one is
    /// `null`.
    pub bodies: Size,
    /// Name of an additional exporter, under `exporters`. Its type must be `otlp`. The metrics are always
    /// available on `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Interval between exports, at least `1s`.
    pub interval: Duration,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            labels: MetricsLabel::ALL.into(),
            buckets: [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000]
                .map(Duration::from_millis)
                .into(),
            series_max: 1_000,
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            bodies: Size::from_kib(64),
            export: None,
            interval: Duration::from_secs(15),
        }
    }
}

/// The labels of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsLabel {
    /// Name of the provider in the config; `-` for every other host.
    Provider,
    /// Path of the flow's match that matched the exchange.
    Endpoint,
    /// Method; `other` for non-standard ones.
    Method,
    /// Class of the status code, as `2xx`; `none` if the client received no response.
    Status,
    /// Consumer, as named by the client. A name that looks like a secret is replaced by a pseudonym.
    Consumer,
}

impl MetricsLabel {
    const ALL: [Self; 5] = [Self::Provider, Self::Endpoint, Self::Method, Self::Status, Self::Consumer];

    const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Endpoint => "endpoint",
            Self::Method => "method",
            Self::Status => "status",
            Self::Consumer => "consumer",
        }
    }
}

/// Source of a number: exactly one of `header`, `request_header` and `cel`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValueConfig {
    /// Response field. Exchanges without it are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Request field. Exchanges without it are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_header: Option<String>,
    /// CEL expression that evaluates to a number, such as `response.body.usage.total_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// Help text of the metric.
    pub help: String,
}

/// Records durations and values of exchanges.
#[derive(Debug)]
pub struct Metrics {
    config: MetricsConfig,
    bounds_us: Vec<u64>,
    counters: Vec<Value>,
    gauges: Vec<Value>,
    key: Option<Arc<Key>>,
    flow: String,
    sink: Option<Arc<dyn Sink>>,
    state: Arc<State>,
}

/// A number read from exchanges.
#[derive(Debug)]
struct Value {
    name: String,
    /// Name of the exported metric.
    family: String,
    help: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Names of header fields, in lower case.
    ResponseField(Box<[u8]>),
    RequestField(Box<[u8]>),
    Expression(Expression<f64>),
}

/// The counted values. They outlive a reload unless the counting config changes.
#[derive(Debug)]
struct State {
    config: MetricsConfig,
    /// Locked by the diagnosis thread and by readers of the metrics.
    table: Mutex<SeriesTable>,
}

#[derive(Debug, Default)]
struct SeriesTable {
    /// Series by the values of their labels, joined.
    series: BTreeMap<Box<str>, Series>,
    /// Series of all exchanges that have no series of their own.
    overflow: Option<Box<Series>>,
    /// Number of values that were not numbers, by index of the value, counters first.
    failures: Vec<u64>,
    /// Start of counting.
    since: Option<Timestamp>,
    /// Time of the last export.
    exported: Option<Timestamp>,
    /// Buffer for a key.
    key: String,
}

#[derive(Debug)]
struct Series {
    labels: Vec<(&'static str, String)>,
    exchange: Histogram,
    provider: Histogram,
    footprint: Histogram,
    sums: Vec<Option<f64>>,
    lasts: Vec<Option<f64>>,
}

#[derive(Debug)]
struct Histogram {
    counts: Box<[u64]>,
    sum_us: u64,
}

impl Diagnosis for Metrics {
    type Config = MetricsConfig;

    fn compile(config: &MetricsConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let problems = context.problems.len();
        if context.is_another() {
            context.problem(
                "",
                "a flow can have only one `metrics`: a second one would count the same under the same names",
            );
        }
        check(config, context);
        let export = config.export.as_ref();
        let sink = export.map(|name| context.sink("export", name, Content::Telemetry));
        let counters = values(&config.counters, "counters", "_total", context);
        let gauges = values(&config.gauges, "gauges", "", context);
        if context.problems.len() > problems {
            return None;
        }
        // The export settings do not affect the counted values.
        let counted = MetricsConfig { export: None, interval: Duration::default(), ..config.clone() };
        let state = context.states.keep(
            |known: &State| known.config == counted,
            || State {
                config: counted.clone(),
                table: Mutex::new(SeriesTable {
                    failures: vec![0; config.counters.len() + config.gauges.len()],
                    ..SeriesTable::default()
                }),
            },
        );
        let micros = |bound: &Duration| bound.as_millis().saturating_mul(1_000);
        Some(Self {
            bounds_us: config.buckets.iter().map(micros).collect(),
            config: config.clone(),
            counters,
            gauges,
            key: context.exports.key.as_ref().map(Arc::clone),
            flow: context.flow().to_owned(),
            sink: sink.flatten(),
            state,
        })
    }

    fn describe(&self) -> String {
        let labels: Vec<&str> = self.config.labels.iter().map(|label| label.word()).collect();
        let by = if labels.is_empty() { String::new() } else { format!(" by {}", labels.join(", ")) };
        let names: Vec<&str> =
            self.counters.iter().chain(&self.gauges).map(|value| value.name.as_str()).collect();
        let also = if names.is_empty() { String::new() } else { format!(", and {}", names.join(", ")) };
        let to =
            self.config.export.as_ref().map_or_else(String::new, |export| format!(", exported to {export}"));
        format!("counts exchanges{by}{also}{to}")
    }

    fn wants_bodies(&self) -> bool {
        self.expressions()
            .any(|expression| expression.needs_request_body() || expression.needs_response_body())
    }

    fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        let is_json = egret_message::is_json(media_type);
        if is_json { usize::try_from(self.config.bodies.bytes()).unwrap_or(usize::MAX) } else { 0 }
    }

    fn see(&self, exchange: &Finished<'_>) {
        let phases = exchange.phases();
        let total_us = exchange.facts().times.total_us();
        let provider_us = (exchange.facts().attempts > 0).then_some(phases.wait_us);
        let footprint_us = exchange.facts().times.footprint_us;
        let numbers = self.numbers(exchange);
        let mut table = self.state.table();
        let SeriesTable { failures, .. } = &mut *table;
        for (number, failed) in numbers.iter().zip(failures) {
            *failed += u64::from(number.is_err());
        }
        let series = self.series(&mut table, exchange);
        series.exchange.count(&self.bounds_us, total_us);
        series.footprint.count(&FOOTPRINT_BOUNDS_US, footprint_us);
        if let Some(provider_us) = provider_us {
            series.provider.count(&self.bounds_us, provider_us);
        }
        let (sums, lasts) = numbers.split_at(self.counters.len());
        for (sum, number) in series.sums.iter_mut().zip(sums) {
            if let Ok(Some(number)) = number {
                *sum = Some(sum.unwrap_or_default() + number);
            }
        }
        for (last, number) in series.lasts.iter_mut().zip(lasts) {
            if let Ok(Some(number)) = number {
                *last = Some(*number);
            }
        }
    }

    fn tick(&self, tick: Tick) {
        let mut table = self.state.table();
        let since = *table.since.get_or_insert(tick.now);
        let Some(sink) = &self.sink else { return };
        let exported = *table.exported.get_or_insert(since);
        if !tick.is_last && tick.now.since(exported) < self.config.interval.get() {
            return;
        }
        table.exported = Some(tick.now);
        drop(table);
        for family in self.metrics() {
            export(&family, &self.flow, since, tick.now, &**sink);
        }
    }

    fn metrics(&self) -> Vec<Family> {
        let table = self.state.table();
        let bounds = seconds(&self.bounds_us);
        let mut families = vec![
            table.histograms(
                "egret_flow_exchange_seconds",
                "Time that clients waited, from the first byte of the request to the last byte of the \
                 response.",
                &bounds,
                |series| &series.exchange,
            ),
            table.histograms(
                "egret_flow_provider_seconds",
                "Time that the provider took, from the end of the request to the first byte of its response.",
                &bounds,
                |series| &series.provider,
            ),
            table.histograms(
                "egret_flow_footprint_seconds",
                "Part of the exchange's time that Egret itself took.",
                &seconds(&FOOTPRINT_BOUNDS_US),
                |series| &series.footprint,
            ),
        ];
        for (index, value) in self.counters.iter().enumerate() {
            families.push(table.numbers(value, FamilyKind::Counter, |series| series.sums[index]));
        }
        for (index, value) in self.gauges.iter().enumerate() {
            families.push(table.numbers(value, FamilyKind::Gauge, |series| series.lasts[index]));
        }
        if !table.failures.is_empty() {
            families.push(self.failures(&table));
        }
        families
    }
}

impl Metrics {
    fn expressions(&self) -> impl Iterator<Item = &Expression<f64>> {
        self.counters.iter().chain(&self.gauges).filter_map(|value| match &value.source {
            Source::Expression(expression) => Some(expression),
            _ => None,
        })
    }

    /// Reads the values of all counters and gauges from the exchange: `None` if a value is absent, an error
    /// if it is not a number.
    fn numbers(&self, exchange: &Finished<'_>) -> Vec<Result<Option<f64>, ()>> {
        if self.counters.is_empty() && self.gauges.is_empty() {
            return Vec::new();
        }
        let bodies = if self.wants_bodies() {
            exchange.whole_bodies(expression::BODY_BYTES_MAX)
        } else {
            [None, None]
        };
        exchange.with_inputs(&bodies, |inputs| {
            let read = |value: &Value| match &value.source {
                Source::ResponseField(name) => exchange.response_field(name).map(number).transpose(),
                Source::RequestField(name) => exchange.request_field(name).map(number).transpose(),
                Source::Expression(expression) if expression.needs_response() && exchange.status() == 0 => {
                    Ok(None)
                }
                Source::Expression(expression) => expression.evaluate(inputs).map(Some).map_err(|_| ()),
            };
            let counted = |value| match read(value) {
                // A counter must not decrease.
                Ok(Some(number)) if number < 0.0 => Err(()),
                other => other,
            };
            self.counters.iter().map(counted).chain(self.gauges.iter().map(read)).collect()
        })
    }

    /// Returns the series of an exchange, or the overflow series if there is no room for another.
    fn series<'t>(&self, table: &'t mut SeriesTable, exchange: &Finished<'_>) -> &'t mut Series {
        let SeriesTable { series, overflow, key, .. } = table;
        key.clear();
        for label in &self.config.labels {
            key.push_str(&self.value(*label, exchange));
            // The separator occurs in no value: control characters in consumers are escaped, and names and
            // patterns have none.
            key.push('\x1f');
        }
        if !series.contains_key(key.as_str()) {
            if series.len() >= self.config.series_max as usize {
                let labels = || vec![("overflow", "true".to_owned())];
                return overflow.get_or_insert_with(|| Box::new(self.blank(labels())));
            }
            let labels = self.config.labels.iter();
            let labels = labels.map(|label| (label.word(), self.value(*label, exchange).into_owned()));
            series.insert(key.as_str().into(), self.blank(labels.collect()));
        }
        // The series exists at this point.
        series.entry(key.as_str().into()).or_insert_with(|| self.blank(Vec::new()))
    }

    fn value<'e>(&self, label: MetricsLabel, exchange: &Finished<'e>) -> std::borrow::Cow<'e, str> {
        match label {
            MetricsLabel::Provider => exchange.record().provider().into(),
            MetricsLabel::Endpoint => exchange.endpoint().to_owned().into(),
            MetricsLabel::Method => exchange.method().name().into(),
            MetricsLabel::Status => exchange.status_class().into(),
            MetricsLabel::Consumer => exchange.exportable_consumer(self.key.as_deref()),
        }
    }

    fn blank(&self, labels: Vec<(&'static str, String)>) -> Series {
        let histogram = |bounds: usize| Histogram { counts: vec![0; bounds + 1].into(), sum_us: 0 };
        Series {
            labels,
            exchange: histogram(self.bounds_us.len()),
            provider: histogram(self.bounds_us.len()),
            footprint: histogram(FOOTPRINT_BOUNDS_US.len()),
            sums: vec![None; self.counters.len()],
            lasts: vec![None; self.gauges.len()],
        }
    }

    fn failures(&self, table: &SeriesTable) -> Family {
        let values = self.counters.iter().chain(&self.gauges);
        let samples = values.zip(&table.failures).map(|(value, count)| Sample {
            labels: vec![("metric", value.name.clone())],
            #[expect(clippy::cast_precision_loss, reason = "a count of exchanges is below 2^53")]
            value: SampleValue::Number(*count as f64),
        });
        Family {
            name: "egret_custom_failures_total".to_owned(),
            help: "Exchanges whose value was not a number.".to_owned(),
            kind: FamilyKind::Counter,
            samples: samples.collect(),
        }
    }
}

impl State {
    fn table(&self) -> MutexGuard<'_, SeriesTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeriesTable {
    fn all(&self) -> impl Iterator<Item = &Series> {
        self.series.values().chain(self.overflow.as_deref())
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        bounds: &Arc<[f64]>,
        read: fn(&Series) -> &Histogram,
    ) -> Family {
        let samples = self.all().map(|series| {
            let Histogram { counts, sum_us } = read(series);
            Sample {
                labels: series.labels.clone(),
                value: SampleValue::Histogram {
                    bounds: Arc::clone(bounds),
                    counts: counts.to_vec(),
                    sum: in_seconds(*sum_us),
                },
            }
        });
        let (name, help) = (name.to_owned(), help.to_owned());
        Family { name, help, kind: FamilyKind::Histogram, samples: samples.collect() }
    }

    fn numbers(&self, value: &Value, kind: FamilyKind, read: impl Fn(&Series) -> Option<f64>) -> Family {
        let sample = |series: &Series| {
            let value = SampleValue::Number(read(series)?);
            Some(Sample { labels: series.labels.clone(), value })
        };
        Family {
            name: value.family.clone(),
            help: value.help.clone(),
            kind,
            samples: self.all().filter_map(sample).collect(),
        }
    }
}

impl Histogram {
    fn count(&mut self, bounds_us: &[u64], value_us: u64) {
        self.counts[bounds_us.partition_point(|bound| *bound < value_us)] += 1;
        self.sum_us = self.sum_us.saturating_add(value_us);
    }
}

/// Checks the config, except the counters and gauges.
fn check(config: &MetricsConfig, context: &mut CompileContext<'_>) {
    let is_ascending = config.buckets.is_sorted_by(|one, next| one < next);
    if config.buckets.is_empty() || config.buckets.len() > BUCKETS_MAX || !is_ascending {
        context.problem("buckets", format!("must have 1 to {BUCKETS_MAX} bounds in ascending order"));
    } else if config.buckets[0].is_zero() {
        context.problem("buckets[0]", "must be greater than 0");
    }
    if config.series_max == 0 || config.series_max > SERIES_MAX {
        context.problem("series_max", format!("must be from 1 to {SERIES_MAX}"));
    }
    if config.bodies > BODY_BYTES_MAX {
        context.problem("bodies", format!("must be at most `{BODY_BYTES_MAX}`"));
    }
    if config.interval.get() < INTERVAL_MIN {
        context.problem("interval", "must be at least `1s`");
    }
    if config.counters.len() + config.gauges.len() > VALUES_MAX {
        context.problem("counters", format!("more than {VALUES_MAX} counters and gauges in total"));
    }
}

fn values(
    config: &BTreeMap<String, ValueConfig>,
    key: &str,
    ending: &str,
    context: &mut CompileContext<'_>,
) -> Vec<Value> {
    let mut values = Vec::new();
    for (name, value) in config {
        let at = format!("{key}.{name}");
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            context
                .problem(&at, format!("a name has 1 to {NAME_BYTES_MAX} lower-case letters, digits and `_`"));
        } else if name.ends_with("_total") || name == "failures" {
            context.problem(
                &at,
                "this name is reserved: Egret uses `failures`, and appends `_total` to counters",
            );
        }
        let Some(source) = source(value, &at, context) else { continue };
        let help =
            if value.help.is_empty() { format!("Value of {name} in exchanges.") } else { value.help.clone() };
        // A line break would end the HELP line.
        let help = help.replace(|letter: char| letter.is_control() || letter == '\\', " ");
        values.push(Value {
            name: name.clone(),
            family: format!("egret_custom_{name}{ending}"),
            help,
            source,
        });
    }
    values
}

fn source(config: &ValueConfig, at: &str, context: &mut CompileContext<'_>) -> Option<Source> {
    let mut field = |key: &str, name: &str| {
        if egret_http1::is_token(name.as_bytes()) {
            return Some(name.to_ascii_lowercase().into_bytes().into_boxed_slice());
        }
        context.problem(&format!("{at}.{key}"), format!("`{name}` is not a valid header field name"));
        None
    };
    match (&config.header, &config.request_header, &config.cel) {
        (Some(name), None, None) => field("header", name).map(Source::ResponseField),
        (None, Some(name), None) => field("request_header", name).map(Source::RequestField),
        (None, None, Some(source)) => {
            let parameters = context.matching.parameters();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let compiled =
                Expression::compile(source, Scope { stage: Stage::Finished, parameters: &parameters });
            let path = format!("{}.{at}.cel", context.path);
            compiled.map_err(|error| context.problems.push(error.at(path))).ok().map(Source::Expression)
        }
        _ => {
            context.problem(at, "expected exactly one of `header`, `request_header` and `cel`");
            None
        }
    }
}

/// Exports one metric as of the second time, counted since the first.
fn export(family: &Family, flow: &str, since: Timestamp, now: Timestamp, sink: &dyn Sink) {
    let kind = match family.kind {
        FamilyKind::Counter => otlp::MetricKind::Counter,
        FamilyKind::Gauge => otlp::MetricKind::Gauge,
        FamilyKind::Histogram => otlp::MetricKind::Histogram,
    };
    for samples in family.samples.chunks(POINTS_MAX) {
        let points: Vec<otlp::Point<'_>> = samples.iter().map(|sample| point(sample, flow)).collect();
        let metric = otlp::Metric {
            // OTLP expresses a total by the kind of the metric.
            name: family.name.trim_end_matches("_total"),
            description: &family.help,
            unit: if family.name.ends_with("_seconds") { "s" } else { "" },
            kind,
            start_us: since.as_micros(),
            time_us: now.as_micros(),
            points: &points,
        };
        let mut entry = vec![otlp::METRIC];
        otlp::write_metric(&metric, &mut entry);
        sink.put(Exported { entry: &entry, client: None, service_token: "", environment: "" });
    }
}

fn point<'a>(sample: &'a Sample, flow: &'a str) -> otlp::Point<'a> {
    let label = |(name, value): &'a (&'static str, String)| match *name {
        // The attribute name used by OpenTelemetry's own libraries.
        "overflow" => ("otel.metric.overflow", otlp::AttributeValue::Flag(true)),
        name => (name, otlp::AttributeValue::Text(value)),
    };
    let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty()).map(label);
    let attributes = [("flow", otlp::AttributeValue::Text(flow))].into_iter().chain(labels).collect();
    let figure = match &sample.value {
        SampleValue::Number(number) => otlp::PointValue::Number(*number),
        SampleValue::Histogram { bounds, counts, sum } => otlp::PointValue::Histogram(bounds, counts, *sum),
    };
    otlp::Point { attributes, value: figure }
}

/// Parses the number in a field. Rejects infinity and NaN, which would stay in a sum for ever.
fn number(text: &[u8]) -> Result<f64, ()> {
    let number: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.filter(|number| number.is_finite()).ok_or(())
}

fn seconds(bounds_us: &[u64]) -> Arc<[f64]> {
    bounds_us.iter().map(|bound| in_seconds(*bound)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
fn in_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{Archive, hand_over};

    fn family(archive: &Archive, name: &str) -> Family {
        let figures = archive.metrics();
        figures.into_iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn labels(sample: &Sample) -> String {
        sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
    }

    fn numbers(archive: &Archive, name: &str) -> Vec<(String, f64)> {
        let number = |sample: &Sample| match sample.value {
            SampleValue::Number(number) => (labels(sample), number),
            SampleValue::Histogram { .. } => panic!("a histogram"),
        };
        family(archive, name).samples.iter().map(number).collect()
    }

    #[test]
    fn exchanges_are_counted_by_their_labels() {
        let archive = Archive::with(&json!([{ "metrics": { "buckets": ["1ms", "5ms", "1s"] } }]));
        for (line, status) in [
            ("GET https://one.example/users/7\nx-egret-consumer: web", "200"),
            ("GET https://one.example/users/8\nx-egret-consumer: web", "204"),
            ("DELETE https://one.example/other", ""),
        ] {
            let mut record = archive.record(line, status);
            record.facts.attempts = u32::from(!status.is_empty());
            record.facts.times.footprint_us = 40;
            hand_over(&record);
        }
        let exchanges = family(&archive, "egret_flow_exchange_seconds");
        let told: Vec<(String, Vec<u64>, f64)> = exchanges
            .samples
            .iter()
            .map(|sample| match &sample.value {
                SampleValue::Histogram { counts, sum, .. } => (labels(sample), counts.clone(), *sum),
                SampleValue::Number(_) => panic!("a number"),
            })
            .collect();
        let expected = [
            (
                "provider=one,endpoint=/*,method=DELETE,status=none,consumer=".to_owned(),
                vec![0, 0, 1, 0],
                0.0051,
            ),
            (
                "provider=one,endpoint=/users/{id},method=GET,status=2xx,consumer=web".to_owned(),
                vec![0, 0, 2, 0],
                0.0102,
            ),
        ];
        assert_eq!(told, expected);
        let provider = family(&archive, "egret_flow_provider_seconds");
        let counts = provider.samples.iter().map(|sample| match &sample.value {
            SampleValue::Histogram { counts, .. } => counts.iter().sum::<u64>(),
            SampleValue::Number(_) => panic!("a number"),
        });
        assert_eq!(counts.collect::<Vec<_>>(), [0, 2], "the first exchange made no call");
    }

    #[test]
    fn labels_are_bounded_and_what_is_beyond_is_counted_together() {
        let archive = Archive::with(&json!([{ "metrics": { "labels": ["consumer"], "series_max": 2 } }]));
        for consumer in ["a", "b", "c", "a", "d"] {
            hand_over(
                &archive.record(&format!("GET https://one.example/\nx-egret-consumer: {consumer}"), "200"),
            );
        }
        let told: Vec<(String, u64)> = family(&archive, "egret_flow_exchange_seconds")
            .samples
            .iter()
            .map(|sample| match &sample.value {
                SampleValue::Histogram { counts, .. } => (labels(sample), counts.iter().sum()),
                SampleValue::Number(_) => panic!("a number"),
            })
            .collect();
        assert_eq!(
            told,
            [("consumer=a".to_owned(), 2), ("consumer=b".to_owned(), 1), ("overflow=true".to_owned(), 2)]
        );
    }

    #[test]
    fn a_consumer_that_looks_like_a_secret_is_not_told() {
        let archive = Archive::with(&json!([{ "metrics": { "labels": ["consumer"] } }]));
        let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        for consumer in [&secret, "a b\tc"] {
            hand_over(
                &archive.record(&format!("GET https://one.example/\nx-egret-consumer: {consumer}"), "200"),
            );
        }
        let told = family(&archive, "egret_flow_exchange_seconds");
        assert_eq!(told.samples.len(), 2);
        let told = format!("{told:?}");
        assert!(told.contains("egr_") && !told.contains(&secret), "{told}");
    }

    #[test]
    fn counters_add_up_and_gauges_tell_the_last() {
        let archive = Archive::with(&json!([{ "metrics": {
            "labels": [],
            "counters": {
                "tokens": { "header": "X-Tokens" },
                "cost": { "cel": "double(response.headers['x-tokens']) * 0.5" },
            },
            "gauges": { "remaining": { "header": "x-remaining" }, "offered": { "request_header": "x-offer" } },
        } }]));
        let exchange = |request: &str, response: &str| {
            hand_over(&archive.record(&format!("GET https://one.example/{request}"), response));
        };
        exchange("\nx-offer: -2.5", "200\nx-tokens: 3\nx-remaining: 9");
        exchange("", "200\nx-tokens: 4\nx-remaining: 7");
        exchange("", "200\nx-tokens: many\nx-remaining: inf");
        exchange("", "200\nx-tokens: -1");
        exchange("", "");
        assert_eq!(numbers(&archive, "egret_custom_tokens_total"), [(String::new(), 7.0)]);
        assert_eq!(numbers(&archive, "egret_custom_cost_total"), [(String::new(), 3.5)]);
        assert_eq!(numbers(&archive, "egret_custom_remaining"), [(String::new(), 7.0)]);
        assert_eq!(numbers(&archive, "egret_custom_offered"), [(String::new(), -2.5)]);
        let failures = numbers(&archive, "egret_custom_failures_total");
        let of = |name: &str| failures.iter().find(|(labels, _)| labels.ends_with(name)).unwrap().1;
        assert_eq!((of("tokens"), of("cost"), of("remaining"), of("offered")), (2.0, 2.0, 1.0, 0.0));
    }

    #[test]
    fn an_expression_reads_bodies_and_parameters() {
        let archive = Archive::with(&json!([{ "metrics": { "labels": [], "counters": {
            "tokens": { "cel": "response.body.usage.total + int(request.params.id)" },
        } } }]));
        let mut record =
            archive.record("GET https://one.example/users/7", "200\ncontent-type: application/json");
        assert_eq!(record.wanted_bytes(b"application/json"), 65_536);
        assert_eq!(record.wanted_bytes(b"text/html"), 0);
        record.response_body.bytes = br#"{"usage":{"total":35}}"#.to_vec();
        record.response_body.body_bytes = 22;
        hand_over(&record);
        assert_eq!(numbers(&archive, "egret_custom_tokens_total"), [(String::new(), 42.0)]);
        // A truncated body is not JSON.
        record.response_body.body_bytes = 23;
        hand_over(&record);
        assert_eq!(numbers(&archive, "egret_custom_tokens_total"), [(String::new(), 42.0)]);
    }

    #[test]
    fn a_reload_keeps_what_was_counted_unless_something_else_is() {
        let mut archive = Archive::with(&json!([{ "metrics": {} }]));
        hand_over(&archive.record("GET https://one.example/", "200"));
        archive.reload(&json!([{ "metrics": {} }]));
        assert_eq!(family(&archive, "egret_flow_exchange_seconds").samples.len(), 1);
        archive.reload(&json!([{ "metrics": { "labels": ["status"] } }]));
        assert_eq!(family(&archive, "egret_flow_exchange_seconds").samples.len(), 0);
    }

    #[test]
    fn figures_are_exported_now_and_then_and_at_the_end() {
        let archive = Archive::with(&json!([{ "metrics": { "export": "kept", "interval": "10s" } }]));
        let at = |secs, is_last| archive.diagnoses.tick(Tick { now: Timestamp::from_secs(secs), is_last });
        at(100, false);
        hand_over(&archive.record("GET https://one.example/users/7", "200"));
        at(109, false);
        assert!(archive.put().is_empty());
        at(110, false);
        assert_eq!(archive.put().len(), 3, "one for each histogram");
        at(111, true);
        let told = archive.put();
        assert_eq!(told.len(), 6);
        let has = |entry: &[u8], text: &str| entry.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(
            told.iter()
                .all(|entry| entry[0] == otlp::METRIC && has(entry, "/users/{id}") && has(entry, "flow"))
        );
    }

    #[test]
    fn what_cannot_be_obeyed_is_told_with_its_place() {
        let problems = Archive::problems(&json!([
            { "metrics": {
                "buckets": ["1s", "1ms"],
                "series_max": 0,
                "bodies": "2MiB",
                "interval": "10ms",
                "export": "nobody",
                "counters": {
                    "Tokens": { "header": "x" },
                    "a_total": { "header": "x" },
                    "b": { "header": "x y" },
                    "c": { "header": "x", "cel": "1" },
                    "d": { "cel": "'text'" },
                    "e": { "cel": "request.params.nobody == ''" },
                },
            } },
            { "metrics": {} },
        ]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            "buckets",
            "series_max",
            "bodies",
            "interval",
            "export",
            "counters.Tokens",
            "counters.a_total",
            "counters.b.header",
            "counters.c",
            "counters.d.cel",
            "counters.e.cel",
        ]
        .map(|key| format!("flows[0].diagnoses[0].metrics.{key}"));
        assert_eq!(places[..11], expected, "{problems:#?}");
        assert!(problems[11].starts_with("flows[0].diagnoses[1].metrics"), "{problems:#?}");
    }
}
