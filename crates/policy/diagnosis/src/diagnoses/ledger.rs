//! `ledger`: the cost of each call, as one line of JSON and in the sums of the control port.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use data_encoding::HEXLOWER;
use egret_clock::rfc3339;
use egret_har::obfuscate::MessageKind;
use egret_har::sink::{Content, Exported, Sink};
use egret_har::{Key, Mask, Recording, RecordingConfig};
use egret_json::printable::printable_json;
use egret_match::expression::{EXPRESSION_BODY_BYTES_MAX, Expression};
use egret_usage::{UsageRecord, UsageSource};
use parking_lot::Mutex;
use serde::Serialize;

use super::metrics::LabelConfig;
use super::metrics::custom::{self, Label};
use crate::condition::CONDITION_BODY_BYTES_MAX;
use crate::context::CompileContext;
use crate::diagnosis::Diagnosis;
use crate::family::{Family, FamilyKind, Sample, SampleValue};
use crate::finished::{Finished, exportable};
use crate::spend::Spent;

/// Maximum of `series_max`. A name takes up to 4 KiB.
const SERIES_MAX: u32 = 1_000;

/// Name of the metric of calls without a cost by mistake.
const FAILURES: &str = "egret_ledger_failures_total";

egret_config::keys! {
    /// Writes the cost of each call, and sums costs for `/api/v1/spend`. A text alone is its `export`.
    #[derive(Eq)]
    #[serde(rename = "short form: export")]
    #[schemars(rename = "LedgerConfig", transform = egret_config::or_text)]
    pub struct LedgerConfig {
        /// Name of the exporter of the lines, under `exporters`. Its type must be `lines`, `stdout`, or `s3`
        /// with `format: lines`. Default: costs are only summed.
        pub export: Option<String>,
        /// Cost of a call in nano-dollars, as a CEL expression over the exchange, for APIs that are no
        /// language models: `"5000000"` is half a cent. Default: `usage.cost`. JSON bodies that it reads have
        /// at most 64 KiB, as sent.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub cost: Option<String>,
        /// Labels of a call, by name, with values from the exchange: at most eight. A value of more than 64
        /// bytes, or one that looks like a secret, is replaced by its pseudonym.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, LabelConfig>,
        /// Names of labels whose values are replaced like secrets. Case, `-` and `_` do not matter. `iban`,
        /// `phone`, `ip`, `ipv4`, `ipv6` and `ssn` also replace all values that look like one. At most 256.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub mask: Vec<String>,
        /// Maximum number of consumers with sums of their own, and of models, providers, flows and values of
        /// each label, up to 1000. Further ones are summed together.
        #[schemars(range(min = 1, max = 1_000))]
        pub series_max: u32 = 100,
    }
}

/// Writes the cost of each call, and sums costs.
#[derive(Debug)]
pub struct Ledger {
    config: LedgerConfig,
    /// The name within the flow: `ledger`, `ledger-2`.
    name: String,
    cost: Option<Expression<u64>>,
    labels: Vec<Label>,
    sink: Option<Arc<dyn Sink>>,
    /// `None` while the config is only checked.
    mask: Option<Box<(Mask, Arc<Key>)>>,
    /// Number of calls for which `cost` had no value.
    failures: Arc<AtomicU64>,
    /// Only the thread of diagnoses uses it, so the lock is never contended.
    last: Mutex<LastCall>,
}

/// The call that was seen last.
#[derive(Debug, Default)]
struct LastCall {
    line: Vec<u8>,
    spent: Option<Spent>,
}

/// A line.
#[derive(Debug, Serialize)]
struct LedgerLine<'a> {
    time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    request_id: String,
    flow: &'a str,
    provider: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    consumer: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    account: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<String, String>>,
    #[serde(flatten)]
    tokens: Option<TokenCounts>,
    cost_nanodollars: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    status: u16,
    attempts: u32,
}

#[derive(Debug, Serialize)]
struct TokenCounts {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
    #[serde(rename = "cached_tokens")]
    cached: u64,
    #[serde(rename = "reasoning_tokens")]
    reasoning: u64,
}

impl TokenCounts {
    fn of(usage: &UsageRecord) -> Option<Self> {
        usage.dialect.map(|_| Self {
            input: usage.input,
            output: usage.output,
            cached: usage.cache_read,
            reasoning: usage.reasoning,
        })
    }
}

impl Diagnosis for Ledger {
    type Config = LedgerConfig;

    fn exporter(config: &LedgerConfig) -> Option<&str> {
        config.export.as_deref()
    }

    fn compile(config: &LedgerConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let problems = context.problems.len();
        if config.series_max == 0 || config.series_max > SERIES_MAX {
            context.problem("series_max", format!("must be from 1 to {SERIES_MAX}"));
        }
        let sink = config.export.as_ref().map(|name| context.sink("export", name, Content::Lines));
        let cost = config.cost.as_ref().map(|source| custom::expression(source, "cost", context));
        let labels = custom::labels(&config.labels, "labels", context);
        let recording =
            RecordingConfig { obfuscate: false, mask: config.mask.clone(), ..RecordingConfig::default() };
        let recording = Recording::compile(&recording).map_err(|errors| {
            for error in errors {
                context.problem(&error.path, error.message);
            }
        });
        if context.problems.len() > problems {
            return None;
        }
        let recording = recording.ok()?.with_secret_names(context.secret_names);
        let key = context.exports.key.as_ref();
        Some(Self {
            config: config.clone(),
            name: context.states.identity().to_string(),
            cost: cost.flatten(),
            labels,
            sink: sink.flatten(),
            mask: key.map(|key| Box::new((Mask::new((**key).clone(), &recording), Arc::clone(key)))),
            failures: context.states.keep(|_| true, AtomicU64::default),
            last: Mutex::default(),
        })
    }

    fn describe(&self) -> String {
        match &self.config.export {
            Some(export) => format!("writes the cost of each call to {export}, and sums costs"),
            None => "sums the costs of calls".to_owned(),
        }
    }

    fn wants_bodies(&self) -> bool {
        let is_read = |cost: &Expression<u64>| cost.needs_request_body() || cost.needs_response_body();
        self.cost.as_ref().is_some_and(is_read) || self.labels.iter().any(|label| label.source.reads_bodies())
    }

    fn wants_usage(&self) -> bool {
        self.cost.as_ref().is_none_or(Expression::needs_usage)
            || self.labels.iter().any(|label| label.source.reads_usage())
    }

    fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        if egret_message::is_json(media_type) { CONDITION_BODY_BYTES_MAX } else { 0 }
    }

    fn see(&self, exchange: &Finished<'_>) {
        let Some((mask, key)) = self.mask.as_deref() else { return };
        let key: &Key = key;
        // A response of Egret itself, or from a cache, was not bought: not even after a revalidation.
        let facts = exchange.facts();
        if facts.attempts == 0 || facts.is_generated || facts.is_stored {
            return;
        }
        let Some((cost, labels)) = self.read(exchange, mask, key) else { return };
        let usage = exchange.record().usage.as_deref();
        let model = usage.and_then(|usage| usage.model.as_deref()).unwrap_or_default();
        let spent = Spent {
            cost,
            consumer: mask.shown(&exchange.exportable_consumer(Some(key))),
            model: mask.shown(&exportable(model.as_bytes(), Some(key))),
            provider: exchange.record().provider().to_owned(),
            labels,
            series_max: self.config.series_max as usize,
        };
        let mut last = self.last.lock();
        if let Some(sink) = &self.sink {
            let line = &mut last.line;
            line.clear();
            self.write(exchange, &spent, mask.shown(&exchange.exportable_request_id(Some(key))), line);
            sink.put(Exported { entry: line, client: None, service_token: "", environment: "" });
        }
        last.spent = Some(spent);
    }

    fn take_spent(&self) -> Option<Spent> {
        self.last.lock().spent.take()
    }

    fn metrics(&self) -> Vec<Family> {
        if self.cost.is_none() {
            return Vec::new();
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of exchanges is below 2^53")]
        let value = SampleValue::Number(self.failures.load(Relaxed) as f64);
        vec![Family {
            name: FAILURES.to_owned(),
            help: "Calls that a ledger lacks, because its `cost` had no value.".to_owned(),
            kind: FamilyKind::Counter,
            samples: vec![Sample { labels: vec![("diagnosis".into(), self.name.clone())], value }],
        }]
    }
}

impl Ledger {
    /// Returns the cost of a call and its labels, as they may be shown. Returns `None` if it has no cost.
    fn read(
        &self,
        exchange: &Finished<'_>,
        mask: &Mask,
        key: &Key,
    ) -> Option<(u64, BTreeMap<String, String>)> {
        let usage = exchange.record().usage.as_deref();
        let reported = usage.and_then(UsageRecord::cost);
        if self.cost.is_none() {
            reported?;
        }
        let bodies =
            if self.wants_bodies() { exchange.whole_bodies(EXPRESSION_BODY_BYTES_MAX) } else { [None, None] };
        exchange.with_inputs(&bodies, |inputs| {
            let cost = match &self.cost {
                None => reported?,
                Some(cost) if cost.needs_response() && exchange.status() == 0 => return None,
                Some(cost) => cost
                    .evaluate(inputs)
                    .inspect_err(|_| {
                        self.failures.fetch_add(1, Relaxed);
                    })
                    .ok()?,
            };
            let value = |label: &Label| {
                let text = label.text(exchange, inputs).unwrap_or_default();
                let text = exportable(text.as_bytes(), Some(key));
                mask.field(MessageKind::Request, &label.name, text.as_bytes())
            };
            let labels = self.labels.iter().map(|label| (label.name.clone(), value(label)));
            Some((cost, labels.filter(|(_, value)| !value.is_empty()).collect()))
        })
    }

    /// Appends the line of a call.
    fn write(&self, exchange: &Finished<'_>, spent: &Spent, request_id: String, out: &mut Vec<u8>) {
        let (record, facts) = (exchange.record(), exchange.facts());
        let usage = record.usage.as_deref();
        let mut time = Vec::new();
        rfc3339::write_unix_us(facts.started.as_micros(), &mut time);
        let priced_by = usage.and_then(|usage| usage.priced_by).filter(|_| self.cost.is_none());
        let source = usage.map(|usage| usage.source).filter(|source| *source != UsageSource::None);
        let line = LedgerLine {
            time: String::from_utf8(time).unwrap_or_default(),
            request_id,
            flow: exchange.flow(),
            provider: &spent.provider,
            consumer: &spent.consumer,
            account: record.account(),
            model: &spent.model,
            labels: Some(&spent.labels).filter(|labels| !labels.is_empty()),
            tokens: usage.and_then(TokenCounts::of),
            cost_nanodollars: spent.cost,
            price_table: priced_by.map(|digest| HEXLOWER.encode(&digest)),
            source: source.map(UsageSource::word),
            status: exchange.status(),
            attempts: facts.attempts,
        };
        // Texts and numbers can always be written.
        let json = serde_json::to_string(&line).unwrap_or_default();
        out.extend_from_slice(printable_json(&json).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use egret_usage::UsageDialect;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{Archive, hand_over};
    use crate::observers::Record;
    use crate::spend::{SpendBy, SpendRange, SpendSum, SpendSums};

    const GET: &str = "GET https://one.example/users/7\nx-egret-consumer: web\nx-team: search";

    /// A call that has cost so many nano-dollars by the prices of the config.
    fn priced(archive: &Archive, cost: u64) -> Record {
        let mut record = archive.record(GET, "200");
        record.facts.attempts = 1;
        record.set_account("first");
        record.set_request_id(b"id-7");
        record.usage = Some(Box::new(UsageRecord {
            input: 11,
            cache_read: 4,
            output: 30,
            reasoning: 8,
            priced_nano: Some(cost),
            priced_by: Some([0xab; 32]),
            model: Some("m-1".into()),
            dialect: Some(UsageDialect::Chat),
            source: UsageSource::Reported,
            ..UsageRecord::default()
        }));
        record
    }

    fn lines(archive: &Archive) -> Vec<Value> {
        archive.entries().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn sums(archive: &Archive, by: &SpendBy) -> SpendSums {
        let now = archive.record(GET, "200").facts.ended();
        archive.diagnoses.spend().sums(now, by, SpendRange::Day).unwrap()
    }

    #[test]
    fn a_line_has_the_cost_of_a_call_and_its_origin() {
        let labels = json!({ "team": { "request_header": "x-team" }, "none": { "header": "x-none" } });
        let archive = Archive::with(&json!([{ "ledger": { "export": "kept", "labels": labels } }]));
        let record = priced(&archive, 1_234);
        assert!(record.wants_usage() && !record.wants_bodies());
        hand_over(&record);
        let expected = json!({
            "time": "1970-01-12T13:46:40.000000Z", "request_id": "id-7", "flow": "f", "provider": "one", "consumer": "web",
            "account": "first", "model": "m-1", "labels": { "team": "search" }, "input_tokens": 11, "output_tokens": 30,
            "cached_tokens": 4, "reasoning_tokens": 8, "cost_nanodollars": 1_234, "price_table": "ab".repeat(32),
            "source": "reported", "status": 200, "attempts": 1,
        });
        assert_eq!(lines(&archive), [expected]);
    }

    #[test]
    fn calls_without_a_cost_have_no_line() {
        let archive = Archive::with(&json!([{ "ledger": { "export": "kept" } }]));
        let mut unpriced = priced(&archive, 1);
        unpriced.usage.as_mut().unwrap().priced_nano = None;
        let mut unread = priced(&archive, 1);
        unread.usage = None;
        let mut stored = priced(&archive, 1);
        stored.facts.attempts = 0;
        let mut generated = priced(&archive, 1);
        generated.facts.is_generated = true;
        let mut revalidated = priced(&archive, 1);
        revalidated.facts.is_stored = true;
        for record in [unpriced, unread, stored, generated, revalidated] {
            hand_over(&record);
        }
        assert_eq!((lines(&archive).len(), archive.counts()[0].recorded), (0, 5));
        assert_eq!(sums(&archive, &SpendBy::Flow), SpendSums::default());
    }

    #[test]
    fn an_expression_is_the_cost_of_other_apis() {
        let cost = "int(response.headers['x-units']) * 5000000";
        let archive = Archive::with(&json!([{ "ledger": { "export": "kept", "cost": cost } }]));
        for response in ["200\nx-units: 3", "200", "", "404\nx-units: 0"] {
            let mut record = archive.record(GET, response);
            assert!(!record.wants_usage());
            record.facts.attempts = 1;
            hand_over(&record);
        }
        let lines = lines(&archive);
        let costs: Vec<_> = lines.iter().map(|line| (&line["status"], &line["cost_nanodollars"])).collect();
        assert_eq!(costs, [(&json!(200), &json!(15_000_000)), (&json!(404), &json!(0))]);
        assert!(lines[0]["source"].is_null() && lines[0]["input_tokens"].is_null());
        let [family] = &archive.metrics()[..] else { panic!("one") };
        assert_eq!((&*family.name, &family.samples[0].value), (FAILURES, &SampleValue::Number(1.0)));
    }

    #[test]
    fn secrets_and_masked_values_are_hidden_from_lines_and_sums() {
        let labels = json!({
            "team": { "request_header": "x-team" }, "phone": { "request_header": "x-phone" }, "key": { "request_header": "x-key" },
        });
        let archive = Archive::with(
            &json!([{ "ledger": { "export": "kept", "labels": labels, "mask": ["phone", "team"] } }]),
        );
        let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        let lines = format!(
            "GET https://one.example/\nx-egret-consumer: {secret}\nx-team: search\nx-phone: +4930901820\nx-key: {secret}"
        );
        let mut record = archive.record(&lines, "200");
        record.facts.attempts = 1;
        record.set_request_id(secret.as_bytes());
        record.usage = Some(Box::new(UsageRecord {
            cost_nano: Some(5),
            model: Some(secret.as_str().into()),
            ..UsageRecord::default()
        }));
        hand_over(&record);
        let told = format!("{:?} {:?}", archive.entries(), sums(&archive, &SpendBy::Consumer));
        for hidden in ["ghp_", "4930901820", "search"] {
            assert!(!told.contains(hidden), "{hidden} in {told}");
        }
        assert!(told.matches("egr_").count() >= 6, "{told}");
    }

    #[test]
    fn a_call_is_summed_once_and_the_sums_outlive_a_reload() {
        let diagnoses = json!([{ "ledger": { "export": "kept" } }, { "ledger": {} }, { "metrics": {} }]);
        let mut archive = Archive::with(&diagnoses);
        hand_over(&priced(&archive, 7));
        archive.reload(&json!([{ "ledger": {} }]));
        hand_over(&priced(&archive, 30));
        assert_eq!(lines(&archive).len(), 1);
        let sum = SpendSum { calls: 2, cost_nanodollars: 37 };
        for (by, name) in [(SpendBy::Consumer, "web"), (SpendBy::Model, "m-1"), (SpendBy::Provider, "one")] {
            let sums = sums(&archive, &by);
            assert_eq!((sums.rows, sums.total), (vec![(name.to_owned(), sum)], sum));
        }
    }

    #[test]
    fn labels_of_all_ledgers_of_a_call_are_summed() {
        let by = |label: &str| json!({ "ledger": { "labels": { label: { "request_header": "x-team" } } } });
        let archive = Archive::with(&json!([by("team"), by("unit")]));
        hand_over(&priced(&archive, 7));
        for label in ["team", "unit"] {
            let sums = sums(&archive, &SpendBy::Label(label.to_owned()));
            let sum = SpendSum { calls: 1, cost_nanodollars: 7 };
            assert_eq!((sums.rows, sums.total), (vec![("search".to_owned(), sum)], sum));
        }
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        let problems = Archive::problems(&json!([{ "ledger": {
            "export": "nobody", "cost": "'text'", "labels": { "Team": { "header": "x" } }, "mask": ["*"], "series_max": 0,
        } }]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = ["series_max", "export", "cost", "labels.Team", "mask[0]"]
            .map(|key| format!("flows[0].diagnoses[0].ledger.{key}"));
        assert_eq!(places, expected, "{problems:#?}");
    }
}
