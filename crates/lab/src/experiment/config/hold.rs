//! Figures to hold: what a scenario's are to be beside those of others.

use std::fmt;

use egret_config::Problem;
use serde::{Deserialize, Serialize};

/// Figures of a scenario, and what they are to be beside the same of others, round by round. It has one bound.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HoldConfig {
    /// Whose figures.
    pub scenario: String,
    /// The scenarios that they are held against, each by itself.
    pub beside: Vec<String>,
    /// Which figures.
    pub figures: Vec<Figure>,
    /// The cases in which they are held; all where none is named.
    #[serde(default)]
    pub cases: Vec<String>,
    /// The figure is at most so many times the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The figure is at least so many times the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Both are the same but for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// The figure, in milliseconds, is at most so much above the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ms_at_most: Option<f64>,
}

/// How far two times may lie apart: whichever is more.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// Percent of the other's.
    pub percent: f64,
    /// Milliseconds.
    pub ms: f64,
}

/// A figure of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Half of the response times are at or below it.
    P50,
    /// 90 % of them are.
    P90,
    /// 95 % of them are.
    P95,
    /// 99 % of them are.
    P99,
    /// Answers in a second.
    RequestsPerSecond,
    /// CPU time of the proxy for each request.
    ProxyCpu,
    /// CPU time of the client for each request.
    ClientCpu,
    /// The most memory that the proxy had.
    ProxyMemory,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::RequestsPerSecond => "requests/s",
            Self::ProxyCpu => "CPU/request",
            Self::ClientCpu => "client's CPU/request",
            Self::ProxyMemory => "memory",
        })
    }
}

impl Figure {
    /// Whether it is a response time.
    fn is_time(self) -> bool {
        matches!(self, Self::P50 | Self::P90 | Self::P95 | Self::P99)
    }
}

impl HoldConfig {
    /// Every scenario that it names, with its key.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = (String, &str)> {
        let beside = self.beside.iter().enumerate();
        let beside = beside.map(|(index, name)| (format!("beside[{index}]"), name.as_str()));
        [("scenario".to_owned(), self.scenario.as_str())].into_iter().chain(beside)
    }

    /// What the types cannot say.
    pub(super) fn problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, is_empty) in [("beside", self.beside.is_empty()), ("figures", self.figures.is_empty())] {
            if is_empty {
                problems.push(Problem::new(format!("{path}.{key}"), "at least one is needed"));
            }
        }
        let bounds =
            [self.at_most, self.at_least, self.added_ms_at_most, self.within.map(|within| within.ms)];
        let mut bounds = bounds.into_iter().flatten();
        let (first, second) = (bounds.next(), bounds.next());
        if first.is_none() || second.is_some() {
            let message = "one bound is needed: `at_most`, `at_least`, `within` or `added_ms_at_most`";
            problems.push(Problem::new(path, message));
        }
        let sizes = [first, second, self.within.map(|within| within.percent)];
        if sizes.into_iter().flatten().any(|size| !size.is_finite() || size < 0.0) {
            problems.push(Problem::new(path, "a bound is a number from 0"));
        }
        let of_times = self.within.is_some() || self.added_ms_at_most.is_some();
        if of_times && !self.figures.iter().all(|figure| figure.is_time()) {
            let message =
                "`within` and `added_ms_at_most` are for response times: `p50`, `p90`, `p95`, `p99`";
            problems.push(Problem::new(format!("{path}.figures"), message));
        }
        problems
    }
}
