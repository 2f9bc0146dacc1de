//! Charts of the time that a scenario adds, for several provider times: against provider time with a line for
//! each percentile, and over the percentiles with a line for each provider time.

use super::case_summary::CaseSummary;
use super::chart_parts::{fitted, note, percentile_axis, percentile_points, point};
use super::lines::{Axis, ChartLine, LineChart};
use super::slopes::SLOPE_PERCENTILES;
use super::summary::Summary;
use super::svg::{Chart, SERIES, Scale};

/// Draws both charts for each scenario except the baseline. Returns none unless two cases have a delay.
pub(crate) fn charts(summary: &Summary) -> Vec<Chart> {
    let mut timed: Vec<(f64, &CaseSummary)> =
        summary.cases.iter().filter_map(|case| Some((case.delay_ms?, case))).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    if timed.len() < 2 {
        return Vec::new();
    }
    let scenarios = timed[0].1.scenarios.iter().filter(|scenario| !scenario.added_ms.is_empty());
    let names = scenarios.map(|scenario| scenario.scenario.as_str());
    let drawn =
        names.map(|name| [over_percentiles(summary, &timed, name), against_time(summary, &timed, name)]);
    drawn.flatten().flatten().collect()
}

/// The class of a line by its number.
fn class(index: usize) -> String {
    let dashed = if index >= SERIES { " dashed" } else { "" };
    format!("s{}{dashed}", index % SERIES)
}

/// Draws the added time over the percentiles, one line for each provider time.
fn over_percentiles(summary: &Summary, timed: &[(f64, &CaseSummary)], name: &str) -> Option<Chart> {
    let lines: Vec<ChartLine> = timed
        .iter()
        .enumerate()
        .filter_map(|(index, (delay_ms, case))| {
            let points = percentile_points(&case.scenario(name)?.added_ms);
            Some(ChartLine { name: format!("{delay_ms:.0} ms"), class: class(index), points })
        })
        .collect();
    let scenario = timed.first()?.1.scenario(name)?;
    let chart = LineChart {
        name: format!("provider-times-{name}"),
        title: format!("Time added by {name}, for each provider time"),
        note: note(scenario.added_ms.first(), scenario.rounds, "band"),
        x: percentile_axis(),
        y: fitted(&format!("added to {}, ms", summary.baseline), &lines, &[0.0]),
        lines,
        marked: false,
        zero: Some(summary.baseline.clone()),
    };
    Some(chart.draw())
}

/// Draws the added time against provider time, one line for each percentile.
fn against_time(summary: &Summary, timed: &[(f64, &CaseSummary)], name: &str) -> Option<Chart> {
    let of = |case: &CaseSummary, percent: usize| Some(*case.scenario(name)?.added_ms.get(percent)?);
    let lines: Vec<ChartLine> = SLOPE_PERCENTILES
        .into_iter()
        .enumerate()
        .map(|(index, percent)| ChartLine {
            name: format!("p{percent}"),
            class: class(index),
            points: timed.iter().filter_map(|(x, case)| Some(point(*x, &of(case, percent)?))).collect(),
        })
        .collect();
    let longest = timed.last().map_or(0.0, |(delay, _)| *delay);
    let scenario = timed.first()?.1.scenario(name)?;
    let chart = LineChart {
        name: format!("provider-time-{name}"),
        title: format!("Time added by {name}, against provider time"),
        note: note(scenario.added_ms.first(), scenario.rounds, "whiskers"),
        x: Axis { label: "provider time, ms".into(), scale: Scale::around([0.0, longest].into_iter()) },
        y: fitted(&format!("added to {}, ms", summary.baseline), &lines, &[0.0]),
        lines,
        marked: true,
        zero: Some(summary.baseline.clone()),
    };
    Some(chart.draw())
}
