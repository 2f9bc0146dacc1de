//! A limit of concurrent calls that follows the provider's latency.
//!
//! Responses are gathered in windows. The latency of a window is compared with the baseline: the latency
//! while few calls are in flight. Near the baseline the limit rises; above it calls wait for each other
//! somewhere, and the limit falls in proportion. The baseline is measured again in probes, with half of the
//! calls, because a limit in use always has some of them waiting. If the latency stays the same while the
//! limit is halved, it has another cause than the number of calls, and becomes the new baseline.

use std::mem;

use crate::handed_state::AdaptiveState;

/// The first limit. It is low, so that the first latencies are those of a provider at ease.
const LIMIT_FIRST: f64 = 10.0;
/// Minimum length of a window; at least this multiple of its latency, else it had its quick calls alone.
const WINDOW_MICROS: u64 = 100_000;
const WINDOW_LATENCIES: f64 = 2.0;
/// Minimum number of responses in a window, and in a probe.
const WINDOW_CALLS: u64 = 10;
const PROBE_CALLS: u64 = 30;
/// Time between two probes; at least this multiple of a probe's length, so probes cost little.
const PROBE_EVERY_MICROS: u64 = 10_000_000;
const PROBE_APART: u64 = 20;
/// Part of the limit that a probe, and a fall that does not help, leave.
const HALF: f64 = 0.5;
/// The lowest factor of one fall by latency.
const FALL_MIN: f64 = 0.5;
/// Factor of a fall because the provider refuses calls.
const FALL_REFUSED: f64 = 0.9;
/// Refused calls of a window, as its part `1 / REFUSED_PART`, that make the limit fall.
const REFUSED_PART: u64 = 20;
/// A latency that is still at least this part of the earlier one has not fallen with the limit.
const SAME_LATENCY: f64 = 0.75;
/// Weight of a window in the baseline while the limit is not used.
const BASELINE_WEIGHT: f64 = 0.2;

/// The bounds of an adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Adaptation {
    /// The lowest limit.
    pub min: u64,
    /// The highest limit.
    pub max: u64,
    /// Multiple of the baseline up to which a latency is normal.
    pub tolerance: f64,
}

/// End of a call, as far as it shows the provider's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadSign {
    /// The provider has worked for it, so its latency counts.
    Served,
    /// The provider has refused it, or did not respond in time, because it has too much to do.
    Refused,
}

/// An adaptive limit of one group. Times in microseconds.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    rule: Adaptation,
    limit: f64,
    window: LatencyWindow,
    /// Latency of the provider at ease; 0 before the first window.
    baseline: f64,
    /// Latency of the last window.
    latency: f64,
    trend: Trend,
    /// `true` until the limit first falls: it doubles instead of growing slowly.
    is_starting: bool,
    is_probing: bool,
    probe_at: u64,
}

/// The way that the limit goes by latency.
#[derive(Debug, Clone, Copy)]
enum Trend {
    /// It rises.
    Steady,
    /// It has fallen once, by a window that may have calls from before the latency rose.
    Falling,
    /// It has fallen from this limit, with this latency or less since.
    FallingFrom { limit: f64, latency: f64 },
}

/// The calls that began after a moment and have ended.
#[derive(Debug, Default)]
struct LatencyWindow {
    begin: u64,
    served: u64,
    refused: u64,
    /// Sum of the logarithms of the latencies.
    logarithms: f64,
    /// Most calls in flight.
    most: u64,
}

impl LatencyWindow {
    /// The geometric mean of the latencies, on which a few slow calls have little effect.
    fn latency(&self) -> Option<f64> {
        (self.served > 0).then(|| (self.logarithms / real(self.served)).exp())
    }
}

impl AdaptiveLimit {
    pub(super) fn new(rule: Adaptation) -> Self {
        let mut new = Self {
            rule,
            limit: LIMIT_FIRST,
            window: LatencyWindow::default(),
            baseline: 0.0,
            latency: 0.0,
            trend: Trend::Steady,
            is_starting: true,
            is_probing: false,
            probe_at: 0,
        };
        new.set_rule(rule);
        new
    }

    /// Applies other bounds.
    pub(super) fn set_rule(&mut self, rule: Adaptation) {
        self.rule = rule;
        self.set(self.limit);
    }

    /// The limit now.
    pub(super) fn limit(&self) -> u64 {
        let limit = if self.is_probing { self.limit * HALF } else { self.limit };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 10¹²")]
        let limit = limit as u64;
        limit.max(self.rule.min)
    }

    /// The latency of the provider at ease, and that of the last window; `None` before the first one.
    pub(crate) fn latencies(&self) -> Option<[u64; 2]> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "means of whole numbers")]
        let whole = |latency: f64| latency.round() as u64;
        (self.baseline > 0.0).then(|| [whole(self.baseline), whole(self.latency)])
    }

    /// Notes that so many calls are in flight, after one has begun.
    pub(super) fn taken(&mut self, in_flight: u64) {
        self.window.most = self.window.most.max(in_flight);
    }

    /// Notes the end of a call that began at `made`. Returns `true` if the limit rises.
    ///
    /// Only calls that began in the window count: earlier ones met another limit.
    pub(super) fn ended(&mut self, sign: LoadSign, made: u64, now: u64) -> bool {
        if made < self.window.begin {
            return false;
        }
        match sign {
            LoadSign::Served => {
                self.window.served += 1;
                self.window.logarithms += real(now.saturating_sub(made).max(1)).ln();
            }
            LoadSign::Refused => self.window.refused += 1,
        }
        let calls = if self.is_probing { PROBE_CALLS } else { WINDOW_CALLS };
        let length = now.saturating_sub(self.window.begin);
        if length < WINDOW_MICROS || self.window.served + self.window.refused < calls {
            return false;
        }
        if self.window.latency().is_some_and(|latency| real(length) < latency * WINDOW_LATENCIES) {
            return false;
        }
        let before = self.limit();
        let window = mem::replace(&mut self.window, LatencyWindow { begin: now, ..LatencyWindow::default() });
        self.judge(&window, now);
        self.limit() > before
    }

    fn judge(&mut self, window: &LatencyWindow, now: u64) {
        let is_refused = window.refused * REFUSED_PART >= window.served + window.refused;
        let Some(latency) = window.latency().filter(|_| !is_refused) else {
            self.end_probe(window, now);
            self.is_starting = false;
            return self.set(self.limit * FALL_REFUSED);
        };
        self.latency = latency;
        if self.baseline == 0.0 || self.is_probing {
            self.baseline = latency;
            self.end_probe(window, now);
        }
        // A limit of which little is used is no cause of the latency, and needs not rise.
        if real(window.most) <= self.limit * HALF {
            self.baseline += (latency - self.baseline) * BASELINE_WEIGHT;
            return;
        }
        if latency <= self.baseline * self.rule.tolerance {
            let more = if self.is_starting { self.limit } else { self.limit.sqrt() };
            self.trend = Trend::Steady;
            self.set(self.limit + more);
        } else {
            self.is_starting = false;
            self.fall(latency);
        }
        self.is_probing = now >= self.probe_at;
    }

    /// Lowers the limit by as much as the latency is too high, unless that has not helped before.
    fn fall(&mut self, latency: f64) {
        let (from, highest) = match self.trend {
            Trend::Steady => {
                self.trend = Trend::Falling;
                return self.lower(latency);
            }
            Trend::Falling => {
                self.trend = Trend::FallingFrom { limit: self.limit, latency };
                return self.lower(latency);
            }
            Trend::FallingFrom { limit, latency: earlier } => (limit, earlier.max(latency)),
        };
        let is_half = self.limit <= from * HALF || self.limit <= real(self.rule.min);
        if is_half && latency >= highest * SAME_LATENCY {
            self.baseline = latency;
            self.trend = Trend::Steady;
            return;
        }
        let (limit, latency_since) = if is_half { (self.limit, latency) } else { (from, highest) };
        self.trend = Trend::FallingFrom { limit, latency: latency_since };
        self.lower(latency);
    }

    fn lower(&mut self, latency: f64) {
        let factor = self.baseline * self.rule.tolerance / latency;
        self.set(self.limit * factor.max(FALL_MIN));
    }

    fn end_probe(&mut self, window: &LatencyWindow, now: u64) {
        let length = if self.is_probing { now.saturating_sub(window.begin) } else { 0 };
        let pause = length.saturating_mul(PROBE_APART).max(PROBE_EVERY_MICROS);
        self.probe_at = now.saturating_add(pause);
        self.is_probing = false;
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(real(self.rule.min), real(self.rule.max.max(self.rule.min)));
    }

    /// Moves all times back with a clock that was set back.
    pub(super) fn shift_back(&mut self, micros: u64) {
        self.window.begin = self.window.begin.saturating_sub(micros);
        self.probe_at = self.probe_at.saturating_sub(micros);
    }

    /// Returns what the next process takes over; `None` before the first window.
    pub(super) fn state(&self) -> Option<AdaptiveState> {
        let [baseline_us, _] = self.latencies()?;
        Some(AdaptiveState { limit: self.limit(), baseline_us })
    }

    /// Takes over the limit of an earlier process.
    pub(super) fn inherit(&mut self, state: AdaptiveState) {
        self.baseline = real(state.baseline_us);
        self.latency = self.baseline;
        self.is_starting = false;
        self.set(real(state.limit));
    }
}

#[expect(clippy::cast_precision_loss, reason = "calls and microseconds stay below 2^53")]
fn real(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests;
