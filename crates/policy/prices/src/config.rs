//! The config key `prices`.

use std::collections::BTreeMap;
use std::fmt;

use egret_config::TextFile;
use egret_json::decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::model::PICODOLLARS_MAX;

/// Maximum size of the file, in bytes: that of a table.
const FILE_BYTES_MAX: usize = 64 << 20;

egret_config::keys! {
    /// Prices of language models, for quotas of money and for `usage.cost`.
    #[derive(Eq)]
    pub struct PricesConfig {
        /// File that `egret prices import` has written, relative to the directory of the config file. A
        /// change of the file reloads the config.
        pub file: Option<TextFile<FILE_BYTES_MAX>>,
        /// Prices of models by name, which win over those of the file: a price that you have negotiated, or
        /// that the file does not have.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub overrides: BTreeMap<String, PriceOverride>,
        /// Treatment of calls of models without a price, in quotas with `cost.usage: usd`: `count` lets them
        /// pass, charges nothing and logs it; `refuse` rejects them, and those whose model is not known
        /// before the call.
        pub unpriced: Unpriced,
    }
}

/// Treatment of calls of models without a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unpriced {
    /// They pass, and cost nothing.
    #[default]
    Count,
    /// They are rejected.
    Refuse,
}

/// Prices of a model, in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceOverride {
    /// Price of input.
    pub input: PerMillion,
    /// Price of output, with that of reasoning.
    pub output: PerMillion,
    /// Price of input that a cache had. Default: that of `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<PerMillion>,
    /// Price of input that is written to a cache. Default: that of `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<PerMillion>,
}

/// Pico-dollars for a token, written in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerMillion(pub u64);

/// Decimal places of a pico-dollar for a token, in a dollar for a million tokens.
const PLACES: i32 = 6;

impl<'de> Deserialize<'de> for PerMillion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PriceVisitor;

        impl de::Visitor<'_> for PriceVisitor {
            type Value = PerMillion;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a price in US dollars for a million tokens, like `2.50`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PerMillion, E> {
                let price = decimal::whole(text.as_bytes(), PLACES).map_err(E::custom)?;
                if price.is_rounded || price.units > PICODOLLARS_MAX {
                    return Err(E::custom(
                        "a price has at most six decimal places, and is at most 1000000000",
                    ));
                }
                Ok(PerMillion(price.units))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<PerMillion, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PerMillion, E> {
                self.visit_str(&number.to_string())
            }

            // The shortest text that reads back as the same number is the one that was written.
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<PerMillion, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(PriceVisitor)
    }
}

impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl Serialize for PerMillion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for PerMillion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PerMillion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "minimum": 0,
            "description": "US dollars for a million tokens.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_read_as_it_is_written() {
        for (text, expected) in [
            ("2.5", Some(2_500_000)),
            ("\"2.50\"", Some(2_500_000)),
            ("3", Some(3_000_000)),
            ("0.000001", Some(1)),
            ("0.1", Some(100_000)),
            ("0.0000001", None),
            ("-1", None),
            ("\"two\"", None),
            ("1e12", None),
        ] {
            let read = serde_json::from_str::<PerMillion>(text);
            assert_eq!(read.ok().map(|price| price.0), expected, "{text}");
        }
        assert_eq!(serde_json::to_string(&PerMillion(2_500_000)).unwrap(), "\"2.500000\"");
    }
}
