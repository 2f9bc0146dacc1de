//! The prices of a model: for tiers of service, and for inputs above a number of tokens.

use egret_items::words;
use egret_json::decimal::{self, DecimalError, Whole};
use serde::{Deserialize, Serialize};

/// Maximum price of a token, in pico-dollars: 1,000 US dollars.
pub const PICODOLLARS_MAX: u64 = 1_000_000_000_000_000;

/// Decimal places of a pico-dollar.
const PLACES: i32 = 12;

words! {
    /// A kind of tokens that may have a price of its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Rate: name {
        /// Input.
        Input => "input",
        /// Input read from a cache.
        CacheRead => "input read from the cache",
        /// Input written to a cache for the shortest time.
        CacheWrite => "input written to the cache",
        /// Input written to a cache for an hour.
        #[serde(rename = "cache_write_1h")]
        CacheWrite1h => "input written for 1 h",
        /// Input written to a cache for twelve hours.
        #[serde(rename = "cache_write_12h")]
        CacheWrite12h => "input written for 12 h",
        /// Input of sound.
        InputAudio => "input of sound",
        /// Input of images.
        InputImage => "input of images",
        /// Output.
        Output => "output",
        /// Output that the client does not see.
        Reasoning => "reasoning",
        /// Output of sound.
        OutputAudio => "output of sound",
        /// Output of images.
        OutputImage => "output of images",
    }
}

impl Rate {
    /// The rate that applies where this one has no price; `None` for input and output.
    pub fn fallback(self) -> Option<Self> {
        match self {
            Self::Input | Self::Output => None,
            Self::CacheRead | Self::CacheWrite | Self::InputAudio | Self::InputImage => Some(Self::Input),
            Self::CacheWrite1h => Some(Self::CacheWrite),
            Self::CacheWrite12h => Some(Self::CacheWrite1h),
            Self::Reasoning | Self::OutputAudio | Self::OutputImage => Some(Self::Output),
        }
    }

    /// Returns `true` for tokens of output.
    pub fn is_output(self) -> bool {
        matches!(self, Self::Output | Self::Reasoning | Self::OutputAudio | Self::OutputImage)
    }
}

/// The reason why a text is no price of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// The text is no number, or is below zero.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// The price is above [`PICODOLLARS_MAX`].
    #[error("more than 1,000 US dollars for a token")]
    TooLarge,
}

/// Reads a price as JSON writes it in US dollars, such as `2.5e-06`, in pico-dollars.
pub(crate) fn picodollars(dollars: &str) -> Result<Whole, PriceError> {
    let price = decimal::whole(dollars.as_bytes(), PLACES)?;
    if price.units > PICODOLLARS_MAX { Err(PriceError::TooLarge) } else { Ok(price) }
}

/// Prices that apply together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceSet {
    /// Tier of service, such as `priority`; empty for the standard one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// The prices apply if the input has more tokens than this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above: u64,
    /// Pico-dollars for a token.
    pub picodollars: std::collections::BTreeMap<Rate, u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The prices of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrices {
    /// Name of the provider, as the source has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// Maximum number of input tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_max: Option<u64>,
    /// Maximum number of output tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_max: Option<u64>,
    /// Prices, ordered by tier and by number of tokens.
    pub prices: Vec<PriceSet>,
}

impl ModelPrices {
    /// The price of a token, in pico-dollars, in a tier and for a call with this number of input tokens. A
    /// rate that an upper step does not name has the price of the step below; a rate without any price has
    /// that of its [fallback](Rate::fallback). `None` if there is no price.
    pub fn rate(&self, rate: Rate, tier: &str, input: u64) -> Option<u64> {
        let steps =
            self.prices.iter().filter(|set| set.tier == tier && (set.above == 0 || set.above < input));
        let priced = steps.filter_map(|set| Some((set.above, *set.picodollars.get(&rate)?)));
        let price = priced.max_by_key(|(above, _)| *above).map(|(_, price)| price);
        price.or_else(|| self.rate(rate.fallback()?, tier, input))
    }

    /// The dearest price of a token of input and of output, in pico-dollars, over all tiers and steps.
    pub fn dearest(&self) -> [u64; 2] {
        let all = || self.prices.iter().flat_map(|set| &set.picodollars);
        let dearest = |of_output: bool| {
            let prices = all().filter(|(rate, _)| rate.is_output() == of_output).map(|(_, price)| *price);
            prices.max().unwrap_or_default()
        };
        [dearest(false), dearest(true)]
    }

    /// The tiers of service that have prices.
    pub fn has_tier(&self, tier: &str) -> bool {
        self.prices.iter().any(|set| set.tier == tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tier: &str, above: u64, prices: &[(Rate, u64)]) -> PriceSet {
        PriceSet { tier: tier.into(), above, picodollars: prices.iter().copied().collect() }
    }

    #[test]
    fn a_price_has_a_maximum() {
        assert_eq!(picodollars("1.3200000000000002E-7"), Ok(Whole { units: 132_001, is_rounded: true }));
        assert_eq!(picodollars("1000").map(|price| price.units), Ok(PICODOLLARS_MAX));
        assert_eq!(picodollars("1000.000000000001"), Err(PriceError::TooLarge));
        assert_eq!(picodollars("-1e-6"), Err(PriceError::Decimal(DecimalError::Negative)));
    }

    #[test]
    fn a_step_applies_above_its_number_of_tokens() {
        let base = set("", 0, &[(Rate::Input, 10), (Rate::CacheRead, 1), (Rate::Output, 30)]);
        let step = set("", 100, &[(Rate::Input, 20), (Rate::Output, 45)]);
        let model = ModelPrices { prices: vec![base, step], ..ModelPrices::default() };
        assert_eq!(
            (model.rate(Rate::Input, "", 100), model.rate(Rate::Input, "", 101)),
            (Some(10), Some(20))
        );
        assert_eq!(model.rate(Rate::CacheRead, "", 101), Some(1), "the step below has a price");
        assert_eq!(model.rate(Rate::CacheWrite12h, "", 101), Some(20), "that of input");
        assert_eq!(
            (model.rate(Rate::Reasoning, "", 1), model.rate(Rate::Input, "flex", 1)),
            (Some(30), None)
        );
    }
}
