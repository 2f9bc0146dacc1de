//! Findings in Egret's log, for those who read nothing else.

use egret_clock::Timestamp;

use super::{Finding, Severity};

/// Lines in a minute. A share of calls that is near the limit of a rule may begin a finding again and again.
const LINES_MAX: u32 = 30;
const MINUTE_US: u64 = 60_000_000;

/// Writes when findings begin and end, within a bound.
#[derive(Debug, Default)]
pub(super) struct FindingsLog {
    minute: u64,
    /// Lines in that minute, with those left out.
    lines: u32,
}

impl FindingsLog {
    /// Logs that a finding has begun.
    pub fn begin(&mut self, now: Timestamp, finding: &Finding) {
        if !self.admits(now) {
            return;
        }
        let Finding { kind, severity, subject, summary, evidence, advice, .. } = finding;
        let kind = kind.slug();
        match severity {
            Severity::Error => {
                tracing::error!(kind, subject, evidence, advice, "a finding begins: {summary}");
            }
            Severity::Warning => {
                tracing::warn!(kind, subject, evidence, advice, "a finding begins: {summary}");
            }
        }
    }

    /// Logs that a finding has ended.
    pub fn end(&mut self, now: Timestamp, finding: &Finding) {
        if self.admits(now) {
            let Finding { kind, subject, summary, .. } = finding;
            tracing::info!(kind = kind.slug(), subject, "a finding ends: {summary}");
        }
    }

    /// Returns `true` if there is room for a line. The first one without is replaced by a hint.
    fn admits(&mut self, now: Timestamp) -> bool {
        let minute = now.as_micros() / MINUTE_US;
        if minute != self.minute {
            *self = Self { minute, lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines == LINES_MAX + 1 {
            tracing::warn!("more findings begin and end than are logged in a minute: `egret status` has all");
        }
        self.lines <= LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_room_for_thirty_lines() {
        let (mut log, now) = (FindingsLog::default(), Timestamp::from_secs(1_200));
        let admitted = |log: &mut FindingsLog, now| (0..100).filter(|_| log.admits(now)).count();
        assert_eq!(admitted(&mut log, now), 30);
        assert_eq!(admitted(&mut log, Timestamp::from_secs(1_259)), 0);
        assert_eq!(admitted(&mut log, Timestamp::from_secs(1_260)), 30);
    }
}
