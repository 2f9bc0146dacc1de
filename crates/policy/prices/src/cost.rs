//! The cost of a call.

use crate::model::{ModelPrices, Rate};
use crate::usage::{Usage, UsageError};

/// Pico-dollars in a nano-dollar.
const PICO_PER_NANO: u128 = 1_000;

/// Tiers that providers answer for the standard one.
const STANDARD_TIERS: [&str; 5] = ["", "default", "standard", "auto", "on_demand"];

/// The reason why a call has no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The usage contradicts itself.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The tier of service has no prices.
    #[error("the tier of service has no prices")]
    UnknownTier,
    /// A kind of tokens that was used has no price.
    #[error("no price for {}", .0.name())]
    Unpriced(Rate),
    /// The cost exceeds the range of nano-dollars.
    #[error("more than 18 billion US dollars")]
    TooLarge,
}

impl ModelPrices {
    /// The cost of a call in nano-dollars, rounded up once. `tier` is the tier of service that the provider
    /// answered; empty, `default` and `standard` are the standard tier, and `batch` is `batches`.
    pub fn cost(&self, usage: &Usage, tier: &str) -> Result<u64, CostError> {
        let tier = match tier {
            tier if STANDARD_TIERS.contains(&tier) => "",
            "batch" => "batches",
            tier => tier,
        };
        if !tier.is_empty() && !self.has_tier(tier) {
            return Err(CostError::UnknownTier);
        }
        let parts = [
            (Rate::Input, usage.plain_input()?),
            (Rate::CacheRead, usage.cache_read),
            (Rate::CacheWrite, usage.cache_write),
            (Rate::CacheWrite1h, usage.cache_write_1h),
            (Rate::CacheWrite12h, usage.cache_write_12h),
            (Rate::InputAudio, usage.input_audio),
            (Rate::InputImage, usage.input_image),
            (Rate::Output, usage.plain_output()?),
            (Rate::Reasoning, usage.reasoning),
            (Rate::OutputAudio, usage.output_audio),
            (Rate::OutputImage, usage.output_image),
        ];
        let mut picodollars: u128 = 0;
        for (rate, tokens) in parts {
            if tokens > 0 {
                let price = self.rate(rate, tier, usage.input).ok_or(CostError::Unpriced(rate))?;
                // Eleven products of two 64-bit numbers may exceed 128 bits.
                let product = u128::from(price) * u128::from(tokens);
                picodollars = picodollars.checked_add(product).ok_or(CostError::TooLarge)?;
            }
        }
        u64::try_from(picodollars.div_ceil(PICO_PER_NANO)).map_err(|_| CostError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::PriceSet;

    fn model(sets: &[(&str, &[(Rate, u64)])]) -> ModelPrices {
        let sets = sets.iter().map(|(tier, prices)| PriceSet {
            tier: (*tier).to_owned(),
            above: 0,
            picodollars: prices.iter().copied().collect(),
        });
        ModelPrices { prices: sets.collect(), ..ModelPrices::default() }
    }

    #[test]
    fn a_cost_is_rounded_up_once() {
        let model = model(&[("", &[(Rate::Input, 1), (Rate::CacheRead, 1), (Rate::Output, 1)])]);
        let cost = |input, cache_read, output| {
            model.cost(&Usage { input, cache_read, output, ..Usage::default() }, "")
        };
        assert_eq!((cost(0, 0, 0), cost(1, 0, 0), cost(1_000, 0, 0)), (Ok(0), Ok(1), Ok(1)));
        assert_eq!(cost(500, 250, 501), Ok(2), "1,001 pico-dollars, not three roundings");
    }

    #[test]
    fn a_tier_without_prices_is_an_error() {
        let model = model(&[("", &[(Rate::Input, 1_000)]), ("flex", &[(Rate::Input, 500)])]);
        let usage = Usage { input: 10, ..Usage::default() };
        assert_eq!((model.cost(&usage, "default"), model.cost(&usage, "flex")), (Ok(10), Ok(5)));
        assert_eq!(model.cost(&usage, "priority"), Err(CostError::UnknownTier));
        let with_output = Usage { output: 1, ..usage };
        assert_eq!(model.cost(&with_output, ""), Err(CostError::Unpriced(Rate::Output)));
        let broken = Usage { cache_read: 11, ..usage };
        assert_eq!(model.cost(&broken, ""), Err(CostError::Usage(UsageError::Input)));
    }

    #[test]
    fn a_cost_beyond_the_range_is_an_error() {
        let model = model(&[("", &[(Rate::Input, u64::MAX), (Rate::Output, u64::MAX)])]);
        let usage = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
        assert_eq!(model.cost(&usage, ""), Err(CostError::TooLarge));
    }

    /// The schoolbook product of decimal digits, least significant first: another way to the same sum.
    fn add_product(sum: &mut Vec<u8>, left: u64, right: u64) {
        let digits =
            |number: u64| -> Vec<u8> { number.to_string().bytes().rev().map(|it| it - b'0').collect() };
        let (left, right) = (digits(left), digits(right));
        let mut wide: Vec<u32> = sum.iter().map(|digit| u32::from(*digit)).collect();
        wide.resize(wide.len().max(left.len() + right.len() + 2), 0);
        for (at, one) in left.iter().enumerate() {
            for (more, other) in right.iter().enumerate() {
                wide[at + more] += u32::from(*one) * u32::from(*other);
            }
        }
        let mut carry = 0;
        for digit in &mut wide {
            carry += *digit;
            *digit = carry % 10;
            carry /= 10;
        }
        *sum = wide.into_iter().map(|digit| u8::try_from(digit).unwrap()).collect();
    }

    /// The sum divided by a thousand, rounded up.
    fn nanodollars(mut sum: Vec<u8>) -> u128 {
        sum.resize(sum.len().max(3), 0);
        let is_whole = sum[..3].iter().all(|digit| *digit == 0);
        let text: String = sum[3..].iter().rev().map(|digit| char::from(digit + b'0')).collect();
        text.parse().unwrap_or(0_u128) + u128::from(!is_whole)
    }

    proptest! {
        #[test]
        fn a_cost_is_that_of_exact_arithmetic(
            prices in prop::array::uniform11(0..=crate::PICODOLLARS_MAX),
            tokens in prop::array::uniform11(prop_oneof![0_u64..10, 0_u64..100_000_000]),
        ) {
            use Rate::{
                CacheRead, CacheWrite, CacheWrite1h, CacheWrite12h, Input, InputAudio, InputImage, Output,
                OutputAudio, OutputImage, Reasoning,
            };
            let rates = [
                Input, CacheRead, CacheWrite, CacheWrite1h, CacheWrite12h, InputAudio, InputImage, Output, Reasoning,
                OutputAudio, OutputImage,
            ];
            let priced: Vec<(Rate, u64)> = rates.into_iter().zip(prices).collect();
            let usage = Usage {
                input: tokens[..7].iter().sum(),
                cache_read: tokens[1],
                cache_write: tokens[2],
                cache_write_1h: tokens[3],
                cache_write_12h: tokens[4],
                input_audio: tokens[5],
                input_image: tokens[6],
                output: tokens[7..].iter().sum(),
                reasoning: tokens[8],
                output_audio: tokens[9],
                output_image: tokens[10],
            };
            let mut sum = Vec::new();
            for (price, tokens) in prices.into_iter().zip(tokens) {
                add_product(&mut sum, price, tokens);
            }
            let exact = nanodollars(sum);
            let expected = u64::try_from(exact).map_err(|_| CostError::TooLarge);
            prop_assert_eq!(model(&[("", &priced)]).cost(&usage, ""), expected);
        }
    }
}
