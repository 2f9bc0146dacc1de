//! A provider's own count of a group, which the store does not know yet.

use super::message::ProviderReport;

/// The longest time for which the store keeps a report.
const RESET_MAX_MS: u64 = 31 * 24 * 3_600_000;

/// The last report of the provider: the units left, and the time at which its count restarts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PendingReport(Option<(u64, u64)>);

impl PendingReport {
    /// Notes a report. `reset_ms` is a time by the member's clock.
    pub fn note(&mut self, remaining: u64, reset_ms: u64) {
        self.0 = Some((remaining, reset_ms));
    }

    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the report for a call. A count that has restarted since tells nothing. If the call is lost, the
    /// provider's next response brings another report.
    pub fn take(&mut self, now_ms: u64) -> Option<ProviderReport> {
        let (remaining, reset_ms) = self.0.take()?;
        let reset_in_ms = reset_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?;
        Some(ProviderReport { remaining, reset_in_ms: reset_in_ms.min(RESET_MAX_MS) })
    }
}
