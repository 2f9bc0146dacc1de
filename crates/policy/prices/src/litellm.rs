//! Imports `LiteLLM`'s `model_prices_and_context_window.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

use crate::entry::{self, Entry};
use crate::model::{ModelPrices, PriceError, PriceSet, Rate, picodollars};
use crate::table::PriceTable;

pub use crate::entry::EntryError;

/// Name of the entry that describes the format.
const SAMPLE: &str = "sample_spec";

/// Number of refused prices that a report names.
const REFUSED_SHOWN: usize = 10;

/// Members with a price for a token, the longest first among those that begin alike.
const RATES: [(&str, Rate); 12] = [
    ("cache_creation_input_token_cost_above_12hr", Rate::CacheWrite12h),
    ("cache_creation_input_token_cost_above_1hr", Rate::CacheWrite1h),
    ("cache_creation_input_token_cost", Rate::CacheWrite),
    ("cache_read_input_token_cost", Rate::CacheRead),
    ("input_cost_per_token_cache_hit", Rate::CacheRead),
    ("input_cost_per_token", Rate::Input),
    ("input_cost_per_audio_token", Rate::InputAudio),
    ("input_cost_per_image_token", Rate::InputImage),
    ("output_cost_per_token", Rate::Output),
    ("output_cost_per_reasoning_token", Rate::Reasoning),
    ("output_cost_per_audio_token", Rate::OutputAudio),
    ("output_cost_per_image_token", Rate::OutputImage),
];

/// An imported table, and what was lost.
#[derive(Debug)]
pub struct Import {
    /// The prices.
    pub table: PriceTable,
    /// Number of prices in it.
    pub prices: u64,
    /// Number of prices that were no whole pico-dollar and were rounded up.
    pub rounded: u64,
    /// Number of models without a price for a token.
    pub without_prices: u64,
    /// Prices of other things than tokens, and how often they occur.
    pub ignored: BTreeMap<String, u64>,
    /// Prices that could not be read: model, member and reason.
    pub refused: Vec<(String, String, PriceError)>,
}

/// Imports a table. `source` names it for people; `date` is that of today, `YYYY-MM-DD`.
pub fn import(json: &[u8], source: &str, date: &str) -> Result<Import, EntryError> {
    let sha256 = HEXLOWER.encode(digest(&SHA256, json).as_ref());
    let table = PriceTable::new(source.to_owned(), date.to_owned(), sha256, BTreeMap::new());
    let mut import = Import {
        table,
        prices: 0,
        rounded: 0,
        without_prices: 0,
        ignored: BTreeMap::new(),
        refused: Vec::new(),
    };
    for entry in entry::read(json)? {
        if entry.name != SAMPLE {
            import.add(entry);
        }
    }
    Ok(import)
}

/// A price for a token, by the name of its member.
#[derive(Debug, PartialEq, Eq)]
struct PriceName<'a> {
    rate: Rate,
    above: u64,
    tier: &'a str,
}

impl<'a> PriceName<'a> {
    /// Reads a name such as `input_cost_per_token_above_272k_tokens_priority`.
    fn read(name: &'a str) -> Option<Self> {
        let (rest, rate) =
            RATES.into_iter().find_map(|(prefix, rate)| Some((name.strip_prefix(prefix)?, rate)))?;
        let (above, rest) = match rest.strip_prefix("_above_") {
            Some(step) => {
                let (thousands, rest) = step.split_once("k_tokens")?;
                (thousands.parse::<u64>().ok()?.checked_mul(1_000)?, rest)
            }
            None => (0, rest),
        };
        let tier = match rest {
            "" => "",
            rest => rest.strip_prefix('_')?,
        };
        let is_word = tier.bytes().all(|byte| byte.is_ascii_lowercase());
        is_word.then_some(Self { rate, above, tier })
    }
}

impl Import {
    fn add(&mut self, entry: Entry) {
        let mut model = ModelPrices { provider: entry.provider, ..ModelPrices::default() };
        let mut sets: BTreeMap<(String, u64), BTreeMap<Rate, u64>> = BTreeMap::new();
        for (name, number) in entry.numbers {
            match (name.as_str(), PriceName::read(&name)) {
                ("max_input_tokens", _) => model.input_max = number.parse().ok(),
                ("max_output_tokens", _) => model.output_max = number.parse().ok(),
                (_, Some(PriceName { rate, above, tier })) => match picodollars(&number) {
                    Ok(price) => {
                        self.prices += 1;
                        self.rounded += u64::from(price.is_rounded);
                        sets.entry((tier.to_owned(), above)).or_default().insert(rate, price.units);
                    }
                    Err(error) => self.refused.push((entry.name.clone(), name, error)),
                },
                (other, None) if other.contains("cost") => *self.ignored.entry(name).or_default() += 1,
                _ => {}
            }
        }
        if sets.is_empty() {
            self.without_prices += 1;
            return;
        }
        let sets = sets.into_iter().map(|((tier, above), picodollars)| PriceSet { tier, above, picodollars });
        model.prices = sets.collect();
        self.table.models.insert(entry.name, model);
    }

    /// The report for people: what was imported, and what was not.
    pub fn report(&self) -> String {
        let mut text = format!(
            "{} models with {} prices, dated {}\nSHA-256 of the source: {}\n",
            self.table.models.len(),
            self.prices,
            self.table.date,
            self.table.sha256
        );
        for (count, meaning) in [
            (self.rounded, "prices were no whole pico-dollar, and were rounded up"),
            (self.without_prices, "models have no price for a token, and were left out"),
            (self.ignored.values().sum(), "prices of other things than tokens were left out"),
            (self.refused.len() as u64, "prices could not be read"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{count} {meaning}");
            }
        }
        for (model, member, error) in self.refused.iter().take(REFUSED_SHOWN) {
            let _ = writeln!(text, "  {model}: {member}: {error}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use egret_json::decimal::DecimalError;
    use egret_usage::UsageRecord;

    use super::*;

    const SOURCE: &str = r#"{
        "sample_spec": { "input_cost_per_token": 0.0, "litellm_provider": "one of many" },
        "m-1": {
            "litellm_provider": "openai", "mode": "chat", "max_input_tokens": 1000000, "max_output_tokens": 128000,
            "input_cost_per_token": 5e-06, "output_cost_per_token": 3e-05,
            "cache_read_input_token_cost": 5e-07, "cache_creation_input_token_cost_above_1hr": 1e-05,
            "input_cost_per_token_above_272k_tokens": 1e-05, "input_cost_per_token_flex": 2.5000000000000003e-06,
            "output_cost_per_token_flex": 1.5e-05, "input_cost_per_token_above_272k_tokens_batches": 5e-06,
            "search_context_cost_per_query": { "search_context_size_low": 0.01, "input_cost_per_token": 7 },
            "output_cost_per_second": 0.1, "supports": ["text", 5], "cost_note": "none"
        },
        "image": { "output_cost_per_image": 0.04 },
        "odd": { "input_cost_per_token": -1 }
    }"#;

    fn imported() -> Import {
        import(SOURCE.as_bytes(), "a source", "2026-11-28").unwrap()
    }

    #[test]
    fn prices_for_tokens_are_imported_and_others_counted() {
        let import = imported();
        assert_eq!(import.table.models.keys().collect::<Vec<_>>(), ["m-1"]);
        assert_eq!((import.prices, import.rounded, import.without_prices), (8, 1, 2));
        assert_eq!(import.ignored.values().sum::<u64>(), 2);
        assert_eq!(import.refused[0].2, PriceError::Decimal(DecimalError::Negative));
        let model = &import.table.models["m-1"];
        assert_eq!((model.provider.as_str(), model.output_max), ("openai", Some(128_000)));
        assert_eq!(model.rate(Rate::Input, "", 1), Some(5_000_000));
        assert_eq!(model.rate(Rate::Input, "", 272_001), Some(10_000_000));
        assert_eq!(model.rate(Rate::Input, "flex", 1), Some(2_500_001));
        assert_eq!(model.rate(Rate::CacheWrite1h, "", 1), Some(10_000_000));
        let usage = UsageRecord { input: 1_000, cache_read: 400, output: 10, ..UsageRecord::default() };
        assert_eq!(model.cost(&usage), Ok(3_000_000 + 200_000 + 300_000));
        let report = import.report();
        assert!(
            report.contains("1 prices were no whole pico-dollar") && report.contains("odd: "),
            "{report}"
        );
    }

    #[test]
    fn the_name_of_a_price_has_a_step_and_a_tier() {
        let read = PriceName::read;
        let name = "cache_creation_input_token_cost_above_1hr_above_200k_tokens_priority";
        let expected = PriceName { rate: Rate::CacheWrite1h, above: 200_000, tier: "priority" };
        assert_eq!(read(name), Some(expected));
        for name in ["input_cost_per_token_above_1hr", "input_cost_per_tokens", "input_cost_per_image", "x"] {
            assert_eq!(read(name), None, "{name}");
        }
    }

    #[test]
    fn a_source_that_is_no_table_is_refused() {
        for (source, error) in [("[]", EntryError::NotModels), ("{}", EntryError::NotModels)] {
            assert_eq!(import(source.as_bytes(), "", "").unwrap_err(), error);
        }
        assert!(matches!(import(b"{", "", ""), Err(EntryError::Json(_))));
    }
}
