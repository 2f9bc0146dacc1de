//! Alerts: a group has used a percentage of its limit that people want to hear of.

use std::fmt;
use std::sync::Arc;

use egret_clock::Timestamp;

use super::config::{Percent, QuotaUnit};

/// A group has used a percentage of its limit in this window.
#[derive(Clone)]
pub struct Alert {
    /// The quota's name.
    pub quota: Arc<str>,
    /// The group's name for display, as in [`GroupSnapshot::name`](super::GroupSnapshot::name).
    pub group: String,
    /// The percentage, as the config names it.
    pub percent: Percent,
    /// Number of units used, without those that calls under way hold.
    pub used: u64,
    /// Number of units in total.
    pub limit: u64,
    /// Meaning of a unit.
    pub unit: QuotaUnit,
    /// End of the window. It is the same in every process that counts the group.
    pub window_end: Timestamp,
    /// `true` if all gateways of a cluster count the group, so each of them may notice the same.
    pub is_shared: bool,
    /// Identifies the quota, its limit and way of counting, and the group. It may contain a secret.
    pub(super) key: Box<[u8]>,
}

impl Alert {
    /// Identifies the alert: quota, limit, group, window and percentage. It may contain a secret, so it is
    /// only good for a digest.
    pub fn identity(&self) -> Vec<u8> {
        let window = self.window_end.as_micros();
        [&*self.key, format!("\0{window} {}", self.percent).as_bytes()].concat()
    }
}

impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, group, percent, window_end, .. } = self;
        write!(f, "Alert({quota} {group} {percent} {window_end:?})")
    }
}

/// The receiver of alerts. It is called by the threads of exchanges, so it must not wait.
pub trait AlertSink: fmt::Debug + Send + Sync {
    /// Takes an alert. It may have been raised before: by another gateway, by an earlier process, or for a
    /// group that was forgotten since. Returns `false` if there is no room for it.
    fn raise(&self, alert: Alert) -> bool;
}

/// Number of alerts that were told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCount {
    /// The quota's name.
    pub quota: Arc<str>,
    /// The percentage, as the config names it.
    pub percent: Percent,
    /// Number since the process started.
    pub count: u64,
}

/// The percentages of a quota that raise alerts, and the receiver.
#[derive(Debug)]
pub(super) struct Alerting {
    /// In ascending order.
    pub percents: Box<[Percent]>,
    pub sink: Arc<dyn AlertSink>,
}

impl Alerting {
    /// Returns `None` if there is nothing to raise, or nobody to receive it.
    pub fn new(percents: &[Percent], sink: Option<&Arc<dyn AlertSink>>) -> Option<Self> {
        let mut percents: Box<[Percent]> = percents.into();
        percents.sort_unstable();
        let sink = sink.filter(|_| !percents.is_empty())?;
        Some(Self { percents, sink: Arc::clone(sink) })
    }
}

/// The alerts that a group has raised in its latest window.
#[derive(Debug, Default)]
pub(super) struct RaisedAlerts {
    /// End of the window, in microseconds.
    window_end: u64,
    /// The limit without what was carried over. With another one, all are raised again.
    rule_limit: u64,
    /// The highest percentage that was raised in it.
    highest: Percent,
}

impl RaisedAlerts {
    /// Returns those of `percents` that the use of a window has newly reached.
    pub fn raise<'a>(&mut self, window: WindowUse, percents: &'a [Percent]) -> &'a [Percent] {
        if (window.end, window.rule_limit) != (self.window_end, self.rule_limit) {
            let WindowUse { end: window_end, rule_limit, .. } = window;
            *self = Self { window_end, rule_limit, highest: Percent::default() };
        }
        let first = percents.partition_point(|percent| *percent <= self.highest);
        let end = percents.partition_point(|percent| percent.is_reached(window.used, window.limit));
        let new = percents.get(first..end).unwrap_or_default();
        self.highest = new.last().copied().unwrap_or(self.highest);
        new
    }
}

/// The use of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WindowUse {
    /// End of the window in microseconds, by the clock of those who count it.
    pub end: u64,
    /// Number of units used, without those that calls under way hold.
    pub used: u64,
    /// Number of units in total.
    pub limit: u64,
    /// The limit without what was carried over.
    pub rule_limit: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_percentage_is_raised_once_in_a_window() {
        let percents: Vec<Percent> =
            ["50%", "80%", "100%"].iter().map(|text| text.parse().unwrap()).collect();
        let mut raised = RaisedAlerts::default();
        let mut raise_of = |end, used, limit| {
            let new = raised.raise(WindowUse { end, used, limit, rule_limit: limit }, &percents);
            new.iter().map(Percent::to_string).collect::<Vec<_>>()
        };
        let mut raise = |end, used| raise_of(end, used, 10);
        assert_eq!(raise(1, 4), [""; 0]);
        assert_eq!(raise(1, 5), ["50%"]);
        assert_eq!(raise(1, 7), [""; 0]);
        assert_eq!(raise(1, 12), ["80%", "100%"]);
        // Units come back, and are used once more.
        assert_eq!(raise(1, 3), [""; 0]);
        assert_eq!(raise(1, 12), [""; 0]);
        assert_eq!(raise(2, 8), ["50%", "80%"]);
        // A limit that is changed has alerts of its own, and no percentage is rounded down.
        assert_eq!(raise_of(2, 8, 20), [""; 0]);
        assert_eq!(raise_of(2, 7, 9), ["50%"]);
    }

    #[test]
    fn a_window_without_use_raises_no_alert() {
        let percents = ["1%".parse().unwrap()];
        assert_eq!(
            RaisedAlerts::default()
                .raise(WindowUse { end: 1, used: 0, limit: 10, rule_limit: 10 }, &percents),
            []
        );
    }
}
