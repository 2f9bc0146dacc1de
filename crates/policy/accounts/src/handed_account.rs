//! An account as one process hands it over to the next.

use serde::{Deserialize, Serialize};

/// The cool-down of an account, and what its provider has reported. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandedAccount {
    /// The account's name.
    pub(super) name: String,
    /// The names of its providers.
    pub(super) providers: Vec<String>,
    /// The kind of credential, and a digest of it.
    pub(super) kind: String,
    pub(super) digest: [u8; 32],
    /// The cool-down; over in 1970 if there is none.
    pub(super) since_us: u64,
    pub(super) until_us: u64,
    pub(super) status: u16,
    pub(super) repetitions: u32,
    /// Number of calls left, and the time at which the allowance is restored.
    pub(super) remaining: Option<u64>,
    pub(super) reset_us: Option<u64>,
}
