//! The cost of a call.

use egret_usage::UsageRecord;

use crate::model::{ModelPrices, Rate};

/// Pico-dollars in a nano-dollar.
const PICO_PER_NANO: u128 = 1_000;

/// Tiers and speeds that providers answer for the standard one.
const STANDARD_TIERS: [&str; 5] = ["", "default", "standard", "auto", "on_demand"];

/// The reason why a call has no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
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
    /// The cost of a call in nano-dollars, rounded up once, in the tier of service that has answered. No
    /// tier, `default` and `standard` are the standard one, and `batch` is `batches`. A speed other than the
    /// standard one is a tier too.
    pub fn cost(&self, usage: &UsageRecord) -> Result<u64, CostError> {
        let tier = tier(usage);
        if !tier.is_empty() && !self.has_tier(tier) {
            return Err(CostError::UnknownTier);
        }
        let mut picodollars: u128 = 0;
        for (rate, tokens) in priced_parts(usage) {
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

/// The tier whose prices apply, empty for the standard one.
fn tier(usage: &UsageRecord) -> &str {
    let told =
        |word: &'_ Option<Box<str>>| word.as_deref().is_some_and(|word| !STANDARD_TIERS.contains(&word));
    let tier = if told(&usage.speed) { &usage.speed } else { &usage.tier };
    match tier.as_deref() {
        Some("batch") => "batches",
        Some(tier) if !STANDARD_TIERS.contains(&tier) => tier,
        _ => "",
    }
}

/// Sorts tokens by price, each into one part only. In a record, those of a cache and those of sound or images
/// may be the same. Providers have a price for what their cache had, whatever it is, so the cache goes first.
fn priced_parts(usage: &UsageRecord) -> [(Rate, u64); 11] {
    let writes = usage.cache_write;
    let briefly = writes.for_5m.saturating_add(writes.for_30m).saturating_add(writes.other);
    let mut input = usage.input;
    let mut output = usage.output;
    let take = |left: &mut u64, part: u64| {
        let part = part.min(*left);
        *left -= part;
        part
    };
    [
        (Rate::CacheRead, take(&mut input, usage.cache_read)),
        (Rate::CacheWrite12h, take(&mut input, writes.for_12h)),
        (Rate::CacheWrite1h, take(&mut input, writes.for_1h)),
        (Rate::CacheWrite, take(&mut input, briefly)),
        (Rate::InputAudio, take(&mut input, usage.input_audio)),
        (Rate::InputImage, take(&mut input, usage.input_image)),
        (Rate::Input, input),
        (Rate::OutputAudio, take(&mut output, usage.output_audio)),
        (Rate::OutputImage, take(&mut output, usage.output_image)),
        (Rate::Reasoning, take(&mut output, usage.reasoning)),
        (Rate::Output, output),
    ]
}

#[cfg(test)]
mod tests {
    use egret_usage::CacheWrites;
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
            model.cost(&UsageRecord { input, cache_read, output, ..UsageRecord::default() })
        };
        assert_eq!((cost(0, 0, 0), cost(1, 0, 0), cost(1_000, 0, 0)), (Ok(0), Ok(1), Ok(1)));
        assert_eq!(cost(500, 250, 501), Ok(2), "1,001 pico-dollars, not three roundings");
    }

    #[test]
    fn a_tier_without_prices_is_an_error() {
        let model = model(&[("", &[(Rate::Input, 1_000)]), ("flex", &[(Rate::Input, 500)])]);
        let usage = |tier: &str, speed: &str| UsageRecord {
            input: 10,
            tier: Some(tier.into()),
            speed: Some(speed.into()),
            ..UsageRecord::default()
        };
        for (tier, speed, cost) in [
            ("default", "standard", Ok(10)),
            ("", "", Ok(10)),
            ("flex", "", Ok(5)),
            ("priority", "", Err(CostError::UnknownTier)),
            ("flex", "fast", Err(CostError::UnknownTier)),
        ] {
            assert_eq!(model.cost(&usage(tier, speed)), cost, "{tier} {speed}");
        }
        let with_output = UsageRecord { output: 1, ..UsageRecord::default() };
        assert_eq!(model.cost(&with_output), Err(CostError::Unpriced(Rate::Output)));
    }

    #[test]
    fn tokens_of_two_parts_are_billed_once() {
        let prices =
            [(Rate::Input, 1_000), (Rate::CacheRead, 100), (Rate::InputAudio, 10_000), (Rate::Output, 1_000)];
        let model = model(&[("", &prices)]);
        let usage = UsageRecord { input: 10, cache_read: 8, input_audio: 6, ..UsageRecord::default() };
        assert_eq!(model.cost(&usage), Ok(1 + 20), "eight tokens are cached, so two are of sound at most");
        let broken = UsageRecord { cache_read: 99, output: 1, reasoning: 7, ..usage };
        assert_eq!(model.cost(&broken), Ok(1 + 1), "no part exceeds its sum");
    }

    #[test]
    fn a_cost_beyond_the_range_is_an_error() {
        let model = model(&[("", &[(Rate::Input, u64::MAX), (Rate::Output, u64::MAX)])]);
        let usage = UsageRecord { input: u64::MAX, output: u64::MAX, ..UsageRecord::default() };
        assert_eq!(model.cost(&usage), Err(CostError::TooLarge));
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
            let writes = CacheWrites { for_1h: tokens[3], for_12h: tokens[4], for_30m: tokens[2], ..CacheWrites::default() };
            let usage = UsageRecord {
                input: tokens[..7].iter().sum(),
                cache_read: tokens[1],
                cache_write: writes,
                input_audio: tokens[5],
                input_image: tokens[6],
                output: tokens[7..].iter().sum(),
                reasoning: tokens[8],
                output_audio: tokens[9],
                output_image: tokens[10],
                ..UsageRecord::default()
            };
            let mut sum = Vec::new();
            for (price, tokens) in prices.into_iter().zip(tokens) {
                add_product(&mut sum, price, tokens);
            }
            let exact = nanodollars(sum);
            let expected = u64::try_from(exact).map_err(|_| CostError::TooLarge);
            prop_assert_eq!(model(&[("", &priced)]).cost(&usage), expected);
        }
    }
}
