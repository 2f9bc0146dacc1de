//! Cool-downs: the time for which an account is not used after the provider has refused it.

use std::time::Duration;

use egret_clock::Timestamp;
use egret_store::marks::Mark;

use super::ending::Ending;

/// The latest cool-down of the account.
#[derive(Debug, Default)]
pub(super) struct Cooling {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The status code that caused it.
    pub status: u16,
    /// The version of the credential that was refused: [`Account::version`](crate::Account::version).
    pub version: u32,
    /// Number of refusals of the credential in a row, without a success between them.
    pub repetitions: u32,
}

/// A cool-down that is not over, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoolingSnapshot {
    /// End of the cool-down.
    pub until: Timestamp,
    /// The status code that caused it; `None` if the account cannot get a token.
    pub status: Option<u16>,
}

impl CoolingSnapshot {
    /// The reason as shown in the API: the status code, or `token`.
    pub fn reason(&self) -> String {
        self.status.map_or_else(|| "token".to_owned(), |status| status.to_string())
    }
}

/// Durations of cool-downs.
#[derive(Debug, Clone, Copy)]
pub struct CoolDown {
    /// The first duration, if the provider does not ask for another.
    pub first: Duration,
    /// The maximum duration.
    pub max: Duration,
}

impl CoolDown {
    /// The longest cool-down that a config may allow.
    pub const LONGEST: Duration = Duration::from_hours(24);
}

impl Cooling {
    /// Returns the cool-down if it is not over and applies to the credential of `version`. A refusal of an
    /// earlier credential does not apply to a new one.
    pub fn of(&self, now: Timestamp, version: u32) -> Option<&Self> {
        let is_of_credential = is_of_credential(self.status);
        (self.until > now && (self.version == version || !is_of_credential)).then_some(self)
    }

    /// The cool-down as other gateways are told about it. A success ends it if the call began after the
    /// refusal. The note has the status and the repetitions.
    pub fn mark(&self, now: Timestamp) -> Mark {
        Mark {
            left_ms: millis(self.until.since(now)),
            proof_ms: 0_i64.saturating_sub_unsigned(millis(now.since(self.since))),
            note: u64::from(self.repetitions) << 16 | u64::from(self.status),
        }
    }

    /// The cool-down that another gateway tells, of the credential of `version`.
    pub fn told(mark: &Mark, now: Timestamp, version: u32) -> Self {
        let ago = Duration::from_millis(mark.proof_ms.min(0).unsigned_abs());
        Self {
            since: now - ago,
            until: now + Duration::from_millis(mark.left_ms),
            status: u16::try_from(mark.note & 0xffff).unwrap_or_default(),
            version,
            repetitions: u32::try_from(mark.note >> 16).unwrap_or(u32::MAX),
        }
    }

    /// Counts a refusal with `status`, and returns the factor by which the first cool-down is multiplied.
    pub fn refused(&mut self, status: u16) -> u32 {
        self.repetitions = if is_of_credential(status) { self.repetitions.saturating_add(1) } else { 0 };
        1_u32.checked_shl(self.repetitions.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

/// Returns whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns `true` if `status` means that the provider rejects the credential.
fn is_of_credential(status: u16) -> bool {
    matches!(Ending::of(status), Ending::Unauthorized | Ending::Forbidden)
}
