//! Tokens of language models, counted by model and type.

use std::collections::BTreeMap;

use egret_usage::UsageRecord;

use super::custom::LabelName;
use crate::family::{Family, FamilyKind, Sample, SampleValue};

/// Name of the exported metric.
const FAMILY: &str = "egret_llm_tokens_total";

/// Name of the exported metric of money.
const COST_FAMILY: &str = "egret_llm_cost_nanodollars_total";

/// Labels that the metric has besides those of the diagnosis.
pub(super) const TOKEN_LABELS: [&str; 2] = ["model", "type"];

/// Types of tokens. The last two are parts of the first two.
const TYPES: [&str; 4] = ["input", "output", "cache_read", "reasoning"];

/// Counts of tokens.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    /// Series by the values of their labels, joined.
    series: BTreeMap<Box<str>, TokenSeries>,
    /// The series of all exchanges that have none of their own.
    overflow: Option<TokenSeries>,
}

#[derive(Debug)]
struct TokenSeries {
    labels: Vec<(LabelName, String)>,
    counts: [u64; TYPES.len()],
    /// Nano-dollars.
    cost: u64,
}

impl TokenTable {
    /// Counts the tokens that an exchange with these labels has used. Further series than `series_max` are
    /// counted together.
    pub fn count(&mut self, usage: &UsageRecord, labels: Vec<(LabelName, String)>, series_max: usize) {
        if usage.dialect.is_none() && usage.cost().is_none() {
            return;
        }
        let Self { series, overflow } = self;
        let values: Vec<&str> = labels.iter().map(|(_, value)| value.as_str()).collect();
        let key = values.join("\x1f");
        let blank = |labels| TokenSeries { labels, counts: [0; TYPES.len()], cost: 0 };
        let is_known = series.contains_key(key.as_str());
        let one = if is_known || series.len() < series_max {
            series.entry(key.into()).or_insert_with(|| blank(labels))
        } else {
            overflow.get_or_insert_with(|| blank(vec![("overflow".into(), "true".to_owned())]))
        };
        one.cost = one.cost.saturating_add(usage.cost().unwrap_or_default());
        let used = [usage.input, usage.output, usage.cache_read, usage.reasoning];
        for (count, used) in one.counts.iter_mut().zip(used) {
            *count = count.saturating_add(used);
        }
    }

    /// Returns the metric of money.
    pub fn cost_family(&self) -> Family {
        let samples = self.series.values().chain(&self.overflow).map(|series| {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 up to nine million dollars")]
            let value = SampleValue::Number(series.cost as f64);
            Sample { labels: series.labels.clone(), value }
        });
        Family {
            name: COST_FAMILY.to_owned(),
            help:
                "Cost of calls of language models in nano-dollars: by the prices of the config, else as the \
                   provider tells it. Calls without a price count nothing."
                    .to_owned(),
            kind: FamilyKind::Counter,
            samples: samples.collect(),
        }
    }

    /// Returns the metric.
    pub fn family(&self) -> Family {
        let samples = self.series.values().chain(&self.overflow).flat_map(|series| {
            TYPES.iter().zip(series.counts).map(|(kind, count)| {
                let mut labels = series.labels.clone();
                labels.push((TOKEN_LABELS[1].into(), (*kind).to_owned()));
                #[expect(clippy::cast_precision_loss, reason = "a sum of tokens is below 2^53")]
                let value = SampleValue::Number(count as f64);
                Sample { labels, value }
            })
        });
        Family {
            name: FAMILY.to_owned(),
            help: "Tokens that language models have reported. Those of types `cache_read` and `reasoning` \
                   are parts of `input` and `output`."
                .to_owned(),
            kind: FamilyKind::Counter,
            samples: samples.collect(),
        }
    }
}
