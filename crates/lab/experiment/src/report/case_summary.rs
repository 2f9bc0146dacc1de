//! The figures of a case: medians over rounds, the time each scenario adds to the baseline, and confidence
//! intervals.

use std::collections::BTreeMap;
use std::fmt::Write;

use egret_measure::statistics::{Estimate, difference, estimate, real};
use serde::{Deserialize, Serialize};

use crate::config::{CaseConfig, Experiment};
use crate::results::{Results, Turn};

/// The figures of one case.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CaseSummary {
    /// Name of the case.
    pub case: String,
    /// Provider time, if the case sets it.
    pub delay_ms: Option<f64>,
    /// Offered rate, in the open model.
    pub offered_per_second: Option<u32>,
    /// Every scenario with at least one turn.
    pub scenarios: Vec<ScenarioSummary>,
}

/// The figures of one scenario in one case.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ScenarioSummary {
    /// Name of the scenario.
    pub scenario: String,
    /// Kind of proxy: `direct`, `egret`, or `peer`.
    pub kind: ProxyKind,
    /// Number of completed rounds.
    pub rounds: usize,
    /// Number of completed requests in all rounds.
    pub requests: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Response time for each whole percentile from 0 to 100; empty if the client reports none.
    pub response_ms: Vec<Estimate>,
    /// Time added to the baseline for each whole percentile; empty for the baseline itself.
    pub added_ms: Vec<Estimate>,
    /// Mean response time, if the client reports it.
    pub mean_ms: Option<Estimate>,
    /// Requests per second.
    pub requests_per_second: Estimate,
    /// CPU time of the proxy per request.
    pub cpu_us_per_request: Option<Estimate>,
    /// Highest memory use of the proxy.
    pub memory_mib: Option<Estimate>,
    /// Failed requests as a share of the completed ones.
    pub failed_share: Option<Estimate>,
    /// The provider's counters, if it has them.
    pub counted: Option<CountedSummary>,
    /// CPU time of each service per request, by its name.
    #[serde(default)]
    pub services_cpu_us_per_request: BTreeMap<String, Estimate>,
    /// Calls received by the stores of the proxies per completed request.
    pub store_calls_per_request: Option<Estimate>,
    /// Figures of each round.
    pub by_round: Vec<RoundFigures>,
}

/// The provider's counters in a turn.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CountedSummary {
    /// Calls received.
    pub calls: Estimate,
    /// Calls received per completed request.
    pub calls_per_request: Estimate,
    /// Calls admitted by the rate limits, if there are any.
    pub admitted: Option<Estimate>,
    /// Calls rejected by the rate limits.
    pub refused: Option<Estimate>,
    /// Admitted calls as a share of the calls that the rate limits allow in that time.
    pub allowance_used: Option<Estimate>,
    /// Calls in the busiest window of the rate limits, as a multiple of the limit.
    pub busiest_window: Option<Estimate>,
}

/// The kind of proxy in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyKind {
    /// No proxy.
    Direct,
    /// Egret.
    Egret,
    /// Another proxy.
    Peer,
}

/// The figures of one round, for comparisons within a round.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct RoundFigures {
    /// Number of the round, from 1.
    pub round: u32,
    /// 50th percentile of the response time.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the response time.
    pub p99_ms: Option<f64>,
    /// Requests per second.
    pub requests_per_second: f64,
    /// CPU time of the proxy per request.
    pub cpu_us_per_request: Option<f64>,
    /// Highest memory use of the proxy.
    pub memory_mib: Option<f64>,
}

impl CaseSummary {
    /// Evaluates the turns of a case.
    pub fn of(results: &Results, index: usize, baseline: &str) -> Self {
        let experiment = &results.metadata.experiment;
        let case = &experiment.cases[index];
        let against = rounds(results, &case.name, baseline);
        let scenarios = experiment.scenarios.iter().filter_map(|scenario| {
            let turns = rounds(results, &case.name, &scenario.name);
            let kind = if scenario.is_direct() {
                ProxyKind::Direct
            } else if scenario.egret.is_some() {
                ProxyKind::Egret
            } else {
                ProxyKind::Peer
            };
            let against = (scenario.name != baseline).then_some(&against);
            ScenarioSummary::of(&scenario.name, kind, &turns, against)
        });
        Self {
            case: case.name.clone(),
            delay_ms: case.delay.map(|delay| delay.get().as_secs_f64() * 1e3),
            offered_per_second: offered_per_second(experiment, case),
            scenarios: scenarios.collect(),
        }
    }

    /// Finds a scenario by name.
    pub fn scenario(&self, name: &str) -> Option<&ScenarioSummary> {
        self.scenarios.iter().find(|scenario| scenario.scenario == name)
    }
}

/// The rate offered to all scenarios of a case, if it is the same.
fn offered_per_second(experiment: &Experiment, case: &CaseConfig) -> Option<u32> {
    let mut rates =
        experiment.scenarios.iter().map(|scenario| experiment.client(case, scenario).requests_per_second);
    let first = rates.next()??;
    rates.all(|rate| rate == Some(first)).then_some(first)
}

/// The turns of a scenario by round.
pub(super) type Rounds<'a> = BTreeMap<u32, &'a Turn>;

/// Collects the turns of a scenario.
pub(super) fn rounds<'a>(results: &'a Results, case: &str, scenario: &str) -> Rounds<'a> {
    let turns = results.turns.iter().filter(|turn| turn.case == case && turn.scenario == scenario);
    turns.map(|turn| (turn.round, turn)).collect()
}

impl ScenarioSummary {
    /// Evaluates the turns of a scenario. Returns `None` if there is none.
    fn of(name: &str, kind: ProxyKind, turns: &Rounds<'_>, baseline: Option<&Rounds<'_>>) -> Option<Self> {
        let over = |figure: &dyn Fn(&Turn) -> Option<f64>| {
            estimate(&turns.values().filter_map(|turn| figure(turn)).collect::<Vec<_>>())
        };
        let percentiles = 0..=100;
        let added = |baseline: &Rounds<'_>| {
            percentiles.clone().map_while(|percent| added(turns, baseline, percent)).collect()
        };
        let counted = || {
            Some(CountedSummary {
                calls: over(&|turn| Some(real(turn.counted?.calls)))?,
                calls_per_request: over(&Turn::calls_per_request)?,
                admitted: over(&|turn| Some(real(turn.rate_limit()?.admitted))),
                refused: over(&|turn| Some(real(turn.rate_limit()?.refused))),
                allowance_used: over(&Turn::allowance_used),
                busiest_window: over(&Turn::busiest_window),
            })
        };
        let by_round = turns.values().map(|turn| RoundFigures {
            round: turn.round,
            p50_ms: turn.percentile_ms(50),
            p99_ms: turn.percentile_ms(99),
            requests_per_second: turn.figures.requests_per_second,
            cpu_us_per_request: turn.proxy_cpu_us(),
            memory_mib: turn.proxy_memory_mib(),
        });
        Some(Self {
            scenario: name.to_owned(),
            kind,
            rounds: turns.len(),
            requests: turns.values().map(|turn| turn.figures.requests).sum(),
            failed: turns.values().map(|turn| turn.figures.failed).sum(),
            response_ms: percentiles
                .clone()
                .map_while(|percent| over(&|turn| turn.percentile_ms(percent)))
                .collect(),
            added_ms: baseline.map(added).unwrap_or_default(),
            mean_ms: over(&|turn| turn.figures.mean_ms),
            requests_per_second: over(&|turn| Some(turn.figures.requests_per_second))?,
            cpu_us_per_request: over(&Turn::proxy_cpu_us),
            memory_mib: over(&Turn::proxy_memory_mib),
            failed_share: over(&|turn| Some(turn.failed_share())),
            counted: counted(),
            services_cpu_us_per_request: services_cpu_us(turns),
            store_calls_per_request: over(&Turn::store_calls_per_request),
            by_round: by_round.collect(),
        })
    }

    /// Formats the medians like ab's CSV of percentiles.
    pub fn percentiles_csv(&self) -> String {
        let mut csv = "Percentage served,Time in ms\n".to_owned();
        for (percent, time) in self.response_ms.iter().enumerate() {
            let _ = writeln!(csv, "{percent},{:.3}", time.value);
        }
        csv
    }

    /// Pairs a figure of this scenario and of another one over the rounds that both have, in order of rounds.
    pub fn paired(
        &self,
        other: &Self,
        figure: impl Fn(&RoundFigures) -> Option<f64>,
    ) -> (Vec<f64>, Vec<f64>) {
        let pairs = self.by_round.iter().filter_map(|own| {
            let theirs = other.by_round.iter().find(|theirs| theirs.round == own.round)?;
            Some((figure(own)?, figure(theirs)?))
        });
        pairs.unzip()
    }
}

/// Estimates the CPU time of each service per request.
fn services_cpu_us(turns: &Rounds<'_>) -> BTreeMap<String, Estimate> {
    let mut of_services: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (service, cpu_us) in turns.values().flat_map(|turn| turn.services_cpu_us()) {
        of_services.entry(service).or_default().push(cpu_us);
    }
    let estimates = of_services.into_iter();
    estimates.filter_map(|(service, values)| Some((service.to_owned(), estimate(&values)?))).collect()
}

/// Estimates the time added at a percentile from the differences within the rounds that both have.
fn added(turns: &Rounds<'_>, baseline: &Rounds<'_>, percent: usize) -> Option<Estimate> {
    let pairs = turns.iter().filter_map(|(round, turn)| {
        Some((turn.percentile_ms(percent)?, baseline.get(round)?.percentile_ms(percent)?))
    });
    let (own, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
    difference(&own, &theirs)
}
