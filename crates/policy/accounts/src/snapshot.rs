//! The state of an account, for display.

use egret_clock::Timestamp;

use super::cooling::CoolingSnapshot;
use super::ending::Ending;
use super::token::TokenSnapshot;

/// State of an account, for display.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountSnapshot {
    /// The account's name.
    pub name: String,
    /// The kind of credential, by its config key.
    pub kind: &'static str,
    /// The names of the account's providers.
    pub providers: Vec<String>,
    /// The current cool-down, if any.
    pub cooling: Option<CoolingSnapshot>,
    /// Number of exchanges that use the account now.
    pub in_flight: u32,
    /// Number of calls by how they ended, in the order of [`Ending::ALL`].
    pub endings: [u64; Ending::ALL.len()],
    /// Number of calls left according to the provider, if its report still holds.
    pub remaining: Option<u64>,
    /// Time at which the provider restores the allowance, according to its report.
    pub reset: Option<Timestamp>,
    /// The state of the fetched token, for an account of that kind.
    pub token: Option<TokenSnapshot>,
}
