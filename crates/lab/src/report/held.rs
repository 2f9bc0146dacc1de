//! Whether figures are held that the experiment says are to be, and how surely that can be told.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::verdict::{places, signed_ms};
use crate::experiment::{Figure, HoldConfig, Results, Turn};
use crate::statistics::{Estimate, difference, median, ratio};

/// A figure that is to be held, beside another scenario's.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Held {
    /// The case.
    pub case: String,
    /// Whose figure.
    pub scenario: String,
    /// Whose it is held against.
    pub beside: String,
    /// Which figure.
    pub figure: Figure,
    /// How they are compared.
    pub comparison: Comparison,
    /// What came of it: the median over the rounds.
    pub value: Estimate,
    /// The least that the value may be, where there is such a bound.
    pub least: Option<f64>,
    /// The most that the value may be, where there is such a bound.
    pub most: Option<f64>,
}

/// How two figures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// How many times the other's it is.
    Ratio,
    /// How many milliseconds it lies above the other's.
    DifferenceMs,
}

impl Held {
    /// Whether the value is within its bounds.
    pub fn holds(&self) -> bool {
        self.allows(self.value.value)
    }

    /// Whether all of the interval says the same.
    pub fn is_sure(&self) -> bool {
        let Estimate { low, high, .. } = self.value;
        let within = self.allows(low) && self.allows(high);
        let beyond = self.least.is_some_and(|least| high < least) || self.most.is_some_and(|most| low > most);
        self.value.is_firm() && (within || beyond)
    }

    fn allows(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }

    /// The verdict in a word or two.
    pub fn verdict(&self) -> &'static str {
        match (self.holds(), self.is_sure()) {
            (true, true) => "held",
            (true, false) => "held, unsure",
            (false, true) => "NOT HELD",
            (false, false) => "NOT HELD, unsure",
        }
    }

    /// The value with its interval.
    pub fn told(&self) -> String {
        let Estimate { value, low, high, .. } = self.value;
        match self.comparison {
            Comparison::Ratio => format!("{value:.2} × ({low:.2} to {high:.2})"),
            Comparison::DifferenceMs => signed_ms(&self.value),
        }
    }

    /// What it is to be.
    pub fn bound(&self) -> String {
        let bound = |sign: &str, bound: f64| match self.comparison {
            Comparison::Ratio => format!("{sign} {bound:.2} ×"),
            Comparison::DifferenceMs => format!("{sign} {} ms", places(bound, bound)),
        };
        match (self.least, self.most) {
            (Some(_), Some(most)) => bound("±", most),
            (Some(least), None) => bound("≥", least),
            (None, Some(most)) => bound("≤", most),
            (None, None) => String::new(),
        }
    }
}

/// A line of a table for people.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, scenario, beside, figure, .. } = self;
        let pair = format!("{scenario} beside {beside}");
        let (verdict, figure, told) = (self.verdict(), figure.to_string(), self.told());
        write!(f, "{verdict:<17} {case:<12} {pair:<30} {figure:<21} {told:<32} {}", self.bound())
    }
}

/// All figures that the experiment says are to be held, as far as both scenarios have them.
pub fn held(results: &Results) -> Vec<Held> {
    let experiment = &results.metadata.experiment;
    let mut all = Vec::new();
    for hold in &experiment.hold {
        let is_meant = |case: &str| hold.cases.is_empty() || hold.cases.iter().any(|name| name == case);
        for case in experiment.cases.iter().map(|case| case.name.as_str()).filter(|case| is_meant(case)) {
            for beside in &hold.beside {
                let each =
                    hold.figures.iter().filter_map(|figure| judge(results, hold, case, beside, *figure));
                all.extend(each);
            }
        }
    }
    all
}

fn judge(results: &Results, hold: &HoldConfig, case: &str, beside: &str, figure: Figure) -> Option<Held> {
    let of = |scenario: &str| -> BTreeMap<u32, f64> {
        let turns = results.turns.iter().filter(|turn| turn.case == case && turn.scenario == scenario);
        turns.filter_map(|turn| Some((turn.round, value(turn, figure)?))).collect()
    };
    let (own, others) = (of(&hold.scenario), of(beside));
    let pairs = own.iter().filter_map(|(round, own)| Some((*own, *others.get(round)?)));
    let (own, others): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let (comparison, least, most) = match (hold.within, hold.added_ms_at_most) {
        (Some(within), _) => {
            let apart = (median(&others)? * within.percent / 100.0).max(within.ms);
            (Comparison::DifferenceMs, Some(-apart), Some(apart))
        }
        (None, Some(most)) => (Comparison::DifferenceMs, None, Some(most)),
        (None, None) => (Comparison::Ratio, hold.at_least, hold.at_most),
    };
    let value = match comparison {
        Comparison::Ratio => ratio(&own, &others)?,
        Comparison::DifferenceMs => difference(&own, &others)?,
    };
    let (case, scenario, beside) = (case.to_owned(), hold.scenario.clone(), beside.to_owned());
    Some(Held { case, scenario, beside, figure, comparison, value, least, most })
}

fn value(turn: &Turn, figure: Figure) -> Option<f64> {
    match figure {
        Figure::P50 => turn.percentile_ms(50),
        Figure::P90 => turn.percentile_ms(90),
        Figure::P95 => turn.percentile_ms(95),
        Figure::P99 => turn.percentile_ms(99),
        Figure::RequestsPerSecond => Some(turn.figures.requests_per_second),
        Figure::ProxyCpu => turn.proxy_cpu_us(),
        Figure::ClientCpu => turn.processes.get("client").map(|client| client.cpu_us_per_request),
        Figure::ProxyMemory => turn.proxy_memory_mib(),
    }
}
