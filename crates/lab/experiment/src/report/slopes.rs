//! The increase of a scenario's added time with provider time.

use std::collections::BTreeMap;

use egret_measure::statistics::{Estimate, slope};
use serde::{Deserialize, Serialize};

use super::case_summary::{CaseSummary, rounds};
use crate::results::Results;

/// Percentiles for which the slope over provider time is reported.
pub(crate) const SLOPE_PERCENTILES: [usize; 4] = [50, 90, 95, 99];

/// Increase of a scenario's added time with provider time.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct SlopeSummary {
    /// The scenario.
    pub scenario: String,
    /// The percentile.
    pub percentile: usize,
    /// Milliseconds added per second of provider time.
    pub ms_per_s: Estimate,
    /// Difference between the largest and the smallest added time over all cases.
    pub spread_ms: f64,
}

/// Estimates the slopes of all scenarios except the baseline. Returns none unless two cases have a delay.
pub(crate) fn slopes(results: &Results, cases: &[CaseSummary], baseline: &str) -> Vec<SlopeSummary> {
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
    let (least, max) = (added.iter().copied().reduce(f64::min)?, added.iter().copied().reduce(f64::max)?);
    Some(SlopeSummary {
        scenario: scenario.to_owned(),
        percentile,
        ms_per_s: slope(&by_round.into_values().collect::<Vec<_>>())?,
        spread_ms: max - least,
    })
}
