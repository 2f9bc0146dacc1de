//! Prices of language models, and what a call costs.
//!
//! Prices are whole pico-dollars (10⁻¹² US dollars) for a token. The cost of a call is summed exactly and
//! rounded up once, to whole nano-dollars (10⁻⁹). No floating-point number is involved. What a call has used
//! is an [`egret_usage::UsageRecord`]; [`ModelPrices::cost`] sorts its tokens by price.
//!
//! [`litellm::import`] makes a [`PriceTable`] of `LiteLLM`'s table of prices, which is kept as a file of JSON
//! with its source, its date and the SHA-256 of what was imported.

mod config;
mod cost;
mod entry;
pub mod litellm;
mod model;
mod prices;
mod table;

pub use config::{PerMillion, PriceOverride, PricesConfig, Unpriced};
pub use cost::CostError;
pub use model::{ModelPrices, PICODOLLARS_MAX, PriceError, PriceSet, Rate};
pub use prices::{Prices, UnpricedCall};
pub use table::{PriceTable, TABLE_BYTES_MAX, TableError};
