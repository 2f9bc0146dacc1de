//! The times of secrets in secret managers, the same for each of them.

use std::time::Duration;

/// Bounds of the time of a fetch.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);
pub const TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// Least lifetime of a secret.
pub const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// Five minutes: a key that was replaced is used soon, and a manager that charges for calls is called rarely.
pub fn lifetime_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(300)
}

pub fn timeout_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(10)
}
