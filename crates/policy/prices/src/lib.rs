//! Prices of language models, and what a call costs.
//!
//! Prices are whole pico-dollars (10⁻¹² US dollars) for a token. The cost of a call is summed exactly and
//! rounded up once, to whole nano-dollars (10⁻⁹). No floating-point number is involved.
//!
//! [`litellm::import`] makes a [`PriceTable`] of `LiteLLM`'s table of prices, which is kept as a file of JSON
//! with its source, its date and the SHA-256 of what was imported.

mod cost;
mod decimal;
mod entry;
pub mod litellm;
mod model;
mod table;
mod usage;

pub use cost::CostError;
pub use decimal::DecimalError;
#[cfg(test)]
pub(crate) use decimal::PICODOLLARS_MAX;
pub use model::{ModelPrices, PriceSet, Rate};
pub use table::{PriceTable, TABLE_BYTES_MAX, TableError};
pub use usage::{Usage, UsageError};
