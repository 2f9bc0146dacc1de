//! `metrics`: histograms of the durations of exchanges, and counters, gauges and histograms of values from
//! their messages.

pub(super) mod custom;
mod gen_ai;
mod histogram;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_config::{Duration, Size};
use egret_export::otlp;
use egret_har::Key;
use egret_har::sink::{Content, Exported, Sink};
use egret_items::words;
use egret_match::expression;
use egret_message::grpc::GrpcStatus;
use egret_usage::UsageRecord;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::diagnosis::{Diagnosis, Tick};
use crate::family::{Family, FamilyKind, Sample, SampleValue};
use crate::finished::{Finished, exportable};

pub use custom::{HistogramConfig, LabelConfig, ValueConfig};
use custom::{Label, LabelName, Value};
use gen_ai::GenAiTable;
use histogram::{Distribution, Histogram, added, seconds};
use tokens::{TOKEN_LABELS, TokenTable};

/// Maximum of `series_max`.
const SERIES_MAX: u32 = 10_000;
/// Maximum number of custom values of one diagnosis.
const VALUES_MAX: usize = 32;
/// Maximum number of buckets of a histogram.
const BUCKETS_MAX: usize = 40;
/// Maximum of `bodies`.
const METRICS_BODY_BYTES_MAX: Size = Size::from_kib(1024);

/// Minimum interval between exports.
const INTERVAL_MIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum number of samples in one message, well below the limit of an exporter.
const POINTS_MAX: usize = 500;

/// Upper bounds of the footprint's buckets, in microseconds. The footprint is far smaller than the durations
/// of exchanges, so it has its own buckets.
const FOOTPRINT_BOUNDS_US: [u64; 14] =
    [10, 20, 30, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000];

egret_config::keys! {
    /// Records durations of exchanges in the histograms `egret_flow_exchange_seconds`,
    /// `egret_flow_provider_seconds` and `egret_flow_footprint_seconds`.
    pub struct MetricsConfig {
        /// Labels besides `flow`: `provider`; `endpoint`, the path of the match that matched; `method`;
        /// `status`, as `2xx`; `consumer`, as the client names itself. `grpc_status`, the status of gRPC
        /// calls such as `unavailable` or `none`, is not among the default ones.
        #[schemars(extend("x-tier" = "everyday"))]
        pub labels: BTreeSet<MetricsLabel> = MetricsLabel::DEFAULT.into(),
        /// Upper bounds of the buckets for exchanges and for the provider's time, in ascending order.
        pub buckets: Vec<Duration> = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000]
            .map(Duration::from_millis)
            .into(),
        /// Maximum number of label sets, up to 10000. Further exchanges are counted together under
        /// `overflow="true"`.
        #[schemars(range(min = 1, max = 10_000))]
        pub series_max: u32 = 1_000,
        /// Sums of values from exchanges, by name: `tokens` is exported as `egret_custom_tokens_total`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub counters: BTreeMap<String, ValueConfig>,
        /// Values from the last exchange, by name: `remaining` is exported as `egret_custom_remaining`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub gauges: BTreeMap<String, ValueConfig>,
        /// Sums of values that may also be negative, by name: `open` is exported as the gauge
        /// `egret_custom_open`, and over OTLP as a sum that is not monotonic.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub up_down_counters: BTreeMap<String, ValueConfig>,
        /// Distributions of values from exchanges, by name: `cost` is exported as `egret_custom_cost`, with
        /// its own buckets.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub histograms: BTreeMap<String, HistogramConfig>,
        /// Labels of all metrics, by name, with values from exchanges: at most eight. A value of more than 64
        /// bytes, or one that looks like a secret, is replaced by its pseudonym.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub custom_labels: BTreeMap<String, LabelConfig>,
        /// Counts the tokens that language models report, in `egret_llm_tokens_total`, by `model` and by
        /// `type`: `input`, `output`, and their parts `cache_read` and `reasoning`. `series_max` bounds its
        /// series too.
        #[schemars(extend("x-tier" = "everyday"))]
        pub tokens: bool,
        /// Observes the calls of language models that report tokens, in OpenTelemetry's metrics
        /// `gen_ai.client.token.usage`, `gen_ai.client.operation.duration` and
        /// `gen_ai.client.operation.time_to_first_chunk`. A JSON body of at most `bodies` tells the model
        /// that a call asks for. `series_max` bounds their series too.
        pub gen_ai: bool,
        /// Maximum length of a JSON body that expressions can read, as sent, up to `1MiB`. A longer one is
        /// `null`.
        pub bodies: Size = Size::from_kib(64),
        /// Name of an additional exporter, under `exporters`. Its type must be `otlp`. The metrics are always
        /// available on `/metrics`.
        pub export: Option<String>,
        /// Interval between exports, at least `1s`.
        pub interval: Duration = Duration::from_secs(15),
    }
}

words! {
    /// The labels of the metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum MetricsLabel: word {
        /// Name of the provider in the config; `-` for every other host.
        Provider => "provider",
        /// Path of the flow's match that matched the exchange.
        Endpoint => "endpoint",
        /// Method; `other` for non-standard ones.
        Method => "method",
        /// Class of the status code, as `2xx`; `none` if the client received no response.
        Status => "status",
        /// Consumer, as named by the client. A name that looks like a secret is replaced by a pseudonym.
        Consumer => "consumer",
        /// Status of the gRPC call, such as `unavailable`; `none` if the exchange is none or has no status.
        #[serde(rename = "grpc_status")]
        GrpcStatus => "grpc_status",
    }
}

impl MetricsLabel {
    const DEFAULT: [Self; 5] = [Self::Provider, Self::Endpoint, Self::Method, Self::Status, Self::Consumer];
}

/// Records durations and values of exchanges.
#[derive(Debug)]
pub struct Metrics {
    config: MetricsConfig,
    bounds_us: Vec<u64>,
    custom: Custom,
    key: Option<Arc<Key>>,
    flow: String,
    sink: Option<Arc<dyn Sink>>,
    state: Arc<MetricsState>,
}

/// The custom values and labels.
#[derive(Debug)]
struct Custom {
    counters: Vec<Value>,
    up_down_counters: Vec<Value>,
    gauges: Vec<Value>,
    /// Each with its bounds.
    histograms: Vec<(Value, Arc<[f64]>)>,
    labels: Vec<Label>,
}

/// The custom values and labels of one exchange, in the order of [`Custom::values`] and of the labels.
#[derive(Debug, Default)]
struct Read {
    /// `None` if a value is absent, an error if it is not a number.
    numbers: Vec<Result<Option<f64>, ()>>,
    labels: Vec<Result<String, ()>>,
}

/// The counted values. They outlive a reload unless the counting config changes.
#[derive(Debug)]
struct MetricsState {
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
    /// Tokens, if they are counted.
    tokens: TokenTable,
    /// Calls of language models, if they are observed.
    gen_ai: GenAiTable,
    /// Number of values that were not numbers, in the order of [`Custom::values`], and of labels without a
    /// value.
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
    labels: Vec<(LabelName, String)>,
    exchange: Histogram,
    provider: Histogram,
    footprint: Histogram,
    sums: Vec<Option<f64>>,
    lasts: Vec<Option<f64>>,
    distributions: Vec<Distribution>,
}

impl Diagnosis for Metrics {
    type Config = MetricsConfig;

    fn exporter(config: &MetricsConfig) -> Option<&str> {
        config.export.as_deref()
    }

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
        let custom = Custom {
            counters: custom::values(&config.counters, "counters", "_total", context),
            up_down_counters: custom::values(&config.up_down_counters, "up_down_counters", "", context),
            gauges: custom::values(&config.gauges, "gauges", "", context),
            histograms: custom::histograms(&config.histograms, context),
            labels: custom::labels(&config.custom_labels, "custom_labels", context),
        };
        if context.problems.len() > problems {
            return None;
        }
        // The export settings do not affect the counted values.
        let counted = MetricsConfig { export: None, interval: Duration::default(), ..config.clone() };
        let state = context.states.keep(
            |known: &MetricsState| known.config == counted,
            || MetricsState {
                config: counted.clone(),
                table: Mutex::new(SeriesTable {
                    failures: vec![0; custom.values().count() + custom.labels.len()],
                    ..SeriesTable::default()
                }),
            },
        );
        let micros = |bound: &Duration| bound.as_millis().saturating_mul(1_000);
        Some(Self {
            bounds_us: config.buckets.iter().map(micros).collect(),
            config: config.clone(),
            custom,
            key: context.exports.key.as_ref().map(Arc::clone),
            flow: context.flow().to_owned(),
            sink: sink.flatten(),
            state,
        })
    }

    fn describe(&self) -> String {
        let custom = self.custom.labels.iter().map(|label| label.name.as_str());
        let labels: Vec<&str> = self.config.labels.iter().map(|label| label.word()).chain(custom).collect();
        let by = if labels.is_empty() { String::new() } else { format!(" by {}", labels.join(", ")) };
        let names: Vec<&str> = self.custom.values().map(|value| value.name.as_str()).collect();
        let also = if names.is_empty() { String::new() } else { format!(", and {}", names.join(", ")) };
        let to =
            self.config.export.as_ref().map_or_else(String::new, |export| format!(", exported to {export}"));
        format!("counts exchanges{by}{also}{to}")
    }

    fn wants_bodies(&self) -> bool {
        self.config.gen_ai || self.custom.reads_bodies()
    }

    fn wants_usage(&self) -> bool {
        self.config.tokens || self.config.gen_ai || self.custom.reads_usage()
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
        let read = self.custom.read(exchange);
        let mut table = self.state.table.lock();
        let results = read.numbers.iter().map(Result::is_err).chain(read.labels.iter().map(Result::is_err));
        for (failed, count) in results.zip(&mut table.failures) {
            *count += u64::from(failed);
        }
        if self.config.tokens
            && let Some(usage) = exchange.record().usage.as_deref()
        {
            let labels = self.token_labels(exchange, &read, usage);
            table.tokens.count(usage, labels, self.config.series_max as usize);
        }
        if self.config.gen_ai {
            let series_max = self.config.series_max as usize;
            table.gen_ai.count(exchange, self.key.as_deref(), series_max);
        }
        let series = self.series(&mut table, exchange, &read);
        series.exchange.count(&self.bounds_us, total_us);
        series.footprint.count(&FOOTPRINT_BOUNDS_US, footprint_us);
        if let Some(provider_us) = provider_us {
            series.provider.count(&self.bounds_us, provider_us);
        }
        self.custom.count(&read, series);
    }

    fn tick(&self, tick: Tick) {
        let mut table = self.state.table.lock();
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
        let table = self.state.table.lock();
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
        if self.config.tokens {
            families.extend([table.tokens.family(), table.tokens.cost_family()]);
        }
        if self.config.gen_ai {
            families.extend(table.gen_ai.families());
        }
        families.extend(self.custom.families(&table));
        if !table.failures.is_empty() {
            families.push(self.failures(&table));
        }
        families
    }
}

impl Metrics {
    /// Returns the series of an exchange, or the overflow series if there is no room for another.
    fn series<'t>(&self, table: &'t mut SeriesTable, exchange: &Finished<'_>, read: &Read) -> &'t mut Series {
        let SeriesTable { series, overflow, key, .. } = table;
        key.clear();
        for label in &self.config.labels {
            key.push_str(&self.value(*label, exchange));
            // The separator occurs in no value: control characters in consumers are escaped, and names and
            // patterns have none.
            key.push('\x1f');
        }
        let custom = self.custom_labels(read);
        for value in &custom {
            key.push_str(value);
            key.push('\x1f');
        }
        if !series.contains_key(key.as_str()) {
            if series.len() >= self.config.series_max as usize {
                let labels = || vec![("overflow".into(), "true".to_owned())];
                return overflow.get_or_insert_with(|| Box::new(self.blank(labels())));
            }
            let labels = self.config.labels.iter();
            let labels = labels.map(|label| (label.word().into(), self.value(*label, exchange).into_owned()));
            let names = self.custom.labels.iter().map(|label| LabelName::from(label.name.clone()));
            let labels = labels.chain(names.zip(custom)).collect();
            series.insert(key.as_str().into(), self.blank(labels));
        }
        // The series exists at this point.
        series.entry(key.as_str().into()).or_insert_with(|| self.blank(Vec::new()))
    }

    /// Returns the labels of the tokens that an exchange has used, without their type.
    fn token_labels(
        &self,
        exchange: &Finished<'_>,
        read: &Read,
        usage: &UsageRecord,
    ) -> Vec<(LabelName, String)> {
        let own = self.config.labels.iter();
        let own = own.map(|label| (label.word().into(), self.value(*label, exchange).into_owned()));
        let names = self.custom.labels.iter().map(|label| LabelName::from(label.name.clone()));
        let model = usage.model.as_deref().unwrap_or_default();
        let model = exportable(model.as_bytes(), self.key.as_deref()).into_owned();
        own.chain(names.zip(self.custom_labels(read))).chain([(TOKEN_LABELS[0].into(), model)]).collect()
    }

    fn value<'e>(&self, label: MetricsLabel, exchange: &Finished<'e>) -> std::borrow::Cow<'e, str> {
        match label {
            MetricsLabel::Provider => exchange.record().provider().into(),
            MetricsLabel::Endpoint => exchange.endpoint().to_owned().into(),
            MetricsLabel::Method => exchange.method().name().into(),
            MetricsLabel::Status => exchange.status_class().into(),
            MetricsLabel::Consumer => exchange.exportable_consumer(self.key.as_deref()),
            MetricsLabel::GrpcStatus => exchange.facts().grpc_status.map_or("none", GrpcStatus::name).into(),
        }
    }

    /// Returns the values of the custom labels, in a form that may be exported.
    fn custom_labels(&self, read: &Read) -> Vec<String> {
        let key = self.key.as_deref();
        let text = |label: &Result<String, ()>| {
            let text = label.as_deref().unwrap_or_default();
            exportable(text.as_bytes(), key).into_owned()
        };
        read.labels.iter().map(text).collect()
    }

    fn blank(&self, labels: Vec<(LabelName, String)>) -> Series {
        Series {
            labels,
            exchange: Histogram::new(self.bounds_us.len()),
            provider: Histogram::new(self.bounds_us.len()),
            footprint: Histogram::new(FOOTPRINT_BOUNDS_US.len()),
            sums: vec![None; self.custom.counters.len() + self.custom.up_down_counters.len()],
            lasts: vec![None; self.custom.gauges.len()],
            distributions: self
                .custom
                .histograms
                .iter()
                .map(|(_, bounds)| Distribution::new(bounds))
                .collect(),
        }
    }

    fn failures(&self, table: &SeriesTable) -> Family {
        let values = self.custom.values().map(|value| ("metric", &value.name));
        let labels = self.custom.labels.iter().map(|label| ("label", &label.name));
        let samples = values.chain(labels).zip(&table.failures).map(|((kind, name), count)| Sample {
            labels: vec![(kind.into(), name.clone())],
            #[expect(clippy::cast_precision_loss, reason = "a count of exchanges is below 2^53")]
            value: SampleValue::Number(*count as f64),
        });
        Family {
            name: "egret_custom_failures_total".to_owned(),
            help: "Exchanges whose value was not a number, or whose label could not be evaluated.".to_owned(),
            kind: FamilyKind::Counter,
            samples: samples.collect(),
        }
    }
}

impl Custom {
    /// Returns all values: counters, up-down counters, gauges, histograms.
    fn values(&self) -> impl Iterator<Item = &Value> {
        let Self { counters, up_down_counters, gauges, histograms, .. } = self;
        let histograms = histograms.iter().map(|(value, _)| value);
        counters.iter().chain(up_down_counters).chain(gauges).chain(histograms)
    }

    fn reads_bodies(&self) -> bool {
        self.values().any(|value| value.source.reads_bodies())
            || self.labels.iter().any(|label| label.source.reads_bodies())
    }

    fn reads_usage(&self) -> bool {
        self.values().any(|value| value.source.reads_usage())
            || self.labels.iter().any(|label| label.source.reads_usage())
    }

    /// Reads all values and labels of the exchange.
    fn read(&self, exchange: &Finished<'_>) -> Read {
        if self.labels.is_empty() && self.values().next().is_none() {
            return Read::default();
        }
        let bodies = if self.reads_bodies() {
            exchange.whole_bodies(expression::EXPRESSION_BODY_BYTES_MAX)
        } else {
            [None, None]
        };
        exchange.with_inputs(&bodies, |inputs| {
            let Self { counters, up_down_counters, gauges, histograms, labels } = self;
            let any = |value: &Value| value.number(exchange, inputs);
            let positive = |value: &Value| value.positive_number(exchange, inputs);
            let numbers = counters.iter().map(positive).chain(up_down_counters.iter().map(any));
            let numbers = numbers.chain(gauges.iter().map(any));
            let numbers = numbers.chain(histograms.iter().map(|(value, _)| positive(value)));
            Read {
                numbers: numbers.collect(),
                labels: labels.iter().map(|label| label.text(exchange, inputs)).collect(),
            }
        })
    }

    /// Counts the values of an exchange in its series.
    fn count(&self, read: &Read, series: &mut Series) {
        let (sums, rest) = read.numbers.split_at(series.sums.len().min(read.numbers.len()));
        let (lasts, observed) = rest.split_at(series.lasts.len().min(rest.len()));
        for (sum, number) in series.sums.iter_mut().zip(sums) {
            if let Ok(Some(number)) = number {
                *sum = Some(added(sum.unwrap_or_default(), *number));
            }
        }
        for (last, number) in series.lasts.iter_mut().zip(lasts) {
            if let Ok(Some(number)) = number {
                *last = Some(*number);
            }
        }
        let distributions = series.distributions.iter_mut().zip(&self.histograms);
        for ((distribution, (_, bounds)), number) in distributions.zip(observed) {
            if let Ok(Some(number)) = number {
                distribution.count(bounds, *number);
            }
        }
    }

    /// Returns the metrics of all values.
    fn families(&self, table: &SeriesTable) -> Vec<Family> {
        let Self { counters, up_down_counters, gauges, histograms, .. } = self;
        let mut families = Vec::new();
        let sums = counters.iter().map(|value| (value, FamilyKind::Counter));
        let sums = sums.chain(up_down_counters.iter().map(|value| (value, FamilyKind::UpDownCounter)));
        for (index, (value, kind)) in sums.enumerate() {
            families.push(table.numbers(value, kind, |series| series.sums[index]));
        }
        for (index, value) in gauges.iter().enumerate() {
            families.push(table.numbers(value, FamilyKind::Gauge, |series| series.lasts[index]));
        }
        for (index, (value, bounds)) in histograms.iter().enumerate() {
            let sample = |series: &Series| {
                let value = series.distributions[index].sample(bounds);
                Sample { labels: series.labels.clone(), value }
            };
            families.push(Family {
                name: value.family.clone(),
                help: value.help.clone(),
                kind: FamilyKind::Histogram,
                samples: table.all().map(sample).collect(),
            });
        }
        families
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
        let sample =
            |series: &Series| Sample { labels: series.labels.clone(), value: read(series).sample(bounds) };
        let samples = self.all().map(sample);
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

/// Checks the config, except the custom values and labels.
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
    if config.bodies > METRICS_BODY_BYTES_MAX {
        context.problem("bodies", format!("must be at most `{METRICS_BODY_BYTES_MAX}`"));
    }
    if config.interval.get() < INTERVAL_MIN {
        context.problem("interval", "must be at least `1s`");
    }
    for name in config.custom_labels.keys().filter(|name| TOKEN_LABELS.contains(&name.as_str())) {
        if config.tokens {
            context
                .problem(&format!("custom_labels.{name}"), "`tokens` sets this label: choose another name");
        }
    }
    let MetricsConfig { counters, up_down_counters, gauges, histograms, .. } = config;
    if counters.len() + up_down_counters.len() + gauges.len() + histograms.len() > VALUES_MAX {
        context
            .problem("counters", format!("more than {VALUES_MAX} counters, gauges and histograms in total"));
    }
}

/// Exports one metric as of the second time, counted since the first.
fn export(family: &Family, flow: &str, since: Timestamp, now: Timestamp, sink: &dyn Sink) {
    let kind = match family.kind {
        FamilyKind::Counter => otlp::MetricKind::Counter,
        FamilyKind::UpDownCounter => otlp::MetricKind::UpDownCounter,
        FamilyKind::Gauge => otlp::MetricKind::Gauge,
        FamilyKind::Histogram => otlp::MetricKind::Histogram,
    };
    let conventional = gen_ai::in_otlp(&family.name);
    // OTLP expresses a total by the kind of the metric.
    let own =
        [family.name.trim_end_matches("_total"), if family.name.ends_with("_seconds") { "s" } else { "" }];
    let [name, unit] = conventional.unwrap_or(own);
    let attribute: fn(&str) -> &str = if conventional.is_some() { gen_ai::attribute } else { |label| label };
    for samples in family.samples.chunks(POINTS_MAX) {
        let points: Vec<otlp::Point<'_>> =
            samples.iter().map(|sample| point(sample, flow, attribute)).collect();
        let metric = otlp::Metric {
            name,
            description: &family.help,
            unit,
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

/// Returns the data point of a sample. `attribute` returns the name of a label in OTLP.
fn point<'a>(sample: &'a Sample, flow: &'a str, attribute: fn(&str) -> &str) -> otlp::Point<'a> {
    let label = |(name, value): &'a (LabelName, String)| match &**name {
        // The attribute name used by OpenTelemetry's own libraries.
        "overflow" => ("otel.metric.overflow", otlp::AttributeValue::Flag(true)),
        name => (attribute(name), otlp::AttributeValue::Text(value)),
    };
    let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty()).map(label);
    let attributes = [("flow", otlp::AttributeValue::Text(flow))].into_iter().chain(labels).collect();
    let figure = match &sample.value {
        SampleValue::Number(number) => otlp::PointValue::Number(*number),
        SampleValue::Histogram { bounds, counts, sum } => otlp::PointValue::Histogram(bounds, counts, *sum),
    };
    otlp::Point { attributes, value: figure }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use egret_usage::UsageDialect;

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
    fn a_histogram_has_buckets_and_up_down_counters_fall() {
        let archive = Archive::with(&json!([{ "metrics": {
            "labels": [],
            "histograms": {
                "cost": { "header": "x-cost", "buckets": [0, 0.5, 2] },
                "wait": { "cel": "response.duration_ms", "buckets": [5, 10] },
            },
            "up_down_counters": { "open": { "cel": "request.method == 'POST' ? 1 : -1" } },
        } }]));
        for (method, response) in [
            ("POST", "200\nx-cost: 0.5"),
            ("GET", "200\nx-cost: 7"),
            ("GET", "200\nx-cost: -1"),
            ("GET", "200"),
            ("GET", ""),
        ] {
            hand_over(&archive.record(&format!("{method} https://one.example/"), response));
        }
        let observed = |name: &str| {
            let family = family(&archive, name);
            assert_eq!(family.kind, FamilyKind::Histogram);
            match &family.samples[0].value {
                SampleValue::Histogram { bounds, counts, sum } => (bounds.to_vec(), counts.clone(), *sum),
                SampleValue::Number(_) => panic!("a number"),
            }
        };
        assert_eq!(observed("egret_custom_cost"), (vec![0.0, 0.5, 2.0], vec![0, 1, 0, 1], 7.5));
        // A time exists even if the client received no response.
        let (_, counts, sum) = observed("egret_custom_wait");
        assert_eq!((counts, (sum - 25.5).abs() < 1e-9), (vec![0, 5, 0], true));
        assert_eq!(numbers(&archive, "egret_custom_open"), [(String::new(), -3.0)]);
        assert_eq!(family(&archive, "egret_custom_open").kind, FamilyKind::UpDownCounter);
        let failures = numbers(&archive, "egret_custom_failures_total");
        let expected = [("metric=open", 0.0), ("metric=cost", 1.0), ("metric=wait", 0.0)]
            .map(|(l, n)| (l.to_owned(), n));
        assert_eq!(failures, expected);
    }

    #[test]
    fn a_sum_stays_finite() {
        let archive = Archive::with(&json!([{ "metrics": {
            "labels": [],
            "counters": { "a": { "header": "x" } },
            "histograms": { "b": { "header": "x", "buckets": [1] } },
        } }]));
        for _ in 0..2 {
            hand_over(&archive.record("GET https://one.example/", "200\nx: 1.7e308"));
        }
        assert_eq!(numbers(&archive, "egret_custom_a_total"), [(String::new(), f64::MAX)]);
        let SampleValue::Histogram { sum, .. } = family(&archive, "egret_custom_b").samples[0].value else {
            panic!("a number")
        };
        assert!(sum.is_finite());
    }

    #[test]
    fn custom_labels_are_bounded_and_hide_what_looks_like_a_secret() {
        let archive = Archive::with(&json!([{ "metrics": {
            "labels": ["status"],
            "custom_labels": {
                "model": { "cel": "request.headers['x-model']" },
                "tenant": { "request_header": "X-Tenant" },
                "tier": { "cel": "response.body.tier" },
            },
            "counters": { "tokens": { "header": "x-tokens" } },
            "series_max": 4,
        } }]));
        let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        let long = "x".repeat(65);
        for tenant in ["acme", "acme", &secret, &long, "", "one too many"] {
            let lines = format!("GET https://one.example/\nx-model: large\nx-tenant: {tenant}");
            hand_over(&archive.record(&lines, "200\nx-tokens: 2"));
        }
        let told = numbers(&archive, "egret_custom_tokens_total");
        let of = |tenant: &str| {
            let wanted = format!("status=2xx,model=large,tenant={tenant},tier=");
            told.iter().find(|(labels, _)| *labels == wanted).map(|(_, number)| *number)
        };
        assert_eq!((of("acme"), of("")), (Some(4.0), Some(2.0)), "{told:?}");
        let hidden = told.iter().filter(|(labels, _)| labels.contains("tenant=egr_")).count();
        assert_eq!((hidden, told.len()), (2, 5), "{told:?}");
        assert!(told.contains(&("overflow=true".to_owned(), 2.0)));
        assert!(!format!("{told:?}").contains(&secret));
        // The body is no JSON, so the label has no value.
        let failures = numbers(&archive, "egret_custom_failures_total");
        assert!(failures.contains(&("label=tier".to_owned(), 6.0)), "{failures:?}");
    }

    #[test]
    fn custom_values_and_labels_are_checked() {
        let problems = Archive::problems(&json!([{ "metrics": {
            "histograms": {
                "a": { "header": "x" },
                "b": { "header": "x", "buckets": [2, 1] },
                "c": { "header": "x", "buckets": [-1, 1] },
                "d": { "buckets": [1] },
            },
            "custom_labels": {
                "flow": { "header": "x" },
                "status": { "header": "x" },
                "1st": { "header": "x" },
                "Big": { "header": "x" },
                "none": {},
                "list": { "cel": "[1]" },
                "p7": { "header": "x" }, "p8": { "header": "x" }, "p9": { "header": "x" },
            },
        } }]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            "histograms.a.buckets",
            "histograms.b.buckets",
            "histograms.c.buckets",
            "histograms.d",
            "custom_labels",
            "custom_labels.1st",
            "custom_labels.Big",
            "custom_labels.flow",
            "custom_labels.list.cel",
            "custom_labels.none",
            "custom_labels.status",
        ]
        .map(|key| format!("flows[0].diagnoses[0].metrics.{key}"));
        assert_eq!(places, expected, "{problems:#?}");
    }

    #[test]
    fn a_metric_has_one_kind() {
        let problems = Archive::problems(&json!([{ "metrics": {
            "gauges": { "a": { "header": "x" }, "b_sum": { "header": "x" } },
            "up_down_counters": { "a": { "header": "x" } },
            "histograms": { "b": { "header": "x", "buckets": [1] } },
        } }]));
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert!(
            problems
                .iter()
                .all(|problem| problem.starts_with("flows[0].diagnoses: the metric `egret_custom_"))
        );
    }

    #[test]
    fn tokens_are_counted_by_model_and_type() {
        let archive =
            Archive::with(&json!([{ "metrics": { "labels": [], "series_max": 2, "tokens": true } }]));
        let mut record = archive.record("GET https://one.example/", "200");
        assert!(record.wants_usage());
        for model in [Some("a"), None, Some("b"), Some("a"), Some("c")] {
            record.usage = Some(Box::new(UsageRecord {
                input: 11,
                cache_read: 4,
                output: 30,
                reasoning: 8,
                model: model.map(Into::into),
                dialect: Some(UsageDialect::Chat),
                ..UsageRecord::default()
            }));
            hand_over(&record);
        }
        record.usage = Some(Box::default());
        hand_over(&record);
        let told: Vec<String> = numbers(&archive, "egret_llm_tokens_total")
            .into_iter()
            .map(|(labels, count)| format!("{labels} {count}"))
            .collect();
        let expected =
            [("model=", 1), ("model=a", 2), ("overflow=true", 2)].into_iter().flat_map(|(labels, calls)| {
                [("input", 11), ("output", 30), ("cache_read", 4), ("reasoning", 8)]
                    .map(|(kind, tokens)| format!("{labels},type={kind} {}", calls * tokens))
            });
        assert_eq!(told, expected.collect::<Vec<_>>());
        let problems = Archive::problems(&json!([{ "metrics": {
            "tokens": true, "custom_labels": { "model": { "header": "x" }, "other": { "header": "x" } },
        } }]));
        assert_eq!(
            problems,
            [
                "flows[0].diagnoses[0].metrics.custom_labels.model: `tokens` sets this label: choose another name"
            ]
        );
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
    fn invalid_settings_are_reported_at_their_keys() {
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
