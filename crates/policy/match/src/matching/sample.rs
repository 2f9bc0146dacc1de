//! Random samples of exchanges. The decision is the same for every question about one exchange.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use egret_clock::mixed;

/// A percentage, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// 100 percent.
    pub const ALL: Self = Self(100.0);

    /// Creates a percentage. Returns `None` if `number` is not within 0 to 100.
    pub fn new(number: f64) -> Option<Self> {
        (0.0..=100.0).contains(&number).then_some(Self(number))
    }

    /// Returns the number, from 0 to 100.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns `true` if it is 100 percent.
    pub fn is_all(self) -> bool {
        self.0 >= 100.0
    }
}

impl Default for Percent {
    fn default() -> Self {
        Self::ALL
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PercentVisitor;

        impl de::Visitor<'_> for PercentVisitor {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage from 0 to 100, like `10` or `0.5`")
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Percent, E> {
                Percent::new(number).ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Percent, E> {
                let share = u8::try_from(number).ok().and_then(|number| Percent::new(number.into()));
                share.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(PercentVisitor)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 100, "description": "A percentage." })
    }
}

/// A random sample of exchanges. Each flow has its own, so two flows of 10 % are independent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledShare {
    /// Salt that makes this sample independent of others.
    salt: u64,
    /// Number of sampled exchanges out of 2^32.
    threshold: u64,
}

impl SampledShare {
    /// Creates a sample of `share`. Samples with different names are independent of each other.
    pub fn new(share: Percent, name: &str) -> Self {
        const WHOLE: f64 = 4_294_967_296.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a percentage of 2^32 is positive and fits"
        )]
        let threshold = (share.0 / 100.0 * WHOLE).round() as u64;
        // FNV-1a is the same on every machine and in every version, so a seed reproduces the sample.
        let salt = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { salt, threshold }
    }

    /// Returns `true` if the exchange with that random number is sampled.
    pub fn takes(self, roll: u64) -> bool {
        mixed(roll ^ self.salt) >> 32 < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(share: f64, name: &str) -> Vec<bool> {
        let sample = SampledShare::new(Percent::new(share).unwrap(), name);
        (0..100_000).map(|roll| sample.takes(roll)).collect()
    }

    fn count(taken: impl IntoIterator<Item = bool>) -> usize {
        taken.into_iter().filter(|taken| *taken).count()
    }

    #[test]
    fn a_share_is_what_it_says() {
        assert_eq!(count(taken(0.0, "a")), 0);
        assert_eq!(count(taken(100.0, "a")), 100_000);
        for (share, expected) in [(10.0, 10_000), (0.5, 500), (75.0, 75_000)] {
            let off = count(taken(share, "a")).abs_diff(expected);
            assert!(off < 600, "{share} % is off by {off}");
        }
    }

    #[test]
    fn shares_of_different_flows_are_independent() {
        let both = taken(10.0, "a").into_iter().zip(taken(10.0, "b")).map(|(a, b)| a && b);
        assert!(count(both).abs_diff(1_000) < 150);
    }

    #[test]
    fn only_percentages_are_read() {
        for (json, expected) in
            [("10", Some(10.0)), ("0.5", Some(0.5)), ("101", None), ("-1", None), ("1e400", None)]
        {
            assert_eq!(serde_json::from_str::<Percent>(json).ok().map(Percent::get), expected, "{json}");
        }
    }
}
