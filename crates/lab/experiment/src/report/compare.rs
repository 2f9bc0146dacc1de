//! Compares two runs of an experiment: whether they differ, and by how much.

use std::fmt;

use egret_measure::statistics::{Estimate, difference_of_runs, median, ratio_of_runs};

use super::case_summary::{CaseSummary, RoundFigures, ScenarioSummary};
use super::format::places;
use super::summary::Summary;

/// A comparison of two runs, figure by figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Every figure that both runs have.
    pub differences: Vec<Difference>,
    /// Minimum relative difference that counts, besides being significant.
    pub tolerance: f64,
    /// Cases and scenarios that only one of the runs has.
    pub unmatched: Vec<String>,
}

/// A figure in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Case and scenario.
    pub place: String,
    /// Name of the figure, with its unit.
    pub figure: &'static str,
    /// The median in the first run.
    pub a: f64,
    /// The median in the second run.
    pub b: f64,
    /// Relative change: +0.05 is 5 % more. For time added to the baseline, it is relative to the response
    /// time.
    pub change: Estimate,
    /// `true` if more is better.
    pub more_is_better: bool,
}

impl Difference {
    /// Returns `true` if the second run differs significantly, and by more than `tolerance`.
    pub fn is_clear(&self, tolerance: f64) -> bool {
        self.change.is_firm() && self.change.excludes(0.0) && self.change.value.abs() > tolerance
    }

    /// Returns `true` if the second run is clearly worse.
    pub fn is_worse(&self, tolerance: f64) -> bool {
        self.is_clear(tolerance) && (self.change.value > 0.0) != self.more_is_better
    }
}

impl Comparison {
    /// Returns `true` if the second run is clearly worse in any figure.
    pub fn is_worse(&self) -> bool {
        self.differences.iter().any(|difference| difference.is_worse(self.tolerance))
    }

    /// Returns `true` if the runs clearly differ in any figure, for better or worse.
    pub fn differs(&self) -> bool {
        self.differences.iter().any(|difference| difference.is_clear(self.tolerance))
    }
}

/// Compares two runs by the medians over each run's rounds.
///
/// Rounds of separate runs cannot be paired, so a machine that was slower during one whole run shows as a
/// difference. The time added to the baseline is the figure to trust.
pub fn compare(a: &Summary, b: &Summary, tolerance: f64) -> Comparison {
    let mut comparison = Comparison { differences: Vec::new(), tolerance, unmatched: Vec::new() };
    for case in &a.cases {
        let Some(other) = b.cases.iter().find(|other| other.case == case.case) else {
            comparison.unmatched.push(format!("{}: only in the first", case.case));
            continue;
        };
        for scenario in &case.scenarios {
            match other.scenario(&scenario.scenario) {
                Some(same) => {
                    let first = ScenarioRef { case, scenario };
                    let second = ScenarioRef { case: other, scenario: same };
                    comparison.differences.extend(figures(first, second, &a.baseline));
                }
                None => comparison
                    .unmatched
                    .push(format!("{} {}: only in the first", case.case, scenario.scenario)),
            }
        }
        let only_second =
            other.scenarios.iter().filter(|scenario| case.scenario(&scenario.scenario).is_none());
        comparison.unmatched.extend(
            only_second.map(|scenario| format!("{} {}: only in the second", case.case, scenario.scenario)),
        );
    }
    let only_second = b.cases.iter().filter(|case| a.cases.iter().all(|own| own.case != case.case));
    comparison.unmatched.extend(only_second.map(|case| format!("{}: only in the second", case.case)));
    comparison
}

/// A figure of a round.
type RoundFigure = fn(&RoundFigures) -> Option<f64>;

/// A scenario of a run, in one of its cases.
#[derive(Clone, Copy)]
struct ScenarioRef<'a> {
    case: &'a CaseSummary,
    scenario: &'a ScenarioSummary,
}

fn figures(a: ScenarioRef<'_>, b: ScenarioRef<'_>, baseline: &str) -> Vec<Difference> {
    let added: [(&str, RoundFigure); 2] =
        [("added p50 ms", |round| round.p50_ms), ("added p99 ms", |round| round.p99_ms)];
    let whole: [(&str, RoundFigure); 5] = [
        ("p50 ms", |round| round.p50_ms),
        ("p99 ms", |round| round.p99_ms),
        (RATE, |round| Some(round.requests_per_second)),
        ("CPU µs/request", |round| round.cpu_us_per_request),
        ("memory MiB", |round| round.memory_mib),
    ];
    let is_baseline = a.scenario.scenario == baseline;
    let added = added.into_iter().filter(|_| !is_baseline);
    let added = added.filter_map(|(name, figure)| of_added(a, b, baseline, name, figure));
    let whole = whole.into_iter().filter_map(|(name, figure)| of_whole(a, b, name, figure));
    added.chain(whole).collect()
}

/// The only figure of which more is better.
const RATE: &str = "requests/s";

fn of_whole(
    a: ScenarioRef<'_>,
    b: ScenarioRef<'_>,
    name: &'static str,
    figure: RoundFigure,
) -> Option<Difference> {
    let [first, second] = [a, b].map(|at| rounds(at.scenario, figure));
    let ratio = ratio_of_runs(&first, &second)?;
    let change = Estimate { value: ratio.value - 1.0, low: ratio.low - 1.0, high: ratio.high - 1.0, ..ratio };
    difference(a, name, &first, &second, change)
}

/// Compares the added time relative to the response time of the first run, because the added time itself may
/// be close to zero.
fn of_added(
    a: ScenarioRef<'_>,
    b: ScenarioRef<'_>,
    baseline: &str,
    name: &'static str,
    figure: RoundFigure,
) -> Option<Difference> {
    let added = |at: ScenarioRef<'_>| -> Option<Vec<f64>> {
        let (own, theirs) = at.scenario.paired(at.case.scenario(baseline)?, figure);
        Some(own.iter().zip(&theirs).map(|(own, theirs)| own - theirs).collect())
    };
    let (first, second) = (added(a)?, added(b)?);
    let added = difference_of_runs(&first, &second)?;
    let whole = median(&rounds(a.scenario, figure)).filter(|whole| *whole > 0.0)?;
    let [value, low, high] = [added.value, added.low, added.high].map(|time| time / whole);
    difference(a, name, &first, &second, Estimate { value, low, high, ..added })
}

fn rounds(of: &ScenarioSummary, figure: RoundFigure) -> Vec<f64> {
    of.by_round.iter().filter_map(figure).collect()
}

fn difference(
    at: ScenarioRef<'_>,
    figure: &'static str,
    first: &[f64],
    second: &[f64],
    change: Estimate,
) -> Option<Difference> {
    Some(Difference {
        place: format!("{} {}", at.case.case, at.scenario.scenario),
        figure,
        a: median(first)?,
        b: median(second)?,
        change,
        more_is_better: figure == RATE,
    })
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            self.differences.iter().map(|difference| difference.place.chars().count()).max().unwrap_or(0);
        writeln!(f, "{:width$}  {:14}  {:>10}  {:>10}  change", "", "", "first", "second")?;
        for difference in &self.differences {
            let Difference { place, figure, a, b, change, .. } = difference;
            let word = match (difference.is_clear(self.tolerance), difference.is_worse(self.tolerance)) {
                (_, true) => "  WORSE",
                (true, false) => "  better",
                (false, false) => "",
            };
            let [a, b] = [a, b].map(|value| places(*value, value.abs()).replace('-', "−"));
            let (value, margin) = (change.value * 100.0, change.margin() * 100.0);
            writeln!(f, "{place:width$}  {figure:14}  {a:>10}  {b:>10}  {value:+.1} % ± {margin:.1}{word}")?;
        }
        for place in &self.unmatched {
            writeln!(f, "{place}")?;
        }
        let tolerance = self.tolerance * 100.0;
        if self.differences.is_empty() {
            writeln!(f, "The runs have nothing in common.")
        } else if !self.differences.iter().any(|difference| difference.change.is_firm()) {
            writeln!(f, "Too few rounds to decide whether the runs differ.")
        } else if !self.differs() {
            writeln!(
                f,
                "The runs do not differ: no figure changed significantly and by more than {tolerance:.0} %."
            )
        } else if self.is_worse() {
            writeln!(
                f,
                "The second run is worse, significantly and by more than {tolerance:.0} %, in the lines marked WORSE."
            )
        } else {
            writeln!(
                f,
                "The second run is better, significantly and by more than {tolerance:.0} %, in the lines marked better."
            )
        }
    }
}
