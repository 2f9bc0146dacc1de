//! OpenTelemetry's metrics of calls of language models: tokens, durations, and times to the first chunk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use egret_har::Key;

use super::histogram::{Distribution, Histogram, seconds};
use crate::family::{Family, FamilyKind, Sample};
use crate::finished::{Finished, exportable};
use crate::gen_ai::{EMBEDDINGS, GenAiCall, request_model};

/// Names of the metrics in Prometheus, in OpenTelemetry, and their units.
const TOKENS: [&str; 3] = ["gen_ai_client_token_usage", "gen_ai.client.token.usage", "{token}"];
const DURATION: [&str; 3] =
    ["gen_ai_client_operation_duration_seconds", "gen_ai.client.operation.duration", "s"];
const FIRST_CHUNK: [&str; 3] = [
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
];

/// Names of the attributes in Prometheus and in OpenTelemetry. The last one is of tokens alone.
const ATTRIBUTES: [[&str; 2]; 7] = [
    ["gen_ai_operation_name", "gen_ai.operation.name"],
    ["gen_ai_provider_name", "gen_ai.provider.name"],
    ["gen_ai_request_model", "gen_ai.request.model"],
    ["gen_ai_response_model", "gen_ai.response.model"],
    ["server_address", "server.address"],
    ["error_type", "error.type"],
    TOKEN_TYPE,
];
const TOKEN_TYPE: [&str; 2] = ["gen_ai_token_type", "gen_ai.token.type"];

/// Upper bounds of the buckets of tokens, as the conventions advise.
const TOKEN_BOUNDS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Upper bounds of the buckets of times, in microseconds. The conventions advise the first fourteen, but long
/// answers take more time.
const TIME_BOUNDS_US: [u64; 17] = [
    10_000,
    20_000,
    40_000,
    80_000,
    160_000,
    320_000,
    640_000,
    1_280_000,
    2_560_000,
    5_120_000,
    10_240_000,
    20_480_000,
    40_960_000,
    81_920_000,
    163_840_000,
    327_680_000,
    655_360_000,
];

/// The observations of all calls.
#[derive(Debug, Default)]
pub(super) struct GenAiTable {
    /// Series by the values of their labels, joined.
    series: BTreeMap<Box<str>, GenAiSeries>,
    /// The series of all calls that have none of their own.
    overflow: Option<Box<GenAiSeries>>,
}

#[derive(Debug)]
struct GenAiSeries {
    labels: Vec<(Cow<'static, str>, String)>,
    input: Distribution,
    output: Distribution,
    duration: Histogram,
    first_chunk: Histogram,
}

impl GenAiSeries {
    fn new(labels: Vec<(Cow<'static, str>, String)>) -> Self {
        let times = || Histogram::new(TIME_BOUNDS_US.len());
        Self {
            labels,
            input: Distribution::new(&TOKEN_BOUNDS),
            output: Distribution::new(&TOKEN_BOUNDS),
            duration: times(),
            first_chunk: times(),
        }
    }
}

impl GenAiTable {
    /// Counts the call of an exchange, if it has reported tokens. Further series than `series_max` are
    /// counted together.
    pub fn count(&mut self, exchange: &Finished<'_>, key: Option<&Key>, series_max: usize) {
        let Some(call) = GenAiCall::of(exchange, key) else { return };
        let values = [
            call.operation.to_owned(),
            call.provider.to_owned(),
            request_model(exchange, key),
            call.response_model.into_owned(),
            exportable(exchange.record().host().as_bytes(), key).into_owned(),
            call.error.to_owned(),
        ];
        let has_output = call.operation != EMBEDDINGS || call.usage.output > 0;
        let series = self.series(values, series_max);
        let times = &exchange.facts().times;
        #[expect(clippy::cast_precision_loss, reason = "a number of tokens is below 2^53")]
        let [input, output] = [call.usage.input, call.usage.output].map(|tokens| tokens as f64);
        series.input.count(&TOKEN_BOUNDS, input);
        if has_output {
            series.output.count(&TOKEN_BOUNDS, output);
        }
        series.duration.count(&TIME_BOUNDS_US, times.total_us());
        if exchange.is_streamed() {
            series.first_chunk.count(&TIME_BOUNDS_US, times.first_byte_us);
        }
    }

    /// Returns the series of calls with these values of the attributes.
    fn series(&mut self, values: [String; 6], series_max: usize) -> &mut GenAiSeries {
        let Self { series, overflow } = self;
        let key = values.join("\x1f");
        if !series.contains_key(key.as_str()) && series.len() >= series_max {
            let labels = || vec![("overflow".into(), "true".to_owned())];
            return overflow.get_or_insert_with(|| Box::new(GenAiSeries::new(labels())));
        }
        let labels = || ATTRIBUTES.iter().map(|[name, _]| Cow::from(*name)).zip(values).collect();
        series.entry(key.into()).or_insert_with(|| GenAiSeries::new(labels()))
    }

    /// Returns the metrics.
    pub fn families(&self) -> [Family; 3] {
        let family = |[name, ..]: [&str; 3], help: &str, samples: Vec<Sample>| Family {
            name: name.to_owned(),
            help: help.to_owned(),
            kind: FamilyKind::Histogram,
            samples,
        };
        [
            family(TOKENS, "Tokens that a call of a language model has used.", self.tokens()),
            family(
                DURATION,
                "Time that a call of a language model took.",
                self.times(|series| &series.duration),
            ),
            family(
                FIRST_CHUNK,
                "Time from a request to the first byte of a streamed response of a language model.",
                self.times(|series| &series.first_chunk),
            ),
        ]
    }

    fn all(&self) -> impl Iterator<Item = &GenAiSeries> {
        self.series.values().chain(self.overflow.as_deref())
    }

    fn tokens(&self) -> Vec<Sample> {
        let bounds: Arc<[f64]> = TOKEN_BOUNDS.into();
        let samples = self.all().flat_map(|series| {
            [("input", &series.input), ("output", &series.output)].map(|(kind, tokens)| {
                let mut labels = series.labels.clone();
                labels.push((TOKEN_TYPE[0].into(), kind.to_owned()));
                Sample { labels, value: tokens.sample(&bounds) }
            })
        });
        samples.collect()
    }

    fn times(&self, read: fn(&GenAiSeries) -> &Histogram) -> Vec<Sample> {
        let bounds = seconds(&TIME_BOUNDS_US);
        let sample = |series: &GenAiSeries| Sample {
            labels: series.labels.clone(),
            value: read(series).sample(&bounds),
        };
        self.all().map(sample).collect()
    }
}

/// Returns the name and the unit in OpenTelemetry of a metric, if it is one of these.
pub(super) fn in_otlp(family: &str) -> Option<[&'static str; 2]> {
    let found = [TOKENS, DURATION, FIRST_CHUNK].into_iter().find(|[name, ..]| *name == family);
    found.map(|[_, name, unit]| [name, unit])
}

/// Returns the name of an attribute in OpenTelemetry.
pub(super) fn attribute(label: &str) -> &str {
    ATTRIBUTES.iter().find(|[name, _]| *name == label).map_or(label, |[_, name]| *name)
}

#[cfg(test)]
mod tests {
    use egret_clock::Timestamp;
    use egret_export::otlp;
    use egret_usage::{UsageDialect, UsageRecord};
    use serde_json::json;

    use super::*;
    use crate::diagnosis::Tick;
    use crate::family::SampleValue;
    use crate::fixture::{Archive, hand_over};

    /// Observes calls of these models, whose responses are streams.
    fn observed(archive: &Archive, models: &[&str]) {
        for model in models {
            let lines = "POST https://one.example/v1/chat/completions\ncontent-type: application/json";
            let mut record = archive.record(lines, "200\ncontent-type: text/event-stream");
            record.request_body.bytes =
                format!("{{\"messages\":[\"secret\"],\"model\":\"{model}\"}}").into_bytes();
            record.request_body.body_bytes = record.request_body.bytes.len() as u64;
            record.usage = Some(Box::new(UsageRecord {
                input: 11,
                output: 30,
                model: Some(format!("{model}-1").into()),
                dialect: Some(UsageDialect::Chat),
                provider: Some("openai"),
                ..UsageRecord::default()
            }));
            hand_over(&record);
        }
    }

    #[test]
    fn calls_are_observed_by_model_and_bounded() {
        let archive =
            Archive::with(&json!([{ "metrics": { "labels": [], "series_max": 2, "gen_ai": true } }]));
        observed(&archive, &["a", "b", "a", "c"]);
        // A call that has reported nothing is none of a language model, as far as anybody knows.
        hand_over(&archive.record("GET https://one.example/", "200"));
        let families = archive.metrics();
        let samples = |name: &str| -> Vec<(String, u64, f64)> {
            let family = families.iter().find(|family| family.name == name).unwrap();
            let told = |sample: &Sample| {
                let SampleValue::Histogram { counts, sum, .. } = &sample.value else { panic!("a number") };
                let values: Vec<&str> = sample.labels.iter().map(|(_, value)| value.as_str()).collect();
                (values.join(","), counts.iter().sum(), *sum)
            };
            family.samples.iter().map(told).collect()
        };
        let tokens = samples(TOKENS[0]);
        let a = "chat,openai,a,a-1,one.example,";
        assert_eq!(tokens[0], (format!("{a},input"), 2, 22.0));
        assert_eq!(tokens[1], (format!("{a},output"), 2, 60.0));
        assert_eq!((tokens.len(), &*tokens[5].0), (6, "true,output"));
        for name in [DURATION[0], FIRST_CHUNK[0]] {
            let counts: Vec<u64> = samples(name).into_iter().map(|(_, count, _)| count).collect();
            assert_eq!(counts, [2, 1, 1], "{name}");
        }
        assert!(!format!("{families:?}").contains("secret"));
    }

    #[test]
    fn names_are_those_of_the_conventions_over_otlp() {
        let archive = Archive::with(&json!([{ "metrics": { "gen_ai": true, "export": "kept" } }]));
        archive.diagnoses.tick(Tick { now: Timestamp::from_secs(100), is_last: false });
        observed(&archive, &["a"]);
        archive.diagnoses.tick(Tick { now: Timestamp::from_secs(200), is_last: true });
        let told = archive.put();
        let has = |entry: &[u8], text: &str| entry.windows(text.len()).any(|part| part == text.as_bytes());
        for [_, name, unit] in [TOKENS, DURATION, FIRST_CHUNK] {
            let entry = told.iter().find(|entry| has(entry, name)).unwrap();
            assert!(entry[0] == otlp::METRIC && has(entry, unit), "{name}");
            for [_, attribute] in ATTRIBUTES {
                let is_there = attribute != "error.type" && (name == TOKENS[1] || attribute != TOKEN_TYPE[1]);
                assert_eq!(has(entry, attribute), is_there, "{name}: {attribute}");
            }
            assert!(!has(entry, "gen_ai_") && !has(entry, "secret"), "{name}");
        }
    }
}
