//! The prices in force: those of the file, and those of the config that win over them.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use data_encoding::HEXLOWER_PERMISSIVE;
use egret_config::Problem;
use egret_usage::UsageRecord;

use crate::config::{PriceOverride, PricesConfig, Unpriced};
use crate::cost::CostError;
use crate::model::{ModelPrices, PriceSet, Rate};
use crate::table::PriceTable;

/// The prices in force.
#[derive(Debug, Default)]
pub struct Prices {
    models: BTreeMap<String, KnownModel>,
    unpriced: Unpriced,
}

/// The prices of a model, and their origin.
#[derive(Debug)]
struct KnownModel {
    prices: ModelPrices,
    /// The digest of the table or of the overrides that the prices are from. `None` if the table has none.
    digest: Option<PricesDigest>,
}

/// A digest by SHA-256.
type PricesDigest = [u8; SHA256_OUTPUT_LEN];

/// The reason why a call has no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpricedCall {
    /// The config has no prices.
    #[error("the config has no `prices`")]
    NoPrices,
    /// The response reports no tokens. A model's name alone is no usage.
    #[error("the response reports no tokens")]
    NoTokens,
    /// The response does not name its model.
    #[error("the response names no model")]
    NoModel,
    /// There is no price for the model.
    #[error("there is no price for the model `{0}`: import newer prices, or set it in `prices.overrides`")]
    UnknownModel(String),
    /// The prices of the model do not have what was used.
    #[error("the model `{0}`: {1}")]
    Model(String, CostError),
}

impl Prices {
    /// Reads the prices of a config. Returns its mistakes if there are any.
    pub fn compile(config: &PricesConfig) -> Result<Self, Vec<Problem>> {
        let mut prices = Self { unpriced: config.unpriced, ..Self::default() };
        if let Some(file) = &config.file {
            let table = PriceTable::read(file.text().as_bytes());
            let table = table.map_err(|error| vec![Problem::new("prices.file", error.to_string())])?;
            let digest = read_digest(&table.sha256);
            let models = table.models.into_iter();
            prices.models = models.map(|(name, prices)| (name, KnownModel { prices, digest })).collect();
        }
        let digest = digest_of(&config.overrides);
        for (name, own) in &config.overrides {
            let model = own.over(prices.models.get(name).map(|known| &known.prices));
            prices.models.insert(name.clone(), KnownModel { prices: model, digest });
        }
        Ok(prices)
    }

    /// Treatment of calls of models without a price.
    pub fn unpriced(&self) -> Unpriced {
        self.unpriced
    }

    /// Returns the prices of a model, as a provider names it. `family` is the word for the provider in the
    /// source of prices, such as `groq`: names of its models may begin with it there. A name with a date at
    /// its end may have the prices of the name without.
    pub fn of(&self, model: &str, family: Option<&str>) -> Option<&ModelPrices> {
        self.find(model, family).map(|known| &known.prices)
    }

    fn find(&self, model: &str, family: Option<&str>) -> Option<&KnownModel> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let find = |name: &str| {
            let of_family = family.and_then(|family| self.models.get(&format!("{family}/{name}")));
            of_family.or_else(|| self.models.get(name))
        };
        find(model).or_else(|| find(without_date(model)?))
    }

    /// Returns the cost of a call in nano-dollars, rounded up.
    pub fn cost(&self, usage: &UsageRecord, family: Option<&str>) -> Result<u64, UnpricedCall> {
        self.cost_and_digest(usage, family).map(|(cost, _)| cost)
    }

    /// Adds the cost of a call to its usage, if the call has a price, and the digest of the prices.
    pub fn price(&self, usage: &mut UsageRecord, family: Option<&str>) {
        let priced = self.cost_and_digest(usage, family).ok();
        usage.priced_nano = priced.map(|(cost, _)| cost);
        usage.priced_by = priced.and_then(|(_, digest)| digest);
    }

    fn cost_and_digest(
        &self,
        usage: &UsageRecord,
        family: Option<&str>,
    ) -> Result<(u64, Option<PricesDigest>), UnpricedCall> {
        if self.models.is_empty() {
            return Err(UnpricedCall::NoPrices);
        }
        usage.dialect.ok_or(UnpricedCall::NoTokens)?;
        let model = usage.model.as_deref().ok_or(UnpricedCall::NoModel)?;
        let known = self.find(model, family).ok_or_else(|| UnpricedCall::UnknownModel(model.to_owned()))?;
        let cost = known.prices.cost(usage);
        let cost = cost.map_err(|error| UnpricedCall::Model(model.to_owned(), error))?;
        Ok((cost, known.digest))
    }
}

impl PriceOverride {
    /// Returns these prices with what else is known of the model.
    fn over(self, known: Option<&ModelPrices>) -> ModelPrices {
        let rates = [
            (Rate::Input, Some(self.input)),
            (Rate::Output, Some(self.output)),
            (Rate::CacheRead, self.cache_read),
            (Rate::CacheWrite, self.cache_write),
        ];
        let picodollars = rates.into_iter().filter_map(|(rate, price)| Some((rate, price?.0))).collect();
        let set = PriceSet { tier: String::new(), above: 0, picodollars };
        ModelPrices { prices: vec![set], ..known.cloned().unwrap_or_default() }
    }
}

/// Reads the digest of a table.
fn read_digest(hex: &str) -> Option<PricesDigest> {
    HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()?.try_into().ok()
}

/// Returns the digest of overrides, as JSON.
fn digest_of(overrides: &BTreeMap<String, PriceOverride>) -> Option<PricesDigest> {
    let digest = digest(&SHA256, &serde_json::to_vec(overrides).ok()?);
    let bytes: &[u8] = digest.as_ref();
    bytes.try_into().ok()
}

/// Returns a name without the date at its end: `-20260115` or `-2026-01-15`.
fn without_date(model: &str) -> Option<&str> {
    let is_number =
        |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, last) = model.rsplit_once('-')?;
    if is_number(last, 8) {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-').filter(|_| is_number(last, 2))?;
    let (rest, year) = rest.rsplit_once('-').filter(|_| is_number(month, 2))?;
    is_number(year, 4).then_some(rest)
}

#[cfg(test)]
mod tests {
    use egret_usage::UsageDialect;

    use super::*;
    use crate::config::PerMillion;

    fn prices() -> Prices {
        let own = |input, output| PriceOverride {
            input: PerMillion(input),
            output: PerMillion(output),
            ..PriceOverride::default()
        };
        let overrides = [
            ("gpt-5.2".to_owned(), own(1_000_000, 8_000_000)),
            ("groq/llama".to_owned(), own(2_000_000, 2_000_000)),
            ("llama".to_owned(), own(3_000_000, 3_000_000)),
        ];
        Prices::compile(&PricesConfig { overrides: overrides.into(), ..PricesConfig::default() }).unwrap()
    }

    #[test]
    fn a_model_is_found_under_the_names_that_providers_answer() {
        let prices = prices();
        let input = |model, family| prices.of(model, family).and_then(|model| model.rate(Rate::Input, "", 1));
        for (model, family, expected) in [
            ("gpt-5.2", None, Some(1_000_000)),
            ("gpt-5.2-2026-01-15", Some("openai"), Some(1_000_000)),
            ("gpt-5.2-20260115", None, Some(1_000_000)),
            ("models/gpt-5.2", None, Some(1_000_000)),
            ("gpt-5.2-mini", None, None),
            ("gpt-5.2-2026-01", None, None),
            ("llama", Some("groq"), Some(2_000_000)),
            ("llama", None, Some(3_000_000)),
        ] {
            assert_eq!(input(model, family), expected, "{model}");
        }
    }

    #[test]
    fn a_priced_call_names_the_prices_by_their_digest() {
        let with = |input: u64| {
            let own = PriceOverride { input: PerMillion(input), ..PriceOverride::default() };
            let overrides = [("own".to_owned(), own)].into();
            Prices::compile(&PricesConfig { overrides, ..PricesConfig::default() }).unwrap()
        };
        let priced = |prices: &Prices, model: &str| {
            let (model, dialect) = (Some(model.into()), Some(UsageDialect::Chat));
            let mut usage = UsageRecord { input: 3, model, dialect, ..UsageRecord::default() };
            prices.price(&mut usage, None);
            (usage.priced_nano, usage.priced_by)
        };
        let one = with(1_000_000);
        let (cost, digest) = priced(&one, "own");
        assert!(cost == Some(3_000) && digest.is_some());
        assert_eq!(priced(&with(1_000_000), "own").1, digest);
        assert_ne!(priced(&with(2_000_000), "own").1, digest);
        assert_eq!(priced(&one, "unknown"), (None, None));
        assert_eq!(read_digest(&"Ab".repeat(32)), Some([0xab; 32]));
        assert_eq!((read_digest("ab"), read_digest("HEX")), (None, None));
    }

    #[test]
    fn a_call_without_a_price_says_why() {
        let prices = prices();
        let usage = |model: Option<&str>, tier: Option<&str>| UsageRecord {
            input: 10,
            output: 1,
            model: model.map(Into::into),
            tier: tier.map(Into::into),
            dialect: Some(UsageDialect::Chat),
            ..UsageRecord::default()
        };
        assert_eq!(prices.cost(&usage(Some("gpt-5.2"), None), None), Ok(10_000 + 8_000));
        assert_eq!(prices.cost(&usage(None, None), None), Err(UnpricedCall::NoModel));
        let unknown = prices.cost(&usage(Some("gpt-9"), None), None).unwrap_err();
        assert!(unknown.to_string().contains("`gpt-9`"), "{unknown}");
        let tier = prices.cost(&usage(Some("gpt-5.2"), Some("flex")), None).unwrap_err();
        assert!(matches!(tier, UnpricedCall::Model(_, CostError::UnknownTier)));
        let mut named = UsageRecord { model: Some("gpt-5.2".into()), ..UsageRecord::default() };
        assert_eq!(prices.cost(&named, None), Err(UnpricedCall::NoTokens));
        prices.price(&mut named, None);
        assert_eq!((named.cost(), named.priced_by), (None, None));
    }
}
