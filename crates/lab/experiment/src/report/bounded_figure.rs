//! Judges the figures that the experiment requires to stay within bounds, and the certainty of each
//! judgement.

use std::collections::BTreeMap;
use std::fmt;

use egret_measure::statistics::{Estimate, difference, estimate, median, ratio, real};
use serde::{Deserialize, Serialize};

use super::format::{places, share, signed_in, thousands};
use crate::config::{Figure, HoldConfig};
use crate::results::{Results, Turn};

/// A figure with a bound, compared with another scenario's figure or by itself.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct BoundedFigure {
    /// The case.
    pub case: String,
    /// The scenario that the figure belongs to.
    pub scenario: String,
    /// The scenario or the case it is compared with; `None` if the figure itself is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// The figure.
    pub figure: Figure,
    /// Kind of comparison.
    pub comparison: BoundKind,
    /// The median over the rounds.
    pub value: Estimate,
    /// Lower bound of the value, if any.
    pub least: Option<f64>,
    /// Upper bound of the value, if any.
    pub max: Option<f64>,
}

/// A kind of comparison of two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundKind {
    /// Ratio of the figure to the other scenario's.
    Ratio,
    /// Difference between the figure and the other scenario's, in milliseconds.
    DifferenceMs,
    /// The same in microseconds.
    DifferenceUs,
    /// The figure itself, without a comparison.
    Itself,
}

impl BoundedFigure {
    /// Returns `true` if the value is within its bounds.
    pub fn holds(&self) -> bool {
        self.allows(self.value.value)
    }

    /// Returns `true` if the whole interval gives the same verdict.
    pub fn is_sure(&self) -> bool {
        let Estimate { low, high, .. } = self.value;
        let within = self.allows(low) && self.allows(high);
        let beyond = self.least.is_some_and(|least| high < least) || self.max.is_some_and(|max| low > max);
        self.value.is_firm() && (within || beyond)
    }

    fn allows(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.max.is_none_or(|max| value <= max)
    }

    /// The verdict in one or two words.
    pub fn verdict(&self) -> &'static str {
        match (self.holds(), self.is_sure()) {
            (true, true) => "held",
            (true, false) => "held, unsure",
            (false, true) => "NOT HELD",
            (false, false) => "NOT HELD, unsure",
        }
    }

    /// The value with its interval.
    pub fn text(&self) -> String {
        let Estimate { value, low, high, .. } = self.value;
        match self.comparison {
            BoundKind::Ratio => format!("{value:.2} × ({low:.2} to {high:.2})"),
            BoundKind::DifferenceMs => signed_in("ms", &self.value),
            BoundKind::DifferenceUs => signed_in("µs", &self.value),
            BoundKind::Itself if low < high => {
                let [value, low, high] = [value, low, high].map(|value| self.figure.text(value));
                format!("{value} ({low} to {high})")
            }
            BoundKind::Itself => self.figure.text(value),
        }
    }

    /// The bound as text.
    pub fn bound(&self) -> String {
        let bound = |sign: &str, bound: f64| match self.comparison {
            BoundKind::Ratio => format!("{sign} {bound:.2} ×"),
            BoundKind::DifferenceMs => format!("{sign} {} ms", places(bound, bound)),
            BoundKind::DifferenceUs => format!("{sign} {} µs", places(bound, bound)),
            BoundKind::Itself => format!("{sign} {}", self.figure.text(bound)),
        };
        match (self.least, self.max) {
            (Some(_), Some(max)) => bound("±", max),
            (Some(least), None) => bound("≥", least),
            (None, Some(max)) => bound("≤", max),
            (None, None) => String::new(),
        }
    }
}

impl Figure {
    /// Formats a value with its unit.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::P50 | Self::P90 | Self::P95 | Self::P99 | Self::ServedP99 | Self::ControlSlowest => {
                format!("{} ms", places(value, value))
            }
            Self::ProxyCpu
            | Self::ClientCpu
            | Self::ProxyCpuPerMb
            | Self::EventDelayP50
            | Self::EventDelayP99 => format!("{} µs", places(value, value)),
            Self::ProxyMemory => format!("{} MiB", places(value, value)),
            Self::FailedShare | Self::AllowanceUsed | Self::ResumedShare => share(value),
            Self::CallsPerRequest => format!("{value:.2}"),
            Self::StoreCallsPerRequest => places(value, value),
            Self::BusiestWindow => format!("{value:.2} × limit"),
            Self::RequestsPerSecond
            | Self::Goodput
            | Self::RequestsPerCpuSecond
            | Self::ProviderCalls
            | Self::ProviderAdmitted
            | Self::ProviderRefused => thousands(value),
        }
    }
}

/// Formats a row of a text table.
impl fmt::Display for BoundedFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, scenario, figure, .. } = self;
        let beside = self.beside.as_deref().map(|beside| format!(" vs {beside}")).unwrap_or_default();
        let pair = format!("{scenario}{beside}");
        let (verdict, figure, text) = (self.verdict(), figure.to_string(), self.text());
        write!(f, "{verdict:<17} {case:<12} {pair:<30} {figure:<21} {text:<32} {}", self.bound())
    }
}

/// Judges all bounded figures of the experiment that the scenarios have.
pub(crate) fn bounded_figures(results: &Results) -> Vec<BoundedFigure> {
    let experiment = &results.metadata.experiment;
    let mut all = Vec::new();
    for hold in &experiment.hold {
        let is_meant = |case: &str| hold.cases.is_empty() || hold.cases.iter().any(|name| name == case);
        for case in experiment.cases.iter().map(|case| case.name.as_str()).filter(|case| is_meant(case)) {
            let itself = (hold.beside.is_empty() && hold.beside_case.is_none()).then_some(None);
            let beside = hold.beside.iter().chain(&hold.beside_case);
            for beside in beside.map(|beside| Some(beside.as_str())).chain(itself) {
                let each =
                    hold.figures.iter().filter_map(|figure| judge(results, hold, case, beside, *figure));
                all.extend(each);
            }
        }
    }
    all
}

fn judge(
    results: &Results,
    hold: &HoldConfig,
    case: &str,
    beside: Option<&str>,
    figure: Figure,
) -> Option<BoundedFigure> {
    let of = |case: &str, scenario: &str| -> BTreeMap<u32, f64> {
        let turns = results.turns.iter().filter(|turn| turn.case == case && turn.scenario == scenario);
        turns.filter_map(|turn| Some((turn.round, value(turn, figure)?))).collect()
    };
    let own = of(case, &hold.scenario);
    let (comparison, value, least, max) = match beside {
        None => {
            let own: Vec<f64> = own.into_values().collect();
            (BoundKind::Itself, estimate(&own)?, hold.at_least, hold.at_most)
        }
        Some(other) if hold.beside_case.is_some() => compared(hold, &own, &of(other, &hold.scenario))?,
        Some(beside) => compared(hold, &own, &of(case, beside))?,
    };
    let (case, scenario) = (case.to_owned(), hold.scenario.clone());
    Some(BoundedFigure {
        case,
        scenario,
        beside: beside.map(str::to_owned),
        figure,
        comparison,
        value,
        least,
        max,
    })
}

/// Compares a figure with another scenario's, round by round. Returns the kind of comparison, its result and
/// its bounds.
fn compared(
    hold: &HoldConfig,
    own: &BTreeMap<u32, f64>,
    others: &BTreeMap<u32, f64>,
) -> Option<(BoundKind, Estimate, Option<f64>, Option<f64>)> {
    let pairs = own.iter().filter_map(|(round, own)| Some((*own, *others.get(round)?)));
    let (own, others): (Vec<f64>, Vec<f64>) = pairs.unzip();
    Some(match (hold.within, hold.added_ms_at_most, hold.added_us_at_most) {
        (Some(within), ..) => {
            let apart = (median(&others)? * within.percent / 100.0).max(within.ms);
            (BoundKind::DifferenceMs, difference(&own, &others)?, Some(-apart), Some(apart))
        }
        (None, Some(max), _) => (BoundKind::DifferenceMs, difference(&own, &others)?, None, Some(max)),
        (None, None, Some(max)) => (BoundKind::DifferenceUs, difference(&own, &others)?, None, Some(max)),
        (None, None, None) => (BoundKind::Ratio, ratio(&own, &others)?, hold.at_least, hold.at_most),
    })
}

/// Reads a figure of a turn.
pub(super) fn value(turn: &Turn, figure: Figure) -> Option<f64> {
    match figure {
        Figure::P50 => turn.percentile_ms(50),
        Figure::P90 => turn.percentile_ms(90),
        Figure::P95 => turn.percentile_ms(95),
        Figure::P99 => turn.percentile_ms(99),
        Figure::ServedP99 => turn.figures.served_p99_ms,
        Figure::ControlSlowest => turn.control_slowest_ms,
        Figure::RequestsPerSecond => Some(turn.figures.requests_per_second),
        Figure::Goodput => Some(turn.goodput()),
        Figure::ProxyCpu => turn.proxy_cpu_us(),
        Figure::ProxyCpuPerMb => turn.proxy_cpu_us_per_mb(),
        Figure::EventDelayP50 => turn.figures.event_delays.map(|delays| real(delays.p50_us)),
        Figure::EventDelayP99 => turn.figures.event_delays.map(|delays| real(delays.p99_us)),
        Figure::RequestsPerCpuSecond => turn.requests_per_cpu_second(),
        Figure::ResumedShare => turn.resumed_share(),
        Figure::ClientCpu => turn.processes.get("client").map(|client| client.cpu_us_per_request),
        Figure::ProxyMemory => turn.proxy_memory_mib(),
        Figure::FailedShare => Some(turn.failed_share()),
        Figure::ProviderCalls => turn.counted.map(|counted| real(counted.calls)),
        Figure::CallsPerRequest => turn.calls_per_request(),
        Figure::ProviderAdmitted => limited(turn, |turn| Some(real(turn.rate_limit()?.admitted))),
        Figure::ProviderRefused => limited(turn, |turn| Some(real(turn.rate_limit()?.refused))),
        Figure::AllowanceUsed => limited(turn, Turn::allowance_used),
        Figure::BusiestWindow => limited(turn, Turn::busiest_window),
        Figure::StoreCallsPerRequest => turn.store_calls_per_request(),
    }
}

/// Reads a figure of a rate limit. If no call reached the limit, the figure is 0, so a bound is broken rather
/// than skipped.
fn limited(turn: &Turn, figure: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
    turn.counted.map(|_| figure(turn).unwrap_or(0.0))
}
