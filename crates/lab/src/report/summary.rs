//! The figures of a results folder: medians over rounds, what each scenario adds to the baseline, and how surely.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::held::{Held, held};
use super::table::Table;
use super::verdict;
use crate::experiment::{CaseConfig, Experiment, Results, Turn, real};
use crate::statistics::{Estimate, difference, estimate, slope};

/// Percentiles of which the growth with provider time is told.
pub const SLOPE_PERCENTILES: [usize; 4] = [50, 90, 95, 99];

/// What a results folder says.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// The version of this file's shape: 1.
    pub version: u32,
    /// The experiment's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Whether it was the quick profile.
    pub quick: bool,
    /// Whether every turn was taken.
    pub whole: bool,
    /// The scenario that the others are held against.
    pub baseline: String,
    /// The outcome in words, the most important first.
    pub verdict: Vec<String>,
    /// What makes figures doubtful.
    pub doubts: Vec<String>,
    /// Whether failing requests are part of what is asked.
    #[serde(default)]
    pub failures_expected: bool,
    /// The kinds of work.
    pub cases: Vec<CaseSummary>,
    /// How what is added grows with provider time, where the cases differ in it.
    pub slopes: Vec<SlopeSummary>,
    /// Tables across two cases.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// Figures that are to be held.
    #[serde(default)]
    pub held: Vec<Held>,
}

/// One kind of work.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CaseSummary {
    /// Its name.
    pub case: String,
    /// The time that the provider takes, where the case says.
    pub delay_ms: Option<f64>,
    /// The rate that was offered, in the open model.
    pub offered_per_second: Option<u32>,
    /// Every scenario that has a turn.
    pub scenarios: Vec<ScenarioSummary>,
}

/// One scenario in one case.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ScenarioSummary {
    /// Its name.
    pub scenario: String,
    /// What goes through: `direct`, `egret`, or `peer`.
    pub kind: Kind,
    /// Rounds that were taken.
    pub rounds: usize,
    /// Requests that were answered, all rounds together.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Response time for each whole percentile from 0 to 100; empty where the client tells none.
    pub response_ms: Vec<Estimate>,
    /// What it adds to the baseline, for each whole percentile; empty for the baseline itself.
    pub added_ms: Vec<Estimate>,
    /// Mean response time, where the client tells.
    pub mean_ms: Option<Estimate>,
    /// Answers in a second.
    pub requests_per_second: Estimate,
    /// CPU time of the proxy for each request.
    pub cpu_us_per_request: Option<Estimate>,
    /// The most memory that the proxy had.
    pub memory_mib: Option<Estimate>,
    /// Failed requests as a share of the answered ones.
    #[serde(default)]
    pub failed_share: Option<Estimate>,
    /// What the provider counted, where it tells.
    #[serde(default)]
    pub counted: Option<CountedSummary>,
    /// The figures of each round.
    pub by_round: Vec<RoundFigures>,
}

/// What the provider counted in a turn.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CountedSummary {
    /// Calls that it got.
    pub calls: Estimate,
    /// Calls that it got for each answered request.
    pub calls_per_request: Estimate,
    /// What its rate limits let through, where it has any.
    pub admitted: Option<Estimate>,
    /// What its rate limits refused.
    pub refused: Option<Estimate>,
    /// What it let through, as a share of what its rate limits allow in that time.
    pub allowance_used: Option<Estimate>,
}

/// What a scenario goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing.
    Direct,
    /// Egret.
    Egret,
    /// Another proxy.
    Peer,
}

/// One round's figures, for comparisons within a round.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct RoundFigures {
    /// From 1.
    pub round: u32,
    /// Response time at the 50th percentile.
    pub p50_ms: Option<f64>,
    /// Response time at the 99th percentile.
    pub p99_ms: Option<f64>,
    /// Answers in a second.
    pub requests_per_second: f64,
    /// CPU time of the proxy for each request.
    pub cpu_us_per_request: Option<f64>,
    /// The most memory that the proxy had.
    pub memory_mib: Option<f64>,
}

/// How what a scenario adds grows with provider time.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct SlopeSummary {
    /// The scenario.
    pub scenario: String,
    /// The percentile.
    pub percentile: usize,
    /// Milliseconds added for each second that the provider takes.
    pub ms_per_s: Estimate,
    /// The distance between the least and the most that was added, over all cases.
    pub spread_ms: f64,
}

impl Summary {
    /// Works a results folder out.
    pub fn of(results: &Results) -> Self {
        let metadata = &results.metadata;
        let baseline = metadata.experiment.baseline().to_owned();
        let cases: Vec<CaseSummary> = (0..metadata.experiment.cases.len())
            .map(|case| CaseSummary::of(results, case, &baseline))
            .collect();
        let mut summary = Self {
            version: 1,
            name: metadata.name.clone(),
            title: metadata.experiment.title.clone(),
            quick: metadata.quick,
            whole: results.is_whole(),
            failures_expected: metadata.experiment.failures_expected,
            slopes: slopes(results, &cases, &baseline),
            held: held(results),
            baseline,
            verdict: Vec::new(),
            doubts: Vec::new(),
            cases,
            tables: Vec::new(),
        };
        summary.tables =
            metadata.experiment.tables.iter().filter_map(|table| Table::of(table, &summary)).collect();
        summary.verdict = verdict::verdict(&summary);
        summary.doubts = verdict::doubts(&summary, results);
        summary
    }

    /// The cases by the rate that they are offered, the lowest first. None where two have the same: then they differ in something else.
    pub fn by_rate(&self) -> Vec<(u32, &CaseSummary)> {
        let rated = self.cases.iter().filter_map(|case| Some((case.offered_per_second?, case)));
        let mut rated: Vec<_> = rated.collect();
        rated.sort_by_key(|(rate, _)| *rate);
        if rated.windows(2).any(|pair| pair[0].0 == pair[1].0) { Vec::new() } else { rated }
    }

    /// The case of that name.
    pub fn case(&self, name: &str) -> Option<&CaseSummary> {
        self.cases.iter().find(|case| case.case == name)
    }
}

impl CaseSummary {
    fn of(results: &Results, index: usize, baseline: &str) -> Self {
        let experiment = &results.metadata.experiment;
        let case = &experiment.cases[index];
        let against = rounds(results, &case.name, baseline);
        let scenarios = experiment.scenarios.iter().filter_map(|scenario| {
            let turns = rounds(results, &case.name, &scenario.name);
            let kind = if scenario.is_direct() {
                Kind::Direct
            } else if scenario.egret.is_some() {
                Kind::Egret
            } else {
                Kind::Peer
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

    /// The scenario of that name.
    pub fn scenario(&self, name: &str) -> Option<&ScenarioSummary> {
        self.scenarios.iter().find(|scenario| scenario.scenario == name)
    }
}

/// The rate that all scenarios of a case are offered.
fn offered_per_second(experiment: &Experiment, case: &CaseConfig) -> Option<u32> {
    let mut rates =
        experiment.scenarios.iter().map(|scenario| experiment.client(case, scenario).requests_per_second);
    let first = rates.next()??;
    rates.all(|rate| rate == Some(first)).then_some(first)
}

/// A scenario's turns by round.
type Rounds<'a> = BTreeMap<u32, &'a Turn>;

fn rounds<'a>(results: &'a Results, case: &str, scenario: &str) -> Rounds<'a> {
    let turns = results.turns.iter().filter(|turn| turn.case == case && turn.scenario == scenario);
    turns.map(|turn| (turn.round, turn)).collect()
}

impl ScenarioSummary {
    /// `None` where there is no turn.
    fn of(name: &str, kind: Kind, turns: &Rounds<'_>, baseline: Option<&Rounds<'_>>) -> Option<Self> {
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
            by_round: by_round.collect(),
        })
    }

    /// The medians as ab writes its percentiles.
    pub fn percentiles_csv(&self) -> String {
        let mut csv = "Percentage served,Time in ms\n".to_owned();
        for (percent, time) in self.response_ms.iter().enumerate() {
            let _ = writeln!(csv, "{percent},{:.3}", time.value);
        }
        csv
    }

    /// A figure of this scenario and of another in the rounds that both have, in the order of rounds.
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

/// What is added at a percentile: the differences within the rounds that both have.
fn added(turns: &Rounds<'_>, baseline: &Rounds<'_>, percent: usize) -> Option<Estimate> {
    let pairs = turns.iter().filter_map(|(round, turn)| {
        Some((turn.percentile_ms(percent)?, baseline.get(round)?.percentile_ms(percent)?))
    });
    let (own, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
    difference(&own, &theirs)
}

fn slopes(results: &Results, cases: &[CaseSummary], baseline: &str) -> Vec<SlopeSummary> {
    if cases.iter().filter(|case| case.delay_ms.is_some()).count() < 2 {
        return Vec::new();
    }
    let scenarios = results.metadata.experiment.scenarios.iter().filter(|scenario| scenario.name != baseline);
    let wanted =
        scenarios.flat_map(|scenario| SLOPE_PERCENTILES.map(|percentile| (&scenario.name, percentile)));
    wanted
        .filter_map(|(scenario, percentile)| slope_of(results, cases, baseline, scenario, percentile))
        .collect()
}

fn slope_of(
    results: &Results,
    cases: &[CaseSummary],
    baseline: &str,
    scenario: &str,
    percentile: usize,
) -> Option<SlopeSummary> {
    let mut by_round: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let mut added = Vec::new();
    for case in cases {
        let Some(delay_ms) = case.delay_ms else { continue };
        added.extend(
            case.scenario(scenario)
                .and_then(|scenario| scenario.added_ms.get(percentile))
                .map(|added| added.value),
        );
        let (own, theirs) = (rounds(results, &case.case, scenario), rounds(results, &case.case, baseline));
        for (round, turn) in own {
            let against = theirs.get(&round).and_then(|turn| turn.percentile_ms(percentile));
            if let (Some(own), Some(against)) = (turn.percentile_ms(percentile), against) {
                by_round.entry(round).or_default().push((delay_ms / 1e3, own - against));
            }
        }
    }
    let (least, most) = (added.iter().copied().reduce(f64::min)?, added.iter().copied().reduce(f64::max)?);
    Some(SlopeSummary {
        scenario: scenario.to_owned(),
        percentile,
        ms_per_s: slope(&by_round.into_values().collect::<Vec<_>>())?,
        spread_ms: most - least,
    })
}
