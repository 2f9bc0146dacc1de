//! Bounds on a scenario's figures, by themselves or compared with those of other scenarios.

use egret_config::Problem;
use egret_items::words;
use serde::{Deserialize, Serialize};

/// Figures of a scenario and their one bound. The bound applies to the figures themselves, or to a comparison
/// with the same figures of other scenarios, round by round.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HoldConfig {
    /// The scenario that the figures belong to.
    pub scenario: String,
    /// The scenarios it is compared with, one at a time. If empty, the bound applies to the figures
    /// themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// The case whose figures of the same scenario it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_case: Option<String>,
    /// The bounded figures.
    pub figures: Vec<Figure>,
    /// The cases to which the bound applies; all if empty.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Upper bound: a multiple of the other scenario's figure, or a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Lower bound: a multiple of the other scenario's figure, or a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Maximum difference from the other scenario's figure, in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// Upper bound of the time added to the other scenario's figure, a response time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ms_at_most: Option<f64>,
    /// Upper bound of what is added to the other scenario's figure, in microseconds, which must be the
    /// figure's own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_us_at_most: Option<f64>,
}

/// The maximum difference of two times: the larger of the two values applies.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// Percent of the other scenario's time.
    pub percent: f64,
    /// Milliseconds.
    pub ms: f64,
}

words! {
    /// A figure of a turn.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Figure: Display {
        /// Median response time.
        P50 => "p50",
        /// 90th percentile of the response time.
        P90 => "p90",
        /// 95th percentile of the response time.
        P95 => "p95",
        /// 99th percentile of the response time.
        P99 => "p99",
        /// 99th percentile of the response time of responses with a status of 2xx.
        ServedP99 => "p99 of 2xx",
        /// Longest time that the control API of Egret took to respond.
        ControlSlowest => "control API",
        /// Requests per second.
        RequestsPerSecond => "requests/s",
        /// Requests per second that did not fail.
        Goodput => "goodput/s",
        /// CPU time of the proxy per request.
        ProxyCpu => "CPU/request",
        /// CPU time of the proxy per megabyte (10⁶ bytes) of response bodies that the client has received.
        ProxyCpuPerMb => "CPU/MB",
        /// Median delay of an event of a stream.
        EventDelayP50 => "event delay p50",
        /// 99th percentile of the delay of an event of a stream.
        EventDelayP99 => "event delay p99",
        /// Completed requests per second of the proxy's CPU time.
        RequestsPerCpuSecond => "requests/CPU second",
        /// Connections that resumed a TLS session per completed request, 0 to 1.
        ResumedShare => "resumed",
        /// CPU time of the client per request.
        ClientCpu => "client's CPU/request",
        /// Highest memory use of the proxy.
        ProxyMemory => "memory",
        /// Failed requests as a share of the completed ones, 0 to 1.
        FailedShare => "failed",
        /// Calls received by the provider.
        ProviderCalls => "provider's calls",
        /// Calls received by the provider per completed request.
        CallsPerRequest => "calls/request",
        /// Calls admitted by the provider's rate limit.
        ProviderAdmitted => "admitted by provider",
        /// Calls rejected by the provider's rate limit.
        ProviderRefused => "refused by provider",
        /// Admitted calls as a share of the calls that the provider's rate limit allows in that time.
        AllowanceUsed => "allowance used",
        /// Calls in the busiest window of the provider's rate limit, as a multiple of the limit.
        BusiestWindow => "busiest window",
        /// Calls received by the stores of the proxies per completed request.
        StoreCallsPerRequest => "store calls/request",
    }
}

impl Figure {
    /// Returns `true` for a response time.
    fn is_time(self) -> bool {
        matches!(self, Self::P50 | Self::P90 | Self::P95 | Self::P99 | Self::ServedP99 | Self::ControlSlowest)
    }

    /// Returns `true` for a figure in microseconds.
    fn is_in_us(self) -> bool {
        let is_cpu = matches!(self, Self::ProxyCpu | Self::ClientCpu | Self::ProxyCpuPerMb);
        is_cpu || matches!(self, Self::EventDelayP50 | Self::EventDelayP99)
    }

    /// Returns `true` for a figure that the provider counts.
    fn is_counted(self) -> bool {
        matches!(self, Self::ProviderCalls | Self::CallsPerRequest) || self.is_of_rate_limit()
    }

    /// Returns `true` for a figure that only a provider with a rate limit has.
    fn is_of_rate_limit(self) -> bool {
        matches!(
            self,
            Self::ProviderAdmitted | Self::ProviderRefused | Self::AllowanceUsed | Self::BusiestWindow
        )
    }
}

impl HoldConfig {
    /// Every scenario named in the entry, with its key.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = (String, &str)> {
        let beside = self.beside.iter().enumerate();
        let beside = beside.map(|(index, name)| (format!("beside[{index}]"), name.as_str()));
        [("scenario".to_owned(), self.scenario.as_str())].into_iter().chain(beside)
    }

    /// Checks the rules that the types cannot express. `counts` is `true` if the provider has counters.
    pub(super) fn problems(&self, path: &str, counts: bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.figures.is_empty() {
            problems.push(Problem::new(format!("{path}.figures"), "at least one is required"));
        }
        if !counts && self.figures.iter().any(|figure| figure.is_counted()) {
            let message = "only the built-in provider has counters, and only without TLS and `--prefix`";
            problems.push(Problem::new(format!("{path}.figures"), message));
        }
        let within = self.within.map(|within| within.ms);
        let bounds = [self.at_most, self.at_least, self.added_ms_at_most, self.added_us_at_most, within];
        let mut bounds = bounds.into_iter().flatten();
        let (first, second) = (bounds.next(), bounds.next());
        if first.is_none() || second.is_some() {
            let message = "exactly one bound is required: `at_most`, `at_least`, `within`, `added_ms_at_most` or `added_us_at_most`";
            problems.push(Problem::new(path, message));
        }
        let sizes = [first, second, self.within.map(|within| within.percent)];
        if sizes.into_iter().flatten().any(|size| !size.is_finite() || size < 0.0) {
            problems.push(Problem::new(path, "a bound must be a number from 0"));
        }
        let of_times = self.within.is_some() || self.added_ms_at_most.is_some();
        let is_alone = self.beside.is_empty() && self.beside_case.is_none();
        if !self.beside.is_empty() && self.beside_case.is_some() {
            let message =
                "a figure is compared with other scenarios, or with another case: remove one of them";
            problems.push(Problem::new(format!("{path}.beside_case"), message));
        }
        if (of_times || self.added_us_at_most.is_some()) && is_alone {
            let message = "`within`, `added_ms_at_most` and `added_us_at_most` require the key `beside`: the scenarios to compare with";
            problems.push(Problem::new(path, message));
        }
        if of_times && !self.figures.iter().all(|figure| figure.is_time()) {
            let message =
                "`within` and `added_ms_at_most` apply only to response times: `p50`, `p90`, `p95`, `p99`";
            problems.push(Problem::new(format!("{path}.figures"), message));
        }
        if self.added_us_at_most.is_some() && !self.figures.iter().all(|figure| figure.is_in_us()) {
            let message = "`added_us_at_most` applies only to figures in µs: `proxy_cpu`, `client_cpu`, `proxy_cpu_per_mb`, `event_delay_p50`, `event_delay_p99`";
            problems.push(Problem::new(format!("{path}.figures"), message));
        }
        problems
    }
}
