//! Figures to hold: what a scenario's are to be, beside those of others or by themselves.

use std::fmt;

use egret_config::Problem;
use serde::{Deserialize, Serialize};

/// Figures of a scenario, and what they are to be: by themselves, or beside the same of others, round by round. It has one bound.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HoldConfig {
    /// Whose figures.
    pub scenario: String,
    /// The scenarios that they are held against, each by itself. Where there are none, the bound is for the figure itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Which figures.
    pub figures: Vec<Figure>,
    /// The cases in which they are held; all where none is named.
    #[serde(default)]
    pub cases: Vec<String>,
    /// The figure is at most so many times the other's, or so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The figure is at least so many times the other's, or so much.
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
    /// Failed requests as a share of the answered ones, 0 to 1.
    FailedShare,
    /// Calls that the provider got.
    ProviderCalls,
    /// Calls that the provider got for each answered request.
    CallsPerRequest,
    /// Calls that the provider's rate limit let through.
    ProviderAdmitted,
    /// Calls that the provider's rate limit refused.
    ProviderRefused,
    /// What the provider let through, as a share of what its rate limit allows in that time.
    AllowanceUsed,
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
            Self::FailedShare => "failed",
            Self::ProviderCalls => "provider's calls",
            Self::CallsPerRequest => "calls/request",
            Self::ProviderAdmitted => "admitted by provider",
            Self::ProviderRefused => "refused by provider",
            Self::AllowanceUsed => "allowance used",
        })
    }
}

impl Figure {
    /// Whether it is a response time.
    fn is_time(self) -> bool {
        matches!(self, Self::P50 | Self::P90 | Self::P95 | Self::P99)
    }

    /// Whether it is the provider that counts it.
    fn is_counted(self) -> bool {
        matches!(self, Self::ProviderCalls | Self::CallsPerRequest) || self.is_of_rate_limit()
    }

    /// Whether only a provider with a rate limit has it.
    fn is_of_rate_limit(self) -> bool {
        matches!(self, Self::ProviderAdmitted | Self::ProviderRefused | Self::AllowanceUsed)
    }
}

impl HoldConfig {
    /// Every scenario that it names, with its key.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = (String, &str)> {
        let beside = self.beside.iter().enumerate();
        let beside = beside.map(|(index, name)| (format!("beside[{index}]"), name.as_str()));
        [("scenario".to_owned(), self.scenario.as_str())].into_iter().chain(beside)
    }

    /// What the types cannot say. `counts` says whether the provider tells what it counted.
    pub(super) fn problems(&self, path: &str, counts: bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.figures.is_empty() {
            problems.push(Problem::new(format!("{path}.figures"), "at least one is needed"));
        }
        if !counts && self.figures.iter().any(|figure| figure.is_counted()) {
            let message = "only the built-in provider tells what it counted, without TLS and `--prefix`";
            problems.push(Problem::new(format!("{path}.figures"), message));
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
        if of_times && self.beside.is_empty() {
            let message = "`within` and `added_ms_at_most` need the key `beside`: what they are held against";
            problems.push(Problem::new(path, message));
        }
        if of_times && !self.figures.iter().all(|figure| figure.is_time()) {
            let message =
                "`within` and `added_ms_at_most` are for response times: `p50`, `p90`, `p95`, `p99`";
            problems.push(Problem::new(format!("{path}.figures"), message));
        }
        problems
    }
}
